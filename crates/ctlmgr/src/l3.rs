//! `ctlmgr bench l3`: what a message between two processors costs, by how far they are apart (Rao et al.,
//! Fig. 8), on this machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ctlmgr_model::{CacheDomain, Topology};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;

use crate::{Failure, offline, print_json, show};

/// Each pair is measured for so long, for latency and for bandwidth.
const LONG: Duration = Duration::from_millis(60);
/// Pairs of each distance, at most, each measured so often.
const PAIRS: usize = 4;
const TIMES: usize = 5;
/// Words of a message of the second kind: it fits into every second-level cache.
const WORDS: usize = 16 << 10;

/// How far two processors are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Distance {
    SameDomain,
    OtherDomain,
    OtherNode,
    OtherSocket,
}

impl Distance {
    fn words(self) -> &'static str {
        match self {
            Distance::SameDomain => "same domain",
            Distance::OtherDomain => "other domain, same node",
            Distance::OtherNode => "other node, same socket",
            Distance::OtherSocket => "other socket",
        }
    }
}

/// What was measured at one distance: medians over pairs and times.
#[derive(Debug, Serialize)]
struct Measured {
    distance: Distance,
    pairs: usize,
    /// Nanoseconds from one processor to the other.
    latency_ns: f64,
    /// Bytes per second, written by one and read by the other.
    bytes_per_sec: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    /// What the kernel calls the processor.
    machine: String,
    /// Whether it is a guest: its caches are then what the hypervisor makes of them.
    is_guest: bool,
    domains: usize,
    measured: Vec<Measured>,
}

