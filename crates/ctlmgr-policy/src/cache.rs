//! Page cache that is needed, by what is missed of it (see [`crate::demand`]).

use ctlmgr_model::{Bytes, Io};

use crate::demand::{Estimate, Look, RETURN_HORIZON_SECS};

/// A set of page cache is taken to miss what comes back in this time, in seconds: less than it takes to
/// touch a warm set once, so that nothing is asked for twice.
const GROWTH_SECS: u64 = 2;
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
