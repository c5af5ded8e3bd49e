//! Progress: how much of its work a workload still gets done.
//!
//! # Problem
//! What a workload loses for want of memory is more than what memory pressure (PSI) counts: under MGLRU what comes
//! back late counts for nothing, and where many faults are handled on few processors, or pages are
//! decompressed, most of the time goes into the kernel's own work and into waiting for a processor. Seen in the
//! guest: of its threads' time one waited for a third by memory pressure, and did a fifth of its work.
//!
//! The time of a workload's own code (`user_usec` of cpu.stat) would tell, but not from second to second: the kernel counts it by
//! ticks and divides all processor time since the cgroup was made by that (`cputime_adjust`, kernel/sched/cputime.c). A hog that
//! did two thirds of its work was seen with 0.03 s of user time in six seconds, and before with no system time for sixteen.
//!
//! # Approach
//! The kernel counts exactly for how long tasks wait for a processor (`cpu.pressure`), and what processor time they have in all
//! (`usage_usec`). How long each waits for one while nothing is missing is its *usual* delay; what it waits
//! beyond that while something is missing, and while pressure says that it waits for memory, is work that it lost.
//!
//! Processor time beyond what it usually takes for the part of its work that it gets done is the price of its faults, which others pay too where
//! processors are short. Who is asked for more meanwhile is charged for that, too, as far as it has faults ([`crate::price`] bounds what one takes).
//!
//! Who fills its set works at something else than it will do with it, and who comes while memory is short never shows what is usual
//! for it. It loses by each second that it waits as much as the others do, and its faults keep processors busy for as long as theirs.
//!
//! # Algorithm
//! What is usual is a mean that follows by half per [`FOLLOW`] while nothing is missing; the delay also by half per
//! [`FORGET`] while something is, as what was usual an hour ago says nothing, but not processor time: faults do not become usual. A look at which its set has grown by more than
//! [`GROWTH`] says nothing of what is usual. What it waits jumps from second to second, so it is smoothed by half per
//! [`RECENT`]. The part lost counts the more the more memory pressure alone is above
//! [`EVIDENT`]: who waits for processors alone is not short of memory.
//!
//! # Properties
//! Never less than memory pressure says; with its usual delay no more than that; without evidence, before Linux 5.13, or where nobody's usual
//! delay is known, it is what memory pressure says; one whose own is not known never loses more beyond its waiting than the one that is known to lose most. Who takes no more
//! processor time than usual for the work that it gets done costs nobody anything. Of two that wait alike one whose usual delay is not known loses as much as the other. What it does while
//! its set grows by more than [`GROWTH`] changes nothing of what is usual.

use ctlmgr_model::{Activity, Bytes, Millis};
use serde::{Deserialize, Serialize};

use crate::demand::{lifted, per_sec, since};
use crate::fade::kept;
use crate::heat::LEAST_MISSING;
use crate::waiting::Waiting;

/// How fast what is usual follows while nothing is missing, and while something is.
const FOLLOW: Millis = Millis(15_000);
const FORGET: Millis = Millis(600_000);
/// How fast what it does now is followed.
const RECENT: Millis = Millis(5_000);
/// Who waits for less than this part of its time by memory pressure may lack nothing but processors; from twice as much
/// on what it lost counts in full.
const EVIDENT: f64 = 0.1;
/// Whose set has become larger than it was by more than this part of it at the last look fills it.
const GROWTH: f64 = 0.005;

/// What others lose beyond what they wait.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Common {
    /// For each second that they waited, in seconds.
    by_waited: f64,
    /// The most that any of them lost so, as part of its time.
    most: f64,
}

/// What a look is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    /// What is usual: all of its set is in memory.
    Usual,
    /// What it is like to fill its set.
    Filling,
    /// What it is like to lack a part of it.
    Lacking,
}

impl Says {
    /// Where the part `missing` is missing, and need rose from one look to the next.
    pub(crate) fn of(missing: f64, (before, now): (Bytes, Bytes)) -> Says {
        match missing {
            missing if missing >= LEAST_MISSING => Says::Lacking,
            _ if now > before + lifted(before, GROWTH) => Says::Filling,
            _ => Says::Usual,
        }
    }
}

/// What is remembered of one workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// What it did while nothing was missing.
    #[serde(default)]
    usual: Option<Running>,
    /// The same of late.
    #[serde(default)]
    recent: Option<Running>,
    /// Part of its time, 0–1, that it waited for memory of late.
    #[serde(default)]
    recent_waited: f64,
}