/// Runs the command.
pub(crate) fn run(json: bool) -> Result<u8, Failure> {
    let topology = offline::topology(Path::new("/"))?;
    let info = std::fs::read_to_string("/proc/cpuinfo").context("failed to read /proc/cpuinfo")?;
    let field = |name: &str| {
        let line = info.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let measured = pairs(&topology)
        .into_iter()
        .map(|(distance, pairs)| measure(distance, &pairs))
        .collect::<Result<_, Failure>>()?;
    let report = Report {
        machine: field("model name").unwrap_or_else(|| "unknown".to_owned()),
        is_guest: field("flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
        domains: topology.domains.len(),
        measured,
    };
    if json {
        print_json(&report)?;
    } else {
        tell(&report);
    }
    Ok(0)
}

fn tell(report: &Report) {
    show::line(&format!("{}, {} last-level cache(s)", report.machine, report.domains));
    if report.is_guest {
        show::line("A guest: which caches its processors share is up to the hypervisor.");
    }
    show::line(&format!(
        "{:<26} {:>6} {:>14} {:>14}",
        "DISTANCE", "PAIRS", "LATENCY, NS", "BYTES, /S"
    ));
    for m in &report.measured {
        let rate = ctlmgr_model::Bytes(m.bytes_per_sec).to_string();
        let distance = m.distance.words();
        show::line(&format!("{distance:<26} {:>6} {:>14.0} {rate:>14}", m.pairs, m.latency_ns));
    }
    if report.domains < 2 {
        show::line("One domain: there is nothing to gain from placement on this machine.");
    }
}

/// Pairs of processors of different cores, by distance.
fn pairs(topology: &Topology) -> BTreeMap<Distance, Vec<(u32, u32)>> {
    let mut pairs: BTreeMap<Distance, Vec<(u32, u32)>> = BTreeMap::new();
    let core = |d: &CacheDomain, n: usize| d.cores.get(n).and_then(|core| core.first());
    for (index, a) in topology.domains.iter().enumerate() {
        if let (Some(x), Some(y)) = (core(a, 0), core(a, 1)) {
            pairs.entry(Distance::SameDomain).or_default().push((x, y));
        }
        for b in &topology.domains[index + 1..] {
            let distance = match () {
                () if a.socket != b.socket => Distance::OtherSocket,
                () if a.numa != b.numa => Distance::OtherNode,
                () => Distance::OtherDomain,
            };
            if let (Some(x), Some(y)) = (core(a, 0), core(b, 0)) {
                pairs.entry(distance).or_default().push((x, y));
            }
        }
    }
    pairs.values_mut().for_each(|pairs| pairs.truncate(PAIRS));
    pairs
}

fn measure(distance: Distance, pairs: &[(u32, u32)]) -> Result<Measured, Failure> {
    let (mut latency, mut rate) = (Vec::new(), Vec::new());
    for &(a, b) in pairs {
        for _ in 0..TIMES {
            let words = between(a, b, 1)?;
            latency.push(words.nanos / words.messages / 2.0);
            let blocks = between(a, b, WORDS)?;
            rate.push(blocks.messages * WORDS as f64 * 8.0 / blocks.nanos * 1e9);
        }
    }
    Ok(Measured {
        distance,
        pairs: pairs.len(),
        latency_ns: median(latency),
        bytes_per_sec: natural(median(rate)),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate; it saturates")]
fn natural(value: f64) -> u64 {
    value as u64
}

struct Exchange {
    messages: f64,
    nanos: f64,
}

/// A line of cache of its own.
#[repr(align(128))]
#[derive(Default)]
struct Flag(AtomicU64);

struct Shared {
    sent: Flag,
    read: Flag,
    is_over: AtomicBool,
    block: Vec<AtomicU64>,
}

/// Messages of so many words from one processor to another, each answered.
fn between(a: u32, b: u32, words: usize) -> Result<Exchange, Failure> {
    let shared = Arc::new(Shared {
        sent: Flag::default(),
        read: Flag::default(),
        is_over: AtomicBool::new(false),
        block: (0..words).map(|_| AtomicU64::new(0)).collect(),
    });
    let reader = {
        let shared = shared.clone();
        std::thread::spawn(move || -> Result<u64, Failure> {
            let pinned = pin(b);
            if pinned.is_err() {
                shared.is_over.store(true, Ordering::Release);
            }
            pinned.map(|()| read(&shared))
        })
    };
    let writer = {
        let shared = shared.clone();
        std::thread::spawn(move || -> Result<Exchange, Failure> {
            let pinned = pin(a);
            let exchange = pinned.map(|()| write(&shared));
            shared.is_over.store(true, Ordering::Release);
            exchange
        })
    };
    let broke = |_| Failure::from(anyhow::anyhow!("a measuring thread broke"));
    let exchange = writer.join().map_err(broke)?;
    reader.join().map_err(broke)??;
    exchange
}

fn pin(cpu: u32) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(cpu as usize).with_context(|| format!("CPU {cpu} is beyond what can be pinned to"))?;
    sched_setaffinity(Pid::from_raw(0), &set)
        .with_context(|| format!("failed to run on CPU {cpu}"))?;
    Ok(())
}

fn write(shared: &Shared) -> Exchange {
    let mut number = 0;
    let mut began = Instant::now();
    loop {
        number += 1;
        shared.block.iter().for_each(|word| word.store(number, Ordering::Relaxed));
        shared.sent.0.store(number, Ordering::Release);
        while shared.read.0.load(Ordering::Acquire) != number {
            if shared.is_over.load(Ordering::Relaxed) {
                // The reader says why.
                return Exchange { messages: 1.0, nanos: 1.0 };
            }
            std::hint::spin_loop();
        }
        // The first ones wait for the other thread to start.
        if number == 16 {
            began = Instant::now();
        }
        if number > 16 && number % 16 == 0 && began.elapsed() >= LONG {
            let messages = (number - 16) as f64;
            return Exchange { messages, nanos: began.elapsed().as_nanos() as f64 };
        }
    }
}

/// Returns a sum, so that nothing of the reading is left out.
fn read(shared: &Shared) -> u64 {
    let (mut seen, mut sum) = (0, 0_u64);
    while !shared.is_over.load(Ordering::Acquire) {
        let number = shared.sent.0.load(Ordering::Acquire);
        if number == seen {
            std::hint::spin_loop();
            continue;
        }
        let block = shared.block.iter().map(|word| word.load(Ordering::Relaxed));
        sum = sum.wrapping_add(block.fold(0, u64::wrapping_add));
        seen = number;
        shared.read.0.store(number, Ordering::Release);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::{Cpus, Shared as What};

    fn domain(first: u32, numa: u32, socket: u32) -> CacheDomain {
        let cores: Vec<Cpus> = (first..first + 2).map(|cpu| [cpu].into_iter().collect()).collect();
        let cpus = (first..first + 2).collect();
        CacheDomain { cpus, cores, shared: What::Node, numa, socket }
    }

    #[test]
    fn pairs_are_sorted_by_how_far_they_are_apart() {
        let domains = vec![domain(0, 0, 0), domain(2, 0, 0), domain(4, 1, 0), domain(6, 2, 1)];
        let topology = Topology { domains, ..Topology::default() };
        let found = pairs(&topology);
        assert_eq!(found[&Distance::SameDomain], [(0, 1), (2, 3), (4, 5), (6, 7)]);
        assert_eq!(found[&Distance::OtherDomain], [(0, 2)]);
        assert_eq!(found[&Distance::OtherNode], [(0, 4), (2, 4)]);
        assert_eq!(found[&Distance::OtherSocket], [(0, 6), (2, 6), (4, 6)]);
    }

    #[test]
    fn messages_come_through_between_two_processors_that_this_thread_may_use() {
        let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).expect("an affinity");
        let is_allowed = |cpu: &u32| allowed.is_set(*cpu as usize).unwrap_or(false);
        let cpus: Vec<u32> = (0..1024).filter(is_allowed).take(2).collect();
        let (a, b) = (cpus[0], *cpus.last().expect("at least one"));
        // On one processor the two would wait for each other's time slices.
        if a != b {
            let exchange = between(a, b, 8).expect("measured");
            assert!(exchange.messages >= 1.0 && exchange.nanos > 0.0);
        }
        assert!(between(100_000, a, 1).is_err(), "no such processor");
        assert!(between(a, 100_000, 1).is_err(), "no such processor to read on");
    }
}
