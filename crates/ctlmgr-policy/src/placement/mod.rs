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
//! each at the price of [`Problem::move_price`].
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
//!
//! # Properties
//! Every workload is placed; pinned ones stay, exclusive ones are alone, parts are apart. The result is
//! never worse than the present placement. The same problem and the same work give the same result,
//! unless time runs out. A price above all that could be gained moves nothing.

mod cluster;
mod exchange;
mod exclusive;
mod layout;
mod problem;
mod search;

pub use crate::work::Work;
pub use problem::{Contradiction, Domain, Problem, Workload};

use layout::{Layout, Score};
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
    let fixed = exclusive::choices(problem, &graph)?;
    let rounds = work.rounds / u64::try_from(fixed.len()).unwrap_or(1).max(1);
    let mut best: Option<(Score, Vec<usize>)> = None;
    for choice in fixed {
        let mut search = Search::new(&graph, choice);
        search.run(&mut Work::new(rounds, work.left));
        let found = search.best();
        if best.as_ref().is_none_or(|(score, _)| found.0 < *score) {
            best = Some(found);
        }
        if work.is_over() {
            break;
        }
    }
    let (_, at) = best.unwrap_or_default();
    let mut layout = Layout::new(&graph, vec![false; graph.limits.len()]);
    layout.place_all(&at);
    Ok(Placement {
        domains: graph.domains_of_workloads(&at, problem.workloads.len()),
        overload: layout.score().overload,
        load: layout.load().to_vec(),
    })
}

#[cfg(test)]
mod tests;
