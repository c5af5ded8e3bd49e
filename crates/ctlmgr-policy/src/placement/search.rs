//! Local search on layouts.

use std::collections::VecDeque;

use super::cluster::{self, Flavour};
use super::exchange;
use super::exclusive::Fixed;
use super::layout::{Layout, Score};
use super::problem::Graph;
use crate::sequence::Sequence;
use crate::work::Work;

/// Starts from clusters.
const STARTS: usize = 24;
/// For graphs of up to so many units; larger ones have fewer.
const STARTS_FOR: usize = 500;
/// Of these, so many are searched further, each by this part of the rounds.
const KEPT: usize = 6;
const PART: u64 = 12;
/// Rounds of a cycle, and by how much more than the best a layout may cost when it begins.
const CYCLE: usize = 2000;
const CYCLE_PER_UNIT: usize = 0;
const SLACK_PERMILLE: i64 = 100;
/// Beyond this the slack grows no more: products fit.
const MOST_COST: i64 = i64::MAX / 1_000_000;
/// Units that are looked at between two looks at the clock.
const LOOK_AT_CLOCK: usize = 64;
/// More domains than this are not exchanged as a whole: that takes their number to the third power.
const MOST_EXCHANGED: usize = 128;
/// Units that are moved together, at most.
const LARGEST_CLUSTER: usize = 7;
/// Domains that a unit looks for a partner to swap with.
const SWAP_DOMAINS: usize = 3;

fn as_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The search for one way to place those that do not move.
pub(super) struct Search<'a> {
    graph: &'a Graph,
    fixed: Fixed,
    layout: Layout<'a>,
    /// Units to look at, and whether each is among them.
    queue: VecDeque<usize>,
    is_queued: Vec<bool>,
    /// Moves since the last point to go back to.
    log: Vec<(usize, usize)>,
    sequence: Sequence,
    best: Option<(Score, Vec<usize>)>,
}

