//! What a workload gave up by itself is no claim for long, while others go short.
//!
//! # Problem
//! Need falls slowly, so that a short dip does not cost the protection that the next burst needs. But who ends its work
//! and frees 500 MiB would keep a claim on 445 of them ten seconds later, and on half of them after a minute: that much
//! others are short of, though nobody uses it.
//!
//! # Approach
//! Anonymous and shared memory that is taken goes to swap and is still there; page cache is not looked at. So where both together
//! become less, their owner gave some up. While memory is contended half of the claim on that goes in [`FIRST`], as shares are to settle
//! within ten seconds. Whoever asks for it again soon had dipped, and had the others take it and give it back: it keeps
//! it for twice as long the next time.
//!
//! # Properties
//! What was taken fades as slowly as ever, and so does everything while there is enough for all; nobody's claim falls
//! below what it needs now; of what was given up once a thirtieth is left after ten seconds; who gives up and takes
//! again and again comes to keep it as long as what was taken.

use ctlmgr_model::{Bytes, MemorySample, Millis};
use serde::{Deserialize, Serialize};

use crate::demand::Look;
use crate::fade::toward;
use crate::scene::REST;

/// Half of what was given up goes in this time, at first.
const FIRST: Millis = Millis(2000);
/// One part in so many of a claim is no trifle.
const NOTICEABLE: u64 = 32;
/// What is asked for again within so many half-lives was given up for a while only.
const SOON: u64 = 8;

/// How one gives up memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Freed {
    /// Anonymous and shared memory that it had at the last look, in memory or in swap.
    had: Bytes,
    /// What of its claim it gave up.
    claimed: Bytes,
    /// Half of that goes in this time, once that is not [`FIRST`].
    half_life: Option<Millis>,
    /// How long ago it gave up some, if it has not asked for more since.
    ago: Option<Millis>,
}

/// Time that passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passed {
    /// Since the last look …
    pub all: Millis,
    /// … what of it was not waited for memory …
    pub awake: Millis,
    /// … and how soon half of a claim on what was taken goes.
    pub half_life: Millis,
}

impl Freed {
    /// At first sight.
    pub(crate) fn new(memory: &MemorySample) -> Freed {
        Freed { had: has(memory), ..Freed::default() }
    }

    /// After a look: what is known now, and what is left of a claim of `last`, of which `now` is needed.
    pub(crate) fn next(
        self,
        look: &Look<'_>,
        claim: (Bytes, Bytes),
        passed: Passed,
    ) -> (Freed, Bytes) {
        let is_contended = look.contended_ago.is_some_and(|ago| ago < REST);
        self.fade(has(look.memory), claim, passed, is_contended)
    }

    fn fade(
        self,
        has: Bytes,
        (last, now): (Bytes, Bytes),
        passed: Passed,
        is_contended: bool,
    ) -> (Freed, Bytes) {
        let given_up = self.had - has;
        let next = self.learn(given_up, (last, now), passed);
        // What is needed was not given up.
        let claimed = (self.claimed + given_up).min(last - now);
        let slow = passed.half_life;
        let fast = if is_contended { next.half_life(slow) } else { slow };
        let left = toward(claimed, Bytes::ZERO, passed.all, fast);
        let kept = toward(last - claimed, now, passed.awake, slow) + left;
        (Freed { had: has, claimed: left, ..next }, kept)
    }

    fn learn(self, given_up: Bytes, (last, now): (Bytes, Bytes), passed: Passed) -> Freed {
        if given_up.0 > last.0 / NOTICEABLE {
            return Freed { ago: Some(Millis(0)), ..self };
        }
        let ago = self.ago.map(|ago| Millis(ago.0.saturating_add(passed.all.0)));
        let is_back = (now - last).0 > last.0 / NOTICEABLE;
        let was = self.half_life(passed.half_life);
        match ago {
            Some(ago) if is_back && ago.0 < was.0.saturating_mul(SOON) => {
                let longer = Millis(was.0.saturating_mul(2)).min(passed.half_life);
                Freed { half_life: Some(longer), ago: None, ..self }
            }
            ago => Freed { ago: ago.filter(|_| !is_back), ..self },
        }
    }

