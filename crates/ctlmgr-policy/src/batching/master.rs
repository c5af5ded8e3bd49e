//! The linear programs: prices from patterns, by microlp, and plans from patterns, by good_lp.
//!
//! No figure of the solver is believed: prices are rounded to integers and bounds computed from them
//! exactly ([`super::columns`]); a plan is counted and priced again.

use core::time::Duration;
use ctlmgr_model::Millis;
use good_lp::solvers::WithTimeLimit;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolutionStatus, SolverModel, variable,
};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::Work;
use super::bound;
use super::price::Prices;
use super::problem::{Pattern, Problem};
use crate::linear::solver;

/// Prices that are best for some patterns, if the number of batches is within a range (the dual of
/// covering all containers with patterns). One pattern after the other is added, and the solver goes on from where
/// it was: microlp does that, good_lp does not.
pub(crate) struct Master<'a> {
    problem: &'a Problem,
    unit: f64,
    pay: Vec<microlp::Variable>,
    up: microlp::Variable,
    down: microlp::Variable,
    /// Nothing once it failed.
    solution: Option<microlp::Solution>,
    /// Patterns that count, by index.
    within: BTreeSet<usize>,
}

/// One step of the solver takes no longer, where there is no clock.
const LONGEST: Duration = Duration::from_secs(60);

/// Patterns that cost less than this part of a unit below what they pay count as not doing so.
const NEAR: f64 = 1e-7;

impl<'a> Master<'a> {
    pub(crate) fn new(
        problem: &'a Problem,
        batches: &RangeInclusive<i64>,
        cost: i64,
        work: &Work<'_>,
    ) -> Option<Master<'a>> {
        let unit = unit(problem);
        let mut program = microlp::Problem::new(microlp::OptimizationDirection::Maximize);
        // A simplex method may go round in a circle.
        let limit = work.left().map_or(LONGEST, |left| Duration::from_millis(left.0));
        program.set_time_limit(limit);
        let any = (0.0, f64::INFINITY);
        let counts = problem.kinds().iter().map(|k| f64::from(k.count));
        let pay: Vec<_> = counts.clone().map(|n| program.add_var(n, any)).collect();
        let up = program.add_var(float(*batches.start()), any);
        let down = program.add_var(-float(*batches.end()), any);
        // As if one batch of everything cost a little more than the present plan: without it a number of
        // batches that these patterns cannot make has no bound.
        let (_, beta) = problem.prices();
        let most = float(cost.saturating_add(beta.max(1))) / unit;
        let mut goal: Vec<_> = pay.iter().copied().zip(counts).collect();
        goal.extend([(up, float(*batches.start())), (down, -float(*batches.end()))]);
        program.add_constraint(&goal[..], microlp::ComparisonOp::Le, most);
        let solution = program.solve().ok()?.into_solution().ok();
        let within = BTreeSet::new();
        Some(Master { problem, unit, pay, up, down, solution, within })
    }

    /// Prices for which none of these patterns pays more than it costs, or nothing if the solver fails or the time
    /// is over. They are those of before, in the same order, and more.
    pub(crate) fn prices(
        &mut self,
        patterns: &[Pattern],
        is_over: &dyn Fn() -> bool,
    ) -> Option<Prices> {
        while let Some(next) = self.dearest(patterns) {
            if is_over() {
                return None;
            }
            self.within.insert(next);
            self.add(&patterns[next])?;
        }
        let solution = self.solution.as_ref()?;
        let price = |v: microlp::Variable| integer(solution.var_value_raw(v) * self.unit);
        // Any prices prove something; these must not overflow when they are added up.
        let most = i64::MAX / 8 / (i64::from(self.problem.total()) + 1);
        Some(Prices {
            kinds: self.pay.iter().map(|p| price(*p).clamp(0, most)).collect(),
            batch: price(self.up).saturating_sub(price(self.down)).clamp(-most, most),
        })
    }

    /// The pattern that pays most above what it costs, of those that do not count yet.
    fn dearest(&self, patterns: &[Pattern]) -> Option<usize> {
        let solution = self.solution.as_ref()?;
        let value = |v: &microlp::Variable| solution.var_value_raw(*v);
        let batch = value(&self.up) - value(&self.down);
        let pay: Vec<f64> = self.pay.iter().map(value).collect();
        let above = |i: usize| {
            let pattern = &patterns[i];
            let paid: f64 = pay.iter().zip(pattern).map(|(p, n)| p * f64::from(*n)).sum();
            paid + batch - float(self.problem.cost(pattern)) / self.unit
        };
        let others = (0..patterns.len()).filter(|i| !self.within.contains(i));
        let most = others.map(|i| (above(i), i)).max_by(|a, b| a.0.total_cmp(&b.0));
        most.filter(|(above, _)| *above > NEAR).map(|(_, i)| i)
    }

    fn add(&mut self, pattern: &[u32]) -> Option<()> {
        let kinds = self.pay.iter().zip(pattern).filter(|(_, n)| **n > 0);
        let mut paid: Vec<_> = kinds.map(|(p, n)| (*p, f64::from(*n))).collect();
        paid.extend([(self.up, 1.0), (self.down, -1.0)]);
        let cost = float(self.problem.cost(pattern)) / self.unit;
        let solution = self.solution.take()?;
        let solved = solution.add_constraint(&paid[..], microlp::ComparisonOp::Le, cost);
        self.solution = solved.ok()?.into_solution().ok();
        Some(())
    }
}

