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
//! *Within*: of what it uses no more than a [`NEAR`]th is above its memory.low (which is not written for every little
//! change), its ancestors cover that, and memory.min is not what keeps it. *Stolen*: pages that background reclaim got
//! (`pgsteal_kswapd`, of a cgroup and of the host). *Takeable*: what reclaim could take of it. *Expected*: what of all that
//! was stolen would be from those within, had the kernel taken from all alike.
//!
//! # Algorithm
//! Between two looks add what was stolen from those who were within at both, but for what each had above its memory.low,
//! and what was expected to be. A part of [`IGNORED`] or more means that memory.low is ignored, once [`KNOWN`] pages were expected;
//! one of [`HEEDED`] or less that it is heeded, once [`SURE`] were: to find nothing taken takes more looking. Between the
//! two it stays at what was known. Beyond [`FADED`] pages expected all that was seen counts half. Another page aging begins anew.
//! Where others have little to take from, or swap is full, a look says little and is left out.
//!
//! # Properties
//! What was stolen from others alone never makes it ignored; as much as is expected never heeded; without counters nothing is known.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_model::{
    Bytes, CgroupId, CgroupPath, Group, Heeding, HostSample, LruFlavour, Millis, Percent, Snapshot,
};
use serde::{Deserialize, Serialize};

use crate::swap::has_swap;

/// Pages expected before anything is known: 8 MiB.
const KNOWN: u64 = 2048;
/// Pages expected before memory.low can be known to be heeded: 64 MiB.
const SURE: u64 = 16_384;
/// Pages expected beyond which all that was seen counts half: 256 MiB.
const FADED: u64 = 65_536;
/// Of what was expected.
const IGNORED: Percent = Percent(30);
const HEEDED: Percent = Percent(10);
/// Others must have one part in so many of what there is to take.
const CHOICE: u64 = 8;
/// Who uses more than its memory.low by one part in so many is within it.
/// Far less than what [`crate::room`] leaves unprotected, which the kernel takes by right, again and again.
const NEAR: u64 = 64;
/// Looks further apart than this say nothing: who was within at both may not have been so between them.
const APART: Millis = Millis(15_000);

/// What was seen of it so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Heed {
    last: Option<Look>,
    /// How pages were aged meanwhile.
    aging: Option<u32>,
    /// Pages.
    stolen: u64,
    expected: u64,
    is_heeded: Option<bool>,
}

/// Counters at the last look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Look {
    at: Millis,
    /// Of the host.
    all: u64,
    /// Of those within.
    within: BTreeMap<CgroupId, Within>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Within {
    stolen: u64,
    /// Pages that it has above its memory.low.
    above: u64,
}

impl Heed {
    /// After one more look.
    pub(crate) fn next(self, snapshot: &Snapshot) -> Heed {
        let aging = snapshot.host.lru_gen;
        let before = if aging == self.aging { self } else { Heed { aging, ..Heed::default() } };
        let covered = covered(snapshot);
        let within: Vec<&Group> = snapshot.sharers().filter(|g| is_within(g, &covered)).collect();
        let now = snapshot.host.stolen.map(|all| Look {
            at: snapshot.at,
            all,
            within: within.iter().filter_map(|g| Some((g.id, look_at(g)?))).collect(),
        });
        let seen = before.last.as_ref().zip(now.as_ref()).map(|(last, now)| {
            let seen = |g: &&Group| last.within.contains_key(&g.id);
            let takeable = within.iter().copied().filter(seen).map(takeable).sum();
            last.until(now, takeable, snapshot)
        });
        let (stolen, expected) = seen.unwrap_or_default();
        let stolen = before.stolen.saturating_add(stolen);
        let expected = before.expected.saturating_add(expected);
        let half = if expected > FADED { 2 } else { 1 };
        Heed { last: now, stolen: stolen / half, expected: expected / half, ..before }.judged()
    }

    /// Of a host on which it was seen that memory.low is ignored.
    #[cfg(test)]
    pub(crate) fn ignored(host: &HostSample) -> Heed {
        Heed { aging: host.lru_gen, is_heeded: Some(false), ..Heed::default() }
    }

    fn judged(self) -> Heed {
        let part = |of: Percent| u128::from(self.expected) * u128::from(of.0) / 100;
        let stolen = u128::from(self.stolen);
        let is_heeded = match () {
            () if self.expected >= KNOWN && stolen >= part(IGNORED) => Some(false),
            () if self.expected >= SURE && stolen <= part(HEEDED) => Some(true),
            () => self.is_heeded,
        };
        Heed { is_heeded, ..self }
    }

    /// What was seen; `None` before it is enough.
    pub(crate) fn seen(&self) -> Option<Heeding> {
        let bytes = |pages: u64| Bytes(pages.saturating_mul(Bytes::PAGE.0));
        let (taken, expected) = (bytes(self.stolen), bytes(self.expected));
        let seen = Heeding { taken, expected, is_heeded: self.is_heeded };
        (self.expected >= KNOWN || self.is_heeded.is_some()).then_some(seen)
    }

    /// Whether memory.low is ignored: by what was seen, and before that where MGLRU ages pages.
    pub(crate) fn is_ignored(&self, host: &HostSample) -> bool {
        self.is_heeded.map_or(host.lru == Some(LruFlavour::Mglru), |is_heeded| !is_heeded)
    }
}

