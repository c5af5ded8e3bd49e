//! What is to be divided into batches, in exact integers.

use std::collections::BTreeSet;

use super::precedence;

/// Containers that do not differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kind {
    /// How many there are.
    pub count: u32,
    /// What each uses of each capacity, in the capacity's own unit.
    pub uses: Vec<u64>,
    /// Kinds that must all have started in earlier batches.
    pub after: Vec<usize>,
    /// Number of the batch in which they start at the latest; the first is 1.
    pub deadline: Option<u32>,
    /// Of orders that cost the same, one in which more weight starts earlier; any unit.
    pub weight: u64,
}

/// An instance of the batching problem.
///
/// Penalties and the weights of the two objectives are integers: whoever makes a problem from
/// decimals multiplies them by one factor first, which changes no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    kinds: Vec<Kind>,
    penalty: Vec<Vec<i64>>,
    max_batch: u32,
    capacities: Vec<u64>,
    weights: (i64, i64),
    total: u32,
    is_ordered: bool,
    /// In which batch each kind starts at the latest, for its own sake and for those that wait for it.
    latest: Vec<u32>,
    /// Of each kind those that it waits for and that wait for it, through however many; empty without order.
    apart: Vec<BTreeSet<usize>>,
    alpha: i64,
    beta: i64,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Infeasible {
    /// One container alone exceeds a capacity.
    #[error("a container of kind {kind} needs more than there is of capacity {capacity}")]
    TooLarge {
        /// Index of the kind.
        kind: usize,
        /// Index of the capacity.
        capacity: usize,
    },
    /// Dependencies go round in a circle.
    #[error("kind {kind} waits for itself")]
    Cycle {
        /// Index of a kind on the circle.
        kind: usize,
    },
    /// No plan is known, or possible, that starts everybody in time.
    #[error("no plan was found that starts kind {kind} by its deadline")]
    TooLate {
        /// Index of a kind that is late.
        kind: usize,
    },
    /// The largest batch is zero.
    #[error("a batch must hold at least one container")]
    NoRoom,
    /// Figures beyond what exact arithmetic holds.
    #[error("penalties, weights and counts are too large to be added up")]
    Overflow,
}

/// Number of containers of each kind in one batch.
pub type Pattern = Vec<u32>;

impl Problem {
    /// A problem of these kinds.
    ///
    /// `penalty[a][b]` is Eq. 2's S between a container of kind `a` and one of kind `b`, symmetric
    /// and not negative; `penalty[a][a]` between two of the same kind. `weights` are those of penalty
    /// and number of batches in Eq. 3, positive or zero.
    ///
    /// # Errors
    /// No division can meet the constraints.
    pub fn new(
        kinds: Vec<Kind>,
        penalty: Vec<Vec<i64>>,
        max_batch: Option<u32>,
        capacities: Vec<u64>,
        weights: (i64, i64),
    ) -> Result<Problem, Infeasible> {
        let total: u64 = kinds.iter().map(|k| u64::from(k.count)).sum();
        let total = u32::try_from(total).map_err(|_| Infeasible::Overflow)?;
        let max_batch = max_batch.unwrap_or(total).min(total);
        if max_batch == 0 && total > 0 {
            return Err(Infeasible::NoRoom);
        }
        for (kind, k) in kinds.iter().enumerate() {
            let over = k.uses.iter().zip(&capacities).position(|(need, have)| need > have);
            if let (Some(capacity), true) = (over, k.count > 0) {
                return Err(Infeasible::TooLarge { kind, capacity });
            }
        }
        let is_ordered = kinds.iter().any(|k| !k.after.is_empty() || k.deadline.is_some());
        let mut problem = Problem {
            kinds,
            penalty,
            max_batch,
            capacities,
            weights,
            total,
            is_ordered,
            latest: Vec::new(),
            apart: Vec::new(),
            alpha: 0,
            beta: 0,
        };
        precedence::expect_order(&problem.kinds)?;
        problem.latest = precedence::latest(&problem.kinds)?;
        if is_ordered {
            problem.apart = precedence::apart(&problem.kinds);
        }
        problem.drop_unused();
        problem.scale().ok_or(Infeasible::Overflow)?;
        Ok(problem)
    }

    /// What no plan can have: a second container of a kind that has one, and a batch larger than the
    /// capacities allow.
    fn drop_unused(&mut self) {
        for (a, _) in self.kinds.iter().enumerate().filter(|(_, k)| k.count < 2) {
            self.penalty[a][a] = 0;
        }
        for (r, have) in self.capacities.iter().enumerate() {
            let mut by_use: Vec<_> = self.kinds.iter().map(|k| (k.uses[r], k.count)).collect();
            by_use.sort_unstable();
            let (mut free, mut fit) = (*have, 0);
            for (each, count) in by_use {
                let more = free
                    .checked_div(each)
                    .map_or(count, |n| count.min(u32::try_from(n).unwrap_or(u32::MAX)));
                fit += more;
                free -= each * u64::from(more);
                if more < count {
                    break;
                }
            }
            self.max_batch = self.max_batch.min(fit);
        }
    }

