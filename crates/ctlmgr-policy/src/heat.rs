//! Heat: how much a workload suffers for each part of its set that is not in memory.
//!
//! # Problem
//! How much a workload waits for memory says little of how much it would wait with a little more:
//! that depends on what it has now. A controller that only follows the waiting has to grope for
//! where it is equal, slowly, and what it finds depends on where it began.
//!
//! # Approach
//! Of a set that is touched evenly, a missing part m costs waiting in proportion: s/(1 − s) = a · m
//! with s the part of time stalled. The slope a is the *heat*. It is the workload's own, does
//! not change when its share does, and so is learned once and good for every share.
//!
//! # Terms
//! *Missing*: the part of demand that is not in memory. *Stalled*: the part of its time that each task
//! waited for what had been in memory ([`crate::waiting`]): not that in which some one did, which would make
//! a workload of many threads look hot. *Burden*: what others lost because its faults kept processors busy, as part of
//! everybody's time: who hardly waits for its many faults may still be who makes all wait. It goes by their number, so the larger of two
//! sets costs others more for the same part missing, and no more for a byte. *Exposure*: time that was
//! not stalled, times the part missing.
//!
//! # Algorithm
//! Heat is seconds stalled, and those of burden, by exposure, both sums fading by half per [`HALF_LIFE`]. What happens
//! while less than [`LEAST_MISSING`] is missing says nothing and does not count. Little exposure says
//! little: the heat of all together, or what part of it is usual for one of that size, is mixed in with the weight of [`PRIOR_SECS`]. Being held back by
//! a memory.high counts like any other waiting: not to count it was tried, and what was known of who
//! is held back for long then hung on when that began. Where even who waits most hardly waits
//! ([`QUIET`]) heats are noise and do not count; up to [`FELT`] they count more and more. Burden is kept apart, so that it
//! can be counted by the byte: times the usual set of all, over one's own.
//!
//! # Properties
//! A steady workload's heat does not depend on how much it is given, but for its burden, which the host has its part in; relative to all it lies between its
//! own and theirs; without exposure it is theirs; where nobody waits it does not count. By the byte burdens are as much in all, and
//! equal where they differ by the sizes of sets only.

use ctlmgr_model::Millis;
use serde::{Deserialize, Serialize};

/// How fast what was seen is forgotten.
const HALF_LIFE: Millis = Millis(30_000);
/// Less than this part missing explains no waiting.
pub(crate) const LEAST_MISSING: f64 = 0.02;
/// Where nobody stalls for more than this part of the time nobody suffers, and from the second on heats
/// count in full.
const QUIET: f64 = 0.01;
const FELT: f64 = 0.03;
/// Exposure, in seconds, that is believed as much as what is known of all.
const PRIOR_SECS: f64 = 0.3;

/// What was seen of one workload's waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Heat {
    /// Seconds stalled while something was missing; faded.
    stalled_secs: f64,
    /// Those that all lost by its faults meanwhile; faded.
    #[serde(default)]
    burden_secs: f64,
    /// Seconds not stalled, times the part missing; faded.
    exposed_secs: f64,
    /// Seconds in which something was missing; faded.
    #[serde(default)]
    seen_secs: f64,
}

/// That of several workloads, as if they were one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Common {
    heat: f64,
    /// How much heats count, 0–1: where nobody waits, their differences are noise.
    strength: f64,
}

impl Heat {
    /// After `passed`, in which `missing` was missing, the tasks stalled for the part `stalled`, and all lost the
    /// part `burden` of their time by it.
    pub(crate) fn next(
        self,
        passed: Millis,
        missing: f64,
        stalled: Option<f64>,
        burden: f64,
    ) -> Heat {
        let keep = (-secs(passed) / secs(HALF_LIFE)).exp2();
        let faded = Heat {
            stalled_secs: self.stalled_secs * keep,
            burden_secs: self.burden_secs * keep,
            exposed_secs: self.exposed_secs * keep,
            seen_secs: self.seen_secs * keep,
        };
        match stalled {
            Some(part) if missing >= LEAST_MISSING => Heat {
                stalled_secs: faded.stalled_secs + part * secs(passed),
                burden_secs: faded.burden_secs + burden * secs(passed),
                exposed_secs: faded.exposed_secs + (1.0 - part) * missing * secs(passed),
                seen_secs: faded.seen_secs + secs(passed),
            },
            _ => faded,
        }
    }

