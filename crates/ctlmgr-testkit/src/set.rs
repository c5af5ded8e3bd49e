//! Sets of memory that are touched at random, and how the reclaimer finds their oldest pages.

use ctlmgr_model::{Bytes, Knob, Pressure, PressureLine};

/// Fastest return from swap, per set and second.
const FAULT_IN_PER_SEC: Bytes = Bytes::mib(40);
/// Fastest first allocation, per set and second.
const GROW_PER_SEC: Bytes = Bytes::mib(200);
/// What one fault from swap costs its thread where the disk has nothing else to do.
pub(crate) const FAULT_SECS: f64 = 0.001;

/// What the kernel works for one fault, in microseconds: as measured in the guest.
const FAULT_CPU_USEC: u64 = 300;
/// What its own code costs in a second in which it makes all its touches, in microseconds.
const USER_USEC_PER_SEC: f64 = 200_000.0;

/// One workload.
#[derive(Debug, Clone)]
pub struct Set {
    /// Name.
    pub name: String,
    /// Size of what it touches.
    pub wanted: Bytes,
    /// What it was promised; a bystander has none and no container.
    pub promise: Option<Bytes>,
    /// Weight, as a label.
    pub weight: u16,
    /// Whether ctlmgr manages it.
    pub managed: bool,
    /// Touches per page and second, evenly over the set.
    pub heat: f64,
    /// Threads that share the touching, and wait each for itself.
    pub threads: u32,
    /// In memory now.
    pub resident: Bytes,
    /// memory.high, or [`u64::MAX`].
    pub high: Bytes,
    /// Part of its wanted touches that it made in the last second.
    pub pace: f64,
    /// Part of what is in memory that was filled once and is never touched again.
    pub unused: Bytes,
    /// Part of what is in memory that is page cache of what it read once, and never reads again.
    pub cache: Bytes,
    /// How much it reads so in a second.
    pub scan_per_sec: Bytes,
    /// Whether its set is page cache, of files that it reads at random by file descriptor.
    pub is_files: bool,
    /// What of it is locked, so that reclaim cannot take it.
    pub locked: Bytes,
    /// What it has read so.
    pub(crate) scanned: Bytes,
    /// Class, as a label in place of the weight's.
    pub class: Option<String>,
    /// Whether its processes are to stand still.
    pub is_frozen: bool,
    /// Whether they cannot: some sleep uninterruptibly, where the freezer does not reach them.
    pub is_unreachable: bool,
    pub(crate) low: Bytes,
    pub(crate) min: Bytes,
    pub(crate) refaults: u64,
    /// Those of them that the kernel took to be of the working set.
    pub(crate) activated: u64,
    /// Pages that global reclaim took.
    pub(crate) stolen: u64,
    /// Part of the set, and of what is never touched, that is in swap; and what of the set comes
    /// back this second.
    swapped: Bytes,
    swapped_unused: Bytes,
    coming_back: Bytes,
    /// Time in which some thread waited, and in which all did, in microseconds; the same, smoothed, in per
    /// cent.
    pub(crate) stalled_usec: [u64; 2],
    pub(crate) stall_pct: [f64; 2],
    /// Processor time, its own code's and the kernel's for its faults, in microseconds.
    pub(crate) cpu_usec: u64,
}

impl Set {
    /// A managed set that is not in memory yet.
    pub fn managed(name: &str, wanted: Bytes, promise: Option<Bytes>, weight: u16) -> Set {
        Set {
            name: name.to_owned(),
            wanted,
            promise,
            weight,
            managed: true,
            heat: 0.15,
            threads: 4,
            resident: Bytes::ZERO,
            high: Bytes(u64::MAX),
            pace: 1.0,
            unused: Bytes::ZERO,
            cache: Bytes::ZERO,
            scan_per_sec: Bytes::ZERO,
            is_files: false,
            locked: Bytes::ZERO,
            scanned: Bytes::ZERO,
            class: None,
            is_frozen: false,
            is_unreachable: false,
            low: Bytes::ZERO,
            min: Bytes::ZERO,
            refaults: 0,
            activated: 0,
            stolen: 0,
            swapped: Bytes::ZERO,
            swapped_unused: Bytes::ZERO,
            coming_back: Bytes::ZERO,
            stalled_usec: [0; 2],
            stall_pct: [0.0; 2],
            cpu_usec: 0,
        }
    }

