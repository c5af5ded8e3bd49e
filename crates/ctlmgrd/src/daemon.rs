//! The loop: every source of events folded into one enum, handled by one owner of all state.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ctlmgr_act::{Actuator, SystemdBus, UnitProperties};
use ctlmgr_api::{Counters, Reverted};
use ctlmgr_model::{Gap, HostSample, Knob, Millis, Mode, Oomd, Plan, Settings, Undone};
use ctlmgr_policy::State;
use ctlmgr_sense::{Containers, Sensor, Wake, Wakes, watch_containers};
use ctlmgr_store::Journal;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

use crate::calm::Calm;
use crate::control::{Command, Line, Shown};
use crate::gate::late::Permit;
use crate::gone::Gone;
use crate::history::History;
use crate::places::Places;
use crate::recorder::Recorder;
use crate::tasks::{self, open_gate, watch_traffic};
use crate::undo::{SharedJournal, give_back, revert_some, with_journal};
use crate::workers::Report;
use crate::writer::Writing;
use crate::{api, notify};

/// Why the loop moves.
enum Event {
    Tick,
    Alive,
    Wake(Wake),
    Report(Report),
    Workloads,
    Command(Command),
    Reload,
    Stop,
}

/// What the last reading and decision said.
pub(crate) struct Last {
    pub plan: Plan,
    pub host: HostSample,
    pub gaps: Vec<Gap>,
}

/// Work under way off the loop.
#[derive(Default)]
pub(crate) struct Busy {
    pub sensing_since: Option<Instant>,
    pub writing: Option<Writing>,
    pub reclaiming: bool,
    pub stopping: bool,
}

/// All state of the daemon.
pub(crate) struct Daemon<U> {
    pub places: Places,
    pub settings: Settings,
    pub state: State,
    pub sensor: Arc<Sensor>,
    pub actuator: Arc<Actuator<U>>,
    pub journal: Option<SharedJournal>,
    pub containers: watch::Receiver<Containers>,
    pub oomd: watch::Receiver<Oomd>,
    pub wakes: Wakes,
    pub reports: mpsc::Sender<Report>,
    pub busy: Busy,
    pub calm: Calm,
    /// Requests that wait for a fresh reading.
    pub waiting: Vec<Command>,
    pub last: Option<Last>,
    pub history: History,
    pub gone: Gone,
    pub recorder: Recorder,
    pub counters: Counters,
    /// Whether the gate may freeze.
    pub permit: Permit,
    /// Tells the gate of new settings.
    pub announce: watch::Sender<Settings>,
    pub config_trouble: Option<String>,
    pub sense_trouble: Option<String>,
    pub started: Instant,
    pub next_tick: Instant,
    /// When outcomes were last learned; an older reading may show values from before.
    pub learned_at: Millis,
}

