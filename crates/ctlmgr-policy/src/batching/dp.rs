//! Dynamic programming over count vectors: exact where few kinds repeat (solvers A.3, 1).
//!
//! F(v) is the least cost of starting the containers counted in `v`: the cheapest first batch b ≤ v
//! plus F(v − b). Where the order of batches does not matter the first batch holds one of the first
//! kind that is left, which is no restriction. Where it does, a batch holds only kinds whose
//! predecessors are all gone from `v`. With deadlines there is a layer for each number of batches that
//! have started, up to the last deadline: F_k(v) = min c(b) + F_{k+1}(v − b), and no v that still holds
//! somebody whose last batch has started.

use super::problem::{Pattern, Problem};

/// Most count vectors, and most pairs of a vector and a batch, that are worth it.
const MOST_STATES: u64 = 4_000_000;
const MOST_PAIRS: u64 = 60_000_000;

/// What came of it.
pub(crate) enum Solved {
    /// An optimal plan.
    Plan(Vec<Pattern>),
    /// Nobody can start everybody in time.
    Impossible,
    /// The problem is too large for this.
    TooLarge,
}

pub(crate) fn solve(problem: &Problem) -> Solved {
    let Some(table) = Table::new(problem) else { return Solved::TooLarge };
    table.fill().batches().map_or(Solved::Impossible, Solved::Plan)
}

/// The cost of what cannot be.
const NEVER: i64 = i64::MAX;

struct Table<'a> {
    problem: &'a Problem,
    /// Place value of each kind's count in an index.
    place: Vec<usize>,
    /// Least cost of each vector, and the index of the first batch of a plan that has it, one layer
    /// after the other.
    least: Vec<i64>,
    first: Vec<u32>,
    /// Count vectors of a layer, and the last layer, which no deadline follows.
    states: usize,
    last: usize,
}

/// The batch that is being put together for one vector.
struct Draft<'a> {
    /// What is left to start.
    left: &'a [u32],
    /// What comes after it.
    then: &'a [i64],
    size: u32,
    used: Vec<u64>,
    /// Penalty of one more of each kind with what is in already.
    marginal: Vec<i64>,
    cost: i64,
    index: usize,
    /// The cheapest plan so far, and its first batch.
    best: (i64, usize),
}

