mod compose;
mod lessons;
mod sharing;

use super::*;
use ctlmgr_model::{DISKS, Disk, Io, PairPenalty, Percent};
use proptest::prelude::*;

fn settings() -> StartSettings {
    StartSettings { max_together: 3, ..StartSettings::default() }
}

fn waiting(ticket: u64, character: Option<Character>) -> Waiting {
    Waiting {
        ticket: Ticket(ticket),
        name: format!("c{ticket}"),
        traits: Traits { character, ..Traits::default() },
        weight: Weight::DEFAULT,
        since: Millis(ticket),
        longest: Millis(45_000),
        after: Vec::new(),
        is_released: false,
    }
}

fn starting(name: &str, character: Character) -> Starting {
    let traits = Traits { character: Some(character), ..Traits::default() };
    Starting { name: name.to_owned(), traits }
}

fn who_starts(queue: &Queue, now: u64) -> Vec<u64> {
    let all = admit(&settings(), queue, Millis(now));
    all.into_iter().filter(|a| a.may_start).map(|a| a.ticket.0).collect()
}

#[test]
fn sequential_waits_for_random_of_the_same_direction_and_reads_do_not_mind_writes() {
    let queue = Queue {
        waiting: vec![
            waiting(1, Some(Character::SequentialRead)),
            waiting(2, Some(Character::SequentialWrite)),
        ],
        starting: vec![starting("db", Character::RandomRead)],
        ..Queue::default()
    };
    let all = admit(&settings(), &queue, Millis(10));
    assert!(!all[0].may_start && all[1].may_start, "{all:?}");
    assert_eq!(all[0].behind, ["db"]);
    assert_eq!(all[0].reason, "sequential-read beside those costs 2.00, more than 1.25");
}

#[test]
fn who_is_heavier_comes_first_and_whoever_fits_may_overtake() {
    let mut queue = Queue {
        waiting: vec![
            waiting(1, Some(Character::RandomRead)),
            waiting(2, Some(Character::SequentialRead)),
            waiting(3, Some(Character::RandomWrite)),
        ],
        ..Queue::default()
    };
    assert_eq!(who_starts(&queue, 10), [1, 3]);
    queue.waiting[1].weight = Weight::new(400).unwrap();
    assert_eq!(who_starts(&queue, 10), [2, 3]);
}

#[test]
fn unknown_ones_hold_nobody_up_but_count() {
    let mut queue =
        Queue { waiting: (1..6).map(|t| waiting(t, None)).collect(), ..Queue::default() };
    assert_eq!(who_starts(&queue, 10), [1, 2, 3]);
    queue.waiting = (1..6).map(|t| waiting(t, Some(Character::Quiet))).collect();
    assert_eq!(who_starts(&queue, 10).len(), 5, "quiet ones do not");
}

#[test]
fn under_pressure_one_starts_at_a_time() {
    let cpu = Some(Character::Cpu);
    let mut queue = Queue { waiting: vec![waiting(1, cpu), waiting(2, None)], ..Queue::default() };
    queue.ground.io_full_pct = Some(80.0);
    assert_eq!(who_starts(&queue, 10), [1]);
    let second = &admit(&settings(), &queue, Millis(10))[1];
    assert_eq!(second.reason, "everything waits for the disk 80 % of the time");
    queue.waiting[1].traits.character = cpu;
    assert_eq!(who_starts(&queue, 10), [1, 2], "it does not want the disk");
}

#[test]
fn one_that_waits_for_the_disk_all_the_time_keeps_only_those_from_it_that_it_fights() {
    let (reads, scans) = (Character::RandomRead, Character::SequentialRead);
    let characters = [reads, scans, Character::SequentialWrite, reads];
    let mut queue = Queue {
        waiting: (1..).zip(characters).map(|(t, c)| waiting(t, Some(c))).collect(),
        ..Queue::default()
    };
    queue.ground.io_full_pct = Some(95.0);
    assert_eq!(who_starts(&queue, 10), [1, 3, 4]);
}

