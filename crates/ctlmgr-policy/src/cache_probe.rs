//! Probing page cache before memory is short.
//!
//! # Problem
//! Under MGLRU page cache that is read by file descriptor shows that it is in use only while it is missed, so while all fits nobody needs any of it.
//! When memory becomes short the kernel takes from all alike, within two seconds and before anybody can tell who uses what: two that lived by 500 MiB of
//! files each lost 60, whatever they weighed, and had them back page by page in the next forty seconds.
//!
//! # Approach
//! That of Senpai in TMO (Weiner et al., ASPLOS 2022, §3.3), while there is some memory left: reclaim a small part, and see whether it comes back. If
//! it does, what is there is claimed ([`crate::claim`]).
//!
//! # Terms
//! *Near*: four fifths of what there is to share out is held, needed or not. *Idle cache*: page cache on the inactive list beyond need, promise and floor. *Back*: pages
//! of files that were read again since, beyond what is usual for it.
//!
//! # Algorithm
//! While memory is near, and all that is asked for is there, of who has idle cache one part in [`PART`] of its page cache, no more than a quarter of the idle one and [`MOST`]; no sooner than [`SETTLE`] after it is seen first, or [`PERIOD`]
//! after the last time, twice as long each time that nothing was claimed, up to [`REST`]. Who waits longest is first, of those the lightest, and no more than [`ALL`] is on trial at once. A trial ends after [`PERIOD`], or once all is
//! back. From the look on at which a quarter of it is back, and all would be within [`PERIOD`] at that rate, [`SAYS`] times what is back is claimed: with half of a 32nd all, with [`MOST`] 1 GiB. Nothing is concluded about who reads in
//! sequence, of which a part is worth nothing, or of whom others took noticeably more meanwhile ([`crate::cache`]). What is on trial, or was and was given up, is not missed for any other reason.
//!
//! # Properties
//! Nothing while memory is contended or swept, disks are busy, or without memory.reclaim; nor from who is no workload, claims or misses some already, stalls, reads or writes much, is
//! frozen, being made, or not told of, nor where systemd-oomd could kill soon; never below need, promise or floor; no more than [`MOST`] a minute from one; a trial that is not carried out
//! says nothing.

use ctlmgr_model::{
    Action, Bytes, Io, MemorySample, Millis, Reason, Rung, Step, Telling, VerdictKind,
};
use serde::{Deserialize, Serialize};

use crate::cache::{is_scan, within};
use crate::crowding::crowd;
use crate::demand::{Estimates, MISSED, RETURN_HORIZON_SECS, per_sec};
use crate::fade::toward;
use crate::keeping::Keeping;
use crate::oomd;
use crate::scene::{Scene, is_at_work};

/// One part in so many of the capacity that is not held is little.
const NEAR: u64 = 5;
/// Nothing is known of one at first sight.
const SETTLE: Millis = Millis(10_000);
/// What is not back by then is in no use.
const PERIOD: Millis = Millis(RETURN_HORIZON_SECS * 1000);
const REST: Millis = Millis(600_000);
/// What was tried is known sooner, or it was not tried.
const UNKNOWN: Millis = Millis(20_000);
/// One part in so many of its page cache.
const PART: u64 = 32;
/// However large a cache is: what disks that seek read in some seconds, if not at random.
const MOST: Bytes = Bytes::mib(16);
pub(crate) const ALL: Bytes = Bytes::mib(64);
/// A chunk of it, as what was taken of one that is broken off is not known.
const CHUNK: Bytes = Bytes::mib(4);
/// Who has less idle cache has nothing to lose.
const SMALL: Bytes = Bytes::mib(32);
/// So much of what was taken, one part in so many, is no chance.
const ENOUGH: u64 = 4;
/// What is taken is the first of what was read, and not always what is used least: so many times that is in use if it is.
const SAYS: u64 = 64;
/// A stall from which on nothing is taken, in millionths of its time (that of [`crate::probe`]), and waiting for disks, in per cent.
const LIMIT: u32 = 10_000;
const BUSY: f32 = 10.0;
/// What is usual for one follows what it does by half in this time.
const USUAL_HALF_LIFE: Millis = Millis(60_000);

