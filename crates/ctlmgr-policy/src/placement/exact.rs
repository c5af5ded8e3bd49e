//! The same problem as an integer program: a better placement, or the proof that there is none.
//!
//! x_uk says whether unit u is on domain k. The distances that make sense here are those of a tree
//! (caches in nodes in sockets): base + Σ steps of the thresholds that separate two domains. So an edge
//! pays, for each threshold, Σ_g max(0, X_ug − X_vg) over the groups g that the threshold makes, with
//! X_ug = Σ_{k in g} x_uk (solvers B.1, by group instead of by edge, which bounds more tightly).
//!
//! The solver is asked for something better than what there is. What it finds is reckoned anew in
//! integers; when it says that there is nothing, that holds to its own precision, a hundred-thousandth of the
//! largest cost.

use good_lp::solvers::WithTimeLimit;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, variable,
};

use ctlmgr_model::Millis;

use super::layout::{Layout, Score};
use super::problem::Graph;
use crate::linear::solver;

/// More variables than this are not tried: a step of the solver would take longer than anybody waits.
const MOST_VARIABLES: usize = 20_000;
/// What a better placement gains at least, in parts of the largest cost: the solver's precision.
const LEAST_GAIN: f64 = 1e-5;

/// What the solver said.
#[derive(Debug)]
pub(super) enum Answer {
    /// A better placement of the units.
    Better(Vec<usize>),
    /// There is none.
    Best,
    /// It does not know, for want of time or because the problem is too large.
    Unknown,
}

/// Looks for a placement better than `at`: first with less overload, then at less cost.
pub(super) fn improve(graph: &Graph, at: &[usize], within: Option<Millis>) -> Answer {
    // A price above all that can be saved is no different from one that is just above.
    let graph = &Graph { move_price: graph.move_price.min(all_edges(graph) + 1), ..graph.clone() };
    let score = score(graph, at);
    let Some(levels) = levels(graph) else { return Answer::Unknown };
    let goals = [Goal::Overload, Goal::Cost];
    let open = goals.into_iter().filter(|goal| *goal == Goal::Cost || score.overload > 0);
    for goal in open {
        match Program::new(graph, &levels, score, goal).map(|program| program.solve(within)) {
            Some(Answer::Best) => {}
            Some(Answer::Better(found)) if self::score(graph, &found) < score => {
                return Answer::Better(found);
            }
            // What it takes for better is so only within its own precision.
            _ => return Answer::Unknown,
        }
    }
    Answer::Best
}

pub(super) fn score(graph: &Graph, at: &[usize]) -> Score {
    let mut layout = Layout::new(graph, vec![false; graph.limits.len()]);
    layout.place_all(at);
    layout.score()
}

/// What is to be made less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Overload,
    /// With no more overload than there is.
    Cost,
}

/// Domains by groups, and what it costs more for two to be in different groups.
struct Level {
    groups: Vec<Vec<usize>>,
    step: i64,
}

/// Thresholds of the distance; `None` if it is not that of a tree.
fn levels(graph: &Graph) -> Option<Vec<Level>> {
    let d = &graph.distance;
    let base = *d.first()?.first()?;
    let mut values: Vec<i64> = d.iter().flatten().copied().collect();
    values.sort_unstable();
    values.dedup();
    let is_tree = values[0] == base && (0..d.len()).all(|k| d[k][k] == base);
    let level = |pair: &[i64]| {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (k, row) in d.iter().enumerate() {
            let near = |g: &&mut Vec<usize>| row[g[0]] < pair[1];
            match groups.iter_mut().find(near) {
                Some(group) => group.push(k),
                None => groups.push(vec![k]),
            }
        }
        let together = |a: usize, b: usize| groups.iter().any(|g| g.contains(&a) && g.contains(&b));
        let mut pairs = (0..d.len()).flat_map(|a| (0..d.len()).map(move |b| (a, b)));
        let is_tree = pairs.all(|(a, b)| (d[a][b] < pair[1]) == together(a, b));
        is_tree.then_some(Level { groups, step: pair[1] - pair[0] })
    };
    is_tree.then(|| values.windows(2).map(level).collect()).flatten()
}

/// The integer program of one goal.
struct Program<'a> {
    graph: &'a Graph,
    levels: &'a [Level],
    variables: ProblemVariables,
    x: Vec<Vec<Variable>>,
    /// What is beyond each domain's limit.
    over: Vec<Variable>,
    rules: Vec<good_lp::Constraint>,
    goal: Expression,
}

