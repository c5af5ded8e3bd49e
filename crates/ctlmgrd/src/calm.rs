//! While all is calm: how seldom the host is read, and what makes the next reading due.
//!
//! A reading opens a dozen files of every container. While nothing happens a glance at one file, how
//! much memory is available, does in its place: pressure, memory.events, dockerd and requests wake
//! the loop anyway.

use std::time::{Duration, Instant};

use ctlmgr_model::{Bytes, HostSample};

/// After this time the host is read whatever a glance says.
const AT_LEAST: Duration = Duration::from_secs(60);
/// For so long after a request the host is read as if there were another.
const INTEREST: Duration = Duration::from_secs(30);
/// A change of available memory by more than this part of all is worth a reading.
const NOTEWORTHY: u64 = 64;

/// When the host was last read, and why it should be again.
#[derive(Debug)]
pub(crate) struct Calm {
    read_at: Instant,
    asked_at: Option<Instant>,
    is_due: bool,
}

impl Calm {
    /// Nothing was read yet.
    pub fn new(now: Instant) -> Calm {
        Calm { read_at: now, asked_at: None, is_due: true }
    }

    /// Something happened.
    pub fn note_due(&mut self) {
        self.is_due = true;
    }

    /// Somebody wants to know.
    pub fn note_request(&mut self, now: Instant) {
        self.asked_at = Some(now);
    }

    /// A reading begins.
    pub fn note_reading(&mut self, now: Instant) {
        (self.read_at, self.is_due) = (now, false);
    }

    /// Time since the last reading began.
    pub fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.read_at)
    }

    /// Whether a glance does.
    pub fn may_glance(&self, now: Instant) -> bool {
        let is_asked = self.asked_at.is_some_and(|at| now.duration_since(at) < INTEREST);
        !self.is_due && !is_asked && self.age(now) < AT_LEAST
    }
}

/// Whether a glance differs from what was read. What could not be seen has to be read.
pub(crate) fn is_changed(read: &HostSample, available: Option<Bytes>) -> bool {
    let noteworthy = Bytes(read.mem_total.0 / NOTEWORTHY);
    available.is_none_or(|now| now.abs_diff(read.mem_available) > noteworthy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_does_until_something_happens_or_time_passes() {
        let start = Instant::now();
        let mut calm = Calm::new(start);
        assert!(!calm.may_glance(start), "nothing was read yet");
        calm.note_reading(start);
        let after = |secs| start + Duration::from_secs(secs);
        assert!(calm.may_glance(after(10)));
        assert!(!calm.may_glance(after(60)));
        calm.note_due();
        assert!(!calm.may_glance(after(10)));
        calm.note_reading(after(11));
        calm.note_request(after(12));
        assert!(!calm.may_glance(after(20)));
        assert!(calm.may_glance(after(50)));
    }
}
