//! A simulated kernel: sets that are touched at random, reclaim, swap, and the quirk that matters.
//!
//! # What it models
//! Each workload wants a set and touches all of it evenly, so a byte outside memory comes back at
//! a rate in proportion to how much is missing and how hot the set is, and costs waiting: PSI. When
//! free memory falls below the low watermark, global reclaim takes the oldest pages of all: under
//! [`Lru::Classic`] only above effective memory.low, under [`Lru::Mglru`] (as measured on 6.12)
//! almost regardless of it. memory.reclaim on a slice takes from its children above their
//! memory.low; memory.high slows growth down; memory.min always holds; who is frozen touches nothing. The disk
//! serves so many faults a second; beyond that all wait longer. Page cache of what is read once and never again goes first,
//! and where swap is full nothing else can be taken. A set may be files that are read at random: it needs no room in swap, and a
//! page of it that comes back is said to be of the working set if no more is away than is there (refault distance).
//!
//! # What it does not
//! Processors that are short: they are said to be busy, and nobody waits for one. Slab, page cache on the active list, nested slices, kills for want of memory (who wants more
//! than there is waits), what Linux reclaims of who is above its memory.high (here that slows growth down and takes nothing), and MGLRU's habit of taking from one
//! cgroup after the other. It shows whether a controller settles, not how fast a disk is.

use std::collections::BTreeMap;

use crate::seen::{SLICE, group, id, memory, workload};
use crate::set::{FAULT_SECS, Set, take, take_alike};
use ctlmgr_model::{
    Action, Activity, Bytes, CgroupId, CgroupPath, Group, HostSample, Knob, LruFlavour,
    MemorySample, Millis, Oomd, Outcome, Percent, Plan, Pressure, PressureLine, Snapshot, Step,
    Watched,
};

/// What becomes of a step if all goes well.
pub fn outcome(step: &Step) -> Outcome {
    match step.action {
        Action::Reclaim { amount, .. } => Outcome::Reclaimed(amount),
        _ => Outcome::Done,
    }
}

/// Page-aging algorithm of the simulated kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lru {
    /// Honours memory.low.
    Classic,
    /// Global reclaim takes nine tenths of what it wants regardless of memory.low.
    Mglru,
}

/// The machine.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// `MemTotal`.
    pub total: Bytes,
    /// What the kernel itself holds.
    pub own: Bytes,
    /// Workloads and bystanders.
    pub sets: Vec<Set>,
    /// Page aging.
    pub lru: Lru,
    /// Swap; without end if not said.
    pub swap: Option<Bytes>,
    /// Faults that the disk serves in a second.
    pub faults_per_sec: f64,
    /// Standstill of the whole above which systemd-oomd kills, where it runs.
    pub oomd_limit: Option<Percent>,
    /// Whether there is memory.reclaim (Linux 5.19); without it ctlmgr takes from one at a time, by a limit.
    pub has_reclaim: bool,
    /// Whether the kernel counts PSI.
    pub has_psi: bool,
    /// memory.low of the slice that holds the managed sets.
    pub slice_low: Bytes,
    /// Its memory.min.
    pub slice_min: Bytes,
    /// Time.
    pub now: Millis,
    /// Bytes that global reclaim took in all.
    pub global_reclaimed: Bytes,
    /// Processors, where the kernel says how busy they are. Nobody is slower for that they are.
    pub cpus: Option<u64>,
    /// Part of the processors that was busy in the last second, 0–1.
    pub busy: f64,
}

/// In so many turns the sets touch their memory each second, at least.
const TURNS: usize = 32;

impl Kernel {
    /// A machine of `total` with these sets and nothing in memory yet.
    pub fn new(total: Bytes, lru: Lru, sets: Vec<Set>) -> Kernel {
        Kernel {
            total,
            own: Bytes::mib(150),
            sets,
            lru,
            swap: None,
            faults_per_sec: f64::INFINITY,
            oomd_limit: None,
            has_psi: true,
            has_reclaim: true,
            slice_low: Bytes::ZERO,
            slice_min: Bytes::ZERO,
            now: Millis(1000),
            global_reclaimed: Bytes::ZERO,
            cpus: None,
            busy: 0.0,
        }
    }

    /// Free memory.
    pub fn free(&self) -> Bytes {
        self.total - self.own - self.sets.iter().map(|s| s.resident).sum()
    }

    /// What swap has room for.
    pub fn swap_left(&self) -> Bytes {
        let used = self.sets.iter().map(Set::in_swap).sum::<Bytes>();
        self.swap.map_or(Bytes(u64::MAX), |swap| swap - used)
    }