    /// Weights of penalty and batches in the integer cost (see [`Problem::cost`]); `None` if they
    /// do not fit.
    fn scale(&mut self) -> Option<()> {
        let all: Pattern = self.kinds.iter().map(|k| k.count).collect();
        let n = i64::from(self.total());
        let most = self.checked_penalty(&all)?;
        self.alpha = self.weights.0.checked_mul((n - 1).max(1))?;
        self.beta = self.weights.1.checked_mul(most.max(1))?;
        // The dearest of all plans must fit, with room to add.
        let worst =
            i128::from(self.alpha) * i128::from(most) + i128::from(self.beta) * i128::from(n);
        (worst < i128::from(i64::MAX / 4)).then_some(())
    }

    /// Prices a batch as `whole` does, of which this is a part, so that what both cost can be added up; `false` if that is
    /// more than exact arithmetic holds.
    pub fn price_as(&mut self, whole: &Problem) -> bool {
        (self.alpha, self.beta) = whole.prices();
        let all: Pattern = self.kinds.iter().map(|k| k.count).collect();
        let worst = i128::from(self.alpha) * i128::from(self.penalty(&all))
            + i128::from(self.beta) * i128::from(self.total);
        worst < i128::from(i64::MAX / 4)
    }

    fn checked_penalty(&self, batch: &[u32]) -> Option<i64> {
        let mut sum: i128 = 0;
        for (a, x) in batch.iter().enumerate() {
            let x = i128::from(*x);
            sum += i128::from(self.penalty[a][a]) * x * (x - 1).max(0) / 2;
            for (b, y) in batch.iter().enumerate().skip(a + 1) {
                sum += i128::from(self.penalty[a][b]) * x * i128::from(*y);
            }
        }
        i64::try_from(sum).ok()
    }

    /// The same with each kind in one of some classes, whose members are as mild as any two of them and use as
    /// little as any; priced as here, and in no order. `class` names no number without those below it.
    pub(crate) fn merged(&self, class: &[usize]) -> Problem {
        let classes = class.iter().max().map_or(0, |last| last + 1);
        let mut penalty = vec![vec![i64::MAX; classes]; classes];
        for (a, x) in class.iter().enumerate() {
            for (b, y) in class.iter().enumerate() {
                if a != b || self.kinds[a].count > 1 {
                    penalty[*x][*y] = penalty[*x][*y].min(self.penalty[a][b]);
                }
            }
        }
        // Of one alone there is no second.
        penalty.iter_mut().flatten().filter(|s| **s == i64::MAX).for_each(|s| *s = 0);
        let members =
            |x: usize| (0..class.len()).filter(move |a| class[*a] == x).map(|a| &self.kinds[a]);
        let least = |x: usize, r: usize| members(x).map(|k| k.uses[r]).min().unwrap_or(0);
        let kind = |x: usize| Kind {
            count: members(x).map(|k| k.count).sum(),
            uses: (0..self.capacities.len()).map(|r| least(x, r)).collect(),
            ..Kind::default()
        };
        Problem {
            kinds: (0..classes).map(kind).collect(),
            penalty,
            latest: vec![u32::MAX; classes],
            apart: Vec::new(),
            is_ordered: false,
            capacities: self.capacities.clone(),
            ..*self
        }
    }

    /// In which batch a kind starts at the latest, counted from 1; `u32::MAX` if it may be any.
    pub fn latest(&self, kind: usize) -> u32 {
        self.latest[kind]
    }

    /// The last batch by which anybody must start; 0 if nobody must.
    pub(crate) fn horizon(&self) -> u32 {
        let all = self.latest.iter().filter(|l| **l < u32::MAX);
        all.max().copied().unwrap_or(0).min(self.total)
    }

    /// The kinds.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// How many containers there are.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// No plan has fewer batches: by size, by each capacity, and by the longest chain of kinds that
    /// wait for each other.
    pub fn fewest_batches(&self) -> u32 {
        let by_size = self.total.div_ceil(self.max_batch.max(1));
        let by_use =
            self.capacities.iter().enumerate().filter(|(_, have)| **have > 0).map(|(r, have)| {
                let need: u128 =
                    self.kinds.iter().map(|k| u128::from(k.uses[r]) * u128::from(k.count)).sum();
                u32::try_from(need.div_ceil(u128::from(*have))).unwrap_or(u32::MAX)
            });
        let mut depth = vec![1; self.kinds.len()];
        for _ in 0..self.kinds.len() {
            for (a, kind) in self.kinds.iter().enumerate() {
                let above = kind.after.iter().map(|p| depth[*p] + 1).max().unwrap_or(1);
                depth[a] = depth[a].max(above);
            }
        }
        by_use.chain(depth).max().unwrap_or(0).max(by_size)
    }

