//! Placement: from what was seen of containers to lists of processors, beside the loop.
//!
//! A task of its own: it follows the count of traffic, decides ([`ctlmgr_policy::pins`]), and carries out.
//! It alone writes lists; undo, which the loop does, takes the permit first.

mod reading;
mod usage;

use std::sync::Arc;
use std::time::Instant;

use ctlmgr_act::{Actuator, UnitProperties};
use ctlmgr_api::PlaceStatus;
use ctlmgr_host::Host;
use ctlmgr_model::{Millis, Mode, Outcome, PlaceReading, PlaceSettings, Settings, Step};
use ctlmgr_policy::pins::{PinState, decide};
use ctlmgr_sense::Containers;
use ctlmgr_store::{Journal, Profiles};
use futures_util::{StreamExt, stream};
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info, warn};

use crate::gate::late::Permit;
use crate::step::{carry_out_one, outcome_of};
use crate::traffic::Seen;
use crate::undo::{SharedJournal, with_journal};
use crate::workers::Report;

use self::reading::Watched;

/// Lists that are written at the same time: the system manager takes one after the other, but needs not wait.
const AT_ONCE: usize = 8;

/// What the task listens to, reads and writes.
pub(crate) struct Parts<U> {
    pub settings: watch::Receiver<Settings>,
    pub seen: watch::Receiver<Seen>,
    pub containers: watch::Receiver<Containers>,
    pub host: Host,
    pub actuator: Arc<Actuator<U>>,
    /// Without one nothing is written.
    pub journal: Option<SharedJournal>,
    /// Whether it may write; held while it does.
    pub permit: Permit,
    pub reports: mpsc::Sender<Report>,
}

/// Starts the task, with the store of what was learned before; returns what it decides.
pub(crate) fn watch<U: UnitProperties>(
    parts: Parts<U>,
    store: Option<Profiles>,
) -> watch::Receiver<PlaceStatus> {
    let (publish, status) = watch::channel(PlaceStatus::default());
    let watched = Watched::new(parts.host.clone(), store);
    let (state, started) = (PinState::default(), Instant::now());
    let placing = Placing { parts, state, started, wrote_at: None };
    tokio::spawn(placing.follow(watched, publish));
    status
}

struct Placing<U> {
    parts: Parts<U>,
    state: PinState,
    started: Instant,
    /// When lists were last written.
    wrote_at: Option<Instant>,
}

impl<U: UnitProperties> Placing<U> {
    /// Until the daemon ends.
    async fn follow(mut self, mut watched: Watched, publish: watch::Sender<PlaceStatus>) {
        self.recover().await;
        loop {
            let settings = self.parts.settings.borrow_and_update().clone();
            let seen = self.parts.seen.borrow_and_update().clone();
            let containers = self.parts.containers.borrow().clone();
            if !self.may_act(&settings.place) {
                self.let_go().await;
            }
            // Before the first reading, and while dockerd does not answer, nothing is known that could be decided.
            let is_blind = seen.at.is_none() || containers.version.is_none();
            let plan = match settings.place.mode {
                Mode::Off => None,
                _ if is_blind => publish.borrow().plan.clone(),
                // What it shows may be from before: ours would look like another's will.
                _ if seen.at < self.wrote_at => publish.borrow().plan.clone(),
                Mode::Observe | Mode::Act => {
                    let now = self.now();
                    let read = tokio::task::spawn_blocking(move || {
                        let reading = watched.read(now, &settings, &seen, &containers);
                        (watched, reading, settings)
                    });
                    let Ok((back, reading, settings)) = read.await else {
                        return error!("placement has ended: reading broke");
                    };
                    watched = back;
                    match reading {
                        Some(reading) => self.turn(settings.place, reading).await,
                        None => publish.borrow().plan.clone(),
                    }
                }
            };
            let mode = self.parts.settings.borrow().place.mode;
            publish.send_replace(PlaceStatus { mode, plan });
            let changed = tokio::select! {
                changed = self.parts.seen.changed() => changed,
                changed = self.parts.settings.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1))
    }

    fn may_act(&self, settings: &PlaceSettings) -> bool {
        settings.mode == Mode::Act && self.parts.journal.is_some()
    }

    /// Lists of an earlier run are ours to go on with, or to give back.
    async fn recover(&mut self) {
        let Some(journal) = &self.parts.journal else { return };
        match with_journal(journal, Journal::entries).await {
            Ok(entries) => {
                let at = self.now();
                self.state.forget();
                entries.iter().for_each(|saved| self.state.adopt(saved, at));
            }
            Err(error) => {
                warn!(
                    error = format!("{error:#}"),
                    "the undo journal cannot be read: nothing is placed"
                );
                self.parts.journal = None;
            }
        }
    }

    /// Gives back what is ours; what fails is tried again the next time.
    async fn let_go(&mut self) {
        let steps = self.state.release_all();
        self.carry_out(steps).await;
    }

    /// Decides, and does it or only says it; `None` if deciding broke.
    async fn turn(
        &mut self,
        settings: PlaceSettings,
        reading: PlaceReading,
    ) -> Option<ctlmgr_model::PlacePlan> {
        let acts = self.may_act(&settings);
        let state = std::mem::take(&mut self.state);
        let decided = tokio::task::spawn_blocking(move || decide(&settings, state, &reading)).await;
        let (plan, state) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                error!(%error, "deciding places broke");
                self.recover().await;
                return None;
            }
        };
        self.state = state;
        match acts {
            true => self.carry_out(plan.steps.clone()).await,
            false => self.report(plan.steps.iter().map(|step| (step.clone(), None)).collect()),
        }
        Some(plan)
    }

    /// Writes lists, some at a time.
    async fn carry_out(&mut self, steps: Vec<Step>) {
        let Some(journal) = self.parts.journal.clone().filter(|_| !steps.is_empty()) else {
            return;
        };
        let may_write = self.parts.permit.lock().await;
        if !*may_write {
            // Undo was done: what the journal still knows is ours, and what was read is from before.
            drop(may_write);
            debug!(steps = steps.len(), "not now");
            self.recover().await;
            self.wrote_at = Some(Instant::now());
            return;
        }
        let actuator = &self.parts.actuator;
        let write = |step: Step| {
            let journal = journal.clone();
            async move {
                let outcome = carry_out_one(actuator, &journal, &step, Instant::now()).await;
                (step, outcome_of(outcome))
            }
        };
        let began = Instant::now();
        let done: Vec<(Step, Outcome)> =
            stream::iter(steps.into_iter().map(write)).buffered(AT_ONCE).collect().await;
        drop(may_write);
        self.wrote_at = Some(Instant::now());
        let (lists, ms) = (done.len(), began.elapsed().as_millis());
        info!(lists, "{lists} lists of processors written in {ms} ms");
        let at = self.now();
        done.iter().for_each(|(step, outcome)| self.state.learn(step, outcome, at));
        self.report(done.into_iter().map(|(step, outcome)| (step, Some(outcome))).collect());
    }

    /// For counters and `why` only: the loop may be waiting for us, so we do not wait for it.
    fn report(&self, all: Vec<(Step, Option<Outcome>)>) {
        if !all.is_empty() && self.parts.reports.try_send(Report::Placed(all)).is_err() {
            debug!("the loop is busy; what was placed is not told");
        }
    }
}
