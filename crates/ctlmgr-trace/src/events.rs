//! Requests to disks by the kernel's own event tracing, where eBPF cannot be.
//!
//! # Problem
//! `io.stat` knows no addresses. eBPF needs the types of the kernel (BTF) and a kernel that lets it; event
//! tracing (tracefs) is there without either.
//!
//! # Approach
//! An instance of our own, so that nobody else's tracing is disturbed, with two events:
//! `block_bio_queue`, which comes in the task that wants the data, and `writeback_single_inode_start`,
//! which says for which cgroup a thread of the kernel writes. A task is looked up in `/proc`.
//!
//! # Terms
//! *Instance*: a directory below `tracing/instances` with buffers of its own (kernel: trace/ftrace.rst).
//!
//! # Algorithm
//! When somebody asks, all lines since are read. A task that has ended before that counts for the
//! cgroup that it was in when it was last looked up, if it ever was; else it is lost.
//!
//! # Properties
//! Less is seen than by eBPF: bios before they are merged, not requests; no time under way; what a buffer of
//! 256 KiB for each processor does not hold is lost. Nobody waits for it: the newest overwrite the oldest.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use ctlmgr_host::{Hierarchy, Host, HostError};
use ctlmgr_model::{CgroupId, CgroupPath, Disk, Shape};
use nix::fcntl::OFlag;

use crate::line::{Event, QUEUED, WRITES_BACK, parse};
use crate::runs::Moved;

/// Ours; below the root of the host.
const INSTANCE: &str = "sys/kernel/tracing/instances/ctlmgr";
/// For each processor.
const BUFFER_KIB: &str = "256";
/// Pairs of cgroup and disk, tasks, and devices; beyond that those are forgotten that were used the longest ago, or all.
const MOST: usize = 2048;
/// No more is read at once.
const MOST_BYTES: usize = 16 << 20;

/// Counts what cgroups ask of disks for as long as it lives.
#[derive(Debug)]
pub struct EventTrace {
    host: Host,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    host: Host,
    cgroups: Hierarchy,
    pipe: Option<File>,
    /// A line whose end is still to come.
    rest: Vec<u8>,
    /// Where tasks were when they were last looked up.
    tasks: BTreeMap<u32, CgroupId>,
    /// For whom threads of the kernel write.
    writing: BTreeMap<u32, CgroupId>,
    /// The disks of partitions, and disks themselves.
    disks: BTreeMap<Disk, Disk>,
    sides: BTreeMap<(CgroupId, Disk), Sides>,
    /// Counts readings, to know what was used last.
    reading: u64,
}

#[derive(Debug, Default)]
struct Sides {
    read: Moved,
    write: Moved,
    used: u64,
}

impl EventTrace {
    /// Makes the instance, or takes the one that a crash left, and switches the events on.
    ///
    /// # Errors
    /// The kernel has no tracefs, it is not mounted, or it must not be used (lockdown).
    pub fn attach(host: &Host) -> Result<EventTrace, HostError> {
        let cgroups = host.cgroups()?;
        let at = host.path(INSTANCE);
        let made = DirBuilder::new().create(&at);
        if let Err(source) = made
            && source.kind() != ErrorKind::AlreadyExists
        {
            return Err(HostError::Write { path: at, value: "directory".to_owned(), source });
        }
        let pipe = switch_on(host).inspect_err(|_| EventTrace::remove(host))?;
        let seen = Seen {
            host: host.clone(),
            cgroups,
            pipe: Some(pipe),
            rest: Vec::new(),
            tasks: BTreeMap::new(),
            writing: BTreeMap::new(),
            disks: BTreeMap::new(),
            sides: BTreeMap::new(),
            reading: 0,
        };
        Ok(EventTrace { host: host.clone(), seen: Mutex::new(seen) })
    }

    /// What a cgroup asked of a disk, as far as it was seen; `None` if nothing.
    pub fn shape(&self, cgroup: CgroupId, disk: Disk) -> Option<Shape> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.read();
        let sides = seen.sides.get(&(cgroup, disk))?;
        Some(Shape { read: sides.read.requests, write: sides.write.requests })
    }

    /// Takes the instance away, if there is one; also one that a crash left.
    pub fn remove(host: &Host) {
        for event in events() {
            // What cannot be switched off goes with the directory.
            let _ = host.write(&event, "0");
        }
        let _ = std::fs::remove_dir(host.path(INSTANCE));
    }
}

