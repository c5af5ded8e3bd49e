//! Work that may block, off the loop: reading the host, writing knobs, reclaiming.
//!
//! At most one of each kind is under way, so each knob has one writer and a slow kernel delays
//! only its own kind. Protection takes effect before the system's manager is told of it, and a plan that has become old is not
//! carried out to its end: a manager that is starved of memory takes seconds for each. Page cache that a limit counts on is reclaimed by the writer of knobs, for [`CACHE_TIME`] at
//! most but for one chunk. Results come back to the loop as events.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctlmgr_act::{Actuator, Ask, RECLAIM_TIME, Stopper, UnitProperties};
use ctlmgr_host::chain;
use ctlmgr_model::{
    Action, Bytes, CgroupId, CgroupPath, Knob, Millis, Outcome, Rung, Saved, Snapshot, Step,
    Undone, Value,
};
use ctlmgr_sense::{Glance, Query, Sensor};
use glob::Pattern;
use tokio::sync::mpsc::Sender;

use crate::undo::{SharedJournal, give_back, with_journal};

/// What a worker reports.
#[derive(Debug)]
pub(crate) enum Report {
    /// A reading, or why there is none.
    Sensed(Result<Box<Snapshot>, String>),
    /// What could be seen at a glance, if anything.
    Glanced(Option<Glance>),
    /// Knobs have their values, and their keeper has to be told.
    Ahead(Vec<Step>),
    /// Knobs were written.
    Written(Vec<(Step, Outcome)>),
    /// Memory was reclaimed.
    Reclaimed(Vec<(Step, Outcome)>),
    /// A workload was stopped, or not.
    Stopped(Step, Outcome),
    /// Workloads were placed, or only would be.
    Placed(Vec<(Step, Option<Outcome>)>),
}

/// Reads the host once.
pub(crate) fn sense(sensor: &Arc<Sensor>, at: Millis, query: Query, done: Sender<Report>) {
    let sensor = sensor.clone();
    tokio::task::spawn_blocking(move || {
        let result = sensor.snapshot(at, &query).map(Box::new).map_err(|e| chain(&e));
        // The loop is gone only when the process is about to end.
        let _ = done.blocking_send(Report::Sensed(result));
    });
}

/// Looks at the host as a whole only.
pub(crate) fn glance(sensor: &Arc<Sensor>, units: Vec<Pattern>, done: Sender<Report>) {
    let sensor = sensor.clone();
    tokio::task::spawn_blocking(move || {
        let glance = sensor.glance(&units).ok();
        let _ = done.blocking_send(Report::Glanced(glance));
    });
}

/// Steps by who carries them out.
#[derive(Default)]
pub(crate) struct Work {
    pub writes: Vec<Step>,
    pub reclaims: Vec<Step>,
    pub stops: Vec<Step>,
}

impl Work {
    /// Divides the steps of a plan.
    pub(crate) fn of(steps: Vec<Step>) -> Work {
        let mut work = Work::default();
        for step in steps {
            match step.action {
                Action::Set { .. }
                | Action::Release { .. }
                | Action::Pin { .. }
                | Action::Unpin { .. }
                // The limit that is written after it counts on it.
                | Action::Reclaim { only_cache: true, .. } => work.writes.push(step),
                Action::Reclaim { .. } => work.reclaims.push(step),
                Action::Stop { .. } => work.stops.push(step),
            }
        }
        work
    }
}

/// Stops a workload, which takes as long as its grace.
pub(crate) fn stop(stopper: Stopper, step: Step, done: Sender<Report>) {
    tokio::spawn(async move {
        let Action::Stop { target, grace } = &step.action else { return };
        let outcome = stopper.stop(target, *grace).await;
        let _ = done.send(Report::Stopped(step, outcome)).await;
    });
}

/// Writes knobs in order.
pub(crate) fn write<U: UnitProperties>(
    actuator: Arc<Actuator<U>>,
    journal: SharedJournal,
    steps: Vec<Step>,
    done: Sender<Report>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        // Elsewhere reclaim is a write, and whoever writes has nothing more urgent to do.
        let reclaim = if actuator.has_reclaim() { CACHE_TIME } else { RECLAIM_TIME };
        let patience = Patience { reclaim, write: WRITE_TIME };
        write_within(patience, &actuator, &journal, steps, done).await;
    })
}

