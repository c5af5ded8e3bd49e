//! Progress: how much of its work a workload still gets done.
//!
//! # Problem
//! What a workload loses for want of memory is more than what pressure (PSI) counts: under MGLRU what comes
//! back late counts for nothing, and where many faults are handled on few processors, or pages are
//! decompressed, most of the time goes into the kernel's own work and into waiting for a processor. Seen in the
//! guest: of its threads' time one waited for a third by pressure, and did a fifth of its work.
//!
//! # Approach
//! The processor time of a workload's own code (`user_usec` of cpu.stat) is in proportion to the work it
//! does, as long as what it is asked for stays the same. What it is while nothing is missing is its *usual*
//! one; what lacks of that while something is missing, and while pressure says that it waits for memory, is
//! work that it lost.
//!
//! What the kernel works for it beyond what it did for as much work while nothing was missing is the price of its faults, which others pay too where
//! processors are short.
//!
//! Who fills its set works at something else than it will do with it, and who comes while memory is short never shows what is usual
//! for it, nor does one whose own code hardly works. It loses by each second that it waits as much as the others do, and its faults keep processors busy for as long as theirs.
//!
//! # Algorithm
//! The usual rate is a mean that follows by half per [`FOLLOW`] while nothing is missing, and by half per
//! [`FORGET`] while something is: what was usual an hour ago says nothing. Below [`LEAST`] of a processor it
//! is noise. A look at which its set has grown by more than [`GROWTH`] says nothing of what is usual. Both it and waiting jump from second to second (the kernel counts it by ticks), so they are smoothed by half per
//! [`RECENT`] before one is held against the other. The part lost counts the more the more pressure alone is above
//! [`EVIDENT`]; one that is asked for less, and does not wait, loses nothing.
//!
//! # Properties
//! Never less than pressure says; with its usual rate no more than that; without evidence, or where nobody's usual
//! rate or counter is known, it is what pressure says; one whose own is not known never loses more beyond its waiting than the one that is known to lose most. Who makes the kernel work no more than usual
//! costs nobody anything. Of two that wait alike one whose usual rate is not known loses as much as the other. What it does while
//! its set grows by more than [`GROWTH`] changes nothing.

use ctlmgr_model::{Activity, Bytes, Millis};
use serde::{Deserialize, Serialize};

use crate::demand::{lifted, per_sec, toward};
use crate::heat::LEAST_MISSING;

/// How fast the usual rate follows while nothing is missing, and while something is.
const FOLLOW: Millis = Millis(15_000);
const FORGET: Millis = Millis(600_000);
/// How fast what it does now is followed.
const RECENT: Millis = Millis(5_000);
/// Less user time than this says nothing, in millionths of a processor: the kernel counts it by ticks.
const LEAST: u32 = 20_000;
/// Who waits for less than this part of its time by pressure may simply be asked for less; from twice as much
/// on what it lost counts in full.
const EVIDENT: f64 = 0.1;
/// Whose set has become larger than it was by more than this part of it at the last look fills it.
const GROWTH: f64 = 0.005;

/// What others lose beyond what they wait.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Common {
    /// For each second that they waited, in seconds.
    by_waited: f64,
    /// The most that any of them lost so, as part of its time: who is asked for less than usual looks as if it had lost that.
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
    /// User time that it usually gets, in millionths of a processor.
    usual_ppm: Option<u32>,
    /// The same of late.
    #[serde(default)]
    recent_ppm: Option<u32>,
    /// Part of its time, 0–1, that it waited of late.
    #[serde(default)]
    recent_waited: f64,
    /// Processor time while nothing was missing.
    #[serde(default)]
    calm: Option<CpuTime>,
    /// Time that the kernel works for it of late, in millionths of a processor.
    #[serde(default)]
    recent_system_ppm: Option<u32>,
}

/// Processor time of a workload, in millionths of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpuTime {
    /// Of its own code.
    pub user_ppm: u32,
    /// Of the kernel, for it.
    pub system_ppm: u32,
}

