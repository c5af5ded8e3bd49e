//! From a reading to a plan to work, and from outcomes back into the state.

use std::time::{SystemTime, UNIX_EPOCH};

use ctlmgr_act::{Stopper, UnitProperties};
use ctlmgr_model::{Action, Millis, Mode, Outcome, Rung, Snapshot, Step};
use ctlmgr_policy::replay::Event;
use ctlmgr_policy::{check, decide};
use tracing::{debug, error, info, warn};

use crate::daemon::{Daemon, Last};
use crate::workers::{self, Report, Work};
use crate::writer::{Told, Urgent, Writing, Written};

impl<U: UnitProperties> Daemon<U> {
    /// Takes what a worker reports.
    pub(crate) fn take(&mut self, report: Report) {
        match report {
            Report::Sensed(Ok(mut snapshot)) => {
                self.busy.sensing_since = None;
                self.sense_trouble = None;
                // A reading from before a write ended mixes old values with new ones: what we
                // wrote earlier would look like somebody else's will.
                // A dip is such a write.
                let is_dipping = self.busy.writing.is_some() && !self.actuator.has_reclaim();
                snapshot.is_mixed = self.busy.writing.is_some();
                match snapshot.at < self.learned_at || is_dipping {
                    true => self.hurry(),
                    false => self.decide(&snapshot),
                }
            }
            Report::Sensed(Err(error)) => {
                self.busy.sensing_since = None;
                warn!(error, "the host could not be read");
                self.sense_trouble = Some(error);
            }
            Report::Glanced(glance) => {
                let read = self.last.as_ref().map(|l| &l.host);
                if self.calm.is_changed(read, glance) {
                    self.hurry();
                }
            }
            Report::Ahead(ahead) => self.learn_ahead(ahead),
            Report::Written(written) => match self.busy.writing.take() {
                Some(writing) => self.learn_written(written, writing.decided_at),
                // Undo has waited for this writer and put back what it wrote: nothing is ours.
                None => {
                    let outcomes = written.outcomes.into_iter();
                    outcomes.for_each(|(step, outcome)| self.account(step, outcome));
                }
            },
            Report::Reclaimed(outcomes) => {
                self.busy.reclaiming = false;
                let at = self.now();
                outcomes.into_iter().for_each(|(step, outcome)| self.learn_one(step, outcome, at));
            }
            Report::Placed(all) => all.into_iter().for_each(|(step, outcome)| match outcome {
                Some(outcome) => self.account(step, outcome),
                None => self.remember(step, None),
            }),
            Report::Stopped(step, outcome) => {
                self.busy.stopping = false;
                self.account(step, outcome);
            }
        }
    }

    fn decide(&mut self, snapshot: &Snapshot) {
        self.counters.cycles += 1;
        self.wakes.follow(snapshot);
        let state = std::mem::take(&mut self.state);
        let known = state.overrides();
        let (plan, state) = decide(&self.settings, state, snapshot);
        self.counters.overrides += state.overrides() - known;
        self.state = state;
        self.calm.note_plan(std::time::Instant::now(), &plan, &snapshot.host);
        if plan.is_tight() && !self.calm.is_still(std::time::Instant::now()) {
            self.keep_pace();
        }
        let violations = check(&self.settings, &plan, snapshot);
        for violation in &violations {
            error!(%violation, "the plan breaks a rule and is not carried out");
        }
        self.recorder.note(|| Event::Decided {
            snapshot: Box::new(snapshot.clone()),
            plan: Box::new(plan.clone()),
        });
        let steps = plan.steps.clone();
        let (host, gaps) = (snapshot.host.clone(), snapshot.gaps.clone());
        self.history.look(&plan);
        if let Some(last) = &self.last {
            self.gone.note(&last.plan, (&plan, &gaps), unix_ms());
        }
        self.last = Some(Last { plan, host, gaps });
        match self.settings.memory.mode {
            Mode::Act if violations.is_empty() && self.journal.is_some() => {
                self.act(steps, snapshot.at);
            }
            // Whatever is wrong with the plan, to give back what is held is right.
            Mode::Act if self.journal.is_some() => self.act(only_releases(steps), snapshot.at),
            _ => steps.into_iter().for_each(|step| self.remember(step, None)),
        }
    }

