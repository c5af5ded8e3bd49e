//! Local search: a good plan at once, better ones for as long as there is time (solvers A.6).
//!
//! Start from the best of several greedy plans, one for each of a few numbers of batches around the
//! square-root law √(N · w_p / w_z). Then, again and again: empty a few batches, seat those
//! containers anew where they are cheapest, improve by single moves, swaps and mergers until nothing
//! helps, and keep the result if it is no dearer. Deterministic: the only randomness is a fixed
//! sequence.

use super::Work;
use super::problem::{Pattern, Problem};
use super::seating::Seating;

/// A fixed sequence of numbers without pattern (splitmix64).
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let end = u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from((z ^ (z >> 31)) % end).unwrap_or(0)
    }
}

/// A search that can go on.
pub(crate) struct Search<'a> {
    seating: Seating<'a>,
    random: Sequence,
    best: (i64, Vec<Pattern>),
}

impl<'a> Search<'a> {
    /// With a greedy plan.
    pub(crate) fn new(problem: &'a Problem) -> Search<'a> {
        let seating = best_start(problem);
        let best = (seating.cost, seating.batches());
        Search { seating, random: Sequence(1), best }
    }

    /// The best plan so far.
    pub(crate) fn best(&self) -> Vec<Pattern> {
        self.best.1.clone()
    }

    /// Goes on from a plan that was found elsewhere, if it is better.
    pub(crate) fn offer(&mut self, plan: &[Pattern]) {
        let seating = Seating::of(self.seating.problem, plan);
        if seating.cost < self.best.0 {
            self.best = (seating.cost, plan.to_vec());
            self.seating = seating;
        }
    }

    /// Searches for as long as `work` allows.
    pub(crate) fn run(&mut self, work: &mut Work<'_>) {
        while work.step() {
            self.round();
        }
    }

    fn round(&mut self) {
        let seating = &mut self.seating;
        let before = seating.cost;
        let disturbed = disturb(seating, &mut self.random);
        let is_whole = disturbed.is_some();
        improve(seating, disturbed.unwrap_or_default());
        if !is_whole || seating.cost > before {
            seating.undo();
        } else {
            seating.keep();
        }
        if seating.cost < self.best.0 {
            self.best = (seating.cost, seating.batches());
        }
    }
}

/// Greedy plans for several numbers of batches; the cheapest of them, improved.
fn best_start(problem: &Problem) -> Seating<'_> {
    let seat = |batches: u32| {
        let mut seating = start(problem, batches);
        let all = seating.occupied();
        improve(&mut seating, all);
        seating.keep();
        seating
    };
    let tried = starts(problem).into_iter().map(seat);
    tried.min_by_key(|s| s.cost).unwrap_or_else(|| seat(1))
}

/// Numbers of batches to start from.
fn starts(problem: &Problem) -> Vec<u32> {
    let total = problem.total();
    let (alpha, beta) = problem.prices();
    // K batches of even mixture cost α · Σs / K + β · K: least at K = √(α · Σs / β).
    let everyone: Pattern = problem.kinds().iter().map(|k| k.count).collect();
    let ratio =
        i128::from(alpha) * i128::from(problem.penalty(&everyone)) / i128::from(beta.max(1));
    let law = u32::try_from(ratio.max(1).isqrt()).unwrap_or(u32::MAX).min(total);
    let fewest = total.div_ceil(problem.max_batch().max(1)).max(1);
    let mut numbers: Vec<u32> =
        [5, 7, 10, 14].map(|tenths| (law * tenths / 10).clamp(fewest, total.max(1))).to_vec();
    numbers.extend([fewest, (fewest + 1).min(total.max(1))]);
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Seats everybody, where it is cheapest among the first so many places that hold or may hold a
/// batch; the smaller batch where it costs the same.
fn start(problem: &Problem, batches: u32) -> Seating<'_> {
    let mut seating = Seating::new(problem);
    let mut open: Vec<usize> = Vec::new();
    for kind in in_order(problem) {
        for _ in 0..problem.kinds()[kind].count {
            let may_open = open.len() < batches as usize;
            let seat = open
                .iter()
                .filter_map(|p| Some((seating.price(kind, *p)?, seating.tables[*p].size, *p)))
                .min();
            let place = match seat {
                Some((0, _, place)) => Some(place),
                Some(_) if may_open => seating.opening(kind).or(seat.map(|s| s.2)),
                Some((_, _, place)) => Some(place),
                None => seating.opening(kind),
            };
            // Alone it fits: the problem was checked. An ordered one may have no place left.
            let Some(place) = place else { continue };
            if !open.contains(&place) {
                open.push(place);
            }
            seating.enter(kind, place);
        }
    }
    seating
}