/// The ends of the channels that the loop listens to.
struct Sources {
    wakes: mpsc::Receiver<Wake>,
    reports: mpsc::Receiver<Report>,
    commands: mpsc::Receiver<Command>,
    containers: watch::Receiver<Containers>,
    reload: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    alive: tokio::time::Interval,
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// The configuration is wrong, the host has no cgroup v2, or the socket cannot be opened.
pub async fn run(places: Places, listener: Option<UnixListener>) -> Result<()> {
    std::fs::create_dir_all(places.run()).context("failed to make the run-time directory")?;
    let listener = match listener {
        Some(listener) => listener,
        None => bind(&places)?,
    };
    let (mut daemon, mut sources, line) = assemble(places)?;
    tokio::spawn(api::serve(listener, line));
    daemon.recover().await;
    *daemon.permit.lock().await = true;
    notify::ready(&daemon.summary());
    info!(version = env!("CARGO_PKG_VERSION"), mode = %daemon.settings.memory.mode, "running");
    loop {
        match sources.next(daemon.next_tick).await {
            Event::Stop => break,
            event => daemon.handle(event).await,
        }
    }
    notify::stopping();
    info!("stopping");
    match daemon.undo(|_| true).await {
        true => Ok(()),
        // A failed unit starts ctlmgr-revert.service, which tries again.
        false => bail!("not everything could be put back; see ctlmgr diff"),
    }
}

/// Lists are of the placement job, which looks after them itself.
fn is_of_memory(knob: Knob) -> bool {
    !knob.is_list()
}

fn bind(places: &Places) -> Result<UnixListener> {
    let socket = places.socket();
    // A socket left by a crash would make bind fail; a live one belongs to systemd or a twin.
    if std::os::unix::net::UnixStream::connect(&socket).is_err() {
        let _ = std::fs::remove_file(&socket);
    }
    UnixListener::bind(&socket).with_context(|| format!("failed to listen on {}", socket.display()))
}

fn assemble(places: Places) -> Result<(Daemon<SystemdBus>, Sources, Line)> {
    let settings = ctlmgr_config::load(&places.root)?;
    let host = places.host();
    let sensor = Sensor::new(host.clone())?;
    let actuator = Actuator::new(host.clone(), SystemdBus::new())?;
    let (wake_sender, wakes) = mpsc::channel(64);
    let (report_sender, reports) = mpsc::channel(64);
    let (command_sender, commands) = mpsc::channel(64);
    let (publish, containers) = watch::channel(Containers::default());
    tokio::spawn(watch_containers(places.docker(), publish));
    let (announce, settings_seen) = watch::channel(settings.clone());
    let daemon = Daemon {
        wakes: Wakes::new(host.clone(), sensor.cgroups().clone(), wake_sender),
        journal: open_journal(&places),
        sensor: Arc::new(sensor),
        actuator: Arc::new(actuator),
        permit: Permit::default(),
        places,
        settings,
        state: State::default(),
        containers: containers.clone(),
        oomd: tasks::follow_oomd(host.clone()),
        reports: report_sender,
        busy: Busy::default(),
        calm: Calm::new(Instant::now()),
        waiting: Vec::new(),
        last: None,
        history: History::default(),
        gone: Gone::default(),
        recorder: Recorder::default(),
        counters: Counters::default(),
        announce,
        config_trouble: None,
        sense_trouble: None,
        started: Instant::now(),
        next_tick: Instant::now(),
        learned_at: Millis(0),
    };
    let sources = Sources {
        wakes,
        reports,
        commands,
        containers,
        reload: signal(SignalKind::hangup())?,
        terminate: signal(SignalKind::terminate())?,
        interrupt: signal(SignalKind::interrupt())?,
        alive: tokio::time::interval(notify::watchdog_interval()),
    };
    let seen = watch_traffic(&daemon, settings_seen.clone());
    let place = tasks::place(&daemon, settings_seen.clone(), seen.clone());
    let (questions, queue) = open_gate(&daemon, settings_seen);
    let shown = Shown { queue, seen, place };
    Ok((daemon, sources, Line::new(command_sender, questions, shown)))
}

/// The journal, or nothing: then ctlmgr observes only, and says why.
fn open_journal(places: &Places) -> Option<SharedJournal> {
    match Journal::open(&places.journal(), &places.boot_id()) {
        Ok(journal) => Some(Arc::new(Mutex::new(journal))),
        Err(error) => {
            error!(
                error = ctlmgr_host::chain(&error),
                "no undo journal, so nothing will be written"
            );
            None
        }
    }
}

impl Sources {
    /// The next event. Every branch is cancel-safe: channels, signals and timers lose nothing.
    async fn next(&mut self, tick: Instant) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
            _ = self.reload.recv() => Event::Reload,
            _ = self.alive.tick() => Event::Alive,
            Some(command) = self.commands.recv() => Event::Command(command),
            Some(report) = self.reports.recv() => Event::Report(report),
            Some(wake) = self.wakes.recv() => Event::Wake(wake),
            Ok(()) = self.containers.changed() => Event::Workloads,
            () = tokio::time::sleep_until(tick.into()) => Event::Tick,
        }
    }
}

impl<U: UnitProperties> Daemon<U> {
    async fn handle(&mut self, event: Event) {
        match event {
            Event::Tick => {
                self.sense();
                self.answer_waiting().await;
            }
            // While memory is tight pressure and memory.events wake us all the time, and the pace is quick.
            Event::Wake(_) if self.is_tight() => {}
            Event::Wake(Wake::MemoryEvent) => self.heed(),
            Event::Wake(wake) => {
                tracing::debug!(?wake, "woken");
                self.hurry();
            }
            Event::Workloads => self.hurry(),
            Event::Alive => {
                notify::alive();
                notify::status(&self.summary());
                self.finish_undo().await;
            }
            Event::Report(report) => {
                self.take(report);
                self.answer_waiting().await;
            }
            Event::Command(command) => self.hear(command).await,
            Event::Reload => self.reload().await,
            Event::Stop => {}
        }
    }

