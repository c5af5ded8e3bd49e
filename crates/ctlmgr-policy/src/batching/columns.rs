//! Column generation: a bound that is nearly tight, and often a proof (solvers A.3, 2).
//!
//! The relaxation chooses among all patterns, in fractions, and its dual prices each container and
//! each batch. Patterns are generated as long as one is cheaper than what its containers pay. For
//! prices π, μ and the least reduced cost r over *all* patterns, found exactly,
//! Σ m π + K (μ + r) is a bound on every plan of K batches, whatever the solver of the linear program
//! did. Each number of batches K is then bounded by itself; one that stays open is closed by choosing,
//! in whole numbers, among all patterns whose reduced cost is below the gap: no others can be in a
//! better plan ([`cover`] where nobody repeats, an integer program otherwise). An order among kinds only
//! takes plans away: no pattern holds one kind and another that waits for it, and where nobody repeats no set of patterns
//! that has no order is chosen; elsewhere a bound that leaves this out holds, too.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_model::Millis;

use super::Work;
use super::bound::{round_up, step};
use super::cover;
use super::master::{Choice, Master, choose};
use super::order::arrange;
use super::price::{Effort, Found, Prices, all_below, cheapest};
use super::problem::{Pattern, Problem};

/// More kinds than this cannot be priced exactly in reasonable time.
const MOST_KINDS: usize = 40;
/// Nodes of all walks, with and without a clock, of one exact pricing or enumeration, and of a pricing that only looks for more
/// patterns.
const NODES_IN_ALL: u64 = 40_000_000;
const NODES_UNTIMED: u64 = 4_000_000;
const NODES: u64 = 4_000_000;
const NODES_AT_FIRST: u64 = 3_000;
/// Most patterns that are chosen among in whole numbers, with and without a clock.
const MOST_PATTERNS: usize = 3000;
const MOST_PATTERNS_UNTIMED: usize = 300;
/// The same where nobody repeats, and steps of that without a clock.
const MOST_COVERED: usize = 300_000;
const MOST_COVERED_UNTIMED: usize = 30_000;
const STEPS_UNTIMED: u64 = 3_000_000;
/// Rounds of generation for one range of batch numbers.
const ROUNDS: usize = 300;
/// Rounds between two choices where those are quick, and nodes of each.
const ROUNDS_ON_THE_WAY: usize = 8;
const NODES_ON_THE_WAY: u64 = 300_000;
/// Part of the nodes that are left that one of them may take.
const ON_THE_WAY: u64 = 4;
/// Part of the time that is kept for the search, and part of the rest for one choice.
const KEPT: u64 = 4;
const SHARE: u64 = 4;
/// A gap of more steps than this is too fine for the solver's floats to prove anything.
const PROVABLE: i64 = 10_000_000;

/// A plan, and a bound on all plans.
pub(crate) struct Bounded {
    pub plan: Vec<Pattern>,
    pub bound: i64,
}

/// Improves a plan and bounds the problem; `None` if it has too many kinds.
pub(crate) fn bounded(
    problem: &Problem,
    (plan, pool): (Vec<Pattern>, &BTreeSet<Pattern>),
    bound: i64,
    work: &Work<'_>,
) -> Option<Bounded> {
    if problem.kinds().len() > MOST_KINDS {
        return None;
    }
    let kept = work.left().map_or(Millis(0), |left| Millis(left.0 / KEPT));
    let is_over = || work.left().is_some_and(|left| left <= kept);
    let mut generation = Generation::new(problem, plan, (work, &is_over));
    for batch in pool {
        generation.add(batch.clone());
    }
    generation.open(bound);
    Some(generation.close())
}

/// The best that is known of plans with one number of batches.
#[derive(Debug, Clone)]
struct Bound {
    /// They cost no less.
    least: i64,
    /// Prices for which no pattern costs less than it pays, and the bound that follows.
    certificate: Option<(i64, Prices)>,
}

struct Generation<'a> {
    problem: &'a Problem,
    work: &'a Work<'a>,
    is_over: &'a dyn Fn() -> bool,
    plan: Vec<Pattern>,
    cost: i64,
    patterns: Vec<Pattern>,
    known: BTreeSet<Pattern>,
    bounds: BTreeMap<i64, Bound>,
    nodes: u64,
}

