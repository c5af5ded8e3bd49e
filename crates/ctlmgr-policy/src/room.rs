//! Room: what of a share is left unprotected, for background reclaim to find something.
//!
//! # Problem
//! Where the kernel heeds memory.low (classic page aging, MGLRU of newer kernels) kswapd passes over who is within it. Where
//! shares are protected whole, and add up to all that there is, it finds nothing; then every allocation reclaims for itself, looks
//! at all thirteen priorities in vain before it may take what is protected (`memcg_low_reclaim` in mm/vmscan.c), and its task
//! waits for that. Seen with classic lists and two hogs that miss a tenth of their sets: 1561 such stalls in 24 s where the plain
//! kernel had 4, and 0.37 of the work done where that did 0.77.
//!
//! # Approach
//! Leave a part of the share of those that give way anyway. The kernel takes from them in proportion to what
//! each has above its memory.low, so who is above its share gives more. From 128 MiB on the part is larger than the dead band
//! in which a memory.low is not written.
//!
//! So one is found as far below its share as that by background reclaim alone, or above it, and the other rungs take neither
//! for more than that: early reclaim asks who is further above ([`crate::reclaim`]), and who is further below is short of
//! something ([`crate::scene`]).
//!
//! # Algorithm
//! One part in [`PART`] of the share while memory is contended, but nothing of a floor. What slices above have beyond what those below
//! claim ([`crate::cover`]: a fiftieth to a sixteenth) protects these, too (`memory_recursiveprot`), so some of it is taken back by that. To cover closely
//! left 3 stalls of 46 in that scene, but had the slices' memory.low swing. Who is held by a slice with a limit of its own leaves none: what that
//! slice needs must be found below it.
//!
//! # Properties
//! Nothing where memory.low is ignored, or without contention; no more than a part in [`PART`]; who has all that it needs is
//! protected whole, and so are a floor and who is not told of.

use ctlmgr_model::{Bound, Bytes, CapacityAccount, Snapshot, Verdict};

use crate::state::State;
use crate::verdict::Party;

/// One part in so many of a share.
const PART: u64 = 16;

