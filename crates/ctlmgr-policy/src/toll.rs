//! Toll: how long a page that comes back from swap makes its workload wait.
//!
//! # Problem
//! Pressure (PSI) counts waiting for pages of the working set, and under MGLRU whatever comes back late is none
//! of it. A redis that had to read 325 pages a second waited for 0.4 % of its time by it, and a hog beside it with 192 for 6 %.
//! Waiting for the disk counts for all alike, but is only a part of what a fault takes, and zram has none. So whoever was robbed of most,
//! and longest ago, looked cold, and was robbed of more.
//!
//! # Approach
//! All swap through the same devices, so a fault takes as long for one as for another. What it takes is learned from those whose
//! faults the kernel counts, and what others waited follows from their faults.
//!
//! # Terms
//! *Faults*: pages that had to be read from swap; what was read ahead is none, as nobody waited for it. *Cost*: seconds waited by fault.
//!
//! # Algorithm
//! Seconds waited by all tasks together ([`crate::waiting`]), by each, and faults are summed, fading by half per [`HALF_LIFE`]. A look says nothing
//! in which more than [`FEW`] of what came back was page cache, which comes from elsewhere, or in which a limit (memory.high, memory.max) held it back.
//! The cost is the one that [`DEAR`] of all faults reach or exceed: the kernel counts too little rather than
//! too much, but one with few faults and long waits never says. Less than [`LEAST_FAULTS`] say nothing. What the
//! faults of a workload cost by this beyond what was counted its tasks waited, too; as much the less the longer nothing was said of it.
//!
//! # Properties
//! Never less than what is counted; where a fault costs all the same nothing is added; nobody's waits
//! exceed its time; of two of one task each, with as many faults, one whose waiting is not counted at all waits as long as the other; who has less than
//! [`DEAR`] of the faults does not make them dearer than others do; no look that says nothing changes what a fault costs, and what was not counted is
//! forgotten after some that say nothing.

use ctlmgr_model::{MemorySample, Millis};
use serde::{Deserialize, Serialize};

use crate::waiting::Waiting;

/// How fast what was seen is forgotten.
const HALF_LIFE: Millis = Millis(10_000);
/// Part of what came back that may be page cache.
const FEW: f64 = 0.1;
/// Part of all faults that cost as much as one is taken to cost, or more.
const DEAR: f64 = 0.25;
/// Faults, faded, that say what one costs.
const LEAST_FAULTS: f64 = 100.0;

/// What was seen of one workload's faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Toll {
    last: Option<Counters>,
    /// Seconds, whether looks in them said something or not; faded, as are the others.
    passed_secs: f64,
    /// Seconds that all tasks together waited, and that each did.
    all_secs: f64,
    each_secs: f64,
    faults: f64,
}

/// Counted since the cgroup was made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Counters {
    major_faults: u64,
    refault_anon: u64,
    refault_file: u64,
    /// Times that its memory.high or memory.max held it back.
    held_back: u64,
}

impl Counters {
    fn of(memory: &MemorySample) -> Option<Counters> {
        Some(Counters {
            major_faults: memory.major_faults?,
            refault_anon: memory.refault_anon,
            refault_file: memory.refault_file,
            held_back: memory.events.high.saturating_add(memory.events.max),
        })
    }

    /// Faults on swap since `before`; `None` if they do not say what one costs.
    #[expect(clippy::cast_precision_loss, reason = "a count of faults need not be exact")]
    fn since(self, before: Counters) -> Option<f64> {
        let anon = self.refault_anon.saturating_sub(before.refault_anon);
        let file = self.refault_file.saturating_sub(before.refault_file);
        // What is read for the first time was never taken.
        let faults = self.major_faults.saturating_sub(before.major_faults).min(anon);
        let is_of_swap = file as f64 <= FEW * (anon + file) as f64;
        (is_of_swap && self.held_back == before.held_back).then_some(faults as f64)
    }
}

