//! Lent: floors of units that make no use of them.
//!
//! # Problem
//! A floor is kept for a burst: dockerd is called, and answers from memory. But of what an idle unit has in memory
//! nothing tells what it will ever touch again. Where floors hold ([`crate::units`]) that is memory that nobody works with while
//! workloads fault: dockerd and containerd, which nobody called, kept 55 MiB of 1.3 GiB by their floors, where the kernel leaves them 10.
//!
//! # Approach
//! That of senpai (Weiner et al., TMO, §3.3): give in a little, and see whether it is missed. Who has missed nothing
//! for a while keeps less and less of its floor, so the kernel may take what is oldest of it; who misses some has all of it at once, as far as its share goes,
//! and unless workloads suffer more for what they miss ([`crate::units`]).
//!
//! # Algorithm
//! While memory is contended the floor holds in full for [`PAUSE`] after something was last missed, then by half less per [`FADE`]. Who misses
//! some soon after it was lent (within [`SOON`] times the pause) has been lent too early, and the pause is twice as long from then on, up to
//! [`LONGEST`]. What was lent while memory was contended stays so until it was not for [`REST`]: a host may be at the border of that.
//!
//! What came back is kept beside the floor, by half less per [`USED`]: who is called needs more than a floor at once, and the kernel takes
//! of each in proportion to what it has beyond its protection, so half of what a small unit has just read goes again before it has answered.
//!
//! Of workloads it says who has missed something of late, of which nothing need be soft ([`crate::harden`]).
//!
//! # Properties
//! No more is kept beside a floor than came back. All of the floor where there was no contention for [`REST`], and at the first look at which something is missed; never more of it than a look before as long as nothing is; of who is called
//! at any regular interval up to [`LONGEST`] nothing is lent any more after some calls, or a call comes long after it was lent.

use ctlmgr_model::{Bytes, Millis};
use serde::{Deserialize, Serialize};

use crate::demand::lifted;
use crate::fade::kept;
use crate::scene::REST;

/// A floor holds for so long, at first, after something was missed.
const PAUSE: Millis = Millis(2_000);
const LONGEST: Millis = Millis(600_000);
/// Half of what is left of it is lent after so long: an eighth is kept after eight seconds, as shares are to settle within ten.
const FADE: Millis = Millis(2_000);
/// Half of what came back is not kept any more after so long: a call of an engine that has to wait for disk takes some seconds.
const USED: Millis = Millis(2_000);
/// What is missed after so many pauses was lent for long enough to be worth it.
const SOON: u64 = 8;

/// What is known of whether a unit makes use of its floor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lent {
    /// For how long nothing was missed while memory was contended.
    quiet: Millis,
    /// The pause, once it is not [`PAUSE`].
    pause: Option<Millis>,
    /// What came back of late while memory was contended, and may be needed once more.
    #[serde(default)]
    back: Bytes,
    /// Whether any was, since it began to be.
    #[serde(default)]
    has_missed: bool,
}

impl Lent {
    /// After `passed`, in which `missed` came back, where memory was contended so long before.
    pub(crate) fn next(self, passed: Millis, missed: Bytes, contended: Option<Millis>) -> Lent {
        let Lent { quiet, pause, back, .. } = self;
        let Some(ago) = contended.filter(|ago| *ago < REST) else {
            return Lent { pause, ..Lent::default() };
        };
        let back = lifted(back, kept(passed, USED)) + missed;
        if missed == Bytes::ZERO {
            let more = if ago == Millis(0) { passed.0 } else { 0 };
            return Lent { quiet: Millis(quiet.0.saturating_add(more)), pause, back, ..self };
        }
        let was = self.pause();
        let is_early = quiet >= was && quiet.0 < was.0.saturating_mul(SOON);
        let longer = Millis(was.0.saturating_mul(2)).min(LONGEST);
        let pause = if is_early { Some(longer) } else { pause };
        Lent { quiet: Millis(0), pause, back, has_missed: true }
    }

    /// The part of its floor that is kept for it, 0–1.
    pub(crate) fn kept(self) -> f64 {
        kept(self.quiet.since(self.pause()), FADE)
    }