    /// All of them as if they were one; `None` if nobody waited for what was missing.
    pub(crate) fn of_all(all: impl Iterator<Item = Heat>) -> Option<Common> {
        let (mut suffered, mut exposed, mut worst) = (0.0, 0.0, 0.0f64);
        for heat in all.filter(|h| h.seen_secs > 0.0) {
            suffered += heat.suffered_secs();
            exposed += heat.exposed_secs;
            worst = worst.max(heat.suffered_secs() / heat.seen_secs);
        }
        let strength = strength(worst).min(1.0);
        (exposed > 0.0 && strength > 0.0).then(|| Common { heat: suffered / exposed, strength })
    }

    /// The set with which those that have these sets would cost others as much together as they do, each as much by the byte as it does.
    pub(crate) fn usual_set(all: impl Iterator<Item = (Heat, f64)>) -> f64 {
        let of = |(heat, set): (Heat, f64)| (heat.burden_secs, heat.burden_secs / set);
        let (secs, by_byte) =
            all.map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if by_byte > 0.0 { secs / by_byte } else { 0.0 }
    }

    /// The same with so many times the burden.
    pub(crate) fn with_burden(self, times: f64) -> Heat {
        Heat { burden_secs: self.burden_secs * times, ..self }
    }

    fn suffered_secs(self) -> f64 {
        self.stalled_secs + self.burden_secs
    }

    /// What was seen of it: not stalled, times the part missing, in seconds.
    pub(crate) fn exposed_secs(self) -> f64 {
        self.exposed_secs
    }

    /// How well it is known, 0–1.
    pub(crate) fn known(self) -> f64 {
        self.exposed_secs / (self.exposed_secs + PRIOR_SECS)
    }

    /// As a multiple of that of all.
    pub(crate) fn relative(self, to_all: Common) -> f64 {
        self.beside(to_all, 1.0)
    }

    /// As a multiple of this part of that of all, which is what it is taken for where little is known of it.
    pub(crate) fn beside(self, all: Common, part: f64) -> f64 {
        if self == Heat::default() {
            return 1.0;
        }
        let usual = all.heat * part;
        let own = (self.suffered_secs() + usual * PRIOR_SECS) / (self.exposed_secs + PRIOR_SECS);
        (own / usual).powf(all.strength)
    }
}

impl Common {
    /// The same where who waits most of them waited for this part of its time of late.
    pub(crate) fn of_late(self, waited: f64) -> Common {
        Common { strength: self.strength * strength(waited).clamp(0.0, 1.0), ..self }
    }
}

/// How much heats count where who waits most waits for this part of its time; negative where nobody suffers.
fn strength(worst: f64) -> f64 {
    (worst - QUIET) / (FELT - QUIET)
}