/// What a workload has of processors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Running {
    /// Processors that it keeps busy, its own code and the kernel's for it.
    pub cpus: f64,
    /// Part of its time, 0–1, that each task waits for one, where that is told.
    pub delayed: Option<f64>,
}

impl Running {
    /// What it had between two looks; `None` of who stood still.
    pub(crate) fn between(before: &Activity, now: &Activity, passed: Millis) -> Option<Running> {
        // Who stands still is asked for nothing.
        if before.is_frozen || now.is_frozen {
            return None;
        }
        let some = since(before, now, passed, |a| a.cpu_wait_usec);
        let full = since(before, now, passed, |a| a.cpu_wait_full_usec);
        let delayed = some.zip(full).map(|(some, full)| Waiting::new(some, full).each);
        let usec = per_sec(before.io.cpu_usec, now.io.cpu_usec, passed);
        Some(Running { cpus: seconds(usec), delayed })
    }

    fn toward(self, now: Running, passed: Millis, half_life: Millis) -> Running {
        let keep = kept(passed, half_life);
        let next = |from: f64, to: f64| to + (from - to) * keep;
        let delayed = self.delayed.zip(now.delayed).map(|(from, to)| next(from, to));
        Running { cpus: next(self.cpus, now.cpus), delayed: delayed.or(now.delayed) }
    }
}

impl Progress {
    /// Part of its time, 0–1, that it waited for memory of late.
    pub(crate) fn waited(self) -> f64 {
        self.recent_waited
    }

    /// After `passed`, in which it had this much of processors, each task waited for memory for the part `waited` of the
    /// time.
    pub(crate) fn next(
        self,
        passed: Millis,
        running: Option<Running>,
        waited: Option<f64>,
        says: Says,
    ) -> Progress {
        if passed.0 == 0 {
            return self;
        }
        let Some(now) = running else {
            // Who stood still begins anew.
            return Progress { recent: None, recent_waited: 0.0, ..self };
        };
        let usual = match (self.usual, says) {
            (None, Says::Usual) => Some(now),
            (None, _) => None,
            (Some(usual), Says::Usual) => Some(usual.toward(now, passed, FOLLOW)),
            (Some(usual), Says::Filling) => Some(usual),
            // Faults do not become usual however long they last.
            (Some(usual), Says::Lacking) => {
                Some(usual.toward(Running { cpus: usual.cpus, ..now }, passed, FORGET))
            }
        };
        let waited = waited.unwrap_or(self.recent_waited);
        Progress {
            usual,
            recent: Some(self.recent.map_or(now, |old| old.toward(now, passed, RECENT))),
            recent_waited: waited + (self.recent_waited - waited) * kept(passed, RECENT),
        }
    }

    /// Processors that it keeps busy beyond what is usual for as much work as it gets done: with its faults,
    /// where something is missing; `None` if what is usual is not known.
    pub(crate) fn fault_cpus(self) -> Option<f64> {
        let (usual, recent) = self.usual.zip(self.recent)?;
        let done = (1.0 - self.recent_waited - self.unseen().unwrap_or(0.0)).max(0.0);
        Some((recent.cpus - usual.cpus * done).max(0.0))
    }

    /// The part of its time, 0–1, that it lost, where pressure says that it waited for `waited` of it just now, and
    /// others lost `common` beyond what they waited.
    pub(crate) fn lost(self, waited: f64, common: Common) -> f64 {
        let counted = |unseen: f64| unseen * self.evidence();
        let of_others = || counted(self.recent_waited * common.by_waited).min(common.most);
        let more = self.unseen().map_or_else(of_others, counted);
        (waited + more).min(1.0)
    }

    /// What all of them lost beyond what they waited, as far as it is known of them.
    pub(crate) fn common(all: impl Iterator<Item = Progress>) -> Common {
        let (mut unseen, mut waited, mut most) = (0.0, 0.0, 0.0f64);
        for (progress, more) in all.filter_map(|p| Some(p).zip(p.unseen())) {
            let counted = more * progress.evidence();
            unseen += counted;
            waited += progress.recent_waited * progress.evidence();
            most = most.max(counted);
        }
        Common { by_waited: if waited > 0.0 { unseen / waited } else { 0.0 }, most }
    }