    /// How much, 0–1, it has missed something of late: all of it, and by half less per [`FADE`] once a pause is over.
    pub(crate) fn missed(self) -> f64 {
        if self.has_missed { self.kept() } else { 0.0 }
    }

    /// What is kept for it beside that.
    pub(crate) fn back(self) -> Bytes {
        self.back
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
    /// What came back within one look.
    const SOME: Bytes = Bytes::mib(1);
    /// Memory is contended.
    const NOW: Option<Millis> = Some(Millis(0));

    fn quiet(from: Lent, secs: u64) -> Lent {
        (0..secs).fold(from, |lent, _| lent.next(SECOND, Bytes::ZERO, NOW))
    }

    #[test]
    fn who_misses_nothing_lends_its_floor_and_has_it_back_with_the_first_miss() {
        assert_eq!(quiet(Lent::default(), 2).kept(), 1.0);
        assert_eq!(quiet(Lent::default(), 4).kept(), 0.5);
        let lent = quiet(Lent::default(), 12);
        assert!(lent.kept() < 0.04, "{}", lent.kept());
        assert_eq!(lent.next(SECOND, SOME, NOW).kept(), 1.0);
        let lately = lent.next(SECOND, Bytes::ZERO, Some(SECOND));
        assert_eq!(lately, lent, "memory may be contended again soon");
        assert_eq!(lent.next(SECOND, Bytes::ZERO, Some(REST)).kept(), 1.0, "nobody needs it");
        assert_eq!(lent.next(SECOND, Bytes::ZERO, None).kept(), 1.0);
    }

    #[test]
    fn what_is_missed_long_after_was_not_lent_too_early() {
        let missed = quiet(Lent::default(), 30).next(SECOND, SOME, NOW);
        assert_eq!(missed.pause, None);
        let early = quiet(Lent::default(), 10).next(SECOND, SOME, NOW);
        assert_eq!(early.pause, Some(Millis(4_000)));
        assert_eq!(quiet(early, 4).kept(), 1.0);
    }

    #[test]
    fn what_came_back_is_kept_beside_the_floor_for_a_while() {
        let called = [5, 3].map(Bytes::mib).into_iter();
        let lent = called.fold(Lent::default(), |lent, back| lent.next(SECOND, back, NOW));
        assert!(lent.back() > Bytes::mib(6) && lent.back() <= Bytes::mib(8), "{lent:?}");
        let later = quiet(lent, 2).back();
        assert!(later > Bytes::mib(3) && later <= Bytes::mib(4), "{later}");
        assert_eq!(quiet(lent, 120).back(), Bytes::ZERO);
        assert_eq!(lent.next(SECOND, Bytes::ZERO, None).back(), Bytes::ZERO, "nobody takes any");
    }

    proptest! {
        /// However much came back, and whenever.
        #[test]
        fn no_more_is_kept_beside_a_floor_than_came_back(
            looks in proptest::collection::vec((1u64..100_000, 0u64..u64::MAX), 0..40)
        ) {
            let next = |(lent, all): (Lent, Bytes), (passed, back): &(u64, u64)| {
                (lent.next(Millis(*passed), Bytes(*back), NOW), all + Bytes(*back))
            };
            let (lent, all) = looks.iter().fold((Lent::default(), Bytes::ZERO), next);
            prop_assert!(lent.back() <= all, "{lent:?} {all}");
        }

        #[test]
        fn never_more_than_a_look_before_while_nothing_is_missed(
            calls in proptest::collection::vec(0u64..100, 0..10), secs in 1u64..100
        ) {
            let called = |lent, secs: &u64| quiet(lent, *secs).next(SECOND, SOME, NOW);
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
            let call = |lent: Lent| quiet(lent, interval - 1).next(SECOND, SOME, NOW);
            let lent = (0..12).fold(Lent::default(), |lent, _| call(lent));
            let before = quiet(lent, interval - 1);
            let is_long = before.quiet.0 >= lent.pause().0 * SOON;
            prop_assert!(before.kept() == 1.0 || is_long, "{before:?}");
        }
    }
}
