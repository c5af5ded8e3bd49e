//! When the host is read: quickly under contention, seldom while all is calm, and for who asks.

use std::time::{Duration, Instant};

use ctlmgr_act::UnitProperties;
use ctlmgr_model::Mode;
use ctlmgr_sense::Query;

use crate::control::Command;
use crate::daemon::Daemon;
use crate::workers;

/// Pause between readings with contention there or near …
const QUICK: Duration = Duration::from_secs(1);
/// … and while all is calm: pressure, memory.events and dockerd wake the loop before.
const CALM: Duration = Duration::from_secs(10);
/// Two readings are at least this far apart, however often the kernel wakes us.
const LEAST_PACE: Duration = Duration::from_millis(500);
/// How long the first reading waits for what dockerd knows.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// A request waits this long for a fresh reading.
const PATIENCE: Duration = Duration::from_secs(2);
/// A reading that takes longer than this is a trouble worth a line in `status`.
const SLOW_READING: Duration = Duration::from_secs(15);

impl<U: UnitProperties> Daemon<U> {
    /// Obeys at once, or after a reading if the last one is too old to speak of "now".
    pub(crate) async fn hear(&mut self, command: Command) {
        let now = Instant::now();
        self.calm.note_request(now);
        let is_stale = self.last.is_some() && self.calm.age(now) > CALM + LEAST_PACE;
        if !command.is_about_now() || !is_stale {
            return self.obey(command).await;
        }
        self.waiting.push(command);
        self.calm.note_due();
        self.next_tick = now;
    }

    /// Answers those that wait for a reading, when it is there or takes too long.
    pub(crate) async fn answer_waiting(&mut self) {
        let is_pending = self.busy.sensing_since.is_some_and(|since| since.elapsed() < PATIENCE);
        if is_pending {
            return;
        }
        for command in std::mem::take(&mut self.waiting) {
            self.obey(command).await;
        }
    }

    /// Brings the next reading forward.
    pub(crate) fn hurry(&mut self) {
        self.calm.note_due();
        self.next_tick = self.next_tick.min(Instant::now() + LEAST_PACE);
    }

    /// Brings the next reading forward for memory.events: one who runs into its own limit all the time changes them all
    /// the time, and is no reason to read everybody more often than else.
    pub(crate) fn heed(&mut self) {
        let wait = self.calm.heed(Instant::now());
        self.calm.note_due();
        self.next_tick = self.next_tick.min(Instant::now() + wait.max(LEAST_PACE));
    }

    /// While memory is tight the next reading is no further away than the quick pace.
    pub(crate) fn keep_pace(&mut self) {
        self.next_tick = self.next_tick.min(Instant::now() + QUICK);
    }

    /// Whether the host is to be read every second: memory is short or nearly so, and something moves.
    pub(crate) fn is_tight(&self) -> bool {
        let is_tight = self.last.as_ref().is_some_and(|l| l.plan.is_tight());
        is_tight && !self.calm.is_still(Instant::now())
    }

    pub(crate) fn sense(&mut self) {
        let is_calm =
            self.settings.memory.mode == Mode::Off || self.last.is_some() && !self.is_tight();
        // Who is about to run into a limit of ours has to be read, not only glanced at.
        let may_glance = self.last.as_ref().is_none_or(|l| !l.plan.is_tight());
        let is_awaited = !self.waiting.is_empty();
        self.next_tick = Instant::now() + if is_calm && !is_awaited { CALM } else { QUICK };
        if let Some(since) = self.busy.sensing_since {
            if since.elapsed() > SLOW_READING {
                let text =
                    format!("the last reading takes {} s already", since.elapsed().as_secs());
                self.sense_trouble = Some(text);
            }
            return;
        }
        if self.settings.memory.mode == Mode::Off {
            self.last = None;
            self.sensor.rest();
            return;
        }
        // Without names and labels everybody would look alike; dockerd gets a moment to tell.
        if !self.containers.borrow().was_tried && self.started.elapsed() < FIRST_WORD {
            self.next_tick = Instant::now() + LEAST_PACE;
            return;
        }
        let now = Instant::now();
        if is_calm
            && may_glance
            && self.calm.may_glance(now)
            && !self.history.awaits_effect(self.now())
        {
            return workers::glance(
                &self.sensor,
                self.settings.units.clone(),
                self.reports.clone(),
            );
        }
        self.calm.note_reading(now);
        self.busy.sensing_since = Some(now);
        let containers = self.containers.borrow().clone();
        let query = Query {
            units: self.settings.units.clone(),
            is_docker_away: containers.version.is_none(),
            containers: containers.by_id,
            oomd: self.oomd.borrow().clone(),
            is_soon_again: self.is_tight(),
        };
        workers::sense(&self.sensor, self.now(), query, self.reports.clone());
    }
}
