//! Which containers start together.
//!
//! # Problem
//! Containers that start at once fight for the disk: some pairs hurt each other, others do not
//! (Bhimani et al., §5). Few large batches start sooner, many small ones fight less.
//!
//! # Approach
//! Eq. 1–6 of the paper: T_p is the sum of the penalties S between all unordered pairs within a
//! batch, N_z the number of batches; maximise w_p · (1 − T_p / max T_p) + w_z · (1 − (N_z − 1) / (N − 1)),
//! each container in one batch (C1), at most φ in each (C2), and no capacity exceeded (C3).
//! Containers that do not differ are one *kind* with a count. All arithmetic is in integers: to
//! maximise the objective is to minimise Σ over batches of α · penalty + β (solvers A.1).
//!
//! # Terms
//! *Pattern*: how many of each kind a batch holds. *Bound*: no plan costs less. *Gap*: (cost − bound)
//! / cost.
//!
//! # Algorithm
//! Few kinds that repeat: dynamic programming over count vectors ([`dp`]), exact. Otherwise local
//! search ([`search`]) for a plan, bounds ([`bound`], [`columns`]) for how good it is, and more search
//! with the time that is left.
//!
//! # Properties
//! Every result is a plan: complete, within every capacity, in order. bound ≤ cost, and equal where
//! `is_proven`. The same problem and the same work give the same plan, unless time runs out. More
//! rounds of the search alone never give a dearer one.

mod anneal;
mod bound;
mod columns;
mod dp;
mod greedy;
mod master;
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
pub fn plan(problem: &Problem, work: &mut Work<'_>) -> Batches {
    if problem.total() == 0 {
        return Batches::new(problem, Vec::new(), 0, Solver::Dp);
    }
    match dp::solve(problem) {
        Some(batches) => Batches::new(problem, batches, i64::MAX, Solver::Dp),
        None => improve_and_bound(problem, work),
    }
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
        None => (bound, Solver::Local),
    };
    search.run(bound, &mut Work::new(work.rounds - first, work.left));
    Batches::new(problem, search.best(), bound, solver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Least cost over all divisions into batches, by trying them.
    fn brute_force(problem: &Problem) -> Option<i64> {
        let units: Vec<usize> = (0..problem.kinds().len())
            .flat_map(|a| std::iter::repeat_n(a, problem.kinds()[a].count as usize))
            .collect();
        let mut best = None;
        divide(problem, &units, &mut Vec::new(), &mut best);
        best
    }

    fn divide(problem: &Problem, left: &[usize], open: &mut Vec<Pattern>, best: &mut Option<i64>) {
        let Some((kind, left)) = left.split_first() else {
            let cost: i64 = open.iter().map(|b| problem.cost(b)).sum();
            if best.is_none_or(|b| cost < b) && has_order(problem, open) {
                *best = Some(cost);
            }
            return;
        };
        for i in 0..=open.len() {
            if i == open.len() {
                open.push(vec![0; problem.kinds().len()]);
            }
            open[i][*kind] += 1;
            if problem.fits(&open[i]) {
                divide(problem, left, open, best);
            }
            open[i][*kind] -= 1;
            open.retain(|b| b.iter().any(|x| *x > 0));
        }
    }

    /// Whether batches can be put in an order that lets nobody start before what it waits for.
    fn has_order(problem: &Problem, batches: &[Pattern]) -> bool {
        let mut left: Vec<&Pattern> = batches.iter().collect();
        let holds = |left: &[&Pattern], kind: usize| left.iter().any(|b| b[kind] > 0);
        while let Some(next) = left.iter().position(|b| {
            let started = (0..b.len()).filter(|a| b[*a] > 0);
            started.flat_map(|a| &problem.kinds()[a].after).all(|p| !holds(&left, *p))
        }) {
            left.remove(next);
        }
        left.is_empty()
    }

    /// Small problems: up to seven containers of up to four kinds, with capacities and an order.
    fn problems() -> impl Strategy<Value = Problem> {
        let kinds = proptest::collection::vec((1u32..4, 0u64..5, any::<u8>()), 1..5);
        let all =
            (kinds, proptest::collection::vec(0i64..4, 16), 1u32..8, 4u64..12, (1i64..4, 1i64..4));
        all.prop_filter_map("at most seven containers", |(kinds, s, phi, capacity, weights)| {
            if kinds.iter().map(|k| k.0).sum::<u32>() > 7 {
                return None;
            }
            let after =
                |a: usize, bits: u8| (0..a).filter(|p| bits & (0x11 << p) == (0x11 << p)).collect();
            let n = kinds.len();
            let penalty =
                (0..n).map(|a| (0..n).map(|b| s[a.min(b) * 4 + a.max(b)]).collect()).collect();
            let kinds = kinds
                .iter()
                .enumerate()
                .map(|(a, k)| Kind { count: k.0, uses: vec![k.1], after: after(a, k.2) })
                .collect();
            Problem::new(kinds, penalty, Some(phi), vec![capacity], weights).ok()
        })
    }

    fn searched(problem: &Problem, rounds: u64) -> Batches {
        let mut search = search::Search::new(problem);
        search.run(0, &mut Work::new(rounds, &|| None));
        Batches::new(problem, search.best(), bound::company(problem), Solver::Local)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn dynamic_programming_finds_the_best_plan(problem in problems()) {
            let found = plan(&problem, &mut Work::new(0, &|| None));
            prop_assert!(problem.is_plan(&found.batches));
            prop_assert!(found.is_proven());
            prop_assert_eq!(Some(found.cost), brute_force(&problem));
        }

        #[test]
        fn column_generation_bounds_what_it_cannot_solve(problem in problems()) {
            let best = plan(&problem, &mut Work::new(0, &|| None)).cost;
            let start = searched(&problem, 0);
            let (work, pool) = (Work::new(0, &|| None), std::collections::BTreeSet::new());
            let found = columns::bounded(&problem, (start.batches, &pool), bound::company(&problem), &work);
            let found = found.expect("few kinds");
            let cost: i64 = found.plan.iter().map(|b| problem.cost(b)).sum();
            prop_assert!(problem.is_plan(&found.plan));
            prop_assert!(found.bound <= best, "bound {} of {best}", found.bound);
            prop_assert!(best <= cost && cost <= start.cost);
        }

        #[test]
        fn search_finds_a_plan_between_bound_and_optimum(problem in problems()) {
            let best = plan(&problem, &mut Work::new(0, &|| None)).cost;
            let few = searched(&problem, 0);
            let more = searched(&problem, 60);
            prop_assert!(problem.is_plan(&few.batches) && problem.is_plan(&more.batches));
            prop_assert!(few.bound <= best, "bound {} of {best}", few.bound);
            prop_assert!(best <= more.cost && more.cost <= few.cost);
            prop_assert_eq!(&more, &searched(&problem, 60));
        }
    }
}