impl<'a> Generation<'a> {
    fn new(
        problem: &'a Problem,
        plan: Vec<Pattern>,
        (work, is_over): (&'a Work<'a>, &'a dyn Fn() -> bool),
    ) -> Self {
        let cost = plan.iter().map(|b| problem.cost(b)).sum();
        let mut generation = Generation {
            problem,
            work,
            is_over,
            cost,
            patterns: Vec::new(),
            known: BTreeSet::new(),
            bounds: BTreeMap::new(),
            nodes: if work.left().is_some() { NODES_IN_ALL } else { NODES_UNTIMED },
            plan: plan.clone(),
        };
        // Alone everybody fits, so there always is a fractional plan.
        for a in 0..problem.kinds().len() {
            let mut alone = vec![0; problem.kinds().len()];
            alone[a] = 1;
            generation.add(alone);
        }
        for batch in plan {
            generation.add(batch);
        }
        generation
    }

    fn add(&mut self, pattern: Pattern) -> bool {
        let is_new = self.known.insert(pattern.clone());
        if is_new {
            self.patterns.push(pattern);
        }
        is_new
    }

    fn effort(&self, nodes: u64) -> Effort<'a> {
        Effort { nodes: nodes.min(self.nodes), is_over: self.is_over }
    }

    /// Bounds every number of batches that could have a better plan.
    fn open(&mut self, bound: i64) {
        let (_, beta) = self.problem.prices();
        let (fewest, total) =
            (i64::from(self.problem.fewest_batches()), i64::from(self.problem.total()));
        // More batches than the present plan costs in batches alone cannot be better.
        let most = if beta > 0 { (self.cost / beta).clamp(fewest, total) } else { total };
        let known = Bound { least: bound, certificate: None };
        self.bounds = (fewest..=most).map(|k| (k, known.clone())).collect();
        if let Some(mut master) = Master::new(self.problem, &(fewest..=most), self.cost, self.work)
        {
            self.generate(&mut master, ROUNDS);
        }
    }

    /// Numbers of batches that are still open: first where the bound is lowest, then near the plan.
    fn open_numbers(&self) -> Vec<i64> {
        let here = i64::try_from(self.plan.len()).unwrap_or(0);
        let mut open: Vec<_> = self
            .bounds
            .iter()
            .filter(|(_, b)| round_up(self.problem, b.least) < self.cost)
            .map(|(k, b)| (b.least, (k - here).abs(), *k))
            .collect();
        open.sort_unstable();
        open.into_iter().map(|(_, _, k)| k).collect()
    }

    /// Generates patterns for plans with a number of batches within the master's range, and bounds each number, for
    /// so many rounds at most; whether more of them could do more.
    fn generate(&mut self, master: &mut Master<'a>, rounds: usize) -> bool {
        for _ in 0..rounds {
            if (self.is_over)() || self.nodes == 0 {
                return false;
            }
            let Some(prices) = master.prices(&self.patterns, self.is_over) else { return false };
            // Patterns first; the exact least only when there are no more.
            let quick = self.price(&prices, NODES_AT_FIRST);
            if !quick.is_complete && self.add_all(&quick) {
                continue;
            }
            let exact = if quick.is_complete { quick } else { self.price(&prices, NODES) };
            let is_any_new = self.add_all(&exact);
            if !exact.is_complete {
                return false;
            }
            let least = exact.patterns.last().map_or(0, |(r, _)| *r);
            self.certify(&prices, least);
            if !is_any_new || least >= 0 {
                return false;
            }
        }
        true
    }

    fn price(&mut self, prices: &Prices, nodes: u64) -> Found {
        let found = cheapest(self.problem, prices, self.effort(nodes));
        self.nodes = self.nodes.saturating_sub(found.nodes);
        found
    }

    /// Adds those that cost less than they pay; whether any was new.
    fn add_all(&mut self, found: &Found) -> bool {
        let mut is_any_new = false;
        for (_, pattern) in found.patterns.iter().filter(|(r, _)| *r < 0) {
            is_any_new |= self.add(pattern.clone());
        }
        is_any_new
    }

    /// What prices with an exact least reduced cost prove for every number of batches.
    fn certify(&mut self, prices: &Prices, least: i64) {
        let Some(batch) = prices.batch.checked_add(least) else { return };
        let pays: i128 = self
            .problem
            .kinds()
            .iter()
            .zip(&prices.kinds)
            .map(|(kind, price)| i128::from(kind.count) * i128::from(*price))
            .sum();
        for (k, bound) in &mut self.bounds {
            let proven = pays + i128::from(*k) * i128::from(batch);
            let Ok(proven) = i64::try_from(proven) else { continue };
            if bound.certificate.as_ref().is_none_or(|(best, _)| proven > *best) {
                let prices = Prices { kinds: prices.kinds.clone(), batch };
                bound.certificate = Some((proven, prices));
            }
            bound.least = bound.least.max(proven);
        }
    }

