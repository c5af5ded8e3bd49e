//! Domains for workloads that share with nobody, before anybody else is placed.
//!
//! Which ones they get matters to the others only by limits and distances: choices that look alike are
//! tried once, and no more than [`MOST`] in all.

use super::problem::{Contradiction, Graph, Problem};

/// Choices that are tried.
const MOST: usize = 24;
/// Among more domains than this only a few are looked at for each.
const LARGE: usize = 64;
const FEW: usize = 2;

/// Where those go that search does not move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fixed {
    /// Units and their domains.
    pub at: Vec<(usize, usize)>,
    /// Domains for nobody else.
    pub closed: Vec<bool>,
}

/// Ways to place exclusive workloads; pinned ones are where they are in all of them.
pub(super) fn choices(problem: &Problem, graph: &Graph) -> Result<Vec<Fixed>, Contradiction> {
    let k = graph.limits.len();
    let pinned: Vec<(usize, usize)> = (0..graph.units.len())
        .filter(|u| graph.units[*u].is_pinned)
        .filter_map(|u| Some((u, graph.units[u].current?)))
        .collect();
    let mut first = Fixed { at: pinned, closed: vec![false; k] };
    for (unit, domain) in &first.at {
        first.closed[*domain] |= graph.units[*unit].is_exclusive;
    }
    let mut open: Vec<usize> = (0..graph.units.len())
        .filter(|u| graph.units[*u].is_exclusive && !graph.units[*u].is_pinned)
        .collect();
    open.sort_by_key(|u| (std::cmp::Reverse(graph.units[*u].load), *u));
    let mut all = vec![first];
    for unit in open {
        let next: Vec<Fixed> = all.iter().flat_map(|fixed| with(graph, fixed, unit)).collect();
        if next.is_empty() {
            return Err(too_exclusive(problem, graph, unit));
        }
        all = next.into_iter().take(MOST).collect();
    }
    let is_shared = |u: &usize| !graph.units[*u].is_exclusive && !graph.units[*u].is_pinned;
    match (0..graph.units.len()).find(is_shared) {
        Some(unit) if all[0].closed.iter().all(|c| *c) => Err(too_exclusive(problem, graph, unit)),
        _ => Ok(all),
    }
}

/// One more exclusive unit, on each domain that is free and looks different, the best first.
fn with(graph: &Graph, fixed: &Fixed, unit: usize) -> Vec<Fixed> {
    let (u, taken) = (&graph.units[unit], |d: usize| fixed.at.iter().any(|(_, at)| *at == d));
    let mut free: Vec<usize> = (0..graph.limits.len()).filter(|d| !taken(*d)).collect();
    free.sort_by_key(|d| ((u.load - graph.limits[*d]).max(0), u.current != Some(*d), *d));
    if graph.limits.len() > LARGE {
        free.truncate(FEW);
    }
    let mut seen = Vec::new();
    free.retain(|d| {
        let look = looks(graph, fixed, *d);
        let is_new = !seen.contains(&look);
        seen.push(look);
        is_new
    });
    let closed = |d: usize| {
        let mut fixed = fixed.clone();
        fixed.at.push((unit, d));
        fixed.closed[d] = true;
        fixed
    };
    free.into_iter().map(closed).collect()
}

/// What tells a domain from another: who is there now, its limit, how far each of those is that have a
/// place already, and how far the free ones are.
fn looks(graph: &Graph, fixed: &Fixed, domain: usize) -> (Option<usize>, i64, Vec<i64>, Vec<i64>) {
    let is_home = graph.units.iter().any(|u| u.current == Some(domain));
    let far = |d: usize| graph.distance[domain][d];
    let taken = fixed.at.iter().map(|(_, at)| far(*at)).collect();
    let is_free = |d: &usize| fixed.at.iter().all(|(_, at)| at != d);
    let mut free: Vec<i64> = (0..graph.limits.len()).filter(is_free).map(far).collect();
    free.sort_unstable();
    (is_home.then_some(domain), graph.limits[domain], taken, free)
}

fn too_exclusive(problem: &Problem, graph: &Graph, unit: usize) -> Contradiction {
    let needed = graph.units.iter().filter(|u| u.is_exclusive).count();
    let workload = graph.units[unit].workload;
    Contradiction::TooExclusive { workload, needed, domains: problem.domains.len() }
}