impl<'a> Program<'a> {
    /// `None` if it is too large.
    fn new(graph: &'a Graph, levels: &'a [Level], now: Score, goal: Goal) -> Option<Program<'a>> {
        let (n, k) = (graph.units.len(), graph.limits.len());
        let groups: usize = levels.iter().map(|l| l.groups.len()).sum();
        let edges = graph.edges.iter().map(Vec::len).sum::<usize>() / 2;
        if n * k + edges * groups > MOST_VARIABLES {
            return None;
        }
        let mut variables = ProblemVariables::new();
        let x = (0..n).map(|_| variables.add_vector(variable().binary(), k)).collect();
        let over = variables.add_vector(variable().min(0.0), k);
        let mut program = Program {
            graph,
            levels,
            variables,
            x,
            over,
            rules: Vec::new(),
            goal: Expression::default(),
        };
        program.place_once();
        program.keep_apart();
        program.limit();
        program.break_symmetry();
        let overload: Expression = program.over.iter().sum();
        let most = float(now.overload) / largest(&graph.limits);
        match goal {
            Goal::Overload => {
                program.rules.push(overload.clone().leq(most - LEAST_GAIN));
                program.goal = overload;
            }
            Goal::Cost => {
                program.rules.push(overload.leq(most + LEAST_GAIN / 10.0));
                let unit = largest_cost(graph, levels);
                let cost = program.cost(unit);
                let most = float(now.cost - program.fixed_cost()) / unit;
                program.rules.push(cost.clone().leq(most - LEAST_GAIN));
                program.goal = cost;
            }
        }
        Some(program)
    }

    /// Everybody is on one domain, pinned ones on theirs.
    fn place_once(&mut self) {
        for (unit, x) in self.graph.units.iter().zip(&self.x) {
            self.rules.push(x.iter().sum::<Expression>().eq(1.0));
            if let (true, Some(home)) = (unit.is_pinned, unit.current) {
                self.rules.push(Expression::from(x[home]).eq(1.0));
            }
        }
    }

    /// Parts of one workload, and exclusive ones and others, share no domain.
    fn keep_apart(&mut self) {
        let units = &self.graph.units;
        for a in 0..units.len() {
            for b in a + 1..units.len() {
                let is_alone = units[a].is_exclusive || units[b].is_exclusive;
                if units[a].workload == units[b].workload || is_alone {
                    let both = self.x[a].iter().zip(&self.x[b]);
                    self.rules.extend(both.map(|(a, b)| (*a + *b).leq(1.0)));
                }
            }
        }
    }

    fn limit(&mut self) {
        let most = largest(&self.graph.limits);
        for (k, limit) in self.graph.limits.iter().enumerate() {
            let mut load = Expression::with_capacity(self.x.len() + 1);
            for (unit, x) in self.graph.units.iter().zip(&self.x) {
                load.add_mul(float(unit.load) / most, x[k]);
            }
            load.add_mul(-1.0, self.over[k]);
            self.rules.push(load.leq(float(*limit) / most));
        }
    }

    /// Where all domains are alike, who talks most may as well be on the first.
    fn break_symmetry(&mut self) {
        let graph = self.graph;
        let is_even = |level: &Level| level.groups.iter().all(|g| g.len() == level.groups[0].len());
        let is_free = graph.units.iter().all(|u| u.current.is_none());
        let is_alike = graph.limits.iter().all(|l| *l == graph.limits[0]);
        let talk = |u: &usize| graph.edges[*u].iter().map(|(_, w)| *w).sum::<i64>();
        let first = (0..graph.units.len()).max_by_key(talk);
        if let Some(first) =
            first.filter(|_| is_free && is_alike && self.levels.iter().all(is_even))
        {
            self.rules.push(Expression::from(self.x[first][0]).eq(1.0));
        }
    }

    /// What edges pay at any distance at all.
    fn fixed_cost(&self) -> i64 {
        let base = self.graph.distance[0][0];
        self.graph.edges.iter().flatten().map(|(_, w)| w * base).sum::<i64>() / 2
    }

    /// Moves, and edges above the least distance.
    fn cost(&mut self, unit: f64) -> Expression {
        let mut cost = Expression::default();
        let graph = self.graph;
        let price = float(graph.move_price) / unit;
        for (u, x) in graph.units.iter().zip(&self.x) {
            let Some(home) = u.current.filter(|_| price > 0.0) else { continue };
            cost += price;
            cost.add_mul(-price, x[home]);
        }
        for (a, edges) in graph.edges.iter().enumerate() {
            for (b, weight) in edges.iter().filter(|(b, _)| *b > a) {
                for level in self.levels {
                    let each = float(weight * level.step) / unit;
                    for group in &level.groups {
                        let apart = self.variables.add(variable().min(0.0).max(1.0));
                        let mut more = Expression::with_capacity(2 * group.len() + 1);
                        for k in group {
                            more.add_mul(1.0, self.x[a][*k]);
                            more.add_mul(-1.0, self.x[*b][*k]);
                        }
                        more.add_mul(-1.0, apart);
                        self.rules.push(more.leq(0.0));
                        cost.add_mul(each, apart);
                    }
                }
            }
        }
        cost
    }

    fn solve(self, within: Option<Millis>) -> Answer {
        let mut model = self.variables.minimise(self.goal).using(solver);
        for rule in self.rules {
            model.add_constraint(rule);
        }
        let solved = match within {
            Some(Millis(limit)) => model.with_time_limit(limit as f64 / 1000.0).solve(),
            None => model.solve(),
        };
        match solved {
            // The best or not: it is better than what there is.
            Ok(solution) => {
                let on = |x: &Vec<Variable>| x.iter().position(|v| solution.value(*v) > 0.5);
                let at: Option<Vec<usize>> = self.x.iter().map(on).collect();
                at.map_or(Answer::Unknown, Answer::Better)
            }
            Err(ResolutionError::Infeasible) => Answer::Best,
            _ => Answer::Unknown,
        }
    }
}

fn largest(values: &[i64]) -> f64 {
    float(values.iter().copied().max().unwrap_or(1).max(1))
}

/// What edges cost at most, all of them together.
fn all_edges(graph: &Graph) -> i64 {
    let far = graph.distance.iter().flatten().max().copied().unwrap_or(0);
    let all: i64 = graph.edges.iter().flatten().map(|(_, w)| *w).sum();
    (all / 2).saturating_mul(far).min(i64::MAX / 8)
}

fn largest_cost(graph: &Graph, levels: &[Level]) -> f64 {
    let step = levels.iter().map(|l| l.step).max().unwrap_or(1);
    let weight = graph.edges.iter().flatten().map(|(_, w)| *w).max().unwrap_or(0);
    float((weight * step).max(1))
}

#[expect(clippy::cast_precision_loss, reason = "the solver works with floats")]
fn float(value: i64) -> f64 {
    value as f64
}
