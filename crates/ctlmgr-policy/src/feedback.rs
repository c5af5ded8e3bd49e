//! Feedback: shares corrected by what the workloads feel.
//!
//! # Problem
//! Equal bytes are no equal pain. A cold set hardly misses what a hot one of the same size dies
//! without, so shares by weight and size alone take from the hot one too much (measured:
//! benches/results/memory-under-pressure.md, "Heat: one hot, one cold").
//!
//! # Approach
//! What the owner feels is time: the part of it in which the workload's tasks waited for memory. Where
//! processors are short others feel it too, because faults take theirs; that counts with it.
//! [`crate::heat`] says how that depends on what is missing. Shares by weight and size say how much
//! each *may* miss; of that the hot get less and the cold more, so that, as far as they differ beyond doubt, it hurts
//! all as much as their weights and promises say. No memory of earlier corrections is needed, so the same
//! situation has the same result.
//!
//! # Terms
//! *Missing* m: the part of its need that a workload does not keep; m₀ is that by weight and size
//! alone. *Heat* h: pain per part missing, as a multiple of that of all. What the faults of workloads cost others counts in it as if
//! those that give way together had sets of one size, and cost as much in all. *Lift*: a corrected share, divided by what it was.
//!
//! # Algorithm
//! What is within a factor of [`ALIKE`] of 1 is doubtful and counts as 1, and of what is beyond only the rest counts.
//! For those that give way by weight: m = min(U · m₀ / h, most), with h within
//! 1/[`MOST`]–[`MOST`] and the level U such that together they miss as much as before. *most* leaves the
//! floor, and [`LEAST`] of the share; of who is little known ([`Heat::known`]) little more than m₀. Who uses
//! more than was promised, or without a promise more than it did of late, does not get below m₀: it has
//! no claim to relief from that, nor has a unit that nobody asked to manage: cold, it gives like others. U is found by bisection, because the sum does not fall as U rises.
//! What one full slice has not is shared by those below it alone, who have nothing from those elsewhere.
//! Everybody else keeps its share: who has all it needs does not lose it because others suffer. Where
//! floors do not fit nobody with a floor is left to give, and nothing is corrected.
//!
//! # Properties
//! Equal heat moves nothing, nor does heat that is doubtful in all, nor do faults that cost others as much by the byte; what is given and taken adds up to nothing; of two alike the hotter
//! one never misses more; nobody falls below its floor or [`LEAST`] of its share, or gets more than
//! it needs; who uses more than its due, and a unit, gains nothing; who is not known loses nothing; nobody who does not
//! give way by weight is moved.

use std::collections::BTreeMap;

use ctlmgr_model::{Bound, Bytes, Controller, Percent, VerdictKind};

use crate::demand::basis;
use crate::heat::Heat;
use crate::nested::Nested;
use crate::share::{Claim, Share};
use crate::verdict::Party;

/// Heat counts for no more than this much above or below that of all.
const MOST: f64 = 8.0;
/// Of two that touch their sets alike the one that is slowed down touches less, and looks colder for it; and whoever has more of
/// the processors looks hotter. Two such were seen up to twice apart, each so far from the middle.
const ALIKE: f64 = 1.4;
/// Nobody keeps less than this part of its share for being cold.
const LEAST: f64 = 0.25;
/// Use above the promise by more than this is more than was promised.
const MARGIN: Percent = Percent(5);
/// Halvings of the interval in which the level lies: more than a double can tell apart.
const HALVINGS: u32 = 60;

/// A workload or unit among those that share what is missing.
struct Sufferer {
    index: usize,
    need: f64,
    share: f64,
    /// Missing by weight and size, over heat.
    scaled: f64,
    /// Missing at least and at most.
    least: f64,
    most: f64,
}

impl Sufferer {
    fn missing(&self, level: f64) -> f64 {
        (level * self.scaled).min(self.most).max(self.least)
    }
}

