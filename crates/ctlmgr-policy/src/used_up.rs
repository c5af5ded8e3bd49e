//! Whether memory is used up.
//!
//! # Problem
//! Without swap, or where that is full, nothing but page cache can be taken. Of that `MemAvailable` counts as available
//! what somebody needs, too: a service that lives by page cache loses nearly all of it before nothing is available.
//!
//! # Approach
//! Page cache that somebody is due is counted as theirs, and what workloads miss of it as gone.
//!
//! # Terms
//! *Due*: what somebody needs within its share, beside what it holds that cannot be dropped. *Missed*: what is due to a
//! workload and was taken from it, to swap or of page cache within its promise, as far as it would be back within the horizon of
//! [`crate::demand`]; where it feels that, and it is a good part ([`PART`]) of what it may keep and no trifle. *Left*: what is
//! free, and page cache that nobody is due, less what is missed. Where all have their shares, that is headroom; where
//! somebody holds what cannot be taken from it, it is less by as much, as soon as others miss it.
//!
//! # Algorithm
//! Memory is contended and there is no swap; and what is available falls below the kernel's watermark, until as much is as
//! should be free; or somebody misses something, hardly more than headroom is free (later: twice as much), and what is left falls below the watermark,
//! until it has come back half of the way to headroom.
//!
//! # Properties
//! Not while there is swap, nor without contention; page cache that nobody is due keeps it away; and, while some is
//! available, so does it that nobody misses anything. What one gave up by itself is not missed, nor what it cannot have for a limit
//! of its own or of its slice.

use ctlmgr_model::{
    Bytes, CapacityAccount, Group, HostSample, Knob, Millis, SliceAccount, Verdict, VerdictKind,
};

use crate::demand::RETURN_HORIZON_SECS;
use crate::scene::feels_it;
use crate::state::State;
use crate::swap::has_swap;
use crate::verdict::Party;

/// Who lacks less than one part in so many of what it may keep is no reason to stop anybody; nor is who lacks less than
/// what frees nothing.
const PART: u64 = 8;
pub(crate) const LEAST: Bytes = Bytes::mib(32);

/// Page cache that is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// What they have of it.
    kept: Bytes,
    /// What they miss.
    missed: Bytes,
}

/// What all are due.
pub(crate) fn due(
    state: &State,
    parties: &[Party<'_>],
    verdicts: &[Verdict],
    slices: &[SliceAccount],
) -> Due {
    let all: Vec<&Group> = parties.iter().map(|p| p.group).collect();
    parties.iter().zip(verdicts).fold(Due::default(), |sum, (party, verdict)| {
        let (memory, share) = (&party.group.memory, verdict.share);
        let kept = (may_keep(state, party, share) - fixed(party)).min(memory.page_cache());
        let missed = missed(state, party, share);
        let has_room = without_room(slices, &all, party.group, missed).is_empty();
        let missed = if has_room { missed } else { Bytes::ZERO };
        Due { kept: sum.kept + kept, missed: sum.missed + missed }
    })
}

/// What somebody misses that has this share. Units have one, too, but nobody is stopped for their sake.
pub(crate) fn missed(state: &State, party: &Party<'_>, share: Bytes) -> Bytes {
    let (memory, estimate) = (&party.group.memory, &party.estimate);
    let may_keep = may_keep(state, party, share);
    let lacks = may_keep - fixed(party) - memory.page_cache();
    // For page cache beyond a promise nobody is stopped.
    let promised = party.entitlement.promise.unwrap_or_default();
    let cache = (estimate.had_cache - memory.page_cache() - memory.locked_file)
        .min(promised - fixed(party) - memory.page_cache());
    // What it gave up by itself is in its demand for a while, and nowhere else.
    let taken = cache + (memory.swap - memory.swapcached);
    let back = estimate.refaults_per_sec.saturating_mul(Bytes::PAGE.0 * RETURN_HORIZON_SECS);
    let missed = lacks.min(taken).min(Bytes(back));
    let is_meant = party.kind == VerdictKind::Workload && party.entitlement.managed;
    let is_much = missed >= LEAST && missed.0 >= may_keep.0 / PART;
    if is_meant && is_much && feels_it(estimate) { missed } else { Bytes::ZERO }
}

/// Slices above a group that have no room for so much more, whoever outside gives some; `all` is who holds what they hold.
pub(crate) fn without_room<'s>(
    slices: &'s [SliceAccount],
    all: &[&Group],
    group: &Group,
    more: Bytes,
) -> Vec<&'s SliceAccount> {
    let held = |slice: &SliceAccount| -> Bytes {
        all.iter().filter(|g| slice.holds(&g.path)).map(|g| g.memory.current).sum()
    };
    let above = slices.iter().filter(|slice| slice.holds(&group.path));
    above.filter(|slice| held(slice) + more > slice.most).collect()
}

