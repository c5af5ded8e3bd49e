//! What starts, and those that run, teach.

use super::*;
use ctlmgr_model::{Disks, MemorySample, Moved, Requests, Shape};

#[test]
fn characters_follow_direction_and_size() {
    let of = |read: u64, reads, written: u64, writes, cpu_usec| {
        let (read, written) = (Bytes::mib(read), Bytes::mib(written));
        let io = Io { read, reads, written, writes, cpu_usec, ..Io::default() };
        classify(&io, Millis(10_000))
    };
    assert_eq!(of(100, 25_600, 1, 10, 0), Character::RandomRead);
    assert_eq!(of(100, 800, 1, 10, 0), Character::SequentialRead);
    assert_eq!(of(1, 10, 100, 25_600, 0), Character::RandomWrite);
    assert_eq!(of(1, 10, 100, 800, 0), Character::SequentialWrite);
    assert_eq!(of(60, 100, 40, 100, 0), Character::Mixed);
    assert_eq!(of(1, 10, 1, 10, 8_000_000), Character::Cpu);
    assert_eq!(of(1, 10, 1, 10, 100_000), Character::Quiet);
}

#[test]
fn who_waits_for_the_disk_is_not_quiet_however_little_comes_of_it() {
    // A disk that makes a hundred requests of 4 KiB a second.
    let io = |wait_ms: u64| Io {
        read: Bytes(409_600),
        reads: 100,
        waited_usec: wait_ms * 1000,
        ..Io::default()
    };
    let second = Millis(1000);
    assert!(!is_quiet(&io(900), second, Bytes::ZERO));
    assert_eq!(classify(&io(900), second), Character::RandomRead);
    assert!(is_quiet(&io(100), second, Bytes::ZERO));
    assert_eq!(classify(&io(100), second), Character::Quiet);
    assert!(is_quiet(&io(900), second, Bytes(300_000)), "as it always does");
    let elsewhere = Io { waited_usec: 1_000_000, ..Io::default() };
    assert!(is_quiet(&elsewhere, second, Bytes::ZERO), "it waits, and not for a disk of this host");
    assert_eq!(classify(&elsewhere, second), Character::Quiet);
    let behind = Io { reads: 5, ..io(900) };
    assert!(is_quiet(&behind, second, Bytes::ZERO), "others are at work, not this one");
}

#[test]
fn runs_of_requests_say_more_than_their_size() {
    let of = |mib: u64, size_kib: u64, in_runs: u64| {
        let (read, count) = (Bytes::mib(mib), mib * 1024 / size_kib);
        let requests =
            Requests { count, bytes: read, sequential: Bytes::mib(in_runs), ..Requests::default() };
        let shape = Some(Shape { read: requests, ..Shape::default() });
        classify(&Io { read, reads: count, shape, ..Io::default() }, Millis(10_000))
    };
    assert_eq!(of(100, 4, 90), Character::SequentialRead, "direct, in small requests");
    assert_eq!(of(100, 1024, 10), Character::RandomRead, "large, but all over the device");
}

#[test]
fn a_profile_keeps_the_shape_of_starts_that_were_traced() {
    let requests = |n| Requests { count: n, bytes: Bytes(n * 4096), ..Requests::default() };
    let traced =
        |n| Io { shape: Some(Shape { read: requests(n), ..Shape::default() }), ..Io::default() };
    let first = learn(None, traced(40), Millis(1000), None);
    let untraced = learn(Some(&first), Io::default(), Millis(1000), None);
    assert_eq!(untraced.io.shape, first.io.shape);
    let second = learn(Some(&untraced), traced(10), Millis(1000), None);
    assert_eq!(second.io.shape.unwrap().read.count, 30, "a third of the third");
    assert_eq!((first.confidence, second.confidence), (Percent(50), Percent(83)));
}

/// A quarter is read at random from one disk, the rest written in sequence to another.
fn log_and_data() -> Io {
    let disk = |minor| Disk { major: 8, minor };
    let data = Moved { read: Bytes::mib(100), reads: 25_600, ..Moved::default() };
    let log = Moved { written: Bytes::mib(300), writes: 300, ..Moved::default() };
    Io {
        read: data.read,
        reads: data.reads,
        written: log.written,
        writes: log.writes,
        disks: [(disk(0), data), (disk(1), log)].into_iter().collect(),
        ..Io::default()
    }
}