    /// Monotonic time of this process.
    pub(crate) fn now(&self) -> Millis {
        // From 1, because policy reads 0 as "before this process".
        Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1))
    }

    /// After a start: knobs of an earlier run are ours to continue with, or to put back.
    async fn recover(&mut self) {
        let Some(journal) = &self.journal else { return };
        let entries = match with_journal(journal, Journal::entries).await {
            Ok(entries) => entries,
            Err(error) => {
                error!(error = format!("{error:#}"), "the undo journal cannot be read");
                self.journal = None;
                return;
            }
        };
        if entries.is_empty() {
            return;
        }
        info!(knobs = entries.len(), "found knobs of an earlier run");
        if self.settings.memory.mode != Mode::Act {
            self.undo(is_of_memory).await;
            return;
        }
        for saved in entries.into_iter().filter(|saved| is_of_memory(saved.knob)) {
            // It may be a dip that was interrupted; a limit that is wanted is back in a second.
            let is_dip = saved.knob == Knob::MemoryHigh && !self.actuator.has_reclaim();
            let back = give_back(&self.actuator, journal, &saved);
            if is_dip && !matches!(notify::attended(back).await, Undone::Failed(_)) {
                continue;
            }
            self.state.adopt(&saved);
        }
    }

    /// Waits for the writer, then puts back all that is ours among these knobs.
    ///
    /// # Errors
    /// The journal cannot be read, so nothing was put back.
    pub(crate) async fn put_back(&mut self, which: fn(Knob) -> bool) -> Result<Vec<Reverted>> {
        if let Some(writing) = self.busy.writing.take() {
            let _ = notify::attended(writing.task).await;
        }
        let Some(journal) = &self.journal else { return Ok(Vec::new()) };
        // Nothing is frozen or pinned in the midst of it, and after it only once acting begins anew.
        let mut may_freeze = notify::attended(self.permit.lock()).await;
        *may_freeze = false;
        let reverted = notify::attended(revert_some(&self.actuator, journal, which)).await;
        drop(may_freeze);
        // What could not be put back is still ours; readings from before are of no use now.
        let left = with_journal(journal, Journal::entries).await.unwrap_or_default();
        self.state.forget_written();
        left.iter().for_each(|saved| self.state.adopt(saved));
        self.learned_at = self.now();
        self.note_new_start();
        reverted
    }

    /// The same, where nobody waits for the answer.
    async fn undo(&mut self, which: fn(Knob) -> bool) -> bool {
        match self.put_back(which).await {
            Ok(lines) => !lines.iter().any(|l| matches!(l.undone, Undone::Failed(_))),
            Err(error) => {
                error!(error = format!("{error:#}"), "failed to undo");
                false
            }
        }
    }

    /// What could not be put back when acting ended, because systemd was too slow for instance, is tried again.
    async fn finish_undo(&mut self) {
        // Whom the starts job holds frozen is its own matter.
        let is_left: fn(Knob) -> bool = match self.settings.starts.freeze {
            true => |knob| is_of_memory(knob) && knob != Knob::CgroupFreeze,
            false => is_of_memory,
        };
        let is_over = self.settings.memory.mode != Mode::Act;
        if is_over && self.busy.writing.is_none() && self.state.has_any_of(is_left) {
            self.undo(is_left).await;
            // Other jobs go on.
            *notify::attended(self.permit.lock()).await = true;
        }
    }

    /// Reads the configuration again; a bad one changes nothing.
    pub(crate) async fn reload(&mut self) {
        notify::reloading();
        match ctlmgr_config::load(&self.places.root) {
            Ok(settings) => {
                let was = self.settings.memory.mode;
                self.settings = settings;
                self.announce.send_replace(self.settings.clone());
                self.config_trouble = None;
                info!(mode = %self.settings.memory.mode, "configuration reloaded");
                self.note_new_start();
                if was == Mode::Act && self.settings.memory.mode != Mode::Act {
                    self.undo(is_of_memory).await;
                }
            }
            Err(error) => {
                warn!(%error, "bad configuration, the running settings stay");
                self.config_trouble = Some(format!("bad configuration, not applied: {error}"));
            }
        }
        // Whoever places writes lists meanwhile, which takes as long as the system's manager does.
        *notify::attended(self.permit.lock()).await = true;
        self.hurry();
        notify::ready(&self.summary());
    }

    /// One line for `systemctl status`.
    pub(crate) fn summary(&self) -> String {
        let mode = self.settings.memory.mode;
        let Some(last) = &self.last else {
            return format!("memory: {mode}; first reading pending");
        };
        let account = &last.plan.account;
        let workloads = last
            .plan
            .verdicts
            .iter()
            .filter(|v| v.kind == ctlmgr_model::VerdictKind::Workload)
            .count();
        format!(
            "memory: {mode}; {workloads} workloads; {} asked of {}; {} writes",
            account.demand, account.capacity, self.counters.writes
        )
    }
}
