//! Work that may block, off the loop: reading the host, writing knobs, reclaiming.
//!
//! At most one of each kind is under way, so each knob has one writer and a slow kernel delays
//! only its own kind. Results come back to the loop as events.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use ctlmgr_act::{Actuator, RECLAIM_TIME, Stopper, UnitProperties};
use ctlmgr_host::chain;
use ctlmgr_model::{Action, Millis, Outcome, Rung, Snapshot, Step};
use ctlmgr_sense::{Glance, Query, Sensor};
use glob::Pattern;
use tokio::sync::mpsc::Sender;

use crate::step::{carry_out_one, outcome_of};
use crate::undo::SharedJournal;
use crate::writer::{Urgent, Written};

/// What a worker reports.
#[derive(Debug)]
pub(crate) enum Report {
    /// A reading, or why there is none.
    Sensed(Result<Box<Snapshot>, String>),
    /// What could be seen at a glance, if anything.
    Glanced(Option<Glance>),
    /// What of a plan is in force already, its keeper not told.
    Ahead(Urgent),
    /// Knobs were written.
    Written(Written),
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
                Action::Reclaim { .. } if step.rung == Rung::Probe => work.reclaims.push(step),
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
        let deadline = Instant::now() + RECLAIM_TIME;
        let mut outcomes = Vec::with_capacity(steps.len());
        for step in steps {
            let outcome = carry_out_one(&actuator, &journal, &step, deadline).await;
            outcomes.push((step, outcome_of(outcome)));
        }
        let _ = done.send(Report::Reclaimed(outcomes)).await;
    });
}
