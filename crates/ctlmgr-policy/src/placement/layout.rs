//! Units on domains, with what every change would cost kept at hand.

use super::problem::Graph;

/// How good a layout is; less is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    /// Load beyond the limits.
    pub overload: i64,
    /// Weighted cut, and the price of moves.
    pub cost: i64,
}

/// Not placed yet.
const NOWHERE: usize = usize::MAX;

/// Where everybody is. O(degree · domains) for a move, O(1) to know what it would change.
#[derive(Debug, Clone)]
pub(super) struct Layout<'a> {
    graph: &'a Graph,
    /// Domains that an exclusive workload has for itself.
    closed: Vec<bool>,
    at: Vec<usize>,
    load: Vec<i64>,
    members: Vec<Vec<usize>>,
    /// Place of each unit among the members of its domain.
    rank: Vec<usize>,
    /// What each unit would pay on each domain, as the others are.
    cost: Vec<i64>,
    score: Score,
}

impl<'a> Layout<'a> {
    /// Nobody is placed.
    pub fn new(graph: &'a Graph, closed: Vec<bool>) -> Layout<'a> {
        let (n, k) = (graph.units.len(), graph.limits.len());
        let mut cost = vec![0; n * k];
        for (unit, row) in graph.units.iter().zip(cost.chunks_exact_mut(k.max(1))) {
            if let Some(current) = unit.current {
                row.fill(graph.move_price);
                row[current] = 0;
            }
        }
        Layout {
            graph,
            closed,
            at: vec![NOWHERE; n],
            load: vec![0; k],
            members: vec![Vec::new(); k],
            rank: vec![0; n],
            cost,
            score: Score::default(),
        }
    }

    pub fn graph(&self) -> &'a Graph {
        self.graph
    }

    pub fn score(&self) -> Score {
        self.score
    }

    pub fn at(&self) -> &[usize] {
        &self.at
    }

    pub fn load(&self) -> &[i64] {
        &self.load
    }

    pub fn members(&self, domain: usize) -> &[usize] {
        &self.members[domain]
    }

    /// Whether nobody but its owner may be there.
    pub fn is_closed(&self, domain: usize) -> bool {
        self.closed[domain]
    }

    pub fn is_placed(&self, unit: usize) -> bool {
        self.at[unit] != NOWHERE
    }

    /// What a unit pays on each domain.
    pub fn costs(&self, unit: usize) -> &[i64] {
        let k = self.load.len();
        &self.cost[unit * k..(unit + 1) * k]
    }

    /// What is left of a domain's limit; below 0 if it is overloaded.
    pub fn room(&self, domain: usize) -> i64 {
        self.graph.limits[domain] - self.load[domain]
    }

    /// Whether a unit may be there at all, others' load aside.
    pub fn may_be(&self, unit: usize, domain: usize) -> bool {
        let (first, last) = self.graph.units[unit].siblings;
        !self.closed[domain]
            && (first == last || (first..=last).all(|s| s == unit || self.at[s] != domain))
    }

    /// Whether search may move it.
    pub fn is_free(&self, unit: usize) -> bool {
        let unit = &self.graph.units[unit];
        !unit.is_pinned && !unit.is_exclusive
    }

    pub fn place_all(&mut self, at: &[usize]) {
        for (unit, domain) in at.iter().enumerate() {
            self.place(unit, *domain);
        }
    }

    pub fn place(&mut self, unit: usize, domain: usize) {
        self.score.overload += self.more_overload(domain, self.graph.units[unit].load);
        self.score.cost += self.costs(unit)[domain];
        self.load[domain] += self.graph.units[unit].load;
        self.rank[unit] = self.members[domain].len();
        self.members[domain].push(unit);
        self.at[unit] = domain;
        self.tell_neighbours(unit, domain, 1);
    }

    pub fn lift(&mut self, unit: usize) {
        let domain = self.at[unit];
        self.tell_neighbours(unit, domain, -1);
        self.score.overload += self.more_overload(domain, -self.graph.units[unit].load);
        self.score.cost -= self.costs(unit)[domain];
        self.load[domain] -= self.graph.units[unit].load;
        let rank = self.rank[unit];
        self.members[domain].swap_remove(rank);
        if let Some(moved) = self.members[domain].get(rank) {
            self.rank[*moved] = rank;
        }
        self.at[unit] = NOWHERE;
    }

    pub fn shift(&mut self, unit: usize, domain: usize) {
        self.lift(unit);
        self.place(unit, domain);
    }

    fn tell_neighbours(&mut self, unit: usize, domain: usize, sign: i64) {
        let k = self.load.len();
        let distance = &self.graph.distance[domain];
        for (other, weight) in &self.graph.edges[unit] {
            let row = &mut self.cost[other * k..(other + 1) * k];
            for (cost, distance) in row.iter_mut().zip(distance) {
                *cost += sign * weight * distance;
            }
        }
    }

    fn more_overload(&self, domain: usize, load: i64) -> i64 {
        let (before, limit) = (self.load[domain], self.graph.limits[domain]);
        (before + load - limit).max(0) - (before - limit).max(0)
    }

    /// What moving a unit would change.
    pub fn change(&self, unit: usize, to: usize) -> Score {
        let (from, load) = (self.at[unit], self.graph.units[unit].load);
        let costs = self.costs(unit);
        Score {
            overload: self.more_overload(from, -load) + self.more_overload(to, load),
            cost: costs[to] - costs[from],
        }
    }

    /// What it would change if two units took each other's place.
    pub fn change_of_swap(&self, a: usize, b: usize) -> Score {
        let (from, to) = (self.at[a], self.at[b]);
        let more = self.graph.units[b].load - self.graph.units[a].load;
        let (cost_a, cost_b) = (self.costs(a), self.costs(b));
        let mut cost = cost_a[to] - cost_a[from] + cost_b[from] - cost_b[to];
        // Each was reckoned with the other where it is now.
        if let Some((_, weight)) = self.graph.edges[a].iter().find(|(n, _)| *n == b) {
            let d = &self.graph.distance;
            cost += weight * (2 * d[from][to] - d[from][from] - d[to][to]);
        }
        Score { overload: self.more_overload(from, more) + self.more_overload(to, -more), cost }
    }
}