#[test]
fn a_mixed_one_costs_what_its_parts_cost_until_its_own_starts_have_taught_more() {
    use Character::{Mixed, RandomRead, RandomWrite, SequentialRead, SequentialWrite};
    let mix = Mix { read: SequentialRead, write: SequentialWrite, written: Percent(67) };
    let tree = Traits { character: Some(Mixed), mix: Some(mix), ..Traits::default() };
    let one = |character| Traits { character: Some(character), ..Traits::default() };
    let cost = |other: Traits, penalties: &Penalties| tree.conflict(&other, penalties);
    let none = Penalties::default();
    assert_eq!(cost(one(RandomWrite), &none), 134);
    assert_eq!(cost(one(SequentialWrite), &none), 67);
    assert_eq!(cost(one(RandomRead), &none), 66);
    assert_eq!(cost(tree, &none), 55, "a ninth of the time both read");
    assert_eq!(cost(one(Mixed), &none), 100, "nothing is known of the other's parts");
    let learned = PairPenalty {
        a: Mixed,
        b: RandomWrite,
        hundredths: 30,
        seen: 9,
        learned_unix: 1_800_000_000,
    };
    assert_eq!(cost(one(RandomWrite), &Penalties::new([learned])), 30);
    let once = PairPenalty { seen: 1, ..learned };
    assert_eq!(cost(one(RandomWrite), &Penalties::new([once])), 134);
    let parts = PairPenalty { a: RandomWrite, b: SequentialWrite, ..learned };
    assert_eq!(cost(one(RandomWrite), &Penalties::new([parts])), 20, "here they get on");
}

/// Who runs keeps the disk busy: starts that use it go one after the other then, and others as they like.
#[test]
fn where_the_disk_was_busy_before_starts_that_use_it_go_one_by_one() {
    let two =
        || vec![waiting(1, Some(Character::RandomRead)), waiting(2, Some(Character::RandomWrite))];
    let mut queue = Queue { waiting: two(), ..Queue::default() };
    queue.ground.io_full_pct = Some(90.0);
    assert_eq!(who_starts(&queue, 10), [1, 2], "they explain it");
    queue.ground.io_full_before_pct = Some(90.0);
    assert_eq!(who_starts(&queue, 10), [1]);
    queue.waiting[1].traits.character = Some(Character::Cpu);
    assert_eq!(who_starts(&queue, 10), [1, 2]);
    queue.ground.io_full_before_pct = Some(5.0);
    queue.waiting = two();
    assert_eq!(who_starts(&queue, 10), [1, 2]);
}

#[test]
fn processors_and_page_cache_are_shared() {
    let mut queue = Queue { waiting: vec![waiting(1, None), waiting(2, None)], ..Queue::default() };
    (queue.ground.cpu_milli, queue.ground.cache) = (Some(2000), Some(Bytes::mib(100)));
    for w in &mut queue.waiting {
        w.traits.cpu_milli = 1500;
    }
    assert_eq!(who_starts(&queue, 10), [1]);
    for w in &mut queue.waiting {
        (w.traits.cpu_milli, w.traits.cache) = (500, Bytes::mib(60));
    }
    assert_eq!(who_starts(&queue, 10), [1]);
    queue.starting = vec![Starting { name: "quiet".into(), traits: Traits::default() }];
    queue.waiting[0].traits.cache = Bytes::mib(500);
    assert_eq!(who_starts(&queue, 10)[0], 1, "too much by itself: to wait for others helps nobody");
    queue.starting.clear();
    queue.waiting[0].traits.cache = Bytes::mib(60);
    queue.waiting[1].traits.cache = Bytes::ZERO;
    assert_eq!(who_starts(&queue, 10), [1, 2], "who reads nothing needs no room");
}

#[test]
fn an_operator_holds_and_lets_go_and_no_hold_is_for_ever() {
    let mut queue = Queue {
        waiting: vec![waiting(1, None), waiting(2, None)],
        is_held: true,
        ..Queue::default()
    };
    assert!(who_starts(&queue, 10).is_empty());
    queue.waiting[1].is_released = true;
    assert_eq!(who_starts(&queue, 10), [2]);
    assert_eq!(who_starts(&queue, 45_001), [1, 2]);
}

#[test]
fn who_comes_after_another_waits_for_its_start_to_be_over() {
    let mut queue = Queue { waiting: vec![waiting(1, None), waiting(2, None)], ..Queue::default() };
    queue.waiting[0].after = vec!["c2".to_owned(), "gone".to_owned()];
    assert_eq!(who_starts(&queue, 10), [2]);
    (queue.waiting, queue.starting) =
        (vec![queue.waiting[0].clone()], vec![starting("c2", Character::Quiet)]);
    assert!(who_starts(&queue, 10).is_empty());
    queue.starting.clear();
    assert_eq!(who_starts(&queue, 10), [1]);
}

#[test]
fn a_start_is_over_when_healthy_or_quiet_or_gone_or_too_long() {
    let settled = |p: Progress| is_settled(&StartSettings::default(), &p);
    let fresh = Progress { lasted: Millis(5000), ..Progress::default() };
    assert_eq!(settled(fresh), None);
    assert_eq!(settled(Progress { is_healthy: true, ..fresh }), Some("healthy"));
    assert_eq!(settled(Progress { has_ended: true, ..fresh }), Some("ended"));
    assert!(settled(Progress { quiet_for: Some(Millis(9999)), ..fresh }).is_none());
    assert!(settled(Progress { quiet_for: Some(Millis(10_000)), ..fresh }).is_some());
    assert_eq!(settled(Progress { absent_for: Some(Millis(10_000)), ..fresh }), Some("ended"));
    assert!(settled(Progress { lasted: Millis(300_000), ..fresh }).is_some());
}