    /// One second passes: sets touch what they want, global reclaim makes room.
    pub fn tick(&mut self) {
        self.now = Millis(self.now.0 + 1000);
        let cpu_usec = |sets: &[Set]| sets.iter().map(|s| s.cpu_usec).sum::<u64>();
        let before = cpu_usec(&self.sets);
        let low_watermark = self.watermark();
        let fault_secs = self.fault_secs();
        // Sets take turns, thousands of them in groups.
        let group = (self.sets.len() / TURNS).max(1);
        for first in (0..self.sets.len()).step_by(group) {
            let last = (first + group).min(self.sets.len());
            let wanted: Vec<Bytes> = self.sets[first..last]
                .iter_mut()
                .map(|set| set.touch(fault_secs).min((set.high - set.resident).max(Bytes::mib(1))))
                .collect();
            self.make_room(wanted.iter().copied().sum::<Bytes>() + low_watermark);
            for (i, amount) in (first..last).zip(wanted) {
                let free = self.free();
                self.sets[i].gain(amount.min(free));
            }
        }
        for i in 0..self.sets.len() {
            let amount = self.sets[i].scan();
            if amount > Bytes::ZERO {
                self.make_room(amount + low_watermark);
                let free = self.free();
                self.sets[i].fill(amount.min(free));
            }
        }
        self.sets.iter_mut().for_each(Set::feel);
        let used = cpu_usec(&self.sets) - before;
        self.busy = self.cpus.map_or(0.0, |n| (used as f64 / 1e6 / n as f64).min(1.0));
    }

    /// What a fault costs its thread while the disk serves as many as are asked of it.
    fn fault_secs(&self) -> f64 {
        let served = |secs: f64| self.sets.iter().map(|s| s.faults_per_sec(secs)).sum::<f64>();
        let (mut short, mut long) = (FAULT_SECS, 10.0);
        if served(short) <= self.faults_per_sec {
            return short;
        }
        for _ in 0..40 {
            let middle = f64::midpoint(short, long);
            if served(middle) > self.faults_per_sec { short = middle } else { long = middle }
        }
        long
    }

    /// Global reclaim until this much is free.
    fn make_room(&mut self, room: Bytes) {
        let missing = room - self.free();
        if missing == Bytes::ZERO {
            return;
        }
        let before: Vec<Bytes> = self.sets.iter().map(|s| s.resident).collect();
        self.take_from_all(missing);
        for (set, before) in self.sets.iter_mut().zip(before) {
            set.stolen += (before - set.resident).0 / Bytes::PAGE.0;
        }
    }

    fn take_from_all(&mut self, missing: Bytes) {
        let (blind, fair) = match self.lru {
            Lru::Mglru => (Bytes(missing.0 / 10 * 9), missing - Bytes(missing.0 / 10 * 9)),
            Lru::Classic => (Bytes::ZERO, missing),
        };
        let (covered, covered_hard) = (self.slice_low, self.slice_min);
        let hard = |s: &Set| s.min.min(covered_hard);
        let left = self.swap_left();
        // Where there is page cache to take, MGLRU takes of all alike: it goes from one cgroup to the next.
        let mut taken = match self.cache() > Bytes::ZERO {
            true => take_alike(&mut self.sets, blind, left, hard),
            false => take(&mut self.sets, blind, left, hard),
        };
        let left = self.swap_left();
        taken = taken + take(&mut self.sets, fair, left, |s| s.low.min(covered).max(hard(s)));
        // Best effort: what memory.low denied is taken all the same before an OOM.
        let left = self.swap_left();
        taken = taken + take(&mut self.sets, missing - taken, left, hard);
        self.global_reclaimed = self.global_reclaimed + taken;
    }

    /// Carries out a plan.
    ///
    /// # Panics
    /// The plan names a cgroup that the machine does not have.
    pub fn apply(&mut self, plan: &Plan) {
        for step in &plan.steps {
            let is_slice = step.path.as_str() == SLICE;
            match step.action {
                Action::Set { knob: Knob::MemoryLow, to, .. } if is_slice => self.slice_low = to,
                Action::Release { knob: Knob::MemoryLow, prior, .. } if is_slice => {
                    self.slice_low = prior;
                }
                Action::Set { knob: Knob::MemoryMin, to, .. } if is_slice => self.slice_min = to,
                Action::Release { knob: Knob::MemoryMin, prior, .. } if is_slice => {
                    self.slice_min = prior;
                }
                Action::Set { .. } | Action::Release { .. } if is_slice => {}
                Action::Set { knob: Knob::LruGen, .. } => self.lru = Lru::Classic,
                Action::Release { knob: Knob::LruGen, .. } => self.lru = Lru::Mglru,
                Action::Set { knob, to, .. } => {
                    self.set_of(step.id).expect("the plan names an existing set").write(knob, to);
                }
                Action::Release { knob, prior, .. } => {
                    self.set_of(step.id).into_iter().for_each(|s| s.write(knob, prior));
                }
                Action::Reclaim { amount, only_cache, .. } => {
                    let left = if only_cache { Bytes::ZERO } else { self.swap_left() };
                    match is_slice {
                        true => self.reclaim_below(amount, left),
                        false => {
                            let set = self.set_of(step.id).expect("the plan names an existing set");
                            take(std::slice::from_mut(set), amount, left, |_| Bytes::ZERO);
                        }
                    }
                }
                Action::Pin { .. } | Action::Unpin { .. } => {}
                Action::Stop { .. } => {
                    let set = self.set_of(step.id).expect("the plan names an existing set");
                    (set.wanted, set.resident, set.cache) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
                }
            }
        }
    }

