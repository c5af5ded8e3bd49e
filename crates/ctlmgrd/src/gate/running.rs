//! Containers that have started: looked at now and then, for their profiles.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ctlmgr_model::{ContainerFacts, Io, MemorySample, Millis, Mode};
use ctlmgr_sense::Look;

use super::Gate;
use super::waiting::{Known, millis};

/// While nothing happens and nobody runs the gate is woken by questions and by dockerd.
const REST: Duration = Duration::from_secs(3600);

/// The first look, to compare with, is taken this soon; …
const SOON: Duration = Duration::from_secs(5);
/// … the next one in the first of these, and each one after that in twice the time of the one before, up to
/// the second; but in the first again where a start is over.
const BETWEEN: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(320));
/// Two looks that lie closer together say little of a minute: the later one does not count.
const LEAST: Duration = Duration::from_secs(15);

/// What one that runs did between two looks, and what it has.
pub(super) struct Ordinary<'a> {
    pub io: Io,
    pub passed: Millis,
    pub memory: &'a MemorySample,
}

/// When those that run were looked at, and what they had done until then.
#[derive(Debug)]
pub(super) struct Running {
    last: BTreeMap<String, (Io, Instant)>,
    looked_at: Instant,
    between: Duration,
    is_looking: bool,
}

impl Running {
    pub fn new(now: Instant) -> Running {
        Running { last: BTreeMap::new(), looked_at: now, between: SOON, is_looking: false }
    }

    /// A start is over, and this is what was done until then, and when.
    pub fn note(&mut self, id: &str, done: Option<(Io, Instant)>) {
        self.between = self.between.min(BETWEEN.0);
        self.forget(id);
        self.last.extend(done.map(|done| (id.to_owned(), done)));
    }

    /// It starts: what it does until that is over is not what it does in normal running.
    pub fn forget(&mut self, id: &str) {
        self.last.remove(id);
    }

    /// Forgets those that are gone: jobs come and go without anybody being looked at.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.last.retain(|id, _| is_there(id));
    }

    /// In how long the next look is to be taken.
    pub fn due_in(&self, now: Instant) -> Duration {
        self.between.saturating_sub(now.duration_since(self.looked_at))
    }

    /// A look at all of them has begun.
    pub fn begin(&mut self, now: Instant) {
        (self.looked_at, self.is_looking) = (now, true);
        self.between = (self.between * 2).clamp(BETWEEN.0, BETWEEN.1);
    }

    /// A look has ended; whether it was one at all of them.
    pub fn end(&mut self) -> bool {
        std::mem::take(&mut self.is_looking)
    }

    /// What the look at all of them has brought, by id: of who `is_meant`, and was seen before.
    pub fn take<'a>(
        &mut self,
        look: &'a Look,
        is_meant: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<(&'a str, Ordinary<'a>)> {
        let before = std::mem::take(&mut self.last);
        let mut seen = Vec::new();
        for (id, memory) in look.memory.iter().filter(|(id, _)| is_meant(id)) {
            let Some(io) = look.io.get(id) else { continue };
            // Started again unseen, it counts anew.
            let is_same = |known: &Io| io.cpu_usec >= known.cpu_usec && io.moved() >= known.moved();
            let known = before.get(id).filter(|(known, _)| is_same(known));
            let passed = known.map_or(Duration::ZERO, |(_, at)| now.duration_since(*at));
            let stands = known.filter(|_| passed < LEAST);
            self.last.insert(id.clone(), stands.copied().unwrap_or((*io, now)));
            if let Some((known, _)) = known.filter(|_| passed >= LEAST) {
                let (io, passed) = (io.since(*known), Millis(millis(passed)));
                seen.push((id.as_str(), Ordinary { io, passed, memory }));
            }
        }
        seen
    }
}