async fn write_within<U: UnitProperties>(
    patience: Patience,
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    steps: Vec<Step>,
    done: Sender<Report>,
) {
    let ahead = write_ahead(actuator, journal, &steps).await;
    let _ = done.send(Report::Ahead(ahead.clone())).await;
    let outcomes = carry_out(actuator, journal, (steps, &ahead), patience).await;
    let _ = done.send(Report::Written(outcomes)).await;
}

/// Whoever writes knobs takes page cache no longer than this.
const CACHE_TIME: Duration = Duration::from_millis(500);
/// What has its value by then, and its keeper was not told, is left to the next plan.
const WRITE_TIME: Duration = Duration::from_secs(1);

/// For how long steps are begun.
#[derive(Clone, Copy)]
struct Patience {
    reclaim: Duration,
    /// Nothing but what is in force already is put off.
    write: Duration,
}

/// Reclaims, one target after the other, where most is to be had first. What is not begun in time is dropped: the
/// next reading says whom to take from by then.
pub(crate) fn reclaim<U: UnitProperties>(
    actuator: Arc<Actuator<U>>,
    journal: SharedJournal,
    mut steps: Vec<Step>,
    done: Sender<Report>,
) {
    // What is asked for another reason than that memory is short is little, and must not be what is dropped.
    steps.sort_by_key(|s| (s.rung == Rung::Reclaim, Reverse(s.action.amount_to_reclaim())));
    tokio::spawn(async move {
        let patience = Patience { reclaim: RECLAIM_TIME, write: WRITE_TIME };
        let outcomes = carry_out(&actuator, &journal, (steps, &[]), patience).await;
        let _ = done.send(Report::Reclaimed(outcomes)).await;
    });
}

async fn carry_out<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    (steps, ahead): (Vec<Step>, &[Step]),
    patience: Patience,
) -> Vec<(Step, Outcome)> {
    let mut outcomes = Vec::with_capacity(steps.len());
    let begun = Instant::now();
    // For all reclaim together: by then the host is another, and no dip lets a limit be raised meanwhile.
    let deadline = begun + patience.reclaim;
    let mut is_first = true;
    for step in steps {
        let is_in_force = is_told_only(&step) || ahead.contains(&step);
        let outcome = match step.action.amount_to_reclaim() {
            Some(_) if Instant::now() >= deadline => Ok(Outcome::Overtaken),
            // However slow the keeper of knobs is, each plan tells it something.
            None if is_in_force && !is_first && begun.elapsed() >= patience.write => {
                Ok(Outcome::Untold)
            }
            _ => carry_out_one(actuator, journal, &step, deadline).await,
        };
        is_first = false;
        let outcome = outcome.unwrap_or_else(|e| Outcome::Failed(format!("{e:#}")));
        outcomes.push((step, outcome));
    }
    outcomes
}

/// Whether the value is there, and only its keeper does not know.
pub(crate) fn is_told_only(step: &Step) -> bool {
    matches!(step.action, Action::Set { knob, from, to, .. } if Knob::PROTECTION.contains(&knob) && from == to)
}

/// Writes protection, of all at once and what becomes less first, before their keeper is told: a manager that is starved of
/// memory answers one after the other in seconds. The journal knows each before; what fails here is tried again in its turn.
async fn write_ahead<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    steps: &[Step],
) -> Vec<Step> {
    let mut ahead = Vec::new();
    let is_less = |step: &&Step| matches!(step.action, Action::Set { from, to, .. } if to < from);
    let (less, more): (Vec<_>, Vec<_>) = steps.iter().partition(is_less);
    for step in less.into_iter().chain(more) {
        let is_protection =
            matches!(step.action, Action::Set { knob, .. } if Knob::PROTECTION.contains(&knob));
        let saved = step.to_save().filter(|saved| is_protection && !actuator.is_overtaken(saved));
        let Some(saved) = saved else { continue };
        if note(actuator, journal, &saved).await.is_ok() && actuator.write_ahead(&saved) {
            ahead.push(step.clone());
        }
    }
    ahead
}

/// Tells the journal of a knob that is about to be written; returns what it knows.
async fn note<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    saved: &Saved,
) -> anyhow::Result<Saved> {
    let had_setting = actuator.has_setting(saved);
    let saved = Saved { had_setting, ..saved.clone() };
    let noted = saved.clone();
    with_journal(journal, move |j| j.note(&noted)).await?;
    Ok(saved)
}