#[test]
fn only_whole_starts_say_how_long_they_take() {
    let settled = |progress: Progress| is_settled(&settings(), &progress).unwrap();
    let ended = settled(Progress { has_ended: true, ..Progress::default() });
    assert!(is_whole(ended, false) && !is_whole(ended, true));
    assert!(is_whole(settled(Progress { is_healthy: true, ..Progress::default() }), false));
    let quiet = Progress { quiet_for: Some(Millis(1_000_000)), ..Progress::default() };
    assert!(is_whole(settled(quiet), false));
    let late = Progress { lasted: Millis(1_000_000), ..Progress::default() };
    assert!(!is_whole(settled(late), false));
}

#[test]
fn those_on_different_disks_do_not_meet() {
    let all_on = |minor| on(&[(minor, 100, Character::SequentialRead)]);
    let mut queue = Queue {
        waiting: vec![waiting(1, Some(Character::SequentialRead))],
        starting: vec![starting("db", Character::RandomRead)],
        ..Queue::default()
    };
    queue.starting[0].traits.disks = on(&[(0, 100, Character::RandomRead)]);
    assert!(who_starts(&queue, 10).is_empty(), "its disk is not known");
    queue.waiting[0].traits.disks = all_on(0);
    assert!(who_starts(&queue, 10).is_empty());
    queue.waiting[0].traits.disks = all_on(16);
    assert_eq!(who_starts(&queue, 10), [1]);
}

/// What is done to some disks, by minor number and part of all bytes.
fn on(all: &[(u32, u8, Character)]) -> [Option<Use>; DISKS] {
    let mut disks = [None; DISKS];
    for (place, (minor, part, c)) in disks.iter_mut().zip(all) {
        let mix = Mix { read: *c, write: *c, written: Percent(0) };
        *place = Some(Use { disk: Disk { major: 8, minor: *minor }, part: Percent(*part), mix });
    }
    disks
}

/// By the guidelines two of sequential and random reads cost 2.00 on one disk.
#[test]
fn two_meet_on_each_disk_as_what_they_do_there_and_as_much_as_the_less_busy_one_does() {
    use Character::{RandomRead, SequentialRead, SequentialWrite};
    let cost = |a: &[(u32, u8, Character)], b: &[(u32, u8, Character)]| {
        let traits =
            |disks, character| Traits { disks, character: Some(character), ..Traits::default() };
        let (a, b) = (traits(on(a), a[0].2), traits(on(b), b[0].2));
        let penalties = Penalties::default();
        assert_eq!(a.conflict(&b, &penalties), b.conflict(&a, &penalties));
        a.conflict(&b, &penalties)
    };
    let reader = [(0, 100, RandomRead)];
    assert_eq!(cost(&reader, &[(0, 100, SequentialRead)]), 200);
    assert_eq!(cost(&reader, &[(0, 10, SequentialRead), (1, 90, SequentialRead)]), 20);
    assert_eq!(
        cost(&reader, &[(0, 50, SequentialWrite), (1, 50, RandomRead)]),
        0,
        "a log beside data"
    );
    let spread = |c| [0, 1, 2, 3].map(|minor| (minor, 25, c));
    assert_eq!(cost(&spread(RandomRead), &spread(SequentialRead)), 200, "an array of disks");
    let is_apart = |a: &[(u32, u8, Character)], b: &[(u32, u8, Character)]| {
        let traits = |disks| Traits { disks, ..Traits::default() };
        traits(on(a)).is_apart(&traits(on(b)))
    };
    let log = |data| [(0, 5, SequentialWrite), (data, 95, RandomRead)];
    assert!(is_apart(&log(1), &log(2)) && !is_apart(&log(1), &log(1)));
}

fn any_character() -> impl Strategy<Value = Option<Character>> {
    proptest::option::of(proptest::sample::select(Character::ALL.to_vec()))
}

