//! Page cache that is needed, by what is missed of it (see [`crate::demand`]).

use ctlmgr_model::{Bytes, Io, LruFlavour, Millis, Snapshot};

use crate::cache_probe::{CacheProbe, Counts};
use crate::claim::{Claim, Seen};
use crate::demand::{Estimate, IN_USE, Look, MISSED, RETURN_HORIZON_SECS, per_sec};
use crate::fade::toward;

/// A set of page cache is taken to miss what comes back in this time, in seconds: less than it takes to
/// touch a warm set once, so that nothing is asked for twice.
const GROWTH_SECS: u64 = 2;
/// Of what is known to be away all that comes back in this time, in seconds, is asked for: two that missed a tenth of their sets
/// would have had that back in three to twelve.
const SOON_SECS: u64 = 15;
/// Half of the page cache that one had and misses nothing of is forgotten after so long.
const HAD_HALF_LIFE: Millis = Millis(60_000);
/// What is missed of page cache beyond a promise is forgotten by half after so long, as by default one earns: who does not get it
/// back while it reads has no claim to it for good.
const CLAIM_HALF_LIFE: Millis = Millis(600_000);
/// One part in so many of what one had is noticed. Who misses a sixteenth of what it reads all the time does a third less, and where
/// a fault takes milliseconds one that misses a fiftieth does a third less, too.
const NOTICEABLE: u64 = 512;
/// Less is none, unless it is one part in [`SIZEABLE`]: what the kernel counts for a cgroup is behind by as much, and what is deleted is away, too.
const TRIFLE: Bytes = Bytes::mib(2);
const SIZEABLE: u64 = 64;
/// What is away beside what is on trial, one part in so many, is none: a quarter of a trial.
const UNNOTICED: u64 = 128;
/// What goes with page cache is one part in so many of it at most: of each block of 4 KiB that was written a buffer head of 104
/// bytes, and of 64 pages a node of 576.
const WITH_IT: u64 = 32;
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
fn coming_back(look: &Look<'_>, last: &Estimate) -> u64 {
    let (memory, passed) = (look.memory, look.at.since(last.at));
    match (look.says_cache, last.activated) {
        (true, Some(before)) => per_sec(before, memory.activate_file, passed),
        (true, None) => 0,
        (false, _) => refaults_per_sec(look, last),
    }
}

/// Pages of page cache that come back per second, soon or late.
fn refaults_per_sec(look: &Look<'_>, last: &Estimate) -> u64 {
    per_sec(0, refaults(look, last), look.at.since(last.at))
}

/// The same since the last look.
fn refaults(look: &Look<'_>, last: &Estimate) -> u64 {
    let before = last.refaults.saturating_sub(last.refaults_anon);
    look.memory.refault_file.saturating_sub(before)
}

/// What of page cache is needed, and what there was of it.
pub(crate) struct Cache {
    /// On the inactive list, and beyond memory, what is missed when it is not there.
    pub needed: Bytes,
    /// The same of one that reads in sequence, too.
    pub missed: Bytes,
    /// Kernel memory that goes with what is needed of the page cache that is there, and is freed with it only.
    pub with_it: Bytes,
    /// Page cache that it has, or had before some of it was taken that it misses.
    pub had: Bytes,
    /// What of it is in use, as far as anybody knows.
    pub claim: Claim,
    /// The last probe of it, and what came back of that since the last look.
    pub probe: CacheProbe,
    pub probed: Bytes,
    /// Whether it reads in sequence just now: what comes back of that is nothing that one uses (but programs of units are read ahead, too).
    pub is_scan: bool,
}

/// What of the page cache is needed of one that has so much in swap `returning`, and could show for so long (`awake`) what it
/// misses.
pub(crate) fn estimate(look: &Look<'_>, last: &Estimate, returning: Bytes, awake: Millis) -> Cache {
    let (memory, activated_per_sec) = (look.memory, coming_back(look, last));
    let is_scan = is_scan(&last.seen.io, &look.seen.io);
    let late = refaults_per_sec(look, last);
    let known = memory.active_file + memory.locked_file;
    // What is locked is not away, though it is on no list any more.
    let has = memory.page_cache() + memory.locked_file;
    let when = (look.at, look.at.since(last.at));
    let (probe, found) = last.cache_probe.next(when, Counts::of(memory, look.seen.io));
    // What is on trial is nobody's theft, and is not missed before it shows.
    let taken = |had| Taken::of(has + found.away, had, late);
    let promise = look.promise.unwrap_or_default();
    let is_missed = taken(last.had_cache).is_some_and(|taken| taken.is_missed());
    let (least, half_life) = match is_missed {
        true => (last.had_cache.min(promise), CLAIM_HALF_LIFE),
        false => (Bytes::ZERO, HAD_HALF_LIFE),
    };
    let remembered = toward(last.had_cache, has.max(least), awake, half_life);
    let had = had(has, last.had_cache, is_scan, remembered);
    let taken = taken(had).filter(|_| !is_scan);
    // Of whom others took as well nobody knows what comes back.
    let is_alone = last.had_cache - has - found.away <= Bytes(has.0 / UNNOTICED);
    let in_use = found.in_use.filter(|_| is_alone);
    let in_use = in_use.map(|idle| known + idle.min(memory.inactive_file));
    let claim = match look.is_kept {
        true => last.claim.next(&seen(look, last, (has + found.away, had), (taken, in_use), awake)),
        false => Claim::default(),
    };
    // Of a trifle it is known only of who has shown before that it uses what it has.
    let is_known = |taken: &Taken| taken.away.0 > had.0 / SIZEABLE || claim.amount() > Bytes::ZERO;
    let soon = taken.filter(|taken| look.is_kept && taken.is_missed_soon() && is_known(taken));
    let missed = match soon {
        // Like what is in swap and as soon back. What comes back in a few seconds was too little to ask for where each fault
        // takes the page of another: two that lived by 500 MiB each missed a tenth for good, beside a unit that had all it wanted.
        Some(taken) => {
            let soon = taken.away.min(within(late, SOON_SECS));
            memory.inactive_file + soon.max(within(late, GROWTH_SECS))
        }
        None => within(activated_per_sec, RETURN_HORIZON_SECS)
            .min(memory.inactive_file + within(activated_per_sec, GROWTH_SECS)),
    };
    let claimed = claim.amount() - known;
    let missed = missed.max(claimed.min(memory.inactive_file));
    let with = |cache: Bytes| memory.kernel_cache.min(Bytes(cache.0 / WITH_IT));
    let beside = |due: Bytes| due - memory.working_set() - returning - with(has.min(due));
    let needed = if is_scan { missed.min(beside(last.basis.max(promise))) } else { missed };
    // Whoever misses some of what it was promised is not asked how much more of it.
    let kept = if taken.is_some_and(|taken| taken.is_missed()) {
        had - known
    } else if activated_per_sec > 0 {
        memory.inactive_file
    } else {
        Bytes::ZERO
    };
    let needed = needed.max(kept.min(beside(promise)));
    let with_it = with(has - (memory.inactive_file - needed));
    let had = if found.is_given_up { had - found.away } else { had };
    Cache { needed, missed, with_it, had, claim, probe, probed: found.back, is_scan }
}