impl<'a> Search<'a> {
    pub fn new(graph: &'a Graph, fixed: Fixed) -> Search<'a> {
        let layout = Layout::new(graph, fixed.closed.clone());
        Search {
            graph,
            fixed,
            layout,
            queue: VecDeque::new(),
            is_queued: vec![false; graph.units.len()],
            log: Vec::new(),
            sequence: Sequence::new(),
            best: None,
        }
    }

    /// The best layout so far.
    pub fn best(self) -> (Score, Vec<usize>) {
        self.best.unwrap_or_else(|| (self.layout.score(), self.layout.at().to_vec()))
    }

    /// Searches; at least one start is made, whatever may be done.
    pub fn run(&mut self, work: &mut Work<'_>) {
        let mut kept: Vec<(Score, Vec<usize>)> = Vec::new();
        let has_homes = self.graph.units.iter().any(|u| u.current.is_some());
        // Of a large graph one start takes as long as all of a small one.
        let starts = STARTS.min(STARTS * STARTS_FOR / self.graph.units.len().max(1)).max(6);
        for start in 0..=starts {
            if start == 0 && !has_homes {
                continue;
            }
            self.begin(start, work);
            kept.push((self.layout.score(), self.layout.at().to_vec()));
            if work.is_over() || self.is_perfect() {
                break;
            }
        }
        kept.sort();
        kept.dedup_by(|a, b| a.0 == b.0);
        let part = work.rounds / PART;
        for (_, at) in kept.into_iter().take(KEPT) {
            self.go_to(&at);
            self.wander(&mut Work::new(part, work.left));
            work.rounds = work.rounds.saturating_sub(part);
        }
        if let Some((_, at)) = self.best.clone() {
            self.go_to(&at);
            self.wander(work);
        }
        self.spread();
        self.offer();
    }

    fn is_perfect(&self) -> bool {
        self.best.as_ref().is_some_and(|(score, _)| *score == Score::default())
    }

    /// A first layout, settled: where everybody is (0), or clusters of one kind or another.
    fn begin(&mut self, start: usize, work: &Work<'_>) {
        self.layout = Layout::new(self.graph, self.fixed.closed.clone());
        for (unit, domain) in self.fixed.at.clone() {
            self.layout.place(unit, domain);
        }
        if start == 0 {
            for unit in 0..self.graph.units.len() {
                let home = self.graph.units[unit].current;
                let home =
                    home.filter(|d| !self.layout.is_placed(unit) && self.layout.may_be(unit, *d));
                if let Some(home) = home {
                    self.layout.place(unit, home);
                }
            }
        }
        let flavour = Flavour {
            fill_pct: [95, 70, 45, 85, 60, 30][start % 6],
            is_strict: start <= 6,
            is_tight: start % 2 == 1,
        };
        let units: Vec<usize> =
            (0..self.graph.units.len()).filter(|u| !self.layout.is_placed(*u)).collect();
        let domains: Vec<usize> = (0..self.graph.limits.len()).collect();
        cluster::fill(&mut self.layout, (&units, &domains), flavour, &mut self.sequence);
        (0..self.graph.units.len()).for_each(|u| self.ask(u));
        self.settle(work);
        if self.graph.limits.len() <= MOST_EXCHANGED {
            for (unit, domain) in exchange::settle(&self.layout) {
                self.shift(unit, domain);
                self.ask(unit);
            }
            self.settle(work);
        }
        self.offer();
    }

    fn go_to(&mut self, at: &[usize]) {
        self.layout = Layout::new(self.graph, self.fixed.closed.clone());
        self.layout.place_all(at);
        self.log.clear();
    }

    /// Keeps the layout if it is the best so far.
    fn offer(&mut self) {
        let score = self.layout.score();
        if self.best.as_ref().is_none_or(|(best, _)| score < *best) {
            self.best = Some((score, self.layout.at().to_vec()));
        }
    }

    fn ask(&mut self, unit: usize) {
        if !self.is_queued[unit] && self.layout.is_free(unit) {
            self.is_queued[unit] = true;
            self.queue.push_back(unit);
        }
    }

    fn shift(&mut self, unit: usize, domain: usize) {
        self.log.push((unit, self.layout.at()[unit]));
        self.layout.shift(unit, domain);
    }

    fn shift_and_ask(&mut self, unit: usize, domain: usize) {
        self.shift(unit, domain);
        self.ask(unit);
        let graph = self.graph;
        graph.edges[unit].iter().for_each(|(other, _)| self.ask(*other));
    }

    /// Moves and swaps around those that are asked, until none helps.
    fn settle(&mut self, work: &Work<'_>) {
        let mut looked = 0_usize;
        while let Some(unit) = self.queue.pop_front() {
            self.is_queued[unit] = false;
            looked += 1;
            // What is left is worse than it could be, and a layout all the same.
            if looked.is_multiple_of(LOOK_AT_CLOCK) && work.is_over() {
                self.queue.drain(..).for_each(|unit| self.is_queued[unit] = false);
                return;
            }
            if let Some(domain) = self.better_domain(unit) {
                self.shift_and_ask(unit, domain);
            } else if let Some(other) = self.better_swap(unit) {
                let (from, to) = (self.layout.at()[unit], self.layout.at()[other]);
                self.shift_and_ask(unit, to);
                self.shift_and_ask(other, from);
            }
        }
    }

    /// The best move that helps.
    fn better_domain(&self, unit: usize) -> Option<usize> {
        let at = self.layout.at()[unit];
        let domains = (0..self.layout.load().len()).filter(|d| *d != at);
        let changes = domains
            .map(|d| (self.layout.change(unit, d), d))
            .filter(|(change, d)| *change < Score::default() && self.layout.may_be(unit, *d));
        changes.min().map(|(_, d)| d)
    }

    /// The best swap that helps, among a few domains where the unit would like to be.
    fn better_swap(&self, unit: usize) -> Option<usize> {
        let layout = &self.layout;
        let (at, costs) = (layout.at()[unit], layout.costs(unit));
        let is_full = layout.room(at) < 0;
        let mut wished: Vec<usize> =
            (0..costs.len()).filter(|d| *d != at && (is_full || costs[*d] < costs[at])).collect();
        wished.sort_by_key(|d| (costs[*d], *d));
        let is_better = |other: &usize| {
            layout.is_free(*other)
                && layout.may_be(*other, at)
                && layout.change_of_swap(unit, *other) < Score::default()
        };
        let wished = wished.into_iter().filter(|d| layout.may_be(unit, *d)).take(SWAP_DOMAINS);
        let others = wished.flat_map(|d| layout.members(d).iter().copied()).filter(is_better);
        others.min_by_key(|other| (layout.change_of_swap(unit, *other), *other))
    }

    /// Localised search: a cluster to another domain, settle, back if that was too much worse. How much
    /// is too much falls to nothing in the course of a cycle (record-to-record travel); each cycle begins
    /// with the best layout.
    fn wander(&mut self, work: &mut Work<'_>) {
        let n = self.graph.units.len();
        let cycle = CYCLE_PER_UNIT * n + CYCLE;
        let mut round = 0;
        while n > 0 && !self.is_perfect() && work.step() {
            if round % cycle == cycle - 1
                && let Some((_, at)) = self.best.clone()
            {
                self.go_to(&at);
            }
            let best = self.best.as_ref().map_or(self.layout.score(), |(score, _)| *score);
            let left = as_i64(cycle - round % cycle) * 1000 / as_i64(cycle);
            let slack = best.cost.min(MOST_COST) * left / 1000 * SLACK_PERMILLE / 1000;
            let before = self.layout.score();
            self.log.clear();
            match self.sequence.below(3) {
                0 => self.kick(),
                _ => self.mix(),
            }
            self.settle(work);
            let now = self.layout.score();
            let bar = Score { cost: before.cost.max(best.cost + slack), ..before };
            match now <= bar {
                true => self.offer(),
                false => self.go_back(),
            }
            round += 1;
        }
    }

    fn go_back(&mut self) {
        while let Some((unit, domain)) = self.log.pop() {
            self.layout.shift(unit, domain);
        }
    }

    /// Moves a few units that talk to each other to where others are that they talk to.
    fn kick(&mut self) {
        let Some(first) = self.restless() else { return };
        let from = self.layout.at()[first];
        let to = self.target(first);
        if to == from {
            return;
        }
        let size = 1 + self.sequence.below(LARGEST_CLUSTER);
        let cluster = self.cluster_around(first, size);
        for unit in &cluster {
            if self.layout.may_be(*unit, to) {
                self.shift_and_ask(*unit, to);
            }
        }
        self.make_room(to, &cluster);
    }

    /// Divides the units of a few domains anew: of one who pays for where it is, of one it talks to, and
    /// perhaps of a third.
    fn mix(&mut self) {
        let Some(first) = self.restless() else { return };
        let mut domains = vec![self.layout.at()[first], self.target(first)];
        if self.sequence.below(3) == 0 {
            domains.push(self.sequence.below(self.layout.load().len()));
        }
        domains.sort_unstable();
        domains.dedup();
        domains.retain(|d| !self.layout.is_closed(*d));
        let layout = &self.layout;
        let members = domains.iter().flat_map(|d| layout.members(*d).iter().copied());
        let units: Vec<usize> = members.filter(|u| layout.is_free(*u)).collect();
        for unit in &units {
            self.log.push((*unit, self.layout.at()[*unit]));
            self.layout.lift(*unit);
        }
        let flavour = Flavour {
            fill_pct: as_i64(20 + self.sequence.below(80)),
            is_strict: false,
            is_tight: self.sequence.below(2) == 0,
        };
        cluster::fill(&mut self.layout, (&units, &domains), flavour, &mut self.sequence);
        units.into_iter().for_each(|u| self.ask(u));
    }

    /// One who pays for where it is, if chance finds one.
    fn restless(&mut self) -> Option<usize> {
        for _ in 0..64 {
            let unit = self.sequence.below(self.graph.units.len());
            let pays = self.layout.costs(unit)[self.layout.at()[unit]] > 0;
            let is_over = self.layout.room(self.layout.at()[unit]) < 0;
            if self.layout.is_free(unit) && (pays || is_over) {
                return Some(unit);
            }
        }
        None
    }

    /// Where one of those is that it talks to, or anywhere.
    fn target(&mut self, unit: usize) -> usize {
        let neighbours = &self.graph.edges[unit];
        if neighbours.is_empty() || self.sequence.below(4) == 0 {
            return self.sequence.below(self.layout.load().len());
        }
        let (other, _) = neighbours[self.sequence.below(neighbours.len())];
        self.layout.at()[other]
    }

    /// The unit and those on its domain that it talks to, and so on.
    fn cluster_around(&mut self, first: usize, size: usize) -> Vec<usize> {
        let (graph, at) = (self.graph, self.layout.at()[first]);
        let mut cluster = vec![first];
        let mut next = 0;
        while cluster.len() < size && next < cluster.len() {
            for (other, _) in &graph.edges[cluster[next]] {
                let is_near = self.layout.at()[*other] == at && self.layout.is_free(*other);
                let is_in = is_near && cluster.len() < size && !cluster.contains(other);
                if is_in && self.sequence.below(4) > 0 {
                    cluster.push(*other);
                }
            }
            next += 1;
        }
        cluster
    }

    /// Moves others out of a domain that is too full, at the least cost.
    fn make_room(&mut self, domain: usize, kept: &[usize]) {
        for _ in 0..2 * LARGEST_CLUSTER {
            if self.layout.room(domain) >= 0 {
                return;
            }
            let layout = &self.layout;
            let mut best: Option<(i64, usize, usize)> = None;
            for unit in layout
                .members(domain)
                .iter()
                .copied()
                .filter(|u| !kept.contains(u) && layout.is_free(*u))
            {
                let (load, costs) = (self.graph.units[unit].load, layout.costs(unit));
                let open = (0..costs.len())
                    .filter(|d| *d != domain && layout.room(*d) >= load && layout.may_be(unit, *d));
                let cheapest = open.map(|d| (costs[d] - costs[domain], unit, d)).min();
                best = best.into_iter().chain(cheapest).min();
            }
            let Some((_, unit, to)) = best else { return };
            self.shift_and_ask(unit, to);
        }
    }

    /// Those that talk to nobody, and are nowhere yet, go where most room is left.
    fn spread(&mut self) {
        if let Some((_, at)) = self.best.clone() {
            self.go_to(&at);
        }
        let graph = self.graph;
        let is_alone = |u: &usize| graph.edges[*u].is_empty() && graph.units[*u].current.is_none();
        let mut alone: Vec<usize> =
            (0..graph.units.len()).filter(|u| is_alone(u) && self.layout.is_free(*u)).collect();
        alone.sort_by_key(|u| (std::cmp::Reverse(graph.units[*u].load), *u));
        alone.iter().for_each(|u| self.layout.lift(*u));
        for unit in alone {
            let open = (0..graph.limits.len()).filter(|d| self.layout.may_be(unit, *d));
            let emptiest = open.max_by_key(|d| (self.layout.room(*d), std::cmp::Reverse(*d)));
            self.layout.place(unit, emptiest.unwrap_or(0));
        }
        let score = self.layout.score();
        if self.best.as_ref().is_some_and(|(best, _)| score <= *best) {
            self.best = Some((score, self.layout.at().to_vec()));
        }
    }
}
