//! Page cache that is needed, by what is missed of it (see [`crate::demand`]).

use ctlmgr_model::{Bytes, Io, LruFlavour, Snapshot};

use crate::demand::{Estimate, Look, RETURN_HORIZON_SECS, per_sec};

/// A set of page cache is taken to miss what comes back in this time, in seconds: less than it takes to
/// touch a warm set once, so that nothing is asked for twice.
const GROWTH_SECS: u64 = 2;
/// Where less than one part in so many of all page cache that came back was counted as of the working set, the kernel
/// does not say; fewer pages (16 MiB) say nothing.
const SAID: u64 = 16;
const FEW_PAGES: u64 = 4096;

/// Whether the kernel says what of the page cache that comes back was of the working set. MGLRU of 6.12 counts all that
/// comes back soon; that of newer kernels (seen: 7.3, after "mm/mglru: rework workingset protection") only what is mapped, and so
/// nothing of who reads by file descriptor.
pub(crate) fn is_said(snapshot: &Snapshot) -> bool {
    let groups = snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.bystanders);
    let counts = groups.map(|g| (g.memory.activate_file, g.memory.refault_file));
    let (activated, all) = counts
        .fold((0u64, 0u64), |sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)));
    let is_mglru = snapshot.host.lru == Some(LruFlavour::Mglru);
    !is_mglru || all < FEW_PAGES || activated >= all / SAID
}

/// Pages of page cache that come back per second and were of the working set, as far as the kernel says so.
pub(crate) fn coming_back(look: &Look<'_>, last: &Estimate) -> u64 {
    let (memory, passed) = (look.memory, look.at.since(last.at));
    match (look.says_cache, last.activated) {
        (true, Some(before)) => per_sec(before, memory.activate_file, passed),
        (true, None) => 0,
        (false, _) => {
            let before = last.refaults.saturating_sub(last.refaults_anon);
            per_sec(before, memory.refault_file, passed)
        }
    }
}

/// Page cache on the inactive list, and beyond memory, that is missed when it is not there: what is needed of it, and all.
pub(crate) fn needed(look: &Look<'_>, last: &Estimate, activated_per_sec: u64) -> (Bytes, Bytes) {
    let memory = look.memory;
    let within = |secs: u64| Bytes(activated_per_sec.saturating_mul(Bytes::PAGE.0 * secs));
    let missed = within(RETURN_HORIZON_SECS).min(memory.inactive_file + within(GROWTH_SECS));
    let promise = look.promise.unwrap_or_default();
    let beside = |due: Bytes| due - memory.working_set();
    let needed = match is_scan(&last.seen.io, &look.seen.io) {
        true => missed.min(beside(last.basis.max(promise))),
        false => missed,
    };
    // Whoever misses some of what it was promised is not asked how much more of it.
    let kept =
        if activated_per_sec > 0 { memory.inactive_file.min(beside(promise)) } else { Bytes::ZERO };
    (needed.max(kept), missed)
}

/// Requests of at least this size in the mean are read ahead of who reads in sequence (16 KiB is the least that
/// readahead begins with, 128 KiB the most by default).
const SEQUENTIAL: Bytes = Bytes(48 << 10);
/// Fewer reads say nothing of how it reads.
const FEW_READS: u64 = 16;

/// Whether what was read since was read in sequence.
fn is_scan(before: &Io, now: &Io) -> bool {
    let reads = now.reads.saturating_sub(before.reads);
    reads >= FEW_READS && (now.read - before.read).0 / reads >= SEQUENTIAL.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, group, host};

    /// What the guest counted after a minute in which a container lived by page cache that was taken from it.
    #[test]
    fn a_kernel_that_counts_only_what_is_mapped_does_not_say() {
        let said = |lru, [web, unit]: [(u64, u64); 2]| {
            let mut workload = container("web", 11, Bytes::mib(50), None);
            let mut unit_group = group("system.slice/docker.service", 21, Bytes::mib(50));
            for (memory, (activated, all)) in
                [(&mut workload.group.memory, web), (&mut unit_group.memory, unit)]
            {
                (memory.activate_file, memory.refault_file) = (activated, all);
            }
            let mut snapshot = host(Bytes::mib(1000), vec![workload], vec![unit_group]);
            snapshot.host.lru = lru;
            is_said(&snapshot)
        };
        let mglru = Some(LruFlavour::Mglru);
        assert!(!said(mglru, [(0, 224_137), (2291, 165_271)]), "7.3");
        assert!(said(mglru, [(126_334, 144_417), (849, 865)]), "6.12");
        assert!(said(mglru, [(0, 3000), (0, 1000)]), "too little to say");
        assert!(said(Some(LruFlavour::Classic), [(0, 224_137), (0, 0)]), "it comes back late");
    }
}
