//! What was decided, for `ctlmgr why`, and how those whom it concerned were before and after.

use std::collections::BTreeMap;

use ctlmgr_api::{Decision, Felt};
use ctlmgr_model::{CgroupPath, Knob, Millis, Outcome, Plan, Rung, Step, Verdict};

/// Of so many kinds of decision something is kept; the one that was decided upon longest ago goes first.
const MOST: usize = 5000;
/// The effect is looked at after this time …
const EFFECT: Millis = Millis(30_000);
/// … and given up after this one: the workload is gone.
const TOO_LATE: Millis = Millis(60_000);

/// The last decisions of each kind about each cgroup. What is decided each second of one pushes out neither others nor
/// that of which the effect is still to be seen.
#[derive(Debug, Default)]
pub(crate) struct History {
    kept: BTreeMap<(CgroupPath, Kind), Line>,
}

/// What is done to a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Knob(Knob),
    Reclaim,
    Probe,
    Stop,
}

impl Kind {
    fn of(step: &Step) -> Kind {
        let other = match step.action.amount_to_reclaim() {
            Some(_) if step.rung == Rung::Probe => Kind::Probe,
            Some(_) => Kind::Reclaim,
            None => Kind::Stop,
        };
        step.action.knob().map_or(other, Kind::Knob)
    }
}

/// Decisions of one kind about one cgroup.
#[derive(Debug)]
struct Line {
    newest: Kept,
    /// An older one whose effect is still to be looked at …
    awaited: Option<Kept>,
    /// … and the last one whose effect is known, if that is not the newest.
    known: Option<Kept>,
}

impl Line {
    fn new(newest: Kept) -> Line {
        Line { newest, awaited: None, known: None }
    }

    fn push(&mut self, newest: Kept) {
        let last = std::mem::replace(&mut self.newest, newest);
        let now = self.newest.at;
        self.awaited.take_if(|k| now.since(k.at) >= TOO_LATE);
        if last.decision.after.is_some() {
            self.known = Some(last);
        } else if self.awaited.is_none() {
            self.awaited = Some(last);
        }
    }

    fn look(&mut self, plan: &Plan) {
        self.newest.look(plan);
        if let Some(awaited) = &mut self.awaited {
            awaited.look(plan);
        }
        if let Some(known) = self.awaited.take_if(|k| k.decision.after.is_some()) {
            self.known = Some(known);
        }
    }

    /// The last one, and the last one whose effect is known.
    fn shown(&self) -> impl Iterator<Item = &Kept> {
        let known = self.known.as_ref().filter(|_| self.newest.decision.after.is_none());
        std::iter::once(&self.newest).chain(known)
    }
}

#[derive(Debug)]
struct Kept {
    at: Millis,
    decision: Decision,
}

impl Kept {
    fn look(&mut self, plan: &Plan) {
        let age = plan.at.since(self.at);
        if self.decision.after.is_none() && (EFFECT..TOO_LATE).contains(&age) {
            self.decision.after = felt(&self.decision.step.path, plan);
        }
    }