/// What each share is to be multiplied with.
pub(crate) fn lifts(
    controller: Controller,
    parties: &[Party<'_>],
    claims: &[Claim],
    division: &Nested,
) -> Vec<f64> {
    let mut lifts = vec![1.0; parties.len()];
    let Nested { shares, held_by, .. } = division;
    let mut pools: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for i in (0..parties.len()).filter(|i| gives_way(&parties[*i], &shares[*i])) {
        pools.entry(held_by[i]).or_default().push(i);
    }
    for may_move in pools.values() {
        lift_pool(controller, (parties, claims, shares), may_move, &mut lifts);
    }
    lifts
}

/// Of those who share what one slice, or the host, has not.
fn lift_pool(
    controller: Controller,
    (parties, claims, shares): (&[Party<'_>], &[Claim], &[Share]),
    may_move: &[usize],
    lifts: &mut [f64],
) {
    // What units feel is no reason to take from anybody, and idle ones say nothing of how workloads differ.
    let is_one = |i: &&usize| parties[**i].kind == VerdictKind::Workload;
    let seen = |i: &usize| (parties[*i].estimate.heat, amount(claims[*i].demand));
    let workloads = || may_move.iter().filter(is_one).map(seen);
    let of_all = Heat::of_all(workloads().map(|(heat, _)| heat));
    let Some(of_all) = of_all.filter(|_| controller != Controller::Shares) else { return };
    // What one more byte of a set saves others is what a byte less of another costs them. What units suffer by the byte
    // is weighed where they are protected (`units.rs`).
    let usual = Heat::usual_set(workloads());
    let felt = |i: &usize| match (seen(i), is_one(&i)) {
        ((heat, set), true) => heat.with_burden(usual / set),
        ((heat, _), false) => heat,
    };
    let sufferer = |i: &usize| {
        let own = felt(i);
        let weight = match controller {
            Controller::Stall => f64::from(parties[*i].entitlement.weight.get()) / 100.0,
            Controller::Shares | Controller::Both => 1.0,
        };
        let heat = (beyond_doubt(own.relative(of_all)) * weight).clamp(1.0 / MOST, MOST);
        let (need, share) = (amount(claims[*i].demand), amount(shares[*i].share_bytes));
        let missing = 1.0 - share / need;
        let kept = amount(claims[*i].floor).max(share * LEAST).min(share);
        // Little known, little taken.
        let most = missing + (1.0 - kept / need - missing) * own.known();
        let is_owed = parties[*i].kind == VerdictKind::Workload && !is_over(&parties[*i]);
        let least = if is_owed { 0.0 } else { missing };
        Sufferer { index: *i, need, share, scaled: missing / heat, least, most }
    };
    let sufferers: Vec<_> = may_move.iter().map(sufferer).collect();
    let level = level(&sufferers);
    for s in sufferers {
        lifts[s.index] = s.need * (1.0 - s.missing(level)) / s.share;
    }
}

/// As far as this multiple is beyond what those differ by that are alike.
fn beyond_doubt(multiple: f64) -> f64 {
    multiple / multiple.clamp(1.0 / ALIKE, ALIKE)
}

/// The level at which as much is missing as before.
fn level(sufferers: &[Sufferer]) -> f64 {
    let wanted: f64 = sufferers.iter().map(|s| s.need - s.share).sum();
    let (mut low, mut high) = (1.0 / MOST, MOST);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        let missing: f64 = sufferers.iter().map(|s| s.need * s.missing(middle)).sum();
        if missing < wanted { low = middle } else { high = middle }
    }
    low
}

fn gives_way(party: &Party<'_>, share: &Share) -> bool {
    let is_some = share.share_bytes > Bytes::ZERO;
    party.entitlement.managed && is_some && share.bound == Bound::Weight
}

/// Who uses more than was promised, or of late without a promise, has no claim to relief from that.
fn is_over(party: &Party<'_>) -> bool {
    let due = basis(party.entitlement.promise, &party.estimate);
    party.estimate.demand > due + due.scaled(MARGIN)
}

#[expect(clippy::cast_precision_loss, reason = "parts of amounts need no exact bytes")]
pub(crate) fn amount(bytes: Bytes) -> f64 {
    bytes.0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nested::{Place, divide_nested};
    use crate::testing::{container, party};
    use ctlmgr_model::{CgroupPath, Millis, SliceAccount, Weight, Workload};
    use proptest::prelude::*;

    /// A promise, a need, a floor, a weight, and a heat if it is known.
    #[derive(Debug, Clone, Copy)]
    struct One {
        promise: u64,
        need: u64,
        floor: u64,
        weight: u16,
        heat: Option<f64>,
        is_unit: bool,
        slice: &'static str,
        /// What its faults cost others while half of it was missing, as part of their time.
        burden: f64,
    }

    const PLAIN: One = One {
        promise: 400,
        need: 400,
        floor: 0,
        weight: 100,
        heat: None,
        is_unit: false,
        slice: "a.slice",
        burden: 0.0,
    };

    fn hot(heat: f64) -> One {
        One { heat: Some(heat), ..PLAIN }
    }

    fn seen(one: &One) -> Heat {
        let stalled = one.heat.map(|h| h * 0.5 / (1.0 + h * 0.5));
        (0..600).fold(Heat::default(), |h, _| h.next(Millis(1000), 0.5, stalled, one.burden))
    }

    /// Shares before and after, in bytes.
    fn corrected(capacity: Bytes, list: &[One]) -> Vec<(Bytes, Bytes)> {
        corrected_below(capacity, list, &[])
    }

    /// The same where slices hold no more than so much.
    fn corrected_below(
        capacity: Bytes,
        list: &[One],
        slices: &[SliceAccount],
    ) -> Vec<(Bytes, Bytes)> {
        let workloads: Vec<Workload> = (1u64..)
            .zip(list)
            .map(|(id, one)| {
                let promise = Some(Bytes::mib(one.promise));
                let mut workload = container("w", id, Bytes::mib(one.need), promise);
                workload.group.path = CgroupPath::new(one.slice).child(&id.to_string());
                workload
            })
            .collect();
        let parties: Vec<_> = workloads
            .iter()
            .zip(list)
            .map(|(w, one)| {
                let mut party = party(w, None, one.weight);
                party.estimate.heat = seen(one);
                if one.is_unit {
                    party.kind = VerdictKind::Bystander;
                }
                party
            })
            .collect();
        let claim = |(i, one): (usize, &One)| Claim {
            name: format!("{i:04}"),
            weight: Weight::new(i64::from(one.weight)).unwrap(),
            basis: Bytes::mib(one.promise),
            demand: Bytes::mib(one.need),
            floor: Bytes::mib(one.floor.min(one.need)),
            max: None,
        };
        let claims: Vec<_> = list.iter().enumerate().map(claim).collect();
        let places: Vec<Place<'_>> =
            parties.iter().map(|p| Place { path: &p.group.path, unmanaged_stuck: None }).collect();
        let division = divide_nested(capacity, &claims, &places, slices).unwrap();
        let lifts = lifts(Controller::Both, &parties, &claims, &division);
        let shares = division.shares;
        let after = |(share, lift): (&Share, f64)| {
            (share.share_bytes, crate::demand::lifted(share.share_bytes, lift))
        };
        shares.iter().zip(lifts).map(after).collect()
    }

    fn mib(list: &[(Bytes, Bytes)]) -> Vec<u64> {
        list.iter().map(|(_, after)| (after.0 + (1 << 19)) >> 20).collect()
    }

    #[test]
    fn what_is_missing_goes_by_heat() {
        // 200 are missing. Heats are 8.3 apart by what is known of them, and 4.2 without what is doubtful.
        assert_eq!(mib(&corrected(Bytes::mib(600), &[hot(1.0), hot(9.0)])), [238, 362]);
        assert_eq!(mib(&corrected(Bytes::mib(600), &[hot(1.0), hot(1.9)])), [300, 300]);
        // However far apart they are, the cold one keeps something.
        let far = mib(&corrected(Bytes::mib(600), &[hot(0.5), hot(50.0)]));
        assert!(far[0] > 200 && far[1] < 400 && far[0] + far[1] == 600, "{far:?}");
    }

    #[test]
    fn a_larger_set_gains_nothing_by_costing_others_more_for_its_size() {
        let of = |need: u64, burden| One { promise: need, need, burden, ..hot(0.02) };
        let alike = mib(&corrected(Bytes::mib(900), &[of(200, 0.05), of(1000, 0.25)]));
        assert_eq!(alike, [150, 750]);
        let dear = mib(&corrected(Bytes::mib(900), &[of(200, 0.1), of(1000, 0.15)]));
        assert_eq!(dear, [165, 735]);
    }

    /// Whoever gives way in one slice has nothing from those in another.
    #[test]
    fn slices_that_are_full_exchange_nothing() {
        let slice = |path: &str| {
            let (path, capacity) = (CgroupPath::new(path), Bytes::mib(500));
            SliceAccount { path, most: capacity, capacity, demand: Bytes::mib(800) }
        };
        let heavy = One { weight: 300, ..hot(2.0) };
        let (a, b) = ([heavy, hot(2.0)], hot(0.1));
        let others = [One { slice: "b.slice", ..b }, One { slice: "b.slice", ..b }];
        let roomy = Bytes::mib(4000);
        let alone = mib(&corrected_below(roomy, &a, &[slice("a.slice")]));
        let list = [&a[..], &others[..]].concat();
        let both = mib(&corrected_below(roomy, &list, &[slice("a.slice"), slice("b.slice")]));
        assert_eq!(both[..2], alone[..]);
        assert_eq!(both[2..], [250, 250]);
    }

    #[test]
    fn equal_or_unknown_heat_moves_nothing() {
        assert_eq!(mib(&corrected(Bytes::mib(600), &[hot(3.0), hot(3.0)])), [300, 300]);
        assert_eq!(mib(&corrected(Bytes::mib(600), &[hot(3.0), PLAIN])), [300, 300]);
        assert_eq!(mib(&corrected(Bytes::mib(600), &[PLAIN, PLAIN])), [300, 300]);
    }

    #[test]
    fn who_has_all_it_needs_is_not_moved_and_who_takes_too_much_gains_nothing() {
        let small = One { need: 100, ..hot(0.1) };
        let over = One { promise: 200, need: 600, ..hot(9.0) };
        let list = [small, over, hot(1.0), hot(2.0)];
        let all = corrected(Bytes::mib(900), &list);
        assert_eq!(all[0].0, all[0].1);
        assert!(all[1].1 <= all[1].0 + Bytes(16));
        assert!(all[2].1 < all[2].0 && all[3].1 > all[3].0, "{all:?}");
        // Nor is it spared for that: cold, it gives like others.
        let cold =
            corrected(Bytes::mib(900), &[One { heat: Some(0.3), ..over }, hot(2.0), hot(2.0)]);
        assert!(cold[0].1 < cold[0].0, "{cold:?}");
    }

    /// A hog that grew suddenly, waits for what it lacks, and was promised nothing.
    #[test]
    fn a_sudden_hog_gains_nothing_by_waiting() {
        let workload = container("hog", 1, Bytes::mib(1000), None);
        let mut hog = party(&workload, None, 100);
        hog.estimate.basis = Bytes::mib(100);
        assert!(is_over(&hog));
        hog.estimate.basis = Bytes::mib(1000);
        assert!(!is_over(&hog), "it used that all the time");
    }

    #[test]
    fn a_cold_unit_gives_and_a_hot_one_gains_nothing() {
        let unit = |heat| One { is_unit: true, ..hot(heat) };
        let cold = mib(&corrected(Bytes::mib(900), &[unit(0.2), hot(2.0), hot(2.0)]));
        assert!(cold[0] < 250 && cold[1] > 320, "{cold:?}");
        let hot_one = mib(&corrected(Bytes::mib(900), &[unit(5.0), hot(1.0), hot(1.0)]));
        assert_eq!(hot_one, [300, 300, 300]);
        // What it feels is no reason to move anything between those that do not suffer.
        let noise = [unit(5.0), hot(0.001), hot(0.006)];
        assert_eq!(mib(&corrected(Bytes::mib(900), &noise)), [300, 300, 300]);
        // Nor do many that are idle make all workloads look alike.
        let mut many = vec![unit(0.001); 20];
        many.extend([hot(1.0), hot(9.0)]);
        let all = mib(&corrected(Bytes::mib(300 * 22), &many));
        assert!(all[20] + 10 < all[21], "{all:?}");
    }

    #[test]
    fn who_is_not_known_loses_nothing() {
        let list = [hot(0.2), hot(5.0), hot(5.0), hot(5.0), PLAIN];
        let all = corrected(Bytes::mib(1500), &list);
        assert!(all[4].1 + Bytes(16) >= all[4].0 && all[0].1 < all[0].0, "{all:?}");
    }

    fn one() -> impl Strategy<Value = One> {
        let heat = proptest::option::of(0.05f64..20.0);
        (50u64..900, 50u64..150, 0u64..60, 1u16..1000, heat, any::<bool>()).prop_map(
            |(promise, used_pct, floor_pct, weight, heat, is_unit)| {
                let need = (promise * used_pct / 100).max(1);
                One { promise, need, floor: need * floor_pct / 60, weight, heat, is_unit, ..PLAIN }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_doubtful_moves_nothing(
            heats in proptest::collection::vec(1.0f64..1.38, 2..9), part in 50u64..95
        ) {
            let list: Vec<_> = heats.iter().map(|heat| hot(*heat)).collect();
            for (before, after) in corrected(Bytes::mib(400 * list.len() as u64 * part / 100), &list) {
                prop_assert!(before.abs_diff(after) <= Bytes(16), "{before} {after}");
            }
        }

        #[test]
        fn corrections_add_up_to_nothing_and_keep_bounds(
            list in proptest::collection::vec(one(), 1..9), part in 5u64..120
        ) {
            let need: u64 = list.iter().map(|o| o.need).sum();
            let all = corrected(Bytes::mib(need * part / 100), &list);
            let (before, after): (u64, u64) =
                all.iter().fold((0, 0), |sum, (b, a)| (sum.0 + b.0, sum.1 + a.0));
            prop_assert!(before.abs_diff(after) <= before / 100_000 + 16, "{before} {after}");
            for ((was, is), one) in all.iter().zip(&list) {
                prop_assert!(*is <= Bytes::mib(one.need) + Bytes(16));
                prop_assert!(!one.is_unit || *is <= *was + Bytes(16), "a unit gains nothing");
                prop_assert!(is.0 + 16 >= was.0 / 4 && *is + Bytes(16) >= Bytes::mib(one.floor).min(*was));
            }
        }

        #[test]
        fn of_two_alike_the_hotter_one_never_misses_more(
            heats in proptest::collection::vec(0.05f64..20.0, 2..9), part in 20u64..100
        ) {
            let list: Vec<_> = heats.iter().map(|h| hot(*h)).collect();
            let all = corrected(Bytes::mib(400 * list.len() as u64 * part / 100), &list);
            for (i, own) in heats.iter().enumerate() {
                for (j, other) in heats.iter().enumerate() {
                    prop_assert!(own <= other || all[i].1 + Bytes(16) >= all[j].1, "{all:?}");
                }
            }
        }
    }
}
