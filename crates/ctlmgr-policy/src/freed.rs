//! What a workload gave up by itself is no claim for long, while others go short.
//!
//! # Problem
//! Need falls slowly, so that a short dip does not cost the protection that the next burst needs. But who ends its work
//! and frees 500 MiB would keep a claim on 445 of them ten seconds later, and on half of them after a minute: that much
//! others are short of, though nobody uses it.
//!
//! # Approach
//! Anonymous and shared memory that is taken goes to swap and is still there; page cache is not looked at. So where both
//! together become less than they were since its owner had all it claims, it gave some up. While memory is contended,
//! and for [`REST`] after that, half of the claim on that goes in [`FIRST`], as shares are to settle within ten seconds.
//! Whoever asks for it again soon had dipped, and had the others take it and give it back: it keeps it for twice as long
//! the next time, and for half as long once it did not ask in that time.
//!
//! # Terms
//! On its way to swap a page may be in neither count (it is mapped nowhere, and the swap cache has it), and on its way
//! back in both. So what is there is counted with the swap cache and without it, and only what both lack was given up. What
//! nobody claims, because it was in swap for long, is freed first as far as swap becomes less.
//!
//! # Properties
//! What was taken fades as slowly as ever, however much is allocated and freed beside it; nobody's claim falls below what
//! it needs now; of what was given up once a twentieth is left after ten seconds; who gives up and takes again and again
//! comes to keep it as long as what was taken; while there is enough for all nothing goes faster.

use ctlmgr_model::{Bytes, MemorySample, MemorySettings, Millis, Snapshot};
use serde::{Deserialize, Serialize};

use crate::demand::Look;
use crate::fade::toward;
use crate::scene::REST;

/// Half of what is no longer used and not protected either is no claim after so long: a fifth is left after 10 s, in
/// which shares are to settle.
pub(crate) const UNKEPT: Millis = Millis(4000);
/// Half of what was given up goes in this time, at first.
const FIRST: Millis = Millis(2000);
/// One part in so many of a claim is no trifle.
const NOTICEABLE: u64 = 32;
/// What is asked for again within so many half-lives was given up for a while only.
const SOON: u64 = 8;
/// Less than this in swap is nobody's in particular.
const LITTLE: Bytes = Bytes::mib(1);

/// Whether what is given up is soon no claim: memory was contended so long ago, and what goes to swap is counted. Where
/// the kernel does not count it by cgroup all that is taken looks given up.
pub(crate) fn goes_soon(contended_ago: Option<Millis>, snapshot: &Snapshot) -> bool {
    let mut groups =
        snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.bystanders).map(|g| &g.memory);
    let is_counted = snapshot.host.swap_total - snapshot.host.swap_free < LITTLE
        || groups.any(|memory| memory.swap > Bytes::ZERO);
    is_counted && contended_ago.is_some_and(|ago| ago < REST)
}

/// How one gives up memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Freed {
    /// The least that it had since it had all that it claims.
    had: Held,
    /// What of its claim it gave up.
    claimed: Bytes,
    /// Half of that goes in this time, once that is not [`FIRST`].
    half_life: Option<Millis>,
    /// How long ago it gave up some, and the least that it needed since, if it has not asked for more again.
    dip: Option<(Millis, Bytes)>,
}

/// Anonymous and shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    /// In memory and in swap; what is in both, in the swap cache, twice …
    most: Bytes,
    /// … and that not at all.
    least: Bytes,
    /// In swap.
    swap: Bytes,
}

impl Held {
    fn of(memory: &MemorySample) -> Held {
        let most = memory.anon + memory.shmem + memory.swap;
        Held { most, least: most - memory.swapcached, swap: memory.swap }
    }

    /// What is lacking of it now, of what was claimed.
    fn given_up(self, now: Held, claimed: Bytes) -> Bytes {
        let gone = (self.most - now.most).min(self.least - now.least);
        let unclaimed = self.least - claimed;
        gone - (self.swap - now.swap).min(unclaimed)
    }

    /// The least of both totals, and what is in swap now.
    fn min(self, now: Held) -> Held {
        let Held { most, least, .. } = self;
        Held { most: most.min(now.most), least: least.min(now.least), swap: now.swap }
    }
}

/// A look at who had a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed {
    /// What was needed by the last estimate …
    pub last: Bytes,
    /// … and is by what is seen now.
    pub now: Bytes,
    /// Time since the last look …
    pub passed: Millis,
    /// … and what of it was not waited for memory.
    pub awake: Millis,
    /// Half of a claim on what was taken goes in this time.
    pub half_life: Millis,
    /// Whether what was given up goes sooner.
    pub goes_soon: bool,
}

