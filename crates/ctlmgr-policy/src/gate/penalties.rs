//! What characters cost each other: the guidelines of the paper, and what was learned on this host.

use std::collections::BTreeMap;

use ctlmgr_model::{Character, Millis, PairPenalty};

use super::penalty;

/// No pair costs more, in hundredths: a start that takes five times as long.
const MOST: u64 = 400;
/// What was learned fades to the guideline within this time, in seconds.
const FADES: u64 = 60 * 86_400;
/// Each start that is seen counts for one part in so many.
const MEMORY: u64 = 4;
/// Shorter starts say nothing: they are looked at once a second.
const LEAST_ALONE: Millis = Millis(4000);
/// Company for less than this part of a start says nothing of it, in per cent.
const LEAST_COMPANY_PCT: u64 = 30;

/// S of the paper for each pair of characters, in hundredths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Penalties {
    learned: BTreeMap<(Character, Character), PairPenalty>,
}

/// A start that is over, and who started beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slowdown {
    /// How long it took.
    pub lasted: Millis,
    /// How long one like it takes alone.
    pub alone: Millis,
    /// For how long others of each character started beside it, on the same disk.
    pub company: BTreeMap<Character, Millis>,
}

impl Penalties {
    /// Those that were learned, by any host.
    pub fn new(learned: impl IntoIterator<Item = PairPenalty>) -> Penalties {
        let keyed = |p: PairPenalty| ((p.a.min(p.b), p.a.max(p.b)), p);
        Penalties { learned: learned.into_iter().map(keyed).collect() }
    }

    /// What was learned.
    pub fn learned(&self) -> impl Iterator<Item = &PairPenalty> {
        self.learned.values()
    }

    /// As they are at a time, in seconds of Unix time: what was learned long ago counts less.
    #[must_use]
    pub fn at(&self, unix: u64) -> Penalties {
        let faded = |p: &PairPenalty| {
            let age = unix.saturating_sub(p.learned_unix).min(FADES);
            let (prior, learned) = (u64::from(penalty(p.a, p.b)), u64::from(p.hundredths));
            let value = (prior * age + learned * (FADES - age)) / FADES;
            // Nor do starts of long ago make it any surer.
            let seen = u64::from(p.seen) * (FADES - age) / FADES;
            let seen = u32::try_from(seen).unwrap_or(u32::MAX);
            PairPenalty { hundredths: hundredths(value), seen, ..*p }
        };
        let is_left = |p: &PairPenalty| unix.saturating_sub(p.learned_unix) < FADES;
        let left = self.learned.iter().filter(|(_, p)| is_left(p));
        Penalties { learned: left.map(|(pair, p)| (*pair, faded(p))).collect() }
    }

    /// What two cost each other.
    pub fn between(&self, a: Character, b: Character) -> u32 {
        self.learned.get(&(a.min(b), a.max(b))).map_or_else(|| penalty(a, b), |p| p.hundredths)
    }

    /// The same, if so many starts have taught it that the guideline counts for little in it.
    pub fn learned_between(&self, a: Character, b: Character) -> Option<u32> {
        let known = self.learned.get(&(a.min(b), a.max(b)))?;
        (u64::from(known.seen) >= MEMORY).then_some(known.hundredths)
    }

    /// Learns from a start of character `own`; returns the pairs that changed. How much longer it took
    /// than alone is put down to its company, by time.
    pub fn learn(&mut self, own: Character, start: &Slowdown, unix: u64) -> Vec<PairPenalty> {
        let together: u64 = start.company.values().map(|t| t.0).sum();
        let is_telling = together.saturating_mul(100) >= start.lasted.0 * LEAST_COMPANY_PCT;
        let uses_disk = !matches!(own, Character::Cpu | Character::Quiet);
        if start.alone < LEAST_ALONE || together == 0 || !is_telling || !uses_disk {
            return Vec::new();
        }
        let more = start.lasted.since(start.alone).0.saturating_mul(100) / start.alone.0;
        // Penalties add up: of three that were there all the time each cost a third.
        let seen = (more.saturating_mul(start.lasted.0) / together).min(MOST);
        let mut changed = Vec::new();
        let now = self.at(unix);
        for (other, time) in start.company.iter().filter(|(_, time)| time.0 > 0) {
            let pair = (own.min(*other), own.max(*other));
            let old = u64::from(now.between(own, *other));
            // Who was there for a part of the time only teaches that part.
            let weight = time.0 * 100 / together;
            let value = (old * (100 * MEMORY - weight) + seen * weight) / (100 * MEMORY);
            let times = now.learned.get(&pair).map_or(0, |p| p.seen).saturating_add(1);
            let learned = PairPenalty {
                a: pair.0,
                b: pair.1,
                hundredths: hundredths(value),
                seen: times,
                learned_unix: unix,
            };
            self.learned.insert(pair, learned);
            changed.push(learned);
        }
        changed
    }
}

