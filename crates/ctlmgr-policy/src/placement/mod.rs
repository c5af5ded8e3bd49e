//! Which containers share a last-level cache.
//!
//! # Problem
//! Containers that talk to each other gain from one L3 domain (Rao et al., §5–7); a domain that is too
//! full loses more than that. Assign workloads to domains.
//!
//! # Approach
//! Lexicographic, in integers. First the *overload* Σ_d max(0, load_d − limit_d), where limit_d is the
//! smaller of the domain's processors and its part of all load, enlarged by the tolerance. Then the
//! *weighted cut* Σ bytes_ij · distance(d_i, d_j) plus the moves away from where workloads are now,
//! each at the price of [`Problem::move_price`]. Where a load cannot be but beyond a limit, of equals
//! those of least weight bear it ([`shield`]).
//!
//! # Terms
//! *Unit*: a workload, or one of the equal parts of one that is wider than a domain; parts lie on
//! different domains, and as near to each other as they fit. *Closed*: a domain that an exclusive
//! workload has for itself.
//!
//! # Algorithm
//! Exclusive workloads first ([`exclusive`]). Then several starts: where everything is now, and
//! clusterings along heavy edges of different size, largest cluster first to the cheapest domain with
//! room ([`cluster`]). Each is improved by single moves, swaps, and exchanges of whole domains, until
//! none helps (Kernighan–Lin, Fiduccia–Mattheyses; [`layout`], [`exchange`]). From the best, localised
//! search: move a connected cluster, settle around it, undo if that is worse ([`search`]; solvers B.2).
//! On request the same problem as an integer program, for a proof or something better ([`exact`]).
//!
//! # Properties
//! Every workload is placed; pinned ones stay, exclusive ones are alone, parts are apart. The result is
//! never worse than the present placement. The same problem and the same work give the same result,
//! unless time runs out. A price above all that could be gained moves nothing.

mod cluster;
mod exact;
mod exchange;
mod exclusive;
mod layout;
mod problem;
mod search;
mod shield;

pub use crate::work::Work;
pub use problem::{Contradiction, Domain, Problem, Workload};

use ctlmgr_model::Millis;
use layout::{Layout, Score};
use problem::Graph;
use search::Search;

/// Where every workload goes, and what that costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Domains of each workload, sorted.
    pub domains: Vec<Vec<usize>>,
    /// Load beyond the limits, in the unit of the workloads' load.
    pub overload: i64,
    /// Load of each domain.
    pub load: Vec<i64>,
}

/// Places the workloads of a problem.
///
/// # Errors
/// What was asked for contradicts itself.
pub fn place(problem: &Problem, work: &mut Work<'_>) -> Result<Placement, Contradiction> {
    problem.check()?;
    let graph = problem.graph();
    let at = search(problem, &graph, work)?;
    Ok(placement(problem, &graph, &at))
}

/// A placement, and whether it is known that none is better.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    /// Where everybody goes.
    pub placement: Placement,
    /// To the precision of the solver, a hundred-thousandth of the largest cost of one edge. `false` says
    /// only that it is not known.
    pub is_optimal: bool,
}

/// Places the workloads, and then has an exact solver find something better until it proves that there
/// is nothing, or no time is left. For some forty workloads on four domains that takes seconds; for
/// eight domains it may take minutes.
///
/// # Errors
/// What was asked for contradicts itself.
pub fn prove(
    problem: &Problem,
    work: &mut Work<'_>,
    left: &dyn Fn() -> Option<Millis>,
) -> Result<Proven, Contradiction> {
    problem.check()?;
    let graph = problem.graph();
    let mut at = search(problem, &graph, work)?;
    let is_optimal = loop {
        match exact::improve(&graph, &at, left()) {
            exact::Answer::Better(found) => at = found,
            exact::Answer::Best => break true,
            exact::Answer::Unknown => break false,
        }
    };
    Ok(Proven { placement: placement(problem, &graph, &at), is_optimal })
}

/// The best domain of each unit that local search finds.
fn search(
    problem: &Problem,
    graph: &Graph,
    work: &mut Work<'_>,
) -> Result<Vec<usize>, Contradiction> {
    let fixed = exclusive::choices(problem, graph)?;
    let rounds = work.rounds / u64::try_from(fixed.len()).unwrap_or(1).max(1);
    let mut best: Option<(Score, Vec<usize>)> = None;
    for choice in fixed {
        let mut search = Search::new(graph, choice);
        search.run(&mut Work::new(rounds, work.left));
        let found = search.best();
        if best.as_ref().is_none_or(|(score, _)| found.0 < *score) {
            best = Some(found);
        }
        if work.is_over() {
            break;
        }
    }
    Ok(best.map(|(_, at)| at).unwrap_or_default())
}

fn placement(problem: &Problem, graph: &Graph, at: &[usize]) -> Placement {
    let mut layout = Layout::new(graph, vec![false; graph.limits.len()]);
    layout.place_all(at);
    shield::settle(&mut layout);
    Placement {
        domains: graph.domains_of_workloads(layout.at(), problem.workloads.len()),
        overload: layout.score().overload,
        load: layout.load().to_vec(),
    }
}

#[cfg(test)]
mod tests;