/// What became of it since the last look, in which it could show for so long (`awake`) what it misses; where nobody asks for what is away
/// that is no less of it.
fn seen(
    look: &Look<'_>,
    last: &Estimate,
    (has, had): (Bytes, Bytes),
    (taken, in_use): (Option<Taken>, Option<Bytes>),
    awake: Millis,
) -> Seen {
    let pages = refaults(look, last);
    let soon = taken.filter(Taken::is_missed_soon);
    Seen {
        passed: awake,
        had,
        away: taken.map_or(last.claim.away().min(had - has), |taken| taken.away),
        back: soon.map_or(Bytes::ZERO, |_| within(pages, 1)),
        in_use,
    }
}

/// What so many pages a second come to in so many seconds.
pub(crate) fn within(per_sec: u64, secs: u64) -> Bytes {
    Bytes(per_sec.saturating_mul(Bytes::PAGE.0 * secs))
}

/// A file that is read from end to end once is nothing that one has.
fn had(has: Bytes, before: Bytes, is_scan: bool, remembered: Bytes) -> Bytes {
    if is_scan { remembered.min(before) } else { remembered.max(has) }
}

/// What is away of the page cache that one had, if that is noticeable, and how much of it would be back within the horizon. What
/// was taken long ago is of no working set to the kernel when it comes back; and it comes page by page, so that what is
/// there says little of what there was.
#[derive(Clone, Copy)]
struct Taken {
    away: Bytes,
    wanted: Bytes,
}

impl Taken {
    fn of(has: Bytes, had: Bytes, refaults_per_sec: u64) -> Option<Taken> {
        let away = had - has;
        let wanted = within(refaults_per_sec, RETURN_HORIZON_SECS);
        let least = Bytes(had.0 / NOTICEABLE).max(TRIFLE.min(Bytes(had.0 / SIZEABLE)));
        let is_noticed = away > least && refaults_per_sec >= MISSED;
        is_noticed.then_some(Taken { away, wanted })
    }

    /// Whether some of it is in use.
    fn is_missed(&self) -> bool {
        self.wanted.0.saturating_mul(IN_USE) >= self.away.0
    }

    /// Whether all of it is.
    fn is_missed_soon(&self) -> bool {
        self.wanted >= self.away
    }
}

/// Requests of at least this size in the mean are read ahead of who reads in sequence (16 KiB is the least that
/// readahead begins with, 128 KiB the most by default).
const SEQUENTIAL: Bytes = Bytes(48 << 10);
/// Fewer reads say nothing of how it reads.
const FEW_READS: u64 = 16;

/// Whether what was read since was read in sequence.
pub(crate) fn is_scan(before: &Io, now: &Io) -> bool {
    let reads = now.reads.saturating_sub(before.reads);
    reads >= FEW_READS && (now.read - before.read).0 / reads >= SEQUENTIAL.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, group, host};

    #[test]
    fn what_is_away_is_in_use_as_soon_as_it_would_be_back() {
        let of = |has, refaults| {
            let taken = Taken::of(Bytes::mib(has), Bytes::mib(480), refaults);
            taken.map(|t| (t.is_missed(), t.is_missed_soon()))
        };
        assert_eq!(of(478, 10_000), None, "a trifle");
        assert_eq!(of(477, 10_000), Some((true, true)));
        assert_eq!(of(240, 15), None, "nobody asks for it");
        // 240 MiB are back within a minute by 1024 pages in a second, and within eight by 128.
        assert_eq!(of(240, 1024), Some((true, true)));
        assert_eq!(of(240, 1023), Some((true, false)));
        assert_eq!(of(240, 127), Some((false, false)));
    }

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
