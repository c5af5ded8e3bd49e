//! Lines of `trace_pipe` (kernel: trace/ftrace.rst, "trace_pipe"; include/trace/events/block.h and
//! writeback.h for what the events say).

use ctlmgr_model::{CgroupId, Disk};

/// Moves data; merging is still to come, and it is in the task that wants it, or writes back for it.
pub(crate) const QUEUED: &str = "block_bio_queue";
/// Begins to write back a file for a cgroup.
pub(crate) const WRITES_BACK: &str = "writeback_single_inode_start";

/// What a task of the host has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// It has asked a disk, or a partition, to move data.
    Queued { task: u32, disk: Disk, is_write: bool, from: u64, sectors: u64 },
    /// A thread of the kernel writes for this cgroup from now on.
    WritesBack { task: u32, cgroup: CgroupId },
}

/// Reads a line; `None` if it tells of neither, or was cut.
///
/// `comm-PID [CPU] FLAGS TIME: EVENT: …`; the name may hold anything, so the last of each mark before
/// the event counts.
pub(crate) fn parse(line: &str) -> Option<Event> {
    match told(line, QUEUED) {
        Some((head, rest)) => queued(who(head)?.1, rest),
        None => told(line, WRITES_BACK).and_then(|(head, rest)| writes_back(who(head)?, rest)),
    }
}

/// What stands before and behind the name of an event.
fn told<'a>(line: &'a str, event: &str) -> Option<(&'a str, &'a str)> {
    let (head, rest) = line.split_once(event)?;
    Some((head.strip_suffix(": ")?, rest.strip_prefix(": ")?))
}

fn who(head: &str) -> Option<(&str, u32)> {
    let (who, _) = head.rsplit_once(" [")?;
    let (name, task) = who.trim().rsplit_once('-')?;
    Some((name, task.parse().ok()?))
}

/// `bdi …: ino=… … cgroup_ino=ID`.
fn writes_back((name, task): (&str, u32), text: &str) -> Option<Event> {
    let cgroup = text.split_whitespace().find_map(|word| word.strip_prefix("cgroup_ino="))?;
    // A task that syncs its own file is known by itself.
    let is_kernels = name.starts_with("kworker/");
    is_kernels.then_some(Event::WritesBack { task, cgroup: CgroupId(cgroup.parse().ok()?) })
}

/// `MAJOR,MINOR FLAGS SECTOR + SECTORS [comm]`.
fn queued(task: u32, text: &str) -> Option<Event> {
    let mut words = text.split_whitespace();
    let (major, minor) = words.next()?.split_once(',')?;
    let disk = Disk { major: major.parse().ok()?, minor: minor.parse().ok()? };
    // Of a flush, a discard or a secure erase nothing is to be moved: F, D, DE; FUA is behind the W.
    let is_write = match words.next()?.trim_start_matches('F').chars().next()? {
        'R' => false,
        'W' => true,
        _ => return None,
    };
    let from = words.next()?.parse().ok()?;
    let sectors = words.nth(1)?.parse().ok().filter(|n| *n > 0)?;
    Some(Event::Queued { task, disk, is_write, from, sectors })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_and_writes_are_told_with_who_and_where() {
        let line = "             fio-1234    [000] .....   123.456789: block_bio_queue: 254,16 WFS 81920 + 8 [fio]";
        let disk = Disk { major: 254, minor: 16 };
        let told = Event::Queued { task: 1234, disk, is_write: true, from: 81_920, sectors: 8 };
        assert_eq!(parse(line), Some(told));
        let line =
            "  a [b] c-d-77      [001] ..... 1.2: block_bio_queue: 254,16 RA 0 + 256 [a [b] c-d]";
        let told = Event::Queued { task: 77, disk, is_write: false, from: 0, sectors: 256 };
        assert_eq!(parse(line), Some(told));
    }

    #[test]
    fn what_moves_nothing_is_left_out() {
        for flags in ["FN", "D", "DE", "FS", "N"] {
            let line = format!("x-1 [0] . 1: block_bio_queue: 8,0 {flags} 8 + 8 [x]");
            assert_eq!(parse(&line), None, "{flags}");
        }
        assert_eq!(parse("x-1 [0] . 1: block_bio_queue: 8,0 FWFS 0 + 0 [x]"), None);
        assert_eq!(parse("CPU:0 [LOST 123 EVENTS]"), None);
    }

    #[test]
    fn who_writes_back_for_whom_is_told_of_the_kernels_threads() {
        let rest = "[000] ..... 5.0: writeback_single_inode_start: bdi 254:16: ino=13 state=I_DIRTY \
                    dirtied_when=4 age=1 index=0 to_write=1024 wrote=0 cgroup_ino=4711";
        let told = Event::WritesBack { task: 61, cgroup: CgroupId(4711) };
        assert_eq!(parse(&format!("   kworker/u8:3-61      {rest}")), Some(told));
        assert_eq!(parse(&format!("   dd-61      {rest}")), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in ".{0,120}", cut in 0_usize..120) {
            let line = format!("x-1 [0] . 1: block_bio_queue: 8,0 R 8 + 8 {text}");
            parse(&line);
            parse(&text);
            parse(line.get(..cut).unwrap_or_default());
        }
    }
}
