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
//! *Due*: what somebody needs within its share, beside what it holds that cannot be dropped. *Missed*: what is due to workloads and not
//! there, of those who feel it and lack a good part ([`PART`]) of what they may keep. *Left*: what is free, and page cache that nobody is due, less what is missed. Where all have
//! their shares, that is headroom; where somebody holds what cannot be taken from it, it is less by as much, as soon as
//! others miss it.
//!
//! # Algorithm
//! Memory is contended and there is no swap; and what is available falls below the kernel's watermark, until as much is as
//! should be free; or somebody misses something, and what is left falls below the watermark, until it has come back half of
//! the way to headroom.
//!
//! # Properties
//! Not while there is swap, nor without contention; page cache that nobody is due keeps it away; so does, where some is
//! available, that nobody misses anything.

use ctlmgr_model::{
    Bytes, CapacityAccount, HostSample, Millis, SliceAccount, Verdict, VerdictKind,
};

use crate::scene::feels_it;
use crate::swap::has_swap;
use crate::verdict::Party;

/// Who lacks less than one part in so many of what it may keep is no reason to stop anybody.
const PART: u64 = 8;

/// Page cache that is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// What they have of it.
    kept: Bytes,
    /// What they miss of it.
    missed: Bytes,
}

/// What all are due.
pub(crate) fn due(parties: &[Party<'_>], verdicts: &[Verdict], slices: &[SliceAccount]) -> Due {
    // Units have a share, too, but nobody is stopped for their sake.
    let is_meant = |p: &Party<'_>| p.kind == VerdictKind::Workload && p.entitlement.managed;
    parties.iter().zip(verdicts).fold(Due::default(), |sum, (party, verdict)| {
        let memory = &party.group.memory;
        let fixed = memory.working_set() - memory.active_file;
        let may_keep = verdict.share.min(verdict.demand);
        let kept = (may_keep - fixed).min(memory.page_cache());
        // What a full slice holds back is missing for want of nothing elsewhere.
        let is_held_back = slices.iter().any(|slice| slice.holds_back(&party.group.path));
        let lacks = may_keep - fixed - memory.page_cache();
        let is_missed = lacks.0 >= may_keep.0 / PART && feels_it(&party.estimate);
        let counts = is_meant(party) && is_missed && !is_held_back;
        let missed = if counts { lacks } else { Bytes::ZERO };
        Due { kept: sum.kept + kept, missed: sum.missed + missed }
    })
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
    let is_missed = due.missed > Bytes::ZERO && left < until(Bytes(u64::midpoint(least.0, most.0)));
    account.is_contended() && !has_swap(host) && (host.mem_available < until(most) || is_missed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, container};
    use crate::verdict::verdicts;
    use ctlmgr_model::{CgroupPath, Controller};

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
    }

    /// A workload whose need and share are these, in MiB, and which has so much of page cache beside 100 MiB of other memory.
    fn due_of([need, share, cache]: [u64; 3], is_felt: bool, kind: VerdictKind) -> Due {
        let mut workload = container("w", 1, mib(100), None);
        workload.group.memory.inactive_file = mib(cache);
        workload.group.memory.current = mib(100 + cache + 50);
        let mut party = testing::party(&workload, None, 100);
        party.kind = kind;
        party.estimate.refaults_per_sec = if is_felt { 1000 } else { 0 };
        let (account, parties) = (contended().0, [party]);
        let shares = Controller::Shares;
        let mut verdicts = verdicts(shares, (&account, &[]), &parties, &mut Vec::new());
        (verdicts[0].demand, verdicts[0].share) = (mib(need), mib(share));
        let slice = SliceAccount {
            path: CgroupPath::new("a.slice"),
            most: mib(400),
            capacity: mib(300),
            demand: mib(500),
        };
        let held_back = due(&parties, &verdicts, &[slice]);
        assert_eq!(held_back.missed, Bytes::ZERO, "what its slice holds back nobody else has");
        due(&parties, &verdicts, &[])
    }

    #[test]
    fn what_is_due_is_need_within_the_share_beside_what_cannot_be_dropped() {
        let of = |sizes, is_felt| due_of(sizes, is_felt, VerdictKind::Workload);
        let due = |kept, missed| Due { kept: mib(kept), missed: mib(missed) };
        assert_eq!(of([500, 500, 400], true), due(400, 0), "slab is dropped, too");
        assert_eq!(of([500, 500, 300], true), due(300, 100));
        assert_eq!(of([500, 500, 300], false), due(300, 0), "it does not feel it");
        assert_eq!(of([500, 500, 340], true), due(340, 0), "a trifle");
        assert_eq!(of([500, 300, 400], true), due(200, 0), "the rest is beyond its share");
        assert_eq!(of([200, 500, 400], true), due(100, 0), "nobody needs the rest");
        assert_eq!(due_of([500, 500, 300], true, VerdictKind::Bystander), due(300, 0));
    }
}