/// What is remembered of one workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CacheProbe {
    /// When the last one was decided on, or its workload was seen first.
    at: Millis,
    /// How long it is to the next.
    pause: Millis,
    /// What it reads again each second when nothing is tried.
    usual_per_sec: Bytes,
    /// What was counted when nothing was tried, last.
    before: Counts,
    trial: Option<Trial>,
}

/// A probe whose pages may come back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Trial {
    asked: Bytes,
    /// What was taken, once that is known.
    taken: Option<Bytes>,
    /// What of it is back.
    back: Bytes,
    /// Whether it has shown that what is there is in use.
    has_shown: bool,
}

/// What is counted of a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Pages of files that were read again.
    pub refaults: u64,
    pub io: Io,
}

impl Counts {
    /// Those of one look.
    pub(crate) fn of(memory: &MemorySample, io: Io) -> Counts {
        Counts { refaults: memory.refault_file, io }
    }

    fn refaults_since(&self, before: &Counts) -> Bytes {
        within(self.refaults.saturating_sub(before.refaults), 1)
    }
}

/// What one look says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// What came back since the last one of what was taken.
    pub back: Bytes,
    /// What of that is away.
    pub away: Bytes,
    /// Whether that is given up: nobody misses it.
    pub is_given_up: bool,
    /// What is in use at least, if that is known.
    pub in_use: Option<Bytes>,
}

impl CacheProbe {
    /// Of one that is seen first.
    pub(crate) fn new(at: Millis, before: Counts) -> CacheProbe {
        CacheProbe { at, pause: SETTLE, before, ..CacheProbe::default() }
    }

    /// After one more look.
    pub(crate) fn next(self, (at, passed): (Millis, Millis), now: Counts) -> (CacheProbe, Found) {
        let Some(trial) = self.trial else { return (self.at_rest(passed, now), Found::default()) };
        let elapsed = at.since(self.at);
        let taken = trial.taken.unwrap_or(trial.asked);
        let usual = within(self.usual_per_sec.0 / Bytes::PAGE.0 * elapsed.0 / 1000, 1);
        let back = (now.refaults_since(&self.before) - usual).min(taken).max(trial.back);
        let is_clear = trial.taken.is_some_and(|taken| taken > Bytes::ZERO)
            && !is_scan(&self.before.io, &now.io);
        let is_soon = back.0 >= taken.0 / ENOUGH && would_be_back(taken, back, elapsed);
        let has_shown = trial.has_shown || (is_clear && is_soon);
        let in_use = (is_clear && has_shown).then(|| Bytes(back.0.saturating_mul(SAYS)));
        let is_over =
            elapsed >= PERIOD || back >= taken || trial.taken.is_none() && elapsed >= UNKNOWN;
        let found = Found {
            back: back - trial.back,
            away: taken - back,
            is_given_up: is_over && !has_shown && trial.taken.is_some(),
            in_use,
        };
        if !is_over {
            let trial = Some(Trial { back, has_shown, ..trial });
            return (CacheProbe { trial, ..self }, found);
        }
        let longer = Millis(self.pause.0.saturating_mul(2)).clamp(PERIOD, REST);
        let pause = match trial.taken {
            Some(_) if !has_shown => longer,
            Some(_) => PERIOD,
            None => self.pause.max(PERIOD),
        };
        (CacheProbe { pause, before: now, trial: None, ..self }, found)
    }

    fn at_rest(self, passed: Millis, now: Counts) -> CacheProbe {
        let came = now.refaults_since(&self.before);
        let per_sec = Bytes(per_sec(0, came.0, passed));
        let usual_per_sec = toward(self.usual_per_sec, per_sec, passed, USUAL_HALF_LIFE);
        CacheProbe { usual_per_sec, before: now, ..self }
    }

    fn begin(&mut self, at: Millis, asked: Bytes) {
        (self.at, self.trial) = (at, Some(Trial { asked, ..Trial::default() }));
    }

    /// Learns what was taken; `None` if nothing was tried.
    pub(crate) fn learn(&mut self, taken: Option<Bytes>) {
        self.trial = self.trial.filter(|_| taken.is_some()).map(|trial| Trial { taken, ..trial });
    }

    fn on_trial(self) -> Bytes {
        self.trial.map_or(Bytes::ZERO, |trial| trial.taken.unwrap_or(trial.asked))
    }
}

