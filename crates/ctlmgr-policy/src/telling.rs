//! When the keeper of a knob is told of protection that is in force.
//!
//! # Problem
//! The kernel has memory.low as soon as it is written. That the system's manager is told, too, is for its next reload, when it
//! writes again what it knows. Each telling costs it and the message bus about what a look costs ctlmgr, and what a unit needs
//! is often something else two seconds later.
//!
//! # Approach
//! Tell of the first value of ours at once, because what the manager would write again otherwise is that nobody is protected, and of
//! later ones once they have stood for [`STANDS`]. Until then it may write an older value of ours again, which the next
//! look puts right.
//!
//! # Algorithm
//! A step that changes protection is in force before the manager is told, and [`ctlmgr_model::Step::is_told_later`] says which are left
//! at that. A step that changes nothing follows for what was not told; it stays in the plan if the value has stood, or if its unit has another step of which
//! the manager is told now: it writes all values of a unit when it is told one.
//!
//! # Properties
//! No step is lost but such as change nothing; all that has stood is told; who is told of anything is told of all.

use std::collections::BTreeSet;

use ctlmgr_model::{CgroupPath, Millis, Step};

use crate::state::State;

/// A value that has stood for so long is told to the keeper of its knob.
pub(crate) const STANDS: Millis = Millis(5_000);

/// The steps of a plan without those that only tell what need not be told yet.
pub(crate) fn due_to_tell(state: &State, now: Millis, mut steps: Vec<Step>) -> Vec<Step> {
    let has_stood = |step: &Step| state.stood(step, now).is_none_or(|stood| stood >= STANDS);
    let is_told = |step: &&Step| {
        let is_due = !step.is_told_only() || has_stood(step);
        step.action.knob().is_some() && is_due && !step.is_told_later()
    };
    let told: BTreeSet<CgroupPath> = steps.iter().filter(is_told).map(|s| s.path.clone()).collect();
    steps.retain(|step| !step.is_told_only() || told.contains(&step.path));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::{Action, Bytes, CgroupId, Knob, Outcome, Reason, Rung};
    use proptest::prelude::*;

    const NOW: Millis = Millis(60_000);
    const PRIOR: Bytes = Bytes(4096);

    fn path(unit: u64) -> CgroupPath {
        CgroupPath::new(&format!("a.slice/{unit}.service"))
    }

    fn set(unit: u64, knob: Knob, (from, to): (Bytes, Bytes)) -> Step {
        let action = Action::Set { knob, from, prior: PRIOR, to };
        let (rung, reason) = (Rung::Protect, Reason("test".to_owned()));
        Step { path: path(unit), id: CgroupId(unit), action, rung, reason }
    }

    /// What a plan may have for one knob: nothing, the first value, another one, or what is there already.
    fn change(kind: u8) -> Option<(Bytes, Bytes)> {
        let (one, other) = (Bytes::mib(4), Bytes::mib(8));
        [None, Some((PRIOR, one)), Some((one, other)), Some((one, one))][usize::from(kind)]
    }

    /// Whose value stands for so long.
    fn standing(steps: &[(Step, u64)]) -> State {
        let mut state = State::default();
        for (step, stood) in steps {
            state.learn(step, &Outcome::Untold, Millis(NOW.0 - stood));
        }
        state
    }

    proptest! {
        #[test]
        fn what_has_stood_is_told_and_who_is_told_of_anything_is_told_of_all(
            units in prop::collection::vec([(0_u8..4, 0_u64..9_000), (0_u8..4, 0_u64..9_000)], 1..6),
        ) {
            let knobs = [Knob::MemoryLow, Knob::MemoryMin];
            let all: Vec<(Step, u64)> = (0..)
                .zip(&units)
                .flat_map(|(unit, of)| knobs.into_iter().zip(of).map(move |(knob, of)| (unit, knob, of)))
                .filter_map(|(unit, knob, (kind, stood))| Some((set(unit, knob, change(*kind)?), *stood)))
                .collect();
            let steps: Vec<Step> = all.iter().map(|(step, _)| step.clone()).collect();
            let kept = due_to_tell(&standing(&all), NOW, steps);
            for (step, stood) in &all {
                let is_kept = kept.contains(step);
                prop_assert!(is_kept || step.is_told_only());
                prop_assert!(is_kept || *stood < STANDS.0);
                let is_told_of = |s: &Step| s.path == step.path && !s.is_told_later();
                prop_assert!(is_kept || !kept.iter().any(is_told_of), "{step} alone is not told");
                let is_young = |(s, stood): &(Step, u64)| {
                    s.path != step.path || s.is_told_later() || (s.is_told_only() && *stood < STANDS.0)
                };
                prop_assert!(!is_kept || !step.is_told_only() || !all.iter().all(is_young));
            }
        }
    }

    #[test]
    fn a_value_is_as_old_as_it_is_in_force_whatever_its_keeper_answers() {
        let (moved, there) = (set(1, Knob::MemoryLow, change(2).unwrap()), {
            let to = change(2).unwrap().1;
            set(1, Knob::MemoryLow, (to, to))
        });
        let mut state = standing(&[(moved, 6_000)]);
        assert_eq!(state.stood(&there, NOW), Some(Millis(6_000)));
        state.learn(&there, &Outcome::Untold, NOW);
        assert_eq!(state.stood(&there, NOW), Some(Millis(6_000)), "he had no time for it");
        state.learn(&there, &Outcome::Failed("no answer".to_owned()), NOW);
        assert_eq!(state.stood(&there, NOW), Some(Millis(0)), "and is asked again after a while");
    }
}
