//! Requests to disks by the kernel's own event tracing, where eBPF cannot be.
//!
//! # Problem
//! `io.stat` knows no addresses. eBPF needs the types of the kernel (BTF) and a kernel that lets it; event
//! tracing (tracefs) is there without either.
//!
//! # Approach
//! An instance of our own, so that nobody else's tracing is disturbed, with three events:
//! `block_bio_queue`, which comes in the task that wants the data, and `writeback_single_inode_start` with
//! `writeback_single_inode`, between which a worker of the kernel writes for a cgroup. A task is looked up in
//! `/proc`.
//!
//! # Terms
//! *Instance*: a directory below `tracing/instances` with buffers of its own (kernel: trace/ftrace.rst).
//!
//! # Algorithm
//! At each look all lines since are read. A task that has ended before that counts for the
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

use crate::line::{Event, QUEUED, Queued, WRITES_BACK, WROTE_BACK, parse};
use crate::runs::Moved;

/// Ours; below the root of the host.
const INSTANCE: &str = "sys/kernel/tracing/instances/ctlmgr";
/// For each processor.
const BUFFER_KIB: &str = "256";
/// Pairs of cgroup and disk, tasks, and devices; beyond that those are forgotten that were used the longest ago, or all.
const MOST: usize = 2048;
/// No more is read at once.
const MOST_BYTES: usize = 8 << 20;
const PART_BYTES: usize = 1 << 16;
/// How lines look; an instance inherits what somebody has chosen for his own tracing.
const OPTIONS: [(&str, &str); 5] =
    [("record-tgid", "0"), ("raw", "0"), ("hex", "0"), ("bin", "0"), ("context-info", "1")];

/// There is one instance: who makes it and who takes it away wait for each other.
static TURN: Mutex<()> = Mutex::new(());

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
    /// For whom workers of the kernel write just now.
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
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let at = host.path(INSTANCE);
        let made = DirBuilder::new().create(&at);
        if let Err(source) = made
            && source.kind() != ErrorKind::AlreadyExists
        {
            return Err(HostError::Write { path: at, value: "directory".to_owned(), source });
        }
        let pipe = switch_on(host).inspect_err(|_| remove(host))?;
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

    /// Takes in what has happened since the last time.
    pub fn read(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).read();
    }

    /// What a cgroup asked of a disk, as far as it was seen and read; `None` if nothing.
    pub fn shape(&self, cgroup: CgroupId, disk: Disk) -> Option<Shape> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let sides = seen.sides.get(&(cgroup, disk))?;
        Some(Shape { read: sides.read.requests, write: sides.write.requests })
    }

    /// Takes the instance away that a crash left, if there is one. One that somebody reads stays.
    pub fn remove(host: &Host) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        remove(host);
    }
}

impl Drop for EventTrace {
    fn drop(&mut self) {
        // An instance whose pipe is open does not go.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).pipe = None;
        EventTrace::remove(&self.host);
    }
}

/// The kernel switches off what is switched on there.
fn remove(host: &Host) {
    let _ = std::fs::remove_dir(host.path(INSTANCE));
}

fn switch_on(host: &Host) -> Result<File, HostError> {
    host.write(&format!("{INSTANCE}/buffer_size_kb"), BUFFER_KIB)?;
    for (option, value) in OPTIONS {
        host.write(&format!("{INSTANCE}/options/{option}"), value)?;
    }
    let enable = |group: &str, event: &str| {
        let file = format!("{INSTANCE}/events/{group}/{event}/enable");
        let is_there = host.write(&file, "1")?;
        Ok(if is_there { None } else { Some(host.path(&file)) })
    };
    if let Some(path) = enable("block", QUEUED)? {
        let source = ErrorKind::NotFound.into();
        return Err(HostError::Write { path, value: "1".to_owned(), source });
    }
    // Without these only what tasks write themselves is known.
    enable("writeback", WRITES_BACK)?;
    enable("writeback", WROTE_BACK)?;
    let path = host.path(&format!("{INSTANCE}/trace_pipe"));
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&path);
    opened.map_err(|source| HostError::Read { path, source })
}

impl Seen {
    fn read(&mut self) {
        self.reading += 1;
        let (mut part, mut fresh) = (vec![0; PART_BYTES], BTreeMap::new());
        for _ in 0..MOST_BYTES / PART_BYTES {
            let Some(pipe) = &mut self.pipe else { break };
            match pipe.read(&mut part) {
                Ok(n) if n > 0 => self.rest.extend(part.iter().take(n)),
                // Nothing more for now, or for ever: what was not seen says nothing.
                _ => break,
            }
            let whole = self.rest.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
            let after = self.rest.split_off(whole);
            let lines = std::mem::replace(&mut self.rest, after);
            for event in String::from_utf8_lossy(&lines).lines().filter_map(parse) {
                self.take(event, &mut fresh);
            }
        }
        self.forget();
    }

    fn take(&mut self, event: Event, fresh: &mut BTreeMap<u32, Option<CgroupId>>) {
        match event {
            Event::WritesBack { task, cgroup } => {
                self.writing.insert(task, cgroup);
            }
            Event::WroteBack { task } => {
                self.writing.remove(&task);
            }
            Event::Queued(queued) => {
                let Some(owner) = self.owner(&queued, fresh) else { return };
                let disk = self.whole(queued.disk);
                let sides = self.sides.entry((owner, disk)).or_default();
                sides.used = self.reading;
                let side = if queued.is_write { &mut sides.write } else { &mut sides.read };
                side.count(queued.from, queued.sectors);
            }
        }
    }

    fn owner(
        &mut self,
        queued: &Queued,
        fresh: &mut BTreeMap<u32, Option<CgroupId>>,
    ) -> Option<CgroupId> {
        let task = queued.task;
        if queued.is_kernels {
            return self.writing.get(&task).copied();
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

/// The cgroup that a task's requests are counted for, while the task is there: the nearest one with an io.stat.
fn look_up(host: &Host, cgroups: &Hierarchy, task: u32) -> Option<CgroupId> {
    let text = host.read(&format!("proc/{task}/cgroup")).ok()??;
    let own = CgroupPath::new(text.lines().find_map(|line| line.strip_prefix("0::/"))?);
    let counts = |path: &CgroupPath| cgroups.file(path, "io.stat").exists();
    let path = std::iter::once(own.clone()).chain(own.ancestors()).find(counts)?;
    Some(cgroups.open(&path).ok()??.id())
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
