//! When the keeper of a knob is told of protection that is in force.
//!
//! # Problem
//! The kernel has memory.low as soon as it is written. That the system's manager is told, too, is for when it writes again what it
//! knows: at its reload, and whenever any other property of that unit is set. Each telling costs it and the message bus
//! about what a look costs ctlmgr, and what a unit needs is often something else two seconds later.
//!
//! # Approach
//! Tell at once where it may hold what was there before ctlmgr, because what it would write again is that nobody is protected. Where
//! it knows of some value of ours, tell of another one once that has stood for [`STANDS`], and of one that never stands after
//! [`LONGEST`]. What it writes meanwhile is an older value of ours, and the next look puts it right.
//!
//! # Terms
//! *Keeper*: the system's manager, for cgroups of its units. A plain directory has none to be told.
//!
//! # Algorithm
//! A step that changes protection is in force before its keeper is told ([`Telling`]); one that changes nothing is there for each value of which he was
//! not told. Those whose telling may wait are marked, or left out if they change nothing; but not where their unit has a step for its keeper now: he
//! writes all values of a unit when he is told one.
//!
//! # Properties
//! No step is lost but such as change nothing. Whose keeper may hold what was there before ctlmgr, what has stood, and what was untold for long is told.
//! Of one unit all steps are told now, or none.

use std::collections::BTreeSet;

use ctlmgr_model::{Action, CgroupPath, Keeper, Millis, Saved, Step, Telling, Value};

use crate::state::{State, Written};

/// A value that has stood for so long is told to the keeper of its knob.
const STANDS: Millis = Millis(5_000);
/// A keeper who was told nothing for so long is told what there is, however young it is.
const LONGEST: Millis = Millis(30_000);

/// Says which steps of a plan their keeper is told of now, and leaves out those that only tell what may wait.
pub(crate) fn tell(state: &State, now: Millis, mut steps: Vec<Step>) -> Vec<Step> {
    let told: BTreeSet<CgroupPath> = steps
        .iter()
        .filter(|step| step.is_for_keeper() && !may_wait(state.known(step), step, now))
        .map(|step| step.path.clone())
        .collect();
    steps.retain(|step| !step.is_told_only() || told.contains(&step.path));
    for step in steps.iter_mut().filter(|s| s.is_protection() && !told.contains(&s.path)) {
        step.telling = Telling::Later;
    }
    steps
}