    /// A unit that nobody manages.
    pub fn bystander(name: &str, wanted: Bytes) -> Set {
        Set { managed: false, ..Set::managed(name, wanted, None, 100) }
    }

    /// The same, touched this often per page and second.
    #[must_use]
    pub fn hot(self, heat: f64) -> Set {
        Set { heat, ..self }
    }

    /// The same, touched by this many threads.
    #[must_use]
    pub fn by_threads(self, threads: u32) -> Set {
        Set { threads, ..self }
    }

    /// The same, of a class.
    #[must_use]
    pub fn of_class(self, class: &str) -> Set {
        Set { class: Some(class.to_owned()), ..self }
    }

    /// The same, with this much beside its set that it once filled and never touches.
    #[must_use]
    pub fn with_unused(self, unused: Bytes) -> Set {
        Set { unused, resident: self.resident + unused, ..self }
    }

    /// The same, with files for a set.
    #[must_use]
    pub fn of_files(self) -> Set {
        Set { is_files: true, ..self }
    }

    /// The same, reading so much in a second from a disk that is never read again.
    #[must_use]
    pub fn scanning(self, scan_per_sec: Bytes) -> Set {
        Set { scan_per_sec, ..self }
    }

    /// One second of reading, which drops page cache of its own where it may not have more.
    pub(crate) fn scan(&mut self) -> Bytes {
        if self.stands_still() {
            return Bytes::ZERO;
        }
        self.scanned = self.scanned + self.scan_per_sec;
        let over = self.resident + self.scan_per_sec - self.high;
        self.drop_cache(over.min(self.cache));
        self.scan_per_sec.min(self.high - self.resident)
    }

    /// Gets page cache that it reads into.
    pub(crate) fn fill(&mut self, amount: Bytes) {
        (self.cache, self.resident) = (self.cache + amount, self.resident + amount);
    }

    pub(crate) fn drop_cache(&mut self, amount: Bytes) {
        (self.cache, self.resident) = (self.cache - amount, self.resident - amount);
    }

    /// Loses anonymous memory to swap, or page cache of its files; what is never touched first.
    pub fn lose(&mut self, amount: Bytes) {
        let unused = amount.min(self.unused);
        self.unused = self.unused - unused;
        self.swapped_unused = self.swapped_unused + unused;
        self.swapped = self.swapped + (amount - unused);
        self.resident = self.resident - amount;
    }

    /// Gets memory that it touched, what was in swap first.
    pub(crate) fn gain(&mut self, amount: Bytes) {
        let back = amount.min(self.coming_back);
        self.swapped = self.swapped - back;
        let faults = back.0 / Bytes::PAGE.0;
        self.refaults += faults;
        // As many others came in meanwhile as are away (refault distance), which is soon if there is room for them.
        if self.swapped <= self.resident {
            self.activated += faults;
        }
        self.cpu_usec += faults * FAULT_CPU_USEC;
        self.resident = self.resident + amount;
    }

    /// What it has in swap.
    pub(crate) fn in_swap(&self) -> Bytes {
        if self.is_files { Bytes::ZERO } else { self.swapped_unused + self.swapped }
    }

    /// Its page cache.
    pub(crate) fn page_cache(&self) -> Bytes {
        if self.is_files { self.resident } else { self.cache }
    }

    /// Writes one of its knobs, as a plan or another writer does.
    pub fn write(&mut self, knob: Knob, to: Bytes) {
        match knob {
            Knob::MemoryLow => self.low = to,
            Knob::MemoryMin => self.min = to,
            Knob::MemoryHigh => self.high = to,
            Knob::CgroupFreeze => self.is_frozen = to == Knob::STILL,
            // Of the host, not of a set.
            Knob::LruGen | Knob::CpusetCpus | Knob::CpusetMems => {}
        }
    }

