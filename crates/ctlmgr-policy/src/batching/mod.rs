//! Which containers start together.
//!
//! # Problem
//! Containers that start at once fight for the disk: some pairs hurt each other, others do not
//! (Bhimani et al., §5). Few large batches start sooner, many small ones fight less.
//!
//! # Approach
//! Eq. 1–6 of the paper: T_p is the sum of the penalties S between all unordered pairs within a
//! batch, N_z the number of batches; maximise w_p · (1 − T_p / max T_p) + w_z · (1 − (N_z − 1) / (N − 1)),
//! each container in one batch (C1), at most φ in each (C2), and no capacity exceeded (C3). Beyond the
//! paper: some start after others, some in one of the first batches, and of orders that cost the same one in
//! which more weight starts earlier is taken ([`order`]).
//! Containers that do not differ are one *kind* with a count. All arithmetic is in integers: to
//! maximise the objective is to minimise Σ over batches of α · penalty + β (solvers A.1).
//!
//! # Terms
//! *Pattern*: how many of each kind a batch holds. *Bound*: no plan costs less. *Gap*: (cost − bound)
//! / cost.
//!
//! # Algorithm
//! Few kinds that repeat: dynamic programming over count vectors ([`dp`]), exact. Otherwise local
//! search ([`search`]) for a plan, bounds ([`bound`], [`columns`], [`envelope`]) for how good it is, and more search
//! with the time that is left.
//!
//! # Properties
//! Every result is a plan: complete, within every capacity, in order. bound ≤ cost, and equal where
//! `is_proven`. The same problem and the same work give the same plan, unless time runs out. More
//! rounds of the search alone never give a dearer one.

mod anneal;
mod bound;
mod columns;
mod cover;
mod dp;
mod envelope;
mod greedy;
mod master;
mod order;
mod precedence;
mod price;
mod problem;
mod search;
mod seating;

pub use crate::work::Work;
pub use problem::{Infeasible, Kind, Pattern, Problem};

/// What found a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Dynamic programming over count vectors.
    Dp,
    /// Column generation.
    Colgen,
    /// Local search.
    Local,
}

/// A plan and how good it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batches {
    /// The batches, in the order in which they start.
    pub batches: Vec<Pattern>,
    /// Integer cost ([`Problem::cost`]).
    pub cost: i64,
    /// No plan costs less.
    pub bound: i64,
    /// What found it.
    pub solver: Solver,
}

impl Batches {
    /// Whether no better plan exists.
    pub fn is_proven(&self) -> bool {
        self.bound >= self.cost
    }

    fn new(problem: &Problem, batches: Vec<Pattern>, bound: i64, solver: Solver) -> Batches {
        let cost = batches.iter().map(|b| problem.cost(b)).sum();
        Batches { batches, cost, bound: bound.min(cost), solver }
    }
}

/// Most rounds of search before anything is bounded.
const FIRST_ROUNDS: u64 = 6000;

/// Divides the containers of a problem into batches.
///
/// # Errors
/// Nobody can be found to start in time who has a deadline; for problems that dynamic programming solves,
/// because it cannot be.
pub fn plan(problem: &Problem, work: &mut Work<'_>) -> Result<Batches, Infeasible> {
    if problem.total() == 0 {
        return Ok(Batches::new(problem, Vec::new(), 0, Solver::Dp));
    }
    // Search begins with the earliest plan where nobody finds a better one.
    let too_late = || {
        let early = order::earliest(problem);
        let error = Infeasible::TooLate { kind: late(problem, &early) };
        (!problem.is_plan(&early)).then_some(error)
    };
    let found = match dp::solve(problem) {
        dp::Solved::Plan(batches) => Batches::new(problem, batches, i64::MAX, Solver::Dp),
        dp::Solved::Impossible => {
            let kind = late(problem, &order::earliest(problem));
            return Err(Infeasible::TooLate { kind });
        }
        dp::Solved::TooLarge => match problem.is_ordered().then(too_late).flatten() {
            Some(error) => return Err(error),
            None => improve_and_bound(problem, work),
        },
    };
    let batches = order::arrange(problem, found.batches.clone()).unwrap_or(found.batches);
    Ok(Batches { batches, ..found })
}

/// Of those that start late although they start as early as they can, the one with the earliest deadline.
fn late(problem: &Problem, early: &[Pattern]) -> usize {
    let start = |a: usize| early.iter().rposition(|b| b[a] > 0).map_or(0, |last| last + 1);
    let kinds = 0..problem.kinds().len();
    let is_late = |a: &usize| start(*a) > problem.latest(*a) as usize;
    let with_deadline = |a: &usize| problem.latest(*a) < u32::MAX;
    let first = kinds.clone().filter(is_late).min_by_key(|a| problem.latest(*a));
    first.or_else(|| kinds.filter(with_deadline).min_by_key(|a| problem.latest(*a))).unwrap_or(0)
}

fn improve_and_bound(problem: &Problem, work: &mut Work<'_>) -> Batches {
    let bound = bound::company(problem);
    let mut search = search::Search::new(problem);
    let first = search.rounds_for_all_starts().min(FIRST_ROUNDS).min(work.rounds);
    search.run(bound, &mut Work::new(first, work.left));
    let bounded = columns::bounded(problem, (search.best(), search.pool()), bound, work);
    let (bound, solver) = match bounded {
        Some(bounded) => {
            search.offer(&bounded.plan);
            (bounded.bound, Solver::Colgen)
        }
        None => {
            let merged = envelope::least(problem, &search.best(), envelope::CLASSES, work);
            (bound.max(merged), Solver::Local)
        }
    };
    search.run(bound, &mut Work::new(work.rounds - first, work.left));
    Batches::new(problem, search.best(), bound, solver)
}

#[cfg(test)]
mod tests;
