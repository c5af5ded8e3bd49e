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
//! # Algorithm
//! The usual rate is a mean that follows by half per [`FOLLOW`] while nothing is missing, and by half per
//! [`FORGET`] while something is: what was usual an hour ago says nothing. Below [`LEAST`] of a processor it
//! is noise. The part lost counts the more the more pressure alone is above [`EVIDENT`]; one that is asked for
//! less, and does not wait, loses nothing.
//!
//! # Properties
//! Never less than pressure says; with its usual rate no more than that; without evidence, without a usual
//! rate, or without the counter it is what pressure says.

use ctlmgr_model::{Bytes, Millis};
use serde::{Deserialize, Serialize};

use crate::demand::toward;

/// How fast the usual rate follows while nothing is missing, and while something is.
const FOLLOW: Millis = Millis(15_000);
const FORGET: Millis = Millis(600_000);
/// Less user time than this says nothing, in millionths of a processor: the kernel counts it by ticks.
const LEAST: u32 = 20_000;
/// Who waits for less than this part of its time by pressure may simply be asked for less; from twice as much
/// on what it lost counts in full.
const EVIDENT: f64 = 0.1;

/// What is remembered of one workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// User time that it usually gets, in millionths of a processor.
    usual_ppm: Option<u32>,
}

impl Progress {
    /// After `passed`, in which its code had `user_ppm` of a processor, and something was missing or not.
    pub(crate) fn next(self, passed: Millis, user_ppm: Option<u32>, is_missing: bool) -> Progress {
        let Some(now) = user_ppm.filter(|_| passed.0 > 0) else { return self };
        let usual_ppm = match self.usual_ppm {
            // What it does while something is missing is not what it usually does.
            None => (!is_missing).then_some(now),
            Some(usual) => {
                let half_life = if is_missing { FORGET } else { FOLLOW };
                let rate = |ppm: u32| Bytes(ppm.into());
                u32::try_from(toward(rate(usual), rate(now), passed, half_life).0).ok()
            }
        };
        Progress { usual_ppm }
    }

    /// The part of its time, 0–1, that it lost, where pressure says that it waited for `waited` of it.
    pub(crate) fn lost(self, waited: f64, user_ppm: Option<u32>) -> f64 {
        let usual = self.usual_ppm.filter(|usual| *usual >= LEAST);
        let lost = usual.zip(user_ppm).map(|(usual, now)| 1.0 - f64::from(now) / f64::from(usual));
        let more = (lost.unwrap_or_default() - waited).max(0.0);
        waited + more * ((waited - EVIDENT) / EVIDENT).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One that had this much of a processor for two minutes while nothing was missing.
    fn used_to(ppm: u32) -> Progress {
        (0..120).fold(Progress::default(), |p, _| p.next(Millis(1000), Some(ppm), false))
    }

    #[test]
    fn what_lacks_of_the_usual_is_lost_if_it_waits() {
        let usual = used_to(400_000);
        assert!((usual.lost(0.3, Some(80_000)) - 0.8).abs() < 1e-3);
        assert!((usual.lost(0.05, Some(80_000)) - 0.05).abs() < 1e-9, "asked for less");
        assert!((used_to(5000).lost(0.3, Some(0)) - 0.3).abs() < 1e-9, "too little to say");
    }

    #[test]
    fn what_is_usual_is_learned_while_nothing_is_missing_and_forgotten_slowly() {
        let pressed = |p: Progress, secs: u32| {
            (0..secs).fold(p, |p, _| p.next(Millis(1000), Some(100_000), true))
        };
        assert_eq!(pressed(Progress::default(), 60), Progress::default());
        let minute = pressed(used_to(400_000), 60);
        assert!(minute.lost(0.2, Some(100_000)) > 0.72);
        let hour = pressed(minute, 3600);
        assert!(hour.lost(0.2, Some(100_000)) < 0.25);
    }

    proptest! {
        #[test]
        fn never_less_than_pressure_says_and_never_more_without_a_lack(
            usual in 0u32..8_000_000, more in 0u32..8_000_000, now in 0u32..8_000_000, waited in 0.0f64..1.0
        ) {
            let progress = used_to(usual);
            let lost = progress.lost(waited, Some(now));
            prop_assert!(lost >= waited && lost <= 1.0);
            prop_assert_eq!(progress.lost(waited, Some(usual.saturating_add(more))), waited);
            let little_more = progress.lost((waited + 0.001).min(1.0), Some(now));
            prop_assert!(little_more >= lost - 1e-9 && little_more < lost + 0.02, "no cliff: {lost} {little_more}");
            prop_assert_eq!(progress.lost(waited, None), waited);
            prop_assert_eq!(Progress::default().lost(waited, Some(now)), waited);
        }
    }
}