    /// It wants more or less from now on; what it frees was in memory and in swap alike.
    pub fn resize(&mut self, wanted: Bytes) {
        let has = self.warm() + self.swapped;
        let freed = |part: Bytes| {
            let freed =
                u128::from(part.0) * u128::from((has - wanted).0) / u128::from(has.0.max(1));
            Bytes(u64::try_from(freed).unwrap_or(u64::MAX))
        };
        let (warm, swapped) = (freed(self.warm()), freed(self.swapped));
        self.resident = self.resident - warm;
        self.swapped = self.swapped - swapped;
        self.wanted = wanted;
    }

    /// Whether its processes do stand still.
    pub(crate) fn stands_still(&self) -> bool {
        self.is_frozen && !self.is_unreachable
    }

    /// What of its set is in memory.
    fn warm(&self) -> Bytes {
        self.resident - self.unused - self.cache
    }

    /// Anonymous memory that it holds and that was not touched for so many seconds.
    fn older_than(&self, age: f64) -> Bytes {
        let warm = self.warm();
        self.unused + Bytes(whole(warm.0 as f64 * (-self.heat * age).exp()))
    }

    /// Part of the set that is in memory, 0–1.
    pub fn resident_part(&self) -> f64 {
        (self.resident - self.cache).0 as f64 / self.wanted.0.max(1) as f64
    }

    /// Pages in swap that it asks for in a second.
    fn asked(&self) -> f64 {
        self.heat * (self.swapped.0 / Bytes::PAGE.0) as f64
    }

    /// Faults in a second where each takes so long.
    pub(crate) fn faults_per_sec(&self, fault_secs: f64) -> f64 {
        let running = if self.stands_still() { 0.0 } else { 1.0 };
        running * self.asked() / (1.0 + self.asked() * fault_secs / f64::from(self.threads))
    }

    /// One second of touching, where a fault takes so long: what comes back into memory, and how much time it
    /// waits for that.
    pub(crate) fn touch(&mut self, fault_secs: f64) -> Bytes {
        if self.stands_still() {
            // Who stands still waits for nothing: PSI does not count it.
            self.pace = 1.0;
            return Bytes::ZERO;
        }
        let warm = self.warm();
        self.swapped = self.swapped.min(self.wanted);
        let new = (self.wanted - warm - self.swapped).min(GROW_PER_SEC);
        // Each page in swap is asked for `heat` times a second, and each time costs a wait.
        let asked = self.asked();
        let waiting = asked * fault_secs / f64::from(self.threads);
        let throttled = if self.resident > self.high { 1.0 } else { 0.0 };
        self.pace = 1.0 / (1.0 + waiting + throttled);
        let back = Bytes(whole(asked * self.pace) * Bytes::PAGE.0);
        self.coming_back = back.min(self.swapped).min(FAULT_IN_PER_SEC);
        self.coming_back + new
    }

    pub(crate) fn feel(&mut self) {
        self.cpu_usec += whole(self.pace * USER_USEC_PER_SEC);
        // Threads wait independently of each other.
        let threads = f64::from(self.threads);
        let parts = [1.0 - self.pace.powf(threads), (1.0 - self.pace).powf(threads)];
        for (i, part) in parts.into_iter().enumerate() {
            self.stalled_usec[i] += whole(part * 1e6);
            self.stall_pct[i] += (part * 100.0 - self.stall_pct[i]) / 5.0;
        }
    }

    pub(crate) fn pressure(&self) -> Pressure {
        let line = |i: usize| PressureLine {
            avg10_pct: self.stall_pct[i] as f32,
            total_usec: self.stalled_usec[i],
        };
        Pressure { some: line(0), full: line(1) }
    }
}

