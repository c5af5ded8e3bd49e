//! Local search: a good plan at once, better ones for as long as there is time (solvers A.6).
//!
//! Start from the best of several greedy plans, one for each of a few numbers of batches around the
//! square-root law √(N · w_p / w_z). Then, again and again: empty a few batches, seat those
//! containers anew where they are cheapest, improve by single moves, swaps and mergers until nothing
//! helps, and keep the result if it is no dearer. Deterministic: the only randomness is a fixed
//! sequence.

use std::collections::BTreeSet;

use super::Work;
use super::anneal::{Annealing, PLATEAUS};
use super::greedy::{FEW, around, start, starts};
use super::order::earliest;
use super::problem::{Pattern, Problem};
use super::seating::Seating;
use crate::sequence::Sequence;

/// A search that can go on.
pub(crate) struct Search<'a> {
    problem: &'a Problem,
    seating: Seating<'a>,
    random: Sequence,
    best: (i64, Vec<Pattern>),
    /// Batches of plans that were good for their time.
    pool: BTreeSet<Pattern>,
    /// Least cost since the last start, and rounds since it fell.
    record: i64,
    stale: u64,
    /// Numbers of batches to start from, in turn.
    starts: Vec<u32>,
    started: usize,
    rounds: u64,
    /// Turn of annealing, and index in it; what came of each number of batches last.
    annealed: (u32, usize),
    ranking: Vec<(i64, u32)>,
}

/// Most batches that are kept for others.
const MOST_POOLED: usize = 1000;
/// Rounds of local search before many containers are annealed.
const FIRST_ROUNDS: u64 = 300;
/// Sweeps on each plateau of the first turn of annealing.
const FIRST_SWEEPS: u64 = 16;

impl<'a> Search<'a> {
    /// With the best of several greedy plans.
    pub(crate) fn new(problem: &'a Problem) -> Search<'a> {
        let mut starts = starts(problem);
        let mut tried: Vec<_> = starts.iter().map(|k| (seated(problem, *k), *k)).collect();
        tried.sort_by_key(|(seating, _)| seating.cost);
        starts = tried.iter().map(|(_, k)| *k).collect();
        let seating = tried.swap_remove(0).0;
        let best = (seating.cost, seating.batches());
        let (record, random) = (seating.cost, Sequence::new());
        Search {
            problem,
            seating,
            random,
            best,
            pool: BTreeSet::new(),
            record,
            stale: 0,
            starts,
            started: 0,
            rounds: 0,
            annealed: (0, 0),
            ranking: Vec::new(),
        }
    }

    /// The best plan so far.
    pub(crate) fn best(&self) -> Vec<Pattern> {
        self.best.1.clone()
    }

    /// Batches of good plans, for whoever puts plans together.
    pub(crate) fn pool(&self) -> &BTreeSet<Pattern> {
        &self.pool
    }

    /// Goes on from a plan that was found elsewhere, if it is better.
    pub(crate) fn offer(&mut self, plan: &[Pattern]) {
        let seating = Seating::of(self.problem, plan);
        if seating.cost < self.best.0 {
            self.best = (seating.cost, plan.to_vec());
            (self.record, self.stale) = (seating.cost, 0);
            self.seating = seating;
        }
    }

    /// Searches for as long as `work` allows, or until the bound is reached.
    pub(crate) fn run(&mut self, bound: i64, work: &mut Work<'_>) {
        let anneals = self.problem.total() > FEW && !self.problem.is_ordered();
        while self.best.0 > bound && work.step() {
            if anneals && self.rounds >= FIRST_ROUNDS {
                self.anneal(work);
                continue;
            }
            self.rounds += 1;
            self.round();
            if self.stale > self.patience() {
                self.start_again();
            }
        }
    }

    /// Rounds without a better plan after which another start is more promising.
    fn patience(&self) -> u64 {
        100 + u64::from(self.problem.total()).pow(2) / 4
    }

    /// Rounds after which every start had its turn.
    pub(crate) fn rounds_for_all_starts(&self) -> u64 {
        u64::try_from(self.starts.len()).unwrap_or(1) * (self.patience() + 50)
    }

    fn start_again(&mut self) {
        self.started = (self.started + 1) % self.starts.len();
        self.seating = seated(self.problem, self.starts[self.started]);
        (self.record, self.stale) = (self.seating.cost, 0);
        self.note();
    }

    /// One run of annealing; each run of a turn starts from another number of batches, and each turn
    /// takes twice as long, from fewer of them: those that did best.
    fn anneal(&mut self, work: &mut Work<'_>) {
        let (mut turn, mut index) = self.annealed;
        if index == 0 && turn > 0 {
            self.ranking.sort_unstable();
            self.ranking.truncate((self.ranking.len() / 2).max(1));
        } else if index == 0 {
            self.ranking = around(self.problem).into_iter().map(|k| (0, k)).collect();
        }
        let batches = self.ranking[index].1;
        let mut annealing = Annealing::new(self.problem, seated(self.problem, batches));
        'run: for _ in 0..PLATEAUS {
            for _ in 0..(FIRST_SWEEPS << turn.min(20)) {
                annealing.sweep(&mut self.random);
                if !work.step() {
                    break 'run;
                }
            }
            annealing.cool();
        }
        self.seating = annealing.seating;
        let all = self.seating.occupied.clone();
        improve(&mut self.seating, all);
        self.seating.keep();
        self.note();
        self.ranking[index].0 = self.seating.cost;
        index += 1;
        if index == self.ranking.len() {
            (turn, index) = (turn + 1, 0);
        }
        self.annealed = (turn, index);
    }

