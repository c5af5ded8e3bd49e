//! Exchanges of whole domains: everybody on one takes the place of everybody on another.
//!
//! Single moves cannot do it, as each of them costs; and a plan that was made afresh is often the
//! present one with other names of domains. Where nodes have changed their names it takes two exchanges
//! at once: each alone would part those that talk.

use super::layout::Layout;

/// More domains than this are not exchanged by two pairs at once: that takes their number to the fifth power.
const MOST_IN_PAIRS: usize = 16;

/// Exchanges domains while that helps; returns the moves.
pub(super) fn settle(layout: &Layout<'_>) -> Vec<(usize, usize)> {
    let k = layout.load().len();
    let mut table = Table::new(layout);
    // A domain's people by where they were.
    let mut holds: Vec<usize> = (0..k).collect();
    let is_open: Vec<bool> = (0..k).map(|d| is_open(layout, d)).collect();
    loop {
        let mut has_helped = false;
        for a in (0..k).filter(|d| is_open[*d]) {
            for b in (a + 1..k).filter(|d| is_open[*d]) {
                if table.change(layout, &holds, a, b) < (0, 0) {
                    holds.swap(a, b);
                    has_helped = true;
                }
            }
        }
        if !has_helped && (k > MOST_IN_PAIRS || !exchange_two(layout, &table, &mut holds, &is_open))
        {
            break;
        }
    }
    table.homes.clear();
    let moved = holds.iter().enumerate().filter(|(now, was)| now != *was);
    moved.flat_map(|(now, was)| layout.members(*was).iter().map(move |u| (*u, now))).collect()
}

/// Exchanges two pairs at once, where that helps.
fn exchange_two(layout: &Layout<'_>, table: &Table, holds: &mut [usize], is_open: &[bool]) -> bool {
    let open: Vec<usize> = (0..holds.len()).filter(|d| is_open[*d]).collect();
    let pairs =
        || open.iter().flat_map(|a| open.iter().filter(move |b| *b > a).map(move |b| (*a, *b)));
    for (a, b) in pairs() {
        let first = table.change(layout, holds, a, b);
        holds.swap(a, b);
        for (c, d) in pairs().filter(|(c, d)| *c > a && *c != b && *d != b) {
            let second = table.change(layout, holds, c, d);
            if (first.0 + second.0, first.1 + second.1) < (0, 0) {
                holds.swap(c, d);
                return true;
            }
        }
        holds.swap(a, b);
    }
    false
}

/// Whether all who are there may leave.
fn is_open(layout: &Layout<'_>, domain: usize) -> bool {
    !layout.is_closed(domain) && layout.members(domain).iter().all(|u| layout.is_free(*u))
}

/// Traffic between the people of domains, and how many are at home where.
struct Table {
    traffic: Vec<Vec<i64>>,
    homes: Vec<Vec<i64>>,
}

impl Table {
    fn new(layout: &Layout<'_>) -> Table {
        let (k, graph) = (layout.load().len(), layout.graph());
        let mut table = Table { traffic: vec![vec![0; k]; k], homes: vec![vec![0; k]; k] };
        for (unit, at) in layout.at().iter().enumerate() {
            for (other, weight) in &graph.edges[unit] {
                table.traffic[*at][layout.at()[*other]] += weight;
            }
            if let Some(home) = graph.units[unit].current {
                table.homes[*at][home] += 1;
            }
        }
        table
    }

    /// What it changes, overload first, if the people of two domains change places.
    fn change(&self, layout: &Layout<'_>, holds: &[usize], a: usize, b: usize) -> (i64, i64) {
        let (graph, load) = (layout.graph(), layout.load());
        let (p, q) = (holds[a], holds[b]);
        let over = |people: usize, domain: usize| (load[people] - graph.limits[domain]).max(0);
        let overload = over(p, b) + over(q, a) - over(p, a) - over(q, b);
        let d = &graph.distance;
        let mut cost = 0;
        for (m, people) in holds.iter().enumerate().filter(|(m, _)| *m != a && *m != b) {
            cost += (self.traffic[p][*people] - self.traffic[q][*people]) * (d[b][m] - d[a][m]);
        }
        // Traffic within is counted at both of its ends.
        cost += (self.traffic[p][p] - self.traffic[q][q]) * (d[b][b] - d[a][a]) / 2;
        let at_home = |people: usize, domain: usize| self.homes[people][domain];
        let homes = at_home(p, a) + at_home(q, b) - at_home(p, b) - at_home(q, a);
        (overload, cost + homes * graph.move_price)
    }
}
