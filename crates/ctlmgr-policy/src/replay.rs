//! Deciding again what was decided before.
//!
//! A recording is all that deciding depends on: settings and state where it begins, then every
//! snapshot with the plan that was made of it, and every outcome that was learned. Deciding is
//! pure, so the same version makes the same plans; another version shows what it does differently.

use ctlmgr_model::{Millis, Outcome, Plan, Settings, Snapshot, Step};
use serde::{Deserialize, Serialize};

use crate::{State, decide};

/// One line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Where deciding stands; at the beginning, and after settings or undo changed it.
    Start {
        /// Settings in force.
        settings: Box<Settings>,
        /// What is remembered.
        state: Box<State>,
    },
    /// A reading, and what was decided.
    Decided {
        /// The reading.
        snapshot: Box<Snapshot>,
        /// The plan.
        plan: Box<Plan>,
    },
    /// What became of a step.
    Learned {
        /// The step.
        step: Box<Step>,
        /// Its outcome.
        outcome: Outcome,
        /// When it was decided, or, of memory that was reclaimed, when that was over.
        at: Millis,
    },
}

/// A decision that came out differently.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deviation {
    /// Time of the reading.
    pub at: Millis,
    /// The plan in the recording.
    pub recorded: Plan,
    /// The plan made now.
    pub replayed: Plan,
}

/// Result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Replay {
    /// Decisions made again.
    pub decisions: usize,
    /// Those that came out differently.
    pub deviations: Vec<Deviation>,
}

/// Decides again. Readings before the first [`Event::Start`] cannot be decided and are skipped.
pub fn replay<'a>(events: impl IntoIterator<Item = &'a Event>) -> Replay {
    let mut result = Replay::default();
    let mut position: Option<(&Settings, State)> = None;
    for event in events {
        match (event, &mut position) {
            (Event::Start { settings, state }, _) => {
                position = Some((settings, State::clone(state)));
            }
            (Event::Decided { snapshot, plan }, Some((settings, state))) => {
                let (replayed, next) = decide(settings, std::mem::take(state), snapshot);
                *state = next;
                result.decisions += 1;
                if replayed != **plan {
                    let recorded = Plan::clone(plan);
                    result.deviations.push(Deviation { at: snapshot.at, recorded, replayed });
                }
            }
            (Event::Learned { step, outcome, at }, Some((_, state))) => {
                state.learn(step, outcome, *at);
            }
            (_, None) => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, host};
    use ctlmgr_model::Bytes;

    fn recording() -> Vec<Event> {
        let workloads = vec![container("web", 11, Bytes::mib(900), Some(Bytes::mib(800)))];
        let snapshot = host(Bytes::mib(900), workloads, Vec::new());
        let settings = Settings::default();
        let (plan, state) = decide(&settings, State::default(), &snapshot);
        let start = State::default();
        let mut events = vec![
            Event::Start { settings: Box::new(settings.clone()), state: Box::new(start) },
            Event::Decided { snapshot: Box::new(snapshot.clone()), plan: Box::new(plan.clone()) },
        ];
        let mut state = state;
        for step in plan.steps {
            let (outcome, at) = (Outcome::Done, Millis(10_100));
            state.learn(&step, &outcome, at);
            events.push(Event::Learned { step: Box::new(step), outcome, at });
        }
        let later = Snapshot { at: Millis(12_000), ..snapshot };
        let (plan, _) = decide(&settings, state, &later);
        events.push(Event::Decided { snapshot: Box::new(later), plan: Box::new(plan) });
        events
    }

    #[test]
    fn the_same_version_decides_the_same_even_after_a_trip_through_json() {
        let lines: Vec<String> =
            recording().iter().map(|e| serde_json::to_string(e).unwrap()).collect();
        let events: Vec<Event> = lines.iter().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(events, recording());
        assert_eq!(replay(&events), Replay { decisions: 2, deviations: Vec::new() });
    }

    #[test]
    fn a_different_decision_is_shown() {
        let mut events = recording();
        if let Event::Decided { plan, .. } = &mut events[1] {
            plan.account.capacity = Bytes(1);
        }
        let result = replay(&events);
        assert_eq!(result.deviations.len(), 1);
        assert_eq!(result.deviations[0].at, Millis(10_000));
    }
}