/// What came of choosing among patterns.
pub(crate) enum Choice {
    /// The cheapest division that these patterns make, in no particular order.
    Best(Vec<Pattern>),
    /// They make no plan.
    Impossible,
    /// There was not enough time to tell.
    Unknown,
}

/// The cheapest plan of exactly so many batches out of these patterns, given with their reduced
/// costs, of which `step` is a common divisor but for a constant.
pub(crate) fn choose(
    problem: &Problem,
    patterns: &[(i64, Pattern)],
    batches: i64,
    within: Option<Millis>,
) -> Choice {
    let unit = float(bound::step(problem));
    let mut variables = ProblemVariables::new();
    let times = variables.add_vector(variable().integer().min(0.0), patterns.len());
    let mut goal = Expression::with_capacity(patterns.len());
    let mut number = Expression::with_capacity(patterns.len());
    for (t, (reduced, _)) in times.iter().zip(patterns) {
        goal.add_mul(float(*reduced) / unit, *t);
        number.add_mul(1.0, *t);
    }
    let mut model = variables.minimise(goal).using(solver);
    model.add_constraint(number.eq(float(batches)));
    for (a, kind) in problem.kinds().iter().enumerate() {
        let mut covered = Expression::with_capacity(patterns.len());
        for (t, (_, pattern)) in times.iter().zip(patterns).filter(|(_, (_, p))| p[a] > 0) {
            covered.add_mul(f64::from(pattern[a]), *t);
        }
        model.add_constraint(covered.eq(f64::from(kind.count)));
    }
    // HiGHS would stop at a ten-thousandth of the cost.
    #[cfg(feature = "highs")]
    let model = match good_lp::solvers::WithMipGap::with_mip_gap(model, 0.0) {
        Ok(model) => model,
        Err(_) => return Choice::Unknown,
    };
    let solved = match within {
        Some(Millis(limit)) => model.with_time_limit(limit as f64 / 1000.0).solve(),
        None => model.solve(),
    };
    let solution = match solved {
        Ok(solution) => solution,
        Err(ResolutionError::Infeasible) => return Choice::Impossible,
        Err(_) => return Choice::Unknown,
    };
    // Costs are whole numbers here, and no gap that a solver calls none is as large as one.
    if !matches!(solution.status(), SolutionStatus::Optimal | SolutionStatus::GapLimit) {
        return Choice::Unknown;
    }
    let chosen = times.iter().zip(patterns).flat_map(|(t, (_, pattern))| {
        let n = usize::try_from(integer(solution.value(*t))).unwrap_or(0);
        std::iter::repeat_n(pattern.clone(), n)
    });
    let plan: Vec<Pattern> = chosen.collect();
    // It may lack an order; what it costs is a bound all the same.
    if is_complete(problem, &plan) { Choice::Best(plan) } else { Choice::Unknown }
}

fn is_complete(problem: &Problem, plan: &[Pattern]) -> bool {
    let starts = |a: usize| plan.iter().map(|b| b[a]).sum::<u32>();
    problem.kinds().iter().enumerate().all(|(a, kind)| starts(a) == kind.count)
}

/// What costs are divided by, so that the solver sees numbers around one.
fn unit(problem: &Problem) -> f64 {
    let (alpha, beta) = problem.prices();
    float(alpha.max(beta).max(1))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the solver works with floats; nothing is proven here"
)]
fn float(value: i64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, reason = "a cast saturates")]
fn integer(value: f64) -> i64 {
    value.round() as i64
}