impl CpuTime {
    /// What was used between two looks.
    pub(crate) fn between(before: &Activity, now: &Activity, passed: Millis) -> Option<CpuTime> {
        // Who stands still is asked for nothing.
        if before.is_frozen || now.is_frozen {
            return None;
        }
        let system = |a: &Activity| Some(a.io.cpu_usec.saturating_sub(a.user_usec?));
        let rate = |before, now| u32::try_from(per_sec(before, now, passed)).ok();
        Some(CpuTime {
            user_ppm: rate(before.user_usec?, now.user_usec?)?,
            system_ppm: rate(system(before)?, system(now)?)?,
        })
    }

    fn toward(self, now: CpuTime, passed: Millis) -> CpuTime {
        let next = |from, to| follow(from, to, passed, FOLLOW).unwrap_or(to);
        CpuTime {
            user_ppm: next(self.user_ppm, now.user_ppm),
            system_ppm: next(self.system_ppm, now.system_ppm),
        }
    }
}

impl Progress {
    /// After `passed`, in which it had this much processor time, each task waited for the part `waited` of the
    /// time.
    pub(crate) fn next(
        self,
        passed: Millis,
        cpu: Option<CpuTime>,
        waited: Option<f64>,
        says: Says,
    ) -> Progress {
        if passed.0 == 0 {
            return self;
        }
        let Some(now) = cpu else {
            // Who stood still begins anew.
            let (recent_ppm, recent_system_ppm) = (None, None);
            return Progress { recent_ppm, recent_system_ppm, recent_waited: 0.0, ..self };
        };
        let usual_ppm = match self.usual_ppm {
            None => (says == Says::Usual).then_some(now.user_ppm),
            Some(usual) => match says {
                Says::Usual => follow(usual, now.user_ppm, passed, FOLLOW),
                Says::Filling => Some(usual),
                Says::Lacking => follow(usual, now.user_ppm, passed, FORGET),
            },
        };
        let recent = |before: Option<u32>, now| {
            before.map_or(Some(now), |old| follow(old, now, passed, RECENT))
        };
        let waited = waited.unwrap_or(self.recent_waited);
        let recent_waited = waited + (self.recent_waited - waited) * kept_of_recent(passed);
        Progress {
            usual_ppm,
            recent_ppm: recent(self.recent_ppm, now.user_ppm),
            recent_waited,
            // Faults do not become usual however long they last.
            calm: match says {
                Says::Usual => Some(self.calm.map_or(now, |old| old.toward(now, passed))),
                Says::Filling | Says::Lacking => self.calm,
            },
            recent_system_ppm: recent(self.recent_system_ppm, now.system_ppm),
        }
    }

    /// Processors that the kernel keeps busy for it beyond what is usual for what its own code does: with its faults,
    /// where something is missing; `None` if what is usual is not known.
    pub(crate) fn fault_cpus(self) -> Option<f64> {
        let (calm, (user_ppm, system_ppm)) =
            self.calm.zip(self.recent_ppm.zip(self.recent_system_ppm))?;
        // Who does half of its work makes the kernel work half as much for it, and twice as much for twice.
        let work = match calm.user_ppm {
            0..LEAST => 1.0,
            usual => f64::from(user_ppm) / f64::from(usual),
        };
        Some((f64::from(system_ppm) - f64::from(calm.system_ppm) * work).max(0.0) / 1e6)
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
        let usual = f64::from(self.usual_ppm.filter(|usual| *usual >= LEAST)?);
        let lost = 1.0 - f64::from(self.recent_ppm?) / usual;
        Some((lost - self.recent_waited).max(0.0))
    }

    /// How much what it lost counts, 0–1.
    fn evidence(self) -> f64 {
        ((self.recent_waited - EVIDENT) / EVIDENT).clamp(0.0, 1.0)
    }
}

