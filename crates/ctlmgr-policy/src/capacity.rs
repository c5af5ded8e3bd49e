//! How much memory there is to share out: total − host − headroom.
//!
//! *Headroom* is what the settings ask for, above the watermark at which the kernel's own reclaim
//! ends. *Host* is what the kernel and units too small to count hold and reclaim cannot give back:
//! used memory that no listed group holds, less the page cache outside of them; of that half, but no more than the
//! watermark, is taken to be in use, as in the kernel's own estimate of what is available (`si_mem_available()` in
//! mm/show_mem.c). The same for slices that have a limit of
//! their own: what they can hold, less [`SLACK`].
//!
//! Free pages on the lists of processors count with what is there of them usually ([`usually_listed`]). Seen were 1 to 53 MiB of
//! 1000, another number each second, and shares went up and down with them. To count them as free at all cost two hogs
//! a twentieth of their work: what they hold the kernel misses, and begins to take.

use ctlmgr_model::{
    Bytes, CapacityAccount, Group, Knob, MemorySettings, Millis, SliceAccount, Snapshot,
};

use crate::fade::toward;
use crate::state::State;
use crate::verdict::Party;

/// So much of a slice's limit is shared out to nobody, one part in …: where all of it is protected the kernel
/// takes from whom it likes.
const SLACK: u64 = 32;

/// How fast what is usually on the lists of processors follows what is there.
const LISTED_HALF_LIFE: Millis = Millis(30_000);

/// What the lists of processors hold, and when that was read.
pub(crate) type Listed = (Millis, Bytes);

/// What they hold usually, where that was `last`.
pub(crate) fn usually_listed(last: Option<Listed>, snapshot: &Snapshot) -> Listed {
    let (at, now) = (snapshot.at, snapshot.host.listed_free);
    let toward_now = |(was, usual)| toward(usual, now, at.since(was), LISTED_HALF_LIFE);
    (at, last.map_or(now, toward_now))
}

/// The account of a snapshot, for `demand` asked in all.
pub(crate) fn account(
    settings: &MemorySettings,
    state: &State,
    snapshot: &Snapshot,
    demand: Bytes,
) -> CapacityAccount {
    let host = &snapshot.host;
    let held: Bytes = snapshot.sharers().map(|g| g.memory.current).sum();
    let cache_inside: Bytes = snapshot.sharers().map(|g| g.memory.page_cache()).sum();
    let cache_outside = host.reclaimable_cache - cache_inside;
    let cache_outside = cache_outside - Bytes(cache_outside.0 / 2).min(host.watermark);
    let free = host.mem_free + host.listed_free;
    let listed = state.listed.map_or(host.listed_free, |(_, usual)| usual);
    let unlisted = host.mem_total + listed - free - held - cache_outside;
    // The kernel's own reclaim must stay asleep, so what it keeps free comes on top. More than half
    // of the memory idle is a slip of the pen, not a wish.
    let wanted = settings.headroom.of(host.mem_total) + host.watermark;
    let headroom = wanted.min(Bytes(host.mem_total.0 / 2));
    CapacityAccount {
        total: host.mem_total,
        host: unlisted,
        headroom,
        capacity: host.mem_total - unlisted - headroom,
        demand,
    }
}