#[expect(clippy::cast_precision_loss, reason = "seconds between readings are few")]
fn secs(span: Millis) -> f64 {
    span.0 as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a set of this heat stalls with this part missing.
    fn stalled(heat: f64, missing: f64) -> f64 {
        heat * missing / (1.0 + heat * missing)
    }

    fn seen(heat: f64, missing: impl Iterator<Item = f64>) -> Heat {
        missing.fold(Heat::default(), |h, m| h.next(Millis(1000), m, Some(stalled(heat, m)), 0.0))
    }

    fn burdened(stalled: f64, burden: f64) -> Heat {
        (0..60).fold(Heat::default(), |h, _| h.next(Millis(1000), 0.5, Some(stalled), burden))
    }

    #[test]
    fn what_says_nothing_does_not_count() {
        let none = Heat::default();
        assert_eq!(none.next(Millis(1000), 0.0, Some(0.9), 0.5), none);
        assert_eq!(none.next(Millis(1000), 0.5, None, 0.5), none);
        assert_eq!(Heat::of_all([none].into_iter()), None);
        assert_eq!(none.relative(Common { heat: 3.0, strength: 1.0 }), 1.0);
    }

    #[test]
    fn where_nobody_waits_differences_are_noise() {
        let quiet = |stalled| {
            (0..60).fold(Heat::default(), |h, _| h.next(Millis(1000), 0.3, Some(stalled), 0.0))
        };
        assert_eq!(Heat::of_all([quiet(0.000_1), quiet(0.008)].into_iter()), None);
        let pair = [quiet(0.003), quiet(0.015)];
        let all = Heat::of_all(pair.into_iter()).unwrap();
        let apart = pair[1].relative(all) / pair[0].relative(all);
        assert!(apart > 1.1 && apart < 2.0, "a quarter of a factor of five: {apart}");
    }

    #[test]
    fn a_burden_adds_to_what_it_suffers_and_is_not_multiplied_by_it() {
        let heat = |part, burden| Heat::of_all([burdened(part, burden)].into_iter()).unwrap().heat;
        for part in [0.05, 0.5, 0.9] {
            let own = part / (1.0 - part) / 0.5;
            assert!((heat(part, 0.0) - own).abs() < 1e-9);
            assert!((heat(part, 0.1) / own - (part + 0.1) / part).abs() < 1e-9);
        }
    }

    proptest! {
        #[test]
        fn burdens_by_the_byte_are_as_much_in_all_and_equal_where_they_only_differ_by_size(
            list in proptest::collection::vec((0.001f64..0.3, 10.0f64..1000.0), 1..6)
        ) {
            let seen: Vec<_> = list.iter().map(|(burden, set)| (burdened(0.1, *burden), *set)).collect();
            let usual = Heat::usual_set(seen.iter().copied());
            let before: f64 = seen.iter().map(|(heat, _)| heat.burden_secs).sum();
            let after: f64 = seen.iter().map(|(heat, set)| heat.with_burden(usual / set).burden_secs).sum();
            prop_assert!((before / after - 1.0).abs() < 1e-9);
            let by_size: Vec<_> = list.iter().map(|(_, set)| (burdened(0.1, set / 1000.0), *set)).collect();
            let usual = Heat::usual_set(by_size.iter().copied());
            let levelled: Vec<_> = by_size.iter().map(|(heat, set)| heat.with_burden(usual / set).burden_secs).collect();
            prop_assert!(levelled.iter().all(|secs| (secs / levelled[0] - 1.0).abs() < 1e-9), "{levelled:?}");
        }

        #[test]
        fn it_does_not_depend_on_what_is_given(
            heat in 0.7f64..20.0, parts in proptest::collection::vec(0.05f64..0.9, 20..60)
        ) {
            let of = |list: &[f64]| Heat::of_all([seen(heat, list.iter().copied())].into_iter()).unwrap().heat;
            prop_assert!((of(&parts) / heat - 1.0).abs() < 1e-9);
            prop_assert!((of(&parts[..10]) / heat - 1.0).abs() < 1e-9);
        }

        #[test]
        fn it_lies_between_its_own_and_that_of_all(
            heat in 0.1f64..20.0, all in 0.1f64..20.0, missing in 0.05f64..0.9, secs in 1usize..60,
            strength in 0.0f64..1.0
        ) {
            let common = Common { heat: all, strength };
            let relative = seen(heat, std::iter::repeat_n(missing, secs)).relative(common);
            let (low, high) = ((heat / all).min(1.0), (heat / all).max(1.0));
            prop_assert!(relative >= low * 0.999 && relative <= high * 1.001, "{relative}");
        }
    }
}
