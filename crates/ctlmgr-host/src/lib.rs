//! A rooted host: files below a root directory that is an argument, never a constant.
//!
//! Knows how to read and write a small kernel file and which cgroup a directory is. It does not
//! know what any file means. A cgroup that vanished between listing and reading is `None`, and
//! this crate is the only place where that is decided.

mod files;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use ctlmgr_model::{CgroupId, CgroupPath};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat, stat};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

pub use crate::files::Allowance;
use crate::files::OpenFiles;

/// Why a file of the host could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Reading failed.
    #[error("failed to read {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Writing failed.
    #[error("failed to write `{value}` to {path}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// What.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// The text in a file was not what its kernel document says.
    #[error("failed to understand {path}: `{text}`")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// The beginning of what it held.
        text: String,
    },
    /// No cgroup v2 hierarchy at the place.
    #[error("{0} is no cgroup v2 hierarchy")]
    NotCgroup2(PathBuf),
}

impl HostError {
    /// A file that did not hold what was expected.
    pub fn malformed(path: impl Into<PathBuf>, text: &str) -> HostError {
        HostError::Malformed { path: path.into(), text: text.chars().take(60).collect() }
    }
}

/// Result of a host operation.
pub type Result<T> = std::result::Result<T, HostError>;

/// A directory that stands for `/`.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
    is_real: bool,
}

impl Host {
    /// The machine that this process runs on.
    pub fn real() -> Host {
        Host { root: PathBuf::from("/"), is_real: true }
    }

    /// A directory that looks like a host, for tests: no file system types are checked.
    pub fn fake(root: impl Into<PathBuf>) -> Host {
        Host { root: root.into(), is_real: false }
    }

    /// A path below the root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file, or `None` if there is no such file.
    ///
    /// # Errors
    /// Anything but absence.
    pub fn read(&self, path: &str) -> Result<Option<String>> {
        let path = self.path(path);
        let read = File::open(&path).and_then(|file| read_whole(&file));
        or_absent(read).map_err(|source| HostError::Read { path, source })
    }

    /// Writes a value in one write call; `false` if there is no such file.
    ///
    /// # Errors
    /// Anything but absence.
    pub fn write(&self, path: &str, value: &str) -> Result<bool> {
        let path = self.path(path);
        let written = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .and_then(|mut file| file.write(value.as_bytes()));
        let fail = |source| HostError::Write { path, value: value.to_owned(), source };
        or_absent(written).map(|n| n.is_some()).map_err(fail)
    }

    /// The cgroup v2 hierarchy.
    ///
    /// # Errors
    /// There is none where one is expected.
    pub fn cgroups(&self) -> Result<Hierarchy> {
        let root = self.path("sys/fs/cgroup");
        let is_v2 = match self.is_real {
            true => statfs(&root).is_ok_and(|s| s.filesystem_type() == CGROUP2_SUPER_MAGIC),
            false => root.join("cgroup.controllers").exists(),
        };
        if is_v2 { Ok(Hierarchy { root }) } else { Err(HostError::NotCgroup2(root)) }
    }
}

/// A mounted cgroup v2 hierarchy.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    root: PathBuf,
}

impl Hierarchy {
    /// Opens a cgroup, or `None` if it is not there.
    ///
    /// # Errors
    /// Anything but absence.
    pub fn open(&self, cgroup: &CgroupPath) -> Result<Option<CgroupDir>> {
        let path = self.root.join(cgroup.as_str());
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let fail = |e: Errno| HostError::Read { path: path.clone(), source: e.into() };
        let fd = match open(&path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::ENOENT | Errno::ENODEV | Errno::ENOTDIR) => return Ok(None),
            Err(errno) => return Err(fail(errno)),
        };
        let id = CgroupId(fstat(&fd).map_err(fail)?.st_ino);
        Ok(Some(CgroupDir { cgroup: cgroup.clone(), path, id, fd, files: None }))
    }

    /// Names of the child cgroups, sorted; empty if the cgroup vanished.
    ///
    /// # Errors
    /// Anything but absence.
    pub fn children(&self, cgroup: &CgroupPath) -> Result<Vec<CgroupPath>> {
        let path = self.root.join(cgroup.as_str());
        let fail = |source| HostError::Read { path: path.clone(), source };
        let Some(entries) = or_absent(fs::read_dir(&path)).map_err(fail)? else {
            return Ok(Vec::new());
        };
        let mut out: Vec<CgroupPath> = entries
            .filter_map(io::Result::ok)
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .filter_map(|e| e.file_name().to_str().map(|name| cgroup.child(name)))
            .collect();
        out.sort();
        Ok(out)
    }

    /// Whether the cgroups right below the root have such a file.
    pub fn offers(&self, file: &str) -> bool {
        let top = self.children(&CgroupPath::new("")).unwrap_or_default();
        top.iter().any(|cgroup| self.file(cgroup, file).exists())
    }

    /// Whether memory can be taken from a cgroup without limiting it: memory.reclaim (Linux 5.19). Where
    /// nothing can be told, yes.
    pub fn has_reclaim(&self) -> bool {
        self.offers("memory.reclaim") || !self.offers("memory.high")
    }

    /// Path of a file of a cgroup on this host, for watches.
    pub fn file(&self, cgroup: &CgroupPath, name: &str) -> PathBuf {
        self.root.join(cgroup.as_str()).join(name)
    }
}

