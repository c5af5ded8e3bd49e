//! Containers as their cgroups appear, whoever starts them.
//!
//! # Problem
//! dockerd tells of a start afterwards, and while it boots of none; other engines never do.
//!
//! # Approach
//! One inotify instance watches every directory that may hold containers (slices and plain directories, not
//! units). A container that appears is told of as soon as it runs what it was made for ([`Sensor::is_ready`]): while the runtime
//! still makes it ready, in the same cgroup, to stop it would hold up the runtime, and dockerd with it.
//!
//! # Properties
//! What was there before is not told of; who comes together with its directory may be told of twice. What is lost in an
//! overflow of the kernel's queue is not told of, nor what appears in a directory that was lost so; nor who takes longer than
//! [`LONGEST`] to be made ready.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctlmgr_model::{CgroupId, CgroupPath};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;

use crate::Sensor;
use crate::tree::{Kind, MAX_DEPTH, classify};
use crate::wake::{Pollable, register};

/// How often one that is made ready is looked at, at first; who takes long is looked at every 64th of that time.
const LOOK: Duration = Duration::from_millis(20);
/// Whoever takes longer is not told of: a runtime may make one ready long before it is to run.
const LONGEST: Duration = Duration::from_secs(60);
/// What programs of runtimes are called, or end with. Until it runs the container's own program their process is in its
/// cgroup.
const RUNTIMES: [&str; 4] = ["runc", "crun", "youki", "runsc"];

/// A container that has appeared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appearance {
    /// Its full id.
    pub id: String,
    /// The cgroup that was made for it; one that is started again has another.
    pub cgroup: CgroupId,
}

/// Tells of each container that appears from now on, until nobody listens.
///
/// # Errors
/// The kernel gives no inotify instance.
pub async fn watch_appearances(
    sensor: Arc<Sensor>,
    told: UnboundedSender<Appearance>,
) -> io::Result<()> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let mut watched = Watched { sensor, told, parents: Vec::new() };
    watched.open(&inotify, &CgroupPath::new(""), false);
    let inotify = register(Pollable(inotify), Interest::READABLE)?;
    loop {
        let mut ready = tokio::select! {
            ready = inotify.readable() => ready?,
            () = watched.told.closed() => return Ok(()),
        };
        match inotify.get_ref().0.read_events() {
            Ok(events) => events.iter().for_each(|event| watched.take(&inotify, event)),
            Err(nix::errno::Errno::EAGAIN) => ready.clear_ready(),
            Err(error) => return Err(error.into()),
        }
    }
}

struct Watched {
    sensor: Arc<Sensor>,
    told: UnboundedSender<Appearance>,
    parents: Vec<(WatchDescriptor, CgroupPath)>,
}

impl Watched {
    fn take(&mut self, inotify: &AsyncFd<Pollable>, event: &InotifyEvent) {
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            // The directory is gone; the kernel may use its number again.
            return self.parents.retain(|(watch, _)| *watch != event.wd);
        }
        let parent = self.parents.iter().find(|(watch, _)| *watch == event.wd);
        let name = event.name.as_ref().and_then(|name| name.to_str());
        if let Some((path, name)) = parent.map(|(_, path)| path).zip(name) {
            self.note(&inotify.get_ref().0, path.child(name), true);
        }
    }

    /// Watches a directory, and those below it; containers in it are told of only where it is new itself.
    fn open(&mut self, inotify: &Inotify, path: &CgroupPath, is_new: bool) {
        let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ONLYDIR;
        let directory = self.sensor.cgroups().file(path, "");
        // Gone again, or no more watches are allowed: dockerd tells of its containers later.
        let Ok(watch) = inotify.add_watch(&directory, flags) else { return };
        if self.parents.iter().all(|(known, _)| *known != watch) {
            self.parents.push((watch, path.clone()));
        }
        for child in self.sensor.cgroups().children(path).unwrap_or_default() {
            self.note(inotify, child, is_new);
        }
    }

    fn note(&mut self, inotify: &Inotify, path: CgroupPath, is_new: bool) {
        match classify(&path, &[]) {
            Some(Kind::Container(id)) if is_new => {
                let (sensor, told) = (self.sensor.clone(), self.told.clone());
                tokio::spawn(async move { tell_when_ready(&sensor, &path, &told, id).await });
            }
            Some(_) => {}
            None if path.ancestors().count() < MAX_DEPTH => self.open(inotify, &path, is_new),
            None => {}
        }
    }
}

