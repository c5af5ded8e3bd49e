//! A party and what it may keep, as the rungs of the ladder look at it.
//!
//! # Terms
//! *Suffering*: managed, below its share, and refaulting or stalling noticeably. *Ward*: a workload that others must not harm. *Stuck*: who keeps
//! more than it is due by weight because it cannot be taken.
//!
//! # Properties
//! Who is stuck is no ward and misses nothing, and no limit leaves it more room for that.

use ctlmgr_model::{Bytes, CgroupId, Percent, Verdict, VerdictKind};

use crate::dividing::is_stuck;
use crate::scene::feels_it;
use crate::verdict::Party;

/// Other rungs leave no more than one part in so many of a share to background reclaim. With a sixteenth two were seen 28 MiB below
/// a share of 330 and 34 above one of 710 for as long as it was short, and the first one slower for it than the second.
const OPEN: u64 = 32;
/// A workload this far below its share, in per cent of it, is missing something.
const MISSING: Percent = Percent(98);

/// A party and what it may keep.
pub(crate) struct Keeping<'a, 'b> {
    pub party: &'b Party<'a>,
    pub share: Bytes,
    /// What the share would be if all of it could be taken.
    pub due: Bytes,
    /// What the share was multiplied with for what it feels, in per cent.
    pub lift_pct: u32,
    /// How far from its share background reclaim takes it or leaves it by itself ([`crate::room`]).
    pub room: Bytes,
}

impl<'a, 'b> Keeping<'a, 'b> {
    pub(crate) fn new(party: &'b Party<'a>, verdict: &Verdict, room: Bytes) -> Self {
        let Verdict { share, due, lift_pct, .. } = *verdict;
        Keeping { party, share, due, lift_pct, room }
    }

    /// With the share that a limit may follow: what a unit gives only because it rests is taken, but it may have it
    /// back at once; and that something cannot be taken is no claim to more of it.
    pub(crate) fn for_limits(&self) -> Keeping<'a, 'b> {
        let share = if self.is_stuck() { self.due } else { self.share };
        let gave = self.party.kind == VerdictKind::Bystander && (1..100).contains(&self.lift_pct);
        let by_weight = u128::from(share.0) * 100 / u128::from(self.lift_pct.max(1));
        let by_weight = u64::try_from(by_weight).map_or(share, Bytes);
        let share = if gave { by_weight.max(share) } else { share };
        Keeping { share, lift_pct: 100, ..*self }
    }
}

impl Keeping<'_, '_> {
    /// Below its share, and missing what it lacks.
    pub(crate) fn is_suffering(&self) -> bool {
        self.is_missing_some() && feels_it(&self.party.estimate)
    }

    pub(crate) fn is_missing_some(&self) -> bool {
        let memory = &self.party.group.memory;
        let most = (self.share - self.open()).scaled(MISSING);
        // Page cache that nobody needs makes nobody whole whose pages are coming back from swap.
        let lacks = most - memory.working_set();
        let is_hidden = lacks > Bytes::ZERO && self.party.estimate.returning >= lacks;
        let is_meant = self.party.kind == VerdictKind::Workload && !self.is_stuck();
        is_meant && (memory.current < most || is_hidden)
    }

    /// Whether it is a workload that others must not harm: it keeps all that it needs, or lacks some of its share. One that
    /// needs less than `least` has next to nothing to lose.
    pub(crate) fn is_ward(&self, least: Bytes) -> bool {
        let is_meant = self.party.kind == VerdictKind::Workload
            && self.party.estimate.demand >= least
            && !self.is_stuck();
        is_meant && (!self.gives_way() || self.is_missing_some())
    }

    fn is_stuck(&self) -> bool {
        is_stuck((self.share, self.due))
    }

    /// Which cgroup it is about.
    pub(crate) fn id(&self) -> CgroupId {
        self.party.group.id
    }

    /// What of its room the other rungs leave to background reclaim: who leaves more is not the less hurt below its share.
    pub(crate) fn open(&self) -> Bytes {
        self.room.min(Bytes(self.share.0 / OPEN))
    }

    /// Whether its share is less than it needs.
    pub(crate) fn gives_way(&self) -> bool {
        self.share < self.party.estimate.demand
    }

    /// What it holds beyond its share.
    pub(crate) fn excess(&self) -> Bytes {
        self.party.group.memory.current - self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn who_is_as_far_below_its_share_as_background_reclaim_may_leave_it_misses_nothing() {
        let is_missing_some = |held, room| {
            let workload = testing::container("w", 1, Bytes::mib(held), None);
            let party = testing::party(&workload, None, 100);
            let (share, room) = (Bytes::mib(1600), Bytes::mib(room));
            Keeping { party: &party, share, due: share, lift_pct: 100, room }.is_missing_some()
        };
        assert!(is_missing_some(1560, 0) && !is_missing_some(1560, 100));
        assert!(is_missing_some(1500, 100));
    }

    #[test]
    fn what_cannot_be_taken_is_no_claim_to_a_limit_nor_to_the_restraint_of_others() {
        let of = |due| {
            let workload = testing::container("w", 1, Bytes::mib(400), None);
            let party = testing::party(&workload, None, 5);
            let (share, due, room) = (Bytes::mib(400), Bytes::mib(due), Bytes::ZERO);
            let keeping = Keeping { party: &party, share, due, lift_pct: 100, room };
            (keeping.for_limits().share, keeping.is_ward(Bytes::mib(1)))
        };
        assert_eq!(of(30), (Bytes::mib(30), false));
        assert_eq!(of(400), (Bytes::mib(400), true), "it is due that anyway");
    }

    #[test]
    fn a_limit_follows_no_unit_down_to_what_it_gives_because_it_rests() {
        let workload = testing::container("w", 1, Bytes::mib(400), None);
        let mut party = testing::party(&workload, None, 100);
        let limit = |party: &Party<'_>, lift_pct| {
            let share = Bytes::mib(100);
            let room = Bytes::ZERO;
            Keeping { party, share, due: share, lift_pct, room }.for_limits().share
        };
        assert_eq!(limit(&party, 25), Bytes::mib(100), "a workload's share is its share");
        party.kind = VerdictKind::Bystander;
        assert_eq!(limit(&party, 25), Bytes::mib(400));
        assert_eq!(limit(&party, 100), Bytes::mib(100));
        assert_eq!(limit(&party, 0), Bytes::mib(100), "nothing to go by");
    }
}
