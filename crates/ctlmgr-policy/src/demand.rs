//! Demand: how much memory a workload needs, estimated from what the kernel counts.
//!
//! # Problem
//! `memory.current` is no need: it holds page cache that nobody reads again, and it lacks what
//! was already swapped out and is wanted back.
//!
//! # Approach
//! Working set = anonymous + shared + active and locked file + unreclaimable kernel memory, and of the rest of that what goes
//! with page cache that is needed (buffer heads are a fortieth of a file that was written: two that lived by 500 MiB of page cache each
//! had 487 for good, because what held 13 was taken for nobody's), plus what is coming back: the swapped part, as far as the rate of anonymous refaults would bring it back
//! within [`RETURN_HORIZON_SECS`] (of who was promised something and has a noticeable part of it coming back, all within the promise:
//! one task faults in its pages one by one, and would lose its claim before they are back). Page cache that is read again shows itself in two ways. What is
//! mapped, the kernel puts on the active list. What is read by file descriptor stays on the inactive one
//! under MGLRU, however hot it is, and shows only once it is missed: it comes back so soon that the
//! kernel counts it as of the working set (`workingset_activate_file`; where the kernel does not count that, all that comes
//! back counts, see [`crate::cache`]). The rate of that says how much
//! of the inactive list is needed, as far as it would be replaced within the same horizon, and how
//! much more is missing ([`crate::cache`]). Whoever misses any has need of all that it has, or had, within its promise; a managed one
//! beyond, too, of what is back soon where all that is away would be back within the horizon, and for a while after ([`crate::claim`]). MGLRU calls everything that comes back a part of the
//! working set, a file that is read from end to end again and again included, of which a part is worth nothing; so what is read in sequence counts up to the basis or the promise only. Rises count at once, falls decay, so that a short dip does not
//! cost the protection that the next burst needs; what its owner gave up by itself goes faster while others are short ([`crate::freed`]). While it waits for what it had a workload shows nothing of what it
//! needs, so only the time in which it did not wait counts: page cache that was taken long ago is of no working set to
//! the kernel when it comes back, and its owner would lose its claim because it was robbed of it. Who waits for half of
//! its time still loses it, in twice the time. Of units and containers that nobody manages no more is kept than a floor and what came back of late ([`crate::units`]), so
//! what the kernel has taken from them and they do not ask for again is a claim that nobody makes use of: theirs falls
//! within seconds ([`crate::freed::UNKEPT`]). With a minute dockerd was owed 73 MiB where it lived by 20, and the shares of
//! everybody else were short by the difference.
//!
//! The *basis* of a workload without promise follows demand much slower, so that a sudden hog
//! does not earn entitlement: who appears while one looks begins with what it needs to live, however large it
//! is when it is seen first, and earns by time, whether it waits or not. Otherwise what it keeps would hang on
//! when within its first seconds it was looked at. Who was there before keeps what it uses.
//!
//! # Properties
//! demand ≤ max; demand never below the present working set; without new samples nothing changes;
//! basis lies between its old value and demand; whoever comes begins with the same basis, and earns as much in the same
//! time; at first sight everything in swap counts, because
//! what is not known must not tighten anything. A scan that fills page cache asks for nothing, nor
//! does it make cold swap look warm, and one that begins again and again asks for no more than its basis; page cache within a
//! promise is needed once any of it is missed; cache that is missed asks for what there is of it and more, or was; a fork server counts what it shares once; a burst counts at
//! once and fades; a leak does not earn basis; the more of its time one
//! waits for what was taken from it, the longer it keeps its claim; what nobody keeps for one is no claim ten seconds later, but
//! for what comes back.

use ctlmgr_model::{
    Activity, Bytes, CgroupId, Doing, Group, Limit, MemorySample, MemorySettings, Millis, Settings,
    Snapshot, Workload,
};
use serde::{Deserialize, Serialize};

use crate::cache::{self, Cache};
use crate::cache_probe::{CacheProbe, Counts};
use crate::claim::Claim;
use crate::entitlement::entitlement_with_reserved;
use crate::fade::toward;
use crate::freed::{self, Claimed, Freed};
use crate::heat::Heat;
use crate::lent::Lent;
use crate::price::Prices;
use crate::probe::Probe;
use crate::progress::{Progress, Running, Says};
use crate::stall::{Stall, part_of_time, time_waited};
use crate::state::State;
use crate::toll::Toll;

/// How far ahead refaults are believed, in seconds.
pub(crate) const RETURN_HORIZON_SECS: u64 = 60;
/// So many pages that come back per second are missed, and no trifle (64 KiB).
pub(crate) const MISSED: u64 = 16;
/// Where one part in so many of what is in swap would be back within [`RETURN_HORIZON_SECS`], it is in use.
pub(crate) const IN_USE: u64 = 8;
/// However much it waits, need fades in this part less of the time at most.
const MOST_WAITED: f64 = 0.9;
/// A basis is never below this much of demand: what a small newcomer needs to live.
pub(crate) const LIVING: Bytes = Bytes::mib(64);

/// What is remembered of each cgroup.
pub(crate) type Estimates = std::collections::BTreeMap<CgroupId, Estimate>;

/// What is remembered of one cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Estimate {
    pub at: Millis,
    pub demand: Bytes,
    pub basis: Bytes,
    /// All refaults, and those of anonymous pages, since the cgroup was made.
    pub refaults: u64,
    #[serde(default)]
    pub refaults_anon: u64,
    /// Page cache of the working set that came back; `None` from before that was counted.
    #[serde(default)]
    pub activated: Option<u64>,
    /// Page cache that it has, or had before some was taken ([`crate::cache`]).
    #[serde(default)]
    pub had_cache: Bytes,
    /// What of it is in use, as far as what was taken and came back tells ([`crate::claim`]).
    #[serde(default)]
    pub claim: Claim,
    pub refaults_per_sec: u64,
    pub seen: Activity,
    pub doing: Doing,
    pub stall: Stall,
    /// What it suffers for each part missing ([`crate::heat`]).
    #[serde(default)]
    pub heat: Heat,
    /// How much of its work it gets done ([`crate::progress`]).
    #[serde(default)]
    pub progress: Progress,
    /// What its faults cost ([`crate::toll`]).
    #[serde(default)]
    pub toll: Toll,
    /// The last probe ([`crate::probe`]).
    #[serde(default)]
    pub probe: Probe,
    /// The last one of its page cache ([`crate::cache_probe`]).
    #[serde(default)]
    pub cache_probe: CacheProbe,
    /// What of it is in swap and coming back.
    #[serde(default)]
    pub returning: Bytes,
    /// `low` of memory.events at the last look.
    #[serde(default)]
    pub low_events: Option<u64>,
    /// Whether the kernel has taken protected memory from it since, or it misses some.
    #[serde(default)]
    pub is_robbed: bool,
    /// Whether it makes use of a floor ([`crate::lent`]).
    #[serde(default)]
    pub lent: Lent,
    /// How it gives up memory by itself ([`crate::freed`]).
    #[serde(default)]
    pub freed: Freed,
}