/// One step; a knob is written only after the journal knows it.
pub(crate) async fn carry_out_one<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    step: &Step,
    deadline: Instant,
) -> anyhow::Result<Outcome> {
    match (&step.action, step.to_save()) {
        (Action::Reclaim { only_cache: true, .. }, _) if !actuator.has_reclaim() => {
            Ok(Outcome::Reclaimed(Bytes::ZERO))
        }
        (Action::Reclaim { amount, chunk, .. }, _) if !actuator.has_reclaim() => {
            let mut done = Bytes::ZERO;
            while done < *amount && Instant::now() < deadline {
                let ask = (*chunk).min(*amount - done);
                let taken = dip(actuator, journal, (&step.path, step.id), ask).await?;
                done = done + taken;
                if taken < ask {
                    break;
                }
            }
            Ok(Outcome::Reclaimed(done))
        }
        (&Action::Reclaim { amount, chunk, only_cache }, _) => {
            let ask = Ask { amount, chunk, only_cache, deadline };
            Ok(actuator.reclaim((&step.path, step.id), ask).await)
        }
        (Action::Release { knob, prior, .. }, _) => {
            release(actuator, journal, (&step.path, *knob), (*prior).into()).await
        }
        (Action::Unpin { knob, prior, .. }, _) => {
            release(actuator, journal, (&step.path, *knob), prior.clone().into()).await
        }
        (Action::Set { .. } | Action::Pin { .. } | Action::Stop { .. }, None) => {
            Ok(Outcome::Vanished)
        }
        (_, Some(saved)) if actuator.is_overtaken(&saved) => Ok(Outcome::Overtaken),
        (_, Some(saved)) => {
            note(actuator, journal, &saved).await?;
            let outcome = actuator.set(&saved).await;
            if outcome == Outcome::Done {
                with_journal(journal, move |j| j.note_told(&saved)).await?;
            }
            Ok(outcome)
        }
    }
}

/// Gives back what the journal knows of a knob.
async fn release<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    (path, knob): (&CgroupPath, Knob),
    prior: Value,
) -> anyhow::Result<Outcome> {
    let path = path.clone();
    let saved = with_journal(journal, move |j| j.find(&path, knob)).await?;
    let Some(saved) = saved else { return Ok(Outcome::Vanished) };
    let saved = Saved { prior, ..saved };
    Ok(outcome(give_back(actuator, journal, &saved).await))
}

/// Reclaim where the kernel has no file for it, by a limit that the journal knows of; returns what
/// was taken.
async fn dip<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    target: (&CgroupPath, CgroupId),
    amount: Bytes,
) -> anyhow::Result<Bytes> {
    let path = target.0.clone();
    let known = with_journal(journal, move |j| j.find(&path, Knob::MemoryHigh)).await?;
    let Some(dip) = actuator.dip(target, amount, known.as_ref())? else { return Ok(Bytes::ZERO) };
    let saved = note(actuator, journal, dip.saved()).await?;
    let taken = match tokio::task::spawn_blocking(move || dip.take()).await? {
        Ok(taken) => taken,
        Err(error) => {
            // A limit must not stay because of that.
            give_back(actuator, journal, &saved).await;
            return Err(error.into());
        }
    };
    let path = saved.path;
    with_journal(journal, move |j| match known {
        Some(known) => j.note(&known),
        None => j.forget(&path, Knob::MemoryHigh),
    })
    .await?;
    Ok(taken)
}

