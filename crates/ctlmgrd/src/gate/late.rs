//! The late gate: containers that started without being asked about are frozen until their turn.
//!
//! For starts that pass neither plugin nor wrapper: the boot, restart policies, other clients. It comes
//! after the fact, and what is frozen fails its health checks, so it is off unless asked for
//! (`starts.freeze`). Each freeze is in the undo journal before it is made. Whatever becomes of the gate,
//! nobody stays frozen here for longer than [`LONGEST`]; a crash is undone by the next start, from the journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctlmgr_act::{Actuator, UnitProperties};
use ctlmgr_model::{Action, Bytes, Knob, Outcome, Reason, Rung, Step, Telling};
use ctlmgr_sense::Sensor;
use tokio::sync::{Mutex, mpsc};
use tracing::{info, warn};

use crate::step::{carry_out_one, outcome_of};
use crate::undo::SharedJournal;

/// Longer than anybody who is frozen waits.
const LONGEST: Duration = Duration::from_secs(70);
/// How often that is looked after.
const ROUND: Duration = Duration::from_secs(5);

/// What is to become of a container, by its full id.
#[derive(Debug)]
pub(crate) enum Order {
    Freeze(String, Reason),
    /// A user may have paused it meanwhile; then it stays so.
    Thaw {
        id: String,
        is_paused: bool,
    },
}

/// Whether freezing is allowed; held while a freeze is made, so that undo comes before or after it.
pub(crate) type Permit = Arc<Mutex<bool>>;

/// Who stands still.
struct Frozen {
    step: Step,
    /// Whether a user has paused it meanwhile; known once it may go on.
    is_paused: bool,
    /// When it is let go in any case.
    until: Instant,
}

/// Who carries orders out.
pub(crate) struct Hand<U> {
    pub sensor: Arc<Sensor>,
    pub actuator: Arc<Actuator<U>>,
    pub journal: SharedJournal,
    pub permit: Permit,
}

impl<U: UnitProperties> Hand<U> {
    /// Carries out orders, one after the other, until nobody can give any.
    pub async fn obey(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut frozen: BTreeMap<String, Frozen> = BTreeMap::new();
        let mut round = tokio::time::interval(ROUND);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Freeze(id, reason)) => {
                        if let Some(step) = self.freeze(&id, reason).await {
                            let until = Instant::now() + LONGEST;
                            frozen.insert(id, Frozen { step, is_paused: false, until });
                        }
                    }
                    Some(Order::Thaw { id, is_paused }) => {
                        if let Some(it) = frozen.get_mut(&id) {
                            (it.is_paused, it.until) = (is_paused, Instant::now());
                        }
                        self.thaw_due(&mut frozen).await;
                    }
                    None => break,
                },
                _ = round.tick() => self.thaw_due(&mut frozen).await,
            }
        }
        for it in frozen.values() {
            self.thaw(it).await;
        }
    }

    /// Lets go of whoever may go on or stands still for too long. What fails is tried again in the next round.
    async fn thaw_due(&self, frozen: &mut BTreeMap<String, Frozen>) {
        let is_due = |it: &Frozen| Instant::now() >= it.until;
        let due: Vec<String> =
            frozen.iter().filter(|(_, it)| is_due(it)).map(|(id, _)| id.clone()).collect();
        for id in due {
            if self.thaw(&frozen[&id]).await {
                frozen.remove(&id);
            }
        }
    }

    /// Freezes a container; `None` if it is gone or not ready, or was frozen by somebody else.
    async fn freeze(&self, id: &str, reason: Reason) -> Option<Step> {
        // Where undo or whoever places has it this one starts as it is: nobody who is frozen waits for them.
        let is_allowed = self.permit.try_lock().ok()?;
        if !*is_allowed {
            return None;
        }
        let (sensor, id) = (self.sensor.clone(), id.to_owned());
        // It may have been made anew since: whoever stops the runtime meanwhile stops dockerd.
        let found = move || {
            let group = sensor.find(&id).ok().flatten()?;
            (sensor.is_ready(&group.path) == Some(true)).then_some(group)
        };
        let found = tokio::task::spawn_blocking(found).await;
        let group = found.ok().flatten().filter(|g| !g.activity.is_to_freeze)?;
        let action = Action::Set {
            knob: Knob::CgroupFreeze,
            from: Bytes::ZERO,
            prior: Bytes::ZERO,
            to: Knob::STILL,
        };
        let step = Step {
            path: group.path,
            id: group.id,
            action,
            rung: Rung::Freeze,
            reason,
            telling: Telling::Now,
        };
        // It may stand still though that failed: when it was read back, or noted.
        let is_gone = self.carry_out(&step).await == Outcome::Vanished;
        (!is_gone).then_some(step)
    }

    /// Whether it runs, as far as that is ctlmgr's say.
    async fn thaw(&self, Frozen { step, is_paused, .. }: &Frozen) -> bool {
        let prior = if *is_paused { Knob::STILL } else { Bytes::ZERO };
        let action = Action::Release { knob: Knob::CgroupFreeze, prior, ours: Knob::STILL };
        let reason = Reason("it may start".to_owned());
        let outcome = self.carry_out(&Step { action, reason, ..step.clone() }).await;
        !matches!(outcome, Outcome::Failed(_))
    }

    async fn carry_out(&self, step: &Step) -> Outcome {
        let work = carry_out_one(&self.actuator, &self.journal, step, Instant::now());
        let outcome = outcome_of(work.await);
        let (path, reason) = (&step.path, &step.reason.0);
        match &outcome {
            Outcome::Done => info!(%path, reason, "{step}"),
            Outcome::Failed(error) => warn!(%path, error, "{step} failed"),
            other => info!(%path, outcome = ?other, "{step}"),
        }
        outcome
    }
}