#[test]
fn what_a_start_does_to_each_disk_is_told_apart() {
    use Character::{Mixed, RandomRead, SequentialRead, SequentialWrite};
    let profile = learn(None, log_and_data(), Millis(10_000), None);
    let on = |stated| {
        let all = traits(Some(&profile), stated).disks;
        let told = |u: &Use| (u.disk.minor, u.part.0, u.mix.read, u.mix.write);
        all.iter().flatten().map(told).collect::<Vec<_>>()
    };
    let seen = [(0, 25, RandomRead, RandomRead), (1, 75, SequentialWrite, SequentialWrite)];
    assert_eq!(on(None), seen);
    assert_eq!(on(Some(Mixed)), seen, "what it is made of is known better");
    let stated = [(0, 25, SequentialRead, SequentialRead), (1, 75, SequentialRead, SequentialRead)];
    assert_eq!(on(Some(SequentialRead)), stated);
    // A start of which no disk was told apart says nothing of disks.
    let untold = Io { disks: Disks::default(), ..log_and_data() };
    let next = learn(Some(&profile), untold, Millis(10_000), None);
    assert_eq!(next.io.disks, profile.io.disks);
    let first = learn(None, untold, Millis(10_000), None);
    assert_eq!(
        learn(Some(&first), log_and_data(), Millis(10_000), None).io.disks,
        log_and_data().disks
    );
}

#[test]
fn a_profile_follows_the_last_starts() {
    let io = |read| Io { read: Bytes::mib(read), reads: read * 256, ..Io::default() };
    let mut profile = learn(None, io(40), Millis(10_000), Some(Bytes(5)));
    assert_eq!((profile.character, profile.starts), (Character::RandomRead, 1));
    for _ in 0..20 {
        profile = learn(Some(&profile), io(4), Millis(10_000), Some(Bytes(5)));
    }
    assert_eq!((profile.character, profile.starts), (Character::Quiet, 21));
    let known = traits(Some(&profile), None);
    assert_eq!(known.character, Some(Character::Quiet));
    let stated = traits(Some(&profile), Some(Character::RandomWrite)).character;
    assert_eq!(stated, Some(Character::RandomWrite), "a label has the last word");
    assert_eq!(traits(None, None), Traits::default());
}

#[test]
fn what_one_does_that_runs_is_kept_beside_its_starts() {
    let memory = MemorySample {
        anon: Bytes::mib(100),
        active_file: Bytes::mib(50),
        inactive_file: Bytes::mib(150),
        current: Bytes::mib(300),
        ..MemorySample::default()
    };
    // In 20 s 100 MiB by requests of 4 KiB.
    let reads = |mib: u64| Io { read: Bytes::mib(mib), reads: mib * 256, ..Io::default() };
    let first = learn_running(None, reads(100), Millis(20_000), &memory);
    let running = first.running.unwrap();
    assert_eq!((first.starts, first.character), (0, Character::RandomRead));
    assert_eq!((running.per_minute, running.looks), (reads(300), 1));
    assert_eq!((running.working_set, running.page_cache), (Bytes::mib(150), Bytes::mib(200)));
    assert_eq!(traits(Some(&first), None).character, Some(Character::RandomRead));
    assert_eq!(traits(Some(&first), None).cache, Bytes::ZERO, "of its start nothing is known");
    let resting = learn_running(None, Io::default(), Millis(60_000), &memory);
    assert_eq!(resting.running.unwrap().character, Character::Quiet);
    assert_eq!(traits(Some(&resting), None), Traits::default(), "how it gets there is not known");
    // Its first start counts by itself, and does not change what is known of it running.
    let writes = Io { written: Bytes::mib(200), writes: 200, ..Io::default() };
    let started = learn(Some(&first), writes, Millis(2000), None);
    assert_eq!((started.starts, started.character), (1, Character::SequentialWrite));
    assert_eq!((started.io, started.running), (writes, Some(running)));
    // Nor does the next look change what is known of its starts.
    let second = learn_running(Some(&started), Io::default(), Millis(60_000), &memory);
    assert_eq!(
        (second.starts, second.io, second.character),
        (1, writes, Character::SequentialWrite)
    );
    let running = second.running.unwrap();
    assert_eq!((running.per_minute.read, running.looks), (Bytes::mib(150), 2));
    let idle = (0..20)
        .fold(second, |p, _| learn_running(Some(&p), Io::default(), Millis(60_000), &memory));
    assert_eq!(idle.running.unwrap().character, Character::Quiet, "what it did once fades");
    assert!(idle.running.unwrap().confidence.0 > 80);
}
