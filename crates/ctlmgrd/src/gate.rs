//! The gate at work: who asks to start, who starts, and what is learned of it.
//!
//! A task of its own, beside the loop: a start must never wait for a slow reading or write. It decides
//! nothing ([`ctlmgr_policy::gate`] does); it keeps time, looks at those that start, and answers. When
//! it ends, or the daemon does, every connection closes, and whoever asked lets its container start.

mod beginning;
mod deciding;
mod ending;
pub(crate) mod late;
mod learned;
mod questions;
mod running;
mod sight;
mod starting;
mod tracing;
mod waiting;

pub(crate) use waiting::key as profile_key;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::tracing::info;
use ctlmgr_api::{
    FailedStart, Forget, KeyedProfile, KnownContainer, Queue, QueueChange, StartAnswer,
    StartCounters, StartDecision, StartRequest,
};
use ctlmgr_model::{DiskTracing, Millis, Mode, PairPenalty, Pressure, Reason, Settings};
use ctlmgr_policy::gate::{Admission, Ground, Ticket, Traits};
use ctlmgr_sense::{Appearance, Containers, Look, Sensor, Started};
use ctlmgr_store::Profiles;
use tokio::sync::{mpsc, watch};

use crate::control::Reply;
use late::Order;
use learned::Learned;
use running::Running;
use sight::Sight;
use starting::Member;
use waiting::{Entry, Known, Terms, find, millis};

/// A question to the gate, with the place for its answer.
#[derive(Debug)]
pub(crate) enum Question {
    Start(StartRequest, Reply<StartAnswer>),
    /// A start has come to nothing.
    GiveUp(FailedStart, Reply<bool>),
    Queue(Reply<Queue>),
    Change(QueueChange, Reply<Queue>),
    Profiles(Reply<Vec<KeyedProfile>>),
    Containers(Reply<Vec<KnownContainer>>),
    Penalties(Reply<Vec<PairPenalty>>),
    Keep(Vec<KeyedProfile>, Reply<Vec<KeyedProfile>>),
    Forget(Forget, Reply<Vec<KeyedProfile>>),
}

/// While somebody waits or starts, the gate moves this often.
const STEP: Duration = Duration::from_millis(250);

/// What the gate is made of.
pub(crate) struct Parts {
    pub settings: watch::Receiver<Settings>,
    pub containers: watch::Receiver<Containers>,
    pub sensor: Arc<Sensor>,
    /// Where profiles are kept; without it they are learned anew after each start of the daemon.
    pub store: Option<Profiles>,
    pub questions: mpsc::Receiver<Question>,
    /// Containers whose cgroups appear, while freezing is wanted.
    pub appeared: mpsc::UnboundedReceiver<Appearance>,
    /// Whoever freezes those that nobody asked about.
    pub orders: mpsc::UnboundedSender<Order>,
}

/// Runs the gate until nobody can ask any more; returns what shows the queue.
pub(crate) fn open(parts: Parts) -> watch::Receiver<Queue> {
    let (publish, view) = watch::channel(Queue::default());
    tokio::spawn(Gate::new(parts, publish).run());
    view
}

/// What the gate listens to.
struct Sources {
    settings: watch::Receiver<Settings>,
    containers: watch::Receiver<Containers>,
    questions: mpsc::Receiver<Question>,
    appeared: mpsc::UnboundedReceiver<Appearance>,
}

struct Gate {
    settings: Arc<Settings>,
    containers: Arc<Containers>,
    sources: Sources,
    sight: Sight,
    learned: Learned,
    orders: mpsc::UnboundedSender<Order>,
    publish: watch::Sender<Queue>,
    started: Instant,
    waiting: Vec<Entry>,
    starting: Vec<Member>,
    running: Running,
    /// Whose starts were over of late, and when.
    over: VecDeque<(String, Instant)>,
    /// When the last of those that started was over.
    emptied_at: Option<Instant>,
    ground: Ground,
    is_held: bool,
    last_ticket: u64,
    batch: u64,
    counters: StartCounters,
    /// Starts that dockerd has told of, by id.
    seen: BTreeMap<String, Started>,
    /// Whose cgroups appeared before dockerd told of the start, and when.
    appeared: BTreeMap<String, Instant>,
    /// Who was let go, by id, has not started for long, and may still: a restart stops first.
    excused: BTreeMap<String, Instant>,
}

fn tracing_wanted(settings: &Settings) -> DiskTracing {
    match settings.starts.mode {
        Mode::Off => DiskTracing::Off,
        Mode::Observe | Mode::Act => settings.starts.trace,
    }
}

