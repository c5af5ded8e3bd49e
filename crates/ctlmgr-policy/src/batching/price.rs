//! Patterns by their reduced cost: what a batch costs beyond what its containers pay for.
//!
//! With a price for each container and one for each batch, rc(b) = c(b) − Σ π_a b_a − μ. Depth-first
//! over kinds. Below a node nothing is cheaper than its value plus the least that the kinds left can
//! add: for each kind the least of α s_aa x (x − 1) / 2 + g_a x over x, where g_a is what one of them
//! adds now, and of these no more than there is room for; where no kind repeats, the least over t of
//! the t smallest g_i + α/2 · σ_i(t − 1), with σ_i(k) the sum of the k smallest penalties of i among
//! those that could still pay for themselves.

use super::problem::{Pattern, Problem};

/// What containers of each kind, and each batch, pay; in units of the integer cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prices {
    pub kinds: Vec<i64>,
    pub batch: i64,
}

/// How long one walk may take.
pub(crate) struct Effort<'a> {
    pub nodes: u64,
    pub is_over: &'a dyn Fn() -> bool,
}

/// Patterns that were found.
#[derive(Debug)]
pub(crate) struct Found {
    /// With their reduced costs.
    pub patterns: Vec<(i64, Pattern)>,
    /// Whether nothing was left out.
    pub is_complete: bool,
    /// Nodes that were visited.
    pub nodes: u64,
}

/// What is looked for.
#[derive(Clone, Copy)]
enum Want {
    /// Ever cheaper ones, down to the cheapest.
    Cheapest,
    /// All below a limit, up to so many.
    All(usize),
}

struct Walk<'a> {
    problem: &'a Problem,
    prices: &'a Prices,
    want: Want,
    /// Only what is cheaper than this counts.
    limit: i64,
    effort: Effort<'a>,
    /// Of each kind the others, mildest first; only where none repeats.
    mildest: Option<Vec<Vec<usize>>>,
    count: Pattern,
    size: u32,
    used: Vec<u64>,
    touch: Vec<i64>,
    found: Found,
}

/// Nodes between two looks at the clock.
const LOOK: u64 = 1024;

/// The cheapest pattern, last, and what was cheapest on the way there; not empty.
pub(crate) fn cheapest(problem: &Problem, prices: &Prices, effort: Effort<'_>) -> Found {
    let mut found = walk(problem, prices, (Want::Cheapest, i64::MAX), effort);
    // The walk takes nobody who does not pay for itself, so it may have found only the empty batch cheap. Of more
    // than one there is always one that can go without making it dearer.
    let alone = |a: usize| {
        let pattern = (0..prices.kinds.len()).map(|b| u32::from(a == b)).collect();
        (problem.prices().1 - prices.batch - prices.kinds[a], pattern)
    };
    let single = (0..prices.kinds.len()).filter(|a| problem.kinds()[*a].count > 0).map(alone).min();
    let best = found.patterns.last().map(|(r, _)| *r);
    found.patterns.extend(single.filter(|(r, _)| best.is_none_or(|best| *r < best)));
    found
}

/// Every pattern cheaper than `limit`.
pub(crate) fn all_below(
    problem: &Problem,
    prices: &Prices,
    (limit, most): (i64, usize),
    effort: Effort<'_>,
) -> Found {
    walk(problem, prices, (Want::All(most), limit), effort)
}

fn walk(
    problem: &Problem,
    prices: &Prices,
    (want, limit): (Want, i64),
    effort: Effort<'_>,
) -> Found {
    let kinds = problem.kinds().len();
    let mut walk = Walk {
        problem,
        prices,
        want,
        limit,
        effort,
        mildest: mildest(problem),
        count: vec![0; kinds],
        size: 0,
        used: vec![0; problem.capacities().len()],
        touch: vec![0; kinds],
        found: Found { patterns: Vec::new(), is_complete: true, nodes: 0 },
    };
    let mut order: Vec<usize> = (0..kinds).collect();
    // Who pays most is decided first.
    order.sort_by_key(|a| (std::cmp::Reverse(prices.kinds[*a]), *a));
    walk.descend(&order, problem.prices().1 - prices.batch);
    walk.found
}

fn mildest(problem: &Problem) -> Option<Vec<Vec<usize>>> {
    let kinds = problem.kinds();
    if kinds.iter().any(|k| k.count > 1) {
        return None;
    }
    let of = |a: usize| {
        let mut others: Vec<usize> = (0..kinds.len()).filter(|b| *b != a).collect();
        others.sort_by_key(|b| (problem.between(a, *b), *b));
        others
    };
    Some((0..kinds.len()).map(of).collect())
}