    fn half_life(self, most: Millis) -> Millis {
        self.half_life.unwrap_or(FIRST).min(most)
    }
}

/// Anonymous and shared memory, wherever it is.
fn has(memory: &MemorySample) -> Bytes {
    memory.anon + memory.shmem + (memory.swap - memory.swapcached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOW: Millis = Millis(60_000);
    const SECOND: Passed = Passed { all: Millis(1000), awake: Millis(1000), half_life: SLOW };

    /// One whose memory is all that it needs.
    fn look(freed: &mut Freed, claim: Bytes, now: Bytes, is_contended: bool) -> Bytes {
        let (next, left) = freed.fade(now, (claim, now), SECOND, is_contended);
        *freed = next;
        left.max(now)
    }

    fn of(had: Bytes) -> Freed {
        Freed { had, ..Freed::default() }
    }

    #[test]
    fn who_gives_up_and_takes_again_comes_to_keep_it() {
        let mut claim = Bytes::mib(500);
        let mut freed = of(claim);
        let mut least = Vec::new();
        for second in 0..400 {
            let now = Bytes::mib(if second / 10 % 2 == 0 { 500 } else { 100 });
            claim = look(&mut freed, claim, now, true);
            if second % 20 == 19 {
                least.push(claim);
            }
        }
        assert!(least[0] < Bytes::mib(120), "{least:?}");
        assert!(*least.last().unwrap() > Bytes::mib(450), "{least:?}");
        assert_eq!(freed.half_life(SLOW), SLOW);
        // Once is no habit.
        let mut freed = of(Bytes::mib(500));
        look(&mut freed, Bytes::mib(500), Bytes::mib(100), true);
        for _ in 0..30 {
            look(&mut freed, Bytes::mib(100), Bytes::mib(100), true);
        }
        look(&mut freed, Bytes::mib(100), Bytes::mib(500), true);
        assert_eq!(freed.half_life(SLOW), FIRST);
    }

    proptest! {
        #[test]
        fn what_is_given_up_goes_within_ten_seconds_where_memory_is_short(
            last in 64u64..4000, part in 0u64..100, is_contended: bool,
        ) {
            let before = Bytes::mib(last);
            let (mut freed, now) = (of(before), Bytes(before.0 * part / 100));
            let claim = (0..10).fold(before, |claim, _| look(&mut freed, claim, now, is_contended));
            prop_assert!(claim >= now);
            let (left, all) = ((claim - now).0, (before - now).0);
            match is_contended {
                true => prop_assert!(left <= all / 30, "{left} of {all}"),
                false => prop_assert!(left > all * 8 / 10, "{left} of {all}"),
            }
        }

        /// It gave up some before memory was short; that is still no claim for long then.
        #[test]
        fn what_was_given_up_before_goes_once_memory_is_short(last in 64u64..4000) {
            let before = Bytes::mib(last);
            let (mut freed, now) = (of(before), Bytes(before.0 / 2));
            let calm = (0..10).fold(before, |claim, _| look(&mut freed, claim, now, false));
            let short = (0..10).fold(calm, |claim, _| look(&mut freed, claim, now, true));
            prop_assert!((short - now).0 <= (calm - now).0 / 30, "{short} of {calm}");
        }

        /// It is away, not given up.
        #[test]
        fn what_was_taken_fades_as_slowly_as_ever(last in 64u64..4000, part in 0u64..100) {
            let (last, now) = (Bytes::mib(last), Bytes(Bytes::mib(last).0 * part / 100));
            let (freed, left) = of(last).fade(last, (last, now), SECOND, true);
            prop_assert_eq!(freed, of(last));
            prop_assert_eq!(left, toward(last, now, SECOND.awake, SLOW));
        }
    }
}