impl Claimed {
    /// Of whom a look tells, who claimed the first amount and needs the second one.
    pub(crate) fn of(
        settings: &MemorySettings,
        look: &Look<'_>,
        (last, now): (Bytes, Bytes),
        (passed, awake): (Millis, Millis),
    ) -> Claimed {
        let kept = settings.demand_half_life;
        let half_life = if look.is_kept { kept } else { kept.min(UNKEPT) };
        Claimed { last, now, passed, awake, half_life, goes_soon: look.goes_soon }
    }
}

impl Freed {
    /// At first sight.
    pub(crate) fn new(memory: &MemorySample) -> Freed {
        Freed { had: Held::of(memory), ..Freed::default() }
    }

    /// After a look: what is known now, and what is left of the claim.
    pub(crate) fn next(self, memory: &MemorySample, claim: Claimed) -> (Freed, Bytes) {
        let Claimed { last, now, passed, awake, half_life, goes_soon } = claim;
        let has = Held::of(memory);
        let given_up = self.had.given_up(has, last);
        let next = self.learn(given_up, claim);
        let fast = if goes_soon { next.half_life(half_life) } else { half_life };
        // What is needed was not given up.
        let before = self.claimed.min(last - now);
        let given_up = given_up.min(last - now - before);
        let claimed = toward(before, Bytes::ZERO, passed, fast) + given_up;
        let others = toward(last - before - given_up, now, awake, half_life);
        let had = if now >= last { has } else { self.had.min(has) };
        (Freed { had, claimed, ..next }, others + claimed)
    }

    fn learn(self, given_up: Bytes, claim: Claimed) -> Freed {
        let Claimed { last, now, passed, half_life: most, .. } = claim;
        if given_up.0 > last.0 / NOTICEABLE {
            let least = self.dip.map_or(now, |(_, least)| least.min(now));
            return Freed { dip: Some((Millis(0), least)), ..self };
        }
        let Some((ago, least)) = self.dip else { return self };
        let (ago, least) = (Millis(ago.0.saturating_add(passed.0)), least.min(now));
        let was = self.half_life(most);
        let is_back = (now - least).0 > last.0 / NOTICEABLE;
        let is_over = ago.0 >= was.0.saturating_mul(SOON);
        let half_life = match (is_back, is_over) {
            (true, false) => Millis(was.0.saturating_mul(2)).min(most),
            (_, true) => Millis(was.0 / 2).max(FIRST),
            (false, false) => return Freed { dip: Some((ago, least)), ..self },
        };
        Freed { half_life: Some(half_life), dip: None, ..self }
    }

