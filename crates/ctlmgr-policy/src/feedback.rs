//! Feedback: shares corrected by what the workloads feel.
//!
//! # Problem
//! Equal bytes are no equal pain. A cold set hardly misses what a hot one of the same size dies
//! without, so shares by weight and size alone take from the hot one too much (design §5; measured
//! in the facts, §3.2b).
//!
//! # Approach
//! What the owner feels is time: the part of it in which the workload's tasks waited for memory,
//! its own PSI `some`. Weighted by weight, that should be the same for all: equal weights end in
//! equal slowdown, a weight of 4 in a quarter of it. Protection moves slowly from those who stall
//! less than their weight allows to those who stall more.
//!
//! # Terms
//! *Stall* s: part of time stalled, 0–1, smoothed. *Pain* u = s · weight / 100. *Lift* c: what the
//! size basis is multiplied with; 1 at rest.
//!
//! # Algorithm
//! With ū the mean of u, weighted by demand, over the managed workloads whose stall is known and
//! who do not use more than they were promised: while memory is contended and ū is above noise,
//! log₂ c moves by (u − ū)/max(u, ū) per [`DOUBLING_SECS`], within ±[`MOST`]. It decays to 0 by
//! half per [`DECAY_HALF_LIFE`] without contention; for an unknown stall; for whoever uses more
//! than was promised, which gives no claim to relief; and instead of sinking for whoever has all
//! it needs, because a promise not needed now must count in full when it is needed. Who is
//! throttled keeps its lift: that stall is our doing.
//!
//! # Properties
//! Equal pain moves nothing; of two who give way by weight, who stalls more never gets the lower
//! lift from it; lifts stay in bounds; without contention they return to 1. Floors and hard limits
//! bind whatever the lift, because it changes only the basis.

use ctlmgr_model::{Bound, Bytes, CgroupId, Controller, Millis, Percent, VerdictKind};

use crate::verdict::Party;

/// The basis of one whose pain is far above the mean doubles in this time, in seconds.
const DOUBLING_SECS: f64 = 40.0;
/// Largest lift, as a power of two.
const MOST: f64 = 2.0;
/// Below this mean stall, in permille, nobody suffers enough to move anything.
const NOISE_PERMILLE: f64 = 10.0;
/// How fast lifts are forgotten without contention.
const DECAY_HALF_LIFE: Millis = Millis(60_000);

/// A reading that took longer says nothing about the whole time.
const LONGEST: Millis = Millis(10_000);
/// Use above the promise by more than this is more than was promised.
const MARGIN: Percent = Percent(5);

/// A party, what bounds its share, and whether it is throttled.
#[derive(Clone, Copy)]
pub(crate) struct Feeling<'a, 'b> {
    pub party: &'b Party<'a>,
    pub bound: Bound,
    pub is_throttled: bool,
}

/// New lifts (log₂) of all managed workloads.
pub(crate) fn lifts(
    controller: Controller,
    is_contended: bool,
    passed: Millis,
    all: &[Feeling<'_, '_>],
) -> Vec<(CgroupId, f64)> {
    let is_one =
        |f: &&Feeling<'_, '_>| f.party.kind == VerdictKind::Workload && f.party.entitlement.managed;
    let workloads = || all.iter().filter(is_one).copied();
    let mean = mean_pain(workloads().map(|f| f.party));
    let next = |f: Feeling<'_, '_>| {
        let lift = f.party.estimate.lift;
        let decayed = lift * (-secs(passed) / secs(DECAY_HALF_LIFE)).exp2();
        match pain(f.party) {
            _ if controller == Controller::Shares => 0.0,
            Some(_) if is_contended && f.is_throttled => lift,
            Some(own) if is_contended && mean > NOISE_PERMILLE && !is_over(f.party) => {
                if own < mean && f.bound != Bound::Weight {
                    return decayed;
                }
                let error = (own - mean) / own.max(mean);
                let moved = lift + error * secs(passed.min(LONGEST)) / DOUBLING_SECS;
                moved.clamp(-MOST, MOST)
            }
            Some(_) if is_contended && !is_over(f.party) => lift,
            _ => decayed,
        }
    };
    workloads().map(|f| (f.party.group.id, next(f))).collect()
}

/// Who uses more than was promised has no claim to relief from that.
fn is_over(party: &Party<'_>) -> bool {
    let over = |promise: Bytes| party.estimate.demand > promise + promise.scaled(MARGIN);
    party.entitlement.promise.is_some_and(over)
}

#[expect(clippy::cast_precision_loss, reason = "seconds between readings are few")]
fn secs(span: Millis) -> f64 {
    span.0 as f64 / 1000.0
}

