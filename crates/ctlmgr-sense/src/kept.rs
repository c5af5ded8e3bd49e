//! Cgroups that stay open from one reading to the next, while one follows the other.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ctlmgr_host::{Allowance, CgroupDir, Hierarchy, Result};
use ctlmgr_model::CgroupPath;

/// Those of the last reading.
#[derive(Debug)]
pub(crate) struct Kept {
    dirs: Mutex<BTreeMap<CgroupPath, CgroupDir>>,
    allowance: Allowance,
}

impl Kept {
    pub(crate) fn new(allowance: Allowance) -> Kept {
        Kept { dirs: Mutex::default(), allowance }
    }

    /// Closes all; a reading that is under way leaves its own open.
    pub(crate) fn close(&self) {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// For one reading. What it does not open is closed at its end, and everything if another is not soon.
    pub(crate) fn begin<'a>(&'a self, cgroups: &'a Hierarchy, is_soon_again: bool) -> Dirs<'a> {
        let before = std::mem::take(&mut *self.dirs.lock().unwrap_or_else(PoisonError::into_inner));
        Dirs { kept: self, cgroups, is_soon_again, before, now: BTreeMap::new() }
    }
}

/// Those of one reading.
#[derive(Debug)]
pub(crate) struct Dirs<'a> {
    kept: &'a Kept,
    cgroups: &'a Hierarchy,
    is_soon_again: bool,
    before: BTreeMap<CgroupPath, CgroupDir>,
    now: BTreeMap<CgroupPath, CgroupDir>,
}

impl Dirs<'_> {
    /// What `read` says of a cgroup; `None` if that is not there.
    ///
    /// # Errors
    /// It cannot be opened, or what `read` says.
    pub(crate) fn with<T>(
        &mut self,
        path: &CgroupPath,
        read: impl FnOnce(&CgroupDir) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let Some(dir) = self.open(path)? else { return Ok(None) };
        let said = read(&dir);
        if self.is_soon_again && dir.stays_open() {
            self.now.insert(path.clone(), dir);
        }
        said
    }

    fn open(&mut self, path: &CgroupPath) -> Result<Option<CgroupDir>> {
        // Another one may be in its place since.
        let before = || self.before.remove(path).filter(CgroupDir::is_in_place);
        if let Some(dir) = self.now.remove(path).or_else(before) {
            return Ok(Some(dir));
        }
        let allowance = self.is_soon_again.then_some(&self.kept.allowance);
        let stay = |dir: CgroupDir| match allowance {
            Some(allowance) => dir.staying_open(allowance),
            None => dir,
        };
        Ok(self.cgroups.open(path)?.map(stay))
    }
}

impl Drop for Dirs<'_> {
    fn drop(&mut self) {
        *self.kept.dirs.lock().unwrap_or_else(PoisonError::into_inner) =
            std::mem::take(&mut self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `file` of each of these cgroups once.
    fn read(kept: &Kept, cgroups: &Hierarchy, is_soon_again: bool) -> Vec<Option<String>> {
        let mut dirs = kept.begin(cgroups, is_soon_again);
        let mut one = |name| dirs.with(&CgroupPath::new(name), |dir| dir.read("file")).unwrap();
        ["a", "b", "c"].map(&mut one).to_vec()
    }

    #[test]
    fn the_next_reading_finds_them_open_and_one_in_the_place_of_another_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("sys/fs/cgroup");
        let write = |name: &str, text: &str| {
            std::fs::create_dir_all(root.join(name)).unwrap();
            std::fs::write(root.join(name).join("file"), text).unwrap();
        };
        write("a", "1");
        write("b", "2");
        std::fs::write(root.join("cgroup.controllers"), "").unwrap();
        let cgroups = ctlmgr_host::Host::fake(dir.path()).cgroups().unwrap();
        let kept = Kept::new(Allowance::new(3));
        let text = |texts: [Option<&str>; 3]| texts.map(|t| t.map(str::to_owned)).to_vec();
        let open =
            || kept.dirs.lock().unwrap().keys().map(|k| k.name().to_owned()).collect::<Vec<_>>();

        assert_eq!(read(&kept, &cgroups, true), text([Some("1"), Some("2"), None]));
        // The directory and the file of the first, and the directory of the second.
        assert_eq!(open(), ["a", "b"]);
        write("a", "10");
        assert_eq!(read(&kept, &cgroups, true), text([Some("10"), Some("2"), None]));

        // On a disk the old file can still be read.
        std::fs::rename(root.join("a"), dir.path().join("old")).unwrap();
        write("a", "11");
        assert_eq!(read(&kept, &cgroups, true), text([Some("11"), Some("2"), None]));
        std::fs::rename(root.join("a"), dir.path().join("older")).unwrap();
        assert_eq!(read(&kept, &cgroups, true), text([None, Some("2"), None]));
        assert_eq!(open(), ["b"]);
        write("a", "12");
        assert_eq!(read(&kept, &cgroups, true), text([Some("12"), Some("2"), None]));

        assert_eq!(read(&kept, &cgroups, false), text([Some("12"), Some("2"), None]));
        assert_eq!(open(), [""; 0]);
        write("c", "3");
        write("b", "20");
        assert_eq!(read(&kept, &cgroups, true), text([Some("12"), Some("20"), Some("3")]));
        assert_eq!(open(), ["a", "b"], "no more may");
        kept.close();
        assert_eq!(open(), [""; 0]);
    }
}
