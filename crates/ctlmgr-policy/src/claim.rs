//! Claims to page cache that was missed and is back.
//!
//! # Problem
//! Under MGLRU page cache that is read by file descriptor shows that it is in use only while it is missed ([`crate::cache`]). Once all of it is
//! back nothing tells, and a need that fades from there on is taken to be less: two that lived by 500 MiB of files each were asked for a part
//! again within seconds of having it back, and so missed some for good.
//!
//! # Approach
//! That of senpai (Weiner et al., TMO, §3.3), as for floors ([`crate::lent`]): what was taken and came back is in use for a while after; then its need
//! fades, so a little of it is taken, and if that comes back soon it is left alone for twice as long.
//!
//! # Algorithm
//! What was taken of late, and what came back of it, counts by half less per [`FADE`], and no longer once a claim is over. At least half must have come
//! back, and one part in [`PART`] of all: of a large file of which a fiftieth is read all the time a fiftieth comes back of each part that is taken.
//! Then all that there was is claimed for a pause, of [`PAUSE`] at first. What comes back within
//! [`SOON`] times the pause, and after its end, was asked for too early, and the pause is twice as long from then on, up to [`LONGEST`]; what comes
//! back later was not, and it is half as long. A probe that came back ([`crate::cache_probe`]) says it of what it stands for, for [`PROBED`] at least.
//!
//! # Properties
//! Who has nothing back claims nothing, nor does who has back less than half of what is taken from it each second, but for what a probe shows; no more is claimed than there was; who stops using
//! it claims nothing after [`LONGEST`], in which it did not wait for memory; of who uses it all the time the pauses grow.

use ctlmgr_model::{Bytes, Millis};
use serde::{Deserialize, Serialize};

use crate::demand::lifted;
use crate::fade::kept;

/// What came back is claimed for so long, at first: longer than it takes to have a tenth of a set back page by page.
const PAUSE: Millis = Millis(30_000);
/// At least so long where a probe has shown it, which cost next to nothing: when a claim ends while memory is short a little of it is taken once more,
/// and each page that is missed then waits for disks that swap.
const PROBED: Millis = Millis(120_000);
/// As long as what was earned lasts by half.
const LONGEST: Millis = Millis(600_000);
/// What is missed after so many pauses was left alone for long enough.
const SOON: u64 = 8;
/// Less than one part in so many that comes back says nothing of the rest.
const PART: u64 = 64;
/// Half of what was taken, and of what came back of it, is forgotten after so long.
const FADE: Millis = Millis(60_000);

/// What became of page cache since the last look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// The time in which it could show what it misses.
    pub passed: Millis,
    /// What there is, or was before some was taken.
    pub had: Bytes,
    /// What of it is away.
    pub away: Bytes,
    /// What came back since.
    pub back: Bytes,
    /// What a probe has just shown to be in use ([`crate::cache_probe`]).
    pub in_use: Option<Bytes>,
}

/// What one claims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Claim {
    /// What there was.
    of: Bytes,
    /// For how long it is claimed already.
    quiet: Millis,
    /// The pause, once it is not [`PAUSE`].
    pause: Option<Millis>,
    /// What was away at the last look, what was taken of late, and what came back of that.
    away: Bytes,
    taken: Bytes,
    back: Bytes,
}

impl Claim {
    /// After one more look.
    pub(crate) fn next(self, seen: &Seen) -> Claim {
        let left = kept(seen.passed, FADE);
        let taken = lifted(self.taken, left) + (seen.away + seen.back - self.away);
        let back = lifted(self.back, left) + seen.back;
        let next = Claim { away: seen.away, taken, back, ..self };
        let is_enough = back.0.saturating_mul(2) >= taken.0 && back.0 >= seen.had.0 / PART;
        let all = (seen.back > Bytes::ZERO && is_enough).then_some(seen.had);
        let in_use = all.or(seen.in_use.map(|part| part.max(self.amount())));
        let Some(of) = in_use else {
            let quiet = Millis(self.quiet.0.saturating_add(seen.passed.0));
            let is_over = self.amount() > Bytes::ZERO && quiet >= self.pause();
            let none = Bytes::ZERO;
            let (taken, back) = if is_over { (none, none) } else { (taken, back) };
            return Claim { quiet, taken, back, ..next };
        };
        let least = seen.in_use.map_or(PAUSE, |_| PROBED);
        let pause = self.next_pause().clamp(least, LONGEST);
        Claim { of, quiet: Millis(0), pause: Some(pause), ..next }
    }

    /// What was away at the last look.
    pub(crate) fn away(self) -> Bytes {
        self.away
    }

    /// What is claimed now.
    pub(crate) fn amount(self) -> Bytes {
        if self.quiet < self.pause() { self.of } else { Bytes::ZERO }
    }

