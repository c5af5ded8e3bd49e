//! Waiting: for what part of its time a task of a workload waits for memory.
//!
//! # Problem
//! What the owner feels is how long the one who serves a request waits. The kernel counts for a cgroup
//! (PSI) the time in which *some* task waits, and that in which *all* that are not idle do. Of many tasks
//! some one waits nearly always: with eight threads, each of which waits for half of its time, `some` is
//! 99.6 %, with four 94 %. So `some` tells how many there are rather than how each fares.
//!
//! # Approach
//! Tasks that wait independently of each other, each for the part f of its time, make some = 1 − (1 − f)ⁿ
//! and full = fⁿ. From both together follows f, without n: ln(1 − some) / ln(full) = ln(1 − f) / ln(f).
//!
//! How many there are then follows, too, from some = 1 − (1 − f)ⁿ, and with it what all together waited.
//!
//! # Algorithm
//! The left side is taken within [`LEAST`]–1 − [`LEAST`]; the right one falls from infinity at f = 1 … to
//! zero at f = 0 and is solved by bisection.
//!
//! # Properties
//! Between full and some; for tasks that are independent it is f, however many there are; one task waits
//! for as long as some does; it rises with both. All together wait n · f, no less than some does.

/// Less than this part of the time, a microsecond in a second, the kernel does not count.
const LEAST: f64 = 1e-6;
/// Halvings of the interval: to a part in a billion.
const HALVINGS: u32 = 30;

/// How much of its time a workload waited.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Waiting {
    /// The part of its time, 0–1, that each task waited.
    pub each: f64,
    /// The parts of all tasks together: above 1 if there are many.
    pub all: f64,
}

impl Waiting {
    /// If some one waits for the part `some` of the time, and all that are not idle for the part `full`.
    pub(crate) fn new(some: f64, full: f64) -> Waiting {
        let each = of_each(some, full);
        let some = some.clamp(0.0, 1.0 - LEAST);
        let tasks =
            if each < LEAST { 1.0 } else { (-some).ln_1p() / (-each.min(1.0 - LEAST)).ln_1p() };
        Waiting { each, all: each * tasks.max(1.0) }
    }

    /// Only this part of it.
    pub(crate) fn scaled(self, part: f64) -> Waiting {
        Waiting { each: self.each * part, all: self.all * part }
    }
}

/// The part of its time, 0–1, that each task waits, if some one waits for the part `some` of the time, and all
/// that are not idle for the part `full`.
fn of_each(some: f64, full: f64) -> f64 {
    if some < LEAST {
        return some.max(0.0);
    }
    let some = some.min(1.0 - LEAST);
    let full = full.clamp(LEAST, some);
    let wanted = (1.0 - some).ln() / full.ln();
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle: f64 = f64::midpoint(low, high);
        if (1.0 - middle).ln() / middle.ln() < wanted { low = middle } else { high = middle }
    }
    f64::midpoint(low, high).clamp(full.min(some), some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_what_each_waits_however_many_they_are(each in 0.05f64..0.9, tasks in 1i32..9) {
            let (some, full) = (1.0 - (1.0 - each).powi(tasks), each.powi(tasks));
            prop_assume!(full > LEAST && some < 1.0 - LEAST);
            prop_assert!((of_each(some, full) - each).abs() < 1e-6);
            prop_assert!((Waiting::new(some, full).all - each * f64::from(tasks)).abs() < 1e-4);
        }

        #[test]
        fn it_lies_between_all_and_some_and_rises_with_both(
            some in 0.0f64..=1.0, part in 0.0f64..=1.0, more in 0.0f64..0.3
        ) {
            let full = some * part;
            let each = of_each(some, full);
            prop_assert!(each >= full.min(1.0 - LEAST) - 1e-9 && each <= some + 1e-9, "{each}");
            prop_assert!(of_each((some + more).min(1.0), full) >= each - 1e-6);
            prop_assert!(of_each(some, (full + more).min(some)) >= each - 1e-6);
            let waited = Waiting::new(some, full);
            prop_assert!(waited.all >= waited.each && waited.all + 1e-5 >= some, "{waited:?}");
        }
    }

    #[test]
    fn one_task_waits_for_as_long_as_some_does() {
        for part in [0.0, 0.00001, 0.1, 0.5, 0.9] {
            assert!((of_each(part, part) - part).abs() < 1e-6, "{part}");
        }
    }
}