impl Toll {
    /// After `passed`, in which its tasks waited for memory like that.
    pub(crate) fn next(
        self,
        passed: Millis,
        memory: &MemorySample,
        waited: Option<Waiting>,
    ) -> Toll {
        let last = Counters::of(memory);
        let faults = self.last.zip(last).and_then(|(before, now)| now.since(before));
        let keep = (-secs(passed) / secs(HALF_LIFE)).exp2();
        let (faults, waited) = faults.zip(waited).unwrap_or_default();
        Toll {
            last,
            passed_secs: self.passed_secs * keep + secs(passed),
            all_secs: self.all_secs * keep + waited.all * secs(passed),
            each_secs: self.each_secs * keep + waited.each * secs(passed),
            faults: self.faults * keep + faults,
        }
    }

    fn cost(self) -> f64 {
        self.all_secs / self.faults
    }

    /// Seconds that a fault costs, by what all have seen; `None` if too few were.
    pub(crate) fn cost_of_fault(all: impl Iterator<Item = Toll>) -> Option<f64> {
        let mut all: Vec<Toll> = all.filter(|t| t.faults > 0.0).collect();
        let faults: f64 = all.iter().map(|t| t.faults).sum();
        if faults < LEAST_FAULTS {
            return None;
        }
        all.sort_by(|a, b| b.cost().total_cmp(&a.cost()));
        let mut dearer = 0.0;
        let reaches = |toll: &&Toll| {
            dearer += toll.faults;
            dearer >= faults * DEAR
        };
        all.iter().find(reaches).map(|toll| toll.cost())
    }