    fn round(&mut self) {
        let disturbed = disturb(&mut self.seating, &mut self.random);
        let is_whole = disturbed.is_some();
        improve(&mut self.seating, disturbed.unwrap_or_default());
        self.stale += 1;
        // A little dearer than the record is near enough to go on from; how little changes in turn.
        let little = [0, 0, 1, 0, 2, 0, 4, 1][usize::try_from(self.stale / 16 % 8).unwrap_or(0)];
        let near = self.record + self.problem.prices().0 * little;
        if !is_whole || self.seating.cost > near {
            self.seating.undo();
        } else {
            self.seating.keep();
        }
        if self.seating.cost < self.record {
            (self.record, self.stale) = (self.seating.cost, 0);
            if self.pool.len() < MOST_POOLED {
                self.pool.extend(self.seating.batches());
            }
        }
        self.note();
    }

    fn note(&mut self) {
        if self.seating.cost < self.best.0 {
            self.best = (self.seating.cost, self.seating.batches());
        }
    }
}

/// A greedy plan of about so many batches, or the earliest if nobody finds one so, improved.
fn seated(problem: &Problem, batches: u32) -> Seating<'_> {
    let mut seating = start(problem, batches);
    if !seating.is_whole() {
        seating = Seating::of(problem, &earliest(problem));
    }
    let all = seating.occupied.clone();
    improve(&mut seating, all);
    seating.keep();
    seating
}

/// Makes some containers stand up and seats them anew; returns the places that changed, or nothing
/// if somebody found no place between those it waits for and those that wait for it.
fn disturb(seating: &mut Seating<'_>, random: &mut Sequence) -> Option<Vec<usize>> {
    let mut changed = Vec::new();
    let mut standing = Vec::new();
    match random.below(2) {
        0 => stand_by_batch(seating, random, &mut standing, &mut changed),
        _ => stand_by_one(seating, random, &mut standing, &mut changed),
    }
    while !standing.is_empty() {
        let kind = standing.swap_remove(random.below(standing.len()));
        let place = cheapest(seating, kind, random)?;
        seating.enter(kind, place);
        changed.push(place);
    }
    changed.sort_unstable();
    changed.dedup();
    Some(changed)
}

/// One or two batches, or about half of them.
fn stand_by_batch(
    seating: &mut Seating<'_>,
    random: &mut Sequence,
    standing: &mut Vec<usize>,
    changed: &mut Vec<usize>,
) {
    let occupied = seating.occupied.clone();
    for _ in 0..=random.below(2) {
        let place = occupied[random.below(occupied.len())];
        let is_whole = random.below(3) > 0;
        for kind in seating.tables[place].kinds.clone() {
            for _ in 0..seating.tables[place].count[kind] {
                if is_whole || random.below(2) == 0 {
                    seating.leave(kind, place);
                    standing.push(kind);
                }
            }
        }
        changed.push(place);
    }
}

