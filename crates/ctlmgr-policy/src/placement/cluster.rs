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

/// Places everybody who is not placed yet.
pub(super) fn fill(layout: &mut Layout<'_>, flavour: Flavour, sequence: &mut Sequence) {
    let mut clusters = grow(layout, flavour, sequence);
    let graph = layout.graph();
    let load = |cluster: &[usize]| cluster.iter().map(|u| graph.units[*u].load).sum::<i64>();
    clusters.sort_by_key(|c| (Reverse(load(c)), c[0]));
    for cluster in clusters {
        let best = cheapest(layout, &cluster, load(&cluster), flavour.is_tight);
        for unit in cluster {
            let its = graph.units[unit].load;
            match best.filter(|d| layout.may_be(unit, *d)) {
                Some(domain) => layout.place(unit, domain),
                // Parts of one workload came into one cluster.
                None => {
                    let domain = cheapest(layout, &[unit], its, flavour.is_tight);
                    layout.place(unit, domain.unwrap_or_else(|| any_domain(layout, unit)));
                }
            }
        }
    }
}

/// Clusters along the heaviest edges, as large as allowed.
fn grow(layout: &Layout<'_>, flavour: Flavour, sequence: &mut Sequence) -> Vec<Vec<usize>> {
    let graph = layout.graph();
    let largest = graph.limits.iter().copied().max().unwrap_or(0);
    let most = largest / 100 * flavour.fill_pct;
    let is_open = |u: usize| !layout.is_placed(u);
    let mut edges = Vec::new();
    for (a, neighbours) in graph.edges.iter().enumerate().filter(|(a, _)| is_open(*a)) {
        for (b, weight) in neighbours.iter().filter(|(b, _)| *b > a && is_open(*b)) {
            let luck = if flavour.is_strict { 64 } else { 48 + sequence.below(32) };
            edges.push((weight / 64 * i64::try_from(luck).unwrap_or(64), a, *b));
        }
    }
    edges.sort_unstable_by_key(|(weight, a, b)| (Reverse(*weight), *a, *b));
    let mut of: Vec<usize> = (0..graph.units.len()).collect();
    let mut clusters: Vec<Vec<usize>> = of.iter().map(|u| vec![*u]).collect();
    let mut loads: Vec<i64> = graph.units.iter().map(|u| u.load).collect();
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
    clusters.retain(|c| c.first().is_some_and(|u| is_open(*u)));
    clusters
}

/// The domain that takes a cluster with the least overload, then cost; `None` if none may.
fn cheapest(layout: &Layout<'_>, cluster: &[usize], load: i64, is_tight: bool) -> Option<usize> {
    let rank = |d: &usize| {
        let room = layout.room(*d);
        let over = (load - room).max(0) - (-room).max(0);
        let cost: i64 = cluster.iter().map(|u| layout.costs(*u)[*d]).sum();
        (over, cost, if is_tight { room } else { -room }, *d)
    };
    let domains = 0..layout.load().len();
    domains.filter(|d| cluster.iter().any(|u| layout.may_be(*u, *d))).min_by_key(rank)
}

/// Where all others are closed to it, parts have to share: any that is open, or the first.
fn any_domain(layout: &Layout<'_>, unit: usize) -> usize {
    let open = |d: &usize| !layout.is_closed(*d);
    let _ = unit;
    (0..layout.load().len()).filter(open).max_by_key(|d| layout.room(*d)).unwrap_or(0)
}
