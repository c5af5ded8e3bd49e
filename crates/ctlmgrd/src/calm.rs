//! While all is calm: how seldom the host is read, and what makes the next reading due.
//!
//! A reading opens a dozen files of every container. While nothing happens a glance does in its place:
//! how much memory is available, and which containers and units there are. Pressure, memory.events,
//! dockerd and requests wake the loop anyway.

use std::time::{Duration, Instant};

use ctlmgr_model::{Bytes, CgroupPath, HostSample, Plan, Rung};
use ctlmgr_sense::Glance;

/// After this time the host is read whatever a glance says.
const AT_LEAST: Duration = Duration::from_secs(60);
/// For so long after a request the host is read as if there were another.
const INTEREST: Duration = Duration::from_secs(30);
/// A change of memory.events waits for so long after the one before, twice as long each time, and so long at most.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// Nothing has moved for so long: it will not within the next seconds, or wakes the loop.
const STILL: Duration = Duration::from_secs(30);
/// A change of available memory by more than this part of all is worth a reading.
const NOTEWORTHY: u64 = 64;

/// When the host was last read, and why it should be again.
#[derive(Debug)]
pub(crate) struct Calm {
    read_at: Instant,
    asked_at: Option<Instant>,
    is_due: bool,
    /// Who was there at the last glance.
    groups: Option<Vec<CgroupPath>>,
    /// When a reading is, or was last, brought forward by memory.events, and how long the next change of them waits.
    heeded_at: Option<Instant>,
    patience: Duration,
    /// Since when nothing moves, and what was asked for and free then.
    still: Option<(Instant, Bytes, Bytes)>,
}

impl Calm {
    /// Nothing was read yet.
    pub fn new(now: Instant) -> Calm {
        Calm {
            read_at: now,
            asked_at: None,
            is_due: true,
            groups: None,
            heeded_at: None,
            patience: FIRST_PATIENCE,
            still: None,
        }
    }

    /// Something happened.
    pub fn note_due(&mut self) {
        self.is_due = true;
        self.still = None;
    }

    /// memory.events have changed: how long the next reading may wait. Those in a row are heeded less and less often.
    pub fn heed(&mut self, now: Instant) -> Duration {
        let last =
            self.heeded_at.filter(|at| now.saturating_duration_since(*at) < MOST_PATIENCE * 2);
        if last.is_none() {
            self.patience = FIRST_PATIENCE;
        }
        // One that is still to come is for this change, too.
        let due = last.map_or(now, |at| if at > now { at } else { now.max(at + self.patience) });
        if last != Some(due) {
            self.patience =
                if last.is_none() { self.patience } else { (self.patience * 2).min(MOST_PATIENCE) };
            self.heeded_at = Some(due);
        }
        due.saturating_duration_since(now)
    }

    /// Somebody wants to know.
    pub fn note_request(&mut self, now: Instant) {
        self.asked_at = Some(now);
    }

    /// Something was decided. Where memory is nearly short, and that is all, nothing need be read every second for it.
    pub fn note_plan(&mut self, now: Instant, plan: &Plan, host: &HostSample) {
        let (demand, free) = (plan.account.demand, host.mem_free);
        let most = Bytes(host.mem_total.0 / NOTEWORTHY);
        let is_still = |(_, asked, was_free): &(Instant, Bytes, Bytes)| {
            asked.abs_diff(demand) <= most && was_free.abs_diff(free) <= most
        };
        // To see what came of a probe a reading now and then is enough.
        let is_done = plan.steps.iter().any(|step| step.rung != Rung::Probe);
        let moves = plan.account.is_contended() || plan.is_swept || is_done;
        self.still = match moves {
            true => None,
            false => self.still.filter(is_still).or(Some((now, demand, free))),
        };
    }

