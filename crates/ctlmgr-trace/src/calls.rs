//! Whether tasks read and write in sequence, by the system calls in which they wait: where neither eBPF nor event
//! tracing can be.
//!
//! # Problem
//! `io.stat` counts requests and bytes and knows no addresses: direct requests of one size leave the same counters
//! in sequence and at random.
//!
//! # Approach
//! A task that waits for a disk waits in a system call, and `/proc/TID/syscall` shows where in the file that is.
//! Forty looks a second at the tasks of those that start show how each of them goes on.
//!
//! # Terms
//! *Stream*: what one task does to one open file in one direction. *Progress*: bytes by which streams
//! went forward that hardly ever do anything else.
//!
//! # Algorithm
//! From one look to the next a stream goes forward if it is further on by no more than its cgroup has moved
//! since; one of which three quarters of the steps go forward is in sequence, and its steps are progress. Of one
//! that is seen n + 1 times in all its time n parts of n + 2 lie between the first and the last of them, in the mean; so
//! much more is put down to it. The part of what `io.stat` counted that is progress is sequential.
//!
//! # Properties
//! One that jumps over much more than it moves is not taken for sequential, and one that goes through a file is,
//! however seldom it is seen waiting. Not seen: files mapped into memory, io_uring and
//! libaio, writes that only the page cache takes; of a direction in which fewer than [`ENOUGH`] steps were seen
//! nothing is said. It is not told which disk a file lies on: the part is the same for all disks of a cgroup.
//! It needs `CAP_SYS_PTRACE`, and a processor for a few microseconds for each task at each look.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ctlmgr_host::{CgroupDir, Hierarchy, Host, HostError};
use ctlmgr_model::{Bytes, CgroupId, CgroupPath, Disk, Moved, Requests, Shape};

use crate::call::{self, Call};

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(25);
/// Nobody asks for one any more who has not for so long.
const ASKED: Duration = Duration::from_secs(3);
/// Tasks that are looked at, all cgroups together.
const MOST_TASKS: usize = 256;
/// Calls of a cgroup between two questions.
const MOST_CALLS: usize = 16_384;
/// Streams of a cgroup.
const MOST_STREAMS: usize = 4096;
/// Cgroups within a container, such as those of a systemd in it, are followed so deep.
const NESTED: usize = 4;
/// Steps in one direction that say something.
pub const ENOUGH: u64 = 2;
/// So much is read ahead, or was in memory already.
const SLACK: u64 = 1 << 20;

/// Looks at those that are asked for, for as long as it lives.
#[derive(Debug)]
pub struct CallTrace {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    host: Host,
    cgroups: Hierarchy,
    watched: Mutex<BTreeMap<CgroupId, Watched>>,
    has_ended: AtomicBool,
}

/// A cgroup that is asked for.
#[derive(Debug)]
struct Watched {
    path: CgroupPath,
    asked: Instant,
    /// How often.
    questions: u64,
    /// Since the last question.
    calls: Vec<Call>,
    read: Side,
    write: Side,
}

/// One direction.
#[derive(Debug, Default)]
struct Side {
    /// What was moved when it was first asked for, and at the last question.
    first: u64,
    last: u64,
    steps: u64,
    streams: BTreeMap<(u32, u64), Stream>,
    /// Of streams that are forgotten.
    before: u64,
}

/// Where it was, what had been moved by then, and how it went on.
#[derive(Debug, Clone, Copy)]
struct Stream {
    at: u64,
    moved: u64,
    forward: u64,
    steps: u64,
    /// By how much.
    went: u64,
}

impl CallTrace {
    /// Sees whether it may look, and begins to.
    ///
    /// # Errors
    /// The kernel has no `/proc/TID/syscall`, or does not let this process read another's.
    pub fn attach(host: &Host) -> Result<CallTrace, HostError> {
        let cgroups = host.cgroups()?;
        let path = "proc/1/syscall";
        if host.read(path)?.is_none() {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(HostError::Read { path: host.path(path), source });
        }
        let shared = Arc::new(Shared {
            host: host.clone(),
            cgroups,
            watched: Mutex::default(),
            has_ended: AtomicBool::new(false),
        });
        let looks = shared.clone();
        let thread = thread::Builder::new().name("calls".to_owned()).spawn(move || looks.run());
        let thread = thread.map_err(|source| HostError::Read { path: host.path(path), source })?;
        Ok(CallTrace { shared, thread: Some(thread) })
    }

    /// Says of what a cgroup did to its disks which part of it was in sequence, and looks at it from now on.
    pub fn tell(&self, dir: &CgroupDir, disks: &mut [(Disk, Moved)]) {
        self.shared.tell(dir, disks, Instant::now());
        self.thread.iter().for_each(|t| t.thread().unpark());
    }
}