/// Whether all would be back within [`PERIOD`] at the rate so far.
fn would_be_back(taken: Bytes, back: Bytes, elapsed: Millis) -> bool {
    let elapsed = elapsed.min(PERIOD);
    u128::from(back.0) * u128::from(PERIOD.0) >= u128::from(taken.0) * u128::from(elapsed.0)
}

/// The probes of one cycle.
pub(crate) fn probe_caches(scene: &Scene<'_, '_>) -> Vec<Step> {
    let (account, host) = (scene.account, &scene.snapshot.host);
    let is_near = (host.mem_free - account.headroom).0 < account.capacity.0 / NEAR;
    let is_busy = host.io_pressure.is_some_and(|p| p.some.avg10_pct >= BUSY);
    let is_meant = scene.settings.probe_cache && host.has_reclaim && is_near && !is_busy;
    if !is_meant || account.is_contended() || scene.is_swept() {
        return Vec::new();
    }
    let mut due: Vec<_> = scene.all.iter().filter(|k| may_be_probed(scene, k)).collect();
    due.sort_by_key(|k| (k.party.estimate.cache_probe.at, k.party.entitlement.weight, k.id()));
    let mut left = ALL - scene.all.iter().map(|k| k.party.estimate.cache_probe.on_trial()).sum();
    let mut steps = Vec::new();
    for keeping in due {
        let amount = amount(keeping);
        if amount > left {
            break;
        }
        left = left - amount;
        steps.push(step(scene, keeping, amount));
    }
    steps
}

/// Notes who is probed.
pub(crate) fn note(estimates: &mut Estimates, steps: &[Step], at: Millis) {
    for step in steps.iter().filter(|s| is_cache_probe(s)) {
        let Some(asked) = step.action.amount_to_reclaim() else { continue };
        estimates.entry(step.id).and_modify(|e| e.cache_probe.begin(at, asked));
    }
}

/// Whether a step is one of these.
pub(crate) fn is_cache_probe(step: &Step) -> bool {
    step.rung == Rung::Probe && matches!(step.action, Action::Reclaim { only_cache: true, .. })
}

/// What they take of this plan.
pub(crate) fn probed(steps: &[Step]) -> Bytes {
    let probes = steps.iter().filter(|s| is_cache_probe(s));
    probes.filter_map(|s| s.action.amount_to_reclaim()).sum()
}

fn amount(keeping: &Keeping<'_, '_>) -> Bytes {
    let part = Bytes(keeping.party.group.memory.page_cache().0 / PART);
    part.min(Bytes(idle_cache(keeping).0 / 4)).min(MOST).page_floor()
}

/// Page cache that it is not known to need, and that nobody said is its own.
fn idle_cache(keeping: &Keeping<'_, '_>) -> Bytes {
    let (party, memory) = (keeping.party, &keeping.party.group.memory);
    crowd(party).min(memory.inactive_file).min(memory.current - party.entitlement.floor)
}