/// Kinds, predecessors first, and otherwise those that conflict most first.
fn in_order(problem: &Problem) -> Vec<usize> {
    let kinds = problem.kinds();
    let conflict = |a: usize| -> i64 {
        (0..kinds.len()).map(|b| problem.between(a, b) * i64::from(kinds[b].count)).sum()
    };
    let mut left: Vec<usize> = (0..kinds.len()).collect();
    left.sort_by_key(|a| (std::cmp::Reverse(conflict(*a)), *a));
    let mut order = Vec::new();
    while let Some(i) = left.iter().position(|a| kinds[*a].after.iter().all(|p| order.contains(p)))
    {
        order.push(left.remove(i));
    }
    order
}

/// Empties one to three batches, or parts of them, and seats who sat there anew; returns the places
/// that changed, or nothing if somebody found no place between those it waits for and those that
/// wait for it.
fn disturb(seating: &mut Seating<'_>, random: &mut Sequence) -> Option<Vec<usize>> {
    let occupied = seating.occupied();
    let mut changed = Vec::new();
    let mut standing = Vec::new();
    for _ in 0..=random.below(3) {
        let place = occupied[random.below(occupied.len())];
        let whole = random.below(3) > 0;
        for kind in seating.kinds_at(place) {
            for _ in 0..seating.tables[place].count[kind] {
                if whole || random.below(2) == 0 {
                    seating.leave(kind, place);
                    standing.push(kind);
                }
            }
        }
        changed.push(place);
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

/// Where one of a kind sits cheapest; one in eight times the second best.
fn cheapest(seating: &Seating<'_>, kind: usize, random: &mut Sequence) -> Option<usize> {
    let mut places: Vec<(i64, usize)> = seating
        .occupied()
        .into_iter()
        .chain(seating.opening(kind))
        .filter_map(|p| Some((seating.price(kind, p)?, p)))
        .collect();
    places.sort_unstable();
    let second = usize::from(places.len() > 1 && random.below(8) == 0);
    places.get(second).map(|p| p.1)
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
    for kind in seating.kinds_at(place) {
        let saving = seating.saving(kind, place);
        let others = seating.occupied().into_iter().chain(seating.opening(kind));
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
    let problem = seating.problem;
    for a in seating.kinds_at(place) {
        for other in seating.occupied().into_iter().filter(|p| *p != place) {
            for b in seating.kinds_at(other) {
                let here = &seating.tables[place].touch;
                let there = &seating.tables[other].touch;
                let (own_a, own_b) = (problem.between(a, a), problem.between(b, b));
                let cross = problem.between(a, b);
                let change =
                    there[a] - cross - (here[a] - own_a) + here[b] - cross - (there[b] - own_b);
                if change < 0 && try_swap(seating, (a, place), (b, other)) {
                    return Some(other);
                }
            }
        }
    }
    None
}

/// Swaps, if both fit and it helps.
fn try_swap(
    seating: &mut Seating<'_>,
    (a, here): (usize, usize),
    (b, there): (usize, usize),
) -> bool {
    let (mark, before) = (seating.mark(), seating.cost);
    seating.leave(a, here);
    seating.leave(b, there);
    let is_seated = enter_all(seating, [(a, there), (b, here)]);
    let helps = is_seated && seating.cost < before;
    if !helps {
        seating.back_to(mark);
    }
    helps
}

/// Seats each at its place; `false` as soon as one may not sit there.
fn enter_all(seating: &mut Seating<'_>, all: impl IntoIterator<Item = (usize, usize)>) -> bool {
    all.into_iter().all(|(kind, place)| {
        let may = seating.price(kind, place).is_some();
        if may {
            seating.enter(kind, place);
        }
        may
    })
}

/// Merges a batch into the first one with which it is cheaper as one than as two.
fn merge(seating: &mut Seating<'_>, place: usize) -> Option<usize> {
    let (alpha, beta) = seating.problem.prices();
    let kinds = seating.kinds_at(place);
    for other in seating.occupied().into_iter().filter(|p| *p != place) {
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
        if enter_all(seating, all) {
            return Some(other);
        }
        seating.back_to(mark);
    }
    None
}