    fn act(&mut self, steps: Vec<Step>, decided_at: Millis) {
        let Some(journal) = &self.journal else { return };
        let Work { mut writes, mut reclaims, stops } = Work::of(steps);
        // A dip is a write, and a knob has one writer.
        if !self.actuator.has_reclaim() {
            writes.append(&mut reclaims);
        }
        match &mut self.busy.writing {
            None if writes.is_empty() => {}
            None => {
                let (plan, done) = ((writes, decided_at), self.reports.clone());
                self.busy.writing = Some(Writing::begin(&self.actuator, journal, plan, done));
            }
            // What else there is to write waits for a plan of a reading without old values in it.
            Some(writing) => writing.go_on(writes, decided_at),
        }
        if self.busy.reclaiming {
            for step in reclaims {
                self.learn_one(step, Outcome::Overtaken, decided_at);
            }
        } else if !reclaims.is_empty() {
            self.busy.reclaiming = true;
            workers::reclaim(
                self.actuator.clone(),
                journal.clone(),
                reclaims,
                self.reports.clone(),
            );
        }
        for step in stops {
            if !std::mem::replace(&mut self.busy.stopping, true) {
                warn!(path = %step.path, reason = step.reason.0, "{step}");
                workers::stop(Stopper::new(self.places.docker()), step, self.reports.clone());
            }
        }
    }

    fn learn_written(&mut self, written: Written, decided_at: Millis) {
        self.learned_at = self.now();
        let is_late = |told: &Told| told.outcome == Outcome::Untold && told.step.telling.is_now();
        if written.told.iter().any(is_late) {
            self.hurry();
        }
        let outcomes = written.outcomes.into_iter();
        outcomes.for_each(|(step, outcome)| self.learn_one(step, outcome, decided_at));
        for Told { step, decided_at, outcome } in written.told {
            self.take_in(&step, &outcome, decided_at);
            // That it is in force was accounted for already.
            if matches!(outcome, Outcome::Failed(_) | Outcome::Overridden(_)) {
                self.count(&step, &outcome);
            }
        }
    }

    fn learn_one(&mut self, step: Step, outcome: Outcome, at: Millis) {
        self.take_in(&step, &outcome, at);
        self.account(step, outcome);
    }

    /// What is ours already, and would be another's to who does not know.
    fn learn_ahead(&mut self, ahead: Urgent) {
        // Undo has waited for this writer, and nothing is ours.
        let Some(writing) = &mut self.busy.writing else { return };
        writing.note_known();
        self.learned_at = self.now();
        for step in ahead.steps {
            self.learn_one(step, Outcome::Untold, ahead.decided_at);
        }
    }

    fn take_in(&mut self, step: &Step, outcome: &Outcome, at: Millis) {
        self.state.learn(step, outcome, at);
        self.recorder.note(|| Event::Learned {
            step: Box::new(step.clone()),
            outcome: outcome.clone(),
            at,
        });
    }

    fn account(&mut self, step: Step, outcome: Outcome) {
        self.count(&step, &outcome);
        // What was not written is no decision worth a line in `why`.
        if outcome != Outcome::Overtaken {
            self.remember(step, Some(outcome));
        }
    }

    fn count(&mut self, step: &Step, outcome: &Outcome) {
        let (path, reason) = (&step.path, &step.reason.0);
        match outcome {
            Outcome::Done | Outcome::Untold => {
                self.counters.writes += 1;
                match step.action {
                    Action::Set { knob, from, to, .. } => {
                        info!(%path, %knob, from = from.0, to = to.0, reason, "{step}");
                    }
                    Action::Release { knob, ours, prior } => {
                        info!(%path, %knob, from = ours.0, to = prior.0, reason, "{step}");
                    }
                    Action::Stop { .. } => warn!(%path, reason, "stopped"),
                    Action::Pin { .. } | Action::Unpin { .. } => info!(%path, reason, "{step}"),
                    Action::Reclaim { .. } => {}
                }
            }
            Outcome::Reclaimed(bytes) => {
                self.counters.reclaimed_bytes += bytes.0;
                match step.rung {
                    Rung::Kill => warn!(%path, bytes = bytes.0, reason, "asked to give up memory"),
                    _ => debug!(%path, bytes = bytes.0, reason, "reclaimed"),
                }
            }
            Outcome::Vanished => debug!(%path, "gone before it could be written"),
            Outcome::Overtaken => debug!(%path, %step, "not done: the host changed meanwhile"),
            Outcome::Overridden(value) => {
                let knob = step.action.knob();
                let is_known = knob.is_some_and(|k| self.state.is_overridden(path, k, value));
                self.counters.overrides += u64::from(!is_known && !is_found_later(step));
                warn!(%path, %value, %step, "another writer was there at once");
            }
            Outcome::Failed(error) => {
                self.counters.failures += 1;
                warn!(%path, error, %step, "step failed");
            }
        }
    }

    fn remember(&mut self, step: Step, outcome: Option<Outcome>) {
        let plan = self.last.as_ref().map(|l| &l.plan);
        self.history.remember((self.now(), unix_ms()), step, outcome, plan);
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Whether the next reading finds another writer's value in a knob of the memory job, and counts it then. What was given
/// back is not looked at any more.
fn is_found_later(step: &Step) -> bool {
    matches!(step.action, Action::Set { .. })
}

fn only_releases(steps: Vec<Step>) -> Vec<Step> {
    steps.into_iter().filter(|s| matches!(s.action, Action::Release { .. })).collect()
}
