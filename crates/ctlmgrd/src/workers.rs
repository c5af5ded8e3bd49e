//! Work that may block, off the loop: reading the host, writing knobs, reclaiming.
//!
//! At most one of each kind is under way, so each knob has one writer and a slow kernel delays
//! only its own kind. Page cache that a limit counts on is reclaimed by the writer of knobs, for [`CACHE_TIME`] at
//! most but for one chunk. Results come back to the loop as events.

use std::cmp::Reverse;
use std::collections::BTreeSet;
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
        let time = if actuator.has_reclaim() { CACHE_TIME } else { RECLAIM_TIME };
        let outcomes = carry_out(&actuator, &journal, steps, time).await;
        let _ = done.send(Report::Written(outcomes)).await;
    })
}

/// Whoever writes knobs takes page cache no longer than this.
const CACHE_TIME: Duration = Duration::from_millis(500);

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
        let outcomes = carry_out(&actuator, &journal, steps, RECLAIM_TIME).await;
        let _ = done.send(Report::Reclaimed(outcomes)).await;
    });
}

async fn carry_out<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    steps: Vec<Step>,
    time: Duration,
) -> Vec<(Step, Outcome)> {
    let mut outcomes = Vec::with_capacity(steps.len());
    let relieved = relieve(actuator, journal, &steps).await;
    // For all reclaim together: by then the host is another, and no dip lets a limit be raised meanwhile.
    let deadline = Instant::now() + time;
    for step in steps {
        if step.action.amount_to_reclaim().is_some() && Instant::now() >= deadline {
            outcomes.push((step, Outcome::Overtaken));
            continue;
        }
        let outcome = carry_out_one(actuator, journal, &step, deadline).await;
        let outcome = match outcome.unwrap_or_else(|e| Outcome::Failed(format!("{e:#}"))) {
            Outcome::Overtaken if relieved.contains(&step.path) => {
                Outcome::Failed("its manager has to be told later".to_owned())
            }
            outcome => outcome,
        };
        outcomes.push((step, outcome));
    }
    outcomes
}

/// Takes protection away where less is wanted, of all at once: a manager that is starved of memory answers one after
/// the other in seconds. The journal knows each before; what fails here is tried again in its turn.
async fn relieve<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    steps: &[Step],
) -> BTreeSet<CgroupPath> {
    let mut relieved = BTreeSet::new();
    for step in steps {
        let is_less = matches!(step.action, Action::Set { knob, from, to, .. }
            if Knob::PROTECTION.contains(&knob) && to < from);
        let saved = step.to_save().filter(|saved| is_less && !actuator.is_overtaken(saved));
        let Some(saved) = saved else { continue };
        if note(actuator, journal, &saved).await.is_ok() && actuator.relieve(&saved) {
            relieved.insert(saved.path);
        }
    }
    relieved
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
            Ok(actuator.set(&saved).await)
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