    /// From what lies below the slice, which honours what is protected there.
    fn reclaim_below(&mut self, amount: Bytes, swap_left: Bytes) {
        let mut inside: Vec<Set> = self.sets.iter().filter(|s| s.managed).cloned().collect();
        take(&mut inside, amount, swap_left, |s| s.low.max(s.min));
        for (old, new) in self.sets.iter_mut().filter(|s| s.managed).zip(inside) {
            *old = new;
        }
    }

    fn set_of(&mut self, wanted: CgroupId) -> Option<&mut Set> {
        self.sets.iter_mut().enumerate().find(|(i, _)| id(*i) == wanted).map(|(_, set)| set)
    }

    /// What the sensors would see.
    pub fn snapshot(&self) -> Snapshot {
        let numbered = || self.sets.iter().enumerate();
        let managed_of = |what: fn(&Set) -> Bytes| -> Bytes {
            self.sets.iter().filter(|s| s.managed).map(what).sum()
        };
        let managed = managed_of(|s| s.resident);
        Snapshot {
            at: self.now,
            host: self.host(),
            workloads: numbered().filter(|(_, s)| s.managed).map(|(i, s)| workload(i, s)).collect(),
            bystanders: numbered()
                .filter(|(_, s)| !s.managed)
                .map(|(i, s)| group(&format!("system.slice/{}.service", s.name), id(i), s))
                .collect(),
            above_bystanders: Vec::new(),
            ancestors: vec![Group {
                path: CgroupPath::new(SLICE),
                id: CgroupId(1),
                memory: MemorySample {
                    low: self.slice_low,
                    min: self.slice_min,
                    inactive_file: managed_of(Set::page_cache),
                    ..memory(managed)
                },
                activity: Activity::default(),
            }],
            dead: BTreeMap::new(),
            oomd: self.oomd(),
            is_mixed: false,
            gaps: Vec::new(),
        }
    }

    fn oomd(&self) -> Oomd {
        let pressure = self.host().pressure;
        let watched = |limit| (CgroupPath::new(""), Watched { limit, pressure });
        Oomd { watched: self.oomd_limit.map(watched).into_iter().collect(), ..Oomd::default() }
    }

    /// Below this, global reclaim starts.
    fn watermark(&self) -> Bytes {
        Bytes(self.total.0 / 100)
    }

    fn cache(&self) -> Bytes {
        self.sets.iter().map(Set::page_cache).sum()
    }

    /// `MemAvailable`: what is free beyond the reserve, and page cache but for some that is left (`si_mem_available()`).
    fn available(&self) -> Bytes {
        let (mark, cache) = (self.watermark(), self.cache());
        self.free() + cache - mark - mark.min(Bytes(cache.0 / 2))
    }

    fn host(&self) -> HostSample {
        HostSample {
            mem_total: self.total,
            mem_free: self.free(),
            watermark: self.watermark(),
            listed_free: Bytes::ZERO,
            mem_available: self.available(),
            reclaimable_cache: self.cache(),
            stolen: Some(self.global_reclaimed.0 / Bytes::PAGE.0),
            swap_total: self.swap.unwrap_or(self.total),
            swap_free: self.swap.map_or(self.total, |_| self.swap_left()),
            zram: None,
            pressure: self.has_psi.then(|| self.pressure()),
            lru: Some(match self.lru {
                Lru::Classic => LruFlavour::Classic,
                Lru::Mglru => LruFlavour::Mglru,
            }),
            io_pressure: None,
            cpu_pressure: self
                .cpus
                .map(|_| PressureLine { avg10_pct: (self.busy * 100.0) as f32, total_usec: 0 }),
            cpus: self.cpus,
            lru_gen: Some(if self.lru == Lru::Mglru { 7 } else { 0 }),
            has_reclaim: self.has_reclaim,
        }
    }
}

impl Kernel {
    /// Of the whole machine: somebody stalls unless nobody does.
    fn pressure(&self) -> Pressure {
        let line = |of: fn(&Pressure) -> PressureLine| {
            let quiet = |s: &Set| 1.0 - f64::from(of(&s.pressure()).avg10_pct) / 100.0;
            let most = self.sets.iter().map(|s| of(&s.pressure()).total_usec).max();
            PressureLine {
                avg10_pct: ((1.0 - self.sets.iter().map(quiet).product::<f64>()) * 100.0) as f32,
                total_usec: most.unwrap_or(0),
            }
        };
        Pressure { some: line(|p| p.some), full: line(|p| p.full) }
    }
}