/// `now − before` per second.
pub(crate) fn per_sec(before: u64, now: u64, passed: Millis) -> u64 {
    let rate = u128::from(now.saturating_sub(before)) * 1000 / u128::from(passed.0.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// What a cgroup did per second between two samples; nothing is known at first sight.
fn doing(before: &Activity, now: &Activity, passed: Millis) -> Doing {
    Doing {
        cpu_usec_per_sec: per_sec(before.io.cpu_usec, now.io.cpu_usec, passed),
        read_per_sec: Bytes(per_sec(before.io.read.0, now.io.read.0, passed)),
        written_per_sec: Bytes(per_sec(before.io.written.0, now.io.written.0, passed)),
        is_frozen: now.is_frozen,
    }
}

/// One look at a cgroup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look<'a> {
    pub at: Millis,
    pub memory: &'a MemorySample,
    pub seen: Activity,
    pub prices: Prices,
    /// Whether, if it is not known, it has appeared since the last look.
    pub is_new: bool,
    /// Memory that it was promised.
    pub promise: Option<Bytes>,
    /// Whether ctlmgr keeps for it what it needs.
    pub is_kept: bool,
    /// How long before the last look memory was contended.
    pub contended_ago: Option<Millis>,
    /// Whether the kernel says what of the page cache that comes back was of the working set.
    pub says_cache: bool,
    /// Whether what is given up is soon no claim any more.
    pub goes_soon: bool,
}

/// The next estimate from the last one and a look.
pub(crate) fn estimate(
    settings: &MemorySettings,
    last: Option<Estimate>,
    look: &Look<'_>,
) -> Estimate {
    let Look { at, memory, seen, prices, .. } = *look;
    let Some(last) = last else { return first(look) };
    let refaults = memory.refault_anon + memory.refault_file;
    let passed = at.since(last.at);
    let (rate, doing) = match passed.0 {
        0 => (last.refaults_per_sec, last.doing),
        _ => (per_sec(last.refaults, refaults, passed), doing(&last.seen, &seen, passed)),
    };
    let counted = time_waited(&last, memory, &seen, passed);
    let toll = last.toll.next(passed, memory, counted);
    let uncounted = prices.fault.map_or(0.0, |cost| toll.uncounted(cost));
    let waited = counted.map(|waited| (waited.each + uncounted).min(1.0));
    let awake = not_waited(passed, waited);
    let returning = returning(look, per_sec(last.refaults_anon, memory.refault_anon, passed));
    let cache = cache::estimate(look, &last, returning, awake);
    let beside = memory.working_set() + returning + cache.with_it;
    let need = |cache: Bytes| capped(beside + cache, memory.max);
    let (now, all) = (need(cache.needed), need(cache.needed.max(cache.missed)));
    let claim = Claimed::of(settings, look, (last.demand, now), (passed, awake));
    let (freed, kept) = last.freed.next(memory, claim);
    let demand = capped(now.max(kept), memory.max);
    // Who reads in sequence does not need all of that, but earns by it like others.
    let earned = demand.max(all);
    let earned_in = if earned > last.basis { passed } else { awake };
    let missing = missing(memory, last.demand, &cache);
    let says = Says::of(missing, (last.demand, demand));
    let running = Running::between(&last.seen, &seen, passed);
    let progress = last.progress.next(passed, running, waited, says);
    let lost = waited.map(|waited| progress.lost(waited, prices.unseen));
    let (robbed_per_sec, missed) = came_back(look, &last, &cache);
    Estimate {
        at,
        demand,
        basis: toward(last.basis, earned, earned_in, settings.basis_half_life),
        refaults,
        refaults_anon: memory.refault_anon,
        activated: Some(memory.activate_file),
        had_cache: cache.had,
        claim: cache.claim,
        refaults_per_sec: rate,
        seen,
        doing,
        stall: last.stall.next(memory.pressure, passed),
        heat: last.heat.next(passed, missing, lost, prices.burden(progress, rate)),
        progress,
        toll,
        probe: last.probe,
        cache_probe: cache.probe,
        returning,
        low_events: Some(memory.events.low),
        is_robbed: is_low(&last, memory) || robbed_per_sec >= MISSED,
        lent: last.lent.next(passed, missed, look.contended_ago),
        freed,
    }
}

/// Whether the kernel has taken protected memory since the last look.
fn is_low(last: &Estimate, memory: &MemorySample) -> bool {
    last.low_events.is_some_and(|before| memory.events.low > before)
}

/// Pages that came back each second, but for what a probe had taken, which is nobody's theft; and what all of them come to, if they are no trifle.
fn came_back(look: &Look<'_>, last: &Estimate, cache: &Cache) -> (u64, Bytes) {
    let memory = look.memory;
    let all = memory.refault_anon + memory.refault_file;
    let pages = all.saturating_sub(last.refaults + cache.probed.0 / Bytes::PAGE.0);
    let rate = |pages| per_sec(0, pages, look.at.since(last.at));
    let anon = memory.refault_anon.saturating_sub(last.refaults_anon);
    let is_missed = rate(if look.is_kept && cache.is_scan { anon } else { pages }) >= MISSED;
    (rate(pages), cache::within(if is_missed { pages } else { 0 }, 1))
}

/// The part of the time in which it could show what it needs.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part, 0–1, of few milliseconds"
)]
fn not_waited(passed: Millis, waited: Option<f64>) -> Millis {
    Millis((passed.0 as f64 * (1.0 - waited.unwrap_or(0.0).min(MOST_WAITED))) as u64)
}

