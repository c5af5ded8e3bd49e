//! One thread: grows its part of the set and touches it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::wait_until;

/// Words per page.
const PAGE_WORDS: usize = 512;
const PAGES_PER_MIB: u64 = 256;
/// Length of one batch of touches.
const BATCH: Duration = Duration::from_millis(20);

/// What each thread does.
#[derive(Debug)]
pub struct Plan {
    pub size_mib: u64,
    pub touches_per_mib: u64,
    pub steps: u32,
    pub step: Duration,
    pub started: Instant,
}

impl Plan {
    /// Size of one thread's part at a moment, in MiB.
    pub fn wanted_mib(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.started);
        let step = match self.step.is_zero() {
            true => u64::from(self.steps),
            false => (passed.as_millis() / self.step.as_millis()) as u64 + 1,
        };
        self.size_mib * step.min(u64::from(self.steps)) / u64::from(self.steps)
    }
}

/// Small fast generator (xorshift64*); quality does not matter here.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// Runs one thread until `stop`.
pub fn run(plan: &Plan, thread: u64, shared: &Mutex<Histogram>, stop: &AtomicBool) {
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (thread + 1));
    let mut set: Vec<Vec<u64>> = Vec::new();
    let mut next = Instant::now();
    let mut owed = 0.0;
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        grow(&mut set, plan.wanted_mib(now), &mut random);
        owed += (plan.touches_per_mib * set.len() as u64) as f64 * BATCH.as_secs_f64();
        let deadline = Instant::now() + BATCH;
        let batch = touch(&mut set, &mut owed, deadline, &mut random);
        shared.lock().unwrap_or_else(|e| e.into_inner()).merge(&batch);
        next += BATCH;
        let now = Instant::now();
        if next < now {
            // Behind: what was not done is lost, as it is for a service.
            (next, owed) = (now, 0.0);
        }
        wait_until(next);
    }
}

/// Adds segments of one MiB of random data until the set has the wanted size.
fn grow(set: &mut Vec<Vec<u64>>, wanted_mib: u64, random: &mut Random) {
    while (set.len() as u64) < wanted_mib {
        let words = PAGES_PER_MIB as usize * PAGE_WORDS;
        set.push((0..words).map(|_| random.next()).collect());
    }
}

fn touch(
    set: &mut [Vec<u64>],
    owed: &mut f64,
    deadline: Instant,
    random: &mut Random,
) -> Histogram {
    let mut histogram = Histogram::default();
    let pages = set.len() as u64 * PAGES_PER_MIB;
    while *owed >= 1.0 && pages > 0 {
        let page = random.next() % pages;
        let segment = &mut set[(page / PAGES_PER_MIB) as usize];
        let word = (page % PAGES_PER_MIB) as usize * PAGE_WORDS;
        let before = Instant::now();
        segment[word] = segment[word].wrapping_add(1);
        let after = Instant::now();
        histogram.add((after - before).as_nanos() as u64);
        *owed -= 1.0;
        if after > deadline {
            break;
        }
    }
    histogram
}