/// Two to seven containers, from anywhere.
fn stand_by_one(
    seating: &mut Seating<'_>,
    random: &mut Sequence,
    standing: &mut Vec<usize>,
    changed: &mut Vec<usize>,
) {
    for _ in 0..2 + random.below(6) {
        let Some(&place) = seating.occupied.get(random.below(seating.occupied.len())) else {
            return;
        };
        let kinds = &seating.tables[place].kinds;
        let kind = kinds[random.below(kinds.len())];
        seating.leave(kind, place);
        standing.push(kind);
        changed.push(place);
    }
}

/// Where one of a kind sits cheapest; one in eight times the second best.
fn cheapest(seating: &Seating<'_>, kind: usize, random: &mut Sequence) -> Option<usize> {
    let places = seating.occupied.iter().copied().chain(seating.opening(kind));
    let priced = places.filter_map(|p| Some((seating.price(kind, p)?, p)));
    let (mut first, mut second) = (None, None);
    for place in priced {
        if first.is_none_or(|f| place < f) {
            (first, second) = (Some(place), first);
        } else if second.is_none_or(|s| place < s) {
            second = Some(place);
        }
    }
    let chosen = if random.below(8) == 0 { second.or(first) } else { first };
    chosen.map(|c| c.1)
}

/// Moves, swaps and mergers until none of these places has one that helps.
fn improve(seating: &mut Seating<'_>, mut restless: Vec<usize>) {
    while let Some(place) = restless.pop() {
        if seating.tables[place].size == 0 {
            continue;
        }
        let changed = move_one(seating, place)
            .or_else(|| swap_one(seating, place))
            .or_else(|| merge(seating, place));
        if let Some(other) = changed {
            for p in [other, place] {
                if !restless.contains(&p) {
                    restless.push(p);
                }
            }
        }
    }
}

/// The first container here that is better off elsewhere, moved there.
fn move_one(seating: &mut Seating<'_>, place: usize) -> Option<usize> {
    for kind in seating.tables[place].kinds.clone() {
        let saving = seating.saving(kind, place);
        let others = seating.occupied.iter().copied().chain(seating.opening(kind));
        let best =
            others.filter(|p| *p != place).filter_map(|p| Some((seating.price(kind, p)?, p))).min();
        if let Some((_, to)) = best.filter(|(price, _)| *price < saving) {
            seating.leave(kind, place);
            // Its own leaving can only make room and let others start earlier.
            seating.enter(kind, to);
            return Some(to);
        }
    }
    None
}

/// The first swap with somebody elsewhere that helps, done.
fn swap_one(seating: &mut Seating<'_>, place: usize) -> Option<usize> {
    for i in 0..seating.tables[place].kinds.len() {
        let a = seating.tables[place].kinds[i];
        for j in 0..seating.occupied.len() {
            let other = seating.occupied[j];
            let found = if other == place { None } else { partner(seating, (a, place), other) };
            if found.is_some_and(|b| seating.try_swap((a, place), (b, other))) {
                return Some(other);
            }
        }
    }
    None
}

/// The kind at `other` whose swap with `a` lowers the penalties most, if one does.
fn partner(seating: &Seating<'_>, (a, place): (usize, usize), other: usize) -> Option<usize> {
    let change = |b: usize| seating.swap_change((a, place), (b, other));
    let best = seating.tables[other].kinds.iter().map(|b| (change(*b), *b)).min();
    best.filter(|(change, _)| *change < 0).map(|(_, b)| b)
}

/// Merges a batch into the first one with which it is cheaper as one than as two.
fn merge(seating: &mut Seating<'_>, place: usize) -> Option<usize> {
    let (alpha, beta) = seating.problem.prices();
    let kinds = seating.tables[place].kinds.clone();
    let others: Vec<usize> = seating.occupied.iter().copied().filter(|p| *p != place).collect();
    for other in others {
        let (here, there) = (&seating.tables[place], &seating.tables[other]);
        let cross: i64 = kinds.iter().map(|a| i64::from(here.count[*a]) * there.touch[*a]).sum();
        if here.size + there.size > seating.problem.max_batch() || alpha * cross >= beta {
            continue;
        }
        let mark = seating.mark();
        let all: Vec<(usize, usize)> = kinds
            .iter()
            .flat_map(|a| std::iter::repeat_n((*a, other), here.count[*a] as usize))
            .collect();
        all.iter().for_each(|(a, _)| seating.leave(*a, place));
        if seating.enter_all(all) {
            return Some(other);
        }
        seating.back_to(mark);
    }
    None
}
