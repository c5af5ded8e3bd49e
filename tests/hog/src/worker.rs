//! One thread: grows its part of the set and touches it.

use std::fs::File;
use std::io::{Result, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
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
    /// Size before the first step, and after the last one; it may shrink.
    pub first_mib: u64,
    pub size_mib: u64,
    /// So much of the set is touched at most.
    pub live_mib: u64,
    pub touches_per_mib: u64,
    pub steps: u32,
    pub step: Duration,
    pub started: Instant,
    /// Keep the set in files with this name in front, so that it is page cache.
    pub file: Option<PathBuf>,
}

impl Plan {
    /// Size of one thread's part at a moment, in MiB.
    pub fn wanted_mib(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.started);
        let step = match self.step.is_zero() {
            true => u64::from(self.steps),
            false => (passed.as_millis() / self.step.as_millis()) as u64 + 1,
        };
        let part = |of: u64| of * step.min(u64::from(self.steps)) / u64::from(self.steps);
        let grown = self.size_mib.saturating_sub(self.first_mib);
        let shrunk = self.first_mib.saturating_sub(self.size_mib);
        self.first_mib + part(grown) - part(shrunk)
    }

    /// What is touched of a set of so many MiB.
    pub fn live_mib(&self, mib: u64) -> u64 {
        mib.min(self.live_mib)
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

/// One thread's part of the set.
enum Set {
    Memory(Vec<Vec<u64>>),
    File { file: File, mib: u64 },
}

impl Set {
    fn new(plan: &Plan, thread: u64) -> Result<Set> {
        let Some(path) = &plan.file else { return Ok(Set::Memory(Vec::new())) };
        let path = path.with_extension(thread.to_string());
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Set::File { file, mib: 0 })
    }

    fn mib(&self) -> u64 {
        match self {
            Set::Memory(segments) => segments.len() as u64,
            Set::File { mib, .. } => *mib,
        }
    }

    /// Adds segments of one MiB of random data until the set has the wanted size, or frees memory that is beyond it.
    fn resize(&mut self, wanted_mib: u64, random: &mut Random) -> Result<()> {
        let words = PAGES_PER_MIB as usize * PAGE_WORDS;
        let before = self.mib();
        if let Set::Memory(segments) = self {
            segments.truncate(wanted_mib as usize);
        }
        for _ in before..wanted_mib {
            let segment: Vec<u64> = (0..words).map(|_| random.next()).collect();
            match self {
                Set::Memory(segments) => segments.push(segment),
                Set::File { file, mib } => {
                    let bytes: Vec<u8> = segment.iter().flat_map(|w| w.to_ne_bytes()).collect();
                    file.write_all(&bytes)?;
                    *mib += 1;
                }
            }
        }
        match self {
            // Dirty pages would be another experiment.
            Set::File { file, mib } if *mib > before => file.sync_data(),
            _ => Ok(()),
        }
    }

    /// Reads, and in memory writes, one word of a page.
    fn touch(&mut self, page: u64) -> Result<()> {
        match self {
            Set::Memory(segments) => {
                let segment = &mut segments[(page / PAGES_PER_MIB) as usize];
                let word = (page % PAGES_PER_MIB) as usize * PAGE_WORDS;
                segment[word] = segment[word].wrapping_add(1);
                Ok(())
            }
            Set::File { file, .. } => {
                let mut word = [0; 8];
                file.read_exact_at(&mut word, page * PAGE_WORDS as u64 * 8)?;
                std::hint::black_box(word);
                Ok(())
            }
        }
    }
}

/// Runs one thread until `stop`.
///
/// # Errors
/// Its file cannot be made, written or read.
pub fn run(plan: &Plan, thread: u64, shared: &Mutex<Histogram>, stop: &AtomicBool) -> Result<()> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (thread + 1));
    let mut set = Set::new(plan, thread)?;
    let mut next = Instant::now();
    let mut owed = 0.0;
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        set.resize(plan.wanted_mib(now), &mut random)?;
        let live_mib = plan.live_mib(set.mib());
        owed += (plan.touches_per_mib * live_mib) as f64 * BATCH.as_secs_f64();
        let pages = live_mib * PAGES_PER_MIB;
        let batch = touch(&mut set, pages, &mut owed, &mut random)?;
        shared.lock().unwrap_or_else(|e| e.into_inner()).merge(&batch);
        next += BATCH;
        let now = Instant::now();
        if next < now {
            // Behind: what was not done is lost, as it is for a service.
            (next, owed) = (now, 0.0);
        }
        wait_until(next);
    }
    Ok(())
}

fn touch(set: &mut Set, pages: u64, owed: &mut f64, random: &mut Random) -> Result<Histogram> {
    let deadline = Instant::now() + BATCH;
    let mut histogram = Histogram::default();
    while *owed >= 1.0 && pages > 0 {
        let page = random.next() % pages;
        let before = Instant::now();
        set.touch(page)?;
        let after = Instant::now();
        histogram.add((after - before).as_nanos() as u64);
        *owed -= 1.0;
        if after > deadline {
            break;
        }
    }
    Ok(histogram)
}