impl Gate {
    fn new(parts: Parts, publish: watch::Sender<Queue>) -> Gate {
        let Parts { mut settings, mut containers, sensor, store, questions, appeared, orders } =
            parts;
        let now = Instant::now();
        let settings_now = Arc::new(settings.borrow_and_update().clone());
        let containers_now = Arc::new(containers.borrow_and_update().clone());
        let mut sight = Sight::new(sensor);
        sight.want_tracing(tracing_wanted(&settings_now));
        Gate {
            settings: settings_now,
            containers: containers_now,
            sources: Sources { settings, containers, questions, appeared },
            sight,
            learned: Learned::new(store),
            orders,
            publish,
            started: now,
            waiting: Vec::new(),
            starting: Vec::new(),
            running: Running::new(now),
            over: VecDeque::new(),
            emptied_at: None,
            ground: Ground::default(),
            is_held: false,
            last_ticket: 0,
            batch: 0,
            counters: StartCounters::default(),
            seen: BTreeMap::new(),
            appeared: BTreeMap::new(),
            excused: BTreeMap::new(),
        }
    }

    async fn run(mut self) {
        loop {
            let is_busy =
                !self.waiting.is_empty() || !self.starting.is_empty() || self.sight.is_busy();
            let pause = if is_busy { STEP } else { self.rest().max(STEP) };
            let Sources { settings, containers, questions, appeared } = &mut self.sources;
            let (mut question, mut new) = (None, None);
            // What wakes counts as seen, so what it is has to be remembered.
            let (has_settings, has_containers) = tokio::select! {
                asked = questions.recv() => match asked {
                    Some(asked) => {
                        question = Some(asked);
                        (false, false)
                    }
                    None => return,
                },
                Ok(()) = settings.changed() => (true, false),
                Ok(()) = containers.changed() => (false, true),
                Some(appearance) = appeared.recv() => {
                    new = Some(appearance);
                    (false, false)
                }
                () = tokio::time::sleep(pause) => (false, false),
            };
            self.note_changes(has_settings, has_containers);
            new.into_iter().for_each(|new| self.note_appearance(&new));
            question.into_iter().for_each(|first| self.hear_all(first));
            self.take_look().await;
            self.move_on();
        }
    }

    /// Takes what is new; where a sender is gone, the daemon is about to go too.
    fn note_changes(&mut self, has_settings: bool, has_containers: bool) {
        if has_settings || self.sources.settings.has_changed().unwrap_or(false) {
            self.settings = Arc::new(self.sources.settings.borrow_and_update().clone());
            self.sight.want_tracing(tracing_wanted(&self.settings));
            // Whoever waits already is not held by what was said before.
            self.introduce(|_| true);
        }
        if has_containers || self.sources.containers.has_changed().unwrap_or(false) {
            self.containers = Arc::new(self.sources.containers.borrow_and_update().clone());
            self.note_starts();
        }
    }

    /// Takes what a look has brought, and takes the next one where it is time.
    async fn take_look(&mut self) {
        let now = Instant::now();
        self.sight.tracing.note().await;
        if let Some(look) = self.sight.take().await {
            let is_of_all = self.running.end();
            // What could not be read is unknown, and nobody is absent from it.
            if let Some(look) = &look {
                self.follow(look, now);
                if is_of_all {
                    self.learn_running(look, now);
                }
            }
            let look = look.unwrap_or_default();
            let pct = |p: Option<Pressure>| p.map(|p| p.full.avg10_pct);
            self.ground = Ground {
                io_full_pct: pct(look.io_pressure),
                // Others cause no more of it than all do now.
                io_full_before_pct: match (self.ground.io_full_before_pct, pct(look.io_pressure)) {
                    (Some(before), Some(now)) => Some(before.min(now)),
                    (before, _) => before,
                },
                memory_full_pct: pct(look.memory_pressure),
                cpu_milli: look.cpus.map(|n| n * 1000),
                cache: look.available,
            };
        }
        let is_due = self.rest().is_zero();
        if !self.starting.is_empty() || !self.waiting.is_empty() || is_due {
            let starting = self.starting.iter().filter_map(|m| m.id().map(str::to_owned));
            let running = self.runners().filter(|_| is_due).map(|f| f.id.clone());
            let ids = starting.chain(running).collect();
            if self.sight.look(now, ids) && is_due {
                self.running.begin(now);
            }
        }
    }

    fn follow(&mut self, look: &Look, now: Instant) {
        let all: Vec<Traits> = self.starting.iter().map(Member::traits).collect();
        // Who has begun since may have been seen as it was before.
        let looked_at = self.sight.looked_at();
        let begun = |(_, m): &(usize, &mut Member)| m.since <= looked_at;
        for (index, member) in self.starting.iter_mut().enumerate().filter(begun) {
            let beside = [&all[..index], &all[index + 1..]].concat();
            member.follow(look, &beside, now);
        }
    }