impl Look {
    /// Pages stolen until `now` from those within at both, of whom so much could be taken, and expected to be.
    fn until(&self, now: &Look, theirs: Bytes, snapshot: &Snapshot) -> (u64, u64) {
        let cache: Bytes = snapshot.sharers().map(|g| g.memory.page_cache()).sum();
        let elsewhere = snapshot.host.reclaimable_cache - cache;
        let all = snapshot.sharers().map(takeable).fold(elsewhere, |sum, one| sum + one);
        let has_choice = all - theirs >= Bytes(all.0 / CHOICE) && has_swap(&snapshot.host);
        if !has_choice || now.at.since(self.at) > APART {
            return (0, 0);
        }
        let taken = now.all.saturating_sub(self.all);
        let expected = u128::from(taken) * u128::from(theirs.0) / u128::from(all.0.max(1));
        let stolen = self.within.iter().filter_map(|(id, was)| {
            let stolen = now.within.get(id)?.stolen.saturating_sub(was.stolen);
            Some(stolen.saturating_sub(was.above))
        });
        let expected = u64::try_from(expected).unwrap_or(u64::MAX);
        (stolen.fold(0, u64::saturating_add), expected)
    }
}

fn look_at(group: &Group) -> Option<Within> {
    let memory = &group.memory;
    let above = (memory.current - memory.low).0 / Bytes::PAGE.0;
    memory.stolen.map(|stolen| Within { stolen, above })
}

/// Page cache, and what may go to swap, that memory.min does not keep.
fn takeable(group: &Group) -> Bytes {
    let memory = &group.memory;
    let anon = memory.swappable();
    let anon = memory.swap_left().map_or(anon, |left| anon.min(left));
    (memory.page_cache() + anon).min(memory.current - memory.min)
}

/// Slices that can pass on all that is claimed below them.
fn covered(snapshot: &Snapshot) -> BTreeSet<&CgroupPath> {
    let mut claimed: BTreeMap<CgroupPath, Bytes> = BTreeMap::new();
    for group in snapshot.sharers() {
        for above in group.path.ancestors() {
            let claimed = claimed.entry(above).or_default();
            *claimed = *claimed + group.memory.low.min(group.memory.current);
        }
    }
    let below = |a: &Group| claimed.get(&a.path).copied().unwrap_or_default();
    let covers = |a: &&Group| a.memory.low >= below(a);
    snapshot.ancestors.iter().filter(covers).map(|a| &a.path).collect()
}

fn is_within(group: &Group, covered: &BTreeSet<&CgroupPath>) -> bool {
    let memory = &group.memory;
    let most = memory.low + Bytes(memory.low.0 / NEAR);
    let is_low = memory.min < memory.current && memory.current <= most;
    is_low && group.path.ancestors().all(|path| covered.contains(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, host};
    use ctlmgr_model::Limit;
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
        assert_eq!(
            is_heeded(&after([1, 99], |_| ())),
            None,
            "to find nothing taken takes more looking"
        );
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
        // What lies above it may be taken.
        let near = after([250, 750], |s| s.workloads[0].group.memory.low = Bytes::mib(399));
        assert_eq!(is_heeded(&near), Some(true));
        let more = after([850, 850], |s| s.workloads[0].group.memory.low = Bytes::mib(399));
        assert_eq!(is_heeded(&more), Some(false));
        assert_eq!(after(all, |s| s.workloads[0].group.memory.min = Bytes::mib(400)).seen(), None);
        assert_eq!(after(all, |s| s.workloads[0].group.memory.stolen = None).seen(), None);
        assert_eq!(after(all, |s| s.host.stolen = None).seen(), None);
        // All that it has beyond its memory.min is locked, or hard.
        let stuck = |min: u64| {
            after([0, 2000], |s| {
                let memory = &mut s.workloads[0].group.memory;
                (memory.locked, memory.min) = (Bytes::mib(200), Bytes::mib(min));
            })
        };
        assert_eq!(stuck(0), stuck(200), "what is hard may be what is locked");
        assert!(stuck(399).expected < stuck(0).expected / 50);
        assert_eq!(
            after(all, |s| s.workloads[0].group.memory.swap_max = Limit::Bytes(Bytes(0))).seen(),
            None
        );
        // Where others have little.
        assert_eq!(after(all, |s| s.host.swap_free = Bytes::ZERO).seen(), None);
        assert_eq!(after(all, |s| s.workloads[1].group.memory = Default::default()).seen(), None);
        assert_eq!(after(all, |s| s.at = Millis(s.at.0 * 60)).seen(), None, "looks too far apart");
    }

    #[test]
    fn it_stays_at_what_was_known_until_the_other_is_seen_and_another_aging_begins_anew() {
        let ignored = after([500, 500], |_| ());
        let [base, _] = [500 * 59, 0];
        let then = |kept: u64, looks: u64| {
            (60..60 + looks).fold(ignored.clone(), |heed, second| {
                let more = second - 59;
                heed.next(&look(second, [base + kept * more, base + 2000 * more], |_| ()))
            })
        };
        assert_eq!(is_heeded(&then(200, 400)), Some(false), "a fifth of what is expected");
        assert_eq!(is_heeded(&then(0, 400)), Some(true));
        let classic = ignored.next(&look(60, [base, base], |s| s.host.lru_gen = Some(0)));
        assert_eq!(classic.seen(), None);
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