fn hundredths(value: u64) -> u32 {
    u32::try_from(value.min(MOST)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn start(lasted: u64, alone: u64, company: &[(Character, u64)]) -> Slowdown {
        let company = company.iter().map(|(c, ms)| (*c, Millis(*ms))).collect();
        Slowdown { lasted: Millis(lasted), alone: Millis(alone), company }
    }

    const NOW: u64 = 1_800_000_000;
    use Character::{RandomRead, SequentialRead, SequentialWrite};

    #[test]
    fn a_pair_that_gets_on_better_than_the_guideline_costs_less_in_time() {
        let mut penalties = Penalties::default();
        assert_eq!(penalties.between(SequentialRead, RandomRead), 200);
        for _ in 0..30 {
            penalties.learn(RandomRead, &start(9000, 9000, &[(SequentialRead, 9000)]), NOW);
        }
        assert!(penalties.between(RandomRead, SequentialRead) < 10);
        assert!(penalties.at(NOW + FADES / 2).between(RandomRead, SequentialRead) > 90);
        assert_eq!(penalties.at(NOW + FADES).between(RandomRead, SequentialRead), 200);
    }

    /// What is nearly the guideline again must not pass for what this host has taught.
    #[test]
    fn what_few_or_old_starts_taught_is_not_taken_for_sure() {
        let mut penalties = Penalties::default();
        let taught = |penalties: &mut Penalties, unix: u64| {
            penalties.learn(RandomRead, &start(9000, 9000, &[(SequentialRead, 9000)]), unix);
            penalties.at(unix).learned_between(RandomRead, SequentialRead).is_some()
        };
        let sure: Vec<bool> = (0..6).map(|_| taught(&mut penalties, NOW)).collect();
        assert_eq!(sure, [false, false, false, true, true, true]);
        let later = NOW + FADES / 3 * 2;
        let old = penalties.at(later);
        assert_eq!(old.learned_between(RandomRead, SequentialRead), None);
        assert!(!taught(&mut penalties, later), "two old ones and a new one");
        assert!(taught(&mut penalties, later));
    }

    #[test]
    fn one_that_takes_twice_as_long_costs_one() {
        let mut penalties = Penalties::default();
        for _ in 0..40 {
            penalties.learn(RandomRead, &start(20_000, 10_000, &[(SequentialWrite, 20_000)]), NOW);
        }
        assert!((95..=100).contains(&penalties.between(SequentialWrite, RandomRead)));
    }

    #[test]
    fn starts_alone_or_of_unknown_length_teach_nothing() {
        let mut penalties = Penalties::default();
        for told in [
            start(9000, 0, &[(RandomRead, 9000)]),
            start(9000, 5000, &[]),
            start(2000, 1000, &[(RandomRead, 2000)]),
            start(9000, 5000, &[(RandomRead, 900)]),
        ] {
            assert_eq!(penalties.learn(SequentialRead, &told, NOW), []);
        }
        assert_eq!(penalties, Penalties::default());
    }

    proptest! {
        #[test]
        fn they_stay_within_bounds(
            lasted in any::<u32>(),
            alone in any::<u32>(),
            company in proptest::collection::btree_map(
                proptest::sample::select(Character::ALL.to_vec()), any::<u32>(), 0..4),
            own in proptest::sample::select(Character::ALL.to_vec()),
            times in 1usize..20,
            later in any::<u64>(),
        ) {
            let company: Vec<_> = company.into_iter().map(|(c, ms)| (c, u64::from(ms))).collect();
            let told = start(lasted.into(), alone.into(), &company);
            let mut penalties = Penalties::default();
            for _ in 0..times {
                penalties.learn(own, &told, NOW);
            }
            for a in Character::ALL {
                for b in Character::ALL {
                    let (now, then) = (penalties.between(a, b), penalties.at(later).between(a, b));
                    prop_assert!(u64::from(now) <= MOST && u64::from(then) <= MOST);
                    prop_assert_eq!(now, penalties.between(b, a));
                }
            }
        }

        #[test]
        fn who_is_slowed_down_more_never_makes_a_pair_cheaper(
            lasted in 5000u64..100_000, more in 0u64..100_000,
        ) {
            let after = |lasted: u64| {
                let mut penalties = Penalties::default();
                penalties.learn(RandomRead, &start(lasted, 5000, &[(SequentialRead, lasted)]), NOW);
                penalties.between(RandomRead, SequentialRead)
            };
            prop_assert!(after(lasted + more) >= after(lasted));
        }
    }
}