/// What it needs within its share and a limit of its own.
fn may_keep(state: &State, party: &Party<'_>, share: Bytes) -> Bytes {
    let is_ours = state.ours(party.group, Knob::MemoryHigh).is_some();
    let own = party.group.memory.high.bytes().filter(|_| !is_ours);
    share.min(party.estimate.demand).min(own.unwrap_or(share))
}

/// What of it cannot be dropped.
fn fixed(party: &Party<'_>) -> Bytes {
    let memory = &party.group.memory;
    memory.working_set() - memory.active_file
}

/// Whether memory is used up, where it was so `since`.
pub(crate) fn is_used_up(
    account: &CapacityAccount,
    host: &HostSample,
    due: Due,
    since: Option<Millis>,
) -> bool {
    // It hovers about the watermark while page cache is dropped and read again.
    let (least, most) = (host.watermark, host.watermark.max(account.headroom));
    let until = |enough: Bytes| if since.is_some() { enough } else { least };
    let left = host.mem_free + host.reclaimable_cache - due.kept - due.missed;
    // Who has room to read again what it lost misses nothing that others have. The kernel frees more than is missing now and then.
    let is_scarce = host.mem_free < most + Bytes(if since.is_some() { most.0 } else { most.0 / 4 });
    let is_missed = due.missed > Bytes::ZERO
        && is_scarce
        && left < until(Bytes(u64::midpoint(least.0, most.0)));
    account.is_contended() && !has_swap(host) && (host.mem_available < until(most) || is_missed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::Estimate;
    use crate::testing::{self, container};
    use crate::verdict::verdicts;
    use ctlmgr_model::{CgroupPath, Controller, Limit, Workload};

    fn mib(n: u64) -> Bytes {
        Bytes::mib(n)
    }

    /// A host of 1000 MiB that is contended, with a watermark of 10 MiB and without swap.
    fn contended() -> (CapacityAccount, HostSample) {
        let [total, host, headroom, capacity, demand] = [1000, 100, 100, 800, 900].map(mib);
        let account = CapacityAccount { total, host, headroom, capacity, demand };
        let mut host = testing::host(total, Vec::new(), Vec::new()).host;
        (host.watermark, host.swap_free) = (mib(10), Bytes::ZERO);
        (account, host)
    }

    const SINCE: Option<Millis> = Some(Millis(0));

    #[test]
    fn what_hovers_about_the_watermark_is_used_up_without_a_break_and_page_cache_is_no_distress() {
        let (account, mut host) = contended();
        let mut is_so = |available, since| {
            host.mem_available = mib(available);
            is_used_up(&account, &host, Due::default(), since)
        };
        assert!(is_so(9, None) && !is_so(10, None));
        assert!(is_so(99, SINCE) && !is_so(100, SINCE));
        host.swap_free = host.mem_total;
        host.mem_available = mib(1);
        assert!(!is_used_up(&account, &host, Due::default(), None));
    }

    #[test]
    fn page_cache_that_is_due_and_missed_is_not_there_to_be_had() {
        let (account, mut host) = contended();
        (host.mem_available, host.mem_free, host.reclaimable_cache) = (mib(500), mib(20), mib(450));
        let is_so = |kept, missed, since| {
            let due = Due { kept: mib(kept), missed: mib(missed) };
            is_used_up(&account, &host, due, since)
        };
        assert!(is_so(450, 11, None) && !is_so(450, 10, None));
        assert!(!is_so(400, 11, None), "some of the rest can be had");
        assert!(is_so(400, 16, SINCE) && !is_so(400, 15, SINCE), "half of the way to headroom");
        assert!(!is_so(470, 0, None) && !is_so(470, 0, SINCE), "nobody misses anything");
        host.mem_free = mib(125);
        let due = Due { kept: mib(450), missed: mib(150) };
        assert!(!is_used_up(&account, &host, due, None), "it only has to be read again");
        host.mem_free = mib(124);
        assert!(is_used_up(&account, &host, due, None));
        host.mem_free = mib(145);
        assert!(is_used_up(&account, &host, due, SINCE));
    }

    /// What a workload is due whose need, share and page cache are these, in MiB, beside 100 MiB of other memory; in a slice
    /// that may hold so much.
    fn due_in(
        most: u64,
        [need, share, cache]: [u64; 3],
        but: impl FnOnce(&mut Workload, &mut Estimate, &mut VerdictKind),
    ) -> Due {
        let mut workload = container("w", 1, mib(100), Some(mib(500)));
        workload.group.memory.inactive_file = mib(cache);
        workload.group.memory.current = mib(100 + cache + 50);
        let mut estimate = testing::party(&workload, None, 100).estimate;
        (estimate.demand, estimate.had_cache) = (mib(need), mib(400));
        estimate.refaults_per_sec = 1000;
        let mut kind = VerdictKind::Workload;
        but(&mut workload, &mut estimate, &mut kind);
        let party = Party { kind, estimate, ..testing::party(&workload, None, 100) };
        let (account, parties) = (contended().0, [party]);
        let shares = Controller::Shares;
        let mut verdicts = verdicts(shares, (&account, &[]), &parties, &mut Vec::new());
        verdicts[0].share = mib(share);
        let slice = SliceAccount {
            path: CgroupPath::new("a.slice"),
            most: mib(most),
            capacity: mib(most),
            demand: mib(5000),
        };
        due(&State::default(), &parties, &verdicts, &[slice])
    }

    #[test]
    fn what_is_due_is_need_within_the_share_beside_what_cannot_be_dropped() {
        let of = |sizes| due_in(5000, sizes, |_, _, _| ());
        let due = |kept, missed| Due { kept: mib(kept), missed: mib(missed) };
        assert_eq!(of([500, 500, 400]), due(400, 0), "slab is dropped, too");
        assert_eq!(of([500, 500, 300]), due(300, 100));
        assert_eq!(of([500, 500, 340]), due(340, 0), "a trifle");
        assert_eq!(of([200, 200, 69]), due(69, 0), "little, though a good part of its share");
        assert_eq!(of([500, 300, 400]), due(200, 0), "the rest is beyond its share");
        assert_eq!(of([200, 500, 400]), due(100, 0), "nobody needs the rest");
    }

    #[test]
    fn missed_is_what_was_taken_and_is_asked_for_and_could_be_had() {
        let sizes = [500, 500, 300];
        let missed = |most, but: fn(&mut Workload, &mut Estimate, &mut VerdictKind)| {
            due_in(most, sizes, but).missed
        };
        assert_eq!(missed(550, |_, _, _| ()), mib(100));
        assert_eq!(missed(549, |_, _, _| ()), mib(0), "its slice has no room for it");
        assert_eq!(missed(550, |_, e, _| e.refaults_per_sec = 100), mib(0), "it does not feel it");
        assert_eq!(missed(550, |_, e, _| e.refaults_per_sec = 256), mib(0), "nor in a minute");
        assert_eq!(missed(550, |_, e, _| e.had_cache = mib(300)), mib(0), "it gave it up itself");
        assert_eq!(missed(550, |_, _, kind| *kind = VerdictKind::Bystander), mib(0));
        let promised_less = |w: &mut Workload, _: &mut Estimate, _: &mut VerdictKind| {
            *w = Workload { group: w.group.clone(), ..container("w", 1, mib(100), Some(mib(470))) };
        };
        assert_eq!(missed(550, promised_less), mib(70), "page cache beyond a promise is no reason");
        let with_limit = |w: &mut Workload, _: &mut Estimate, _: &mut VerdictKind| {
            w.group.memory.high = Limit::Bytes(mib(440));
        };
        assert_eq!(missed(550, with_limit), mib(0), "it may not have more");
    }
}
