//! Requests from the API, carried out.

use ctlmgr_act::UnitProperties;
use ctlmgr_api::{Job, ModeChange, Reverted, Status, WeightChange, Why};
use ctlmgr_model::{Mode, Plan, Settings, Weight};
use ctlmgr_policy::State;
use ctlmgr_policy::replay::Event;

use crate::control::{Command, Refused};
use crate::daemon::Daemon;
use crate::overrides::Heaviness;
use crate::recorder::Numbered;
use crate::{overrides, undo};

impl<U: UnitProperties> Daemon<U> {
    /// Answers a request. A reader that went away is no concern of ours.
    pub(crate) async fn obey(&mut self, command: Command) {
        match command {
            Command::Status(reply) => drop(reply.send(Ok(self.status()))),
            Command::Why(name, reply) => drop(reply.send(self.why(&name))),
            Command::Plan(reply) => drop(reply.send(self.plan())),
            Command::Settings(reply) => drop(reply.send(Ok(self.settings.clone()))),
            Command::Record(from, reply) => drop(reply.send(Ok(self.record(from)))),
            Command::Diff(reply) => drop(reply.send(self.diff().await)),
            Command::Revert(reply) => drop(reply.send(self.stop_acting().await)),
            Command::Mode(change, reply) => drop(reply.send(self.change_mode(change).await)),
            Command::Weight(change, reply) => drop(reply.send(self.change_weight(&change).await)),
        }
    }

    fn status(&self) -> Status {
        let last = self.last.as_ref();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            memory_mode: self.settings.memory.mode,
            starts_mode: self.settings.starts.mode,
            place_mode: self.settings.place.mode,
            uptime_secs: self.started.elapsed().as_secs(),
            docker: self.containers.borrow().version.clone(),
            plan: last.map(|l| l.plan.clone()),
            gaps: last.map(|l| l.gaps.clone()).unwrap_or_default(),
            stall_pct: last.and_then(|l| l.host.pressure).map(|p| stall(p.some.avg10_pct)),
            counters: self.counters,
            troubles: self.troubles(),
        }
    }

    fn troubles(&self) -> Vec<String> {
        let acts = [self.settings.memory.mode, self.settings.place.mode].contains(&Mode::Act);
        let journal = (self.journal.is_none() && acts)
            .then(|| "no undo journal, so nothing is written".to_owned());
        let complaints = self.last.iter().flat_map(|l| l.plan.complaints.iter().cloned());
        [journal, self.config_trouble.clone(), self.sense_trouble.clone()]
            .into_iter()
            .flatten()
            .chain(complaints)
            .collect()
    }

    fn record(&mut self, from: Option<u64>) -> Vec<Numbered> {
        let start = || start(&self.settings, &self.state);
        self.recorder.since(from, start)
    }

    /// Deciding goes on from somewhere else: what follows must not be replayed from before.
    pub(crate) fn note_new_start(&mut self) {
        self.recorder.note(|| start(&self.settings, &self.state));
    }

    fn plan(&self) -> Result<Plan, Refused> {
        let pending = || Refused::Failed("no reading yet; try again in a second".to_owned());
        self.last.as_ref().map(|l| l.plan.clone()).ok_or_else(pending)
    }

    fn why(&self, name: &str) -> Result<Why, Refused> {
        let plan = self.plan()?;
        let present = plan.verdicts.into_iter().find(|v| v.name.0 == name);
        match (present, self.gone.last(name)) {
            (Some(verdict), before) => {
                let mut decisions = self.history.concerning(&verdict.path, 10);
                // One of that name that was stopped was another container, but the same to an operator.
                let stops = before.map(|gone| self.history.stops(&gone.verdict.path));
                decisions.extend(stops.unwrap_or_default());
                Ok(Why { verdict, decisions, place: None, gone_unix_ms: None })
            }
            (None, Some(gone)) => {
                let (verdict, since) = (gone.verdict.clone(), gone.unix_ms);
                let decisions = self.history.concerning(&verdict.path, 10);
                Ok(Why { verdict, decisions, place: None, gone_unix_ms: Some(since) })
            }
            (None, None) => Err(self.no_workload(name)),
        }
    }

    fn no_workload(&self, name: &str) -> Refused {
        let known = self.last.iter().flat_map(|l| &l.plan.verdicts).map(|v| v.name.0.as_str());
        let mut known: Vec<&str> = known.collect();
        known.sort_unstable();
        known.truncate(20);
        Refused::NotFound(format!("no workload `{name}`; there are: {}", known.join(", ")))
    }

    async fn diff(&self) -> Result<Vec<ctlmgr_api::Difference>, Refused> {
        let Some(journal) = &self.journal else { return Ok(Vec::new()) };
        undo::differences(&self.actuator, journal).await.map_err(failed)
    }

    /// Undo by request also stops acting, or the next second would do it all again. Undo first:
    /// a full disk under the override must not stand in its way.
    async fn stop_acting(&mut self) -> Result<Vec<Reverted>, Refused> {
        let Settings { memory, starts, place, .. } = &mut self.settings;
        let mut acting = Vec::new();
        let modes = [
            (Job::Memory, &mut memory.mode),
            (Job::Starts, &mut starts.mode),
            (Job::Place, &mut place.mode),
        ];
        for (job, mode) in modes {
            if *mode == Mode::Act {
                *mode = Mode::Observe;
                acting.push(job);
            }
        }
        self.announce.send_replace(self.settings.clone());
        let reverted = self.put_back(|_| true).await.map_err(failed)?;
        for job in acting {
            let directory = self.places.overrides();
            overrides::set_mode(&directory, job, Some(Mode::Observe)).map_err(failed)?;
        }
        Ok(reverted)
    }

    async fn change_mode(&mut self, change: ModeChange) -> Result<Status, Refused> {
        overrides::set_mode(&self.places.overrides(), change.job, change.mode).map_err(failed)?;
        self.reload_or_refuse().await
    }

    async fn change_weight(&mut self, change: &WeightChange) -> Result<Status, Refused> {
        let weight = change.weight.map(|w| Weight::new(i64::from(w))).transpose();
        let weight = weight.map_err(|e| Refused::Invalid(e.to_string()))?;
        let wanted = match (weight, &change.class) {
            (Some(_), Some(_)) => {
                return Err(Refused::Invalid("a weight or a class, not both".to_owned()));
            }
            (_, Some(class)) if !self.settings.classes.contains_key(class) => {
                return Err(Refused::Invalid(format!("no class `{class}`")));
            }
            (_, Some(class)) => Some(Heaviness::Class(class)),
            (weight, None) => weight.map(Heaviness::Weight),
        };
        overrides::set_weight(&self.places.overrides(), &change.name, wanted).map_err(
            |e| match e.kind() {
                std::io::ErrorKind::InvalidInput => Refused::Invalid(e.to_string()),
                _ => failed(e),
            },
        )?;
        self.reload_or_refuse().await
    }

    async fn reload_or_refuse(&mut self) -> Result<Status, Refused> {
        self.reload().await;
        match &self.config_trouble {
            Some(trouble) => Err(Refused::Failed(trouble.clone())),
            None => Ok(self.status()),
        }
    }
}

fn start(settings: &Settings, state: &State) -> Event {
    Event::Start { settings: Box::new(settings.clone()), state: Box::new(state.clone()) }
}

fn failed(error: impl Into<anyhow::Error>) -> Refused {
    Refused::Failed(format!("{:#}", error.into()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0–100 before the cast"
)]
fn stall(value: f32) -> u8 {
    value.clamp(0.0, 100.0).round() as u8
}
