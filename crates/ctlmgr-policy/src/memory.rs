//! The memory job: who keeps how much, and the steps that make it so.
//!
//! # Problem
//! Under pressure the kernel decides who gives up memory by the order of its lists. The owner
//! wants it decided by weight and promise: the same situation, the same result, with a reason.
//!
//! # Approach
//! Estimate demand ([`crate::demand`]), work out the capacity, divide it by weight
//! ([`crate::share`]), then map shares to knobs: *protect* with memory.low on workloads and cover
//! on their ancestors, *reclaim* early from those above their share ([`crate::reclaim`]), and,
//! where the operator wants it, *throttle* them by memory.high ([`crate::throttle`]), *freeze*
//! ([`crate::freeze`]) or stop them ([`crate::kill`]), the last two by class. What the workloads feel corrects the shares ([`crate::feedback`]).
//!
//! # Terms
//! Share, promise, basis, floor, headroom: see ARCHITECTURE, "How memory is shared".
//!
//! # Properties (tested here and in the closed loop of the testkit)
//! Pure; in a steady world the second plan has no `Set`; a change under the hysteresis is not
//! written, nor a raise after a raise under 4 MiB for who misses pages; at most one write per knob and reading of the quick pace; Σ memory.low of workloads ≤ capacity up to
//! hysteresis; a knob that no plan wants any more is given back; a value that another writer set
//! stays, unless the settings say otherwise; who is being made ([`crate::making`]) is left alone; with a gap in the reading no step takes anything from
//! anybody.

use std::collections::BTreeSet;

use ctlmgr_model::{
    Action, Bytes, CapacityAccount, CgroupId, CgroupPath, Group, Knob, Millis, Mode, PageAging,
    Plan, Reason, Rung, Settings, SliceAccount, Snapshot, Source, Step, Telling, Verdict,
    VerdictKind,
};

use crate::aging::age;
use crate::complaint::{complaints, is_left, overridden, troubles};
use crate::crowding::{self, is_filling, is_robbed};
use crate::demand::{MISSED, estimate_all};
use crate::freeze::{AWAKE, Frozen, explain};
use crate::hard::{Wanted, hard};
use crate::keeping::Keeping;
use crate::ladder::Ladder;
use crate::order::order;
use crate::probe::Probe;
use crate::reclaim::NOISE;
use crate::room::rooms;
use crate::scene::{Now, Scene};
use crate::state::{State, WRITE_INTERVAL};
use crate::telling::tell;
use crate::throttle::Throttled;
use crate::turns::dead_band;
use crate::used_up::due;
use crate::verdict::{Party, parties, verdicts};
use crate::{capacity, cover, units};

/// Decides what to do about memory.
///
/// `state` is what the last call returned, plus what [`State::learn`] was told since.
pub fn decide(settings: &Settings, state: State, snapshot: &Snapshot) -> (Plan, State) {
    let estimates = estimate_all(settings, &state, snapshot);
    let looked_at = if snapshot.gaps.is_empty() { Some(snapshot.at) } else { state.looked_at };
    let is_new = |id| state.looked_at.is_some() && !state.estimates.contains_key(&id);
    let (heed, making) = (state.heed.next(snapshot), state.making.next(snapshot, is_new));
    let listed = Some(capacity::usually_listed(state.listed, snapshot));
    let mut state = State { estimates, looked_at, heed, making, listed, ..state };
    if !snapshot.is_mixed {
        state.note_overridden(overridden(&state, snapshot));
    }
    let parties = parties(settings, &state, snapshot);
    let (slices, demand) = capacity::slices(&state, snapshot, &parties);
    let account = capacity::account(&settings.memory, &state, snapshot, demand);
    let mut complaints = complaints(settings, &state, &parties);
    complaints.extend(troubles(settings, &state, snapshot, (&account, &slices), &parties));
    let controller = settings.memory.controller;
    let mut verdicts = verdicts(controller, (&account, &slices), &parties, &mut complaints);
    let (is_filling, is_robbed) = (is_filling(&state, &parties), is_robbed(&parties));
    let due = due(&state, &parties, &verdicts, &slices);
    state.tension = state.tension.next(&account, Now { snapshot, is_filling, is_robbed, due });
    state.thawed_at.retain(|_, at| snapshot.at.since(*at) < AWAKE);
    let context = Context { settings, state: &state, snapshot, account: &account, slices: &slices };
    let Chosen { steps, braked, crowding, probes } = context.choose(&parties, &verdicts);
    context.mark_rungs(&mut verdicts, &steps, &braked);
    for (id, probe) in probes {
        state.estimates.entry(id).and_modify(|e| e.probe = probe);
    }
    state.note_steps(&steps, snapshot.at);
    (state.braked, state.crowding) = (braked, crowding);
    let is_swept = !account.is_contended() && state.tension.is_swept(snapshot.at);
    complaints.extend(crowding::words(&parties).filter(|_| is_swept));
    let heeding = state.heed.seen();
    let plan =
        Plan { at: snapshot.at, steps, verdicts, complaints, account, slices, is_swept, heeding };
    (plan, state)
}

/// What comes of one cycle.
#[derive(Default)]
struct Chosen {
    steps: Vec<Step>,
    /// Who is held back by memory.high.
    braked: BTreeSet<CgroupPath>,
    /// Whose page cache crowds out that of others.
    crowding: BTreeSet<CgroupPath>,
    /// What to remember of probes.
    probes: Vec<(CgroupId, Probe)>,
}

/// What one cycle reads from.
struct Context<'a> {
    settings: &'a Settings,
    state: &'a State,
    snapshot: &'a Snapshot,
    account: &'a CapacityAccount,
    slices: &'a [SliceAccount],
}

