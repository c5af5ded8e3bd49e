//! Lines of `trace_pipe` (kernel: trace/ftrace.rst, "trace_pipe"; include/trace/events/block.h and
//! writeback.h for what the events say).

use ctlmgr_model::{CgroupId, Disk};

/// Moves data; merging is still to come, and it is in the task that wants it, or writes back for it.
pub(crate) const QUEUED: &str = "block_bio_queue";
/// Begins to write back a file for a cgroup.
pub(crate) const WRITES_BACK: &str = "writeback_single_inode_start";
/// Has done so.
pub(crate) const WROTE_BACK: &str = "writeback_single_inode";

/// What a task of the host has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// It has asked a disk, or a partition, to move data.
    Queued(Queued),
    /// It writes for this cgroup from now on.
    WritesBack { task: u32, cgroup: CgroupId },
    /// It does so no more.
    WroteBack { task: u32 },
}

/// Data to be moved, in sectors of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queued {
    pub task: u32,
    /// Whether it is a worker of the kernel, which does this for others.
    pub is_kernels: bool,
    pub disk: Disk,
    pub is_write: bool,
    pub from: u64,
    pub sectors: u64,
}

/// Reads a line; `None` if it tells of neither, or was cut.
///
/// `comm-PID [CPU] FLAGS TIME: EVENT: …`; the name may hold anything, so the last of each mark before
/// the event counts.
pub(crate) fn parse(line: &str) -> Option<Event> {
    if let Some((head, rest)) = told(line, QUEUED) {
        return queued(task(head)?, rest).map(Event::Queued);
    }
    if let Some((head, rest)) = told(line, WRITES_BACK) {
        let cgroup = rest.split_whitespace().find_map(|word| word.strip_prefix("cgroup_ino="))?;
        return Some(Event::WritesBack {
            task: task(head)?,
            cgroup: CgroupId(cgroup.parse().ok()?),
        });
    }
    let (head, _) = told(line, WROTE_BACK)?;
    Some(Event::WroteBack { task: task(head)? })
}

/// What stands before and behind the name of an event.
fn told<'a>(line: &'a str, event: &str) -> Option<(&'a str, &'a str)> {
    let (head, rest) = line.split_once(event)?;
    Some((head.strip_suffix(": ")?, rest.strip_prefix(": ")?))
}

/// Its name before that is `<...>` where the kernel has forgotten it.
fn task(head: &str) -> Option<u32> {
    let (who, _) = head.rsplit_once(" [")?;
    who.trim_end().rsplit_once('-')?.1.parse().ok()
}

/// `MAJOR,MINOR FLAGS SECTOR + SECTORS [comm]`.
fn queued(task: u32, text: &str) -> Option<Queued> {
    // The name in the event itself is never forgotten.
    let (text, name) = text.split_once(" [")?;
    let is_kernels = name.starts_with("kworker/");
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
    Some(Queued { task, is_kernels, disk, is_write, from, sectors })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_and_writes_are_told_with_who_and_where() {
        let line = "             fio-1234    [000] .....   123.456789: block_bio_queue: 254,16 WFS 81920 + 8 [fio]";
        let disk = Disk { major: 254, minor: 16 };
        let (is_write, is_kernels) = (true, false);
        let told = Queued { task: 1234, is_kernels, disk, is_write, from: 81_920, sectors: 8 };
        assert_eq!(parse(line), Some(Event::Queued(told)));
        let line =
            "  a [b] c-d-77      [001] ..... 1.2: block_bio_queue: 254,16 RA 0 + 256 [a [b] c-d]";
        let is_write = false;
        let told = Queued { task: 77, is_kernels, disk, is_write, from: 0, sectors: 256 };
        assert_eq!(parse(line), Some(Event::Queued(told)));
        let line = "<...>-61 [000] ..... 1.2: block_bio_queue: 254,16 W 0 + 8 [kworker/u8:3]";
        assert!(matches!(parse(line), Some(Event::Queued(Queued { is_kernels: true, .. }))));
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
    fn who_writes_back_for_whom_is_told_and_until_when() {
        let rest = "bdi 254:16: ino=13 state=I_DIRTY dirtied_when=4 age=1 index=0 to_write=1024 wrote=0 \
                    cgroup_ino=4711";
        let line = |event| format!("   <...>-61      [000] ..... 5.0: {event}: {rest}");
        let told = Event::WritesBack { task: 61, cgroup: CgroupId(4711) };
        assert_eq!(parse(&line(WRITES_BACK)), Some(told));
        assert_eq!(parse(&line(WROTE_BACK)), Some(Event::WroteBack { task: 61 }));
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