    /// The part of its time that it lost of late without waiting for memory; `None` if what is usual is not known.
    fn unseen(self) -> Option<f64> {
        let delayed = self.recent?.delayed? - self.usual?.delayed?;
        // Of the time that it did not wait for memory: a task that is back from a disk waits for both.
        Some(delayed.max(0.0) * (1.0 - self.recent_waited))
    }

    /// How much what it lost counts, 0–1.
    fn evidence(self) -> f64 {
        ((self.recent_waited - EVIDENT) / EVIDENT).clamp(0.0, 1.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no exact numbers")]
fn seconds(usec: u64) -> f64 {
    usec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CPUS: f64 = 0.4;

    fn after(from: Progress, secs: u32, delayed: f64, waited: f64, says: Says) -> Progress {
        let running = Some(Running { cpus: CPUS, delayed: Some(delayed) });
        (0..secs).fold(from, |p, _| p.next(Millis(1000), running, Some(waited), says))
    }

    fn lacking(from: Progress, secs: u32, delayed: f64, waited: f64) -> Progress {
        after(from, secs, delayed, waited, Says::Lacking)
    }

    /// One that waited like that for processors for two minutes while nothing was missing.
    fn used_to(delayed: f64) -> Progress {
        after(Progress::default(), 120, delayed, 0.0, Says::Usual)
    }

    fn alone(progress: Progress, waited: f64) -> f64 {
        progress.lost(waited, Common::default())
    }

    #[test]
    fn what_it_waits_for_processors_beyond_the_usual_is_lost_if_it_waits_for_memory() {
        let usual = used_to(0.1);
        let lost = alone(lacking(usual, 60, 0.6, 0.3), 0.3);
        assert!((lost - (0.3 + 0.5 * 0.7)).abs() < 0.05, "{lost}");
        let short_of_processors = alone(lacking(usual, 60, 0.6, 0.05), 0.05);
        assert!((short_of_processors - 0.05).abs() < 1e-9, "{short_of_processors}");
        let busy_anyway = alone(lacking(used_to(0.6), 60, 0.6, 0.3), 0.3);
        assert!((busy_anyway - 0.3).abs() < 1e-9, "{busy_anyway}");
    }

    #[test]
    fn what_jumps_from_second_to_second_counts_by_its_mean() {
        let jump = |p: Progress, second: u32| {
            let (delayed, waited) =
                if second.is_multiple_of(2) { (0.7, 0.38) } else { (0.3, 0.02) };
            lacking(p, 1, delayed, waited)
        };
        let jumped = (0..60).fold(used_to(0.1), jump);
        let steady = lacking(used_to(0.1), 60, 0.5, 0.2);
        assert!((alone(jumped, 0.2) - alone(steady, 0.2)).abs() < 0.1);
    }

    #[test]
    fn what_is_usual_is_learned_while_nothing_is_missing_and_forgotten_slowly() {
        assert_eq!(lacking(Progress::default(), 60, 0.6, 0.2).usual, None);
        let minute = lacking(used_to(0.1), 60, 0.6, 0.2);
        assert!(alone(minute, 0.2) > 0.5);
        let hour = lacking(minute, 3600, 0.6, 0.2);
        assert!(alone(hour, 0.2) < 0.25);
    }

    #[test]
    fn processor_time_beyond_the_usual_is_the_price_of_faults() {
        for delayed in [Some(0.0), None] {
            processor_time_is_the_price_of_faults(delayed);
        }
    }

    fn processor_time_is_the_price_of_faults(delayed: Option<f64>) {
        let go_on = |p: Progress, cpus, waited, says| {
            let running = Some(Running { cpus, delayed });
            (0..60).fold(p, |p: Progress, _| p.next(Millis(1000), running, Some(waited), says))
        };
        let cpus = |p: Progress| p.fault_cpus().unwrap();
        let usual = go_on(Progress::default(), 0.5, 0.0, Says::Usual);
        assert_eq!(cpus(usual), 0.0);
        assert!((cpus(go_on(usual, 1.0, 0.0, Says::Lacking)) - 0.5).abs() < 0.01);
        assert_eq!(cpus(go_on(usual, 0.4, 0.0, Says::Lacking)), 0.0, "it is asked for less");
        let hour = (0..60).fold(usual, |p, _| go_on(p, 1.0, 0.0, Says::Lacking));
        assert!((cpus(hour) - 0.5).abs() < 0.01, "faults do not become usual");
        let thrashing = go_on(usual, 0.5, 0.75, Says::Lacking);
        assert!((cpus(thrashing) - 0.375).abs() < 0.01, "a quarter of its work is done");
        let unknown = go_on(Progress::default(), 1.0, 0.0, Says::Lacking);
        assert_eq!(unknown.fault_cpus(), None, "what is usual is not known");
    }

    /// As it was seen of a hog that came while memory was short: it worked five times as much while it filled its set.
    #[test]
    fn what_one_does_while_it_fills_its_set_is_not_usual() {
        let fill = |p: Progress| after(p, 6, 0.5, 0.0, Says::Filling);
        assert_eq!(fill(Progress::default()).usual, None);
        let known = used_to(0.02);
        assert_eq!(fill(known).usual, known.usual);
        let of = |missing, before, now| Says::of(missing, (Bytes::mib(before), Bytes::mib(now)));
        assert_eq!(of(0.0, 100, 101), Says::Filling);
        assert_eq!(of(0.0, 1000, 1004), Says::Usual);
        assert_eq!(of(0.0, 100, 50), Says::Usual);
        assert_eq!(of(0.05, 100, 110), Says::Lacking);
    }

    /// As the kernel showed it: user time stood still for seconds, though two thirds of the work were done.
    #[test]
    fn how_processor_time_is_divided_does_not_matter() {
        let at = |second: u64, cpu_usec: u64| {
            let io = ctlmgr_model::Io { cpu_usec, ..Default::default() };
            // Four tasks, each of which waits for a quarter of its time.
            let cpu_wait_usec = Some(second * 683_594);
            let cpu_wait_full_usec = Some(second * 3_906);
            Activity { io, cpu_wait_usec, cpu_wait_full_usec, ..Activity::default() }
        };
        let between = |before, now| Running::between(&before, &now, Millis(1000));
        let running = between(at(1, 300_000), at(2, 800_000)).unwrap();
        assert!((running.cpus - 0.5).abs() < 1e-9);
        assert!((running.delayed.unwrap() - 0.25).abs() < 1e-3, "{running:?}");
        let untold = Activity { cpu_wait_full_usec: None, ..at(2, 800_000) };
        let untold = between(at(1, 300_000), untold).unwrap();
        assert_eq!(untold, Running { delayed: None, ..running }, "before Linux 5.13");
        let frozen = Activity { is_frozen: true, ..at(2, 800_000) };
        assert_eq!(between(at(1, 300_000), frozen), None);
    }

    /// One that waits for processors alone is no measure for one that waits much for memory.
    #[test]
    fn who_is_short_of_processors_says_little_of_what_others_lose() {
        let short_of_processors = lacking(used_to(0.0), 60, 0.8, 0.12);
        let common = Progress::common([short_of_processors].into_iter());
        let newcomer = lacking(Progress::default(), 60, 0.1, 0.3);
        assert!(newcomer.lost(0.3, common) < 0.5, "{}", newcomer.lost(0.3, common));
    }

    proptest! {
        #[test]
        fn of_two_that_wait_alike_the_unknown_one_loses_as_much(
            delayed in 0.0f64..1.0, waited in 0.01f64..1.0, secs in 20u32..60
        ) {
            let at = |from| lacking(from, secs, delayed, waited);
            let (known, unknown) = (at(used_to(0.0)), at(Progress::default()));
            let common = Progress::common([known, unknown].into_iter());
            let (own, others) = (known.lost(waited, common), unknown.lost(waited, common));
            prop_assert!((own - others).abs() < 0.01, "{own} {others}");
        }

        #[test]
        fn never_less_than_pressure_says_and_never_more_without_a_lack(
            usual in 0.0f64..1.0, less in 0.0f64..1.0, now in 0.0f64..1.0,
            waited in 0.0f64..1.0, before in 0.0f64..1.0, secs in 1u32..30,
        ) {
            let at = |delayed, waited| lacking(used_to(usual), secs, delayed, waited);
            let lost = alone(at(now, before), waited);
            prop_assert!(lost >= waited && lost <= 1.0);
            prop_assert_eq!(alone(at(usual * less, before), waited), waited);
            let little_more = alone(at(now, (before + 0.001).min(1.0)), waited);
            prop_assert!((little_more - lost).abs() < 0.02, "no cliff: {} {}", lost, little_more);
            let silent = at(now, before).next(Millis(1000), None, Some(before), Says::Lacking);
            prop_assert_eq!(alone(silent, waited), waited);
            prop_assert_eq!(alone(Progress::default(), waited), waited);
        }
    }
}
