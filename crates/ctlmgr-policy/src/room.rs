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
//! Leave a part of the shares of those that give way anyway, the more the more they miss: whatever they are, background
//! reclaim needs a part of all that is protected. Where two small ones give way and two large ones have all that they need, a sixteenth
//! of the small ones' shares was too little: 23 000 pages by direct reclaim where the plain kernel had 3000, a third of the time
//! somebody waited for memory, and one `docker ps` took ten seconds. The kernel takes from them in proportion to what
//! each has above its memory.low, so who is above its share gives more.
//!
//! How much is a trade: kswapd looks at every cgroup at each of its priorities, and scans of each the more the more of it is unprotected.
//! Where two hogs miss a tenth of their sets it needed 25 and 37 % of a processor for 3800 and 4300 pages a second with a sixteenth (20 and 21 for 5700 and 5800
//! on the plain kernel), and 22 and 25 for 4100 and 4800 with an eighth: what it takes of two processors the hogs do not get.
//!
//! So one is found as far below its share as that by background reclaim alone, or above it, and the other rungs take neither
//! for more than that, up to a thirty-second of its share: early reclaim asks who is further above ([`crate::reclaim`]), and who is further below is short of
//! something ([`crate::scene`]).
//!
//! # Algorithm
//! One part in [`PART`] of the workloads' shares while memory is contended, shared out among those that give way in proportion to twice what each misses,
//! at least one part in [`LEAST`] of its share and at most one in [`MOST`], and no more than that; nothing of a floor. So who misses next to nothing leaves
//! little. What slices above have beyond what those below
//! claim ([`crate::cover`]: a fiftieth to a sixteenth) protects these, too (`memory_recursiveprot`), so some of it is taken back by that. To cover closely
//! left 3 stalls of 46 in that scene, but had the slices' memory.low swing. Who is held by a slice with a limit of its own leaves none: what that
//! slice needs must be found below it.
//!
//! # Properties
//! Nothing where memory.low is ignored, or without contention; of workloads no more than a part in [`PART`] of all their shares, or in [`MOST`] of one,
//! or than twice what is missed (or a part in [`LEAST`]); who has all that it needs is protected whole, and so are a floor and who is not told of.

use ctlmgr_model::{Bound, Bytes, CapacityAccount, Snapshot, Verdict, VerdictKind};

use crate::state::State;
use crate::verdict::Party;

/// One part in so many of all workloads' shares.
const PART: u64 = 8;
/// No more than one part in so many of what one has and can be taken.
const MOST: u64 = 2;
/// Who gives way leaves some: who is at its share must be seen to be above its memory.low ([`crate::heed`]).
const LEAST: u64 = 32;

/// What of each share is left unprotected.
pub(crate) fn rooms(
    (state, snapshot): (&State, &Snapshot),
    account: &CapacityAccount,
    all: &[(&Party<'_>, &Verdict)],
) -> Vec<Bytes> {
    if state.heed.is_ignored(&snapshot.host) || !account.is_contended() {
        return vec![Bytes::ZERO; all.len()];
    }
    let open: Vec<Bytes> = all.iter().map(|(party, verdict)| open(party, verdict)).collect();
    // Of units little is protected beyond what they work with.
    let workloads = all.iter().filter(|(party, _)| party.kind == VerdictKind::Workload);
    let protected: Bytes = workloads.map(|(_, verdict)| verdict.share).sum();
    let wanted = Bytes(protected.0 / PART);
    let sum: Bytes = open.iter().copied().sum();
    open.iter().map(|own| own.rationed(wanted, sum)).collect()
}

/// What of its share may be left unprotected at most.
fn open(party: &Party<'_>, verdict: &Verdict) -> Bytes {
    let gives_way = verdict.bound == Bound::Weight && verdict.slice.is_none() && !party.is_untold();
    let missing = verdict.demand - verdict.share;
    match gives_way {
        true => (missing + missing)
            .max(Bytes(verdict.share.0 / LEAST))
            .min(Bytes((verdict.share - party.group.memory.unreclaimable()).0 / MOST))
            .min(verdict.share - verdict.floor),
        false => Bytes::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::PART;
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
        assert_eq!(left(LruFlavour::Classic), [52, 0, 26]);
        assert_eq!(left(LruFlavour::Mglru), [0, 0, 0]);
    }

    #[test]
    fn two_small_ones_leave_room_for_a_large_one_that_has_all_it_needs() {
        let needs = [(mib(800), mib(800)), (mib(200), mib(0)), (mib(100), mib(0))];
        for (v, low) in &kept(LruFlavour::Classic, mib(930), &needs)[1..] {
            let (left, half) = (v.share - *low, Bytes(v.share.0 / 2));
            assert!(left.abs_diff(half) <= mib(1), "{left} of {}", v.share);
        }
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
            let kept = kept(LruFlavour::Classic, mib(total), &needs);
            let band = |v: &Verdict| Bytes(v.share.0 / 50).max(mib(8));
            let gives = |v: &Verdict| v.bound == ctlmgr_model::Bound::Weight;
            let most = |v: &Verdict| {
                let missing = v.demand - v.share;
                let most = (missing + missing).max(Bytes(v.share.0 / 32));
                most.min(Bytes(v.share.0 / 2)).min(v.share - v.floor)
            };
            for (v, low) in &kept {
                let left = v.share - *low;
                prop_assert!(*low + band(v) >= v.floor.min(v.share), "{v:?} {low}");
                prop_assert!(left <= most(v) + band(v), "{v:?} {low}");
                prop_assert!(gives(v) || left <= band(v), "{v:?} {low}");
            }
            let bands: Bytes = kept.iter().map(|(v, _)| band(v) + Bytes::PAGE).sum();
            let left: Bytes = kept.iter().map(|(v, low)| v.share - *low).sum();
            let part = Bytes(kept.iter().map(|(v, _)| v.share).sum::<Bytes>().0 / PART);
            let open: Bytes = kept.iter().filter(|(v, _)| gives(v)).map(|(v, _)| most(v)).sum();
            prop_assert!(left <= part + bands, "{left} of {part}");
            prop_assert!(left + bands >= part.min(open), "{left} of {part}, {open} open");
        }
    }
}