prop_compose! {
    /// Up to twelve that wait, with dependencies at random, circles included.
    fn any_queue()(
        list in proptest::collection::vec(
            (any_character(), 1u16..2000, 0u64..50_000, 0u64..60_000,
             proptest::collection::vec(0u64..14, 0..4), 0u64..3000, 0u64..200),
            1..12),
        under_way in proptest::collection::vec((0u64..14, any_character()), 0..4),
        io_full in proptest::option::of(0.0f32..100.0), before in proptest::option::of(0.0f32..100.0),
    ) -> Queue {
        let mut queue = Queue::default();
        for (i, (character, weight, since, longest, after, cpu_milli, cache)) in list.into_iter().enumerate() {
            queue.waiting.push(Waiting {
                weight: Weight::new(i64::from(weight)).unwrap(),
                since: Millis(since),
                longest: Millis(longest),
                after: after.into_iter().map(|n| format!("c{n}")).collect(),
                traits: Traits { character, cpu_milli, cache: Bytes::mib(cache), ..Traits::default() },
                ..waiting(i as u64, None)
            });
        }
        for (n, character) in under_way {
            let traits = Traits { character, ..Traits::default() };
            queue.starting.push(Starting { name: format!("c{n}"), traits });
        }
        queue.ground = Ground {
            io_full_pct: io_full, io_full_before_pct: before, memory_full_pct: None, cpu_milli: Some(4000),
            cache: Some(Bytes::mib(300)),
        };
        queue
    }
}

proptest! {
    #[test]
    fn nobody_waits_longer_than_its_longest_wait(queue in any_queue(), now in 50_000u64..100_000) {
        for a in admit(&settings(), &queue, Millis(now)) {
            let w = queue.waiting.iter().find(|w| w.ticket == a.ticket).unwrap();
            prop_assert!(a.may_start || Millis(now).since(w.since) < w.longest);
        }
    }

    #[test]
    fn somebody_always_starts_whatever_depends_on_whom(queue in any_queue(), now in 0u64..100_000) {
        let is_anybody_busy = !queue.starting.is_empty()
            || admit(&settings(), &queue, Millis(now)).iter().any(|a| a.may_start);
        prop_assert!(is_anybody_busy);
    }

    /// Those that start end one after the other, in whatever order: all of them get their turn long
    /// before anybody's longest wait is over.
    #[test]
    fn dependencies_never_deadlock(queue in any_queue(), ends in proptest::collection::vec(any::<prop::sample::Index>(), 40)) {
        let mut queue = queue;
        for w in &mut queue.waiting {
            w.longest = Millis(u64::MAX);
        }
        queue.ground.io_full_pct = None;
        let mut ends = ends.into_iter();
        while !queue.waiting.is_empty() {
            for a in admit(&settings(), &queue, Millis(0)).into_iter().filter(|a| a.may_start) {
                let at = queue.waiting.iter().position(|w| w.ticket == a.ticket).unwrap();
                let w = queue.waiting.remove(at);
                queue.starting.push(Starting { name: w.name, traits: w.traits });
            }
            prop_assert!(!queue.starting.is_empty());
            let at = ends.next().unwrap().index(queue.starting.len());
            queue.starting.remove(at);
        }
    }

    #[test]
    fn nobody_is_admitted_against_a_rule_before_its_time(queue in any_queue(), now in 0u64..50_000) {
        let (all, mut starting) = (admit(&settings(), &queue, Millis(now)), queue.starting.clone());
        for a in all.iter().filter(|a| a.may_start) {
            let w = queue.waiting.iter().find(|w| w.ticket == a.ticket).unwrap();
            let is_forced = Millis(now).since(w.since) >= w.longest;
            if !is_forced && !starting.is_empty() {
                let cost = |s: &Starting| match (w.traits.character, s.traits.character) {
                    (Some(a), Some(b)) => penalty(a, b),
                    _ => 0,
                };
                // By the guidelines only these two fight.
                let fights = |s: &&Starting| cost(s) == 200;
                let StartSettings { most_penalty, most_sharing, .. } = settings();
                prop_assert!(starting.iter().filter(fights).map(cost).sum::<u32>() <= most_penalty);
                prop_assert!(starting.iter().map(cost).sum::<u32>() <= most_sharing);
                let is_explained = starting.iter().any(|s| s.traits.may_use_disk())
                    || !w.traits.may_use_disk();
                prop_assert!(is_explained || queue.ground.io_full_pct.is_none_or(|p| p <= 50.0));
                prop_assert!(starting.len() < 3
                    || [w.traits].iter().chain(starting.iter().map(|s| &s.traits))
                        .any(|t| t.character == Some(Character::Quiet)));
            }
            starting.push(Starting { name: w.name.clone(), traits: w.traits });
        }
    }

    #[test]
    fn the_order_of_the_lists_does_not_matter(queue in any_queue(), now in 0u64..100_000) {
        let mut turned = queue.clone();
        turned.waiting.reverse();
        prop_assert_eq!(admit(&settings(), &queue, Millis(now)), admit(&settings(), &turned, Millis(now)));
    }

    #[test]
    fn any_counters_have_a_character(read in any::<u64>(), written in any::<u64>(), reads in any::<u64>(), ms in any::<u64>()) {
        let io = Io { read: Bytes(read), written: Bytes(written), reads, writes: reads, cpu_usec: written, ..Io::default() };
        prop_assert!(Character::ALL.contains(&classify(&io, Millis(ms))));
    }
}
