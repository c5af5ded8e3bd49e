//! Whether the kernel's own reclaim heeds memory.low here.
//!
//! # Problem
//! Classic page aging does; MGLRU of 6.12 hardly (`shrink_one()` in mm/vmscan.c skips a protected cgroup once and then takes
//! from it); that of newer kernels does again. A version says little of what a distribution has put into its kernel, and
//! how much is kept under memory.min ([`crate::harden`]) depends on it.
//!
//! # Approach
//! Look at what background reclaim took from those it should not have touched.
//!
//! # Terms
//! *Within*: of all it uses nothing is above its memory.low, which its ancestors cover, and nothing is under memory.min.
//! *Stolen*: pages that background reclaim got (`pgsteal_kswapd`, of a cgroup and of the host). *Expected*: what of all
//! that was stolen would be from those within, had the kernel taken from all alike.
//!
//! # Algorithm
//! Between two looks add what was stolen from those who were within at both, and what was expected to be. From
//! [`KNOWN`] pages expected on, a part of [`IGNORED`] or more means that memory.low is ignored, one of [`HEEDED`] or less that it
//! is heeded, anything between that nobody knows. What is older counts half for each [`FADED`] pages expected.
//! Where nobody else has an eighth of what can be taken, or there is no swap, a look says nothing: then the kernel has no choice.
//!
//! # Properties
//! What was stolen from others alone never makes it ignored; as much as is expected never heeded; without counters nothing is known.

use std::collections::BTreeMap;

use ctlmgr_model::{
    Bytes, CgroupId, Group, Heeding, HostSample, LruFlavour, Millis, Percent, Snapshot,
};
use serde::{Deserialize, Serialize};

use crate::cover;
use crate::swap::has_swap;

/// Pages expected before anything is known: 8 MiB.
const KNOWN: u64 = 2048;
/// Pages expected after which all that was seen counts half: 256 MiB.
const FADED: u64 = 65_536;
/// Of what was expected.
const IGNORED: Percent = Percent(30);
const HEEDED: Percent = Percent(10);
/// Others must have one part in so many of what there is to take.
const CHOICE: u64 = 8;
/// Looks further apart than this say nothing: who was within at both may not have been so between them.
const APART: Millis = Millis(15_000);

/// What was seen of it so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Heed {
    last: Option<Look>,
    /// Pages.
    stolen: u64,
    expected: u64,
}

/// Counters at the last look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Look {
    at: Millis,
    /// Of the host.
    all: u64,
    /// Of those within.
    within: BTreeMap<CgroupId, u64>,
}

impl Heed {
    /// After one more look.
    pub(crate) fn next(self, snapshot: &Snapshot) -> Heed {
        let groups = || snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.bystanders);
        let within: Vec<&Group> = groups().filter(|g| is_within(g, snapshot)).collect();
        let count = |g: &&Group| Some((g.id, g.memory.stolen?));
        let look = snapshot.host.stolen.map(|all| Look {
            at: snapshot.at,
            all,
            within: within.iter().filter_map(count).collect(),
        });
        let Some((before, now)) = self.last.as_ref().zip(look.as_ref()) else {
            return Heed { last: look, ..self };
        };
        let both = |g: &Group| Some((*before.within.get(&g.id)?, *now.within.get(&g.id)?));
        let seen: Vec<(&Group, (u64, u64))> =
            within.into_iter().filter_map(|g| Some((g, both(g)?))).collect();
        let theirs: Bytes = seen.iter().map(|(g, _)| takeable(g)).sum();
        let all: Bytes = groups().filter(|g| !is_hard(g)).map(takeable).sum();
        let has_choice = all - theirs >= Bytes(all.0 / CHOICE) && has_swap(&snapshot.host);
        if !has_choice || now.at.since(before.at) > APART {
            return Heed { last: look, ..self };
        }
        let taken = now.all.saturating_sub(before.all);
        let expected = u128::from(taken) * u128::from(theirs.0) / u128::from(all.0.max(1));
        let stolen: u64 = seen.iter().map(|(_, (was, is))| is.saturating_sub(*was)).sum();
        let expected = self.expected + u64::try_from(expected).unwrap_or(u64::MAX);
        let stolen = self.stolen.saturating_add(stolen);
        match expected > FADED {
            true => Heed { last: look, stolen: stolen / 2, expected: expected / 2 },
            false => Heed { last: look, stolen, expected },
        }
    }

    /// What is known; `None` before enough was seen.
    pub(crate) fn seen(&self) -> Option<Heeding> {
        let bytes = |pages: u64| Bytes(pages.saturating_mul(Bytes::PAGE.0));
        let part = |of: Percent| u128::from(self.expected) * u128::from(of.0) / 100;
        let stolen = u128::from(self.stolen);
        let is_heeded = match () {
            () if stolen >= part(IGNORED) => Some(false),
            () if stolen <= part(HEEDED) => Some(true),
            () => None,
        };
        let known =
            Heeding { taken: bytes(self.stolen), expected: bytes(self.expected), is_heeded };
        (self.expected >= KNOWN).then_some(known)
    }

    /// Whether memory.low is ignored: by what was seen, and before that where MGLRU ages pages.
    pub(crate) fn is_ignored(&self, host: &HostSample) -> bool {
        let is_heeded = self.seen().and_then(|seen| seen.is_heeded);
        is_heeded.map_or(host.lru == Some(LruFlavour::Mglru), |is_heeded| !is_heeded)
    }
}

