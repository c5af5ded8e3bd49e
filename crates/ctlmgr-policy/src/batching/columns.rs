//! Column generation: a bound that is nearly tight, and often a proof (solvers A.3, 2).
//!
//! The relaxation chooses among all patterns, in fractions, and its dual prices each container and
//! each batch. Patterns are generated as long as one is cheaper than what its containers pay. For
//! prices π, μ and the least reduced cost r over *all* patterns, found exactly,
//! Σ m π + K (μ + r) is a bound on every plan of K batches, whatever the solver of the linear program
//! did. Each number of batches K is then bounded by itself; one that stays open is closed by choosing,
//! in whole numbers, among all patterns whose reduced cost is below the gap: no others can be in a
//! better plan.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_model::Millis;

use super::Work;
use super::bound::round_up;
use super::master::{Choice, choose, prices};
use super::price::{Found, Prices, all_below, cheapest};
use super::problem::{Pattern, Problem};

/// More kinds than this cannot be priced exactly in reasonable time.
const MOST_KINDS: usize = 40;
/// Nodes of one exact pricing, and of one enumeration.
const NODES: u64 = 3_000_000;
/// Most patterns that are chosen among in whole numbers.
const MOST_PATTERNS: usize = 3000;
/// Rounds of generation for one range of batch numbers.
const ROUNDS: usize = 200;
/// Part of the time left that closing one number of batches may take.
const SHARE_OF_TIME: u64 = 4;

/// A plan, and a bound on all plans.
pub(crate) struct Bounded {
    pub plan: Vec<Pattern>,
    pub bound: i64,
}

/// Improves a plan and bounds the problem; `None` if it has too many kinds.
pub(crate) fn bounded(
    problem: &Problem,
    plan: Vec<Pattern>,
    bound: i64,
    work: &Work<'_>,
) -> Option<Bounded> {
    if problem.kinds().len() > MOST_KINDS {
        return None;
    }
    let mut generation = Generation::new(problem, plan, work);
    let open = generation.open_numbers(bound)?;
    Some(generation.close(open))
}

/// Prices that are feasible in the dual with certainty: no pattern costs less than it pays.
#[derive(Debug, Clone)]
struct Certificate(Prices);

impl Certificate {
    /// Bound on plans of `batches` batches. An order among batches only takes plans away.
    fn bound(&self, problem: &Problem, batches: i64) -> i64 {
        let pays: i64 = problem
            .kinds()
            .iter()
            .zip(&self.0.kinds)
            .map(|(kind, price)| i64::from(kind.count) * price)
            .sum();
        pays + batches * self.0.batch
    }
}

struct Generation<'a, 'w> {
    problem: &'a Problem,
    work: &'a Work<'w>,
    plan: Vec<Pattern>,
    cost: i64,
    patterns: Vec<Pattern>,
    known: BTreeSet<Pattern>,
    /// The best bound for each number of batches, and what proves it.
    bounds: BTreeMap<i64, (i64, Option<Certificate>)>,
}

impl<'a, 'w> Generation<'a, 'w> {
    fn new(problem: &'a Problem, plan: Vec<Pattern>, work: &'a Work<'w>) -> Self {
        let cost = plan.iter().map(|b| problem.cost(b)).sum();
        let mut generation = Generation {
            problem,
            work,
            cost,
            patterns: Vec::new(),
            known: BTreeSet::new(),
            bounds: BTreeMap::new(),
            plan: Vec::new(),
        };
        // Alone everybody fits, so there always is a fractional plan.
        for a in 0..problem.kinds().len() {
            let mut alone = vec![0; problem.kinds().len()];
            alone[a] = 1;
            generation.add(alone);
        }
        plan.iter().for_each(|b| {
            generation.add(b.clone());
        });
        generation.plan = plan;
        generation
    }

    fn add(&mut self, pattern: Pattern) -> bool {
        let is_new = self.known.insert(pattern.clone());
        if is_new {
            self.patterns.push(pattern);
        }
        is_new
    }