fn outcome(undone: Undone) -> Outcome {
    match undone {
        Undone::PutBack => Outcome::Done,
        Undone::LeftToOthers(value) => Outcome::Overridden(value),
        Undone::Vanished => Outcome::Vanished,
        Undone::Failed(error) => Outcome::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_act::{Property, UnitError};
    use ctlmgr_host::Host;
    use ctlmgr_model::Reason;
    use ctlmgr_store::Journal;
    use ctlmgr_testkit::FakeHost;
    use std::path::Path;
    use std::sync::Mutex;

    /// A system's manager that is told and does nothing.
    #[derive(Clone, Default)]
    struct Idle(Arc<Mutex<Vec<String>>>);

    impl UnitProperties for Idle {
        async fn set(&self, unit: &str, _: &[Property]) -> Result<(), UnitError> {
            self.0.lock().unwrap().push(unit.to_owned());
            Ok(())
        }
    }

    /// One step for each scope: its memory.low from 4096 to `to`.
    fn steps(root: &Path, to: u64) -> Vec<Step> {
        let host = FakeHost::new(root);
        let cgroups = || Host::fake(root).cgroups().unwrap();
        let step = |name: &str| {
            let path = CgroupPath::new(&format!("a.slice/{name}.scope"));
            host.cgroup(path.as_str(), 10 << 20, 4096);
            let id = cgroups().open(&path).unwrap().unwrap().id();
            let (knob, prior, to) = (Knob::MemoryLow, Bytes(4096), Bytes(to));
            let action = Action::Set { knob, from: prior, prior, to };
            Step { path, id, action, rung: Rung::Protect, reason: Reason("test".to_owned()) }
        };
        host.cgroup("a.slice", 40 << 20, 0);
        ["x", "y", "z"].map(step).into()
    }

    #[tokio::test]
    async fn protection_is_there_before_the_manager_is_told_and_an_old_plan_is_left_to_the_next() {
        for to in [0, 8192] {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path();
            let steps = steps(root, to);
            let (manager, boot) = (Idle::default(), "boot");
            let actuator = Actuator::new(Host::fake(root), manager.clone()).unwrap();
            let journal = Journal::open(&root.join("journal"), boot).unwrap();
            let journal: SharedJournal = Arc::new(Mutex::new(journal));
            let none = Patience { reclaim: Duration::ZERO, write: Duration::ZERO };
            let (send, mut reports) = tokio::sync::mpsc::channel(4);
            write_within(none, &actuator, &journal, steps.clone(), send).await;
            let Some(Report::Ahead(ahead)) = reports.recv().await else { panic!("first of all") };
            assert_eq!(ahead, steps);
            let low = |s: &Step| {
                FakeHost::new(root).read(&format!("sys/fs/cgroup/{}/memory.low", s.path))
            };
            assert!(steps.iter().all(|s| low(s) == to.to_string()));
            let Some(Report::Written(outcomes)) = reports.recv().await else { panic!("then") };
            let outcomes: Vec<_> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
            assert_eq!(outcomes, [Outcome::Done, Outcome::Untold, Outcome::Untold]);
            assert_eq!(*manager.0.lock().unwrap(), ["x.scope"]);
            // The manager, asked for something else, would write again what it was last told.
            let again: Vec<_> = steps.iter().map(|s| changed(s, to, to + 4096)).collect();
            let ahead = write_ahead(&actuator, &journal, &again).await;
            assert_eq!(ahead.len(), 3);
            let before = |s: &Step| {
                journal.lock().unwrap().find(&s.path, Knob::MemoryLow).unwrap().unwrap().before
            };
            let known: Vec<_> = steps.iter().map(before).collect();
            assert_eq!(known, [Bytes(to), Bytes(4096), Bytes(4096)].map(Value::from));
        }
    }

    fn changed(step: &Step, from: u64, to: u64) -> Step {
        let (knob, prior) = (Knob::MemoryLow, Bytes(4096));
        let action = Action::Set { knob, from: Bytes(from), prior, to: Bytes(to) };
        Step { action, ..step.clone() }
    }

    /// To let go, to limit or to freeze is not in force before it is done.
    #[tokio::test]
    async fn what_is_not_in_force_is_never_put_off() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut steps = steps(root, 0);
        steps[1].action =
            Action::Release { knob: Knob::MemoryHigh, ours: Bytes(1), prior: Bytes(2) };
        let (knob, from, to) = (Knob::MemoryHigh, Bytes(u64::MAX), Bytes::mib(64));
        steps[2].action = Action::Set { knob, from, prior: from, to };
        let actuator = Actuator::new(Host::fake(root), Idle::default()).unwrap();
        let journal = Journal::open(&root.join("journal"), "boot").unwrap();
        let journal: SharedJournal = Arc::new(Mutex::new(journal));
        let none = Patience { reclaim: Duration::ZERO, write: Duration::ZERO };
        let outcomes = carry_out(&actuator, &journal, (steps.clone(), &steps[..1]), none).await;
        let is_put_off = |o: &Outcome| matches!(o, Outcome::Untold | Outcome::Overtaken);
        assert!(!outcomes.iter().any(|(_, outcome)| is_put_off(outcome)), "{outcomes:?}");
    }
}
