//! Hardening: a part of the shares as memory.min.
//!
//! # Problem
//! Shares are kept by memory.low, and where MGLRU ages pages global reclaim hardly heeds that (`shrink_one()` in
//! mm/vmscan.c of 6.12). Early reclaim keeps global reclaim asleep; but a burst, or a machine that shrinks, is
//! faster than a reading a second. Then the kernel takes whose pages are oldest, whatever they weigh, and one that is slow to fault its
//! pages back pays for that for minutes. Seen of two redis promised alike in three runs (benches/results/memory-under-pressure.md,
//! "Table 5.1"): one kept 0.57 of its set and the other all of it, 0.62 and 0.43, 0.59 and 0.44.
//!
//! # Approach
//! memory.min holds in any case. Of each share most is made hard, so that nobody can lose more than the rest; and of who weighs more the
//! more, as it is to lose less. Much of what there is stays soft, so that the kernel always finds enough.
//!
//! # Terms
//! *Lightest*: the least weight of those workloads that need at least a [`NOTEWORTHY`]th of the capacity.
//!
//! # Algorithm
//! While contention is or was near, where memory.low is ignored ([`crate::heed`]) and with room in swap:
//! hard = (1 − lightest / ([`SOFT`] · weight)) · share, and nothing of who weighs less than the lightest. The heaviest come
//! first, and those of equal weight are cut down alike, so that with the floors (and what others have set) no more than [`PART`]
//! of the capacity is hard, nor more than swap has room for. In whole steps of [`STEP`], so that it is not written for every little move of a share.
//!
//! # Properties
//! Nobody's is above its share or its use; of those that are as large more weight never has less, and as much weight as much; with the
//! floors no more than [`PART`] of the capacity.

use std::collections::BTreeMap;

use ctlmgr_model::{Bytes, CgroupId, Percent, VerdictKind, Weight};

use crate::reclaim::part;
use crate::scene::{Keeping, Scene};

/// With the floors no more of the capacity than this is hard.
const PART: Percent = Percent(60);
/// Who needs less than one part in so many of the capacity says nothing of what is light here.
const NOTEWORTHY: u64 = 64;
/// Of the lightest one's share one part in so many stays soft. Of one in two one of two runs of *cloud* was 18 points apart, of this two were 10 at most.
const SOFT: u64 = 4;
const STEP: Bytes = Bytes::mib(8);

/// What is to be hard of each one's share; `floors` are hard already.
pub(crate) fn harden(scene: &Scene<'_, '_>, floors: Bytes) -> BTreeMap<CgroupId, Bytes> {
    let is_meant =
        |k: &&Keeping<'_, '_>| k.party.kind == VerdictKind::Workload && !k.party.is_untold();
    // In a slice that is full the kernel heeds memory.low, and would have to kill where all is hard; it is full in no time.
    let is_open = |k: &&Keeping<'_, '_>| !scene.is_in_limited_slice(k.party.group);
    let workloads: Vec<&Keeping<'_, '_>> =
        scene.all.iter().filter(is_meant).filter(is_open).collect();
    let least = Bytes(scene.account.capacity.0 / NOTEWORTHY);
    let large = workloads.iter().filter(|k| k.party.estimate.demand >= least);
    let Some(lightest) = large.map(|k| weight(k)).min() else { return BTreeMap::new() };
    let is_due = scene.settings.harden
        && scene.is_recently_near()
        && (!scene.is_swept() || scene.was_contended())
        && scene.state.heed.is_ignored(&scene.snapshot.host)
        && scene.may_swap();
    if !is_due {
        return BTreeMap::new();
    }
    let mut by_weight: BTreeMap<Weight, Vec<(CgroupId, Bytes)>> = BTreeMap::new();
    for k in workloads.iter().filter(|k| weight(k) >= lightest) {
        by_weight.entry(weight(k)).or_default().push((k.id(), meant(k, lightest)));
    }
    // What is hard others must be able to give in its place, and where they have nothing but anonymous memory that takes swap.
    let most = scene.account.capacity.scaled(PART).min(scene.swap_left());
    let mut left = most - floors;
    let mut hard = BTreeMap::new();
    for (_, group) in by_weight.iter().rev() {
        let sum: Bytes = group.iter().map(|(_, amount)| *amount).sum();
        for (id, amount) in group {
            let amount = if sum > left { part(*amount, left, sum) } else { *amount };
            hard.insert(*id, Bytes(amount.0 / STEP.0 * STEP.0));
        }
        left = left - sum;
    }
    hard.retain(|_, amount| *amount > Bytes::ZERO);
    hard
}

fn weight(keeping: &Keeping<'_, '_>) -> Weight {
    keeping.party.entitlement.weight
}

