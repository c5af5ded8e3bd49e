//! What was decided, for `ctlmgr why`, and how those whom it concerned were before and after.

use std::collections::VecDeque;

use ctlmgr_api::{Decision, Felt};
use ctlmgr_model::{Action, CgroupPath, Millis, Outcome, Plan, Step, Verdict};

/// Decisions kept.
const MOST: usize = 500;
/// The effect is looked at after this time …
const EFFECT: Millis = Millis(30_000);
/// … and given up after this one: the workload is gone.
const TOO_LATE: Millis = Millis(60_000);

/// The last decisions, newest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    kept: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    at: Millis,
    decision: Decision,
}

impl History {
    /// Keeps a decision; the same one again, only observed, is no news.
    pub(crate) fn remember(
        &mut self,
        (at, unix_ms): (Millis, u64),
        step: Step,
        outcome: Option<Outcome>,
        plan: Option<&Plan>,
    ) {
        let is_repeated = outcome.is_none()
            && self
                .last_like(&step)
                .is_some_and(|d| d.outcome.is_none() && d.step.action == step.action);
        if is_repeated {
            return;
        }
        let before = plan.and_then(|plan| felt(&step.path, plan));
        let decision = Decision { unix_ms, step, outcome, before, after: None };
        self.kept.push_front(Kept { at, decision });
        self.kept.truncate(MOST);
    }

    fn last_like(&self, step: &Step) -> Option<&Decision> {
        let mut all = self.kept.iter().map(|k| &k.decision);
        all.find(|d| is_like(&d.step, step))
    }

    /// Looks at the effect of what was decided half a minute ago.
    pub(crate) fn look(&mut self, plan: &Plan) {
        for Kept { at, decision } in &mut self.kept {
            let age = plan.at.since(*at);
            if decision.after.is_none() && (EFFECT..TOO_LATE).contains(&age) {
                decision.after = felt(&decision.step.path, plan);
            }
        }
    }

    /// Whether something was done whose effect is still to be looked at.
    pub(crate) fn awaits_effect(&self, now: Millis) -> bool {
        let mut young = self.kept.iter().take_while(|k| now.since(k.at) < TOO_LATE);
        young.any(|k| k.decision.outcome.is_some() && k.decision.after.is_none())
    }

    /// Decisions about a cgroup and its ancestors, newest first: of each kind the last one and the
    /// last one whose effect is known, or reclaim would push out all others.
    pub(crate) fn concerning(&self, path: &CgroupPath, most: usize) -> Vec<Decision> {
        let mut found: Vec<&Decision> = Vec::new();
        for decision in self.kept.iter().map(|k| &k.decision) {
            let mut alike = found.iter().filter(|d| is_like(&d.step, &decision.step));
            let is_news = match decision.after {
                Some(_) => alike.all(|d| d.after.is_none()),
                None => alike.next().is_none(),
            };
            if is_news && path.is_within(&decision.step.path) {
                found.push(decision);
            }
        }
        found.into_iter().take(most).cloned().collect()
    }
}

/// Whether two steps do the same kind of thing to the same cgroup.
fn is_like(a: &Step, b: &Step) -> bool {
    a.path == b.path && is_same_knob(&a.action, &b.action)
}

/// All workloads at or below a cgroup taken together; `None` if there is none.
fn felt(path: &CgroupPath, plan: &Plan) -> Option<Felt> {
    let concerned: Vec<&Verdict> =
        plan.verdicts.iter().filter(|v| v.path.is_within(path)).collect();
    (!concerned.is_empty()).then(|| Felt {
        held: concerned.iter().map(|v| v.held).sum(),
        refaults_per_sec: concerned.iter().map(|v| v.refaults_per_sec).sum(),
        stall_pct: concerned.iter().filter_map(|v| v.stall_pct).max(),
    })
}

fn is_same_knob(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (
            Action::Set { knob: a, .. } | Action::Release { knob: a, .. },
            Action::Set { knob: b, .. } | Action::Release { knob: b, .. },
        ) => a == b,
        (
            Action::Pin { knob: a, .. } | Action::Unpin { knob: a, .. },
            Action::Pin { knob: b, .. } | Action::Unpin { knob: b, .. },
        ) => a == b,
        (Action::Reclaim { .. }, Action::Reclaim { .. }) => true,
        (Action::Stop { .. }, Action::Stop { .. }) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::{Bytes, CgroupId, Reason, Rung};

    fn plan(at: u64, held: u64) -> Plan {
        let text = include_str!("../../ctlmgr/tests/what-if-plan.json");
        let mut plan: Plan = serde_json::from_str(text).expect("a plan");
        plan.at = Millis(at);
        plan.verdicts.truncate(1);
        plan.verdicts[0].path = CgroupPath::new("a.slice/x.scope");
        plan.verdicts[0].held = Bytes::mib(held);
        plan
    }

    fn reclaim() -> Step {
        Step {
            path: CgroupPath::new("a.slice"),
            id: CgroupId(1),
            action: Action::Reclaim {
                amount: Bytes::mib(9),
                chunk: Bytes::mib(9),
                only_cache: false,
            },
            rung: Rung::Reclaim,
            reason: Reason("test".to_owned()),
        }
    }

    #[test]
    fn the_effect_is_what_was_felt_half_a_minute_later() {
        let mut history = History::default();
        let path = CgroupPath::new("a.slice/x.scope");
        history.remember((Millis(1000), 7), reclaim(), None, Some(&plan(1000, 300)));
        history.look(&plan(20_000, 290));
        assert_eq!(history.concerning(&path, 9)[0].after, None, "too early to say");
        history.look(&plan(31_000, 250));
        history.look(&plan(33_000, 200));
        let decision = &history.concerning(&path, 9)[0];
        let held = |f: &Option<Felt>| f.as_ref().map(|f| f.held);
        assert_eq!(held(&decision.before), Some(Bytes::mib(300)));
        assert_eq!(held(&decision.after), Some(Bytes::mib(250)));
        assert_eq!(history.concerning(&CgroupPath::new("b.slice"), 9), []);
    }

    #[test]
    fn of_each_kind_the_last_one_and_the_last_with_an_effect_are_shown() {
        let mut history = History::default();
        for second in [1, 2, 50, 60] {
            let at = Millis(second * 1000);
            let before = plan(at.0, 300);
            history.remember((at, second), reclaim(), Some(Outcome::Done), Some(&before));
        }
        history.look(&plan(40_000, 250));
        let shown = history.concerning(&CgroupPath::new("a.slice/x.scope"), 9);
        assert_eq!(shown.iter().map(|d| d.unix_ms).collect::<Vec<_>>(), [60, 2]);
    }

    #[test]
    fn the_same_again_while_observing_is_no_news() {
        let mut history = History::default();
        let count = |h: &History| h.concerning(&CgroupPath::new("a.slice/x.scope"), 9).len();
        history.remember((Millis(1000), 7), reclaim(), None, None);
        history.remember((Millis(2000), 8), reclaim(), None, None);
        assert_eq!(count(&history), 1);
        history.remember((Millis(3000), 9), reclaim(), Some(Outcome::Done), None);
        assert_eq!(history.kept.len(), 2);
    }
}
