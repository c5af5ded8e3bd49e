//! Who shares a disk, and who fights for it.

use super::*;

#[test]
fn five_that_are_alike_share_a_disk_and_those_that_they_would_ruin_wait() {
    use Character::{RandomWrite, SequentialWrite};
    let settings = StartSettings::default();
    let of = |characters: &[Character]| Queue {
        waiting: (1..).zip(characters).map(|(t, c)| waiting(t, Some(*c))).collect(),
        ..Queue::default()
    };
    let starts = |queue: &Queue| {
        let all = admit(&settings, queue, Millis(10)).into_iter();
        all.filter(|a| a.may_start).map(|a| a.ticket.0).collect::<Vec<_>>()
    };
    let mut queue = of(&[RandomWrite; 7]);
    assert_eq!(starts(&queue), [1, 2, 3, 4, 5]);
    let sixth = &admit(&settings, &queue, Millis(10))[5];
    assert_eq!(sixth.reason, "random-write beside those costs 5.00, more than 4.00");
    assert_eq!(sixth.behind.len(), 5);
    assert_eq!(starts(&of(&[RandomWrite, SequentialWrite, RandomWrite, RandomWrite])), [1, 3, 4]);
    // Here two of a kind take more than three times as long: there is nothing to be shared.
    let (hundredths, seen, learned_unix) = (210, 9, 1_800_000_000);
    let learned = PairPenalty { a: RandomWrite, b: RandomWrite, hundredths, seen, learned_unix };
    queue.penalties = Penalties::new([learned]);
    assert_eq!(starts(&queue), [1]);
}

#[test]
fn who_takes_more_from_another_than_its_like_does_fights_it() {
    use Character::{Mixed, RandomRead, SequentialRead, SequentialWrite};
    let one = |character| Traits { character: Some(character), ..Traits::default() };
    let mix = Mix { read: SequentialRead, write: SequentialWrite, written: Percent(67) };
    let tree = Traits { mix: Some(mix), ..one(Mixed) };
    let none = Penalties::default();
    let shares = |a: &Traits, b: &Traits| {
        assert_eq!(a.shares(b, &none), b.shares(a, &none));
        a.shares(b, &none)
    };
    assert!(shares(&tree, &tree) && shares(&tree, &one(SequentialWrite)));
    assert!(!shares(&tree, &one(RandomRead)), "0.66, where likes cost 0.50 and 0.55");
    assert!(shares(&one(RandomRead), &one(SequentialWrite)), "they do not meet");
    assert!(!shares(&one(RandomRead), &one(SequentialRead)));
}

/// How little one does on a disk is no reason to let it ruin there whoever does all of its work on it.
#[test]
fn who_does_a_part_of_its_work_on_a_disk_fights_there_as_if_it_were_all() {
    use Character::{RandomRead, SequentialRead};
    let on = |character, parts: &[(u32, u8)]| {
        let mut disks = [None; ctlmgr_model::DISKS];
        let mix = Mix { read: character, write: character, written: Percent(0) };
        for (place, (minor, part)) in disks.iter_mut().zip(parts) {
            let disk = ctlmgr_model::Disk { major: 8, minor: *minor };
            *place = Some(Use { disk, part: Percent(*part), mix });
        }
        Traits { character: Some(character), disks, ..Traits::default() }
    };
    let (database, reader) =
        (on(RandomRead, &[(0, 100)]), on(SequentialRead, &[(0, 34), (16, 66)]));
    let none = Penalties::default();
    assert_eq!(database.conflict(&reader, &none), 68);
    assert!(!database.shares(&reader, &none) && !reader.shares(&database, &none));
    assert!(reader.shares(&reader, &none) && database.shares(&database, &none));
}
