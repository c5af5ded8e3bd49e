//! The system call in which a task waits (`/proc/TID/syscall`, proc_pid_syscall(5)), where it moves data of a file.

use std::fs::{File, read_link};
use std::io::Read;

use ctlmgr_host::Host;
use nix::libc;

/// One that moves data at a place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub task: u32,
    pub file: u64,
    pub is_write: bool,
    /// In bytes.
    pub at: u64,
}

/// A line of `/proc/TID/syscall`, as far as it is about data of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    file: u64,
    is_write: bool,
    /// Where the call itself says where; others go on where the file was left.
    at: Option<u64>,
}

/// Those that say where (pread and its kin), and those that do not.
const AT: [(libc::c_long, bool); 6] = [
    (libc::SYS_pread64, false),
    (libc::SYS_preadv, false),
    (libc::SYS_preadv2, false),
    (libc::SYS_pwrite64, true),
    (libc::SYS_pwritev, true),
    (libc::SYS_pwritev2, true),
];
const ON: [(libc::c_long, bool); 4] = [
    (libc::SYS_read, false),
    (libc::SYS_readv, false),
    (libc::SYS_write, true),
    (libc::SYS_writev, true),
];
/// preadv2 and pwritev2 take it for "where the file was left".
const NOWHERE: u64 = u64::MAX;

/// The place is in the first line.
const MOST_TOLD: u64 = 256;

/// Reads the call in which a task waits now; `None` for one that runs, waits elsewhere, or is gone.
pub(crate) fn read(host: &Host, task: u32) -> Option<Call> {
    let line = parse(&host.read(&format!("proc/{task}/syscall")).ok()??)?;
    let Line { file, is_write, at } = line;
    let at = at.or_else(|| position(&told(host, task, file)?))?;
    Some(Call { task, file, is_write, at })
}

/// The beginning of `/proc/TID/fdinfo/FD` of a file that has a path. Nothing else has places, and some of that is told of at any
/// length: a line for each watch of an inotify.
fn told(host: &Host, task: u32, file: u64) -> Option<String> {
    let link = read_link(host.path(&format!("proc/{task}/fd/{file}"))).ok()?;
    let told = File::open(host.path(&format!("proc/{task}/fdinfo/{file}"))).ok()?;
    let mut text = String::new();
    link.is_absolute().then(|| told.take(MOST_TOLD).read_to_string(&mut text).ok())??;
    Some(text)
}

/// `0 0x3 0x7f… 0x1000 …`: the number of the call and its arguments.
pub(crate) fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let mut hex = words.map(|w| u64::from_str_radix(w.strip_prefix("0x")?, 16).ok());
    let file = hex.next()??;
    let of = |all: &[(libc::c_long, bool)]| all.iter().find(|(n, _)| *n == number).map(|(_, w)| *w);
    if let Some(is_write) = of(&ON) {
        return Some(Line { file, is_write, at: None });
    }
    let is_write = of(&AT)?;
    let at = hex.nth(2)??;
    Some(Line { file, is_write, at: Some(at).filter(|at| *at != NOWHERE) })
}

/// `pos` of `/proc/TID/fdinfo/FD`.
fn position(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn calls_that_move_data_of_files_are_told_with_where() {
        let pread =
            format!("{} 0x5 0x7f00 0x20000 0x500000 0x0 0x0 0x7ffd 0x7f11\n", libc::SYS_pread64);
        let (file, at) = (5, Some(0x0050_0000));
        assert_eq!(parse(&pread), Some(Line { file, is_write: false, at }));
        let write = format!("{} 0x7 0x7f00 0x1000 0x9 0x0 0x0 0x7ffd 0x7f11\n", libc::SYS_write);
        assert_eq!(parse(&write), Some(Line { file: 7, is_write: true, at: None }));
        let left =
            format!("{} 0x7 0x7f00 0x1 0xffffffffffffffff 0x0 0x0 0x1 0x1", libc::SYS_pwritev2);
        assert_eq!(parse(&left), Some(Line { file: 7, is_write: true, at: None }));
        for other in ["running", "-1 0x7ffd 0x7f11", "202 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn one_that_does_not_say_where_goes_on_where_the_file_was_left() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/9/fdinfo")).unwrap();
        std::fs::create_dir_all(dir.path().join("proc/9/fd")).unwrap();
        let is = |what: &str| {
            let fd = dir.path().join("proc/9/fd/3");
            let _ = std::fs::remove_file(&fd);
            std::os::unix::fs::symlink(what, fd).unwrap();
        };
        is("/data/x");
        let line = format!("{} 0x3 0x7f00 0x1000 0x0 0x0 0x0 0x1 0x1", libc::SYS_read);
        std::fs::write(dir.path().join("proc/9/syscall"), line).unwrap();
        let host = Host::fake(dir.path());
        assert_eq!(read(&host, 9), None);
        std::fs::write(dir.path().join("proc/9/fdinfo/3"), "pos:\t8192\nflags:\t02\n").unwrap();
        let call = Call { task: 9, file: 3, is_write: false, at: 8192 };
        assert_eq!((read(&host, 9), read(&host, 10)), (Some(call), None));
        let long = format!("pos:\t8192\n{}", "inotify wd:1\n".repeat(100_000));
        std::fs::write(dir.path().join("proc/9/fdinfo/3"), long).unwrap();
        assert_eq!(read(&host, 9), Some(call), "no more is read than the place");
        is("anon_inode:inotify");
        assert_eq!(read(&host, 9), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(number in -5_i64..500, text in ".{0,80}") {
            parse(&text);
            parse(&format!("{number} 0x3 {text}"));
            position(&text);
        }
    }
}
