//! What deciding depended on, kept for whoever asks for it again and again.
//!
//! Nothing is kept while nobody asks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ctlmgr_policy::replay::Event;
use serde::Serialize;

/// Who asked within this time still listens.
const PATIENCE: Duration = Duration::from_secs(15);
/// Events kept; whoever is slower than this begins anew.
const KEPT: usize = 2000;

/// An event with its place in the sequence.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Numbered {
    pub number: u64,
    pub event: Event,
}

/// Events since somebody began to listen.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    events: VecDeque<Numbered>,
    next: u64,
    asked_at: Option<Instant>,
}

impl Recorder {
    /// Keeps an event, if somebody listens.
    pub fn note(&mut self, event: impl FnOnce() -> Event) {
        if self.asked_at.is_none_or(|at| at.elapsed() > PATIENCE) {
            self.events.clear();
            self.asked_at = None;
            return;
        }
        self.events.push_back(Numbered { number: self.next, event: event() });
        self.next += 1;
        if self.events.len() > KEPT {
            self.events.pop_front();
        }
    }

    /// Events from number `from` on; from `start` on, if those are not there (any more).
    pub fn since(&mut self, from: Option<u64>, start: impl FnOnce() -> Event) -> Vec<Numbered> {
        let is_new = self.asked_at.replace(Instant::now()).is_none();
        let first = self.events.front().map_or(self.next, |n| n.number);
        let is_lost = is_new || from.is_none_or(|from| from < first || from > self.next);
        if is_lost {
            self.events.clear();
            self.note(start);
        }
        let wanted = if is_lost { 0 } else { from.unwrap_or(0) };
        self.events.iter().filter(|n| n.number >= wanted).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::Settings;
    use ctlmgr_policy::State;

    fn start() -> Event {
        let settings = Box::new(Settings::default());
        Event::Start { settings, state: Box::new(State::default()) }
    }

    #[test]
    fn nothing_is_kept_while_nobody_asks() {
        let mut recorder = Recorder::default();
        recorder.note(|| panic!("not even made"));
        assert_eq!(recorder.since(None, start).len(), 1);
        recorder.note(start);
        let more = recorder.since(Some(1), start);
        assert_eq!(more.iter().map(|n| n.number).collect::<Vec<_>>(), [1]);
        assert!(recorder.since(Some(2), start).is_empty());
    }

    #[test]
    fn who_was_too_slow_begins_anew() {
        let mut recorder = Recorder::default();
        recorder.since(None, start);
        for _ in 0..KEPT + 5 {
            recorder.note(start);
        }
        let events = recorder.since(Some(2), start);
        assert_eq!(events.len(), 1);
        assert!(matches!(events[0].event, Event::Start { .. }));
    }
}