/// Part of what was smoothed before that still counts.
#[expect(clippy::cast_precision_loss, reason = "milliseconds between readings are few")]
fn kept_of_recent(passed: Millis) -> f64 {
    (-(passed.0 as f64) / RECENT.0 as f64).exp2()
}

fn follow(from: u32, to: u32, passed: Millis, half_life: Millis) -> Option<u32> {
    let rate = |ppm: u32| Bytes(ppm.into());
    u32::try_from(toward(rate(from), rate(to), passed, half_life).0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user(user_ppm: u32) -> Option<CpuTime> {
        Some(CpuTime { user_ppm, system_ppm: 10_000 })
    }

    fn after(from: Progress, secs: u32, ppm: u32, waited: f64, is_missing: bool) -> Progress {
        let says = if is_missing { Says::Lacking } else { Says::Usual };
        let next = |p: Progress, _| p.next(Millis(1000), user(ppm), Some(waited), says);
        (0..secs).fold(from, next)
    }

    /// One that had this much of a processor for two minutes while nothing was missing.
    fn used_to(ppm: u32) -> Progress {
        after(Progress::default(), 120, ppm, 0.0, false)
    }

    #[test]
    fn what_lacks_of_the_usual_is_lost_if_it_waits() {
        let usual = used_to(400_000);
        assert!(
            (after(usual, 60, 80_000, 0.3, true).lost(0.3, Common::default()) - 0.79).abs() < 0.02
        );
        assert!(
            (after(usual, 60, 80_000, 0.05, true).lost(0.05, Common::default()) - 0.05).abs()
                < 1e-9,
            "asked for less"
        );
        assert!(
            (after(used_to(5000), 60, 0, 0.3, true).lost(0.3, Common::default()) - 0.3).abs()
                < 1e-9,
            "too little to say"
        );
    }

    /// As it was seen of a workload of four threads: the mean is 0.2, and every other second next to nothing.
    #[test]
    fn what_jumps_from_second_to_second_counts_by_its_mean() {
        let jump = |p: Progress, second: u32| {
            let (ppm, waited) =
                if second.is_multiple_of(2) { (30_000, 0.38) } else { (130_000, 0.02) };
            p.next(Millis(1000), user(ppm), Some(waited), Says::Lacking)
        };
        let jumped = (0..60).fold(used_to(400_000), jump);
        let steady = after(used_to(400_000), 60, 80_000, 0.2, true);
        assert!(
            (jumped.lost(0.2, Common::default()) - steady.lost(0.2, Common::default())).abs() < 0.1
        );
    }

    #[test]
    fn what_is_usual_is_learned_while_nothing_is_missing_and_forgotten_slowly() {
        assert_eq!(after(Progress::default(), 60, 100_000, 0.2, true).usual_ppm, None);
        let minute = after(used_to(400_000), 60, 100_000, 0.2, true);
        assert!(minute.lost(0.2, Common::default()) > 0.7);
        let hour = after(minute, 3600, 100_000, 0.2, true);
        assert!(hour.lost(0.2, Common::default()) < 0.25);
    }

    #[test]
    fn what_the_kernel_works_beyond_the_usual_is_the_price_of_faults() {
        let go_on = |p: Progress, user_ppm, system_ppm, waited, says| {
            let cpu = Some(CpuTime { user_ppm, system_ppm });
            (0..60).fold(p, |p: Progress, _| p.next(Millis(1000), cpu, Some(waited), says))
        };
        let faults = |p, system_ppm, says| go_on(p, 400_000, system_ppm, 0.01, says);
        let cpus = |p: Progress| p.fault_cpus().unwrap();
        let usual = faults(Progress::default(), 100_000, Says::Usual);
        assert_eq!(cpus(usual), 0.0);
        assert!((cpus(faults(usual, 600_000, Says::Lacking)) - 0.5).abs() < 0.05);
        assert_eq!(cpus(faults(usual, 50_000, Says::Lacking)), 0.0);
        let hour = (0..60).fold(usual, |p, _| faults(p, 600_000, Says::Lacking));
        assert!((cpus(hour) - 0.5).abs() < 0.05, "faults do not become usual");
        let asked = go_on(usual, 2_000_000, 500_000, 0.01, Says::Lacking);
        assert!(cpus(asked) < 0.01, "it is asked for five times as much");
        let thrashing = go_on(usual, 100_000, 100_000, 0.3, Says::Lacking);
        assert!((cpus(thrashing) - 0.075).abs() < 0.01, "a quarter of its work is done");
        let unknown = faults(Progress::default(), 600_000, Says::Lacking);
        assert_eq!(unknown.fault_cpus(), None, "what is usual is not known");
    }

    /// As it was seen of a hog that came while memory was short: it worked five times as much while it filled its set.
    #[test]
    fn what_one_does_while_it_fills_its_set_is_not_usual() {
        let fill = |p: Progress| {
            (0..6).fold(p, |p: Progress, _| {
                p.next(Millis(1000), user(100_000), Some(0.0), Says::Filling)
            })
        };
        let newcomer = fill(Progress::default());
        assert_eq!((newcomer.usual_ppm, newcomer.calm), (None, None));
        let known = used_to(20_000);
        assert_eq!((fill(known).usual_ppm, fill(known).calm), (known.usual_ppm, known.calm));
        let of = |missing, before, now| Says::of(missing, (Bytes::mib(before), Bytes::mib(now)));
        assert_eq!(of(0.0, 100, 101), Says::Filling);
        assert_eq!(of(0.0, 1000, 1004), Says::Usual);
        assert_eq!(of(0.0, 100, 50), Says::Usual);
        assert_eq!(of(0.05, 100, 110), Says::Lacking);
    }

    /// One that is asked for a fifth of its usual work, and waits a little, is no measure for one that waits much.
    #[test]
    fn who_is_asked_for_less_says_little_of_what_others_lose() {
        let asked_less = after(used_to(400_000), 60, 80_000, 0.12, true);
        let common = Progress::common([asked_less].into_iter());
        let newcomer = after(Progress::default(), 60, 100_000, 0.3, true);
        assert!(newcomer.lost(0.3, common) < 0.45, "{}", newcomer.lost(0.3, common));
    }

    proptest! {
        #[test]
        fn of_two_that_wait_alike_the_unknown_one_loses_as_much(
            now in 1u32..400_000, waited in 0.01f64..1.0, secs in 20u32..60
        ) {
            let at = |from| after(from, secs, now, waited, true);
            let (known, unknown) = (at(used_to(400_000)), at(Progress::default()));
            let common = Progress::common([known, unknown].into_iter());
            let (own, others) = (known.lost(waited, common), unknown.lost(waited, common));
            prop_assert!((own - others).abs() < 0.01, "{own} {others}");
        }

        #[test]
        fn never_less_than_pressure_says_and_never_more_without_a_lack(
            usual in 0u32..8_000_000, more in 0u32..8_000_000, now in 0u32..8_000_000,
            waited in 0.0f64..1.0, before in 0.0f64..1.0, secs in 1u32..30,
        ) {
            let at = |ppm, waited| after(used_to(usual), secs, ppm, waited, true);
            let lost = at(now, before).lost(waited, Common::default());
            prop_assert!(lost >= waited && lost <= 1.0);
            prop_assert_eq!(at(usual.saturating_add(more), before).lost(waited, Common::default()), waited);
            let little_more = at(now, (before + 0.001).min(1.0)).lost(waited, Common::default());
            prop_assert!((little_more - lost).abs() < 0.02, "no cliff: {} {}", lost, little_more);
            let silent = at(now, before).next(Millis(1000), None, Some(before), Says::Lacking);
            prop_assert_eq!(silent.lost(waited, Common::default()), waited);
            prop_assert_eq!(Progress::default().lost(waited, Common::default()), waited);
        }
    }
}
