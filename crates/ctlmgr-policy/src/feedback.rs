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
//! With ū the mean of u, weighted by demand, over the managed workloads whose stall is known: while
//! memory is contended and ū is above noise, log₂ c moves by (u − ū)/max(u, ū) per
//! [`DOUBLING_SECS`], within ±[`MOST`]; otherwise it decays to 0 by half per [`DECAY_HALF_LIFE`].
//!
//! # Properties
//! Equal pain moves nothing; who stalls more than another never gets the lower lift from it; an
//! unknown stall moves nothing of that workload; lifts stay in bounds; without contention they
//! return to 1. Floors and hard limits bind whatever the lift, because it changes only the basis.

use ctlmgr_model::{CgroupId, Controller, Millis, VerdictKind};

use crate::verdict::Party;

/// The basis of one whose pain is far above the mean doubles in this time, in seconds.
const DOUBLING_SECS: f64 = 40.0;
/// Largest lift, as a power of two.
const MOST: f64 = 2.0;
/// Below this mean stall, in permille, nobody suffers enough to move anything.
const NOISE_PERMILLE: f64 = 10.0;
/// How fast lifts are forgotten without contention.
const DECAY_HALF_LIFE: Millis = Millis(60_000);

/// New lifts (log₂) of all managed workloads.
pub(crate) fn lifts(
    controller: Controller,
    is_contended: bool,
    passed: Millis,
    parties: &[Party<'_>],
) -> Vec<(CgroupId, f64)> {
    let workloads = || {
        let is_one = |p: &&Party<'_>| p.kind == VerdictKind::Workload && p.entitlement.managed;
        parties.iter().filter(is_one)
    };
    let mean = mean_pain(workloads());
    let next = |party: &Party<'_>| match (controller, pain(party)) {
        (Controller::Shares, _) => 0.0,
        (_, Some(own)) if is_contended && mean > NOISE_PERMILLE => {
            let error = (own - mean) / own.max(mean);
            (party.estimate.lift + error * secs(passed) / DOUBLING_SECS).clamp(-MOST, MOST)
        }
        _ if is_contended => party.estimate.lift,
        _ => party.estimate.lift * (-secs(passed) / secs(DECAY_HALF_LIFE)).exp2(),
    };
    workloads().map(|party| (party.group.id, next(party))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "seconds between readings are few")]
fn secs(span: Millis) -> f64 {
    span.0 as f64 / 1000.0
}

/// Weighted stall in permille, if it is known.
fn pain(party: &Party<'_>) -> Option<f64> {
    let stall = f64::from(party.estimate.stall.permille?);
    Some(stall * f64::from(party.entitlement.weight.get()) / 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "a mean needs no exact bytes")]
fn mean_pain<'a>(workloads: impl Iterator<Item = &'a Party<'a>>) -> f64 {
    let (mut sum, mut size) = (0.0, 0.0);
    for party in workloads {
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

    /// Lifts after one second of contention, by order of the workloads.
    fn after(workloads: &[(Workload, Option<u16>, u16)], passed: Millis) -> Vec<f64> {
        let parties: Vec<_> =
            workloads.iter().map(|(w, stall, weight)| party(w, *stall, *weight)).collect();
        lifts(Controller::Both, true, passed, &parties).into_iter().map(|(_, lift)| lift).collect()
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
    fn without_contention_lifts_are_forgotten() {
        let workload = sized(100, 1);
        let mut lifted = party(&workload, Some(0), 100);
        lifted.estimate.lift = 2.0;
        let later = lifts(Controller::Both, false, DECAY_HALF_LIFE, &[lifted]);
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