    /// Whether nothing has moved for a while.
    pub fn is_still(&self, now: Instant) -> bool {
        self.still.is_some_and(|(since, _, _)| now.saturating_duration_since(since) >= STILL)
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

    /// Whether a glance differs from what was read and seen before. What could not be seen has to be
    /// read.
    pub fn is_changed(&mut self, read: Option<&HostSample>, glance: Option<Glance>) -> bool {
        let (Some(read), Some(glance)) = (read, glance) else { return true };
        let noteworthy = Bytes(read.mem_total.0 / NOTEWORTHY);
        let is_moved = glance.available.abs_diff(read.mem_available) > noteworthy;
        let before = self.groups.replace(glance.groups);
        is_moved || before.is_some_and(|before| Some(&before) != self.groups.as_ref())
    }
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

    #[test]
    fn events_that_come_all_the_time_bring_a_reading_forward_every_ten_seconds_at_most() {
        let start = Instant::now();
        let mut calm = Calm::new(start);
        // An event every 100 ms for five minutes.
        let due = |n: u64| {
            let at = start + Duration::from_millis(n * 100);
            (at + calm.heed(at)).duration_since(start).as_secs()
        };
        let mut readings: Vec<u64> = (0..3000).map(due).collect();
        readings.dedup();
        assert_eq!(readings[..6], [0, 1, 3, 7, 15, 25]);
        assert!(readings.windows(2).skip(4).all(|pair| pair[1] - pair[0] == 10), "{readings:?}");
        // After a rest the first one counts at once.
        assert!(calm.heed(start + Duration::from_secs(400)).is_zero());
    }

    #[test]
    fn a_host_that_is_nearly_full_and_stands_still_is_read_seldom_until_something_moves() {
        let start = Instant::now();
        let after = |secs| start + Duration::from_secs(secs);
        let mut calm = Calm::new(start);
        let mut plan: Plan = serde_json::from_str(
            r#"{"at": 1, "account": {"total": 1000000, "host": 0, "headroom": 0, "capacity": 1000000, "demand": 900000},
                "verdicts": [], "steps": [], "complaints": []}"#,
        )
        .unwrap();
        let free =
            |free| HostSample { mem_total: Bytes(1_000_000), mem_free: Bytes(free), ..host() };
        assert!(plan.is_tight());
        for second in 0..=30 {
            calm.note_plan(after(second), &plan, &free(50_000 + second * 100));
            assert_eq!(calm.is_still(after(second)), second == 30);
        }
        let step = |rung: &str| {
            serde_json::from_str(&format!(
                r#"{{"path": "a", "id": 7, "action": {{"reclaim": {{"amount": 1, "chunk": 1, "only_cache": true}}}},
                    "rung": "{rung}", "reason": "test"}}"#,
            ))
            .unwrap()
        };
        plan.steps = vec![step("probe")];
        calm.note_plan(after(31), &plan, &free(53_000));
        assert!(calm.is_still(after(31)), "a probe moves nothing");
        plan.steps = vec![step("reclaim")];
        calm.note_plan(after(32), &plan, &free(53_000));
        assert!(!calm.is_still(after(32)));
        plan.steps.clear();
        calm.note_plan(after(33), &plan, &free(53_000));
        calm.note_plan(after(40), &plan, &free(10_000));
        assert!(!calm.is_still(after(40)), "free memory moved");
        calm.note_plan(after(70), &plan, &free(10_000));
        assert!(calm.is_still(after(70)));
        calm.note_due();
        assert!(!calm.is_still(after(71)), "something happened");
        calm.note_plan(after(80), &plan, &free(10_000));
        plan.account.demand = Bytes(1_100_000);
        calm.note_plan(after(111), &plan, &free(10_000));
        assert!(!calm.is_still(after(200)), "contended");
    }

    fn host() -> HostSample {
        HostSample {
            mem_total: Bytes::mib(6400),
            mem_free: Bytes::mib(3000),
            watermark: Bytes::ZERO,
            listed_free: Bytes::ZERO,
            mem_available: Bytes::mib(3000),
            reclaimable_cache: Bytes::ZERO,
            stolen: None,
            swap_total: Bytes::ZERO,
            swap_free: Bytes::ZERO,
            zram: None,
            pressure: None,
            lru: None,
            io_pressure: None,
            cpu_pressure: None,
            cpus: None,
            lru_gen: None,
            has_reclaim: true,
        }
    }

    #[test]
    fn a_glance_sees_memory_that_moved_and_who_came_and_went() {
        let mut calm = Calm::new(Instant::now());
        let read = host();
        let glance = |mib, names: &[&str]| {
            let groups = names.iter().map(|n| CgroupPath::new(n)).collect();
            Some(Glance { available: Bytes::mib(mib), groups })
        };
        assert!(!calm.is_changed(Some(&read), glance(2950, &["a"])));
        assert!(calm.is_changed(Some(&read), glance(2890, &["a"])), "memory moved");
        assert!(calm.is_changed(Some(&read), glance(3000, &["a", "b"])), "one came");
        assert!(!calm.is_changed(Some(&read), glance(3000, &["a", "b"])));
        assert!(calm.is_changed(Some(&read), glance(3000, &["b"])), "one went");
        assert!(calm.is_changed(Some(&read), None) && calm.is_changed(None, None));
    }
}