fn may_wait(known: Option<&Written>, step: &Step, now: Millis) -> bool {
    let has_keeper = step.path.keeper() == Keeper::Systemd;
    let Some(known) = known.filter(|_| has_keeper && step.is_protection()) else { return false };
    let Action::Set { from, .. } = step.action else { return false };
    let Saved { prior, ours, before, told, asked, .. } = &known.saved;
    let is_asked_for = |value: &Value| asked.as_ref() == Some(value);
    if !known.is_pending {
        // Another's value may be there, or the prior one still come of a release that failed.
        return ours.amount() == Some(from) && !is_asked_for(prior);
    }
    if !known.saved.is_ours(&from.into()) {
        return false;
    }
    let is_older = |since: Millis, limit| now.since(since) >= limit;
    if is_asked_for(ours) && !is_older(known.at, STANDS) {
        // He did not answer.
        return true;
    }
    let is_bare = told.as_ref().unwrap_or(before) == prior || is_asked_for(prior);
    let has_stood = step.is_told_only() && is_older(known.at, STANDS);
    !is_bare && !has_stood && !is_older(known.untold_since, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::{Bytes, CgroupId, Knob, Outcome, Reason, Rung};
    use proptest::prelude::*;

    const NOW: Millis = Millis(60_000);
    const PRIOR: Bytes = Bytes(4096);
    const KNOBS: [Knob; 3] = [Knob::MemoryLow, Knob::MemoryMin, Knob::MemoryHigh];

    fn path(unit: u64) -> CgroupPath {
        // A plain directory has no keeper.
        let end =
            if unit == 0 { "docker/abc".to_owned() } else { format!("a.slice/{unit}.service") };
        CgroupPath::new(&end)
    }

    fn step(unit: u64, action: Action) -> Step {
        let (rung, reason) = (Rung::Protect, Reason("test".to_owned()));
        let (path, id) = (path(unit), CgroupId(unit));
        Step { path, id, action, rung, reason, telling: Telling::Now }
    }

    fn set(unit: u64, knob: Knob, from: Bytes, to: Bytes) -> Step {
        step(unit, Action::Set { knob, from, prior: PRIOR, to })
    }

    /// What happened to one knob of a unit, and what the plan has for it.
    #[derive(Debug, Clone)]
    struct Case {
        unit: u64,
        knob: Knob,
        /// When another value was written, and whether its keeper was told (0), not (1), or did not answer (2).
        past: Vec<(u64, u8)>,
        /// Nothing, the same value, another one, another one in place of somebody else's, or to give it back.
        plan: u8,
    }

    impl Case {
        /// Learns the past; the value that is there now.
        fn happen(&self, state: &mut State) -> Bytes {
            let mut from = PRIOR;
            for (nth, (at, kind)) in (1..).zip(&self.past) {
                let to = Bytes(PRIOR.0 + (nth << 20));
                let outcome = match kind {
                    0 => Outcome::Done,
                    1 => Outcome::Untold,
                    _ => Outcome::Failed("no answer".to_owned()),
                };
                state.learn(&set(self.unit, self.knob, from, to), &outcome, Millis(*at));
                from = to;
            }
            from
        }

        fn planned(&self, held: Bytes) -> Option<Step> {
            match self.plan {
                0 => None,
                1 => Some(set(self.unit, self.knob, held, held)),
                2 => Some(set(self.unit, self.knob, held, Bytes::mib(99))),
                3 => {
                    let (knob, prior, to) = (self.knob, Bytes::mib(50), Bytes::mib(99));
                    Some(step(self.unit, Action::Set { knob, from: prior, prior, to }))
                }
                _ => {
                    let (knob, ours, prior) = (self.knob, held, PRIOR);
                    Some(step(self.unit, Action::Release { knob, ours, prior }))
                }
            }
        }

        fn is_plain_protection(&self) -> bool {
            Knob::PROTECTION.contains(&self.knob) && self.plan <= 2
        }

        /// Since when its keeper was not told, if he was told of a value of ours before.
        fn untold_since(&self) -> Option<u64> {
            let told = self.past.iter().rposition(|(_, kind)| *kind == 0);
            let (untold, _) = self.past[told.map_or(0, |last| last + 1)..].first()?;
            Some(*untold)
        }

        /// Whether his telling must not wait any longer, by what happened alone.
        fn is_due(&self) -> bool {
            let is_bare = !self.past.iter().any(|(_, kind)| *kind == 0);
            let age = |at: u64| NOW.0 - at;
            let stood = self.past.last().is_some_and(|(at, _)| age(*at) >= STANDS.0);
            let is_untold = self.untold_since();
            let waited = is_untold.is_some_and(|at| age(at) >= LONGEST.0);
            let stands = self.plan == 1 && stood && is_untold.is_some();
            let is_asked = self.past.last().is_some_and(|(_, kind)| *kind == 2) && !stood;
            let is_due = !is_asked && (is_bare || stands || waited);
            !self.is_plain_protection() || self.unit == 0 || is_due
        }
    }

    fn cases() -> impl Strategy<Value = Vec<Case>> {
        let past = prop::collection::vec((20_000_u64..NOW.0, 0_u8..3), 0..4);
        let one = (past, 0_u8..5).prop_map(|(mut past, plan)| {
            past.sort_unstable();
            (past, plan)
        });
        let knobs = (0_u64..4).flat_map(|unit| KNOBS.map(|knob| (unit, knob)));
        let knobs: Vec<_> = knobs.collect();
        prop::collection::vec(one, knobs.len()).prop_map(move |all| {
            let of = knobs.iter().zip(all);
            of.map(|((unit, knob), (past, plan))| Case { unit: *unit, knob: *knob, past, plan })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn what_must_not_wait_is_told_and_of_one_unit_all_or_nothing(cases in cases()) {
            let mut state = State::default();
            let steps: Vec<(&Case, Step)> = cases
                .iter()
                .filter_map(|case| {
                    let held = case.happen(&mut state);
                    Some((case, case.planned(held)?))
                })
                // What was told and is the same is in no plan.
                .filter(|(case, step)| !step.is_told_only() || case.untold_since().is_some())
                .collect();
            let kept = tell(&state, NOW, steps.iter().map(|(_, step)| step.clone()).collect());
            for (case, step) in &steps {
                let same = |k: &&Step| k.path == step.path && k.action == step.action;
                let found = kept.iter().find(same);
                let is_told = found.is_some_and(|step| step.telling.is_now());
                let mut unit = steps.iter().filter(|(other, _)| other.unit == case.unit);
                prop_assert_eq!(is_told, unit.any(|(other, _)| other.is_due()), "{}", step);
                prop_assert!(found.is_some() || step.is_told_only());
            }
        }
    }

    #[test]
    fn a_value_is_as_old_as_it_is_in_force_whatever_its_keeper_answers() {
        let at = |seconds: u64| Millis(seconds * 1000);
        let [one, other] = [4, 8].map(Bytes::mib);
        let low = |from, to| set(1, Knob::MemoryLow, from, to);
        let mut state = State::default();
        state.learn(&low(PRIOR, one), &Outcome::Done, at(1));
        state.learn(&low(one, other), &Outcome::Untold, at(2));
        let there = low(other, other);
        let is_told = |state: &State, now| !tell(state, now, vec![there.clone()]).is_empty();
        assert!(!is_told(&state, at(6)) && is_told(&state, at(7)));
        state.learn(&there, &Outcome::Untold, at(7));
        assert!(is_told(&state, at(8)), "he had no time for it");
        state.learn(&there, &Outcome::Failed("no answer".to_owned()), at(8));
        assert!(!is_told(&state, at(12)) && is_told(&state, at(13)), "and is asked again");
    }

    /// What the manager holds by then is what was there before, or may be.
    #[test]
    fn after_a_release_that_failed_and_what_came_late_the_manager_is_told() {
        let at = |seconds: u64| Millis(seconds * 1000);
        let [one, other, third] = [4, 8, 12].map(Bytes::mib);
        let low = |from, to| set(1, Knob::MemoryLow, from, to);
        let mut state = State::default();
        state.learn(&low(PRIOR, one), &Outcome::Done, at(1));
        let telling = |state: &State, step, now| tell(state, now, vec![step])[0].telling;
        assert_eq!(telling(&state, low(one, other), at(2)), Telling::Later);
        let (knob, ours) = (Knob::MemoryLow, one);
        let release = step(1, Action::Release { knob, ours, prior: PRIOR });
        let mut failed = state.clone();
        failed.learn(&release, &Outcome::Failed("no answer".to_owned()), at(2));
        assert_eq!(telling(&failed, low(one, other), at(3)), Telling::Now);
        // Of an older value he was told late: that is what counts.
        state.learn(&low(one, other), &Outcome::Untold, at(2));
        state.learn(&low(other, third), &Outcome::Untold, at(20));
        state.learn(&low(one, other), &Outcome::Done, at(2));
        assert_eq!(telling(&state, low(third, one), at(40)), Telling::Later);
        assert_eq!(telling(&state, low(third, one), at(50)), Telling::Now);
    }

    #[test]
    fn to_freeze_is_nothing_that_the_manager_has() {
        let mut state = State::default();
        let low = |from, to| set(1, Knob::MemoryLow, from, to);
        state.learn(&low(PRIOR, Bytes::mib(4)), &Outcome::Done, Millis(1_000));
        let freeze = set(1, Knob::CgroupFreeze, Bytes::ZERO, Knob::STILL);
        let steps = vec![freeze, low(Bytes::mib(4), Bytes::mib(8))];
        let told: Vec<_> = tell(&state, NOW, steps).iter().map(|step| step.telling).collect();
        assert_eq!(told, [Telling::Now, Telling::Later]);
    }
}
