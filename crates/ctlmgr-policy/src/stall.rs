//! Stall: for how long a workload's tasks wait for memory, by its own pressure (PSI).

use ctlmgr_model::{Activity, Bytes, MemorySample, Millis, Pressure};
use serde::{Deserialize, Serialize};

use crate::demand::{Estimate, part_of, per_sec, since};
use crate::fade::toward;
use crate::waiting::Waiting;

/// How much of its time a workload's tasks wait for memory (its own PSI `some`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stall {
    total_usec: Option<u64>,
    /// The same of `full`.
    #[serde(default)]
    full_usec: Option<u64>,
    /// Smoothed, in millionths of the time; `None` until two readings are in.
    pub ppm: Option<u32>,
}

/// How fast the smoothed stall follows.
const STALL_HALF_LIFE: Millis = Millis(5_000);

impl Stall {
    pub(crate) fn next(self, pressure: Option<Pressure>, passed: Millis) -> Stall {
        let total_usec = pressure.map(|p| p.some.total_usec);
        let full_usec = pressure.map(|p| p.full.total_usec);
        let ppm = match self.since(pressure, passed) {
            _ if passed.0 == 0 => self.ppm,
            Some(own) => {
                let old = self.ppm.map_or(own, |p| Bytes(u64::from(p)));
                u32::try_from(toward(old, own, passed, STALL_HALF_LIFE).0).ok()
            }
            None => None,
        };
        Stall { total_usec, full_usec, ppm }
    }

    /// Since the last reading, in millionths of the time.
    fn since(self, pressure: Option<Pressure>, passed: Millis) -> Option<Bytes> {
        let now = pressure?.some.total_usec;
        // Microseconds per second are millionths.
        Some(Bytes(per_sec(self.total_usec?, now, passed)).min(Bytes(1_000_000)))
    }

    /// What its tasks waited since the last reading.
    pub(crate) fn waited(self, pressure: Option<Pressure>, passed: Millis) -> Option<Waiting> {
        let now = pressure?;
        let some = part_of_time(self.total_usec?, now.some.total_usec, passed);
        let full = self.full_usec.map(|before| part_of_time(before, now.full.total_usec, passed));
        Some(Waiting::new(some, full.unwrap_or(some)))
    }
}

/// Part of the time that passed, 0–1, between two totals in microseconds.
pub(crate) fn part_of_time(before: u64, now: u64, passed: Millis) -> f64 {
    part_of(per_sec(before, now, passed), 1_000_000)
}

/// Part of its time that each task waited for what had been in memory ([`crate::waiting`]). The kernel's memory pressure
/// counts waiting for pages of the working set only, and under MGLRU what comes back late is none of
/// it; so waiting for disks counts too, as far as what was read had been in memory, whichever is more. What neither
/// counts is in [`crate::toll`].
pub(crate) fn time_waited(
    last: &Estimate,
    memory: &MemorySample,
    seen: &Activity,
    passed: Millis,
) -> Option<Waiting> {
    if last.seen.is_frozen || seen.is_frozen {
        return None;
    }
    let own = last.stall.waited(memory.pressure, passed)?;
    let since = |of| since(&last.seen, seen, passed, of);
    let disk = since(|a| a.disk_wait_usec).map_or(Waiting::default(), |some| {
        let refaults = memory.refault_anon + memory.refault_file;
        let came_back = refaults.saturating_sub(last.refaults).saturating_mul(Bytes::PAGE.0);
        let read = seen.io.read - last.seen.io.read;
        let full = since(|a| a.disk_wait_full_usec).unwrap_or(some);
        Waiting::new(some, full).scaled(part_of(came_back, read.0))
    });
    Some(if disk.each > own.each { disk } else { own })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_is_the_smoothed_part_of_time() {
        let psi = |total_usec| {
            let line = ctlmgr_model::PressureLine { avg10_pct: 0.0, total_usec };
            Some(Pressure { some: line, full: line })
        };
        let first = Stall::default().next(psi(1_000_000), Millis(0));
        assert_eq!(first.ppm, None, "one reading says nothing");
        let second = first.next(psi(1_500_000), Millis(1000));
        assert_eq!(second.ppm, Some(500_000));
        let calm = second.next(psi(1_500_000), STALL_HALF_LIFE);
        assert_eq!(calm.ppm, Some(250_000));
        assert_eq!(calm.next(None, Millis(1000)).ppm, None);
    }
}