/// All but its soft part; what it does not use of it would be its neighbours' (memory_recursiveprot).
fn meant(keeping: &Keeping<'_, '_>, lightest: Weight) -> Bytes {
    let [own, least] = [weight(keeping), lightest].map(|w| u64::from(w.get()));
    let soft = part(keeping.share, Bytes(least), Bytes(SOFT * own));
    (keeping.share - soft).min(keeping.party.group.memory.current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, host, settings};
    use crate::{State, decide};
    use ctlmgr_model::{Action, Knob, LruFlavour, Plan, Settings, Snapshot, Source};
    use proptest::prelude::*;

    /// Workloads of these sizes and weights on a machine of so much.
    fn machine(list: &[(u64, u16)], total: u64) -> Snapshot {
        let one = |(id, (mib, weight)): (u64, &(u64, u16))| {
            let mut workload =
                container(&format!("w{id}"), id, Bytes::mib(*mib), Some(Bytes::mib(*mib)));
            if let Source::Container(facts) = &mut workload.source {
                facts.labels.insert("ctlmgr.weight".into(), weight.to_string());
            }
            workload
        };
        host(Bytes::mib(total), (11u64..).zip(list).map(one).collect(), Vec::new())
    }

    fn planned(settings: &Settings, snapshot: &Snapshot) -> Plan {
        let (plan, _) = decide(settings, State::default(), snapshot);
        assert_eq!(crate::check(settings, &plan, snapshot), []);
        plan
    }

    /// memory.min that is set for each, in MiB.
    fn hard(plan: &Plan, snapshot: &Snapshot) -> Vec<u64> {
        let of = |id| {
            let set = plan.steps.iter().filter(|s| s.id == id).find_map(|s| match s.action {
                Action::Set { knob: Knob::MemoryMin, to, .. } => Some(to.0 >> 20),
                _ => None,
            });
            set.unwrap_or(0)
        };
        snapshot.workloads.iter().map(|w| of(w.group.id)).collect()
    }

    #[test]
    fn most_of_a_share_is_hard_the_heavier_the_more_and_no_more_than_sixty_per_cent_in_all() {
        let of = |list: &[(u64, u16)], total| {
            let snapshot = machine(list, total);
            hard(&planned(&settings(), &snapshot), &snapshot)
        };
        // 1400 of 1400 + 100 are to be had, near contention: 60 % of it are some 755 MiB.
        assert_eq!(of(&[(800, 100), (400, 400)], 1400), [376, 368]);
        assert_eq!(of(&[(800, 100), (400, 100)], 1400), [496, 248]);
        assert_eq!(of(&[(800, 400), (400, 400)], 1400), [496, 248], "weights count beside others");
        assert_eq!(of(&[(200, 100), (900, 400)], 1400), [0, 752]);
        let with_small = of(&[(8, 5), (800, 100), (400, 100)], 1400);
        assert_eq!(with_small, [0, 496, 248], "a small one says nothing of what is light");
        assert_eq!(of(&[(300, 100), (300, 400)], 4000), [0, 0], "all is calm");
    }

    #[test]
    fn nothing_is_hard_where_soft_protection_holds_or_nothing_can_be_swapped_or_nobody_wants_it() {
        let wanted = |change: fn(&mut Snapshot, &mut Settings)| {
            let (mut snapshot, mut settings) =
                (machine(&[(800, 100), (400, 400)], 1400), settings());
            change(&mut snapshot, &mut settings);
            hard(&planned(&settings, &snapshot), &snapshot)
        };
        assert_eq!(wanted(|_, _| ()), [376, 368]);
        assert_eq!(wanted(|s, _| s.host.lru = Some(LruFlavour::Classic)), [0, 0]);
        assert_eq!(wanted(|s, _| s.host.lru = None), [0, 0]);
        assert_eq!(wanted(|s, _| s.host.swap_free = Bytes::ZERO), [0, 0]);
        assert_eq!(wanted(|_, settings| settings.memory.harden = false), [0, 0]);
    }

    proptest! {
        #[test]
        fn most_stays_soft_and_more_weight_never_has_less(
            list in proptest::collection::vec((1u64..60, 1u16..2000), 1..9), part in 50u64..120
        ) {
            // Of sizes that come in tens, so that some are as large as others.
            let list: Vec<_> = list.iter().map(|(mib, w)| (mib / 10 * 100 + 50, *w)).collect();
            let sum: u64 = list.iter().map(|(mib, _)| mib).sum();
            let snapshot = machine(&list, sum * part / 100 + 100);
            let plan = planned(&settings(), &snapshot);
            let hard = hard(&plan, &snapshot);
            prop_assert!(hard.iter().sum::<u64>() <= (plan.account.capacity.0 >> 20) * 60 / 100 + 1);
            for (i, a) in list.iter().enumerate() {
                let share = |i: usize| {
                    let path = &snapshot.workloads[i].group.path;
                    plan.verdicts.iter().find(|v| v.path == *path).map_or(0, |v| v.share.0 >> 20)
                };
                prop_assert!(hard[i] <= share(i).min(a.0));
                for (j, b) in list.iter().enumerate() {
                    prop_assert!(a.0 != b.0 || a.1 < b.1 || hard[i] + 8 >= hard[j], "{list:?} {hard:?}");
                }
            }
        }
    }
}