/// What is made of the first sample. No rate is known yet, and unknown must not tighten: all of its swap may
/// be wanted.
fn first(look: &Look<'_>) -> Estimate {
    let Look { at, memory, seen, .. } = *look;
    let demand = capped(memory.working_set() + (memory.swap - memory.swapcached), memory.max);
    Estimate {
        at,
        demand,
        basis: if look.is_new { demand.min(LIVING) } else { demand },
        refaults: memory.refault_anon + memory.refault_file,
        refaults_anon: memory.refault_anon,
        activated: Some(memory.activate_file),
        had_cache: memory.page_cache() + memory.locked_file,
        claim: Claim::default(),
        refaults_per_sec: 0,
        seen,
        doing: Doing { is_frozen: seen.is_frozen, ..Doing::default() },
        stall: Stall::default().next(memory.pressure, Millis(0)),
        heat: Heat::default(),
        progress: Progress::default(),
        toll: Toll::default().next(Millis(0), memory, None),
        probe: Probe::default(),
        cache_probe: CacheProbe::new(at, Counts::of(memory, seen.io)),
        returning: Bytes::ZERO,
        low_events: Some(memory.events.low),
        is_robbed: false,
        lent: Lent::default(),
        freed: Freed::new(memory),
    }
}

/// The size basis: what was promised, else slow-moving demand but enough to live.
pub(crate) fn basis(promise: Option<Bytes>, estimate: &Estimate) -> Bytes {
    promise.unwrap_or_else(|| estimate.basis.max(estimate.demand.min(LIVING)))
}

/// `basis` times the lift that feedback found.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an amount up to 2^53 times a small factor; a cast saturates"
)]
pub(crate) fn lifted(basis: Bytes, lift: f64) -> Bytes {
    Bytes((basis.0 as f64 * lift) as u64)
}

/// The part of `demand` that was taken and is not in memory. What a workload gave up by itself is in demand
/// for a while, but nowhere else.
fn missing(memory: &MemorySample, demand: Bytes, cache: &Cache) -> f64 {
    let held = memory.working_set() + cache.with_it + cache.needed.min(memory.inactive_file);
    let taken = (memory.swap - memory.swapcached) + (cache.needed - memory.inactive_file);
    part_of((demand - held).min(taken).0, demand.0)
}

/// For so long one that is not seen is no newcomer when it is again: it could not be read, or was too small.
const REMEMBERED: Millis = Millis(600_000);

/// Estimates for all groups of a snapshot, and for those that are not in it for a while.
pub(crate) fn estimate_all<'a>(
    settings: &Settings,
    state: &State,
    snapshot: &'a Snapshot,
) -> Estimates {
    let (at, last) = (snapshot.at, &state.estimates);
    let newest = last.values().map(|e| e.at).max();
    let is_present = |e: &&Estimate| Some(e.at) == newest;
    let present: Vec<_> = last.values().filter(is_present).collect();
    let workloads = snapshot.workloads.iter().filter_map(|w| last.get(&w.group.id));
    let workloads: Vec<_> = workloads.filter(is_present).collect();
    let prices = Prices::new(&snapshot.host, &present, &workloads);
    // Before the first look anybody may have been there, and after a long time without one.
    let is_new = state.looked_at.is_some_and(|looked| at.since(looked) < REMEMBERED);
    let says_cache = cache::is_said(snapshot);
    let contended = newest.zip(state.tension.contended_at);
    let contended_ago = contended.map(|(newest, at)| newest.since(at));
    let goes_soon = freed::goes_soon(contended_ago, snapshot);
    let look = |(g, promise, is_kept): (&'a Group, Option<Bytes>, bool)| {
        let (memory, seen) = (&g.memory, g.activity);
        let look = Look {
            at,
            memory,
            seen,
            prices,
            is_new,
            promise,
            is_kept,
            contended_ago,
            says_cache,
            goes_soon,
        };
        (g.id, estimate(&settings.memory, last.get(&g.id).copied(), &look))
    };
    let total = snapshot.host.mem_total;
    let workload = |w: &'a Workload| {
        let due = entitlement_with_reserved(settings, (state, snapshot), w);
        (&w.group, due.promise.map(|p| p.min(total)), due.managed)
    };
    let bystanders = snapshot.bystanders.iter().map(|g| (g, None, false));
    let groups = snapshot.workloads.iter().map(workload).chain(bystanders);
    let recent = last.iter().filter(|(_, e)| at.since(e.at) < REMEMBERED).map(|(id, e)| (*id, *e));
    let mut estimates: Estimates = recent.collect();
    estimates.extend(groups.map(look));
    estimates
}

/// What is in swap and wanted back: as much as would come within [`RETURN_HORIZON_SECS`]; but one that has its pages back
/// one by one, each when it needs it, gets all that it was promised.
fn returning(look: &Look<'_>, refaults_per_sec: u64) -> Bytes {
    let memory = look.memory;
    let away = memory.swap - memory.swapcached;
    let wanted = refaults_per_sec.saturating_mul(Bytes::PAGE.0 * RETURN_HORIZON_SECS);
    let promised = look.promise.unwrap_or_default() - memory.working_set();
    let is_in_use = wanted > 0 && wanted.saturating_mul(IN_USE) >= away.0;
    away.min(Bytes(wanted).max(if is_in_use { promised } else { Bytes::ZERO }))
}

/// The part of the time, 0–1, by which a counter of microseconds rose.
pub(crate) fn since(
    before: &Activity,
    now: &Activity,
    passed: Millis,
    of: fn(&Activity) -> Option<u64>,
) -> Option<f64> {
    of(before).zip(of(now)).map(|(before, now)| part_of_time(before, now, passed))
}

/// `amount / of`, at most 1; 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "a part needs no exact numbers")]
pub(crate) fn part_of(amount: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { (amount as f64 / of as f64).min(1.0) }
}

