//! Containers that have started: looked at now and then, for their profiles.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ctlmgr_model::{Io, MemorySample, Millis};
use ctlmgr_sense::Look;

use super::waiting::millis;

/// After a start has ended a look is taken this soon, to compare with; …
const SOON: Duration = Duration::from_secs(5);
/// … the next one in the first of these, and each one after that in twice the time of the one before, up to
/// the second.
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

    /// Somebody has begun to run: of whom little is known yet.
    pub fn note(&mut self) {
        self.between = SOON;
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

    /// What the look at all of them has brought, by id: of who `is_meant`, and was seen before.
    pub fn take<'a>(
        &mut self,
        look: &'a Look,
        is_meant: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<(&'a str, Ordinary<'a>)> {
        if !std::mem::take(&mut self.is_looking) {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.last);
        let mut seen = Vec::new();
        for (id, io) in look.io.iter().filter(|(id, _)| is_meant(id)) {
            let is_same =
                // Started again meanwhile, it counts anew.
                |(known, _): &&(Io, Instant)| io.cpu_usec >= known.cpu_usec && io.moved() >= known.moved();
            let known = before.get(id).filter(is_same);
            let passed = known.map_or(Duration::ZERO, |(_, at)| now.duration_since(*at));
            let stands = known.filter(|_| passed < LEAST);
            self.last.insert(id.clone(), stands.copied().unwrap_or((*io, now)));
            if let Some(((known, _), memory)) =
                known.zip(look.memory.get(id)).filter(|_| passed >= LEAST)
            {
                let (io, passed) = (io.since(*known), Millis(millis(passed)));
                seen.push((id.as_str(), Ordinary { io, passed, memory }));
            }
        }
        seen
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
        running.note();
        assert_eq!(running.due_in(now), SOON);
    }

    #[test]
    fn only_what_was_done_between_two_looks_at_the_same_one_counts() {
        let began = Instant::now();
        let at = |secs| began + Duration::from_secs(secs);
        let mut running = Running::new(began);
        let mut take = |mib: u64, secs: u64, is_meant: fn(&str) -> bool| {
            running.begin(at(secs));
            let look = look(mib);
            let seen = running.take(&look, is_meant, at(secs));
            seen.iter().map(|(id, o)| ((*id).to_owned(), o.io.read, o.passed)).collect::<Vec<_>>()
        };
        assert_eq!(take(10, 20, |_| true), []);
        let seen = take(30, 60, |id| id == "web");
        assert_eq!(seen, [("web".to_owned(), Bytes::mib(20), Millis(40_000))]);
        // The other one has started meanwhile: what it did for that is not what it does in normal running.
        let seen = take(40, 100, |_| true);
        assert_eq!(seen, [("web".to_owned(), Bytes::mib(10), Millis(40_000))]);
        assert_eq!(take(5, 140, |_| true), [], "both began anew");
        assert_eq!(take(6, 141, |_| true), [], "too soon to say");
        assert_eq!(take(9, 155, |_| true)[0].1, Bytes::mib(4), "since the one before");
        // Looks at those that start are none of these.
        assert!(running.take(&look(50), |_| true, at(200)).is_empty());
    }
}