    fn half_life(self, most: Millis) -> Millis {
        self.half_life.unwrap_or(FIRST).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOW: Millis = Millis(60_000);

    /// Anonymous memory, part of it in swap.
    fn memory(there: Bytes, swap: Bytes) -> MemorySample {
        MemorySample { anon: there, swap, ..MemorySample::default() }
    }

    /// A second.
    fn claim(last: Bytes, now: Bytes, goes_soon: bool) -> Claimed {
        let second = Millis(1000);
        Claimed { last, now, passed: second, awake: second, half_life: SLOW, goes_soon }
    }

    /// One that needs what it has in memory; what is left of its claim.
    fn look(freed: &mut Freed, last: Bytes, now: &MemorySample, goes_soon: bool) -> Bytes {
        let (next, left) = freed.next(now, claim(last, now.anon, goes_soon));
        *freed = next;
        left.max(now.anon)
    }

    fn of(had: Bytes) -> Freed {
        Freed::new(&memory(had, Bytes::ZERO))
    }

    #[test]
    fn who_gives_up_and_takes_again_comes_to_keep_it() {
        let mut claim = Bytes::mib(500);
        let mut freed = of(claim);
        let mut least = Vec::new();
        for second in 0..400 {
            let now = Bytes::mib(if second / 10 % 2 == 0 { 500 } else { 100 });
            claim = look(&mut freed, claim, &memory(now, Bytes::ZERO), true);
            if second % 20 == 19 {
                least.push(claim);
            }
        }
        assert!(least[0] < Bytes::mib(130), "{least:?}");
        assert!(*least.last().unwrap() > Bytes::mib(440), "{least:?}");
        assert_eq!(freed.half_life(SLOW), SLOW);
        // Who did not ask for it in time does not dip any more.
        let now = memory(Bytes::mib(100), Bytes::ZERO);
        for _ in 0..2000 {
            look(&mut freed, Bytes::mib(100), &now, true);
        }
        assert_eq!(freed.half_life(SLOW), Millis(SLOW.0 / 2));
    }

    #[test]
    fn what_asks_again_bit_by_bit_has_dipped_too() {
        let mut freed = of(Bytes::mib(500));
        let mut claim = Bytes::mib(500);
        for second in 0..16 {
            let now = memory(Bytes::mib(100 + second * 2), Bytes::ZERO);
            claim = look(&mut freed, claim, &now, true);
        }
        assert!(freed.half_life(SLOW) > FIRST, "{freed:?}");
    }

    #[test]
    fn what_is_on_its_way_to_swap_or_back_was_not_given_up() {
        let mib = Bytes::mib;
        let way = |anon, swap, swapcached| MemorySample {
            swapcached: mib(swapcached),
            ..memory(mib(anon), mib(swap))
        };
        // Mapped nowhere and in the swap cache; written; read into the swap cache; mapped; its place in swap free.
        let ways = [
            way(400, 100, 100),
            way(400, 100, 0),
            way(400, 100, 100),
            way(500, 100, 100),
            way(500, 0, 0),
        ];
        let mut freed = of(mib(500));
        for memory in ways {
            let (next, left) = freed.next(&memory, claim(mib(500), mib(400), true));
            assert_eq!(next.claimed, Bytes::ZERO, "{memory:?}");
            assert_eq!(left, toward(mib(500), mib(400), Millis(1000), SLOW));
            freed = next;
        }
    }

    #[test]
    fn what_was_cold_in_swap_and_no_claim_is_given_up_first() {
        let mib = Bytes::mib;
        let freed = Freed::new(&memory(mib(200), mib(800)));
        let (freed, left) =
            freed.next(&memory(mib(200), mib(300)), claim(mib(300), mib(200), true));
        assert_eq!(freed.claimed, Bytes::ZERO);
        assert_eq!(left, toward(mib(300), mib(200), Millis(1000), SLOW));
    }

    #[test]
    fn where_swap_is_not_counted_nothing_goes_sooner() {
        let mut snapshot = crate::testing::host(Bytes::mib(900), Vec::new(), Vec::new());
        (snapshot.host.swap_total, snapshot.host.swap_free) = (Bytes::mib(100), Bytes::mib(100));
        assert!(goes_soon(Some(Millis(0)), &snapshot));
        assert!(!goes_soon(Some(REST), &snapshot) && !goes_soon(None, &snapshot));
        snapshot.host.swap_free = Bytes::mib(50);
        assert!(!goes_soon(Some(Millis(0)), &snapshot));
        let mut one = crate::testing::container("one", 11, Bytes::mib(50), None);
        one.group.memory.swap = Bytes::mib(9);
        snapshot.workloads.push(one);
        assert!(goes_soon(Some(Millis(0)), &snapshot));
    }

    proptest! {
        #[test]
        fn what_is_given_up_goes_within_ten_seconds_where_memory_is_short(
            last in 64u64..4000, part in 0u64..100, goes_soon: bool,
        ) {
            let before = Bytes::mib(last);
            let (mut freed, now) = (of(before), Bytes(before.0 * part / 100));
            let has = memory(now, Bytes::ZERO);
            let claim = (0..10).fold(before, |claim, _| look(&mut freed, claim, &has, goes_soon));
            prop_assert!(claim >= now);
            let (left, all) = ((claim - now).0, (before - now).0);
            match goes_soon {
                true => prop_assert!(left <= all / 20, "{left} of {all}"),
                false => prop_assert!(left > all * 8 / 10, "{left} of {all}"),
            }
        }

        /// It gave up some before memory was short; that is still no claim for long then.
        #[test]
        fn what_was_given_up_before_goes_once_memory_is_short(last in 64u64..4000) {
            let before = Bytes::mib(last);
            let (mut freed, now) = (of(before), Bytes(before.0 / 2));
            let has = memory(now, Bytes::ZERO);
            let calm = (0..10).fold(before, |claim, _| look(&mut freed, claim, &has, false));
            let short = (0..10).fold(calm, |claim, _| look(&mut freed, claim, &has, true));
            prop_assert!((short - now).0 <= (calm - now).0 / 20, "{short} of {calm}");
        }

        /// It is away, not given up, however much comes and goes beside it.
        #[test]
        fn what_was_taken_fades_as_slowly_as_ever(
            last in 200u64..4000, part in 0u64..50, beside in proptest::collection::vec(0u64..20, 1..20)
        ) {
            let all = Bytes::mib(last);
            let (now, mut freed) = (Bytes(all.0 * part / 100), of(all));
            let swap = all - now;
            let (mut claim, mut slow) = (all, all);
            for more in beside {
                let there = now + Bytes(all.0 * more / 100);
                claim = look(&mut freed, claim, &memory(there, swap), true);
                slow = toward(slow, there, Millis(1000), SLOW).max(there);
                prop_assert_eq!(freed.claimed, Bytes::ZERO);
                prop_assert_eq!(claim, slow);
            }
        }
    }
}
