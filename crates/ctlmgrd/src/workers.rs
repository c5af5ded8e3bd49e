//! Work that may block, off the loop: reading the host, writing knobs, reclaiming.
//!
//! At most one of each kind is under way, so each knob has one writer and a slow kernel delays
//! only its own kind. Results come back to the loop as events.

use std::sync::Arc;

use ctlmgr_act::{Actuator, UnitProperties};
use ctlmgr_host::chain;
use ctlmgr_model::{Action, Millis, Outcome, Snapshot, Step};
use ctlmgr_sense::{Query, Sensor};
use tokio::sync::mpsc::Sender;

use crate::undo::{SharedJournal, with_journal};

/// What a worker reports.
#[derive(Debug)]
pub(crate) enum Report {
    /// A reading, or why there is none.
    Sensed(Result<Box<Snapshot>, String>),
    /// Knobs were written.
    Written(Vec<(Step, Outcome)>),
    /// Memory was reclaimed.
    Reclaimed(Vec<(Step, Outcome)>),
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

/// Splits steps into writes and reclaims.
pub(crate) fn split(steps: Vec<Step>) -> (Vec<Step>, Vec<Step>) {
    steps.into_iter().partition(|s| matches!(s.action, Action::Set { .. }))
}

/// Writes knobs in order, each after the journal knows it.
pub(crate) fn write<U: UnitProperties>(
    actuator: Arc<Actuator<U>>,
    journal: SharedJournal,
    steps: Vec<Step>,
    done: Sender<Report>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut outcomes = Vec::with_capacity(steps.len());
        for step in steps {
            let outcome = match save(&journal, &step).await {
                Ok(()) => actuator.carry_out(&step).await,
                Err(error) => Outcome::Failed(format!("{error:#}")),
            };
            outcomes.push((step, outcome));
        }
        let _ = done.send(Report::Written(outcomes)).await;
    })
}

async fn save(journal: &SharedJournal, step: &Step) -> anyhow::Result<()> {
    let Some(saved) = step.to_save() else { return Ok(()) };
    with_journal(journal, move |j| j.note(&saved)).await
}

/// Reclaims, one target after the other.
pub(crate) fn reclaim<U: UnitProperties>(
    actuator: Arc<Actuator<U>>,
    steps: Vec<Step>,
    done: Sender<Report>,
) {
    tokio::spawn(async move {
        let mut outcomes = Vec::with_capacity(steps.len());
        for step in steps {
            let outcome = actuator.carry_out(&step).await;
            outcomes.push((step, outcome));
        }
        let _ = done.send(Report::Reclaimed(outcomes)).await;
    });
}
