//! A first layout: units that talk much in clusters, the largest cluster first to the cheapest domain.

use std::cmp::Reverse;

use super::layout::Layout;
use crate::sequence::Sequence;

/// How a start differs from the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flavour {
    /// A cluster holds at most this part of the largest limit, in hundredths.
    pub fill_pct: i64,
    /// Whether edges are taken quite in the order of their weight.
    pub is_strict: bool,
    /// Of domains that cost the same, the fullest one that has room, or the emptiest.
    pub is_tight: bool,
}

/// Places these units, none of which is placed, on these domains.
pub(super) fn fill(
    layout: &mut Layout<'_>,
    (units, domains): (&[usize], &[usize]),
    flavour: Flavour,
    sequence: &mut Sequence,
) {
    let graph = layout.graph();
    let load = |cluster: &[usize]| cluster.iter().map(|u| graph.units[*u].load).sum::<i64>();
    let mut clusters = grow(layout, units, flavour, sequence);
    clusters.sort_by_key(|c| (Reverse(load(c)), c[0]));
    for cluster in clusters {
        let best = cheapest(layout, domains, &cluster, flavour.is_tight);
        for unit in cluster {
            let best = best.filter(|d| layout.may_be(unit, *d));
            // Parts of one workload may have come into one cluster; and where there are too few domains
            // for them, they share one.
            let domain = best.or_else(|| cheapest(layout, domains, &[unit], flavour.is_tight));
            layout.place(unit, domain.unwrap_or_else(|| emptiest(layout, domains)));
        }
    }
}

/// Clusters along the heaviest edges, as large as allowed.
fn grow(
    layout: &Layout<'_>,
    units: &[usize],
    flavour: Flavour,
    sequence: &mut Sequence,
) -> Vec<Vec<usize>> {
    let graph = layout.graph();
    let largest = graph.limits.iter().copied().max().unwrap_or(0);
    let most = largest / 100 * flavour.fill_pct;
    // The cluster of each unit, by its place in the list.
    let mut of = vec![usize::MAX; graph.units.len()];
    units.iter().enumerate().for_each(|(place, u)| of[*u] = place);
    let mut edges = Vec::new();
    for a in units {
        for (b, weight) in graph.edges[*a].iter().filter(|(b, _)| b > a && of[*b] != usize::MAX) {
            let luck = if flavour.is_strict { 64 } else { 40 + sequence.below(48) };
            edges.push((weight.saturating_mul(as_i64(luck)), *a, *b));
        }
    }
    edges.sort_unstable_by_key(|(weight, a, b)| (Reverse(*weight), *a, *b));
    let mut clusters: Vec<Vec<usize>> = units.iter().map(|u| vec![*u]).collect();
    let mut loads: Vec<i64> = units.iter().map(|u| graph.units[*u].load).collect();
    for (_, a, b) in edges {
        let (a, b) = (of[a].min(of[b]), of[a].max(of[b]));
        if a == b || loads[a] + loads[b] > most {
            continue;
        }
        let moved = std::mem::take(&mut clusters[b]);
        moved.iter().for_each(|u| of[*u] = a);
        clusters[a].extend(moved);
        loads[a] += loads[b];
    }
    clusters.retain(|c| !c.is_empty());
    clusters
}

fn as_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The domain that takes a cluster with the least overload, then cost; `None` if none may.
fn cheapest(
    layout: &Layout<'_>,
    domains: &[usize],
    cluster: &[usize],
    is_tight: bool,
) -> Option<usize> {
    let load: i64 = cluster.iter().map(|u| layout.graph().units[*u].load).sum();
    let rank = |d: &usize| {
        let room = layout.room(*d);
        let over = (load - room).max(0) - (-room).max(0);
        let cost: i64 = cluster.iter().map(|u| layout.costs(*u)[*d]).sum();
        (over, cost, if is_tight { room } else { -room }, *d)
    };
    let open = domains.iter().copied().filter(|d| cluster.iter().any(|u| layout.may_be(*u, *d)));
    open.min_by_key(rank)
}

fn emptiest(layout: &Layout<'_>, domains: &[usize]) -> usize {
    let open = domains.iter().copied().filter(|d| !layout.is_closed(*d));
    open.max_by_key(|d| layout.room(*d)).unwrap_or(0)
}