/// Slices that may hold no more than so much, with somebody below them, the innermost first; and what is asked of the
/// host, where they let no more through than they can hold.
pub(crate) fn slices(
    state: &State,
    snapshot: &Snapshot,
    parties: &[Party<'_>],
) -> (Vec<SliceAccount>, Bytes) {
    let total = snapshot.host.mem_total;
    let limited = snapshot.ancestors.iter().filter_map(|a| Some((a, limit(state, a, total)?)));
    let mut limited: Vec<(&Group, Bytes)> = limited.collect();
    limited.sort_by_key(|(slice, _)| std::cmp::Reverse(slice.path.ancestors().count()));
    let mut demands: Vec<Bytes> = parties.iter().map(|p| p.estimate.demand).collect();
    let mut slices = Vec::with_capacity(limited.len());
    for (group, limit) in limited {
        let mut slice = below(group, limit, parties);
        let members: Vec<usize> =
            (0..parties.len()).filter(|i| slice.holds(&parties[*i].group.path)).collect();
        slice.demand = members.iter().map(|i| demands[*i]).sum();
        let mut over = slice.demand - slice.most;
        for index in members {
            let less = over.min(demands[index]);
            (demands[index], over) = (demands[index] - less, over - less);
        }
        slices.push(slice);
    }
    (slices, demands.into_iter().sum())
}

/// What others let it hold, if that is less than the host has.
fn limit(state: &State, slice: &Group, total: Bytes) -> Option<Bytes> {
    let high = slice.memory.high.bytes().filter(|_| state.ours(slice, Knob::MemoryHigh).is_none());
    let limits = slice.memory.max.bytes().into_iter().chain(high);
    limits.min().filter(|limit| *limit < total)
}

fn below(slice: &Group, limit: Bytes, parties: &[Party<'_>]) -> SliceAccount {
    // Page cache and slab that removed containers have left there go when they are in the way.
    let bound = |group: &Group| {
        let memory = &group.memory;
        memory.anon + memory.shmem + memory.locked_file + memory.kernel
    };
    let is_below =
        |p: &&Party<'_>| p.group.path != slice.path && p.group.path.is_within(&slice.path);
    let of_parties: Bytes = parties.iter().filter(is_below).map(|p| bound(p.group)).sum();
    let most = limit - (bound(slice) - of_parties);
    let capacity = most - Bytes(limit.0 / SLACK);
    SliceAccount { path: slice.path.clone(), most, capacity, demand: Bytes::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, group, host, party, settings};
    use ctlmgr_model::{CgroupPath, Limit};

    /// Two of 80 MiB in a slice of 100 in one of 150 that has a third, and one elsewhere.
    #[test]
    fn slices_let_no_more_through_than_they_can_hold_and_a_limit_above_the_host_is_none() {
        let all: Vec<_> = ["o/i/a", "o/i/b", "o/c", "d"]
            .into_iter()
            .zip(11..)
            .map(|(path, id)| {
                let mut workload = container(path, id, Bytes::mib(80), None);
                workload.group.path = CgroupPath::new(path);
                workload
            })
            .collect();
        let mut snapshot = host(Bytes::mib(1000), all.clone(), Vec::new());
        let limited = |path, mib| {
            let mut slice = group(path, 5, Bytes::mib(240));
            slice.memory.max = Limit::Bytes(Bytes::mib(mib));
            slice
        };
        let parties: Vec<Party<'_>> = all.iter().map(|w| party(w, None, 100)).collect();
        let mut asked = |ancestors: Vec<Group>| {
            snapshot.ancestors = ancestors;
            let (slices, demand) = slices(&State::default(), &snapshot, &parties);
            let demands: Vec<u64> = slices.iter().map(|s| s.demand.0 >> 20).collect();
            (demands, demand.0 >> 20)
        };
        let mut inner = limited("o/i", 100);
        inner.memory.anon = Bytes::mib(160);
        assert_eq!(asked(vec![limited("o", 150), inner]), (vec![160, 180], 230));
        assert_eq!(asked(vec![limited("o", 5000)]), (vec![], 320));
    }

    #[test]
    fn headroom_lies_above_the_watermark_of_the_kernels_own_reclaim() {
        let mut snapshot = host(Bytes::mib(1000), Vec::new(), Vec::new());
        let of = |s: &Snapshot| account(&settings().memory, &State::default(), s, Bytes::ZERO);
        assert_eq!(of(&snapshot).headroom, Bytes::mib(30));
        snapshot.host.watermark = Bytes::mib(30);
        assert_eq!(of(&snapshot).headroom, Bytes::mib(60));
        assert_eq!(of(&snapshot).capacity, Bytes::mib(1000 - 100 - 60));
        snapshot.host.watermark = Bytes::mib(900);
        assert_eq!(of(&snapshot).headroom, Bytes::mib(500));
    }

    #[test]
    fn free_pages_on_the_lists_of_processors_count_with_what_is_there_usually() {
        let mut snapshot = host(Bytes::mib(1000), Vec::new(), Vec::new());
        let free = snapshot.host.mem_free;
        let mut state = State::default();
        let mut next = |seconds: u64, listed: u64| {
            snapshot.at = Millis(snapshot.at.0 + seconds * 1000);
            snapshot.host.listed_free = Bytes::mib(listed);
            snapshot.host.mem_free = free - Bytes::mib(listed);
            state.listed = Some(usually_listed(state.listed, &snapshot));
            account(&settings().memory, &state, &snapshot, Bytes::ZERO).capacity.0 >> 20
        };
        let first = next(0, 20);
        assert_eq!(next(1, 50), first - 1, "hardly less at once");
        assert!(next(1, 0).abs_diff(first) <= 1);
        assert!(next(600, 50).abs_diff(first - 30) <= 1, "but in the end");
    }

    #[test]
    fn of_page_cache_that_no_listed_group_holds_a_part_is_in_use() {
        let mut snapshot = host(Bytes::mib(1000), Vec::new(), Vec::new());
        let mut with = |cache, watermark| {
            (snapshot.host.reclaimable_cache, snapshot.host.watermark) =
                (Bytes::mib(cache), Bytes::mib(watermark));
            account(&settings().memory, &State::default(), &snapshot, Bytes::ZERO).host
        };
        let none = with(0, 30);
        assert_eq!(none - with(40, 30), Bytes::mib(20), "half");
        assert_eq!(none - with(90, 30), Bytes::mib(60), "all but as much as the watermark");
    }
}