    /// The part of its time, 0–1, that each of its tasks waited of late and nobody counted, where a fault costs so
    /// many seconds.
    pub(crate) fn uncounted(self, cost_of_fault: f64) -> f64 {
        if self.passed_secs <= 0.0 {
            return 0.0;
        }
        let all = (self.faults * cost_of_fault - self.all_secs).max(0.0) / self.passed_secs;
        let tasks = if self.each_secs > 0.0 { self.all_secs / self.each_secs } else { 1.0 };
        (all / tasks.max(1.0)).min(1.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds between readings are few")]
fn secs(span: Millis) -> f64 {
    span.0 as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One that faults so often in each second, and waits like that by what is counted.
    fn seen(faults: u64, all: f64) -> Toll {
        looks(faults, all, |_, _| {})
    }

    fn looks(faults: u64, all: f64, change: impl Fn(u64, &mut MemorySample)) -> Toll {
        let waited = Waiting { each: all.min(1.0), all };
        (0..60).fold(Toll::default(), |toll, second| {
            let mut memory = MemorySample {
                major_faults: Some(second * faults),
                refault_anon: second * faults,
                ..MemorySample::default()
            };
            change(second, &mut memory);
            toll.next(Millis(1000), &memory, Some(waited))
        })
    }

    /// As it was seen of two redis and two hogs: what the kernel counted, by the faults of each.
    #[test]
    fn whose_faults_are_not_counted_waited_for_them() {
        let all = [seen(325, 0.042), seen(192, 0.058), seen(203, 0.052), seen(214, 0.037)];
        let cost = Toll::cost_of_fault(all.into_iter()).unwrap();
        assert!(cost > 240e-6 && cost < 280e-6, "{cost}");
        let waits = |toll: Toll, counted: f64| counted + toll.uncounted(cost);
        assert!((waits(all[0], 0.042) - 325.0 * cost).abs() < 0.002);
        assert_eq!(all[1].uncounted(cost), 0.0);
    }

    #[test]
    fn few_faults_say_nothing() {
        assert_eq!(Toll::cost_of_fault([seen(2, 0.1)].into_iter()), None);
        assert_eq!(Toll::cost_of_fault(std::iter::empty()), None);
        assert_eq!(Toll::default().uncounted(1.0), 0.0);
    }

    #[test]
    fn looks_that_say_nothing_change_no_cost() {
        let cost = |toll| Toll::cost_of_fault([toll, seen(100, 0.03)].into_iter()).unwrap();
        let usual = cost(Toll::default());
        let throttled = looks(100, 0.9, |second, m| m.events.high = second);
        let at_its_limit = looks(100, 0.9, |second, m| m.events.max = second);
        let of_files = looks(100, 0.9, |second, m| m.refault_file = second * 50);
        let not_counted = looks(100, 0.9, |_, m| m.major_faults = None);
        for toll in [throttled, at_its_limit, of_files, not_counted] {
            assert!((cost(toll) - usual).abs() < 1e-12);
            assert_eq!(toll.uncounted(1.0), 0.0);
        }
        // Nor is what is read ahead, or for the first time, a fault on swap.
        let ahead = looks(100, 0.03, |second, m| m.refault_anon = second * 800);
        let first = looks(100, 0.03, |second, m| m.major_faults = Some(second * 800));
        assert!((cost(ahead) - usual).abs() < 1e-12 && (cost(first) - usual).abs() < 1e-12);
    }

    #[test]
    fn what_was_not_counted_is_forgotten_where_nothing_is_said_any_more() {
        let mut toll = seen(300, 0.004);
        let before = toll.uncounted(300e-6);
        assert!(before > 0.08, "{before}");
        let mut memory = MemorySample {
            major_faults: Some(59 * 300),
            refault_anon: 59 * 300,
            ..MemorySample::default()
        };
        for second in 1..=60 {
            memory.events.high = second;
            toll = toll.next(Millis(1000), &memory, Some(Waiting { each: 0.5, all: 0.5 }));
        }
        assert!(toll.uncounted(300e-6) < before / 30.0);
    }

    #[test]
    fn one_with_few_faults_and_long_waits_never_says() {
        let (scan, usual) = (seen(5, 0.3), seen(100, 0.025));
        let cost = Toll::cost_of_fault([scan, usual].into_iter()).unwrap();
        assert!((cost - 250e-6).abs() < 1e-9, "{cost}");
    }

    #[test]
    fn what_several_tasks_wait_is_divided_among_them() {
        let waited = Waiting { each: 0.1, all: 0.4 };
        let toll = (0..60).fold(Toll::default(), |toll, second| {
            let memory = MemorySample {
                major_faults: Some(second * 1000),
                refault_anon: second * 1000,
                ..MemorySample::default()
            };
            toll.next(Millis(1000), &memory, Some(waited))
        });
        // 1000 faults of 800 µs are 0.8 s in a second, 0.4 of which were counted.
        assert!((toll.uncounted(800e-6) - 0.1).abs() < 0.005);
    }

    proptest! {
        #[test]
        fn where_a_fault_costs_all_the_same_nothing_is_added(
            cost in 1e-5f64..1e-2, faults in proptest::collection::vec(10u64..1000, 1..6)
        ) {
            #[expect(clippy::cast_precision_loss, reason = "few faults")]
            let all: Vec<Toll> = faults.iter().map(|n| seen(*n, cost * *n as f64)).collect();
            if let Some(found) = Toll::cost_of_fault(all.iter().copied()) {
                // The first look has nothing to compare itself with.
                prop_assert!((found / cost - 1.0).abs() < 1e-9, "{found} {cost}");
                for toll in all {
                    prop_assert!(toll.uncounted(found) < 1e-9);
                }
            }
        }

        #[test]
        fn it_is_a_part_of_the_time_and_between_the_least_and_the_most_that_was_seen(
            all in proptest::collection::vec((1u64..2000, 0.0f64..8.0), 1..6)
        ) {
            let tolls: Vec<Toll> = all.iter().map(|(faults, all)| seen(*faults, *all)).collect();
            let Some(cost) = Toll::cost_of_fault(tolls.iter().copied()) else { return Ok(()) };
            let (least, most) = tolls.iter().fold((f64::MAX, 0.0f64), |(low, high), t| (low.min(t.cost()), high.max(t.cost())));
            prop_assert!(cost >= least * 0.999 && cost <= most * 1.001);
            for toll in &tolls {
                prop_assert!((0.0..=1.0).contains(&toll.uncounted(cost)));
            }
        }

        #[test]
        fn who_is_not_counted_waits_as_long_as_one_with_as_many_faults(
            faults in 20u64..2000, part in 0.01f64..0.9
        ) {
            let (counted, not) = (seen(faults, part), seen(faults, 0.0));
            let cost = Toll::cost_of_fault([counted, not].into_iter()).unwrap();
            // Of the first look nothing is known but that it passed.
            prop_assert!((not.uncounted(cost) / part - 1.0).abs() < 0.02);
            prop_assert!(counted.uncounted(cost) < 1e-9);
        }
    }
}