fn capped(demand: Bytes, max: Limit) -> Bytes {
    max.bytes().map_or(demand, |max| demand.min(max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::price_of_cpu;
    use crate::testing::{look, sample};
    use ctlmgr_model::Pressure;
    use proptest::prelude::*;

    fn settings() -> MemorySettings {
        MemorySettings::default()
    }

    fn estimate(
        settings: &MemorySettings,
        last: Option<Estimate>,
        at: Millis,
        memory: &MemorySample,
        seen: Activity,
    ) -> Estimate {
        super::estimate(settings, last, &look(at, memory, seen))
    }

    #[test]
    fn cache_that_nobody_reads_again_is_no_need() {
        let mut memory = sample(Bytes::mib(100));
        memory.inactive_file = Bytes::mib(900);
        memory.current = Bytes::mib(1000);
        assert_eq!(
            estimate(&settings(), None, Millis(0), &memory, Activity::default()).demand,
            Bytes::mib(100)
        );
    }

    /// Demand, in MiB, of one that lives by so much page cache, with which `with_it` of kernel memory goes, once the kernel has
    /// taken so much of it, and it has it back page by page.
    fn of_one_that_reads(has: u64, with_it: u64, taken: u64) -> u64 {
        let memory = MemorySample {
            current: Bytes::mib(100 + has + with_it),
            inactive_file: Bytes::mib(has),
            kernel_cache: Bytes::mib(with_it),
            ..sample(Bytes::mib(100))
        };
        let first = estimate(&settings(), None, Millis(0), &memory, Activity::default());
        let pages = taken * 256 / 10;
        let less = MemorySample {
            current: memory.current - Bytes::mib(taken),
            inactive_file: Bytes::mib(has - taken),
            refault_file: pages,
            activate_file: pages,
            ..memory
        };
        let then = estimate(&settings(), Some(first), Millis(1000), &less, Activity::default());
        (then.demand + Bytes(1 << 19)).0 >> 20
    }

    #[test]
    fn what_goes_with_page_cache_is_need_where_that_is() {
        assert_eq!(of_one_that_reads(500, 0, 20), 600);
        assert_eq!(of_one_that_reads(500, 13, 20), 613);
        assert_eq!(of_one_that_reads(500, 200, 20), 615, "names and inodes go by themselves");
        assert_eq!(of_one_that_reads(500, 13, 0), 100, "nobody reads it again");
    }

    #[test]
    fn what_comes_back_from_swap_is_need() {
        let mut memory = sample(Bytes::mib(500));
        let first = estimate(&settings(), None, Millis(0), &memory, Activity::default());
        memory.swap = Bytes::mib(300);
        let idle = estimate(&settings(), Some(first), Millis(1000), &memory, Activity::default());
        assert_eq!(idle.demand, Bytes::mib(500), "swapped and never wanted: cold");
        memory.refault_anon = 2000;
        let hot = estimate(&settings(), Some(idle), Millis(2000), &memory, Activity::default());
        assert_eq!(hot.refaults_per_sec, 2000);
        assert_eq!(hot.demand, Bytes::mib(800));
    }

    #[test]
    fn at_first_sight_all_swap_may_be_wanted() {
        let mut memory = sample(Bytes::mib(500));
        memory.swap = Bytes::mib(300);
        let first = estimate(&settings(), None, Millis(0), &memory, Activity::default());
        assert_eq!(first.demand, Bytes::mib(800));
        let later =
            estimate(&settings(), Some(first), Millis(600_000), &memory, Activity::default());
        assert!(later.demand < Bytes::mib(501), "cold after all: {}", later.demand);
    }

    #[test]
    fn who_comes_begins_with_the_same_basis_and_earns_by_time() {
        let begin = |held: Bytes, is_new| {
            let (at, memory, seen) = (Millis(0), sample(held), Activity::default());
            super::estimate(&settings(), None, &Look { is_new, ..look(at, &memory, seen) })
        };
        assert_eq!(begin(Bytes::mib(900), true).basis, begin(Bytes::mib(70), true).basis);
        assert_eq!(
            begin(Bytes::mib(900), false).basis,
            Bytes::mib(900),
            "it may have been there for long"
        );
        let later = |stalled_usec| {
            let mut memory = sample(Bytes::mib(900));
            let line = |total_usec| ctlmgr_model::PressureLine { avg10_pct: 0.0, total_usec };
            let pressure = |usec| Some(Pressure { some: line(usec), full: line(usec) });
            memory.pressure = pressure(0);
            let first = Estimate {
                basis: Bytes::mib(64),
                ..estimate(&settings(), None, Millis(0), &memory, Activity::default())
            };
            memory.pressure = pressure(stalled_usec);
            estimate(&settings(), Some(first), Millis(60_000), &memory, Activity::default()).basis
        };
        assert_eq!(later(0), later(50_000_000), "waiting neither helps nor harms");
        assert!(later(0) > Bytes::mib(100) && later(0) < Bytes::mib(200), "{}", later(0));
    }

    /// Two redis, as they were seen: of one whose pages came back late the kernel counted next to no waiting.
    #[test]
    fn who_faults_as_often_is_as_hot_whether_the_kernel_counts_it_or_not() {
        let line = |total_usec| ctlmgr_model::PressureLine { avg10_pct: 0.0, total_usec };
        let at = |second: u64, stall_usec_per_sec: u64, major_faults: Option<u64>| MemorySample {
            swap: Bytes::mib(50),
            refault_anon: second * 300,
            major_faults,
            pressure: Some(Pressure {
                some: line(second * stall_usec_per_sec),
                full: line(second * stall_usec_per_sec),
            }),
            ..sample(Bytes::mib(50))
        };
        let heats = |are_faults_known: bool| {
            let mut state = State::default();
            for second in 0..60 {
                let faults = are_faults_known.then_some(second * 300);
                let redis = |id, stall| {
                    let mut workload = crate::testing::container("redis", id, Bytes::mib(50), None);
                    workload.group.memory = at(second, stall, faults);
                    workload
                };
                let pair = vec![redis(1, 90_000), redis(2, 4_000)];
                let mut snapshot = crate::testing::host(Bytes::mib(1000), pair, Vec::new());
                snapshot.at = Millis(second * 1000);
                state.estimates = estimate_all(&Settings::default(), &state, &snapshot);
            }
            let heats: Vec<Heat> = state.estimates.values().map(|e| e.heat).collect();
            let all = Heat::of_all(heats.iter().copied()).unwrap();
            (heats[0].relative(all), heats[1].relative(all))
        };
        let (counted, not) = heats(true);
        assert!((counted / not - 1.0).abs() < 0.1, "{counted} {not}");
        let (counted, not) = heats(false);
        assert!(counted / not > 3.0, "by what is counted alone: {counted} {not}");
    }

    /// One sample a second, and the last estimate.
    fn follow(samples: impl Iterator<Item = MemorySample>) -> Estimate {
        let mut last = None;
        for (second, memory) in samples.enumerate() {
            let at = Millis(second as u64 * 1000);
            last = Some(estimate(&settings(), last, at, &memory, Activity::default()));
        }
        last.expect("at least one sample")
    }

    #[test]
    fn a_scan_asks_for_nothing_and_makes_no_cold_swap_warm() {
        let scan = |second: u64| MemorySample {
            current: Bytes::mib(200 + second * 10),
            inactive_file: Bytes::mib(second * 10),
            refault_file: second * 5000,
            swap: Bytes::mib(300),
            ..sample(Bytes::mib(200))
        };
        // At first sight all of the swap counts; what is not asked for fades within minutes.
        let end = follow((0..900).map(scan));
        assert!(end.demand < Bytes::mib(201), "{}", end.demand);
        assert_eq!(end.refaults_per_sec, 5000, "but it is shown");
    }

    #[test]
    fn page_cache_that_is_read_again_is_need() {
        let server = |second: u64| MemorySample {
            active_file: Bytes::mib((second * 20).min(400)),
            ..sample(Bytes::mib(50))
        };
        assert_eq!(follow((0..60).map(server)).demand, Bytes::mib(450));
    }

    /// Read by file descriptor, under MGLRU: never active, and missed once others took of it.
    #[test]
    fn page_cache_that_is_missed_is_need_and_no_more_than_its_set() {
        // 700 MiB, each page read every three seconds; a second after it was squeezed to 250.
        let squeezed = |held: u64, activate_file: u64| MemorySample {
            inactive_file: Bytes::mib(held),
            activate_file,
            ..sample(Bytes::mib(20))
        };
        let rate = |held: u64| (700 - held) * 256 / 3;
        let first = follow([squeezed(250, 0), squeezed(250, rate(250))].into_iter());
        assert!(first.demand > Bytes::mib(500) && first.demand < Bytes::mib(720));
        // As it gets what it asks for it asks for no more than it has.
        let settled = follow((0..600u64).scan(0, |sum, second| {
            let held = (250 + second * 10).min(700);
            *sum += rate(held);
            Some(squeezed(held, *sum))
        }));
        assert!(settled.demand < Bytes::mib(720), "{}", settled.demand);
        let unmissed = follow((0..10).map(|_| squeezed(700, 5_000)));
        assert_eq!(unmissed.demand, Bytes::mib(20), "what nobody misses may be a scan");
    }

    #[test]
    fn page_cache_that_is_locked_after_it_was_read_is_not_away() {
        let mib = Bytes::mib;
        let mut last = None;
        for (second, locked) in (0u64..).zip([0, 0, 300, 300, 300]) {
            let memory = MemorySample {
                current: mib(450),
                inactive_file: mib(400 - locked),
                locked: mib(locked),
                locked_file: mib(locked),
                refault_file: second * 200,
                activate_file: second * 200,
                ..sample(mib(50))
            };
            let look = look(Millis(second * 1000), &memory, Activity::default());
            last =
                Some(super::estimate(&settings(), last, &Look { promise: Some(mib(800)), ..look }));
        }
        let demand = last.map(|last| last.demand);
        assert!(demand.is_some_and(|d| d >= mib(350) && d <= mib(455)), "{demand:?}");
    }

    #[test]
    fn all_page_cache_that_comes_back_is_missed_where_the_kernel_does_not_say_which() {
        let need = |says_cache, activated: u64| {
            let mut last = None;
            for second in 0..20u64 {
                let memory = MemorySample {
                    inactive_file: Bytes::mib(90),
                    refault_file: second * 4000,
                    activate_file: second * activated,
                    ..sample(Bytes::mib(5))
                };
                let (at, seen) = (Millis(second * 1000), Activity::default());
                let (prices, promise) = (Prices::default(), Some(Bytes::mib(400)));
                let look = Look { prices, promise, says_cache, ..look(at, &memory, seen) };
                last = Some(super::estimate(&settings(), last, &look));
            }
            last.unwrap().demand
        };
        assert!(need(false, 0) > Bytes::mib(95), "{}", need(false, 0));
        assert_eq!(need(false, 0), need(true, 4000));
        assert_eq!(need(true, 0), Bytes::mib(5), "it comes back too late");
    }

    /// A file larger than memory, read from end to end again and again: MGLRU calls all of it a working set.
    fn scanned_again(promise: Option<Bytes>, request: Bytes) -> Estimate {
        let mut last = None;
        for second in 0..120u64 {
            let memory = MemorySample {
                current: Bytes::mib(1410),
                inactive_file: Bytes::mib(1400),
                activate_file: second * 36_000,
                refault_file: second * 36_000,
                ..sample(Bytes::mib(10))
            };
            let read = Bytes(second * 36_000 * Bytes::PAGE.0);
            let io =
                ctlmgr_model::Io { read, reads: read.0 / request.0, ..ctlmgr_model::Io::default() };
            let seen = Activity { io, ..Activity::default() };
            let (at, prices) = (Millis(second * 1000), Prices::default());
            let look = Look { prices, promise, is_new: true, ..look(at, &memory, seen) };
            last = Some(super::estimate(&settings(), last, &look));
        }
        last.unwrap()
    }

    #[test]
    fn a_scan_that_begins_again_and_again_asks_for_no_more_than_it_is_due() {
        let whole = Bytes(128 << 10);
        let again = scanned_again(None, whole);
        assert!(
            again.demand <= again.basis && again.basis < Bytes::mib(300),
            "who stays earns: {again:?}"
        );
        let promised = scanned_again(Some(Bytes::mib(500)), whole).demand;
        assert_eq!(promised, Bytes::mib(500), "what it was told that it has");
        let at_random = scanned_again(None, Bytes::PAGE).demand;
        assert!(at_random > Bytes::mib(1400), "what is read here and there may be a working set");
    }

    #[test]
    fn pages_in_swap_within_a_promise_are_need_once_some_are_coming_back() {
        // 100 MiB of 300 are away, and one task has so many of them back in a second, each when it needs it.
        let demand = |per_second: u64, promise: u64| {
            let mut last = None;
            for second in 0..5 {
                let memory = MemorySample {
                    swap: Bytes::mib(100),
                    refault_anon: second * per_second,
                    ..sample(Bytes::mib(200))
                };
                let (seen, prices) = (Activity::default(), Prices::default());
                let (at, promise) = (Millis(second * 600_000), Some(Bytes::mib(promise)));
                let look = Look { prices, promise, ..look(at, &memory, seen) };
                last = Some(super::estimate(&settings(), last, &look));
            }
            last.unwrap().demand
        };
        let rate = 600 * 60;
        assert_eq!(demand(rate, 300), Bytes::mib(300));
        assert!(demand(rate, 220) < Bytes::mib(225), "no more than was promised");
        assert!(demand(600, 300) < Bytes::mib(201), "one page a second is a trifle");
    }

    #[test]
    fn page_cache_within_a_promise_is_need_once_any_of_it_is_missed() {
        let demand_of = |cache: u64, with_it: u64, activated: u64, promise: u64| {
            let memory = |second: u64| MemorySample {
                inactive_file: Bytes::mib(cache),
                kernel_cache: Bytes::mib(with_it),
                activate_file: second * activated,
                ..sample(Bytes::mib(20))
            };
            let mut last = None;
            for second in 0..5 {
                let memory = memory(second);
                let (seen, prices) = (Activity::default(), Prices::default());
                let promise = Some(Bytes::mib(promise));
                let at = Millis(second * 1000);
                let look = Look { prices, promise, ..look(at, &memory, seen) };
                last = Some(super::estimate(&settings(), last, &look));
            }
            last.unwrap().demand
        };
        let demand = |activated, promise| demand_of(280, 0, activated, promise);
        assert_eq!(demand(0, 300), Bytes::mib(20), "what nobody misses is lent out");
        assert_eq!(demand(5, 300), Bytes::mib(300));
        assert!(demand(5, 100) >= Bytes::mib(100) && demand(5, 100) < Bytes::mib(110));
        let large = demand_of(5000, 200, 5, 600);
        assert!(
            large > Bytes::mib(595) && large < Bytes::mib(601),
            "with what goes with it: {large}"
        );
    }

    /// Need of 20 MiB and of page cache after each second, in MiB, of which that is there at its end, and so many pages have come back in
    /// it; nothing was promised.
    fn after_each(seconds: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
        let (mut last, mut all) = (None, 0);
        let next = |(second, (has, pages)): (u64, (u64, u64))| {
            all += pages;
            let memory = MemorySample {
                inactive_file: Bytes(has << 10),
                refault_file: all,
                activate_file: all,
                ..sample(Bytes::mib(20))
            };
            let at = Millis(second * 1000);
            let estimate = estimate(&settings(), last, at, &memory, Activity::default());
            last = Some(estimate);
            estimate.demand.0 >> 20
        };
        (0..).zip(seconds).map(next).collect()
    }

    /// Two that lived by 500 MiB each (guest, 6.12 with MGLRU).
    #[test]
    fn page_cache_that_is_back_is_need_for_a_while() {
        let mib = |mib: u64| mib << 10;
        let had = std::iter::repeat_n((mib(500), 0), 10);
        let lost = std::iter::once((mib(440), 512));
        let back = (1..=30).map(|second| (mib(440 + second * 2), 512));
        let rest = std::iter::repeat_n((mib(500), 0), 60);
        let after = after_each(had.chain(lost).chain(back).chain(rest));
        assert!((515..=521).contains(&after[41]) && after[41 + 25] >= 515, "{after:?}");
        assert!(after[41 + 59] < 400, "it may be used no longer: {after:?}");
    }

    /// A large file of which a fiftieth is read all the time: what is taken of it is, for the most part, missed by nobody.
    #[test]
    fn page_cache_of_which_little_is_used_is_no_need_for_good() {
        let taken = |second: u64| (((920 - 2 * second.min(400)) << 10), 2 * 256 / 50 + 20);
        let after = after_each((0..420).map(taken));
        assert!(after[419] < 200, "{after:?}");
    }

    /// Need of 20 MiB and of page cache, in MiB, that one had for half a minute and what is left of it since, of which so many
    /// pages come back in a second.
    fn robbed((had, held): (u64, u64), refaults: u64, promise: u64, secs: u64) -> Bytes {
        let memory = |second: u64| MemorySample {
            inactive_file: Bytes::mib(if second < 30 { had } else { held }),
            refault_file: second.saturating_sub(30) * refaults,
            ..sample(Bytes::mib(20))
        };
        let next = |last, second| {
            let (seen, prices) = (Activity::default(), Prices::default());
            let (promise, memory) = (Some(Bytes::mib(promise)), memory(second));
            let look = Look { prices, promise, ..look(Millis(second * 1000), &memory, seen) };
            Some(super::estimate(&settings(), last, &look))
        };
        (0..secs).fold(None, next).unwrap().demand
    }

    /// Seen on a host without swap: all of 400 MiB but 24 was gone in two seconds, and need went with it.
    #[test]
    fn page_cache_within_a_promise_that_is_taken_and_missed_stays_need() {
        let demand = |refaults, promise| robbed((400, 24), refaults, promise, 600);
        let is_about =
            |amount: Bytes, mib| (Bytes::mib(mib - 10)..=Bytes::mib(mib)).contains(&amount);
        assert!(is_about(demand(1500, 420), 420));
        assert!(is_about(demand(1500, 300), 300), "no more than was promised");
        let beyond = |secs| robbed((400, 24), 7000, 300, secs);
        assert!(is_about(beyond(60), 420), "but for what would be back soon");
        assert!(beyond(7200) < Bytes::mib(345), "not for good, if it never is: {}", beyond(7200));
        assert!(is_about(demand(1500, 800), 420), "nor than it had");
        assert!(demand(3, 420) < Bytes::mib(25), "what it does not miss it does not need");
        assert!(demand(30, 420) < Bytes::mib(110), "nor all for the sake of a few pages");
    }

    #[test]
    fn waiting_counts_as_far_as_what_was_read_had_been_in_memory() {
        let at = |second: u64, read_mib: u64| {
            let io = ctlmgr_model::Io { read: Bytes::mib(read_mib), ..Default::default() };
            let disk_wait_usec = Some(second * 500_000);
            Activity { io, disk_wait_usec, ..Activity::default() }
        };
        let line = ctlmgr_model::PressureLine { avg10_pct: 0.0, total_usec: 0 };
        let memory = |refault_anon| MemorySample {
            refault_anon,
            pressure: Some(Pressure { some: line, full: line }),
            ..sample(Bytes::mib(100))
        };
        let first = estimate(&settings(), None, Millis(0), &memory(0), at(0, 0));
        let waits = |refaults, read| {
            let waited = time_waited(&first, &memory(refaults), &at(1, read), Millis(1000));
            waited.map(|w| w.each)
        };
        assert_eq!(waits(512, 2), Some(0.5), "all of it came back");
        assert_eq!(waits(512, 4), Some(0.25), "half of what was read");
        assert_eq!(waits(0, 4), Some(0.0), "its own reading is no lack of memory");
        assert_eq!(waits(0, 0), Some(0.0));
        let mut blind = memory(512);
        blind.pressure = None;
        assert_eq!(time_waited(&first, &blind, &at(1, 2), Millis(1000)), None);
    }

    /// Where processors are short, those that others lack because of one's faults are part of what it costs to let
    /// it have them.
    #[test]
    fn faults_that_keep_short_processors_busy_make_hot_and_others_do_not() {
        let heat = |faults: u64, busy_pct: f32, cpus: Option<u64>| {
            let line = ctlmgr_model::PressureLine { avg10_pct: 0.0, total_usec: 0 };
            let mut host = crate::testing::host(Bytes::mib(1000), vec![], vec![]).host;
            host.cpus = cpus;
            host.cpu_pressure = Some(ctlmgr_model::PressureLine { avg10_pct: busy_pct, ..line });
            let mut last = None;
            for second in 0..120u64 {
                let squeezed = second.saturating_sub(60);
                let memory = MemorySample {
                    swap: if squeezed > 0 { Bytes::mib(100) } else { Bytes::ZERO },
                    refault_anon: squeezed * faults,
                    pressure: Some(Pressure { some: line, full: line }),
                    ..sample(Bytes::mib(if squeezed > 0 { 300 } else { 400 }))
                };
                let cpu_usec = second * 200_000 + squeezed * 400_000;
                let io = ctlmgr_model::Io { cpu_usec, ..Default::default() };
                let (cpu_wait_usec, cpu_wait_full_usec) = (Some(0), Some(0));
                let rest = Activity::default();
                let seen = Activity { io, cpu_wait_usec, cpu_wait_full_usec, ..rest };
                let prices = Prices { cpu: price_of_cpu(&host), ..Prices::default() };
                let at = Millis(second * 1000);
                let look = Look { prices, ..look(at, &memory, seen) };
                last = Some(super::estimate(&settings(), last, &look));
            }
            Heat::of_all([last.unwrap().heat].into_iter()).is_some()
        };
        assert!(heat(1000, 80.0, Some(2)));
        assert!(!heat(1000, 0.5, Some(2)), "processors stand idle");
        assert!(!heat(10, 80.0, Some(2)), "it works for something else");
        assert!(!heat(1000, 80.0, None), "unknown");
        let mut blind = crate::testing::host(Bytes::mib(1000), vec![], vec![]).host;
        blind.cpus = Some(2);
        assert_eq!(price_of_cpu(&blind), 0.0, "without PSI");
    }

    /// Without swap the kernel takes page cache of whoever has some; what comes back late is of no working set to it.
    #[test]
    fn who_was_robbed_of_its_page_cache_keeps_its_claim_for_longer() {
        let line = ctlmgr_model::PressureLine { avg10_pct: 0.0, total_usec: 0 };
        let follow = |wait_usec_per_sec: u64| {
            let robbed = |second: u64| MemorySample {
                inactive_file: Bytes::mib(20),
                refault_file: second * 5000,
                activate_file: second.min(10) * 5000,
                pressure: Some(Pressure { some: line, full: line }),
                ..sample(Bytes::mib(40))
            };
            let io = |second: u64| ctlmgr_model::Io {
                read: Bytes(second * 5000 * Bytes::PAGE.0),
                ..Default::default()
            };
            let mut last = None;
            for second in 0..130 {
                let waited = Some(second * wait_usec_per_sec);
                let (disk_wait_usec, disk_wait_full_usec) = (waited, waited);
                let seen = Activity {
                    io: io(second),
                    disk_wait_usec,
                    disk_wait_full_usec,
                    ..Activity::default()
                };
                let at = Millis(second * 1000);
                last = Some(estimate(&settings(), last, at, &robbed(second), seen));
            }
            last.unwrap().demand
        };
        let (waits, does_not) = (follow(900_000), follow(0));
        assert!(waits > Bytes::mib(80) && does_not < Bytes::mib(60), "{waits} {does_not}");
    }

    #[test]
    fn a_fork_server_counts_what_it_shares_once() {
        // Forty children of 100 MiB each that share 90 MiB: the cgroup is charged 90 + 40 × 10.
        let children = |n: u64| sample(Bytes::mib(90 + n * 10));
        assert_eq!(follow((0..=40).map(children)).demand, Bytes::mib(490));
    }

    #[test]
    fn a_burst_counts_at_once_and_fades() {
        let burst =
            |second: u64| sample(Bytes::mib(if (30..35).contains(&second) { 500 } else { 100 }));
        assert_eq!(follow((0..35).map(burst)).demand, Bytes::mib(500));
        let later = follow((0..155).map(burst));
        assert!(
            later.demand > Bytes::mib(180) && later.demand < Bytes::mib(220),
            "{}",
            later.demand
        );
        assert!(later.basis < Bytes::mib(160), "{}", later.basis);
    }

    #[test]
    fn a_leak_does_not_earn_basis() {
        let leak = |second: u64| sample(Bytes::mib(100 + second * 2));
        let end = follow((0..300).map(leak));
        assert_eq!(end.demand, Bytes::mib(698));
        assert!(end.basis < Bytes(end.demand.0 / 2), "{}", end.basis);
    }

    #[test]
    fn a_sudden_hog_does_not_earn_basis() {
        let small =
            estimate(&settings(), None, Millis(0), &sample(Bytes::mib(10)), Activity::default());
        let big = estimate(
            &settings(),
            Some(small),
            Millis(30_000),
            &sample(Bytes::mib(1000)),
            Activity::default(),
        );
        assert_eq!(big.demand, Bytes::mib(1000));
        assert!(big.basis < Bytes::mib(50), "{}", big.basis);
    }

    proptest! {
        #[test]
        fn newcomers_of_any_size_begin_alike_and_waiting_earns_nothing(
            held in 64u64..4000, swapped in 0u64..4000, stalled_usec in 0u64..60_000_000
        ) {
            let mut memory = sample(Bytes::mib(held));
            memory.swap = Bytes::mib(swapped);
            let line = |total_usec| ctlmgr_model::PressureLine { avg10_pct: 0.0, total_usec };
            let pressure = |usec| Some(Pressure { some: line(usec), full: line(usec) });
            memory.pressure = pressure(0);
            let (at, seen) = (Millis(0), Activity::default());
            let look = Look { is_new: true, ..look(at, &memory, seen) };
            let first = super::estimate(&settings(), None, &look);
            prop_assert_eq!(first.basis, LIVING);
            // With all of it there its demand is the same, however it waits.
            memory = MemorySample { swap: Bytes::ZERO, ..sample(Bytes::mib(held + swapped)) };
            let mut later = |usec| {
                memory.pressure = pressure(usec);
                estimate(&settings(), Some(first), Millis(60_000), &memory, seen).basis
            };
            prop_assert_eq!(later(0), later(stalled_usec));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is read in sequence, however fast and however often: no more is asked for than is due by time or promise.
        #[test]
        fn a_scan_of_any_size_asks_for_no_more_than_it_is_due(
            own in 4u64..400,
            held in 100u64..8000,
            pages in 1000u64..200_000,
            request_kib in 56u64..1024,
            promise in proptest::option::of(10u64..2000),
            seconds in 5u64..90,
        ) {
            let promise = promise.map(Bytes::mib);
            let mut last = None;
            for second in 0..seconds {
                let memory = MemorySample {
                    current: Bytes::mib(own + held),
                    inactive_file: Bytes::mib(held),
                    activate_file: second * pages,
                    refault_file: second * pages,
                    ..sample(Bytes::mib(own))
                };
                let read = Bytes(second * pages * Bytes::PAGE.0);
                let reads = read.0 / (request_kib << 10);
                let io = ctlmgr_model::Io { read, reads, ..ctlmgr_model::Io::default() };
                let seen = Activity { io, ..Activity::default() };
                let (at, prices) = (Millis(second * 1000), Prices::default());
                let look = Look { prices, promise, is_new: true, ..look(at, &memory, seen) };
                last = Some(super::estimate(&settings(), last, &look));
            }
            let (last, own) = (last.unwrap(), Bytes::mib(own));
            let due = last.basis.max(promise.unwrap_or_default()).max(own);
            // Of few requests nobody can tell how it reads.
            if pages * 4 / request_kib >= 16 {
                prop_assert!(last.demand <= due, "{} of {due}", last.demand);
            }
        }

        /// What is shared is charged once, whoever of them was the first to touch it.
        #[test]
        fn a_fork_server_needs_what_it_is_charged_however_many_fork(
            shared in 10u64..500, own in 1u64..50, children in proptest::collection::vec(0u64..60, 1..30)
        ) {
            let memory = |n: u64| sample(Bytes::mib(shared + n * own));
            let most = children.iter().max().copied().unwrap_or(0);
            let now = children.last().copied().unwrap_or(0);
            let demand = follow(children.iter().map(|n| memory(*n))).demand;
            prop_assert!(demand <= Bytes::mib(shared + most * own));
            prop_assert!(demand >= Bytes::mib(shared + now * own));
        }

        /// A burst of any height counts while it is there, and half of what it was above the rest fades in each half-life.
        #[test]
        #[expect(clippy::cast_precision_loss, reason = "sizes of a test")]
        fn a_burst_of_any_height_counts_at_once_and_fades(
            rest in 10u64..500, height in 1u64..5000, lasts in 1usize..20, later in 0usize..300
        ) {
            let (calm, high) = (sample(Bytes::mib(rest)), sample(Bytes::mib(rest + height)));
            let seconds = (0..10).map(|_| calm.clone()).chain((0..lasts).map(|_| high.clone()));
            prop_assert_eq!(follow(seconds.clone()).demand, Bytes::mib(rest + height));
            let after = follow(seconds.chain((0..later).map(|_| calm.clone()))).demand;
            let half_life = settings().demand_half_life.0 as f64 / 1000.0;
            let left = height as f64 * 0.5_f64.powf(later as f64 / half_life);
            prop_assert!((after.0 as f64 / 1048576.0 - rest as f64 - left).abs() < 2.0 + left / 20.0);
        }

        /// What was taken from one whom nothing protects is no claim ten seconds later, unless it asks for it again.
        #[test]
        fn what_nobody_keeps_for_one_is_no_claim_but_for_what_comes_back(
            had in 50u64..2000, kept_pct in 0u64..100, comes_back in proptest::bool::ANY
        ) {
            let kept = had * kept_pct / 100;
            let memory = |second: u64| {
                let mut memory = sample(Bytes::mib(if second < 5 { had } else { kept }));
                memory.swap = if second < 5 { Bytes::ZERO } else { Bytes::mib(had - kept) };
                // So fast that all would be back within the horizon.
                memory.refault_anon = if comes_back { second * (had - kept) * 256 / RETURN_HORIZON_SECS * 2 } else { 0 };
                memory
            };
            let mut last = None;
            for second in 0..15u64 {
                let (at, memory) = (Millis(second * 1000), memory(second));
                let look = Look { is_kept: false, ..look(at, &memory, Activity::default()) };
                last = Some(super::estimate(&settings(), last, &look));
            }
            let (demand, taken) = (last.unwrap().demand, Bytes::mib(had - kept));
            match comes_back {
                true => prop_assert!(demand + Bytes::mib(1) >= Bytes::mib(had), "{demand}"),
                false => prop_assert!(demand <= Bytes::mib(kept) + Bytes(taken.0 / 5) + Bytes::mib(1), "{demand}"),
            }
        }

        /// A leak of any speed is asked for as it is there, and earns less basis than it asks for; so does one that fills what
        /// it never uses, all at once or little by little.
        #[test]
        fn who_only_grows_earns_less_than_it_asks_for(
            start in 1u64..200, per_second in 1u64..200, seconds in 60u64..400
        ) {
            let end = follow((0..seconds).map(|s| sample(Bytes::mib(start + s * per_second))));
            prop_assert_eq!(end.demand, Bytes::mib(start + (seconds - 1) * per_second));
            prop_assert!(end.basis < end.demand);
            let at_once = follow((0..30).map(|s| sample(Bytes::mib(if s < 5 { start } else { start + seconds * per_second }))));
            prop_assert!(at_once.basis.0 < at_once.demand.0 / 2 || at_once.demand < Bytes::mib(500), "{at_once:?}");
        }
    }

    proptest! {
        #[test]
        fn page_cache_that_is_back_soon_is_need_and_no_more_than_was_had(
            had in 64u64..2000, pct in 1u64..100, refaults in 0u64..6000, promise in 0u64..2000
        ) {
            let (own, held) = (20, had * pct / 100);
            let demand = robbed((had, held), refaults, promise, 90);
            let within = |secs: u64| (refaults * secs) >> 8;
            let away = had - held;
            if refaults >= MISSED && away * 60 > had && within(15) > away {
                // Some of it is forgotten before the first page is missed.
                prop_assert!(demand >= Bytes::mib(own + had * 9 / 10), "{demand}");
            }
            prop_assert!(demand <= Bytes::mib(own + had.max(held + within(2) + 1)), "{demand}");
        }

        #[test]
        fn bounds(old in 0u64..1 << 40, now in 0u64..1 << 40, swap in 0u64..1 << 40,
                  refaults in 0u64..1 << 30, ms in 0u64..1 << 32, max in proptest::option::of(1u64..1 << 40)) {
            let limit = max.map_or(Limit::Max, |m| Limit::Bytes(Bytes(m)));
            let first = estimate(&settings(), None, Millis(0), &sample(Bytes(old)), Activity::default());
            let mut memory = sample(Bytes(now));
            (memory.max, memory.swap, memory.refault_anon) = (limit, Bytes(swap), refaults);
            let next = estimate(&settings(), Some(first), Millis(ms), &memory, Activity::default());
            prop_assert!(next.demand >= capped(Bytes(now), limit));
            prop_assert!(next.demand <= capped(Bytes(u64::MAX), limit));
            let (low, high) = (first.basis.min(next.demand), first.basis.max(next.demand));
            prop_assert!(low <= next.basis && next.basis <= high);
        }
    }
}
