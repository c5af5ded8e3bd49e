//! The linear programs, solved by good_lp: prices from patterns, and plans from patterns.
//!
//! No figure of the solver is believed: prices are rounded to integers and bounds computed from them
//! exactly ([`super::columns`]); a plan is counted and priced again.

use ctlmgr_model::Millis;
use good_lp::solvers::WithTimeLimit;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolutionStatus, SolverModel, Variable,
    variable,
};
use std::ops::RangeInclusive;

use super::bound;
use super::price::Prices;
use super::problem::{Pattern, Problem};
use crate::linear::solver;

/// Prices that are best for these patterns, if the number of batches is within a range (the dual of
/// covering all containers with patterns).
pub(crate) fn prices(
    problem: &Problem,
    patterns: &[Pattern],
    batches: &RangeInclusive<i64>,
    cost: i64,
) -> Option<Prices> {
    let unit = unit(problem);
    let mut variables = ProblemVariables::new();
    let pay = variables.add_vector(variable().min(0.0), problem.kinds().len());
    let (up, down) = (variables.add(variable().min(0.0)), variables.add(variable().min(0.0)));
    let mut goal = Expression::with_capacity(pay.len() + 2);
    for (p, kind) in pay.iter().zip(problem.kinds()) {
        goal.add_mul(f64::from(kind.count), *p);
    }
    goal.add_mul(float(*batches.start()), up);
    goal.add_mul(-float(*batches.end()), down);
    // As if one batch of everything cost a little more than the present plan: without it a number of
    // batches that these patterns cannot make has no bound.
    let (_, beta) = problem.prices();
    let most = float(cost.saturating_add(beta.max(1))) / unit;
    let mut model = variables.maximise(goal.clone()).using(solver);
    model.add_constraint(goal.leq(most));
    for pattern in patterns {
        let mut paid = sum(&pay, pattern);
        paid.add_mul(1.0, up);
        paid.add_mul(-1.0, down);
        model.add_constraint(paid.leq(float(problem.cost(pattern)) / unit));
    }
    let solution = model.solve().ok()?;
    let price = |v: Variable| integer(solution.value(v) * unit);
    // Any prices prove something; these must not overflow when they are added up.
    let most = i64::MAX / 8 / (i64::from(problem.total()) + 1);
    Some(Prices {
        kinds: pay.iter().map(|p| price(*p).clamp(0, most)).collect(),
        batch: price(up).saturating_sub(price(down)).clamp(-most, most),
    })
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

fn sum(pay: &[Variable], pattern: &[u32]) -> Expression {
    let mut paid = Expression::with_capacity(pay.len() + 2);
    for (p, x) in pay.iter().zip(pattern).filter(|(_, x)| **x > 0) {
        paid.add_mul(f64::from(*x), *p);
    }
    paid
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