impl Gate {
    pub(super) fn runners(&self) -> impl Iterator<Item = &ContainerFacts> {
        let is_watched = self.settings.starts.mode != Mode::Off;
        let is_up = |f: &&ContainerFacts| f.is_running && !f.is_paused;
        self.containers.by_id.values().filter(is_up).filter(move |_| is_watched)
    }

    /// How long nothing needs to be done while nobody wants to start.
    pub(super) fn rest(&self) -> Duration {
        match self.runners().next() {
            Some(_) => self.running.due_in(Instant::now()),
            None => REST,
        }
    }

    /// Learns from those that run, and neither start nor are held by the freezer until they may.
    pub(super) fn learn_running(&mut self, look: &Look, now: Instant) {
        let has_started = |id: &str| {
            self.starting.iter().all(|m| m.id() != Some(id))
                && self.waiting.iter().all(|e| !e.is_late || e.asked != id)
        };
        let seen = self.running.take(look, has_started, now);
        let known = |id: &str| self.containers.by_id.get(id).map(Known::key_of);
        let seen: Vec<_> = seen.into_iter().filter_map(|(id, o)| Some((known(id)?, o))).collect();
        self.learned.learn_running(seen.into_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::Bytes;

    fn look(mib: u64) -> Look {
        let io = Io { read: Bytes::mib(mib), reads: mib, ..Io::default() };
        let all = || ["web", "db"].into_iter().map(str::to_owned);
        Look {
            io: all().map(|id| (id, io)).collect(),
            memory: all().map(|id| (id, MemorySample::default())).collect(),
            ..Look::default()
        }
    }

    #[test]
    fn looks_are_taken_ever_less_often_until_somebody_begins_to_run() {
        let began = Instant::now();
        let mut running = Running::new(began);
        let mut now = began;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = running.due_in(now);
            pauses.push(pause.as_secs());
            now += pause;
            running.begin(now);
        }
        assert_eq!(pauses, [5, 20, 40, 80, 160, 320, 320, 320]);
        running.note("web", None);
        assert_eq!(running.due_in(now), BETWEEN.0);
    }

    #[test]
    fn only_what_was_done_between_two_looks_at_the_same_one_counts() {
        let began = Instant::now();
        let at = |secs| began + Duration::from_secs(secs);
        let mut running = Running::new(began);
        let take = |running: &mut Running, mib: u64, secs: u64, is_meant: fn(&str) -> bool| {
            let look = look(mib);
            let seen = running.take(&look, is_meant, at(secs));
            seen.iter().map(|(id, o)| ((*id).to_owned(), o.io.read, o.passed)).collect::<Vec<_>>()
        };
        assert_eq!(take(&mut running, 10, 20, |_| true), []);
        let seen = take(&mut running, 30, 60, |id| id == "web");
        assert_eq!(seen, [("web".to_owned(), Bytes::mib(20), Millis(40_000))]);
        // The other one has started meanwhile: what it did for that is not what it does in normal running.
        let seen = take(&mut running, 40, 100, |_| true);
        assert_eq!(seen, [("web".to_owned(), Bytes::mib(10), Millis(40_000))]);
        assert_eq!(take(&mut running, 5, 140, |_| true), [], "both began anew");
        assert_eq!(take(&mut running, 6, 141, |_| true), [], "too soon to say");
        let seen = take(&mut running, 9, 155, |_| true);
        assert_eq!(seen[0].1, Bytes::mib(4), "since the one before");
        // A start, and what is done after it.
        running.forget("web");
        running.note("db", Some((Io { read: Bytes::mib(19), ..Io::default() }, at(160))));
        let seen = take(&mut running, 29, 180, |_| true);
        assert_eq!(seen, [("db".to_owned(), Bytes::mib(10), Millis(20_000))]);
        running.note("job", Some((Io::default(), at(190))));
        running.keep(|id| id != "job");
        assert!(!running.last.contains_key("job") && running.last.contains_key("db"));
        // A look that has failed, or was at others, is none at all of them.
        running.begin(at(200));
        assert!(running.end() && !running.end());
    }
}