async fn tell_when_ready(
    sensor: &Sensor,
    path: &CgroupPath,
    told: &UnboundedSender<Appearance>,
    id: String,
) {
    let mut was_there = false;
    let began = Instant::now();
    while began.elapsed() < LONGEST {
        match sensor.made_ready(path) {
            Some((cgroup, true)) => return drop(told.send(Appearance { id, cgroup })),
            Some((_, false)) => was_there = true,
            // The scope of one that failed is gone.
            None if was_there => return,
            None => {}
        }
        tokio::time::sleep(LOOK.max(began.elapsed() / 64)).await;
    }
}

impl Sensor {
    /// Whether all that runs in a container's cgroup is its own, and nothing the runtime that makes it ready; `None` if
    /// nothing runs there. What cannot be told may be the runtime's.
    pub fn is_ready(&self, path: &CgroupPath) -> Option<bool> {
        self.made_ready(path).map(|(_, is_ready)| is_ready)
    }

    /// The same, and which cgroup it is.
    fn made_ready(&self, path: &CgroupPath) -> Option<(CgroupId, bool)> {
        let dir = self.cgroups().open(path).ok()??;
        let processes = dir.read("cgroup.procs").ok()??;
        let pids: Vec<&str> = processes.lines().map(str::trim).collect();
        let is_own = |pid: &&str| program(self, pid).is_some_and(|path| !is_of_runtime(&path));
        (!pids.is_empty()).then(|| (dir.id(), pids.iter().all(is_own)))
    }
}

/// What a process runs.
fn program(sensor: &Sensor, pid: &str) -> Option<String> {
    let link = std::fs::read_link(sensor.host().path(&format!("proc/{pid}/exe"))).ok()?;
    link.to_str().map(str::to_owned)
}

/// Runtimes also run from memory or from files and mounts that are gone, so that nobody can write to them (runc: memfd,
/// O_TMPFILE, a detached bind mount, which reads as `/`).
fn is_of_runtime(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_nameless =
        name.is_empty() || path.ends_with(" (deleted)") || path.starts_with("/memfd:");
    is_nameless || RUNTIMES.iter().any(|runtime| name.ends_with(runtime))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> World {
            let world = World(tempfile::tempdir().unwrap());
            world.write("sys/fs/cgroup/cgroup.controllers", "memory\n");
            std::fs::create_dir_all(world.0.path().join("sys/fs/cgroup/system.slice")).unwrap();
            world
        }

        fn write(&self, path: &str, text: &str) {
            let file = self.0.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }

        fn runs(&self, pid: u32, program: &str) {
            let directory = self.0.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            let new = directory.join("new");
            std::os::unix::fs::symlink(program, &new).unwrap();
            std::fs::rename(new, directory.join("exe")).unwrap();
        }

        fn container(&self, parent: &str, id: &str, pid: u32) {
            let file = format!("sys/fs/cgroup/{parent}/docker-{id}.scope/cgroup.procs");
            self.write(&file, &format!("{pid}\n"));
        }
    }

    #[tokio::test]
    async fn who_appears_is_told_of_once_it_runs_its_own_program() {
        let world = World::new();
        let id = |digit: char| digit.to_string().repeat(64);
        for (pid, program) in [(1, "/bin/sleep"), (2, "/usr/sbin/runc"), (3, "/bin/sh")] {
            world.runs(pid, program);
        }
        world.container("system.slice", &id('a'), 1);
        let sensor = Arc::new(Sensor::new(ctlmgr_host::Host::fake(world.0.path())).unwrap());
        let (told, mut heard) = mpsc::unbounded_channel();
        let watch = tokio::spawn(watch_appearances(sensor, told));
        // In a directory that is there, and in one that comes with it; until the watch is set nothing appears.
        let mut number = 0;
        let first = loop {
            number += 1;
            world.container("system.slice", &format!("{number:064}"), 3);
            tokio::select! {
                new = heard.recv() => break new.unwrap().id,
                () = tokio::time::sleep(LOOK) => {}
            }
        };
        assert_ne!(first, id('a'), "it was there before");
        world.container("ctlmgr.slice/ctlmgr-shop.slice", &id('b'), 3);
        while heard.recv().await.unwrap().id != id('b') {}
        world.container("system.slice", &id('c'), 2);
        world.container("system.slice", &id('d'), 3);
        while heard.recv().await.unwrap().id != id('d') {}
        for program in [
            "/memfd:runc_cloned:/proc/self/exe (deleted)",
            "/",
            "/run/#7 (deleted)",
            "/bin/sysbox-runc",
        ] {
            assert!(
                tokio::time::timeout(LOOK * 3, heard.recv()).await.is_err(),
                "it is made ready"
            );
            world.runs(2, program);
        }
        world.runs(2, "/usr/sbin/nginx");
        assert_eq!(heard.recv().await.unwrap().id, id('c'));
        drop(heard);
        watch.await.unwrap().unwrap();
    }
}
