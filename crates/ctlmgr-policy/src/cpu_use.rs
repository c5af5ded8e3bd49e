//! How many processors a workload needs, from how many it used.
//!
//! # Problem
//! A domain has few processors. A mean says nothing of bursts, and a maximum is whatever happened once.
//!
//! # Approach
//! A histogram over steps that grow by a fourth root of two, of which the 95th percentile is read. Old
//! samples fade: when there are more than a day's, all counts are halved.
//!
//! # Terms
//! *Peak*: what use stays below for 95 % of the samples.
//!
//! # Properties
//! The peak is at least the 95th percentile of what was seen and less than a fifth above it; it forgets.

use ctlmgr_model::CpuUse;

/// Upper end of the first step, in thousandths of a processor.
const FIRST: f64 = 10.0;
/// Steps to a doubling.
const PER_DOUBLING: f64 = 4.0;
/// The last step is above the processors of any machine.
const STEPS: usize = 80;
/// A day of samples every five seconds.
const MOST: u32 = 17_280;

/// Learns that so much was used.
pub fn learn(known: &mut CpuUse, milli: u64, unix: u64) {
    known.steps.resize(STEPS, 0);
    known.steps[step(milli)] += 1;
    if known.steps.iter().sum::<u32>() > MOST {
        known.steps.iter_mut().for_each(|count| *count /= 2);
    }
    known.samples = known.samples.saturating_add(1);
    known.learned_unix = unix;
}

/// What use stays below for 95 % of the time, in thousandths of a processor; 0 if nothing is known.
pub fn peak(known: &CpuUse) -> u64 {
    let all: u32 = known.steps.iter().sum();
    let mut above = 0;
    for (index, count) in known.steps.iter().enumerate().rev() {
        above += count;
        if above * 20 > all {
            return upper(index);
        }
    }
    0
}

#[expect(clippy::cast_precision_loss, reason = "a scale")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and STEPS")]
fn step(milli: u64) -> usize {
    let doublings = (milli.max(1) as f64 / FIRST).log2().max(0.0);
    ((doublings * PER_DOUBLING).ceil() as usize).min(STEPS - 1)
}

#[expect(clippy::cast_precision_loss, reason = "a scale")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of CPUs")]
fn upper(step: usize) -> u64 {
    (FIRST * 2.0_f64.powf(step as f64 / PER_DOUBLING)).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_peak_is_the_95th_percentile_or_a_little_more(uses in prop::collection::vec(10_u64..400_000, 20..300)) {
            let mut known = CpuUse::default();
            uses.iter().for_each(|milli| learn(&mut known, *milli, 7));
            let mut sorted = uses.clone();
            sorted.sort_unstable();
            // Not more than one in twenty is above it.
            let exact = sorted[sorted.len() - 1 - sorted.len() / 20];
            let peak = peak(&known);
            prop_assert!(peak >= exact && peak <= exact + exact / 5 + 1, "{peak} of {exact}");
        }
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut known = CpuUse::default();
        assert_eq!(peak(&known), 0);
        (0..MOST).for_each(|_| learn(&mut known, 8000, 1));
        assert!((8000..10_000).contains(&peak(&known)));
        (0..MOST * 5).for_each(|_| learn(&mut known, 100, 2));
        assert!((100..125).contains(&peak(&known)), "{}", peak(&known));
    }
}