    fn next_pause(self) -> Millis {
        let was = self.pause();
        match self.quiet {
            _ if self.of == Bytes::ZERO => was,
            quiet if quiet < was => was,
            quiet if quiet.0 < was.0.saturating_mul(SOON) => Millis(was.0 * 2),
            _ => Millis(was.0 / 2).max(PAUSE),
        }
    }

    fn pause(self) -> Millis {
        self.pause.unwrap_or(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Bytes = Bytes::mib(500);

    /// A second in which so much is away in the end, and came back, in MiB.
    fn second(away: u64, back: u64) -> Seen {
        let [away, back] = [away, back].map(Bytes::mib);
        Seen { passed: Millis(1000), had: ALL, away, back, in_use: None }
    }

    fn quiet(from: Claim, secs: u64) -> Claim {
        (0..secs).fold(from, |claim, _| claim.next(&second(0, 0)))
    }

    /// After some was taken and all of that has come back.
    fn back(from: Claim) -> Claim {
        from.next(&second(10, 0)).next(&second(0, 10))
    }

    #[test]
    fn what_a_probe_shows_is_claimed_and_no_less_than_was() {
        let probed =
            |claim: Claim, mib| claim.next(&Seen { in_use: Some(Bytes::mib(mib)), ..second(0, 0) });
        let once = probed(Claim::default(), 300);
        let held = |claim, secs| quiet(claim, secs).amount().0 >> 20;
        assert_eq!((held(once, 0), held(once, 119), held(once, 120)), (300, 300, 0));
        let again = probed(quiet(once, 130), 300);
        assert_eq!((held(again, 239), held(again, 240)), (300, 0), "that was too early");
        assert_eq!(probed(back(Claim::default()), 300).amount(), ALL);
    }

    #[test]
    fn what_came_back_is_claimed_for_a_while_and_longer_where_that_was_too_short() {
        assert_eq!(quiet(Claim::default(), 3).amount(), Bytes::ZERO, "never taken");
        let ends_after = |claim, secs: u64| {
            [quiet(claim, secs - 1).amount(), quiet(claim, secs).amount()] == [ALL, Bytes::ZERO]
        };
        let first = back(Claim::default());
        assert!(ends_after(first, 30));
        let little = Claim::default().next(&second(7, 0)).next(&second(0, 7));
        assert_eq!(little.amount(), Bytes::ZERO, "a 64th of 500 is 7.8");
        assert_eq!(quiet(first, 35).next(&second(0, 7)).amount(), Bytes::ZERO, "long ago");
        let again = back(quiet(first, 35));
        assert!(ends_after(again, 60), "too early");
        assert!(ends_after(back(quiet(again, 480)), 30), "late enough");
        assert!(ends_after(first.next(&second(0, 1)), 30), "it had not all of it back before");
    }

    #[test]
    fn a_part_of_what_is_taken_that_comes_back_claims_nothing() {
        // Ten are taken each second, and one has back so many of them within it.
        let after = |back: u64| {
            (1..=60)
                .fold(Claim::default(), |claim, secs| claim.next(&second(secs * (10 - back), back)))
        };
        assert_eq!(after(4).amount(), Bytes::ZERO);
        assert_eq!(after(6).amount(), ALL);
        let late = (1..=6).fold(Claim::default().next(&second(60, 0)), |claim, secs| {
            assert_eq!(claim.amount(), if secs > 3 { ALL } else { Bytes::ZERO }, "{secs}");
            claim.next(&second(60 - secs * 10, 10))
        });
        assert_eq!(late.amount(), ALL, "page by page");
    }

    proptest! {
        #[test]
        fn no_more_is_claimed_than_there_was_nor_for_longer_than_the_longest(
            seconds in proptest::collection::vec((0u64..500, 0u64..50, 0u64..500), 0..400),
        ) {
            let (mut claim, mut most) = (Claim::default(), 0);
            for (had, away, back) in seconds {
                most = most.max(had);
                claim = claim.next(&Seen { had: Bytes::mib(had), ..second(away, back) });
                prop_assert!(claim.amount() <= Bytes::mib(most));
            }
            let later = claim.next(&Seen { passed: LONGEST, ..second(0, 0) });
            prop_assert_eq!(later.amount(), Bytes::ZERO);
        }

        #[test]
        fn of_who_misses_some_as_soon_as_it_may_it_is_asked_ever_more_seldom(after in 0u64..20) {
            let mut claim = back(Claim::default());
            let (mut asked, mut since) = (0, None);
            for now in 0u64..1800 {
                let is_free = claim.amount() == Bytes::ZERO;
                since = if is_free { since.or(Some(now)) } else { None };
                let is_asked = since.is_some_and(|since| now - since >= after);
                asked += u32::from(is_asked);
                claim = if is_asked { back(claim) } else { quiet(claim, 1) };
            }
            prop_assert!((4..=7).contains(&asked), "{asked}");
        }
    }
}