/// Takes `amount` from what the sets hold above `protected`: page cache that nobody reads again first, then what there
/// is room for in swap; returns what was taken.
pub(crate) fn take(
    sets: &mut [Set],
    amount: Bytes,
    swap_left: Bytes,
    protected: impl Fn(&Set) -> Bytes,
) -> Bytes {
    let protected = |s: &Set| protected(s).max(s.locked);
    let dropped = take_cache(sets, amount, protected);
    let taken = dropped + take_oldest(sets, (amount - dropped).min(swap_left), protected);
    // Files need no room in swap.
    let hard = |s: &Set| if s.is_files { protected(s) } else { s.resident };
    taken + take_oldest(sets, amount - taken, hard)
}

/// Of each in proportion to what it holds, whatever that is: page cache of its own first.
pub(crate) fn take_alike(
    sets: &mut [Set],
    amount: Bytes,
    mut swap_left: Bytes,
    protected: impl Fn(&Set) -> Bytes,
) -> Bytes {
    let protected = |s: &Set| protected(s).max(s.locked);
    let all: Bytes = sets.iter().map(|s| s.resident - protected(s)).sum();
    let (amount, mut taken) = (amount.min(all), Bytes::ZERO);
    for set in sets.iter_mut() {
        let open = set.resident - protected(set);
        let part = u128::from(open.0) * u128::from(amount.0) / u128::from(all.0.max(1));
        let part = Bytes(u64::try_from(part).unwrap_or(u64::MAX));
        let dropped = part.min(set.cache);
        let room = if set.is_files { Bytes(u64::MAX) } else { swap_left };
        let lost = (part - dropped).min(room);
        set.drop_cache(dropped);
        set.lose(lost);
        let swapped = if set.is_files { Bytes::ZERO } else { lost };
        (taken, swap_left) = (taken + dropped + lost, swap_left - swapped);
    }
    taken
}

/// Of each in proportion to what it has of it.
fn take_cache(sets: &mut [Set], amount: Bytes, protected: impl Fn(&Set) -> Bytes) -> Bytes {
    let open = |s: &Set| (s.resident - protected(s)).min(s.cache);
    let all: Bytes = sets.iter().map(open).sum();
    let (amount, mut taken) = (amount.min(all), Bytes::ZERO);
    for set in sets.iter_mut() {
        let part = u128::from(open(set).0) * u128::from(amount.0) / u128::from(all.0.max(1));
        let part = Bytes(u64::try_from(part).unwrap_or(u64::MAX));
        set.drop_cache(part);
        taken = taken + part;
    }
    taken
}

/// The oldest pages first.
///
/// In a set that is touched evenly, `heat` times per page and second, e^(−heat · t) of the pages
/// have not been touched for t seconds. The reclaimer goes down to the age at which there is enough.
fn take_oldest(sets: &mut [Set], amount: Bytes, protected: impl Fn(&Set) -> Bytes) -> Bytes {
    let open = |s: &Set| (s.resident - protected(s)).min(s.resident - s.cache);
    let amount = amount.min(sets.iter().map(&open).sum());
    let older_than = |age: f64, s: &Set| s.older_than(age).min(open(s));
    let (mut young, mut old) = (0.0, 600.0);
    for _ in 0..40 {
        let age = (young + old) / 2.0;
        let sum: Bytes = sets.iter().map(|s| older_than(age, s)).sum();
        if sum >= amount { young = age } else { old = age }
    }
    let found: Bytes = sets.iter().map(|s| older_than(young, s)).sum();
    let mut taken = Bytes::ZERO;
    for set in sets.iter_mut() {
        let part = u128::from(older_than(young, set).0) * u128::from(amount.0);
        let part = Bytes(u64::try_from(part / u128::from(found.0.max(1))).unwrap_or(u64::MAX));
        let part = part.min(set.resident - set.cache).min(amount - taken);
        set.lose(part);
        taken = taken + part;
    }
    taken
}

#[expect(clippy::cast_sign_loss, reason = "amounts and times are not negative; a cast saturates")]
fn whole(value: f64) -> u64 {
    value as u64
}