impl Drop for CallTrace {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        while !self.has_ended.load(Ordering::Relaxed) {
            match self.look(Instant::now()) {
                true => thread::park_timeout(EVERY),
                false => thread::park(),
            }
        }
    }

    /// Looks once at all who are asked for; whether there is anybody.
    fn look(&self, now: Instant) -> bool {
        let paths: Vec<(CgroupId, CgroupPath)> = {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.retain(|_, w| now.saturating_duration_since(w.asked) < ASKED);
            let mut all: Vec<_> = watched.iter().collect();
            // Those that start are asked for all the time, others now and then.
            all.sort_by_key(|(_, w)| Reverse(w.questions));
            all.into_iter().map(|(id, w)| (*id, w.path.clone())).collect()
        };
        let mut left = MOST_TASKS;
        for (id, path) in &paths {
            let mut calls = Vec::new();
            self.gather(path, NESTED, &mut left, &mut calls);
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(w) = watched.get_mut(id) else { continue };
            w.calls.extend(calls);
            w.calls.truncate(MOST_CALLS);
        }
        !paths.is_empty()
    }

    /// The calls in which the tasks of a cgroup wait.
    fn gather(&self, path: &CgroupPath, depth: usize, left: &mut usize, calls: &mut Vec<Call>) {
        let Ok(Some(dir)) = self.cgroups.open(path) else { return };
        let tasks = dir.read("cgroup.threads").ok().flatten().unwrap_or_default();
        let tasks: Vec<u32> = tasks.lines().filter_map(|t| t.parse().ok()).take(*left).collect();
        *left -= tasks.len();
        calls.extend(tasks.into_iter().filter_map(|task| call::read(&self.host, task)));
        if depth > 0 && *left > 0 {
            for child in self.cgroups.children(path).unwrap_or_default() {
                self.gather(&child, depth - 1, left, calls);
            }
        }
    }

    fn tell(&self, dir: &CgroupDir, disks: &mut [(Disk, Moved)], now: Instant) {
        // What lies on others (LVM, RAID) counts what these count, once more.
        let most = |of: fn(&Moved) -> Bytes| disks.iter().map(|(_, m)| of(m).0).max().unwrap_or(0);
        let (read, written) = (most(|m| m.read), most(|m| m.written));
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Watched {
            path: dir.cgroup().clone(),
            asked: now,
            questions: 0,
            calls: Vec::new(),
            read: Side::new(read),
            write: Side::new(written),
        };
        let w = watched.entry(dir.id()).or_insert_with(fresh);
        w.asked = now;
        w.questions += 1;
        let (writes, reads) = std::mem::take(&mut w.calls).into_iter().partition(|c| c.is_write);
        w.read.follow(reads, read);
        w.write.follow(writes, written);
        for (_, moved) in disks {
            let read = w.read.requests(moved.reads, moved.read);
            let write = w.write.requests(moved.writes, moved.written);
            let shape = Shape { read, write };
            moved.shape = Some(shape).filter(|shape| *shape != Shape::default());
        }
    }
}

impl Side {
    fn new(moved: u64) -> Side {
        Side { first: moved, last: moved, ..Side::default() }
    }

    /// Takes in the calls since the last question; so much was moved until now.
    fn follow(&mut self, calls: Vec<Call>, moved: u64) {
        for call in calls {
            let fresh = Stream { at: call.at, moved: self.last, forward: 0, steps: 0, went: 0 };
            let stream = self.streams.entry((call.task, call.file)).or_insert(fresh);
            // The same call still, or nothing that has places.
            if stream.at == call.at {
                continue;
            }
            let most = moved.saturating_sub(stream.moved).saturating_add(SLACK);
            let step = call.at.checked_sub(stream.at).filter(|step| *step <= most);
            stream.steps += 1;
            stream.forward += u64::from(step.is_some());
            stream.went = stream.went.saturating_add(step.unwrap_or(0));
            (stream.at, stream.moved) = (call.at, self.last);
            self.steps += 1;
        }
        self.last = moved;
        if self.streams.len() > MOST_STREAMS {
            self.before = self.progress();
            self.streams.clear();
        }
    }

    fn progress(&self) -> u64 {
        self.streams.values().map(Stream::progress).fold(self.before, u64::saturating_add)
    }

    /// Of requests that moved so much.
    fn requests(&self, count: u64, bytes: Bytes) -> Requests {
        if self.steps < ENOUGH {
            return Requests::default();
        }
        let moved = u128::from(self.last.saturating_sub(self.first).max(1));
        let sequential = u128::from(bytes.0) * u128::from(self.progress()).min(moved) / moved;
        let sequential = Bytes(u64::try_from(sequential).unwrap_or(u64::MAX));
        Requests { count, bytes, sequential, ..Requests::default() }
    }
}

impl Stream {
    fn progress(&self) -> u64 {
        match self.forward * 4 >= self.steps * 3 {
            true => self.went.saturating_mul(self.steps + 2) / self.steps.max(1),
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests;
