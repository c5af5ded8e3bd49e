//! Lent: floors of units that make no use of them.
//!
//! # Problem
//! A floor is kept for a burst: dockerd is called, and answers from memory. But of what an idle unit has in memory
//! nothing tells what it will ever touch again. Where floors hold ([`crate::units`]) that is memory that nobody works with while
//! workloads fault: dockerd and containerd, which nobody called, kept 55 MiB of 1.3 GiB by their floors, where the kernel leaves them 10.
//!
//! # Approach
//! That of senpai (Weiner et al., TMO, §3.3): give in a little, and see whether it is missed. Who has missed nothing
//! for a while keeps less and less of its floor, so the kernel may take what is oldest of it; who misses some has all of it at once, as far as its share goes.
//!
//! # Algorithm
//! While memory is contended the floor holds in full for [`PAUSE`] after something was last missed, then by half less per [`FADE`]. Who misses
//! some soon after it was lent (within [`SOON`] times the pause) has been lent too early, and the pause is twice as long from then on, up to
//! [`LONGEST`]. What was lent while memory was contended stays so until it was not for [`REST`]: a host may be at the border of that.
//!
//! # Properties
//! All of the floor where there was no contention for [`REST`], and at the first look at which something is missed; never more of it than a look before as long as nothing is; of who is called
//! at any regular interval up to [`LONGEST`] nothing is lent any more after some calls, or a call comes long after it was lent.

use ctlmgr_model::Millis;
use serde::{Deserialize, Serialize};

use crate::demand::kept;
use crate::scene::REST;

/// A floor holds for so long, at first, after something was missed.
const PAUSE: Millis = Millis(2_000);
const LONGEST: Millis = Millis(600_000);
/// Half of what is left of it is lent after so long: an eighth is kept after eight seconds, as shares are to settle within ten.
const FADE: Millis = Millis(2_000);
/// What is missed after so many pauses was lent for long enough to be worth it.
const SOON: u64 = 8;

/// What is known of whether a unit makes use of its floor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lent {
    /// For how long nothing was missed while memory was contended.
    quiet: Millis,
    /// The pause, once it is not [`PAUSE`].
    pause: Option<Millis>,
}

impl Lent {
    /// After `passed`, in which pages were missed or were not, where memory was contended so long before.
    pub(crate) fn next(self, passed: Millis, is_missing: bool, contended: Option<Millis>) -> Lent {
        let Lent { quiet, pause } = self;
        let Some(ago) = contended.filter(|ago| *ago < REST) else {
            return Lent { quiet: Millis(0), pause };
        };
        if !is_missing {
            let more = if ago == Millis(0) { passed.0 } else { 0 };
            return Lent { quiet: Millis(quiet.0.saturating_add(more)), pause };
        }
        let was = self.pause();
        let is_early = quiet >= was && quiet.0 < was.0.saturating_mul(SOON);
        let longer = Millis(was.0.saturating_mul(2)).min(LONGEST);
        Lent { quiet: Millis(0), pause: if is_early { Some(longer) } else { pause } }
    }

    /// The part of its floor that is kept for it, 0–1.
    pub(crate) fn kept(self) -> f64 {
        kept(self.quiet.since(self.pause()), FADE)
    }

    fn pause(self) -> Millis {
        self.pause.unwrap_or(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Millis = Millis(1000);
    /// Memory is contended.
    const NOW: Option<Millis> = Some(Millis(0));

    fn quiet(from: Lent, secs: u64) -> Lent {
        (0..secs).fold(from, |lent, _| lent.next(SECOND, false, NOW))
    }

    #[test]
    fn who_misses_nothing_lends_its_floor_and_has_it_back_with_the_first_miss() {
        assert_eq!(quiet(Lent::default(), 2).kept(), 1.0);
        assert_eq!(quiet(Lent::default(), 4).kept(), 0.5);
        let lent = quiet(Lent::default(), 12);
        assert!(lent.kept() < 0.04, "{}", lent.kept());
        assert_eq!(lent.next(SECOND, true, NOW).kept(), 1.0);
        let lately = lent.next(SECOND, false, Some(SECOND));
        assert_eq!(lately, lent, "memory may be contended again soon");
        assert_eq!(lent.next(SECOND, false, Some(REST)).kept(), 1.0, "nobody needs it");
        assert_eq!(lent.next(SECOND, false, None).kept(), 1.0);
    }

    #[test]
    fn what_is_missed_long_after_was_not_lent_too_early() {
        let missed = quiet(Lent::default(), 30).next(SECOND, true, NOW);
        assert_eq!(missed.pause, None);
        let early = quiet(Lent::default(), 10).next(SECOND, true, NOW);
        assert_eq!(early.pause, Some(Millis(4_000)));
        assert_eq!(quiet(early, 4).kept(), 1.0);
    }

    proptest! {
        #[test]
        fn never_more_than_a_look_before_while_nothing_is_missed(
            calls in proptest::collection::vec(0u64..100, 0..10), secs in 1u64..100
        ) {
            let called = |lent, secs: &u64| quiet(lent, *secs).next(SECOND, true, NOW);
            let mut lent = calls.iter().fold(Lent::default(), called);
            prop_assert_eq!(lent.kept(), 1.0);
            for _ in 0..secs {
                let next = quiet(lent, 1);
                prop_assert!(next.kept() <= lent.kept() && next.kept() > 0.0);
                lent = next;
            }
        }

        /// A unit that is called at a regular interval, by a monitor say.
        #[test]
        fn who_is_called_regularly_is_lent_nothing_of_or_for_long(interval in 1u64..600) {
            let call = |lent: Lent| quiet(lent, interval - 1).next(SECOND, true, NOW);
            let lent = (0..12).fold(Lent::default(), |lent, _| call(lent));
            let before = quiet(lent, interval - 1);
            let is_long = before.quiet.0 >= lent.pause().0 * SOON;
            prop_assert!(before.kept() == 1.0 || is_long, "{before:?}");
        }
    }
}