/// What reclaim may look at.
fn takeable(group: &Group) -> Bytes {
    group.memory.current - group.memory.kernel
}

fn is_hard(group: &Group) -> bool {
    group.memory.min > Bytes::ZERO
}

fn is_within(group: &Group, snapshot: &Snapshot) -> bool {
    let memory = &group.memory;
    let is_low = memory.current > Bytes::ZERO && memory.current <= memory.low && !is_hard(group);
    let groups = || snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.bystanders);
    let claims = || groups().map(|g| (g, g.memory.low.min(g.memory.current)));
    let covers = |path| {
        let ancestor = snapshot.ancestors.iter().find(|a| a.path == path);
        ancestor.is_some_and(|a| a.memory.low >= cover::below(a, claims()))
    };
    is_low && group.path.ancestors().all(covers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, host};
    use proptest::prelude::*;

    /// A container of 400 MiB within its protection beside one of 400 that is not, and what was stolen of each so far.
    fn look(second: u64, stolen: [u64; 2], change: impl Fn(&mut Snapshot)) -> Snapshot {
        let mib = Bytes::mib;
        let mut list =
            vec![container("kept", 11, mib(400), None), container("b", 12, mib(400), None)];
        list[0].group.memory.low = mib(400);
        for (workload, stolen) in list.iter_mut().zip(stolen) {
            workload.group.memory.stolen = Some(stolen);
        }
        let mut snapshot = host(mib(1000), list, Vec::new());
        snapshot.at = Millis(second * 1000);
        snapshot.ancestors[0].memory.low = mib(400);
        snapshot.host.stolen = Some(stolen[0] + stolen[1]);
        change(&mut snapshot);
        snapshot
    }

    fn after(per_sec: [u64; 2], change: impl Fn(&mut Snapshot) + Copy) -> Heed {
        (0..60).fold(Heed::default(), |heed, second| {
            heed.next(&look(second, per_sec.map(|pages| pages * second), change))
        })
    }

    fn is_heeded(heed: &Heed) -> Option<bool> {
        heed.seen().and_then(|seen| seen.is_heeded)
    }

    #[test]
    fn it_is_seen_by_what_is_taken_from_whom() {
        assert_eq!(is_heeded(&after([500, 500], |_| ())), Some(false));
        assert_eq!(is_heeded(&after([10, 990], |_| ())), Some(true));
        assert_eq!(is_heeded(&after([100, 900], |_| ())), None, "neither the one nor the other");
        assert_eq!(after([5, 5], |_| ()).seen(), None, "too little");
        let mglru = |heed: Heed| heed.is_ignored(&look(0, [0, 0], |_| ()).host);
        assert!(mglru(Heed::default()) && mglru(after([500, 500], |_| ())));
        assert!(!mglru(after([10, 990], |_| ())));
    }

    #[test]
    fn who_is_not_kept_by_memory_low_alone_says_nothing() {
        let all = [500, 500];
        assert_eq!(after(all, |s| s.ancestors[0].memory.low = Bytes::mib(300)).seen(), None);
        assert_eq!(after(all, |s| s.workloads[0].group.memory.low = Bytes::mib(300)).seen(), None);
        assert_eq!(after(all, |s| s.workloads[0].group.memory.min = Bytes::mib(9)).seen(), None);
        assert_eq!(after(all, |s| s.workloads[0].group.memory.stolen = None).seen(), None);
        assert_eq!(after(all, |s| s.host.stolen = None).seen(), None);
        // Where the kernel has no choice it has to.
        assert_eq!(after(all, |s| s.host.swap_free = Bytes::ZERO).seen(), None);
        assert_eq!(after(all, |s| s.workloads[1].group.memory = Default::default()).seen(), None);
        assert_eq!(after(all, |s| s.at = Millis(s.at.0 * 60)).seen(), None, "looks too far apart");
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let ignored = after([5000, 5000], |_| ());
        assert_eq!(is_heeded(&ignored), Some(false));
        let base = [5000 * 59, 5000 * 59];
        let then = (60..120).fold(ignored, |heed, second| {
            heed.next(&look(second, [base[0], base[1] + (second - 59) * 10_000], |_| ()))
        });
        assert_eq!(is_heeded(&then), Some(true));
    }

    proptest! {
        #[test]
        fn others_pages_never_make_it_ignored_nor_as_many_as_expected_heeded(
            pages in 1u64..100_000, looks in 2u64..50
        ) {
            let run = |per_sec: [u64; 2]| (0..looks).fold(Heed::default(), |heed, second| {
                heed.next(&look(second, per_sec.map(|p| p * second), |_| ()))
            });
            prop_assert_ne!(is_heeded(&run([0, pages])), Some(false));
            prop_assert_ne!(is_heeded(&run([pages, pages])), Some(true));
        }
    }
}