    fn awaits_effect(&self, now: Millis) -> bool {
        let is_young = now.since(self.at) < TOO_LATE;
        is_young && self.decision.outcome.is_some() && self.decision.after.is_none()
    }
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
        let key = (step.path.clone(), Kind::of(&step));
        let last = self.kept.get(&key).map(|line| &line.newest.decision);
        let is_same = |d: &Decision| d.outcome.is_none() && d.step.action == step.action;
        if outcome.is_none() && last.is_some_and(is_same) {
            return;
        }
        let before = plan.and_then(|plan| felt(&step.path, plan));
        let newest =
            Kept { at, decision: Decision { unix_ms, step, outcome, before, after: None } };
        match self.kept.get_mut(&key) {
            Some(line) => line.push(newest),
            None => {
                self.kept.insert(key, Line::new(newest));
                self.forget();
            }
        }
    }

    fn forget(&mut self) {
        if self.kept.len() > MOST {
            let oldest = self.kept.iter().min_by_key(|(_, line)| line.newest.at);
            let key = oldest.map(|(key, _)| key.clone());
            key.and_then(|key| self.kept.remove(&key));
        }
    }

    /// Looks at the effect of what was decided half a minute ago.
    pub(crate) fn look(&mut self, plan: &Plan) {
        self.kept.values_mut().for_each(|line| line.look(plan));
    }

    /// Whether something was done whose effect is still to be looked at.
    pub(crate) fn awaits_effect(&self, now: Millis) -> bool {
        let mut all = self.kept.values().flat_map(|l| l.awaited.iter().chain([&l.newest]));
        all.any(|kept| kept.awaits_effect(now))
    }

    /// Decisions about a cgroup and its ancestors, newest first: of each kind the last one and the
    /// last one whose effect is known.
    pub(crate) fn concerning(&self, path: &CgroupPath, most: usize) -> Vec<Decision> {
        let mut found = self.newest_first(|of, _| path.is_within(of));
        found.truncate(most);
        found
    }

    /// Decisions to stop who was in that cgroup.
    pub(crate) fn stops(&self, path: &CgroupPath) -> Vec<Decision> {
        self.newest_first(|of, kind| of == path && kind == Kind::Stop)
    }

    fn newest_first(&self, is_meant: impl Fn(&CgroupPath, Kind) -> bool) -> Vec<Decision> {
        let about = self.kept.iter().filter(|((of, kind), _)| is_meant(of, *kind));
        let mut found: Vec<&Kept> = about.flat_map(|(_, line)| line.shown()).collect();
        found.sort_by_key(|kept| std::cmp::Reverse((kept.at, kept.decision.unix_ms)));
        found.into_iter().map(|kept| kept.decision.clone()).collect()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::{Action, Bytes, CgroupId, Reason, Rung, Telling};

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
            telling: Telling::Now,
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
            let now = plan(second * 1000, 300);
            history.look(&now);
            history.remember((now.at, second), reclaim(), Some(Outcome::Done), Some(&now));
        }
        let shown = history.concerning(&CgroupPath::new("a.slice/x.scope"), 9);
        assert_eq!(shown.iter().map(|d| d.unix_ms).collect::<Vec<_>>(), [60, 2]);
    }

    #[test]
    fn of_one_that_was_there_before_only_its_stop_is_told() {
        let mut history = History::default();
        let path = CgroupPath::new("a.slice/x.scope");
        let target = ctlmgr_model::Stoppable::Unit("x.scope".to_owned());
        let stop = Step {
            path: path.clone(),
            action: Action::Stop { target, grace: Millis(1000) },
            ..reclaim()
        };
        history.remember((Millis(1), 1), Step { path: path.clone(), ..reclaim() }, None, None);
        history.remember((Millis(2), 2), stop.clone(), None, None);
        let told = history.stops(&path);
        assert_eq!(told.iter().map(|d| &d.step).collect::<Vec<_>>(), [&stop]);
        assert_eq!(history.stops(&CgroupPath::new("a.slice")), []);
    }

    #[test]
    fn the_same_again_while_observing_is_no_news() {
        let mut history = History::default();
        let count = |h: &History| h.concerning(&CgroupPath::new("a.slice/x.scope"), 9).len();
        history.remember((Millis(1000), 7), reclaim(), None, None);
        history.remember((Millis(2000), 8), reclaim(), None, None);
        assert_eq!(count(&history), 1);
        history.remember((Millis(3000), 9), reclaim(), Some(Outcome::Done), None);
        let shown = history.concerning(&CgroupPath::new("a.slice/x.scope"), 9);
        assert_eq!(shown[0].outcome, Some(Outcome::Done));
    }

    /// Many containers are asked for memory each second, and one had its protection changed.
    #[test]
    fn however_much_is_decided_the_effect_is_seen_half_a_minute_later() {
        let mut history = History::default();
        let ask = |name: u64| Step {
            path: CgroupPath::new(&format!("a.slice/{name}.scope")),
            ..reclaim()
        };
        let quiet = CgroupPath::new("a.slice/quiet.scope");
        let knob = Knob::MemoryLow;
        let (from, prior, to) = (Bytes::ZERO, Bytes::ZERO, Bytes::mib(1));
        let set = Step {
            path: quiet.clone(),
            action: Action::Set { knob, from, prior, to },
            ..reclaim()
        };
        history.remember((Millis(0), 1), set, Some(Outcome::Done), None);
        for second in 1..=100 {
            let mut plan = plan(second * 1000, 300);
            plan.verdicts[0].path = CgroupPath::new("a.slice/7.scope");
            history.look(&plan);
            for name in 0..100 {
                history.remember((plan.at, second), ask(name), Some(Outcome::Done), Some(&plan));
            }
        }
        let shown = history.concerning(&CgroupPath::new("a.slice/7.scope"), 9);
        assert_eq!(shown.len(), 2, "the last, and one with its effect");
        assert!(shown[1].after.is_some() && shown[1].unix_ms > 30, "{shown:?}");
        assert_eq!(history.concerning(&quiet, 9).len(), 1, "it is not pushed out by others");
    }

    #[test]
    fn what_was_decided_longest_ago_is_forgotten_first() {
        let mut history = History::default();
        for n in 0..=MOST as u64 {
            let path = CgroupPath::new(&format!("a.slice/{n}.scope"));
            history.remember((Millis(n), n), Step { path, ..reclaim() }, None, None);
        }
        let count =
            |n: usize| history.concerning(&CgroupPath::new(&format!("a.slice/{n}.scope")), 9).len();
        assert_eq!((history.kept.len(), count(0), count(1), count(MOST)), (MOST, 0, 1, 1));
    }
}