impl<'a> Context<'a> {
    fn choose(&self, parties: &[Party<'a>], verdicts: &[Verdict]) -> Chosen {
        if verdicts.len() != parties.len() {
            // Without shares nobody is held back either.
            let stays =
                |_: &CgroupPath, knob| Knob::PROTECTION.contains(&knob) || knob == Knob::LruGen;
            let steps = order(self.state.release(self.snapshot.at, stays));
            return Chosen { steps, ..Chosen::default() };
        }
        let managed: Vec<_> =
            parties.iter().zip(verdicts).filter(|(p, _)| p.entitlement.managed).collect();
        let rooms = rooms((self.state, self.snapshot), self.account, &managed);
        let all: Vec<_> =
            managed.iter().zip(rooms).map(|((p, v), room)| Keeping::new(p, v, room)).collect();
        let verdicts: Vec<_> = managed.iter().map(|(_, v)| *v).collect();
        let Context { settings, state, snapshot, account, slices } = *self;
        let scene =
            Scene { settings: &settings.memory, account, state, snapshot, all: &all, slices };
        let ladder = Ladder::climb(&scene, &verdicts, self.may_take());
        let workloads: Vec<_> = all
            .iter()
            .zip(verdicts)
            .filter(|(k, _)| k.party.kind == VerdictKind::Workload)
            .collect();
        let hard = hard(&scene, &workloads);
        let units = units::kept(&scene);
        let own = workloads.iter().map(|(k, v)| self.kept(k, v));
        let low = own.chain(units).collect::<Vec<_>>();
        let mut steps = self.knobs(&low, &ladder, &hard);
        steps.iter_mut().for_each(|step| explain(&scene, step));
        steps.extend(age(&settings.memory, state, snapshot));
        let braked = ladder.limited(|t| t.is_braked);
        let crowding = ladder.limited(|t| t.is_crowding);
        steps.extend(ladder.taking);
        let steps = order(tell(state, snapshot.at, steps));
        Chosen { steps, braked, crowding, probes: ladder.probes }
    }

    /// Steps that write a knob or give it back.
    fn knobs(&self, low: &[Wanted<'a>], ladder: &Ladder<'a>, hard: &[Wanted<'a>]) -> Vec<Step> {
        let (mut steps, low) = self.protect(Knob::MemoryLow, low);
        let (more, min) = self.protect(Knob::MemoryMin, hard);
        steps.extend(more);
        steps.extend(ladder.throttled.iter().filter_map(|t| self.slow_down(t)));
        let still = |f: &Frozen<'a>| self.step(Knob::CgroupFreeze, f.group, Knob::STILL, &f.why);
        steps.extend(ladder.frozen.iter().filter_map(still));
        let wanted = ladder.wanted();
        steps.extend(self.state.release(self.snapshot.at, |path, knob| match knob {
            Knob::MemoryLow => !self.may_take() || low.contains(path) || self.is_untold(path),
            Knob::MemoryMin => !self.may_take() || min.contains(path) || self.is_untold(path),
            // To let go takes nothing from anybody; but a limit of who was not read may be missed.
            Knob::MemoryHigh if !self.may_take() && !self.was_read(path) => true,
            Knob::LruGen => self.settings.memory.lru == PageAging::Classic,
            _ => wanted.contains(&(path.clone(), knob)),
        }));
        steps.iter_mut().for_each(|step| self.leave_paused(step));
        steps
    }

    /// A container that its user paused while it was frozen stays so: that is what others last
    /// wanted.
    fn leave_paused(&self, step: &mut Step) {
        let Action::Release { knob: Knob::CgroupFreeze, prior, .. } = &mut step.action else {
            return;
        };
        let owner = self.snapshot.workloads.iter().find(|w| w.group.id == step.id);
        if let Some(Source::Container(facts)) = owner.map(|w| &w.source) {
            *prior = if facts.is_paused { Knob::STILL } else { *prior };
        }
    }

    fn slow_down(&self, throttled: &Throttled<'a>) -> Option<Step> {
        let observed = read(throttled.group, Knob::MemoryHigh);
        let [left, room] = [observed, throttled.high].map(|h| h - throttled.group.memory.current);
        // However small, a raise matters to who is about to run into its limit.
        let is_raise = throttled.high > observed && room > Bytes::ZERO && left.0 <= room.0 / 2;
        // Who crowds out others is pushed back little by little.
        let band = match throttled.is_crowding && throttled.high < observed {
            true => self.settings.memory.hysteresis_bytes.min(NOISE),
            false => dead_band(&self.settings.memory, throttled.high, throttled.high),
        };
        let is_small = observed.abs_diff(throttled.high) < band && !is_raise;
        (!is_small)
            .then(|| self.step(Knob::MemoryHigh, throttled.group, throttled.high, &throttled.why))?
    }

    /// Notes for each workload the strongest rung in force.
    fn mark_rungs(&self, verdicts: &mut [Verdict], steps: &[Step], braked: &BTreeSet<CgroupPath>) {
        // What is only said is on no rung.
        let is_acting = self.settings.memory.mode == Mode::Act;
        let is_reclaimed = |v: &Verdict| {
            let hits = |s: &Step| s.rung == Rung::Reclaim && v.path.is_within(&s.path);
            is_acting && v.held > v.share && steps.iter().any(hits)
        };
        for v in verdicts {
            let has = |knob| self.state.written.contains_key(&(v.path.clone(), knob));
            let is_last = |s: &Step| s.rung == Rung::Kill && s.path == v.path;
            v.rung = match () {
                () if is_acting && steps.iter().any(is_last) => Some(Rung::Kill),
                () if has(Knob::CgroupFreeze) => Some(Rung::Freeze),
                () if has(Knob::MemoryHigh) && braked.contains(&v.path) => Some(Rung::Throttle),
                () if is_reclaimed(v) => Some(Rung::Reclaim),
                () if has(Knob::MemoryLow) => Some(Rung::Protect),
                () => None,
            };
        }
    }

    /// With a gap in the reading nobody loses anything: what was not read may need what the
    /// others seem not to.
    fn may_take(&self) -> bool {
        self.snapshot.gaps.is_empty()
    }

    /// Whether it is a container of which nothing is known: it loses no protection either.
    fn is_untold(&self, path: &CgroupPath) -> bool {
        let owner = self.snapshot.workloads.iter().find(|w| w.group.path == *path);
        owner.is_some_and(|w| matches!(&w.source, Source::Container(facts) if facts.is_untold))
    }

    fn was_read(&self, path: &CgroupPath) -> bool {
        self.snapshot.groups().any(|g| g.path == *path)
    }

    /// memory.low of a workload, and why.
    fn kept(&self, keeping: &Keeping<'a, '_>, verdict: &Verdict) -> Wanted<'a> {
        let party = keeping.party;
        let left = match keeping.room {
            Bytes::ZERO => String::new(),
            room => format!("; {room} less is protected, for background reclaim to find something"),
        };
        Wanted {
            group: party.group,
            amount: self.protection(party, verdict) - keeping.room,
            is_said: false,
            is_too_much: false,
            why: format!("{}{left}", verdict.reason.0),
        }
    }

    /// memory.low of a workload: its share; but without contention nobody needs what a user's own
    /// reservation protects beyond that, so it stays.
    fn protection(&self, party: &Party<'_>, verdict: &Verdict) -> Bytes {
        // What was there before ctlmgr, and contention has lowered, is back once it is over.
        let low = read(party.group, Knob::MemoryLow);
        let users = match self.state.tension.is_calm(self.snapshot.at) {
            true => self.state.prior(party.group, Knob::MemoryLow, low),
            false => low,
        };
        let reserved = verdict.promise.unwrap_or_default().min(users);
        // A full slice has to share out what it has, like a contended host.
        match self.account.is_contended() || self.is_in_full_slice(&verdict.path) {
            true => verdict.share,
            false => verdict.share.max(reserved),
        }
    }

    fn is_in_full_slice(&self, path: &CgroupPath) -> bool {
        self.slices.iter().any(|slice| slice.holds_back(path))
    }

    /// Steps that bring one knob of the workloads and of their ancestors to what is wanted, and
    /// all cgroups where a value of ours belongs.
    fn protect(&self, knob: Knob, wanted: &[Wanted<'a>]) -> (Vec<Step>, BTreeSet<CgroupPath>) {
        let mut steps = Vec::new();
        let mut kept: BTreeSet<_> = wanted.iter().map(|w| w.group.path.clone()).collect();
        let mut after: Vec<(&Group, Bytes)> = Vec::new();
        for w in wanted {
            let step = self.protect_one(knob, w);
            after.push((w.group, step.as_ref().map_or(read(w.group, knob), cover::left_by)));
            steps.extend(step);
        }
        for ancestor in self.snapshot.slices() {
            let below = cover::below(ancestor, after.iter().copied());
            if below > Bytes::ZERO {
                kept.insert(ancestor.path.clone());
                // Hard protection is given as far as the host can cover it, and for ours only.
                let beside = match knob {
                    Knob::MemoryLow => {
                        cover::beside(ancestor, self.state, self.snapshot)
                            + units::unlisted(self.state, self.snapshot, ancestor)
                    }
                    _ => Bytes::ZERO,
                };
                steps.extend(self.cover(knob, ancestor, below, beside));
            }
        }
        (steps, kept)
    }

    fn protect_one(&self, knob: Knob, wanted: &Wanted<'a>) -> Option<Step> {
        let observed = read(wanted.group, knob);
        let to = wanted.amount.page_floor();
        // A floor is what was said, however small. And what the kernel must find, little as it is, nobody may keep from it.
        let is_bound = wanted.is_too_much || self.is_in_full_slice(&wanted.group.path);
        let is_tight = to < observed && is_bound;
        let band = match wanted.is_said || is_tight {
            true => observed.scaled(self.settings.memory.hysteresis),
            false => {
                let turns = self.state.turns(wanted.group, knob);
                let all = dead_band(&self.settings.memory, observed, to);
                // What comes back above that may be taken again, so who misses some would never have the last of it.
                let is_missed = to > observed && turns.rises() && self.misses(wanted.group);
                let band = if is_missed { all.min(NOISE) } else { all };
                turns.widened(band, observed, to, self.snapshot.at)
            }
        };
        let to = match observed.abs_diff(to) < band {
            true if self.state.is_pending(wanted.group, knob) => observed,
            true => return None,
            false => to,
        };
        self.step(knob, wanted.group, to, &wanted.why)
    }

    fn misses(&self, group: &Group) -> bool {
        self.state.estimates.get(&group.id).is_some_and(|e| e.refaults_per_sec >= MISSED)
    }

    fn cover(&self, knob: Knob, ancestor: &Group, below: Bytes, beside: Bytes) -> Option<Step> {
        let observed = read(ancestor, knob);
        // What others had set is for what they claim.
        let prior = self.state.prior(ancestor, knob, observed).max(beside);
        let step = self.settings.memory.hysteresis_bytes;
        let again = self.state.is_pending(ancestor, knob).then_some(observed);
        let to = cover::target(observed, prior, below, step).or(again)?;
        self.step(knob, ancestor, to, &format!("covers {below} of those below it"))
    }

    fn step(&self, knob: Knob, group: &Group, to: Bytes, why: &str) -> Option<Step> {
        let from = read(group, knob);
        let written_at = self.state.written_at(group, knob).filter(|at| *at > Millis(0));
        let recent = written_at.is_some_and(|at| self.snapshot.at.since(at) < WRITE_INTERVAL);
        let may_lower = self.may_take() && !self.is_untold(&group.path);
        // To tell what is in force is no write of the knob.
        let is_telling = recent && self.state.is_untold(group, knob, from);
        let (to, recent) = if is_telling { (from, false) } else { (to, recent) };
        let is_there = from == to && !self.state.is_pending(group, knob);
        // It may be what a keeper was told before, and writes now.
        let is_unclear = self.snapshot.is_mixed && self.state.was_overridden(group, knob, from);
        let is_being_made = self.state.making.has(group, self.snapshot.at);
        let on_override = self.settings.memory.on_override;
        let is_left =
            is_being_made || is_left(on_override, (self.state, self.snapshot), group, knob);
        if recent || is_there || is_unclear || is_left || (to < from && !may_lower) {
            return None;
        }
        let prior = self.state.prior(group, knob, from);
        let rung = match knob {
            Knob::MemoryLow | Knob::MemoryMin => Rung::Protect,
            Knob::MemoryHigh => Rung::Throttle,
            Knob::CgroupFreeze => Rung::Freeze,
            Knob::LruGen => Rung::Protect,
            Knob::CpusetCpus | Knob::CpusetMems => Rung::Place,
        };
        Some(Step {
            path: group.path.clone(),
            id: group.id,
            action: Action::Set { knob, from, prior, to },
            rung,
            reason: Reason(why.to_owned()),
            telling: Telling::Now,
        })
    }
}

/// The value of a knob in a snapshot.
pub(crate) fn read(group: &Group, knob: Knob) -> Bytes {
    match knob {
        Knob::MemoryLow => group.memory.low,
        Knob::MemoryMin => group.memory.min,
        Knob::MemoryHigh => group.memory.high.bytes().unwrap_or(Bytes(u64::MAX)),
        Knob::CgroupFreeze => {
            if group.activity.is_to_freeze {
                Knob::STILL
            } else {
                Bytes::ZERO
            }
        }
        // No cgroup has it, or it is no amount.
        Knob::LruGen | Knob::CpusetCpus | Knob::CpusetMems => Bytes::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entitlement::entitlement;
    use crate::heat::Heat;
    use crate::testing::*;
    use ctlmgr_model::{OnOverride, Outcome, Weight};

    const M: fn(u64) -> Bytes = Bytes::mib;

    fn pair(a: Bytes, b: Bytes) -> Snapshot {
        let workloads =
            vec![container("small", 11, a, Some(M(400))), container("large", 12, b, Some(M(800)))];
        host(M(1400), workloads, Vec::new())
    }

    /// For tests that count the steps of protection that is wanted in any case.
    fn soft_only() -> Settings {
        let mut settings = settings();
        (settings.memory.throttle, settings.memory.harden) = (false, false);
        settings
    }

    fn share(plan: &Plan, name: &str) -> Bytes {
        plan.verdicts.iter().find(|v| v.name.0 == name).unwrap().share
    }

    /// Carries out the `Set` steps on the snapshot, as the kernel would.
    fn apply(plan: &Plan, state: &mut State, snapshot: &mut Snapshot) {
        for step in &plan.steps {
            let (knob, to) = match step.action {
                Action::Set { knob, to, .. } => (knob, to),
                Action::Release { knob, prior, .. } => (knob, prior),
                _ => continue,
            };
            state.learn(step, &Outcome::Done, snapshot.at);
            let groups = snapshot.workloads.iter_mut().map(|w| &mut w.group);
            for group in groups.chain(&mut snapshot.ancestors).filter(|g| g.id == step.id) {
                match knob {
                    Knob::MemoryLow => group.memory.low = to,
                    Knob::MemoryMin => group.memory.min = to,
                    Knob::MemoryHigh => group.memory.high = ctlmgr_model::Limit::Bytes(to),
                    Knob::CgroupFreeze => {
                        group.activity.is_to_freeze = to == Knob::STILL;
                        group.activity.is_frozen = to == Knob::STILL;
                    }
                    Knob::LruGen | Knob::CpusetCpus | Knob::CpusetMems => {}
                }
            }
        }
    }

    #[test]
    fn without_pressure_everybody_keeps_what_is_needed() {
        let snapshot = host(M(4000), vec![container("a", 11, M(400), None)], Vec::new());
        let (plan, _) = decide(&settings(), State::default(), &snapshot);
        assert_eq!(share(&plan, "a"), M(400));
        assert!(!plan.account.is_contended());
        assert!(plan.steps.iter().all(|s| s.rung == Rung::Protect));
    }

    #[test]
    fn equal_weights_keep_equal_fractions_under_pressure() {
        let (plan, _) = decide(&settings(), State::default(), &pair(M(400), M(900)));
        // Capacity 1400 − 100 − 42; 400:800 of 1258.
        assert_eq!(plan.account.capacity, M(1258));
        assert_eq!(share(&plan, "small").0 / Bytes::mib(1).0, 400);
        let snapshot = pair(M(400), M(800));
        let (plan, _) = decide(&settings(), State::default(), &snapshot);
        assert!(plan.account.capacity >= M(1200));
    }

    #[test]
    fn steps_settle_and_cover_the_slice() {
        let settings = settings();
        let mut snapshot = pair(M(400), M(700));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        assert_eq!(crate::check(&settings, &plan, &snapshot), []);
        apply(&plan, &mut state, &mut snapshot);
        snapshot.at = Millis(20_000);
        let low: Bytes = snapshot.workloads.iter().map(|w| w.group.memory.low).sum();
        assert!(snapshot.ancestors[0].memory.low >= low && low > M(1000));
        let (again, _) = decide(&settings, state, &snapshot);
        assert_eq!(again.steps, []);
    }

    #[test]
    fn protection_of_who_misses_pages_is_raised_by_less_than_a_dead_band() {
        let raised = |pages: u64, more: u64| {
            let settings = soft_only();
            let mut snapshot = pair(M(400), M(700));
            let (plan, mut state) = decide(&settings, State::default(), &snapshot);
            apply(&plan, &mut state, &mut snapshot);
            snapshot.at = Millis(20_000);
            let memory = &mut snapshot.workloads[1].group.memory;
            (memory.anon, memory.current) = (M(700 + more), M(700 + more));
            memory.refault_anon = pages;
            let (plan, _) = decide(&settings, state, &snapshot);
            let is_raise = |s: &Step| matches!(s.action, Action::Set { knob: Knob::MemoryLow, .. });
            plan.steps.iter().any(|s| s.id == CgroupId(12) && is_raise(s))
        };
        let missed = MISSED * 10;
        assert_eq!([raised(0, 5), raised(0, 20)], [false, true]);
        assert_eq!([raised(missed, 3), raised(missed, 5)], [false, true]);
    }

    #[test]
    fn reclaim_goes_to_the_slice_only_when_free_memory_is_short() {
        let settings = settings();
        let mut snapshot = pair(M(430), M(830));
        snapshot.host.mem_free = M(30);
        snapshot.host.mem_total = M(1390);
        let (plan, _) = decide(&settings, State::default(), &snapshot);
        let reclaims: Vec<_> = plan.steps.iter().filter(|s| s.rung == Rung::Reclaim).collect();
        assert_eq!(reclaims.len(), 1);
        assert_eq!(reclaims[0].path.as_str(), "a.slice");
        snapshot.host.mem_free = M(200);
        let (plan, _) = decide(&settings, State::default(), &snapshot);
        assert!(plan.steps.iter().all(|s| s.rung != Rung::Reclaim));
    }

    #[test]
    fn a_bystander_above_its_share_gives_first() {
        let settings = settings();
        let workloads = vec![container("web", 11, M(500), Some(M(500)))];
        let first =
            host(M(1400), workloads.clone(), vec![group("system.slice/job.service", 30, M(10))]);
        let (_, state) = decide(&settings, State::default(), &first);
        let mut later =
            host(M(1400), workloads, vec![group("system.slice/job.service", 30, M(780))]);
        later.at = Millis(40_000);
        let (plan, _) = decide(&settings, state, &later);
        let reclaims: Vec<_> = plan.steps.iter().filter(|s| s.rung == Rung::Reclaim).collect();
        assert_eq!(reclaims.len(), 1, "{plan:#?}");
        assert_eq!(reclaims[0].path.as_str(), "system.slice/job.service");
        assert_eq!(share(&plan, "web"), M(500));
    }

    /// What a cold unit gives is reclaimed; a limit there would slow down who is healthy.
    #[test]
    fn no_limit_follows_what_a_unit_gave_by_heat() {
        let mut unit = group("system.slice/job.service", 30, M(200));
        unit.memory.swap = M(400);
        let workloads = [11, 12].map(|id| container(&id.to_string(), id, M(500), Some(M(500))));
        let mut snapshot = host(M(1600), workloads.into(), vec![unit]);
        let (_, mut state) = decide(&settings(), State::default(), &snapshot);
        for (id, waited) in [(11, 0.6), (12, 0.6), (30, 0.01)] {
            let feel = |h: Heat, _| h.next(Millis(1000), 0.5, Some(waited), 0.0);
            let heat = (0..600).fold(Heat::default(), feel);
            state.estimates.entry(CgroupId(id)).and_modify(|e| e.heat = heat);
        }
        snapshot.at = Millis(11_000);
        // All of it is coming back.
        snapshot.bystanders[0].memory.refault_anon = 30_000;
        let (plan, _) = decide(&settings(), state, &snapshot);
        let verdict = plan.verdicts.iter().find(|v| v.kind == VerdictKind::Bystander).unwrap();
        let by_weight = Bytes(verdict.share.0 * 100 / u64::from(verdict.lift_pct));
        assert!(verdict.share + M(30) < by_weight, "{verdict:#?}");
        let high = plan.steps.iter().find_map(|s| match s.action {
            Action::Set { knob: Knob::MemoryHigh, to, .. } if s.id == CgroupId(30) => Some(to),
            _ => None,
        });
        assert!(high.is_some_and(|high| high >= by_weight), "{high:?} {verdict:#?}");
    }

    #[test]
    fn another_writer_is_named_and_its_value_stays_or_becomes_the_prior() {
        let mut settings = settings();
        let mut snapshot = pair(M(400), M(600));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        snapshot.workloads[0].group.memory.low = M(7);
        snapshot.at = Millis(20_000);
        let small = snapshot.workloads[0].group.path.clone();
        let step = |plan: &Plan| plan.steps.iter().find(|s| s.path == small).cloned();
        let (plan, seen) = decide(&settings, state.clone(), &snapshot);
        assert!(plan.complaints.iter().any(|c| c.contains("leaves it at that")));
        assert_eq!((step(&plan), seen.overrides()), (None, 1));
        assert_eq!(decide(&settings, seen, &snapshot).1.overrides(), 1, "the same is no news");
        // What was there before ours is another's will as well, as soon as ours was read back.
        let mut back = snapshot.clone();
        back.workloads[0].group.memory.low = Bytes::ZERO;
        let (plan, seen) = decide(&settings, state.clone(), &back);
        assert_eq!((step(&plan), seen.overrides()), (None, 1), "{:?}", plan.complaints);
        // It may be what is being written just now.
        let mixed = Snapshot { is_mixed: true, ..snapshot.clone() };
        let (plan, seen) = decide(&settings, state.clone(), &mixed);
        assert_eq!((plan.complaints.len(), seen.overrides()), (0, 0));
        settings.memory.on_override = OnOverride::Reassert;
        let (plan, _) = decide(&settings, state.clone(), &snapshot);
        assert!(plan.complaints.iter().any(|c| c.contains("writes its own again")));
        let Action::Set { prior, .. } = step(&plan).unwrap().action else { panic!("no set") };
        assert_eq!(prior, M(7));
        assert!(
            plan.complaints.iter().any(|c| c.starts_with("small: memory.low was changed to 7 MiB"))
        );
        let soon = Snapshot { at: Millis(19_000), ..snapshot.clone() };
        assert!(step(&decide(&settings, state.clone(), &soon).0).is_none(), "a fight");
        // What dockerd sets as reservation is a promise, whatever the policy.
        settings.memory.on_override = OnOverride::Yield;
        if let ctlmgr_model::Source::Container(facts) = &mut snapshot.workloads[0].source {
            facts.reservation = Some(M(7));
        }
        let (plan, seen) = decide(&settings, state, &snapshot);
        assert!(step(&plan).is_some());
        assert_eq!((plan.complaints.len(), seen.overrides()), (0, 0));
    }

    /// Less protection is in force before its keeper is told, so there is nothing else by which to see that it was not.
    #[test]
    fn a_keeper_that_was_not_told_is_told_again_and_what_it_holds_is_no_others_will() {
        let mut settings = soft_only();
        let mut snapshot = pair(M(400), M(600));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        let held = snapshot.workloads[1].group.memory.low;
        let path = snapshot.workloads[1].group.path.clone();
        let is_it = |s: &&Step| {
            s.path == path && !matches!(s.action, Action::Reclaim { .. } | Action::Stop { .. })
        };
        // Twice the machine shrinks, and twice the manager does not answer.
        let silent = [Outcome::Failed("no answer".into()), Outcome::Untold];
        for ((at, total), silent) in [(20_000, 800), (30_000, 600)].into_iter().zip(silent) {
            (snapshot.at, snapshot.host.mem_total) = (Millis(at), M(total));
            let (plan, next) = decide(&settings, state, &snapshot);
            let step = plan.steps.iter().find(is_it).unwrap();
            state = next;
            state.learn(step, &silent, snapshot.at);
            let Action::Set { from, to, .. } = step.action else { panic!("no set") };
            assert!(to < from);
            snapshot.workloads[1].group.memory.low = to;
        }
        let in_force = snapshot.workloads[1].group.memory.low;
        snapshot.at = Millis(40_000);
        let (plan, again) = decide(&settings, state.clone(), &snapshot);
        assert_eq!(crate::check(&settings, &plan, &snapshot), []);
        let step = plan.steps.iter().find(is_it).cloned().unwrap();
        let Action::Set { from, to, .. } = step.action else { panic!("{step:?}") };
        assert_eq!((from, to), (in_force, in_force), "a little more or less is no news to it");
        // A reload brings back what the manager holds.
        let mut reloaded = snapshot.clone();
        reloaded.workloads[1].group.memory.low = held;
        assert_eq!(decide(&settings, state, &reloaded).1.overrides(), 0);
        let mut told = again;
        told.learn(&step, &Outcome::Done, snapshot.at);
        snapshot.at = Millis(50_000);
        let (plan, mut state) = decide(&settings, told, &snapshot);
        assert_eq!(plan.steps.iter().find(is_it), None, "once told it is well");
        // Nor is it another's will that a failed release is in force.
        settings.manage_containers = false;
        snapshot.at = Millis(60_000);
        let (plan, _) = decide(&settings, state.clone(), &snapshot);
        let step = plan.steps.iter().find(is_it).unwrap();
        assert!(matches!(step.action, Action::Release { .. }), "{step:?}");
        state.learn(step, &Outcome::Failed("no answer".into()), snapshot.at);
        snapshot.workloads[1].group.memory.low = Bytes::ZERO;
        snapshot.at = Millis(70_000);
        assert_eq!(decide(&settings, state, &snapshot).1.overrides(), 0);
    }

    /// In force at once, and told when it has stood.
    #[test]
    fn another_value_of_ours_is_told_to_its_keeper_once_it_has_stood() {
        let settings = soft_only();
        let mut snapshot = pair(M(400), M(600));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        assert!(
            plan.steps.iter().all(|step| step.telling.is_now()),
            "nothing of ours is known to it"
        );
        apply(&plan, &mut state, &mut snapshot);
        let path = snapshot.workloads[1].group.path.clone();
        let is_it = |s: &&Step| s.path == path && s.action.knob() == Some(Knob::MemoryLow);
        snapshot.host.mem_total = M(800);
        let mut seen = Vec::new();
        for at in 20..32 {
            snapshot.at = Millis(at * 1000);
            let (plan, next) = decide(&settings, state, &snapshot);
            let step = plan.steps.iter().find(is_it).cloned();
            state = next;
            for step in &plan.steps {
                let outcome = match step.telling {
                    Telling::Now => Outcome::Done,
                    Telling::Later => Outcome::Untold,
                };
                state.learn(step, &outcome, snapshot.at);
                let Action::Set { knob: Knob::MemoryLow, to, .. } = step.action else { continue };
                let groups = snapshot.workloads.iter_mut().map(|w| &mut w.group);
                let all = groups.chain(&mut snapshot.ancestors);
                all.filter(|g| g.id == step.id).for_each(|g| g.memory.low = to);
            }
            seen.extend(step.map(|step| (at, step.is_told_only(), step.telling)));
        }
        let [(20, false, Telling::Later), moves @ .., (told_at, true, Telling::Now)] = &seen[..]
        else {
            panic!("{seen:?}")
        };
        let last = moves.last().map_or(20, |(at, ..)| *at);
        assert!(moves.iter().all(|(_, is_told, _)| !is_told) && *told_at == last + 5, "{seen:?}");
    }

    /// A manager that answers late has done what was decided long ago, and a newer plan is in force.
    #[test]
    fn what_becomes_of_an_older_write_tells_only_what_its_keeper_holds() {
        let settings = soft_only();
        let mut snapshot = pair(M(400), M(600));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        let path = snapshot.workloads[1].group.path.clone();
        let is_it = |s: &&Step| s.path == path && s.action.knob() == Some(Knob::MemoryLow);
        let mut write = |state: State, at: Millis, total| {
            (snapshot.at, snapshot.host.mem_total) = (at, total);
            let (plan, mut state) = decide(&settings, state, &snapshot);
            let step = plan.steps.iter().find(is_it).cloned().unwrap();
            state.learn(&step, &Outcome::Untold, at);
            let Action::Set { to, .. } = step.action else { panic!("{step:?}") };
            snapshot.workloads[1].group.memory.low = to;
            (step, state)
        };
        let (older, state) = write(state, Millis(20_000), M(800));
        let (newer, mut state) = write(state, Millis(22_000), M(600));
        let saved = |step: &Step| step.to_save().unwrap();
        for (outcome, is_unknown) in
            [(Outcome::Failed("no answer".into()), true), (Outcome::Done, false)]
        {
            state.learn(&older, &outcome, Millis(20_000));
            let known = &state.written[&(path.clone(), Knob::MemoryLow)];
            assert_eq!(known.saved.ours, saved(&newer).ours);
            assert!(known.is_pending && known.saved.is_ours(&saved(&older).ours));
            assert_eq!(known.saved.is_ours(&saved(&older).before), is_unknown);
        }
        // Nor does a release that ends late take the newer write away.
        let (knob, ours, prior) = (Knob::MemoryLow, M(1), Bytes::ZERO);
        let release = Step { action: Action::Release { knob, ours, prior }, ..older.clone() };
        state.learn(&release, &Outcome::Done, Millis(20_000));
        let key = (path.clone(), Knob::MemoryLow);
        assert_eq!(state.written[&key].saved.ours, saved(&newer).ours);
        let mut told = state.clone();
        told.learn(&newer, &Outcome::Done, Millis(22_000));
        let known = &told.written[&key].saved;
        assert!(!told.written[&key].is_pending && !known.is_ours(&M(1400).into()));
        assert_eq!((&known.told, &known.asked), (&None, &None), "it holds ours");
        // What is found while a writer is at work, and is not known, is not written over.
        snapshot.at = Millis(24_000);
        snapshot.workloads[1].group.memory.low = M(123);
        snapshot.is_mixed = true;
        let (plan, _) = decide(&settings, state, &snapshot);
        assert_eq!(plan.steps.iter().find(is_it), None);
    }

    /// As a user's manager leaves its slices when a setting of a unit changes; of the system's manager somebody
    /// has asked for it.
    #[test]
    fn a_users_slice_found_as_it_was_before_is_covered_again() {
        let below = |path: &CgroupPath, manager: &str| {
            CgroupPath::new(&path.as_str().replace("a.slice", &format!("{manager}a.slice")))
        };
        let settings = settings();
        let covered_from = |manager: &str, low: Option<Bytes>| {
            let mut snapshot = pair(M(200), M(300));
            let workloads = snapshot.workloads.iter_mut().map(|w| &mut w.group);
            for group in workloads.chain(&mut snapshot.ancestors) {
                group.path = below(&group.path, manager);
            }
            let mut state = State::default();
            for grown in [200, 400] {
                let memory = &mut snapshot.workloads[0].group.memory;
                *memory = ctlmgr_model::MemorySample { low: memory.low, ..sample(M(grown)) };
                snapshot.at = Millis(snapshot.at.0 + 60_000);
                let (plan, next) = decide(&settings, state, &snapshot);
                state = next;
                apply(&plan, &mut state, &mut snapshot);
            }
            snapshot.at = Millis(snapshot.at.0 + 20_000);
            let present = snapshot.ancestors[0].memory.low;
            snapshot.ancestors[0].memory.low = low.unwrap_or(present);
            let (plan, _) = decide(&settings, state, &snapshot);
            let slice = &snapshot.ancestors[0].path;
            (plan.steps.iter().any(|s| s.path == *slice), plan.complaints.len())
        };
        let users = "user.slice/user-7.slice/user@7.service/";
        assert_eq!(covered_from(users, None), (false, 0));
        assert_eq!(covered_from(users, Some(Bytes::ZERO)), (true, 0), "nobody meant what is below");
        assert_eq!(covered_from(users, Some(M(7))), (false, 1), "this is what somebody wants");
        assert_eq!(covered_from("", Some(Bytes::ZERO)), (false, 1), "and so is this");
    }

    /// The kernel divides a slice's protection among all below it that claim of it.
    #[test]
    fn what_others_claim_below_a_slice_is_covered_too() {
        let settings = settings();
        let cover_of = |path: &str, claimed: u64, prior: u64| {
            let mut other = group(path, 30, M(50));
            other.memory.low = M(claimed);
            let mut snapshot =
                host(M(1400), vec![container("web", 11, M(400), Some(M(400)))], vec![other]);
            snapshot.ancestors[0].memory.low = M(prior);
            let (plan, _) = decide(&settings, State::default(), &snapshot);
            let cover =
                plan.steps.iter().find(|s| s.path.as_str() == "a.slice").map(cover::left_by);
            cover.unwrap_or(M(prior))
        };
        let cover = |claimed, prior| cover_of("a.slice/other.service", claimed, prior);
        let deeper = "a.slice/a-b.slice/other.service";
        assert_eq!(cover_of(deeper, 40, 0), cover(0, 0), "its own slice passes on nothing");
        // The slack grows with it.
        let more = |claimed, prior| (cover(claimed, prior) - cover(0, 0)).0 >> 20;
        assert_eq!(more(40, 0), 40);
        assert_eq!(more(500, 0), 51, "no more than it holds");
        assert_eq!(more(40, 40), 40, "which somebody else has seen to already");
    }

    #[test]
    fn what_is_only_said_is_on_no_rung() {
        let mut settings = settings();
        let mut snapshot = pair(M(430), M(830));
        (snapshot.host.mem_free, snapshot.host.mem_total) = (M(30), M(1300));
        let mut rungs = |mode| {
            settings.memory.mode = mode;
            let (plan, _) = decide(&settings, State::default(), &snapshot);
            assert!(plan.steps.iter().any(|s| s.rung == Rung::Reclaim));
            plan.verdicts.iter().filter(|v| v.rung.is_some()).count()
        };
        assert_eq!(rungs(Mode::Observe), 0);
        assert!(rungs(Mode::Act) > 0);
    }

    #[test]
    fn a_slice_that_comes_again_with_our_value_does_not_make_it_somebody_elses() {
        let settings = settings();
        let mut snapshot = pair(M(400), M(600));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        snapshot.ancestors[0].id = ctlmgr_model::CgroupId(999);
        snapshot.workloads.pop();
        snapshot.at = Millis(20_000);
        let (plan, _) = decide(&settings, state, &snapshot);
        let step = plan.steps.iter().find(|s| s.path.as_str() == "a.slice").unwrap();
        let Action::Set { prior, .. } = step.action else { panic!("no set") };
        assert_eq!(prior, Bytes::ZERO);
        assert_eq!(plan.complaints, Vec::<String>::new());
    }

    #[test]
    fn what_is_not_managed_any_more_is_given_back() {
        let settings = soft_only();
        let mut snapshot = pair(M(400), M(600));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        snapshot.at = Millis(20_000);
        let facts = match &mut snapshot.workloads[0].source {
            ctlmgr_model::Source::Container(facts) => facts,
            ctlmgr_model::Source::Unit(_) => panic!("a container"),
        };
        facts.labels.insert("ctlmgr.managed".into(), "false".into());
        let gone = snapshot.workloads.pop().unwrap().group.path;
        let (plan, mut state) = decide(&settings, state, &snapshot);
        assert_eq!(crate::check(&settings, &plan, &snapshot), []);
        let released = |plan: &Plan| -> Vec<_> {
            let is_release = |s: &&Step| matches!(s.action, Action::Release { .. });
            plan.steps.iter().filter(is_release).map(|s| s.path.clone()).collect()
        };
        let unmanaged = snapshot.workloads[0].group.path.clone();
        assert_eq!(released(&plan), [unmanaged, gone, ctlmgr_model::CgroupPath::new("a.slice")]);
        apply(&plan, &mut state, &mut snapshot);
        snapshot.at = Millis(30_000);
        let (plan, _) = decide(&settings, state, &snapshot);
        assert_eq!(plan.steps, [], "given back once");
    }

    #[test]
    fn who_is_small_is_protected_too() {
        for (held, low) in [(M(2), M(2)), (M(6), M(6)), (Bytes(600 << 10), Bytes::ZERO)] {
            let mut snapshot = pair(held, M(600));
            let (plan, mut state) = decide(&settings(), State::default(), &snapshot);
            apply(&plan, &mut state, &mut snapshot);
            assert_eq!(snapshot.workloads[0].group.memory.low, low, "{held}");
        }
    }

    /// One too small for a memory.low of its own must not keep the cover of those that left.
    #[test]
    fn a_slice_whose_protected_ones_left_is_given_back() {
        let settings = settings();
        let mut snapshot = pair(Bytes(600 << 10), M(600));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        assert!(snapshot.ancestors[0].memory.low > M(500));
        assert_eq!(snapshot.workloads[0].group.memory.low, Bytes::ZERO);
        snapshot.workloads.pop();
        snapshot.at = Millis(20_000);
        let (plan, mut state) = decide(&settings, state, &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        assert_eq!(snapshot.ancestors[0].memory.low, Bytes::ZERO, "{:?}", plan.steps);
    }

    #[test]
    fn with_a_gap_nobody_loses_anything() {
        let settings = soft_only();
        let mut snapshot = pair(M(430), M(830));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        snapshot.at = Millis(20_000);
        (snapshot.host.mem_free, snapshot.host.mem_total) = (M(30), M(1390));
        snapshot.workloads.pop();
        let (plan, _) = decide(&settings, state.clone(), &snapshot);
        assert_ne!(plan.steps, []);
        let what = "/a.slice/docker".to_owned();
        snapshot.gaps.push(ctlmgr_model::Gap { what, why: "test".into() });
        let (plan, _) = decide(&settings, state, &snapshot);
        assert_eq!(plan.steps, []);
        assert!(plan.complaints.iter().any(|c| c.contains("could be read")));
    }

    #[test]
    fn floors_do_not_flap_around_their_limit() {
        let mut settings = soft_only();
        settings.rules.push(floor_of("*", M(480)));
        let min = |plan: &Plan| {
            plan.steps.iter().filter(|s| s.to_string().contains("memory.min")).count()
        };
        // 960 MiB of floors: above 80 % of 1130, below 80 % of 1230, below 90 % of either.
        let tight = host(M(1300), pair(M(500), M(500)).workloads, Vec::new());
        let (plan, _) = decide(&settings, State::default(), &tight);
        assert_eq!(min(&plan), 2, "of one, and what covers it");
        let refused =
            |c: &&String| c.starts_with("large: a floor of 480 MiB (rule at t:1) is refused");
        assert_eq!(plan.complaints.iter().filter(refused).count(), 1, "{:?}", plan.complaints);
        let mut roomy = host(M(1400), tight.workloads.clone(), Vec::new());
        let (plan, mut state) = decide(&settings, State::default(), &roomy);
        assert_eq!(min(&plan), 3);
        apply(&plan, &mut state, &mut roomy);
        let mut tight = host(M(1300), roomy.workloads.clone(), Vec::new());
        (tight.ancestors, tight.at) = (roomy.ancestors, Millis(20_000));
        let (plan, _) = decide(&settings, state, &tight);
        assert_eq!(min(&plan), 0, "{:?}", plan.steps);
    }

    #[test]
    fn one_write_per_knob_and_second() {
        let settings = soft_only();
        let mut snapshot = pair(M(400), M(300));
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        snapshot.workloads[1].group.memory.anon = M(600);
        snapshot.at = Millis(snapshot.at.0 + 500);
        let (plan, state) = decide(&settings, state, &snapshot);
        assert_eq!(plan.steps, []);
        snapshot.at = Millis(snapshot.at.0 + 500);
        let (plan, _) = decide(&settings, state, &snapshot);
        assert_ne!(plan.steps, []);
    }

    #[test]
    fn a_reservation_is_not_lowered_without_contention() {
        let mut web = container("web", 11, M(100), Some(M(300)));
        web.group.memory.low = M(300);
        let snapshot = host(M(4000), vec![web], Vec::new());
        let (plan, _) = decide(&settings(), State::default(), &snapshot);
        assert!(plan.steps.iter().all(|s| s.path.as_str() == "a.slice"), "{:?}", plan.steps);
    }

    /// Podman tells nobody of a reservation but the kernel.
    #[test]
    fn what_others_have_set_as_memory_low_of_a_container_of_podmans_is_its_promise() {
        let promised = |path: &str, prior: Option<Bytes>, low: Bytes| {
            let mut web = container("web", 11, M(100), None);
            let Source::Container(facts) = &mut web.source else { panic!("no container") };
            facts.name = None;
            (web.group.path, web.group.memory.low) = (CgroupPath::new(path), low);
            let mut state = State::default();
            if let Some(prior) = prior {
                state.adopt(&ctlmgr_model::Saved {
                    path: web.group.path.clone(),
                    id: web.group.id,
                    knob: Knob::MemoryLow,
                    prior: prior.into(),
                    ours: M(90).into(),
                    before: prior.into(),
                    told: None,
                    asked: None,
                    had_setting: false,
                });
            }
            let snapshot = host(M(4000), vec![web], Vec::new());
            let (plan, state) = decide(&settings(), state, &snapshot);
            let is_lowered =
                plan.steps.iter().any(|s| cover::left_by(s) < low && s.id == CgroupId(11));
            (plan.verdicts[0].promise, is_lowered, state.overrides())
        };
        let podman = |prior, low| promised("machine.slice/libpod-7.scope", prior, low);
        assert_eq!(podman(None, M(300)), (Some(M(300)), false, 0));
        assert_eq!(podman(None, Bytes::ZERO), (None, false, 0));
        assert_eq!(podman(Some(M(300)), M(90)), (Some(M(300)), false, 0), "ours is no promise");
        assert_eq!(podman(Some(Bytes::ZERO), M(90)).0, None, "nor is it without another's");
        assert_eq!(podman(Some(Bytes::ZERO), M(200)), (Some(M(200)), false, 0), "podman update");
        assert_eq!(podman(None, Bytes(u64::MAX)).0, None, "without a size");
        // Another's name for a container is no reservation, nor is what a user says to the manager of his session.
        let user = "user.slice/user-1000.slice/user@1000.service/user.slice/libpod-7.scope";
        for path in ["a.slice/docker-7.scope", user] {
            assert_eq!(promised(path, None, M(300)).0, None, "{path}");
        }
    }

    #[test]
    fn a_reservation_is_back_when_contention_is_over() {
        let web = container("web", 11, M(300), Some(M(800)));
        let mut snapshot = host(M(4000), vec![web], Vec::new());
        snapshot.workloads[0].group.memory.low = M(800);
        let mut state = State::default();
        let saved = ctlmgr_model::Saved {
            path: snapshot.workloads[0].group.path.clone(),
            id: snapshot.workloads[0].group.id,
            knob: Knob::MemoryLow,
            prior: M(800).into(),
            ours: M(200).into(),
            before: M(800).into(),
            told: None,
            asked: None,
            had_setting: false,
        };
        state.adopt(&saved);
        snapshot.workloads[0].group.memory.low = M(200);
        let (plan, _) = decide(&soft_only(), state, &snapshot);
        let set = |s: &Step| match s.action {
            Action::Set { knob: Knob::MemoryLow, to, .. } if s.id == CgroupId(11) => Some(to),
            _ => None,
        };
        assert_eq!(plan.steps.iter().find_map(set), Some(M(800)));
    }

    /// The file is written before its keeper answers, and the journal after that.
    #[test]
    fn what_an_undo_put_back_before_it_was_cut_short_is_no_other_writers() {
        let snapshot = pair(M(700), M(800));
        let group = &snapshot.workloads[0].group;
        let saved = ctlmgr_model::Saved {
            path: group.path.clone(),
            id: group.id,
            knob: Knob::MemoryLow,
            prior: group.memory.low.into(),
            ours: M(200).into(),
            before: M(200).into(),
            told: None,
            asked: Some(M(300).into()),
            had_setting: false,
        };
        let mut state = State::default();
        state.adopt(&saved);
        let id = group.id;
        let (plan, state) = decide(&soft_only(), state, &snapshot);
        let is_it =
            |s: &&Step| matches!(s.action, Action::Set { knob: Knob::MemoryLow, .. }) && s.id == id;
        assert!(plan.steps.iter().any(|s| is_it(&s)), "{:?}", plan.steps);
        assert_eq!(state.overrides(), 0, "{:?}", plan.complaints);
    }

    #[test]
    fn who_is_not_told_of_loses_nothing() {
        let mut snapshot = pair(M(700), M(800));
        for w in &mut snapshot.workloads {
            w.group.memory.low = M(790);
        }
        let Source::Container(facts) = &mut snapshot.workloads[1].source else { unreachable!() };
        *facts = ctlmgr_model::ContainerFacts {
            id: facts.id.clone(),
            is_untold: true,
            ..Default::default()
        };
        let (plan, _) = decide(&settings(), State::default(), &snapshot);
        assert!(plan.account.is_contended());
        let hurt = |s: &&Step| match s.action {
            Action::Set { from, to, .. } => to < from,
            _ => true,
        };
        let hurt: Vec<_> = plan.steps.iter().filter(hurt).map(|s| s.id).collect();
        assert!(hurt.contains(&CgroupId(11)), "the other pays: {hurt:?}");
        assert!(!hurt.contains(&CgroupId(12)) && !hurt.contains(&CgroupId(1)), "{hurt:?}");
    }

    #[test]
    fn who_could_not_be_read_once_is_no_newcomer() {
        let mut snapshot = pair(M(40), M(600));
        let mut state = State::default();
        for second in 1..20 {
            snapshot.at = Millis(second * 1000);
            state = decide(&settings(), state, &snapshot).1;
        }
        let basis = |state: &State| state.estimates[&CgroupId(11)].basis;
        let before = basis(&state);
        let gone = snapshot.workloads.remove(0);
        snapshot.gaps.push(ctlmgr_model::Gap { what: "small".into(), why: "ENOMEM".into() });
        snapshot.at = Millis(20_000);
        state = decide(&settings(), state, &snapshot).1;
        snapshot.gaps.clear();
        snapshot.workloads.insert(0, gone);
        snapshot.workloads[0].group.memory = crate::testing::sample(M(900));
        snapshot.at = Millis(21_000);
        state = decide(&settings(), state, &snapshot).1;
        assert!(basis(&state) < before + M(20), "{} after {before}", basis(&state));
    }

    /// A unit is looked at once it is large enough to matter, or a moment after it grew.
    #[test]
    fn what_a_newcomer_keeps_does_not_hang_on_when_it_is_seen_first() {
        let unit = |held| group("system.slice/hog.service", 31, held);
        let keeps = |seen: &[Option<Bytes>]| {
            let mut snapshot = pair(M(400), M(500));
            let mut state = State::default();
            let mut share = Bytes::ZERO;
            for (second, held) in (1..).zip(seen) {
                snapshot.at = Millis(second * 1000);
                snapshot.bystanders = held.iter().map(|held| unit(*held)).collect();
                let (plan, next) = decide(&settings(), state, &snapshot);
                state = next;
                let of_unit = plan.verdicts.iter().find(|v| v.kind == VerdictKind::Bystander);
                share = of_unit.map_or(Bytes::ZERO, |v| v.share);
            }
            share
        };
        let early = keeps(&[None, Some(M(35)), Some(M(300)), Some(M(600))]);
        let late = keeps(&[None, None, None, Some(M(600))]);
        let lost_sight_of = keeps(&[None, Some(M(35)), None, Some(M(600))]);
        assert!(early.0.abs_diff(late.0) < M(8).0, "{early} {late}");
        assert!(early.0.abs_diff(lost_sight_of.0) < M(8).0, "{early} {lost_sight_of}");
        let before = keeps(&[Some(M(600)), Some(M(600)), Some(M(600)), Some(M(600))]);
        assert!(before > late + M(50), "who was there before has a claim: {before} {late}");
    }

    #[test]
    fn small_floors_are_hard_too_and_promises_end_at_the_size_of_the_host() {
        let mut snapshot = pair(M(400), M(800));
        let mut settings = soft_only();
        settings.rules.push(floor_of("small", M(6)));
        let Source::Container(facts) = &mut snapshot.workloads[1].source else { unreachable!() };
        facts.labels.insert("ctlmgr.memory.promise".into(), "8T".into());
        let (plan, _) = decide(&settings, State::default(), &snapshot);
        let min = plan.steps.iter().find_map(|s| match s.action {
            Action::Set { knob: Knob::MemoryMin, to, .. } if s.id == CgroupId(11) => Some(to),
            _ => None,
        });
        assert_eq!(min, Some(M(6)));
        let is_named = |plan: &Plan, from: &str| {
            let text = format!("large: promised 8 TiB ({from}), taken for");
            plan.complaints.iter().any(|c| c.starts_with(&text))
        };
        assert!(is_named(&plan, "label ctlmgr.memory.promise=8 TiB"), "{:?}", plan.complaints);
        let effect = ctlmgr_model::RuleEffect { promise: Some(M(8 << 20)), ..Default::default() };
        settings.rules.push(ctlmgr_model::Rule { effect, ..floor_of("large", M(0)) });
        let (plan, _) = decide(&settings, State::default(), &snapshot);
        assert!(is_named(&plan, "rule at t:1"), "{:?}", plan.complaints);
    }

    #[test]
    fn a_full_slice_shares_out_what_it_may_hold_however_much_the_host_has() {
        let mut heavy = container("heavy", 11, M(500), Some(M(600)));
        let light = container("light", 12, M(500), Some(M(600)));
        let Source::Container(facts) = &mut heavy.source else { unreachable!() };
        facts.labels.insert("ctlmgr.weight".into(), "400".into());
        let mut snapshot = host(M(8000), vec![heavy, light], Vec::new());
        let low = |plan: &Plan, id| {
            plan.steps.iter().find_map(|s| match s.action {
                Action::Set { knob: Knob::MemoryLow, to, .. } if s.id == CgroupId(id) => Some(to),
                _ => None,
            })
        };
        let (plan, _) = decide(&settings(), State::default(), &snapshot);
        assert_eq!((low(&plan, 11), low(&plan, 12)), (Some(M(500)), Some(M(500))));
        snapshot.ancestors[0].memory.max = ctlmgr_model::Limit::Bytes(M(768));
        // dockerd has written what was reserved: as much as the slice may hold is hard to keep for both.
        snapshot.workloads.iter_mut().for_each(|w| w.group.memory.low = M(600));
        let (plan, _) = decide(&settings(), State::default(), &snapshot);
        assert!(!plan.account.is_contended());
        assert_eq!((low(&plan, 11), low(&plan, 12)), (Some(M(500)), Some(M(244))));
        let light = plan.verdicts.iter().find(|v| v.name.0 == "light").unwrap();
        assert!(
            light.reason.0.starts_with("1000 MiB is asked for and 744 MiB is there in /a.slice")
        );
        assert!(plan.steps.iter().all(|s| s.rung == Rung::Protect), "{:?}", plan.steps);
    }

    #[test]
    fn labels_rules_and_garbage() {
        let mut workload = container("web", 11, M(100), None);
        let labels = [("ctlmgr.class", "critical"), ("ctlmgr.memory.promise", "12 bananas")];
        if let ctlmgr_model::Source::Container(facts) = &mut workload.source {
            facts.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        }
        let e = entitlement(&settings(), &workload);
        assert_eq!(e.weight, Weight::new(1000).unwrap());
        assert_eq!(e.promise, None);
        assert_eq!(e.complaints.len(), 1, "{:?}", e.complaints);
    }

    /// A heavy one that needs 500 MiB and has 100 MiB of cache beside, and one that gives way.
    fn cache_and_hog() -> Snapshot {
        let mut web = container("web", 11, M(500), None);
        (web.group.memory.inactive_file, web.group.memory.current) = (M(100), M(600));
        if let Source::Container(facts) = &mut web.source {
            facts.labels.insert("ctlmgr.weight".to_owned(), "1000".to_owned());
        }
        let mut hog = container("hog", 12, M(900), None);
        hog.group.memory.swap = M(300);
        host(M(1600), vec![web, hog], Vec::new())
    }

    fn limit(plan: &Plan, id: u64) -> Option<Bytes> {
        plan.steps.iter().find_map(|s| match s.action {
            Action::Set { knob: Knob::MemoryHigh, to, .. } if s.id == CgroupId(id) => Some(to),
            _ => None,
        })
    }

    /// Its limit must not hide what it needs; that it holds cache beside is no excess.
    #[test]
    fn the_limit_of_who_needs_all_follows_its_use() {
        let settings = settings();
        let mut snapshot = cache_and_hog();
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        assert!(plan.account.is_contended());
        assert_eq!(limit(&plan, 11), Some(M(616)));
        apply(&plan, &mut state, &mut snapshot);
        snapshot.at = Millis(12_000);
        snapshot.workloads[0].group.memory.anon = M(512);
        snapshot.workloads[0].group.memory.current = M(612);
        let (plan, _) = decide(&settings, state, &snapshot);
        assert_eq!(limit(&plan, 11), Some(M(628)), "{:?}", plan.steps);
    }

    /// Background reclaim takes it back there, so a limit that stood still would only make it wait.
    #[test]
    fn the_limit_of_who_is_left_to_background_reclaim_follows_its_use() {
        let settings = settings();
        use ctlmgr_model::LruFlavour;
        let grown = M(912);
        let limit = |lru, total| {
            let mut snapshot = cache_and_hog();
            (snapshot.host.mem_total, snapshot.host.lru) = (M(total), Some(lru));
            let (plan, mut state) = decide(&settings, State::default(), &snapshot);
            apply(&plan, &mut state, &mut snapshot);
            snapshot.at = Millis(12_000);
            let hog = &mut snapshot.workloads[1].group.memory;
            (hog.anon, hog.current) = (grown, grown);
            let (plan, _) = decide(&settings, state, &snapshot);
            let hog = plan.verdicts.iter().find(|v| v.name.0 == "hog").unwrap();
            (limit(&plan, 12), (hog.held - hog.share).0 >> 20)
        };
        // Above its share by so many MiB, of which a thirty-second would be 27.
        assert_eq!(limit(LruFlavour::Mglru, 1430), (None, 24));
        assert_eq!(limit(LruFlavour::Classic, 1430), (Some(M(928)), 24));
        assert_eq!(limit(LruFlavour::Classic, 1420), (None, 34));
        assert_eq!(limit(LruFlavour::Classic, 1350), (None, 102));
    }

    /// Estimates fade slowly; free memory says that nobody is short.
    #[test]
    fn with_memory_free_the_limit_of_who_gave_way_rises() {
        let settings = settings();
        let mut snapshot = cache_and_hog();
        let (plan, mut state) = decide(&settings, State::default(), &snapshot);
        apply(&plan, &mut state, &mut snapshot);
        snapshot.at = Millis(12_000);
        snapshot.host.mem_free = M(400);
        let (plan, _) = decide(&settings, state, &snapshot);
        assert!(plan.account.is_contended());
        assert!(limit(&plan, 12) >= Some(M(1050)), "{:?}", plan.steps);
    }
}
