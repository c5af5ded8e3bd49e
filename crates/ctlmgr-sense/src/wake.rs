//! What wakes the loop before the next tick: PSI triggers and memory.events.
//!
//! A privileged PSI trigger costs a kernel thread per cgroup, so triggers sit on the root and on
//! the parents of workloads only, with windows of 2 s (kernel: accounting/psi.rst). `memory.events`
//! of all workloads share one inotify instance.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctlmgr_host::{Hierarchy, Host};
use ctlmgr_model::{CgroupId, CgroupPath, Group, Snapshot};
use nix::libc::O_NONBLOCK;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tracing::debug;

/// Some task stalled for 150 ms within 2 s. Ends with a NUL, as the kernel document asks.
const TRIGGER: &[u8] = b"some 150000 2000000\0";

/// Why the loop was woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Memory pressure in a cgroup; the root is the whole machine.
    Pressure(CgroupPath),
    /// `memory.events` of some workload changed.
    MemoryEvent,
}

/// The subscriptions that are in force.
#[derive(Debug)]
pub struct Wakes {
    host: Host,
    cgroups: Hierarchy,
    sender: Sender<Wake>,
    triggers: BTreeMap<CgroupPath, JoinHandle<()>>,
    events: Option<Events>,
}

impl Wakes {
    /// Subscriptions that report to `sender`; none yet.
    pub fn new(host: Host, cgroups: Hierarchy, sender: Sender<Wake>) -> Wakes {
        let events = Events::new(sender.clone());
        if let Err(error) = &events {
            debug!(%error, "memory.events are not watched");
        }
        Wakes { host, cgroups, sender, triggers: BTreeMap::new(), events: events.ok() }
    }

    /// Subscribes to what `snapshot` holds and drops what is gone.
    pub fn follow(&mut self, snapshot: &Snapshot) {
        let parents = snapshot.workloads.iter().filter_map(|w| w.group.path.parent());
        let wanted: BTreeSet<CgroupPath> = parents.chain([CgroupPath::new("")]).collect();
        self.triggers.retain(|path, task| {
            let keep = wanted.contains(path) && !task.is_finished();
            if !keep {
                task.abort();
            }
            keep
        });
        for path in wanted {
            if !self.triggers.contains_key(&path) {
                self.arm(path);
            }
        }
        if let Some(events) = &mut self.events {
            let groups = snapshot.workloads.iter().map(|w| &w.group);
            let file = |g: &Group| (self.cgroups.file(&g.path, "memory.events"), g.id);
            events.follow(groups.map(file).collect());
        }
    }

    fn arm(&mut self, path: CgroupPath) {
        let file = match path.is_root() {
            true => self.host.path("proc/pressure/memory"),
            false => self.cgroups.file(&path, "memory.pressure"),
        };
        match trigger(&file) {
            Ok(fd) => {
                let task = tokio::spawn(report(fd, path.clone(), self.sender.clone()));
                self.triggers.insert(path, task);
            }
            Err(error) => debug!(file = %file.display(), %error, "no PSI trigger"),
        }
    }
}

fn trigger(file: &Path) -> io::Result<AsyncFd<std::fs::File>> {
    let mut fd = OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK).open(file)?;
    fd.write_all(TRIGGER)?;
    register(fd, Interest::PRIORITY | Interest::ERROR)
}

async fn report(fd: AsyncFd<std::fs::File>, path: CgroupPath, sender: Sender<Wake>) {
    while let Ok(mut guard) = fd.ready(Interest::PRIORITY | Interest::ERROR).await {
        if guard.ready().is_error() {
            break;
        }
        guard.clear_ready();
        // A full queue means that the loop has enough reasons to wake.
        let _ = sender.try_send(Wake::Pressure(path.clone()));
    }
}

/// Lets tokio poll an inotify instance.
#[derive(Debug)]
pub(crate) struct Pollable(pub(crate) Inotify);

impl AsRawFd for Pollable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Registers an owned descriptor with the event loop.
#[expect(unsafe_code, reason = "the safe constructor is deprecated in favour of this one")]
pub(crate) fn register<T: AsRawFd>(inner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: `File` and `Inotify` own their descriptor, and neither is handed out mutably, so it
    // stays open and the same for as long as the registration that owns them.
    Ok(unsafe { AsyncFd::register_with_interest(inner, interest) }?)
}

#[derive(Debug)]
struct Events {
    inotify: Arc<AsyncFd<Pollable>>,
    /// A container that was started again has another cgroup in the same place, of which what watched the old one says nothing.
    watches: BTreeMap<(PathBuf, CgroupId), WatchDescriptor>,
    task: JoinHandle<()>,
}

impl Events {
    fn new(sender: Sender<Wake>) -> io::Result<Events> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let inotify = Arc::new(register(Pollable(inotify), Interest::READABLE)?);
        let task = tokio::spawn(drain(inotify.clone(), sender));
        Ok(Events { inotify, watches: BTreeMap::new(), task })
    }

    fn follow(&mut self, files: BTreeSet<(PathBuf, CgroupId)>) {
        let inotify = &self.inotify.get_ref().0;
        self.watches.retain(|file, watch| {
            let keep = files.contains(file);
            if !keep {
                // Fails if the cgroup is gone; the kernel has dropped the watch then.
                let _ = inotify.rm_watch(*watch);
            }
            keep
        });
        for file in files {
            if self.watches.contains_key(&file) {
                continue;
            }
            if let Ok(watch) = inotify.add_watch(&file.0, AddWatchFlags::IN_MODIFY) {
                self.watches.insert(file, watch);
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn drain(inotify: Arc<AsyncFd<Pollable>>, sender: Sender<Wake>) {
    while let Ok(mut guard) = inotify.readable().await {
        match inotify.get_ref().0.read_events() {
            Ok(_) => {
                let _ = sender.try_send(Wake::MemoryEvent);
            }
            Err(nix::errno::Errno::EAGAIN) => guard.clear_ready(),
            Err(_) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_cgroup_that_is_made_anew_in_the_same_place_is_watched_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("memory.events");
        let (sender, mut wakes) = mpsc::channel(8);
        let mut events = Events::new(sender).unwrap();
        let mut is_woken = async || {
            let wake = tokio::time::timeout(Duration::from_secs(10), wakes.recv()).await;
            matches!(wake, Ok(Some(Wake::MemoryEvent)))
        };
        std::fs::write(&file, "high 0").unwrap();
        events.follow(BTreeSet::from([(file.clone(), CgroupId(1))]));
        std::fs::rename(&file, directory.path().join("old")).unwrap();
        std::fs::write(&file, "high 0").unwrap();
        events.follow(BTreeSet::from([(file.clone(), CgroupId(2))]));
        assert!(is_woken().await, "the kernel tells that the old one is watched no more");
        std::fs::write(&file, "high 1").unwrap();
        assert!(is_woken().await);
    }
}