impl<'a> Table<'a> {
    fn new(problem: &'a Problem) -> Option<Table<'a>> {
        let (mut states, mut pairs) = (1_u64, 1_u64);
        let mut place = Vec::new();
        for kind in problem.kinds() {
            let (m, chosen) =
                (u64::from(kind.count), u64::from(kind.count.min(problem.max_batch())));
            place.push(usize::try_from(states).ok()?);
            states = states.checked_mul(m + 1)?;
            // Σ over v ≤ m of the number of b ≤ min(v, φ).
            let per_kind = (chosen + 1) * (chosen + 2) / 2 + (m - chosen) * (chosen + 1);
            pairs = pairs.checked_mul(per_kind)?;
        }
        let last = problem.horizon();
        let all = states.checked_mul(u64::from(last) + 1)?;
        if all > MOST_STATES || pairs.checked_mul(u64::from(last) + 1)? > MOST_PAIRS {
            return None;
        }
        let (states, all) = (usize::try_from(states).ok()?, usize::try_from(all).ok()?);
        let (least, first, last) = (vec![0; all], vec![0; all], last as usize);
        Some(Table { problem, place, least, first, states, last })
    }

    /// The costs of one layer.
    fn layer(&self, layer: usize) -> &[i64] {
        &self.least[layer * self.states..(layer + 1) * self.states]
    }

    fn fill(mut self) -> Self {
        for layer in (0..=self.last).rev() {
            let mut left = vec![0; self.place.len()];
            for index in 1..self.states {
                self.count_up(&mut left);
                let best = self.best(&left, layer, index);
                self.least[layer * self.states + index] = best.0;
                // An index is below four million.
                self.first[layer * self.states + index] = u32::try_from(best.1).unwrap_or(u32::MAX);
            }
        }
        self
    }

    /// The next vector, in the order of indices.
    fn count_up(&self, left: &mut [u32]) {
        for (count, kind) in left.iter_mut().zip(self.problem.kinds()) {
            if *count < kind.count {
                *count += 1;
                return;
            }
            *count = 0;
        }
    }

    fn best(&self, left: &[u32], layer: usize, index: usize) -> (i64, usize) {
        let kinds = left.len();
        let is_late = |a: usize| left[a] > 0 && self.problem.latest(a) as usize <= layer;
        if (0..kinds).any(is_late) {
            return (NEVER, 0);
        }
        let mut draft = Draft {
            left,
            then: self.layer((layer + 1).min(self.last)),
            size: 0,
            used: vec![0; self.problem.capacities().len()],
            marginal: vec![0; kinds],
            cost: self.problem.prices().1,
            index: 0,
            best: (NEVER, 0),
        };
        let first = left.iter().rposition(|c| *c > 0).unwrap_or(0);
        let least = u32::from(!self.problem.is_ordered());
        self.extend(&mut draft, first, least, index);
        draft.best
    }

    /// Adds every number of kind `a`, at least `least`, and then of the kinds before it.
    fn extend(&self, draft: &mut Draft<'_>, a: usize, least: u32, index: usize) {
        let kind = &self.problem.kinds()[a];
        let is_free = kind.after.iter().all(|p| draft.left[*p] == 0);
        let room = self.problem.room(a, draft.size, &draft.used).min(draft.left[a]);
        let most = if is_free { room } else { 0 };
        let alpha = self.problem.prices().0;
        let mut added = 0;
        for count in 0..=most {
            if count > 0 {
                draft.cost += alpha * draft.marginal[a];
                self.put(draft, a, 1);
                added = count;
            }
            // Costs only grow from here, and nothing that is left costs less than nothing.
            if draft.cost >= draft.best.0 {
                break;
            }
            if count < least {
                continue;
            }
            match a {
                0 if draft.index > 0 => {
                    let cost = draft.cost.saturating_add(draft.then[index - draft.index]);
                    if cost < draft.best.0 {
                        draft.best = (cost, draft.index);
                    }
                }
                0 => {}
                _ => self.extend(draft, a - 1, 0, index),
            }
        }
        for _ in 0..added {
            self.put(draft, a, -1);
            draft.cost -= alpha * draft.marginal[a];
        }
    }

    /// Puts one of kind `a` in, or takes it out.
    fn put(&self, draft: &mut Draft<'_>, a: usize, sign: i64) {
        let kind = &self.problem.kinds()[a];
        for (used, each) in draft.used.iter_mut().zip(&kind.uses) {
            *used = if sign > 0 { *used + each } else { *used - each };
        }
        for (b, marginal) in draft.marginal.iter_mut().enumerate().take(a + 1) {
            *marginal += sign * self.problem.between(a, b);
        }
        if sign > 0 {
            draft.size += 1;
            draft.index += self.place[a];
        } else {
            draft.size -= 1;
            draft.index -= self.place[a];
        }
    }

    /// `None` if there is no plan.
    fn batches(&self) -> Option<Vec<Pattern>> {
        let mut batches = Vec::new();
        let (mut layer, mut index) = (0, self.states - 1);
        while index > 0 {
            if self.layer(layer)[index] == NEVER {
                return None;
            }
            let first = self.first[layer * self.states + index] as usize;
            batches.push(self.pattern(first));
            index -= first;
            layer = (layer + 1).min(self.last);
        }
        Some(batches)
    }

    fn pattern(&self, index: usize) -> Pattern {
        let digit = |(place, kind): (&usize, &super::problem::Kind)| {
            let digit = index / place % (kind.count as usize + 1);
            u32::try_from(digit).unwrap_or(u32::MAX)
        };
        self.place.iter().zip(self.problem.kinds()).map(digit).collect()
    }
}
