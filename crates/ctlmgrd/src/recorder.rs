//! What deciding depended on, kept for whoever asks for it again and again.
//!
//! Nothing is kept while nobody asks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ctlmgr_policy::replay::Event;
use serde::Serialize;

/// Who asked within this time still listens.
const PATIENCE: Duration = Duration::from_secs(15);
/// Lines kept, of which a reading has one for each cgroup and each verdict: some 20 MiB. Whoever is slower than this
/// begins anew.
const KEPT: usize = 20_000;

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
    /// Lines of all of them.
    lines: usize,
    next: u64,
    asked_at: Option<Instant>,
}

impl Recorder {
    /// Keeps an event, if somebody listens.
    pub fn note(&mut self, event: impl FnOnce() -> Event) {
        if self.asked_at.is_none_or(|at| at.elapsed() > PATIENCE) {
            self.clear();
            self.asked_at = None;
            return;
        }
        let event = event();
        self.lines += lines(&event);
        self.events.push_back(Numbered { number: self.next, event });
        self.next += 1;
        // However large the last one is, it is kept.
        while self.lines > KEPT && self.events.len() > 1 {
            let dropped = self.events.pop_front();
            self.lines -= dropped.map_or(0, |dropped| lines(&dropped.event));
        }
    }

    fn clear(&mut self) {
        self.events.clear();
        self.lines = 0;
    }

    /// Events from number `from` on; from `start` on, if those are not there (any more).
    pub fn since(&mut self, from: Option<u64>, start: impl FnOnce() -> Event) -> Vec<Numbered> {
        let is_new = self.asked_at.replace(Instant::now()).is_none();
        let first = self.events.front().map_or(self.next, |n| n.number);
        let is_lost = is_new || from.is_none_or(|from| from < first || from > self.next);
        if is_lost {
            self.clear();
            self.note(start);
        }
        let wanted = if is_lost { 0 } else { from.unwrap_or(0) };
        self.events.iter().filter(|n| n.number >= wanted).cloned().collect()
    }
}

/// About how many there are to write.
fn lines(event: &Event) -> usize {
    match event {
        Event::Decided { snapshot, plan } => {
            let groups =
                [snapshot.workloads.len(), snapshot.bystanders.len(), snapshot.ancestors.len()];
            1 + groups.iter().sum::<usize>() + plan.verdicts.len() + plan.steps.len()
        }
        Event::Start { .. } | Event::Learned { .. } => 1,
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