    /// Most containers in one batch.
    pub fn max_batch(&self) -> u32 {
        self.max_batch
    }

    /// Penalty between a container of kind `a` and one of kind `b`.
    pub fn between(&self, a: usize, b: usize) -> i64 {
        self.penalty[a][b]
    }

    /// Price of one unit of penalty, and of one batch, in the integer cost.
    pub fn prices(&self) -> (i64, i64) {
        (self.alpha, self.beta)
    }

    /// Whether two kinds cannot be in one batch, because one waits for the other, through however many.
    pub(crate) fn are_apart(&self, a: usize, b: usize) -> bool {
        self.apart.get(a).is_some_and(|others| others.contains(&b))
    }

    /// Whether some kind waits for another.
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Penalties between a container of kind `a` and one of each kind.
    pub fn row(&self, a: usize) -> &[i64] {
        &self.penalty[a]
    }

    /// Penalty within one batch (Eq. 2: over unordered pairs).
    pub fn penalty(&self, batch: &[u32]) -> i64 {
        let mut sum = 0;
        for (a, x) in batch.iter().enumerate().filter(|(_, x)| **x > 0) {
            let x = i64::from(*x);
            sum += self.penalty[a][a] * x * (x - 1) / 2;
            for (b, y) in batch.iter().enumerate().skip(a + 1).filter(|(_, y)| **y > 0) {
                sum += self.penalty[a][b] * x * i64::from(*y);
            }
        }
        sum
    }

    /// Integer cost of one batch; a plan's cost is the sum over its batches. To minimise it is to
    /// maximise Eq. 3 (solvers A.1).
    pub fn cost(&self, batch: &[u32]) -> i64 {
        self.alpha * self.penalty(batch) + self.beta
    }

    /// Whether a batch is small enough and within every capacity (C2, C3).
    pub fn fits(&self, batch: &[u32]) -> bool {
        let size: u32 = batch.iter().sum();
        let is_within = |(r, have): (usize, &u64)| {
            let need: u64 =
                batch.iter().zip(&self.kinds).map(|(x, k)| u64::from(*x) * k.uses[r]).sum();
            need <= *have
        };
        size <= self.max_batch && self.capacities.iter().enumerate().all(is_within)
    }

    /// How many more of a kind fit into a batch of this size and use.
    pub(crate) fn room(&self, kind: usize, size: u32, used: &[u64]) -> u32 {
        let uses = &self.kinds[kind].uses;
        let by_capacity = self.capacities.iter().zip(used).zip(uses).map(|((have, used), each)| {
            let free = have.saturating_sub(*used);
            free.checked_div(*each).map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX))
        });
        by_capacity.min().unwrap_or(u32::MAX).min(self.max_batch - size.min(self.max_batch))
    }

    /// Capacities that a batch may use up.
    pub fn capacities(&self) -> &[u64] {
        &self.capacities
    }

    /// Eq. 3 for an integer cost, in units of the weights; larger is better. A term whose largest
    /// value equals its least counts as 1.
    #[expect(clippy::cast_precision_loss, reason = "a figure to show")]
    pub fn objective(&self, cost: i64) -> f64 {
        let (penalty, batches) = (self.weights.0 as f64, self.weights.1 as f64);
        let n = i64::from(self.total());
        if n <= 1 {
            return penalty + batches;
        }
        let above_least = (cost - self.beta) as f64;
        let all: Pattern = self.kinds.iter().map(|k| k.count).collect();
        let most = self.penalty(&all).max(1) as f64;
        penalty + batches - above_least / (most * (n - 1) as f64)
    }

    /// Whether `batches` start every container once, in batches that fit, none before what it waits
    /// for (C1–C3), and all in time.
    pub fn is_plan(&self, batches: &[Pattern]) -> bool {
        let is_complete = self
            .kinds
            .iter()
            .enumerate()
            .all(|(a, kind)| batches.iter().map(|b| b[a]).sum::<u32>() == kind.count);
        let holds = |a: usize| move |b: &Pattern| b[a] > 0;
        let waits = |a: usize, p: usize| {
            let first = batches.iter().position(holds(a));
            let last = batches.iter().rposition(holds(p));
            first.zip(last).is_none_or(|(first, last)| last < first)
        };
        let is_in_order =
            self.kinds.iter().enumerate().all(|(a, kind)| kind.after.iter().all(|p| waits(a, *p)));
        let is_in_time = (0..self.kinds.len()).all(|a| {
            let last = batches.iter().rposition(holds(a));
            last.is_none_or(|last| last < self.latest[a] as usize)
        });
        is_complete && is_in_order && is_in_time && batches.iter().all(|b| self.fits(b))
    }
}
