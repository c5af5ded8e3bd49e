//! Prices: what it costs all that pages of one are missing, learned from those of whom it is known.
//!
//! A fault takes as long for one as for another, in waiting ([`crate::toll`]) and in processor time, and where processors are short
//! others wait for the time that it takes. What nobody shows costs nothing.
//!
//! # Properties
//! Of two of whom as many pages come back, and one of whom does not show what its faults take, both cost the others as much.

use ctlmgr_model::HostSample;

use crate::demand::Estimate;
use crate::progress::{Common, Progress};
use crate::toll::Toll;

/// A fault takes no more processor time than this, in seconds: on hardware some 10 µs, under emulation half a
/// millisecond. What the kernel works for one beyond that is for what it is asked for, not for what it lacks.
const MOST_FAULT_SECS: f64 = 0.001;

/// What it costs that pages are missing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prices {
    /// What a second of processor time costs all together, in seconds of everybody's time ([`price_of_cpu`]).
    pub cpu: f64,
    /// Seconds that a fault on swap takes, as far as that is known ([`crate::toll`]).
    pub fault: Option<f64>,
    /// Seconds of processor time that a page that comes back takes, as far as that is known.
    pub fault_cpu_secs: f64,
    /// What workloads lose beyond what they wait ([`crate::progress`]).
    pub unseen: Common,
}

impl Prices {
    /// Of this host, where all that are present did like that, and of them the workloads.
    pub(crate) fn new(host: &HostSample, present: &[&Estimate], workloads: &[&Estimate]) -> Prices {
        Prices {
            cpu: price_of_cpu(host),
            fault: Toll::cost_of_fault(present.iter().map(|e| e.toll)),
            fault_cpu_secs: fault_cpu_secs(present),
            unseen: Progress::common(workloads.iter().map(|e| e.progress)),
        }
    }

    /// What all lose, as part of their time, by the faults of one that does like that, of whose pages so many come back.
    pub(crate) fn burden(self, progress: Progress, refaults_per_sec: u64) -> f64 {
        let rate = amount(refaults_per_sec);
        let cpus = progress.fault_cpus().unwrap_or(self.fault_cpu_secs * rate);
        cpus.min(MOST_FAULT_SECS * rate) * self.cpu
    }
}

/// Seconds of processor time that a page that comes back takes, by those of whom it is known.
fn fault_cpu_secs(all: &[&Estimate]) -> f64 {
    let (mut cpus, mut rate) = (0.0, 0.0);
    for (estimate, own) in all.iter().filter_map(|e| Some(e).zip(e.progress.fault_cpus())) {
        let pages = amount(estimate.refaults_per_sec);
        cpus += own.min(MOST_FAULT_SECS * pages);
        rate += pages;
    }
    if rate > 0.0 { cpus / rate } else { 0.0 }
}

/// What a second of processor time that goes into faults costs all together, 0–1: nothing where nobody waits for a
/// processor, and where somebody does all of the time its part of the processors. Unknown is nothing. Who is held
/// back by its own cpu.max waits as well to the kernel, so where few do anything else this is too much.
#[expect(clippy::cast_precision_loss, reason = "there are few processors")]
pub(crate) fn price_of_cpu(host: &HostSample) -> f64 {
    let known = host.cpu_pressure.zip(host.cpus.filter(|n| *n > 0));
    known.map_or(0.0, |(some, cpus)| f64::from(some.avg10_pct) / 100.0 / cpus as f64)
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no exact numbers")]
fn amount(per_sec: u64) -> f64 {
    per_sec as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::{Running, Says};
    use crate::testing::{container, party};
    use ctlmgr_model::{Bytes, Millis};
    use proptest::prelude::*;

    /// One that works for a minute with all of its set, if what is usual for it is known, and then lacks a part of it.
    fn lacking(cpus: f64, is_known: bool) -> Progress {
        let minute = |from: Progress, cpus, says| {
            let running = Some(Running { cpus, delayed: Some(0.0) });
            (0..60).fold(from, |p: Progress, _| p.next(Millis(1000), running, Some(0.1), says))
        };
        let first = if is_known { Says::Usual } else { Says::Filling };
        minute(minute(Progress::default(), 0.15, first), cpus, Says::Lacking)
    }

    proptest! {
        #[test]
        fn who_does_not_show_what_its_faults_take_costs_as_much(
            cpus in 0.2f64..2.0, rate in 1u64..10_000, cpu in 0.0f64..1.0
        ) {
            let workload = container("w", 1, Bytes::mib(100), None);
            let one = |is_known| Estimate {
                progress: lacking(cpus, is_known),
                refaults_per_sec: rate,
                ..party(&workload, None, 100).estimate
            };
            let both = [one(true), one(false)];
            let fault_cpu_secs = fault_cpu_secs(&both.iter().collect::<Vec<_>>());
            let prices = Prices { cpu, fault_cpu_secs, ..Prices::default() };
            let [known, unknown] = both.map(|e| prices.burden(e.progress, rate));
            prop_assert!((known - unknown).abs() < 1e-9, "{known} {unknown}");
            let none = Prices { cpu, ..Prices::default() };
            prop_assert_eq!(none.burden(both[1].progress, rate), 0.0);
        }
    }
}