/// What of its share is left unprotected.
pub(crate) fn room(
    (state, snapshot): (&State, &Snapshot),
    account: &CapacityAccount,
    party: &Party<'_>,
    verdict: &Verdict,
) -> Bytes {
    let is_heeded = !state.heed.is_ignored(&snapshot.host);
    let gives_way = verdict.bound == Bound::Weight && verdict.slice.is_none() && !party.is_untold();
    match is_heeded && account.is_contended() && gives_way {
        true => Bytes(verdict.share.0 / PART).min(verdict.share - verdict.floor),
        false => Bytes::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{container, floor_of, group, host, settings};
    use crate::{State, check, decide};
    use ctlmgr_model::{
        Action, Bytes, CgroupPath, Knob, Limit, LruFlavour, Outcome, Source, Verdict, VerdictKind,
    };
    use proptest::prelude::*;

    const fn mib(n: u64) -> Bytes {
        Bytes::mib(n)
    }

    /// Shares and memory.low of some with this need and floor, a while after all fitted, as far as it was written.
    fn kept(lru: LruFlavour, total: Bytes, needs: &[(Bytes, Bytes)]) -> Vec<(Verdict, Bytes)> {
        let mut settings = settings();
        let one = |(id, (need, floor)): (u64, &(Bytes, Bytes))| {
            let name = format!("w{id}");
            settings.rules.push(floor_of(&name, *floor));
            container(&name, id, *need, Some(*need))
        };
        let workloads = (11u64..).zip(needs).map(one).collect();
        let mut snapshot = host(mib(20_000), workloads, Vec::new());
        snapshot.host.lru = Some(lru);
        let mut state = State::default();
        let mut all = Vec::new();
        for second in 0..3 {
            let (plan, next) = decide(&settings, state, &snapshot);
            assert_eq!(check(&settings, &plan, &snapshot), []);
            state = next;
            for step in &plan.steps {
                state.learn(step, &Outcome::Done, snapshot.at);
                let Action::Set { knob: Knob::MemoryLow, to, .. } = step.action else { continue };
                let groups = snapshot.workloads.iter_mut().map(|w| &mut w.group);
                groups
                    .chain(&mut snapshot.ancestors)
                    .filter(|g| g.id == step.id)
                    .for_each(|g| g.memory.low = to);
            }
            let low = |v: &Verdict| {
                let own = snapshot.workloads.iter().find(|w| w.group.path == v.path)?;
                Some((v.clone(), own.group.memory.low))
            };
            let workloads = plan.verdicts.iter().filter(|v| v.kind == VerdictKind::Workload);
            all = workloads.filter_map(low).collect();
            snapshot.at = ctlmgr_model::Millis(30_000 + second * 10_000);
            (snapshot.host.mem_total, snapshot.host.mem_free) = (total, mib(10));
        }
        all
    }

    #[test]
    fn who_gives_way_leaves_room_and_who_does_not_leaves_none() {
        let needs = [(mib(800), mib(0)), (mib(100), mib(100)), (mib(400), mib(0))];
        let left = |lru| {
            let all = kept(lru, mib(1300), &needs);
            all.iter().map(|(v, low)| (v.share - *low).0 >> 20).collect::<Vec<_>>()
        };
        assert_eq!(left(LruFlavour::Classic), [48, 0, 24]);
        assert_eq!(left(LruFlavour::Mglru), [0, 0, 0]);
    }

    #[test]
    fn who_is_not_told_of_and_who_is_held_by_its_slice_leave_none() {
        let left = |is_untold, most: Option<Bytes>| {
            let mut own = container("own", 11, mib(800), Some(mib(800)));
            if let Source::Container(facts) = &mut own.source {
                facts.is_untold = is_untold;
            }
            let mut other = container("other", 12, mib(400), Some(mib(400)));
            other.group.path = CgroupPath::new("b.slice/other.scope");
            let mut snapshot = host(mib(850), vec![own, other], Vec::new());
            snapshot.host.lru = Some(LruFlavour::Classic);
            snapshot.ancestors[0] = group("a.slice", 1, mib(800));
            snapshot.ancestors[0].memory.max = most.map_or(Limit::Max, Limit::Bytes);
            let (plan, _) = decide(&settings(), State::default(), &snapshot);
            let share = plan.verdicts.iter().find(|v| v.name.0 == "own").unwrap().share;
            let low = plan.steps.iter().filter(|s| s.id.0 == 11).find_map(|s| match s.action {
                Action::Set { knob: Knob::MemoryLow, to, .. } => Some(to),
                _ => None,
            });
            (share - low.unwrap()).0 >> 20
        };
        assert!(left(false, None) >= 30);
        assert_eq!(left(true, None), 0);
        assert_eq!(left(false, Some(mib(520))), 0);
    }

    proptest! {
        #[test]
        fn something_of_a_share_and_nothing_of_what_is_owed(
            total in 500u64..4000,
            needs in proptest::collection::vec((150u64..900, 0u64..300), 1..8)
        ) {
            let needs: Vec<_> = needs.iter().map(|(n, f)| (mib(*n), mib(*f.min(n)))).collect();
            for (v, low) in kept(LruFlavour::Classic, mib(total), &needs) {
                let (left, band) = (v.share - low, Bytes(v.share.0 / 50).max(mib(8)));
                prop_assert!(low + band >= v.floor.min(v.share), "{v:?} {low}");
                prop_assert!(left <= Bytes(v.share.0 / 16) + band, "{v:?} {low}");
                let is_whole = v.share >= v.demand;
                prop_assert!(!is_whole || left <= band, "{v:?} {low}");
                let gives = v.bound == ctlmgr_model::Bound::Weight && v.floor == Bytes::ZERO;
                prop_assert!(!gives || left + band + Bytes::PAGE >= Bytes(v.share.0 / 16), "{v:?} {low}");
            }
        }
    }
}