impl Drop for EventTrace {
    fn drop(&mut self) {
        // An instance whose pipe is open does not go.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).pipe = None;
        EventTrace::remove(&self.host);
    }
}

fn events() -> [String; 2] {
    let file = |group: &str, event: &str| format!("{INSTANCE}/events/{group}/{event}/enable");
    [file("block", QUEUED), file("writeback", WRITES_BACK)]
}

fn switch_on(host: &Host) -> Result<File, HostError> {
    host.write(&format!("{INSTANCE}/buffer_size_kb"), BUFFER_KIB)?;
    let [queued, writes_back] = events();
    if !host.write(&queued, "1")? {
        let source = ErrorKind::NotFound.into();
        return Err(HostError::Write { path: host.path(&queued), value: "1".to_owned(), source });
    }
    // Without it only what tasks write themselves is known.
    host.write(&writes_back, "1")?;
    let path = host.path(&format!("{INSTANCE}/trace_pipe"));
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&path);
    opened.map_err(|source| HostError::Read { path, source })
}

impl Seen {
    /// Takes in what has happened since.
    fn read(&mut self) {
        self.reading += 1;
        let text = self.lines();
        let mut fresh = BTreeMap::new();
        for event in text.lines().filter_map(parse) {
            self.take(event, &mut fresh);
        }
        self.forget();
    }

    /// Whole lines, as many as there are.
    fn lines(&mut self) -> String {
        let mut bytes = std::mem::take(&mut self.rest);
        let mut part = vec![0; 1 << 16];
        while let Some(pipe) = &mut self.pipe
            && bytes.len() < MOST_BYTES
        {
            match pipe.read(&mut part) {
                Ok(n) if n > 0 => bytes.extend(part.iter().take(n)),
                // Nothing more for now, or for ever: what was not seen says nothing.
                _ => break,
            }
        }
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        self.rest = bytes.split_off(whole);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn take(&mut self, event: Event, fresh: &mut BTreeMap<u32, Option<CgroupId>>) {
        match event {
            Event::WritesBack { task, cgroup } => {
                self.writing.insert(task, cgroup);
            }
            Event::Queued { task, disk, is_write, from, sectors } => {
                let Some(owner) = self.owner(task, fresh) else { return };
                let disk = self.whole(disk);
                let sides = self.sides.entry((owner, disk)).or_default();
                sides.used = self.reading;
                let side = if is_write { &mut sides.write } else { &mut sides.read };
                side.count(from, sectors);
            }
        }
    }

    fn owner(
        &mut self,
        task: u32,
        fresh: &mut BTreeMap<u32, Option<CgroupId>>,
    ) -> Option<CgroupId> {
        if let Some(owner) = self.writing.get(&task) {
            return Some(*owner);
        }
        let found = *fresh.entry(task).or_insert_with(|| look_up(&self.host, &self.cgroups, task));
        match found {
            Some(id) => {
                self.tasks.insert(task, id);
                Some(id)
            }
            None => self.tasks.get(&task).copied(),
        }
    }

    /// The disk of a partition.
    fn whole(&mut self, disk: Disk) -> Disk {
        let host = &self.host;
        *self.disks.entry(disk).or_insert_with(|| disk_of(host, disk).unwrap_or(disk))
    }

    /// Keeps it small.
    fn forget(&mut self) {
        for tasks in [&mut self.tasks, &mut self.writing] {
            if tasks.len() > MOST {
                tasks.clear();
            }
        }
        if self.disks.len() > MOST {
            self.disks.clear();
        }
        while self.sides.len() > MOST {
            let oldest = self.sides.iter().min_by_key(|(_, s)| s.used).map(|(key, _)| *key);
            oldest.and_then(|key| self.sides.remove(&key));
        }
    }
}

/// The cgroup of a task that is there.
fn look_up(host: &Host, cgroups: &Hierarchy, task: u32) -> Option<CgroupId> {
    let text = host.read(&format!("proc/{task}/cgroup")).ok()??;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(cgroups.open(&CgroupPath::new(path)).ok()??.id())
}

/// Partitions are directories within their disk's.
fn disk_of(host: &Host, disk: Disk) -> Option<Disk> {
    let at: PathBuf = host.path(&format!("sys/dev/block/{disk}"));
    if !at.join("partition").exists() {
        return None;
    }
    let parent = std::fs::canonicalize(at).ok()?;
    std::fs::read_to_string(parent.parent()?.join("dev")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