    /// Who is over leaves, who may start is let go, everybody who wants to know is told.
    fn move_on(&mut self) {
        let now = Instant::now();
        // One of that name may be another by now.
        let containers = self.containers.clone();
        let is_there = |known: &Known| containers.by_id.contains_key(&known.id);
        let is_strange = |k: &Known| k.id.is_empty() || k.is_told && !is_there(k);
        self.introduce(|known| known.as_ref().is_none_or(is_strange));
        self.settle(now);
        let before = self.waiting.len();
        self.waiting.retain(|e| !e.is_forgotten(now));
        self.counters.abandoned += (before - self.waiting.len()) as u64;
        let admissions = self.decide(now);
        let is_acting = self.settings.starts.mode == Mode::Act;
        for Admission { ticket, may_start, reason, behind } in admissions {
            let Some(entry) = self.waiting.iter_mut().find(|e| e.ticket == ticket) else {
                continue;
            };
            match (may_start, is_acting) {
                (true, _) => self.let_go(ticket, &reason),
                (false, false) => {
                    self.let_go(ticket, &format!("only observing; would wait: {reason}"));
                }
                (false, true) => {
                    if entry.is_late && !std::mem::replace(&mut entry.is_frozen, true) {
                        let order = Order::Freeze(entry.asked.clone(), Reason(reason.clone()));
                        // The hand is gone only when the daemon is.
                        let _ = self.orders.send(order);
                    }
                    (entry.reason, entry.behind) = (reason, behind);
                }
            }
        }
        let with = Terms { settings: &self.settings, batch: self.batch, now };
        self.waiting.iter_mut().for_each(|e| e.answer_in_time(with));
        self.publish.send_if_modified(|queue| {
            let view = self.view();
            let is_changed = *queue != view;
            *queue = view;
            is_changed
        });
    }

    /// Looks those up of whom this is known so far; what is known of others stays.
    fn introduce(&mut self, is_meant: impl Fn(&Option<Known>) -> bool) {
        let known = |asked: &str| match find(&self.containers, asked) {
            Some(facts) => Some(Known::of(facts, &self.settings, &self.learned)),
            None => Known::remembered(asked, &self.settings, &self.learned),
        };
        for entry in self.waiting.iter_mut().filter(|e| is_meant(&e.known)) {
            let described = || entry.described(&self.settings, &self.learned);
            entry.known = known(&entry.asked).or_else(described).or_else(|| entry.known.take());
        }
        let is_strange = |m: &&mut Member| m.known.as_ref().is_none_or(|k| k.id.is_empty());
        for member in self.starting.iter_mut().filter(is_strange) {
            member.known = known(&member.asked).or_else(|| member.known.take());
        }
    }

    fn let_go(&mut self, ticket: Ticket, reason: &str) {
        let now = Instant::now();
        let Some(entry) = self.waiting.iter().find(|e| e.ticket == ticket) else { return };
        let waited = millis(now.duration_since(entry.since));
        let is_new = self.passes(entry).is_none();
        let mut member =
            Member::new(entry.asked.clone(), entry.known.clone(), &self.containers, now);
        // The wrapper asks when the cgroup is about to be made.
        if entry.is_late || entry.source == "runc" {
            member.begin_soon(&self.containers, now);
        }
        let is_told = |id: &str| !self.appeared.contains_key(id) && self.containers.is_up(id);
        if entry.is_late && is_told(&entry.asked) {
            member.note_start(&self.containers);
        }
        let (name, source) = (entry.name().to_owned(), entry.source.clone());
        let longest = entry.longest(&self.settings);
        let is_overdue = entry.known.is_some() && longest > Millis(0) && waited >= longest.0;
        if is_new && entry.is_awaited() {
            self.join(member, reason);
        }
        if !self.finish(ticket, StartDecision::Start, reason) {
            return;
        }
        self.counters.admitted += 1;
        self.counters.waited += u64::from(waited >= millis(STEP) * 2);
        self.counters.overdue += u64::from(is_overdue);
        info!(
            container = name,
            source,
            waited_ms = waited,
            batch = self.batch,
            reason,
            "may start"
        );
    }

    /// Answers for the last time; `false` if nobody was there to hear it.
    fn finish(&mut self, ticket: Ticket, decision: StartDecision, reason: &str) -> bool {
        let Some(at) = self.waiting.iter().position(|e| e.ticket == ticket) else { return false };
        let mut entry = self.waiting.remove(at);
        if entry.is_frozen {
            let facts = self.containers.by_id.get(&entry.asked);
            let is_paused = facts.is_some_and(|f| f.is_paused);
            let _ = self.orders.send(Order::Thaw { id: entry.asked.clone(), is_paused });
        }
        reason.clone_into(&mut entry.reason);
        let now = Instant::now();
        entry.answer(decision, Terms { settings: &self.settings, batch: self.batch, now })
    }
}

#[cfg(test)]
mod tests;
