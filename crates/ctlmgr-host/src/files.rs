//! Files of cgroups that stay open from one reading to the next.
//!
//! The kernel makes the text of such a file anew for each read at its beginning, and to find, open and close it costs
//! more than that text. So what is read every second is opened once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

use crate::PAGE;

/// About the most that the kernel may hold for open files of this process: for each the page in which it made the text …
const MOST_BYTES: u64 = 8 << 20;
/// … and, about, what describes the file.
const BESIDE_PAGE: u64 = 1024;

/// How many more files and directories may stay open.
#[derive(Debug, Clone)]
pub struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    /// So many.
    pub fn new(files: usize) -> Allowance {
        Allowance(Arc::new(AtomicUsize::new(files)))
    }

    /// What this process may spare: half of what it may open, and about as many as the kernel holds in 8 MiB; 1638 with
    /// pages of 4 KiB.
    pub fn of_process() -> Allowance {
        let half = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft / 2);
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(PAGE as u64);
        let files = half.min(MOST_BYTES / (page + BESIDE_PAGE));
        Allowance::new(usize::try_from(files).unwrap_or_default())
    }

    fn take_one(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Open files of one cgroup, by name; its directory counts as one more.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    open: Mutex<Open>,
    allowance: Allowance,
}

#[derive(Debug, Default)]
struct Open {
    files: BTreeMap<String, File>,
    /// Room for a text, kept because to make it for each costs as well.
    room: Vec<u8>,
}

impl OpenFiles {
    /// None yet; `None` if not even the directory may stay.
    pub(crate) fn new(allowance: &Allowance) -> Option<OpenFiles> {
        let files = || OpenFiles { open: Mutex::default(), allowance: allowance.clone() };
        allowance.take_one().then(files)
    }

    /// What a file that is still open says now. `None` where it has to be opened: for the first time, or because it is
    /// gone, which closes it, as a controller may have been switched off and on.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        let Open { files, room } = &mut *self.lock();
        let text = read_at_once(files.get(name)?, room).ok();
        if text.is_none() && files.remove(name).is_some() {
            self.give_back(1);
        }
        text
    }

    /// Leaves it open for the next reading, if one more may be.
    pub(crate) fn keep(&self, name: &str, file: File) {
        let Open { files, .. } = &mut *self.lock();
        if !files.contains_key(name) && self.allowance.take_one() {
            files.insert(name.to_owned(), file);
        }
    }

    fn give_back(&self, files: usize) {
        self.allowance.0.fetch_add(files, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        self.give_back(self.lock().files.len() + 1);
    }
}

/// The text from its beginning. A file of a cgroup that tells one thing comes whole in one read that has room for it.
fn read_at_once(file: &File, room: &mut Vec<u8>) -> io::Result<String> {
    loop {
        room.resize(room.len().max(PAGE), 0);
        let length = file.read_at(room, 0)?;
        if length < room.len() {
            return String::from_utf8(room[..length].to_vec()).map_err(io::Error::other);
        }
        room.resize(room.len() * 2, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::NamedTempFile, File) {
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), text).unwrap();
        let file = File::open(named.path()).unwrap();
        (named, file)
    }

    #[test]
    fn an_open_file_says_what_is_there_now_however_long() {
        let (named, open) = file("1\n");
        let files = OpenFiles::new(&Allowance::new(2)).unwrap();
        assert_eq!(files.read("a"), None);
        files.keep("a", open);
        assert_eq!(files.read("a").as_deref(), Some("1\n"));
        for length in [0, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE, 1] {
            let long = "x".repeat(length);
            std::fs::write(named.path(), &long).unwrap();
            assert_eq!(files.read("a"), Some(long));
        }
    }

    #[test]
    fn no_more_stay_open_than_may_and_each_is_given_back_once() {
        let allowance = Allowance::new(4);
        let [files, other] = [(); 2].map(|()| OpenFiles::new(&allowance).unwrap());
        for name in ["a", "a", "b", "c"] {
            files.keep(name, file(name).1);
        }
        assert_eq!(["a", "b", "c"].map(|name| files.read(name).is_some()), [true, true, false]);
        other.keep("d", file("d").1);
        assert_eq!(other.read("d"), None);
        // What is a directory by now cannot be read, and is closed.
        files.lock().files.insert("b".into(), File::open("/").unwrap());
        assert_eq!(files.read("b"), None);
        other.keep("d", file("d").1);
        assert_eq!(other.read("d").as_deref(), Some("d"));
        assert!(OpenFiles::new(&allowance).is_none());
        drop((files, other));
        assert_eq!(allowance.0.load(Ordering::Relaxed), 4);
    }
}