    /// Bounds by itself, and closes if it can, each open number of batches.
    fn close(mut self) -> Bounded {
        let mut tried = BTreeSet::new();
        while let Some(k) = self.open_numbers().into_iter().find(|k| !tried.contains(k)) {
            tried.insert(k);
            if (self.is_over)() {
                break;
            }
            self.close_number(k);
        }
        let least = self.bounds.values().map(|b| b.least).min().unwrap_or(self.cost);
        Bounded { plan: self.plan, bound: round_up(self.problem, least).min(self.cost) }
    }

    /// To choose among thousands of patterns of which nobody repeats takes less time than a few linear programs, so it
    /// is tried, ever harder, before the bound is as good as it can be.
    fn close_number(&mut self, k: i64) {
        let (rounds, mut nodes) = match cover::applies(self.problem) {
            true => (ROUNDS_ON_THE_WAY, NODES_ON_THE_WAY),
            false => (ROUNDS, NODES),
        };
        if nodes < NODES {
            self.decide(k, nodes.min(self.nodes / ON_THE_WAY));
        }
        let Some(mut master) = Master::new(self.problem, &(k..=k), self.cost, self.work) else {
            return;
        };
        for _ in 0..ROUNDS / rounds {
            let is_more = self.is_open(k) && self.generate(&mut master, rounds);
            if !self.is_open(k) {
                return;
            }
            // Others have a right to some of it.
            nodes = if is_more { (2 * nodes).min(self.nodes / ON_THE_WAY) } else { NODES };
            self.decide(k, nodes);
            if !is_more {
                return;
            }
        }
    }

    fn is_open(&self, k: i64) -> bool {
        self.open_numbers().contains(&k)
    }

    /// Chooses among all patterns that a better plan of `k` batches could have.
    fn decide(&mut self, k: i64, nodes: u64) {
        let Some((value, prices)) = self.bounds.get(&k).and_then(|b| b.certificate.clone()) else {
            return;
        };
        let gap = self.cost.saturating_sub(value);
        let found = all_below(self.problem, &prices, (gap, self.most()), self.effort(nodes));
        self.nodes = self.nodes.saturating_sub(found.nodes);
        let is_exact = cover::applies(self.problem) || gap / step(self.problem) < PROVABLE;
        let is_proof = found.is_complete && is_exact;
        let Some(least) = self.choose(&found, (k, value)) else { return };
        if let Some(bound) = self.bounds.get_mut(&k).filter(|_| is_proof) {
            bound.least = bound.least.max(least);
        }
    }

    /// Most patterns that are chosen among.
    fn most(&self) -> usize {
        match (self.work.left().is_some(), cover::applies(self.problem)) {
            (true, false) => MOST_PATTERNS,
            (false, false) => MOST_PATTERNS_UNTIMED,
            (true, true) => MOST_COVERED,
            (false, true) => MOST_COVERED_UNTIMED,
        }
    }

    /// The least that a plan of `k` batches out of these patterns costs, if it is less than the present one, or
    /// else what that one costs; nothing if that cannot be told.
    fn choose(&mut self, found: &Found, (k, value): (i64, i64)) -> Option<i64> {
        let gap = self.cost - value;
        let limit = self.work.left().map(|left| Millis(left.0 / SHARE));
        let chosen = if cover::applies(self.problem) {
            let steps = if limit.is_some() { u64::MAX } else { STEPS_UNTIMED };
            let end = self.work.left().map(|left| Millis(left.0 - left.0 / SHARE));
            let is_late = || (self.is_over)() || self.work.left() < end;
            cover::choose(self.problem, &found.patterns, (k, gap), (steps, &is_late))
        } else if !found.is_complete && limit.is_none() {
            return None;
        } else {
            choose(self.problem, &found.patterns, k, limit)
        };
        match chosen {
            Choice::Best(plan) => {
                let cost: i64 = plan.iter().map(|b| self.problem.cost(b)).sum();
                // What these patterns cost is a bound even if they have no order, which an integer program does not know.
                let better = Some(plan).filter(|_| cost < self.cost);
                if let Some(plan) = better.and_then(|plan| arrange(self.problem, plan)) {
                    (self.plan, self.cost) = (plan, cost);
                }
                Some(cost)
            }
            // Nothing better than what there is.
            Choice::Impossible => Some(self.cost),
            Choice::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests;
