//! Room: what of the shares is left unprotected, for background reclaim to find something.
//!
//! # Problem
//! Where the kernel heeds memory.low (classic page aging, MGLRU of newer kernels) kswapd passes over who is within it. Where
//! shares are protected whole, and add up to all that there is, it finds nothing; then every allocation reclaims for itself, looks
//! at all thirteen priorities in vain before it may take what is protected (`memcg_low_reclaim` in mm/vmscan.c), and its task
//! waits for that. Seen with classic lists and two hogs that miss a tenth of their sets: 1542 such stalls in 24 s where the plain
//! kernel had 4, and 0.37 of the work done where that did 0.77.
//!
//! # Approach
//! Leave as much as should be free unprotected, of those that give way anyway. The kernel takes from them in proportion to what
//! each has above its memory.low, so they give alike.
//!
//! # Algorithm
//! Room = headroom − what units hold of their shares beyond their memory.low; divided by share among those that give way by weight,
//! at most one part in [`MOST`] of each and nothing of a floor. Those in a slice with a limit of its own have none: the kernel must
//! find what is needed there in that slice.
//!
//! # Properties
//! Nothing where memory.low is ignored, or without contention; no more than the headroom in all; who has all that it needs is
//! protected whole, and so is a floor.

use std::collections::BTreeMap;

use ctlmgr_model::{Bound, Bytes, CgroupId, Verdict, VerdictKind};

use crate::hard::Wanted;
use crate::reclaim::part;
use crate::scene::Scene;
use crate::verdict::Party;

/// One part in so many of a share at most.
pub(crate) const MOST: u64 = 16;

/// What of whose share is left unprotected.
pub(crate) fn room(
    scene: &Scene<'_, '_>,
    workloads: &[(&Party<'_>, &Verdict)],
    units: &[Wanted<'_>],
) -> BTreeMap<CgroupId, Bytes> {
    let is_heeded = !scene.state.heed.is_ignored(&scene.snapshot.host);
    if !is_heeded || !scene.account.is_contended() {
        return BTreeMap::new();
    }
    let of_units = scene.all.iter().filter(|k| k.party.kind == VerdictKind::Bystander);
    let of_units: Bytes = of_units.map(|k| k.share).sum();
    let kept: Bytes = units.iter().map(|w| w.amount).sum();
    let wanted = scene.account.headroom - (of_units - kept);
    let gives_way = |(p, v): &&(&Party<'_>, &Verdict)| {
        v.bound == Bound::Weight && !scene.is_in_limited_slice(p.group)
    };
    let givers: Vec<_> = workloads.iter().filter(gives_way).collect();
    let shares: Bytes = givers.iter().map(|(_, v)| v.share).sum();
    let left = |(p, v): &&(&Party<'_>, &Verdict)| {
        let most = Bytes(v.share.0 / MOST).min(v.share - v.floor);
        (p.group.id, part(wanted, v.share, shares).min(most))
    };
    givers.iter().copied().map(|giver| left(&giver)).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::{container, floor_of, group, host, settings};
    use crate::{State, check, decide};
    use ctlmgr_model::{Action, Bytes, Knob, LruFlavour, Verdict, VerdictKind};
    use proptest::prelude::*;

    /// Need of each, and the floor of the first one.
    fn left(
        lru: LruFlavour,
        total: Bytes,
        needs: &[(Bytes, Bytes)],
        unit: Bytes,
    ) -> (Vec<(Verdict, Bytes)>, Bytes) {
        let mut settings = settings();
        let one = |(id, (need, floor)): (u64, &(Bytes, Bytes))| {
            let name = format!("w{id}");
            settings.rules.push(floor_of(&name, *floor));
            container(&name, id, *need, Some(*need))
        };
        let units = (unit > Bytes::ZERO).then(|| group("system.slice/hog.service", 99, unit));
        let workloads = (11u64..).zip(needs).map(one).collect();
        let mut snapshot = host(total, workloads, units.into_iter().collect());
        snapshot.host.lru = Some(lru);
        snapshot.above_bystanders = vec![group("system.slice", 2, unit)];
        let (plan, _) = decide(&settings, State::default(), &snapshot);
        assert_eq!(check(&settings, &plan, &snapshot), []);
        // What is too small to be written stays unprotected whatever is decided.
        let low = |v: &Verdict| {
            let is_own = |s: &&ctlmgr_model::Step| s.path == v.path;
            plan.steps.iter().filter(is_own).find_map(|s| match s.action {
                Action::Set { knob: Knob::MemoryLow, to, .. } => Some((v.clone(), to)),
                _ => None,
            })
        };
        let workloads = plan.verdicts.iter().filter(|v| v.kind == VerdictKind::Workload);
        let all = workloads.filter_map(low).collect();
        (all, plan.account.headroom)
    }

    const fn mib(n: u64) -> Bytes {
        Bytes::mib(n)
    }

    #[test]
    fn who_gives_way_leaves_room_and_who_does_not_leaves_none() {
        let needs = [(mib(800), mib(0)), (mib(100), mib(100)), (mib(400), mib(0))];
        let (classic, headroom) = left(LruFlavour::Classic, mib(1300), &needs, Bytes::ZERO);
        assert_eq!(headroom, mib(39));
        let unprotected: Vec<u64> =
            classic.iter().map(|(v, low)| (v.share - *low).0 >> 20).collect();
        assert_eq!(unprotected, [26, 0, 13], "{classic:?}");
        let (mglru, _) = left(LruFlavour::Mglru, mib(1300), &needs, Bytes::ZERO);
        assert!(mglru.iter().all(|(v, low)| v.share - *low < Bytes::PAGE));
        // A unit that has room for it.
        let (beside, _) = left(LruFlavour::Classic, mib(1300), &needs, mib(300));
        assert!(beside.iter().all(|(v, low)| v.share - *low < Bytes::PAGE), "{beside:?}");
    }

    proptest! {
        #[test]
        fn no_more_than_should_be_free_and_nothing_of_what_is_owed(
            total in 500u64..4000,
            needs in proptest::collection::vec((10u64..900, 0u64..300), 1..8), unit in 0u64..300
        ) {
            let needs: Vec<_> = needs.iter().map(|(n, f)| (mib(*n), mib(*f.min(n)))).collect();
            let (all, headroom) = left(LruFlavour::Classic, mib(total), &needs, mib(unit));
            let mut sum = Bytes::ZERO;
            for (v, low) in &all {
                let unprotected = v.share - *low;
                sum = sum + unprotected;
                prop_assert!(*low + Bytes::PAGE >= v.floor.min(v.share), "{v:?} {low}");
                prop_assert!(unprotected <= Bytes(v.share.0 / 16) + Bytes::PAGE);
                let is_whole = v.share >= v.demand;
                prop_assert!(!is_whole || unprotected < Bytes::PAGE, "{v:?} {low}");
            }
            prop_assert!(sum <= headroom + Bytes(Bytes::PAGE.0 * 8), "{sum} {headroom}");
        }
    }
}