/// Weighted stall in permille, if it is known.
fn pain(party: &Party<'_>) -> Option<f64> {
    let stall = f64::from(party.estimate.stall.ppm?) / 1000.0;
    Some(stall * f64::from(party.entitlement.weight.get()) / 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "a mean needs no exact bytes")]
fn mean_pain<'a, 'b: 'a>(workloads: impl Iterator<Item = &'a Party<'b>>) -> f64 {
    let (mut sum, mut size) = (0.0, 0.0);
    for party in workloads.filter(|p| !is_over(p)) {
        if let Some(own) = pain(party) {
            let demand = party.estimate.demand.0.max(1) as f64;
            sum += own * demand;
            size += demand;
        }
    }
    if size > 0.0 { sum / size } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, party};
    use ctlmgr_model::{Bytes, Workload};
    use proptest::prelude::*;

    fn by_weight<'a, 'b>(party: &'b Party<'a>) -> Feeling<'a, 'b> {
        Feeling { party, bound: Bound::Weight, is_throttled: false }
    }

    /// Lifts after one second of contention, by order of the workloads.
    fn after(workloads: &[(Workload, Option<u16>, u16)], passed: Millis) -> Vec<f64> {
        let parties: Vec<_> =
            workloads.iter().map(|(w, stall, weight)| party(w, *stall, *weight)).collect();
        let all: Vec<_> = parties.iter().map(by_weight).collect();
        lifts(Controller::Both, true, passed, &all).into_iter().map(|(_, lift)| lift).collect()
    }

    fn sized(mib: u64, id: u64) -> Workload {
        container("w", id, Bytes::mib(mib), None)
    }

    #[test]
    fn equal_pain_moves_nothing() {
        let both = [(sized(100, 1), Some(200), 100), (sized(500, 2), Some(50), 400)];
        assert!(after(&both, Millis(1000)).iter().all(|l| l.abs() < 1e-9));
    }

    #[test]
    fn unknown_and_quiet_stay() {
        let one = [(sized(100, 1), None, 100), (sized(500, 2), Some(500), 100)];
        assert_eq!(after(&one, Millis(1000))[0], 0.0);
        let quiet = [(sized(100, 1), Some(0), 100), (sized(500, 2), Some(8), 100)];
        assert_eq!(after(&quiet, Millis(1000)), [0.0, 0.0]);
    }

    #[test]
    fn who_has_all_it_needs_does_not_sink_and_who_takes_too_much_does_not_rise() {
        let (idle, busy) =
            (sized(100, 1), container("b", 2, Bytes::mib(900), Some(Bytes::mib(400))));
        let (idle, busy) = (party(&idle, Some(0), 100), party(&busy, Some(800), 100));
        let (third, fourth) = (sized(100, 3), sized(100, 4));
        let (third, fourth) = (party(&third, Some(300), 100), party(&fourth, Some(100), 100));
        let all = [
            Feeling { bound: Bound::Demand, ..by_weight(&idle) },
            by_weight(&busy),
            by_weight(&third),
            by_weight(&fourth),
        ];
        let lifts = lifts(Controller::Both, true, Millis(5000), &all);
        assert_eq!((lifts[0].1, lifts[1].1), (0.0, 0.0));
        assert!(lifts[2].1 > 0.0 && lifts[3].1 < 0.0);
    }

    #[test]
    fn without_contention_lifts_are_forgotten() {
        let workload = sized(100, 1);
        let mut lifted = party(&workload, Some(0), 100);
        lifted.estimate.lift = 2.0;
        let later = lifts(Controller::Both, false, DECAY_HALF_LIFE, &[by_weight(&lifted)]);
        assert!((later[0].1 - 1.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn who_suffers_more_is_lifted_more(
            list in proptest::collection::vec((1u64..900, proptest::option::of(0u16..1000), 1u16..2000), 1..8),
            ms in 0u64..100_000
        ) {
            let workloads: Vec<_> = list.iter().enumerate()
                .map(|(i, (size, stall, weight))| (sized(*size, i as u64 + 1), *stall, *weight)).collect();
            let lifts = after(&workloads, Millis(ms));
            for (i, (_, stall, weight)) in list.iter().enumerate() {
                prop_assert!(lifts[i].abs() <= MOST);
                for (j, (_, other, other_weight)) in list.iter().enumerate() {
                    if let (Some(a), Some(b)) = (stall, other) {
                        let (a, b) = (u32::from(*a) * u32::from(*weight), u32::from(*b) * u32::from(*other_weight));
                        prop_assert!(a < b || lifts[i] >= lifts[j] - 1e-9, "{lifts:?}");
                    }
                }
            }
        }
    }
}