    /// Numbers of batches that could have a better plan; `None` if nothing could be priced.
    fn open_numbers(&mut self, bound: i64) -> Option<Vec<i64>> {
        let (_, beta) = self.problem.prices();
        let total = i64::from(self.problem.total());
        let fewest = i64::from(self.problem.total().div_ceil(self.problem.max_batch().max(1)));
        // More batches than the present plan costs in batches alone cannot be better.
        let most = if beta > 0 { (self.cost / beta).clamp(fewest, total) } else { total };
        self.bounds = (fewest..=most).map(|k| (k, (bound, None))).collect();
        self.generate(fewest..=most)?;
        Some(self.still_open())
    }

    fn still_open(&self) -> Vec<i64> {
        let is_open = |bound: i64| round_up(self.problem, bound) < self.cost;
        let mut open: Vec<_> = self
            .bounds
            .iter()
            .filter(|(_, (b, _))| is_open(*b))
            .map(|(k, (b, _))| (*b, *k))
            .collect();
        // Where the bound is lowest a better plan is most likely.
        open.sort_unstable();
        open.into_iter().map(|(_, k)| k).collect()
    }

    /// Generates patterns for plans with a number of batches within `range`, and bounds each number.
    fn generate(&mut self, range: std::ops::RangeInclusive<i64>) -> Option<()> {
        let mut any = None;
        for _ in 0..ROUNDS {
            if self.work.is_over() {
                break;
            }
            let prices = prices(self.problem, &self.patterns, &range)?;
            let found = cheapest(self.problem, &prices, NODES);
            if !found.is_complete {
                break;
            }
            let least = found.patterns.last().map_or(0, |(r, _)| *r);
            any = Some(());
            self.certify(&prices, least);
            if !self.add_all(found) || least >= 0 {
                break;
            }
        }
        any
    }

    fn add_all(&mut self, found: Found) -> bool {
        let mut is_any_new = false;
        for (r, pattern) in found.patterns {
            if r < 0 {
                is_any_new |= self.add(pattern);
            }
        }
        is_any_new
    }

    /// What prices with an exact least reduced cost prove for every number of batches.
    fn certify(&mut self, prices: &Prices, least: i64) {
        let certificate =
            Certificate(Prices { kinds: prices.kinds.clone(), batch: prices.batch + least });
        for (k, (bound, by)) in &mut self.bounds {
            let proven = certificate.bound(self.problem, *k);
            if proven > *bound {
                (*bound, *by) = (proven, Some(certificate.clone()));
            }
        }
    }

    /// Bounds, and closes if it can, each open number of batches.
    fn close(mut self, mut open: Vec<i64>) -> Bounded {
        let mut tried = BTreeSet::new();
        while let Some(k) = open.iter().copied().find(|k| !tried.contains(k)) {
            tried.insert(k);
            if self.work.is_over() {
                break;
            }
            self.generate(k..=k);
            if self.is_open(k) {
                self.decide(k);
            }
            open = self.still_open();
        }
        let least = self.bounds.values().map(|(bound, _)| *bound).min().unwrap_or(self.cost);
        Bounded { plan: self.plan, bound: round_up(self.problem, least).min(self.cost) }
    }

    fn is_open(&self, k: i64) -> bool {
        self.bounds.get(&k).is_some_and(|(b, _)| round_up(self.problem, *b) < self.cost)
    }

    /// Chooses among all patterns that a better plan of `k` batches could have.
    fn decide(&mut self, k: i64) {
        let Some((bound, Some(Certificate(prices)))) = self.bounds.get(&k).cloned() else { return };
        let gap = self.cost - bound;
        let found = all_below(self.problem, &prices, gap, MOST_PATTERNS, NODES);
        let patterns: Vec<Pattern> = found.patterns.into_iter().map(|(_, p)| p).collect();
        let limit = self.work.left().map(|left| Millis(left.0 / SHARE_OF_TIME));
        match choose(self.problem, &patterns, k, limit) {
            Choice::Best(plan) => {
                let cost: i64 = plan.iter().map(|b| self.problem.cost(b)).sum();
                if cost < self.cost {
                    (self.plan, self.cost) = (plan, cost);
                }
                if found.is_complete {
                    self.bounds.insert(k, (cost.max(bound), None));
                }
            }
            // Nothing better than what there is.
            Choice::Impossible if found.is_complete => {
                self.bounds.insert(k, (self.cost, None));
            }
            Choice::Impossible | Choice::Unknown => {}
        }
    }
}
