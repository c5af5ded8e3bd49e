//! What is known of a start, and what two cost each other.

use ctlmgr_model::{Bytes, Character, DISKS, Disk, Percent};

use super::Penalties;

/// What is known of what a start does; unknown is `None` or zero, and holds nobody up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traits {
    /// What it is like.
    pub character: Option<Character>,
    /// What a mixed one is made of, if that is known.
    pub mix: Option<Mix>,
    /// What it does to each disk, as far as that is known. Those on different ones do not meet.
    pub disks: [Option<Use>; DISKS],
    /// Processors that it keeps busy, in thousandths.
    pub cpu_milli: u64,
    /// Page cache that it reads into.
    pub cache: Bytes,
}

/// The two directions of what a start does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// How it reads.
    pub read: Character,
    /// How it writes.
    pub write: Character,
    /// Part of its bytes that are written.
    pub written: Percent,
}

/// What a start does to one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Which disk.
    pub disk: Disk,
    /// Part of all its bytes on the disks that are told apart.
    pub part: Percent,
    /// What these are made of.
    pub mix: Mix,
}

/// Characters, and how much of it each is, in per cent.
type Parts = Vec<(Character, u32)>;

/// Two of whom each takes twice as long beside the other are done no later than one after the other; so much more,
/// in hundredths, is put down to measuring.
const SHARING: u64 = 150;
/// So much more than what is equal counts as equal, in per cent: penalties are rounded.
const ROUNDING: u64 = 5;

/// Two that do less than this part of their work on the same disks, in per cent, are no company: a log that both
/// write says nothing of what they do elsewhere.
const LITTLE: u32 = 20;

impl Mix {
    /// Characters and parts in per cent.
    fn parts(&self) -> Parts {
        let written = u32::from(self.written.0.min(100));
        vec![(self.read, 100 - written), (self.write, written)]
    }
}

impl Traits {
    /// Whether they use different disks, but for a little of what they do.
    pub fn is_apart(&self, other: &Traits) -> bool {
        let together = |shared: Vec<(Mix, Mix, u32)>| shared.iter().map(|(_, _, n)| n).sum::<u32>();
        self.meets(other).map(together).is_some_and(|percent| percent < LITTLE)
    }

    /// What both do to the disks that both use, and in per cent how much of what each does that is; `None` if
    /// the disks of one of them are not known.
    fn meets(&self, other: &Traits) -> Option<Vec<(Mix, Mix, u32)>> {
        let is_known = |t: &Traits| t.disks.iter().any(Option::is_some);
        let pairs = self
            .disks
            .iter()
            .flatten()
            .flat_map(|a| other.disks.iter().flatten().map(move |b| (a, b)));
        let shared = pairs.filter(|(a, b)| a.disk == b.disk);
        // Who does a tenth of its work where another does all of it slows that one down no more than by a tenth; of
        // two that are spread alike over several disks (RAID) each meets the other with everything.
        let shared = shared.map(|(a, b)| (a.mix, b.mix, u32::from(a.part.0.min(b.part.0))));
        (is_known(self) && is_known(other)).then(|| shared.collect())
    }

    /// Whether it may use a disk: unknown ones may.
    pub(super) fn may_use_disk(&self) -> bool {
        !matches!(self.character, Some(Character::Cpu | Character::Quiet))
    }

    /// What two cost each other when they start together, in hundredths: nothing if one of them is
    /// not known, or they use different disks; of disks that both use as much as the less busy one does there.
    pub fn conflict(&self, other: &Traits, penalties: &Penalties) -> u32 {
        let (Some(a), Some(b)) = (self.character, other.character) else { return 0 };
        let learned = penalties.learned_between(a, b);
        let met = self.encounters(other, a, b).into_iter();
        let cost = |(x, y, part): (Parts, Parts, u32)| {
            part * learned.unwrap_or_else(|| by_parts(&x, &y, penalties))
        };
        met.map(cost).sum::<u32>().div_ceil(100)
    }

    /// Whether two take from each other only what each then has: on no disk that both use they cost each other more than each costs its
    /// like, in the geometric mean (a sum of products of parts, by Cauchy and Schwarz), nor more than it costs to do
    /// one after the other. What a disk loses between sequential and random is on top of that. Where likes cost each
    /// other nothing there is nothing to compare with, and who costs something fights.
    pub fn shares(&self, other: &Traits, penalties: &Penalties) -> bool {
        let (Some(a), Some(b)) = (self.character, other.character) else { return true };
        let cost = |a, b, x: &Parts, y: &Parts| {
            let learned = penalties.learned_between(a, b);
            u64::from(learned.unwrap_or_else(|| by_parts(x, y, penalties)))
        };
        self.encounters(other, a, b).iter().all(|(x, y, _)| {
            let (each, alike) = (cost(a, b, x, y), cost(a, a, x, x) * cost(b, b, y, y));
            each <= SHARING && 100 * each * each <= (100 + ROUNDING) * alike
        })
    }

    /// What both do on each disk that both use, and in per cent how much of what they do that is; everything, if disks are
    /// not known.
    fn encounters(&self, other: &Traits, a: Character, b: Character) -> Vec<(Parts, Parts, u32)> {
        match self.meets(other).filter(|_| self.may_use_disk() && other.may_use_disk()) {
            Some(shared) => shared.iter().map(|(x, y, n)| (x.parts(), y.parts(), *n)).collect(),
            None => vec![(self.parts(a), other.parts(b), 100)],
        }
    }

    /// Characters and parts in per cent: one, or those of its two directions.
    fn parts(&self, character: Character) -> Parts {
        match self.mix.filter(|_| character == Character::Mixed) {
            Some(mix) => mix.parts(),
            None => vec![(character, 100)],
        }
    }
}

/// What each pair of parts costs, by how much of both there is: one that writes for two thirds of
/// its bytes costs another writer two thirds of what a writer would.
fn by_parts(a: &[(Character, u32)], b: &[(Character, u32)], penalties: &Penalties) -> u32 {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    pairs.map(|((a, n), (b, m))| penalties.between(*a, *b) * n * m).sum::<u32>() / 10_000
}