/// An open cgroup directory: stays the same cgroup even if its path is used again.
#[derive(Debug)]
pub struct CgroupDir {
    cgroup: CgroupPath,
    path: PathBuf,
    id: CgroupId,
    fd: OwnedFd,
    files: Option<OpenFiles>,
}

impl CgroupDir {
    /// Which cgroup this is.
    pub fn id(&self) -> CgroupId {
        self.id
    }

    /// Its path in the hierarchy.
    pub fn cgroup(&self) -> &CgroupPath {
        &self.cgroup
    }

    /// Whether its path still leads to it.
    pub fn is_in_place(&self) -> bool {
        stat(&self.path).is_ok_and(|found| CgroupId(found.st_ino) == self.id)
    }

    /// The same, whose files stay open once they were read, as far as that is allowed. One that the kernel removes is
    /// noticed; one that is replaced on a disk, as on a fake host, is not.
    #[must_use]
    pub fn staying_open(self, allowance: &Allowance) -> CgroupDir {
        CgroupDir { files: OpenFiles::new(allowance), ..self }
    }

    /// Whether it was allowed to.
    pub fn stays_open(&self) -> bool {
        self.files.is_some()
    }

    /// Full path of one of its files, for messages.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The text of a file, or `None` if the file or the cgroup is not there (any more).
    ///
    /// # Errors
    /// Anything but absence.
    pub fn read(&self, name: &str) -> Result<Option<String>> {
        if let Some(text) = self.files.as_ref().and_then(|files| files.read(name)) {
            return Ok(Some(text));
        }
        let fail = |source| HostError::Read { path: self.file(name), source };
        let Some(file) = self.open(name, OFlag::O_RDONLY).map_err(fail)? else {
            return Ok(None);
        };
        let text = or_absent(read_whole(&file)).map_err(fail)?;
        if let (Some(files), Some(_)) = (&self.files, &text) {
            files.keep(name, file);
        }
        Ok(text)
    }

    /// Writes a value in one write call; `false` if the file or the cgroup is gone.
    ///
    /// # Errors
    /// Anything but absence; `EAGAIN` and `EINTR` are passed on in the cause.
    pub fn write(&self, name: &str, value: &str) -> Result<bool> {
        let fail =
            |source| HostError::Write { path: self.file(name), value: value.to_owned(), source };
        let Some(mut file) = self.open(name, OFlag::O_WRONLY | OFlag::O_TRUNC).map_err(fail)?
        else {
            return Ok(false);
        };
        // One call, not write_all: the kernel takes a value as one write.
        or_absent(file.write(value.as_bytes())).map(|n| n.is_some()).map_err(fail)
    }

    fn open(&self, name: &str, flags: OFlag) -> io::Result<Option<File>> {
        let opened =
            openat(self.fd.as_fd(), OsStr::new(name), flags | OFlag::O_CLOEXEC, Mode::empty());
        or_absent(opened.map(File::from).map_err(io::Error::from))
    }
}

/// Most of what the kernel tells in one file of a cgroup.
const PAGE: usize = 4096;

/// The whole text of a file. Those of the kernel say that they are empty, and whoever asks for the size first and believes it
/// reads a few bytes at a time.
fn read_whole(file: &File) -> io::Result<String> {
    let mut text = String::with_capacity(PAGE);
    file.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Turns "it is gone" into `None`: ENOENT before open, ENODEV after.
fn or_absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(None),
        Err(e) => Err(e),
    }
}

/// An error and its causes on one line, for places that keep text and not errors.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = dir.path().join("sys/fs/cgroup/a.slice");
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(dir.path().join("sys/fs/cgroup/cgroup.controllers"), "memory\n").unwrap();
        fs::write(cgroup.join("memory.low"), "0\n").unwrap();
        let host = Host::fake(dir.path());
        (dir, host)
    }

    #[test]
    fn reads_and_writes_through_the_open_directory() {
        let (_dir, host) = host();
        let cgroups = host.cgroups().unwrap();
        let a = cgroups.open(&CgroupPath::new("a.slice")).unwrap().unwrap();
        assert!(a.write("memory.low", "4096").unwrap());
        assert_eq!(a.read("memory.low").unwrap().as_deref(), Some("4096"));
    }

    #[test]
    fn what_vanished_is_absent_not_an_error() {
        let (dir, host) = host();
        let cgroups = host.cgroups().unwrap();
        let a = cgroups.open(&CgroupPath::new("a.slice")).unwrap().unwrap();
        fs::remove_dir_all(dir.path().join("sys/fs/cgroup/a.slice")).unwrap();
        assert!(!a.write("memory.low", "1").unwrap());
        assert_eq!(a.read("memory.low").unwrap(), None);
        assert!(cgroups.open(&CgroupPath::new("a.slice")).unwrap().is_none());
        assert!(cgroups.children(&CgroupPath::new("a.slice")).unwrap().is_empty());
        assert_eq!(host.read("proc/meminfo").unwrap(), None);
    }

    #[test]
    fn a_host_without_cgroup2_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let error = Host::fake(dir.path()).cgroups().unwrap_err();
        assert!(error.to_string().ends_with("is no cgroup v2 hierarchy"));
    }
}