fn may_be_probed(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> bool {
    let (party, now) = (keeping.party, scene.snapshot.at);
    let (group, estimate) = (party.group, &party.estimate);
    let probe = estimate.cache_probe;
    let is_due = probe.trial.is_none() && now.since(probe.at) >= probe.pause;
    let shows_it = estimate.claim.amount() > Bytes::ZERO
        || estimate.refaults_per_sec >= MISSED
        || estimate.stall.ppm.is_some_and(|stall| stall >= LIMIT);
    let must_not_be = party.is_untold()
        || group.activity.is_to_freeze
        || group.activity.is_frozen
        || scene.state.making.has(group, now)
        || oomd::is_close(&scene.snapshot.oomd, &group.path);
    let is_meant = party.kind == VerdictKind::Workload && idle_cache(keeping) >= SMALL;
    is_meant && is_due && !shows_it && !must_not_be && !is_at_work(estimate)
}

fn step(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>, amount: Bytes) -> Step {
    let (party, free) = (keeping.party, scene.snapshot.host.mem_free);
    let reason = format!(
        "probes whether {amount} of page cache are missed, of which {} are not known to be needed: {free} are free, of a headroom of {}",
        idle_cache(keeping),
        scene.account.headroom
    );
    Step {
        path: party.group.path.clone(),
        id: party.group.id,
        action: Action::Reclaim {
            amount,
            chunk: CHUNK.min(scene.settings.reclaim_chunk),
            only_cache: true,
        },
        rung: Rung::Probe,
        reason: Reason(reason),
        telling: Telling::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, floor_of, group, host, settings};
    use crate::{State, check, decide};
    use ctlmgr_model::{
        CgroupPath, Outcome, Percent, Pressure, PressureLine, Snapshot, Source, Watched, Workload,
    };
    use proptest::prelude::*;

    const MIB: fn(u64) -> Bytes = Bytes::mib;

    /// A container with so much page cache on the inactive list, and 9 MiB of its own.
    fn cached(id: u64, cache: u64, promise: Option<Bytes>) -> Workload {
        let mut workload = container(&format!("w{id}"), id, MIB(9), promise);
        let memory = &mut workload.group.memory;
        (memory.current, memory.inactive_file) = (MIB(9 + cache), MIB(cache));
        workload
    }

    /// A host of which they have as much as they hold, it has 100 MiB, a unit 1100, and so much is free.
    fn with_free(free: u64, workloads: Vec<Workload>) -> Snapshot {
        let held: Bytes = workloads.iter().map(|w| w.group.memory.current).sum();
        let unit = group("system.slice/unit.service", 5, MIB(1100));
        let mut snapshot = host(held + MIB(1200 + free), workloads, vec![unit]);
        snapshot.host.reclaimable_cache =
            snapshot.workloads.iter().map(|w| w.group.memory.page_cache()).sum();
        snapshot
    }

    /// Who is probed for how much, in MiB, and what is remembered when all of that was taken.
    fn look(snapshot: &Snapshot, state: State) -> (Vec<(u64, u64)>, State) {
        let (plan, mut state) = decide(&settings(), state, snapshot);
        assert_eq!(check(&settings(), &plan, snapshot), []);
        let probes: Vec<_> = plan.steps.iter().filter(|s| is_cache_probe(s)).collect();
        let taken = |s: &Step| match s.action {
            Action::Reclaim { amount, .. } => amount,
            _ => Bytes::ZERO,
        };
        for step in &probes {
            state.learn(step, &Outcome::Reclaimed(taken(step)), snapshot.at);
        }
        (probes.iter().map(|s| (s.id.0, taken(s).0 >> 20)).collect(), state)
    }

    /// After it was seen for a while.
    fn known(snapshot: &mut Snapshot) -> State {
        let (probes, state) = look(snapshot, State::default());
        assert_eq!(probes, [], "nothing is known at first sight");
        snapshot.at = Millis(snapshot.at.0 + SETTLE.0);
        state
    }

    fn probed(mut snapshot: Snapshot) -> Vec<(u64, u64)> {
        let state = known(&mut snapshot);
        look(&snapshot, state).0
    }

    #[test]
    fn who_holds_more_than_it_is_known_to_need_is_probed_once_memory_is_nearly_short() {
        let of = |free, cache, promise| probed(with_free(free, vec![cached(11, cache, promise)]));
        assert_eq!(of(300, 320, None), [(11, 10)]);
        assert_eq!(of(300, 1600, None), [(11, 16)], "however large it is");
        assert_eq!(of(440, 320, None), []);
        assert_eq!(of(300, 20, None), []);
        assert_eq!(of(300, 320, Some(MIB(350))), [], "it was promised that");
        assert_eq!(of(300, 320, Some(MIB(200))), [(11, 10)]);
    }

    fn waiting(avg10_pct: f32) -> Pressure {
        let line = PressureLine { avg10_pct, total_usec: 0 };
        Pressure { some: line, full: line }
    }

    #[test]
    fn nobody_is_probed_who_must_not_be() {
        let with = |change: fn(&mut Snapshot)| {
            let mut snapshot = with_free(300, vec![cached(11, 320, None)]);
            let state = known(&mut snapshot);
            change(&mut snapshot);
            look(&snapshot, state).0
        };
        assert_eq!(with(|_| ()), [(11, 10)]);
        assert_eq!(with(|s| s.host.has_reclaim = false), []);
        assert_eq!(with(|s| s.workloads[0].group.activity.is_to_freeze = true), []);
        let gap = |s: &mut Snapshot| {
            s.gaps.push(ctlmgr_model::Gap { what: "x".into(), why: "y".into() });
        };
        assert_eq!(with(gap), []);
        let untold = |s: &mut Snapshot| match &mut s.workloads[0].source {
            Source::Container(facts) => facts.is_untold = true,
            _ => unreachable!("it is a container"),
        };
        assert_eq!(with(untold), []);
        assert_eq!(with(|s| s.bystanders.push(s.workloads.remove(0).group)), [], "a unit");
        let contended = |s: &mut Snapshot| {
            s.workloads.push(container("large", 12, MIB(2100), None));
        };
        assert_eq!(with(contended), []);
        let reading = |s: &mut Snapshot| s.workloads[0].group.activity.io.read = MIB(50);
        assert_eq!(with(reading), [], "at work");
        let missing = |s: &mut Snapshot| s.workloads[0].group.memory.refault_file = 200;
        assert_eq!(with(missing), [], "it shows by itself what it needs");
        let frozen = |s: &mut Snapshot| s.workloads[0].group.activity.is_frozen = true;
        assert_eq!(with(frozen), []);
        let busy = |s: &mut Snapshot| s.host.io_pressure = Some(waiting(10.0));
        let idle = |s: &mut Snapshot| s.host.io_pressure = Some(waiting(9.0));
        assert_eq!((with(busy), with(idle)), (vec![], vec![(11, 10)]));
        let close = |s: &mut Snapshot| {
            let watched = Watched { limit: Percent(60), pressure: Some(waiting(40.0)) };
            s.oomd.watched.insert(CgroupPath::new("a.slice"), watched);
        };
        assert_eq!(with(close), []);
        let active = |s: &mut Snapshot| {
            let memory = &mut s.workloads[0].group.memory;
            (memory.active_file, memory.inactive_file) = (MIB(300), MIB(20));
        };
        assert_eq!(with(active), []);
    }

    #[test]
    fn nothing_is_taken_of_a_floor_and_nothing_where_it_is_switched_off() {
        let mut snapshot = with_free(300, vec![cached(11, 320, None)]);
        let state = known(&mut snapshot);
        let count = |settings: &ctlmgr_model::Settings| {
            let (plan, _) = decide(settings, state.clone(), &snapshot);
            plan.steps.iter().filter(|s| is_cache_probe(s)).count()
        };
        let mut changed = settings();
        assert_eq!(count(&changed), 1);
        changed.rules.push(floor_of("w11", MIB(310)));
        assert_eq!(count(&changed), 0);
        changed.rules.clear();
        changed.memory.probe_cache = false;
        assert_eq!(count(&changed), 0);
    }

    /// The seconds at which one is probed that has so much back, in MiB, until the next look, ten seconds later; and what it needs in the end.
    fn probed_at(back: u64, is_scan: bool) -> (Vec<u64>, u64) {
        let mut snapshot = with_free(300, vec![cached(11, 320, None)]);
        let (mut state, mut times, mut taken) = (State::default(), Vec::new(), false);
        for second in (0..1000).step_by(10) {
            snapshot.at = Millis(10_000 + second * 1000);
            if std::mem::take(&mut taken) {
                let group = &mut snapshot.workloads[0].group;
                group.memory.refault_file += MIB(back).0 / Bytes::PAGE.0;
                let io = &mut group.activity.io;
                (io.read, io.reads) =
                    (io.read + MIB(back), io.reads + back * if is_scan { 8 } else { 256 });
            }
            let (probes, next) = look(&snapshot, state);
            state = next;
            taken = !probes.is_empty();
            times.extend(probes.first().map(|_| second));
        }
        let need = state.estimates[&snapshot.workloads[0].group.id].demand;
        (times, need.0 >> 20)
    }

    #[test]
    fn who_misses_nothing_is_probed_more_and_more_seldom_and_so_is_who_reads_in_sequence() {
        assert_eq!(probed_at(0, false), (vec![10, 70, 190, 430, 910], 9));
        assert_eq!(probed_at(2, false), (vec![10, 70, 190, 430, 910], 9));
        assert_eq!(probed_at(10, true).0, [10, 70, 190, 430, 910]);
    }

    #[test]
    fn who_has_it_back_is_probed_again_once_its_claim_is_over() {
        let (times, need) = probed_at(10, false);
        assert_eq!((times, need), (vec![10, 140, 390, 880], 329));
    }

    #[test]
    fn the_lighter_ones_are_first_and_who_was_not_yet_before_who_was() {
        let weighing = |id: u64| {
            let mut one = cached(id, 640, None);
            if let Source::Container(facts) = &mut one.source {
                facts.labels.insert("ctlmgr.weight".into(), (1000 - id).to_string());
            }
            one
        };
        let mut snapshot = with_free(300, (11..19).map(weighing).collect());
        let state = known(&mut snapshot);
        let (first, state) = look(&snapshot, state);
        assert_eq!(first, [15, 16, 17, 18].map(|id| (id, 16)));
        snapshot.at = Millis(snapshot.at.0 + 10_000);
        let (then, state) = look(&snapshot, state);
        assert_eq!(then, [], "as much as may be is on trial");
        snapshot.at = Millis(snapshot.at.0 + 61_000);
        let (then, _) = look(&snapshot, state);
        assert_eq!(then, [11, 12, 13, 14].map(|id| (id, 16)));
    }

    /// What it is taken to need ten seconds after a probe of 15 MiB, of which so much came back.
    fn need_after(back: u64, change: fn(&mut ctlmgr_model::Group)) -> u64 {
        let mut snapshot = with_free(300, vec![cached(11, 500, None)]);
        let state = known(&mut snapshot);
        let (probes, state) = look(&snapshot, state);
        assert_eq!(probes, [(11, 15)]);
        let group = &mut snapshot.workloads[0].group;
        let memory = &mut group.memory;
        let away = MIB(15) - MIB(back);
        (memory.current, memory.inactive_file) =
            (memory.current - away, memory.inactive_file - away);
        memory.refault_file += MIB(back).0 / Bytes::PAGE.0;
        (group.activity.io.read, group.activity.io.reads) = (MIB(back), back * 256);
        change(group);
        snapshot.at = Millis(snapshot.at.0 + 10_000);
        let (_, state) = look(&snapshot, state);
        state.estimates[&snapshot.workloads[0].group.id].demand.0 >> 20
    }

    #[test]
    fn who_has_half_of_it_back_needs_all_that_it_has() {
        assert_eq!(need_after(15, |_| ()), 509);
        assert!(need_after(9, |_| ()) >= 503, "{}", need_after(9, |_| ()));
        assert_eq!(need_after(0, |_| ()), 9);
        assert!(need_after(3, |_| ()) < 20, "{}", need_after(3, |_| ()));
        let scan = need_after(15, |group| group.activity.io.reads /= 64);
        assert!(scan < 20, "{scan}");
        let stolen = need_after(5, |group| {
            let memory = &mut group.memory;
            (memory.current, memory.inactive_file) =
                (memory.current - MIB(100), memory.inactive_file - MIB(100));
        });
        assert!(stolen < 50, "others took as well: {stolen}");
    }

    /// One that reads so much again each second, on trial for 16 MiB, and what was counted when that began.
    fn on_trial(usual_mib: u64) -> (CacheProbe, Counts) {
        let pages = usual_mib * 256;
        let counts = |seconds| Counts { refaults: pages * seconds, ..Counts::default() };
        let at_rest = |probe: CacheProbe, second| {
            probe.next((Millis(second * 1000), Millis(1000)), counts(second)).0
        };
        let mut probe = (1..=600).fold(CacheProbe::new(Millis(0), counts(0)), at_rest);
        probe.begin(Millis(600_000), MOST);
        (probe, counts(600))
    }

    /// What is seen so many seconds later, when so much in MiB was read again since.
    fn seen(probe: CacheProbe, from: Counts, second: u64, mib: u64) -> (CacheProbe, Found) {
        let now = Counts { refaults: from.refaults + mib * 256, ..from };
        probe.next((Millis(600_000 + second * 1000), Millis(1000)), now)
    }

    #[test]
    fn what_comes_back_is_in_use_as_far_as_it_says() {
        let (mut probe, from) = on_trial(0);
        probe.learn(Some(MOST));
        let in_use = |second, mib| seen(probe, from, second, mib).1.in_use.map(|b| b.0 >> 20);
        assert_eq!((in_use(10, 3), in_use(10, 4), in_use(10, 8)), (None, Some(256), Some(512)));
        assert_eq!((in_use(30, 7), in_use(30, 8)), (None, Some(512)), "too slowly");
        assert_eq!((in_use(70, 15), in_use(70, 16)), (None, Some(1024)), "looked at late");
        let (probe, found) = seen(probe, from, 10, 5);
        assert_eq!((found.back, found.away), (MIB(5), MIB(11)));
        let (probe, found) = seen(probe, from, 30, 7);
        assert_eq!((found.back, found.in_use), (MIB(2), Some(MIB(448))), "once shown it goes on");
        let reading = Counts { io: Io { read: MIB(300), reads: 2400, ..Io::default() }, ..from };
        let (scanning, found) = probe.next((Millis(640_000), Millis(1000)), reading);
        assert!(found.in_use.is_none() && scanning.trial.is_some_and(|t| t.has_shown));
        let (probe, found) = seen(probe, from, 40, 20);
        assert_eq!((found.back, found.away, found.is_given_up), (MIB(9), Bytes::ZERO, false));
        assert!(probe.trial.is_none() && probe.pause == PERIOD);
    }

    #[test]
    fn what_does_not_come_back_within_a_minute_is_given_up() {
        let (mut probe, from) = on_trial(0);
        probe.learn(Some(MOST));
        let (probe, found) = seen(probe, from, 59, 3);
        assert!(probe.trial.is_some() && !found.is_given_up);
        let (probe, found) = seen(probe, from, 60, 3);
        assert_eq!((found.away, found.is_given_up), (MIB(13), true));
        assert_eq!((probe.trial, probe.pause), (None, PERIOD));
        let again =
            CacheProbe { trial: Some(Trial { taken: Some(MOST), ..Trial::default() }), ..probe };
        assert_eq!(seen(again, from, 60, 3).0.pause, Millis(120_000), "twice as long each time");
    }

    #[test]
    fn a_trial_that_was_not_carried_out_says_nothing() {
        let (probe, from) = on_trial(0);
        assert_eq!(seen(probe, from, 10, 16).1.in_use, None, "nobody knows yet");
        let (over, found) = seen(probe, from, 20, 1);
        assert!(over.trial.is_none() && !found.is_given_up, "it is known by then");
        for taken in [None, Some(Bytes::ZERO)] {
            let mut probe = probe;
            probe.learn(taken);
            let found = seen(probe, from, 10, 16).1;
            assert_eq!((found.back, found.away, found.in_use), (Bytes::ZERO, Bytes::ZERO, None));
        }
    }

    #[test]
    fn what_is_usual_for_one_says_nothing() {
        let (mut probe, from) = on_trial(1);
        probe.learn(Some(MOST));
        let back = |mib| {
            let found = seen(probe, from, 10, mib).1;
            (found.back.0 >> 20, found.in_use.is_some())
        };
        assert_eq!((back(10), back(20)), ((0, false), (10, true)));
    }

    proptest! {
        /// However many there are, and whatever is free.
        #[test]
        fn little_is_taken_and_nothing_of_what_is_needed_or_promised(
            free in 0u64..1000,
            all in proptest::collection::vec((0u64..900, proptest::option::of(0u64..900)), 1..12),
        ) {
            let of = |(id, (cache, promise)): (u64, &(u64, Option<u64>))| cached(id, *cache, promise.map(MIB));
            let workloads: Vec<_> = (11..).zip(&all).map(of).collect();
            let mut snapshot = with_free(free, workloads);
            let state = known(&mut snapshot);
            let (plan, _) = decide(&settings(), state, &snapshot);
            prop_assert_eq!(check(&settings(), &plan, &snapshot), []);
            let mut sum = Bytes::ZERO;
            for step in plan.steps.iter().filter(|s| is_cache_probe(s)) {
                let Action::Reclaim { amount, .. } = step.action else { unreachable!("it reclaims") };
                let (cache, promise) = all[(step.id.0 - 11) as usize];
                prop_assert!(amount <= MOST && amount.0 <= MIB(cache).0 / PART, "{}", step);
                prop_assert!(9 + cache - (amount.0 >> 20) >= promise.unwrap_or(0), "{}", step);
                sum = sum + amount;
            }
            prop_assert!(sum <= ALL);
        }
    }
}
