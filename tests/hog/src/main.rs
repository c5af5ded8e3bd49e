//! A load generator: holds a set of memory or of page cache, touches random pages of it at a pace,
//! and reports how well it goes, one JSON object per second.
//!
//! Pages hold random data (zero-filled ones never reach swap). A touch reads one word of one page,
//! and in memory writes it too. What a thread could not do in time is dropped, not queued, so that `pace` says
//! what a user of the service would have got.

mod histogram;
mod worker;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use nix::sys::mman::{MlockAllFlags, mlockall};
use serde::Serialize;

use crate::histogram::Histogram;
use crate::worker::{Plan, run};

/// Holds memory and touches it at a pace.
#[derive(Debug, Parser)]
struct Arguments {
    /// Size of the set, in MiB.
    #[arg(long)]
    size: u64,
    /// Touch only the first so many MiB of the set; the rest is written once, as what leaks is. 0 leaves none out.
    #[arg(long, default_value_t = 0)]
    live: u64,
    /// Touches per second and MiB of what is touched.
    #[arg(long, default_value_t = 10)]
    rate: u64,
    /// Threads; the set and the rate are divided among them.
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Size before the first step, in MiB.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Keep the set in files with this name in front: page cache instead of anonymous memory.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Lock all memory, so that the kernel can take none of it (mlockall(2)); needs a limit that allows it.
    #[arg(long)]
    lock: bool,
    /// Grow, or shrink, to the size in this many equal steps.
    #[arg(long, default_value_t = 1)]
    steps: u32,
    /// Seconds from one step to the next.
    #[arg(long, default_value_t = 60)]
    step_secs: u64,
    /// Stop after this many seconds; 0 never stops.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Append reports to this file instead of standard output.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// One second.
#[derive(Debug, Serialize)]
struct Report {
    second: u64,
    /// Part of the wanted touches that were made, 0–1.
    pace: f64,
    touches: u64,
    p50_us: f64,
    p99_us: f64,
    /// Resident and swapped memory of this process, in MiB.
    resident_mib: u64,
    swapped_mib: u64,
    /// Size wanted so far, in MiB.
    set_mib: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.lock {
        mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
            .context("failed to lock memory")?;
    }
    if arguments.file.is_some() && arguments.first > arguments.size {
        bail!("--file does not shrink: --first is more than --size");
    }
    let stop = AtomicBool::new(false);
    let shared = Mutex::new(Histogram::default());
    let started = Instant::now();
    let plan = Plan {
        first_mib: arguments.first.div_ceil(arguments.threads.max(1)),
        file: arguments.file.clone(),
        live_mib: match arguments.live {
            0 => u64::MAX,
            mib => mib.div_ceil(arguments.threads.max(1)),
        },
        size_mib: arguments.size.div_ceil(arguments.threads.max(1)),
        touches_per_mib: arguments.rate,
        steps: arguments.steps.max(1),
        step: Duration::from_secs(arguments.step_secs),
        started,
    };
    std::thread::scope(|scope| {
        for thread in 0..arguments.threads.max(1) {
            let (plan, shared, stop) = (&plan, &shared, &stop);
            scope.spawn(move || {
                if let Err(error) = run(plan, thread, shared, stop) {
                    eprintln!("hog: thread {thread}: {error}");
                    std::process::exit(1);
                }
            });
        }
        let result = report(&arguments, &plan, &shared);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn report(arguments: &Arguments, plan: &Plan, shared: &Mutex<Histogram>) -> Result<()> {
    let mut out: Box<dyn Write> = match &arguments.out {
        Some(path) => Box::new(
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("failed to open {}", path.display()))?,
        ),
        None => Box::new(std::io::stdout()),
    };
    let mut last = Instant::now();
    for second in 1.. {
        if arguments.seconds > 0 && second > arguments.seconds {
            break;
        }
        wait_until(plan.started + Duration::from_secs(second));
        let histogram = std::mem::take(&mut *shared.lock().unwrap_or_else(|e| e.into_inner()));
        let passed = last.elapsed().as_secs_f64();
        last = Instant::now();
        let set_mib = plan.wanted_mib(last) * arguments.threads;
        let live_mib = plan.live_mib(plan.wanted_mib(last)) * arguments.threads;
        let wanted = plan.touches_per_mib as f64 * live_mib as f64 * passed;
        let (resident_mib, swapped_mib) = memory_mib();
        let report = Report {
            second,
            pace: (histogram.count() as f64 / wanted.max(1.0)).min(1.0),
            touches: histogram.count(),
            p50_us: histogram.quantile_us(0.5),
            p99_us: histogram.quantile_us(0.99),
            resident_mib,
            swapped_mib,
            set_mib,
        };
        serde_json::to_writer(&mut out, &report).context("failed to report")?;
        out.write_all(b"\n").and_then(|()| out.flush()).context("failed to report")?;
    }
    Ok(())
}

/// Waits for a moment; a wake-up without reason only waits again.
fn wait_until(moment: Instant) {
    while let Some(left) = moment.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        std::thread::park_timeout(left);
    }
}

fn memory_mib() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key));
        let kib = line.and_then(|l| l.trim_start_matches(':').split_whitespace().next());
        kib.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1024
    };
    (of("VmRSS"), of("VmSwap"))
}
