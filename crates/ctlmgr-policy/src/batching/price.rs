//! Patterns by their reduced cost: what a batch costs beyond what its containers pay for.
//!
//! With a price for each container and one for each batch, rc(b) = c(b) − Σ π_a b_a − μ. Depth-first
//! over kinds; below a node nothing is cheaper than its value plus, for each kind left, the least of
//! α s_aa x (x − 1) / 2 + g_a x over x, where g_a is what one of them adds now (cross terms, which are
//! not negative, left out), and of these no more than there is room for.

use super::problem::{Pattern, Problem};

/// What containers of each kind, and each batch, pay; in units of the integer cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prices {
    pub kinds: Vec<i64>,
    pub batch: i64,
}

/// Patterns that were found.
#[derive(Debug)]
pub(crate) struct Found {
    /// With their reduced costs.
    pub patterns: Vec<(i64, Pattern)>,
    /// Whether nothing was left out.
    pub is_complete: bool,
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
    nodes: u64,
    count: Pattern,
    size: u32,
    used: Vec<u64>,
    touch: Vec<i64>,
    found: Found,
}

/// The cheapest pattern, last, and what was cheapest on the way there; not empty.
pub(crate) fn cheapest(problem: &Problem, prices: &Prices, nodes: u64) -> Found {
    walk(problem, prices, (Want::Cheapest, i64::MAX), nodes)
}

/// Every pattern cheaper than `limit`.
pub(crate) fn all_below(
    problem: &Problem,
    prices: &Prices,
    limit: i64,
    most: usize,
    nodes: u64,
) -> Found {
    walk(problem, prices, (Want::All(most), limit), nodes)
}

fn walk(problem: &Problem, prices: &Prices, (want, limit): (Want, i64), nodes: u64) -> Found {
    let kinds = problem.kinds().len();
    let mut walk = Walk {
        problem,
        prices,
        want,
        limit,
        nodes,
        count: vec![0; kinds],
        size: 0,
        used: vec![0; problem.capacities().len()],
        touch: vec![0; kinds],
        found: Found { patterns: Vec::new(), is_complete: true },
    };
    let mut order: Vec<usize> = (0..kinds).collect();
    // Who pays most is decided first.
    order.sort_by_key(|a| (std::cmp::Reverse(prices.kinds[*a]), *a));
    walk.descend(&order, problem.prices().1 - prices.batch);
    walk.found
}

impl Walk<'_> {
    fn descend(&mut self, left: &[usize], value: i64) {
        if self.nodes == 0 || !self.found.is_complete {
            self.found.is_complete = false;
            return;
        }
        self.nodes -= 1;
        if value.saturating_add(self.least(left)) >= self.limit {
            return;
        }
        let Some((&a, rest)) = left.split_first() else { return self.take(value) };
        let room = self.problem.room(a, self.size, &self.used).min(self.problem.kinds()[a].count);
        let mut value = value;
        let mut values = vec![value];
        for _ in 0..room {
            value += self.marginal(a);
            values.push(value);
            self.put(a, 1);
        }
        // From many to few: dear kinds pay for themselves, so good patterns come early.
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

    /// What one more of a kind adds.
    fn marginal(&self, a: usize) -> i64 {
        self.problem.prices().0 * self.touch[a] - self.prices.kinds[a]
    }

    /// Least that the kinds left can add.
    fn least(&self, left: &[usize]) -> i64 {
        let alpha = self.problem.prices().0;
        let free = self.problem.max_batch().saturating_sub(self.size) as usize;
        let mut gains: Vec<i64> = Vec::with_capacity(left.len());
        for &a in left {
            let own = alpha * self.problem.between(a, a);
            let most =
                self.problem.room(a, self.size, &self.used).min(self.problem.kinds()[a].count);
            let mut gain = self.marginal(a);
            for _ in 0..most {
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

    fn put(&mut self, a: usize, sign: i64) {
        for (b, touch) in self.touch.iter_mut().enumerate() {
            *touch += sign * self.problem.between(a, b);
        }
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
