use std::path::Path;

use nix::libc;
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const DISK: Disk = Disk { major: 254, minor: 16 };

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A host with a cgroup `a`, in which task 7 is, and one below it, in which task 8 is.
fn host() -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "sys/fs/cgroup/cgroup.controllers", "io");
    write(dir.path(), "sys/fs/cgroup/a/cgroup.threads", "7\n");
    write(dir.path(), "sys/fs/cgroup/a/init/cgroup.threads", "8\n");
    write(dir.path(), "proc/1/syscall", "running\n");
    let host = Host::fake(dir.path());
    (dir, host)
}

fn shared(host: &Host) -> Shared {
    Shared {
        host: host.clone(),
        cgroups: host.cgroups().unwrap(),
        watched: Mutex::default(),
        has_ended: AtomicBool::new(false),
    }
}

/// A task waits in a read at this place.
fn waits(root: &Path, task: u32, at: u64) {
    let line = format!("{} 0x3 0x7f00 0x1000 {at:#x} 0x0 0x0 0x1 0x1\n", libc::SYS_pread64);
    write(root, &format!("proc/{task}/syscall"), &line);
}

fn moved(read: u64) -> Moved {
    Moved { read: Bytes(read), reads: read / 4096, ..Moved::default() }
}

fn part(shared: &Shared, read: u64, now: Instant) -> Option<(u64, u64)> {
    let dir = shared.cgroups.open(&CgroupPath::new("a")).unwrap().unwrap();
    let mut disks = [(DISK, moved(read))];
    shared.tell(&dir, &mut disks, now);
    let Requests { bytes, sequential, .. } = disks[0].1.shape?.read;
    (bytes > Bytes::ZERO).then_some((bytes.0, sequential.0))
}

#[test]
fn who_goes_through_a_file_is_sequential_and_who_jumps_is_not() {
    let (dir, host) = host();
    let (shared, began) = (shared(&host), Instant::now());
    let at = |ms| began + Duration::from_millis(ms);
    assert!(!shared.look(at(0)), "nobody is asked for");
    assert_eq!(part(&shared, 0, at(0)), None);
    for look in 0..8 {
        // A read of the one is seen twice.
        waits(dir.path(), 7, look / 2 * MIB);
        waits(dir.path(), 8, (look * 37 % 8) * 100 * MIB);
        assert!(shared.look(at(look * 25)));
    }
    // 3 MiB between four looks at the one, as 5 in all; the rest by the other.
    let (bytes, sequential) = part(&shared, 10 * MIB, at(1000)).unwrap();
    assert_eq!((bytes, sequential), (10 * MIB, 5 * MIB));
    assert!(!shared.look(at(1000) + ASKED), "it was not asked for any more");
}

#[test]
fn of_too_few_steps_nothing_is_said() {
    let (dir, host) = host();
    let (shared, now) = (shared(&host), Instant::now());
    part(&shared, 0, now);
    for look in 0..ENOUGH {
        waits(dir.path(), 7, look * 4096);
        shared.look(now);
    }
    assert_eq!(part(&shared, MIB, now), None);
    waits(dir.path(), 7, MIB);
    shared.look(now);
    assert!(part(&shared, MIB, now).is_some());
}

#[test]
fn it_begins_ends_and_says_why_it_cannot() {
    let (dir, host) = host();
    let trace = CallTrace::attach(&host).unwrap();
    let cgroup = host.cgroups().unwrap().open(&CgroupPath::new("a")).unwrap().unwrap();
    trace.tell(&cgroup, &mut [(DISK, moved(4096))]);
    drop(trace);
    std::fs::remove_file(dir.path().join("proc/1/syscall")).unwrap();
    let error = CallTrace::attach(&host).unwrap_err().to_string();
    assert!(error.contains("proc/1/syscall"), "{error}");
}

fn call(at: u64) -> Call {
    Call { task: 1, file: 3, is_write: false, at }
}

proptest! {
    /// Pieces of any size, seen at any of them.
    #[test]
    fn one_in_sequence_is_told_however_seldom_it_is_seen(
        seconds in proptest::collection::vec((1u64..64, proptest::collection::vec(0u64..1000, 0..40)), 6..20),
    ) {
        let mut side = Side::default();
        let (mut begin, mut seen) = (0, 0);
        for (mib, at) in seconds {
            let mut at: Vec<u64> = at.into_iter().map(|part| begin + mib * MIB * part / 1000).collect();
            at.sort_unstable();
            seen = at.last().copied().unwrap_or(seen);
            side.follow(at.into_iter().map(call).collect(), begin + mib * MIB);
            begin += mib * MIB;
        }
        let (bytes, requests) = (Bytes(begin), side.requests(1, Bytes(begin)));
        prop_assert!(requests.sequential <= bytes);
        // All between where it was first and last seen, and somewhat more.
        if side.steps >= ENOUGH {
            let stream = side.streams.values().next().unwrap();
            prop_assert!(stream.at == seen && stream.forward == stream.steps);
            prop_assert!(requests.sequential.0 >= stream.went);
        }
    }

    /// Jumps over more than is moved meanwhile.
    #[test]
    fn one_that_jumps_is_not_taken_for_sequential(
        seconds in proptest::collection::vec(proptest::collection::vec(0u64..50, 0..40), 4..10),
    ) {
        let mut side = Side::default();
        let mut moved = 0;
        for places in seconds {
            moved += 4 * MIB;
            side.follow(places.into_iter().map(|at| call(at * 64 * MIB)).collect(), moved);
        }
        prop_assert_eq!(side.requests(1, Bytes(moved)).sequential, Bytes::ZERO);
    }
}