impl Walk<'_> {
    fn descend(&mut self, left: &[usize], value: i64) {
        let nodes = self.found.nodes;
        let is_late = nodes.is_multiple_of(LOOK) && (self.effort.is_over)();
        if nodes >= self.effort.nodes || is_late || !self.found.is_complete {
            self.found.is_complete = false;
            return;
        }
        self.found.nodes += 1;
        if value.saturating_add(self.least(left)) >= self.limit {
            return;
        }
        match self.want {
            Want::Cheapest => {
                let mut left = self.worthwhile(left);
                let Some(a) = left.pop() else { return self.take(value) };
                self.branch(a, &left, value);
            }
            Want::All(_) => match left.split_first() {
                Some((a, rest)) => self.branch(*a, rest, value),
                None => self.take(value),
            },
        }
    }

    /// Kinds of which one more still pays for itself, which only gets dearer; the cheapest last.
    fn worthwhile(&self, left: &[usize]) -> Vec<usize> {
        let pays = |a: &usize| self.marginal(*a) < 0 && self.room(*a) > 0;
        let mut left: Vec<usize> = left.iter().copied().filter(pays).collect();
        left.sort_by_key(|a| (std::cmp::Reverse(self.marginal(*a)), *a));
        left
    }

    /// Every number of kind `a`, and then of those left. From many to few: dear kinds pay for
    /// themselves, so good patterns come early.
    fn branch(&mut self, a: usize, rest: &[usize], mut value: i64) {
        let mut values = vec![value];
        for _ in 0..self.room(a) {
            if matches!(self.want, Want::Cheapest) && self.marginal(a) >= 0 {
                break;
            }
            value += self.marginal(a);
            values.push(value);
            self.put(a, 1);
        }
        for (count, value) in values.iter().enumerate().rev() {
            self.descend(rest, *value);
            if count > 0 {
                self.put(a, -1);
            }
        }
    }

    fn take(&mut self, value: i64) {
        if self.size == 0 {
            return;
        }
        self.found.patterns.push((value, self.count.clone()));
        match self.want {
            Want::Cheapest => self.limit = value,
            Want::All(most) => self.found.is_complete = self.found.patterns.len() <= most,
        }
    }

    fn room(&self, a: usize) -> u32 {
        // Nobody starts in the same batch as one it waits for.
        let is_in = |b: usize| self.count[b] > 0 && self.problem.are_apart(a, b);
        if self.problem.is_ordered() && (0..self.count.len()).any(is_in) {
            return 0;
        }
        self.problem.room(a, self.size, &self.used).min(self.problem.kinds()[a].count)
    }

    /// What one more of a kind adds.
    fn marginal(&self, a: usize) -> i64 {
        self.problem.prices().0 * self.touch[a] - self.prices.kinds[a]
    }

    /// Least that the kinds left can add.
    fn least(&self, left: &[usize]) -> i64 {
        match &self.mildest {
            Some(mildest) => self.least_of_singles(left, mildest),
            None => self.least_of_kinds(left),
        }
    }

    fn least_of_kinds(&self, left: &[usize]) -> i64 {
        let alpha = self.problem.prices().0;
        let free = self.problem.max_batch().saturating_sub(self.size) as usize;
        let mut gains: Vec<i64> = Vec::with_capacity(left.len());
        for &a in left {
            let own = alpha * self.problem.between(a, a);
            let mut gain = self.marginal(a);
            for _ in 0..self.room(a) {
                if gain >= 0 {
                    break;
                }
                gains.push(gain);
                gain += own;
            }
        }
        if gains.len() > free {
            gains.select_nth_unstable(free);
            gains.truncate(free);
        }
        gains.iter().sum()
    }

    fn least_of_singles(&self, left: &[usize], mildest: &[Vec<usize>]) -> i64 {
        let alpha = self.problem.prices().0;
        let free = self.problem.max_batch().saturating_sub(self.size) as usize;
        let could: Vec<usize> =
            left.iter().copied().filter(|a| self.marginal(*a) < 0 && self.room(*a) > 0).collect();
        let most = could.len().min(free);
        let mut is_in = vec![false; self.count.len()];
        could.iter().for_each(|a| is_in[*a] = true);
        // Twice what each adds, alone, with one peer, with two, …
        let mut adds: Vec<(i64, Vec<i64>)> = Vec::with_capacity(could.len());
        for &a in &could {
            let peers = mildest[a].iter().filter(|b| is_in[**b]).take(most.saturating_sub(1));
            let mut sum = 2 * self.marginal(a);
            let mut with = vec![sum];
            with.extend(peers.map(|b| {
                sum += alpha * self.problem.between(a, *b);
                sum
            }));
            adds.push((0, with));
        }
        let mut least = 0;
        for t in 1..=most {
            adds.iter_mut().for_each(|(now, with)| *now = with[t - 1]);
            if t < adds.len() {
                adds.select_nth_unstable_by_key(t, |(now, _)| *now);
            }
            least = least.min(adds[..t].iter().map(|(now, _)| *now).sum());
        }
        least.div_euclid(2)
    }

    fn put(&mut self, a: usize, sign: i64) {
        let row = self.problem.row(a);
        self.touch.iter_mut().zip(row).for_each(|(touch, s)| *touch += sign * s);
        for (used, each) in self.used.iter_mut().zip(&self.problem.kinds()[a].uses) {
            *used = if sign > 0 { *used + each } else { *used - each };
        }
        if sign > 0 {
            self.count[a] += 1;
            self.size += 1;
        } else {
            self.count[a] -= 1;
            self.size -= 1;
        }
    }
}
