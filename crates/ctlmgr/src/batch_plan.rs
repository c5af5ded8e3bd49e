//! `ctlmgr batch plan FILE`: dividing containers into batches, and nothing else.

mod capacity;
mod company;
mod form;
mod penalties;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use ctlmgr_model::Millis;
use ctlmgr_policy::batching::{Batches, Infeasible, Kind, Problem, Solver, Work, plan};

pub(crate) use self::company::{Company, company};

use self::capacity::Capacity;
use self::form::{Container, Input, Objective, Output};
use self::penalties::Penalties;
use crate::input::{parse, read};
use crate::scale::{Scale, integer, natural};
use crate::{Failure, print_json, show};

/// Runs the command; with `rounds` the clock is not looked at.
pub(crate) fn run(file: &Path, rounds: Option<u64>, json: bool) -> Result<u8, Failure> {
    run_text(&read(file).map_err(Failure::bad_input)?, rounds, json)
}

/// The same for a text that was read already.
pub(crate) fn run_text(text: &str, rounds: Option<u64>, json: bool) -> Result<u8, Failure> {
    let output = solve(text, rounds).map_err(Failure::bad_input)?;
    if json {
        print_json(&output)?;
        return Ok(0);
    }
    for (number, batch) in output.batches.iter().enumerate() {
        show::line(&format!("batch {}: {}", number + 1, batch.join(" ")));
    }
    let quality = match output.proven {
        true => "no better plan exists".to_owned(),
        false => format!("at most {:.2} % from the best", output.gap * 100.0),
    };
    show::line(&format!(
        "objective {:.6}, penalty {}, {} batches; {quality} ({}, {} ms)",
        output.objective,
        output.penalty_total,
        output.batches.len(),
        output.solver,
        output.time_ms
    ));
    Ok(0)
}

/// The batches of a plan, by names of containers, in the order in which they start, without those that run
/// already.
pub(crate) fn batches(text: &str) -> Result<Vec<Vec<String>>, anyhow::Error> {
    let input: Input = parse(text)?;
    let names = expand(&input.containers)?;
    let entries = input.containers.iter().zip(names).filter(|(c, _)| c.running);
    let running: BTreeSet<String> = entries.flat_map(|(_, names)| names).collect();
    let mut batches = solve(text, None)?.batches;
    batches.iter_mut().for_each(|batch| batch.retain(|name| !running.contains(name)));
    batches.retain(|batch| !batch.is_empty());
    Ok(batches)
}

/// For each container the names of those that come before it.
pub(crate) fn predecessors_by_name(
    text: &str,
) -> Result<BTreeMap<String, Vec<String>>, anyhow::Error> {
    let input = running::settle(parse(text)?);
    let names = expand(&input.containers)?;
    let mut all = BTreeMap::new();
    for (entry, c) in input.containers.iter().enumerate() {
        let before = predecessors(&input, c)?.into_iter().flat_map(|e| names[e].clone());
        let before: Vec<String> = before.collect();
        all.extend(names[entry].iter().map(|name| (name.clone(), before.clone())));
    }
    Ok(all)
}

fn solve(text: &str, rounds: Option<u64>) -> Result<Output, anyhow::Error> {
    let started = Instant::now();
    let mut input = running::settle(parse(text)?);
    let head = running::split_off_if_too_many(&mut input)?;
    let mut case = Case::new(&input)?;
    if !head.is_empty() {
        case.put_behind(&running::settle(parse(text)?), &head)?;
    }
    let passed = || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let left = || rounds.is_none().then(|| Millis(input.time_limit_ms.saturating_sub(passed())));
    let result = plan(&case.problem, &mut Work::new(rounds.unwrap_or(u64::MAX), &left));
    let result = result.map_err(|error| explain(&error, &input, &case.groups))?;
    let mut output = case.output(&result, started.elapsed());
    output.batches.splice(0..0, (!head.is_empty()).then_some(head));
    Ok(output)
}

/// A problem, and what its figures stand for.
struct Case {
    problem: Problem,
    /// Entries of each kind.
    groups: Vec<Vec<usize>>,
    /// Names of the containers of each kind.
    names: Vec<Vec<String>>,
    penalty: Scale,
    weight: Scale,
    /// Whether capacities are what was given, to the last digit.
    is_exact_in_capacities: bool,
    head: Option<Head>,
}

/// Those that run already where nobody can join them: a batch before all others, which counts like any.
struct Head {
    /// With everybody in it.
    whole: Problem,
    cost: i64,
    penalty: i64,
}

/// Figures that are no decimals are rounded; a plan is the best one if none is better by more than this part.
const NO_MATTER: f64 = 1e-6;
/// More containers than this are refused: nobody starts so many on one host.
const MOST: u64 = 100_000;
const MOST_WEIGHT: f64 = 1e6;

impl Case {
    fn new(input: &Input) -> Result<Case, anyhow::Error> {
        let total: u64 = input.containers.iter().map(|c| u64::from(c.count)).sum();
        ensure!(total <= MOST, "`containers` are {total} in all, and {MOST} are the most");
        let table = Penalties::new(input)?;
        let names = expand(&input.containers)?;
        let groups = group(input, &table)?;
        let of_entry =
            |entry: usize| groups.iter().position(|g| g.contains(&entry)).unwrap_or_default();
        let capacities: Result<Vec<Capacity>, anyhow::Error> =
            input.capacity.iter().map(|(name, have)| Capacity::new(input, name, *have)).collect();
        let capacities = capacities?;
        let kinds: Result<Vec<Kind>, anyhow::Error> = groups
            .iter()
            .map(|entries| {
                let first = &input.containers[entries[0]];
                let after: BTreeSet<usize> =
                    predecessors(input, first)?.into_iter().map(of_entry).collect();
                Ok(Kind {
                    count: entries.iter().map(|e| input.containers[*e].count).sum(),
                    uses: capacities.iter().map(|c| c.uses[entries[0]]).collect(),
                    after: after.into_iter().collect(),
                    deadline: first.deadline,
                    weight: mean_weight(input, entries),
                })
            })
            .collect();
        let is_exact_in_capacities = capacities.iter().all(|c| c.is_exact);
        let have = capacities.iter().map(|c| c.have).collect();
        let (penalty_table, penalty) = table.between(input, &groups);
        let (weights, weight) = weights(&input.objective)?;
        let problem = Problem::new(kinds?, penalty_table, input.max_batch, have, weights)
            .map_err(|e| explain(&e, input, &groups))?;
        let named = |group: &Vec<usize>| {
            let mut group = group.clone();
            let weight = |e: usize| input.containers[e].weight;
            group.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)));
            group.iter().flat_map(|e| names[*e].clone()).collect()
        };
        let names = groups.iter().map(named).collect();
        Ok(Case { problem, names, penalty, weight, groups, is_exact_in_capacities, head: None })
    }

    /// Counts those that run as a batch of their own before all others: Eq. 3 is about everybody.
    fn put_behind(&mut self, everybody: &Input, head: &[String]) -> Result<(), anyhow::Error> {
        let everybody = Input {
            // Whether they fit was said already, and that is all these are for.
            max_batch: None,
            capacity: BTreeMap::new(),
            ..everybody.clone()
        };
        let whole = Case::new(&everybody)?;
        let is_in = |names: &Vec<String>| names.iter().filter(|n| head.contains(n)).count();
        let batch: Vec<u32> = whole
            .names
            .iter()
            .map(|names| u32::try_from(is_in(names)).unwrap_or(u32::MAX))
            .collect();
        ensure!(self.problem.price_as(&whole.problem), "{}", Infeasible::Overflow);
        let (cost, penalty) = (whole.problem.cost(&batch), whole.problem.penalty(&batch));
        self.head = Some(Head { cost, penalty, whole: whole.problem });
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "figures to show")]
    fn output(&self, result: &Batches, took: Duration) -> Output {
        let (framed, before) = match &self.head {
            Some(head) => (&head.whole, (head.cost, head.penalty)),
            None => (&self.problem, (0, 0)),
        };
        let least = framed.prices().1;
        let cost = result.cost + before.0;
        // Where uses were rounded up a better plan may fit that was taken not to.
        let bound = if self.is_exact_in_capacities { result.bound + before.0 } else { least };
        let objective = |cost| framed.objective(cost) / self.weight.factor;
        let penalty: i64 = result.batches.iter().map(|b| self.problem.penalty(b)).sum();
        let mut names: Vec<_> = self.names.iter().map(|n| n.iter()).collect();
        let named = |batch: &Vec<u32>| {
            let of = batch.iter().zip(&mut names);
            of.flat_map(|(n, names)| names.take(*n as usize).cloned().collect::<Vec<_>>()).collect()
        };
        let slack = self.slack(framed);
        Output {
            objective: objective(cost),
            bound: (objective(bound) + slack).min(objective(least)),
            gap: (cost - bound) as f64 / cost.max(1) as f64,
            proven: bound >= cost && slack <= NO_MATTER * objective(least),
            penalty_total: (penalty + before.1) as f64 / self.penalty.factor,
            batches: result.batches.iter().map(named).collect(),
            solver: match result.solver {
                Solver::Dp => "dp",
                Solver::Colgen => "colgen",
                Solver::Local => "local",
            },
            time_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// By how much rounding can have changed the objective of any plan.
    #[expect(clippy::cast_precision_loss, reason = "a figure to show")]
    fn slack(&self, framed: &Problem) -> f64 {
        let n = f64::from(framed.total());
        let everyone: Vec<u32> = framed.kinds().iter().map(|k| k.count).collect();
        let most = framed.penalty(&everyone).max(1) as f64;
        let all = framed.objective(framed.prices().1) / self.weight.factor;
        // Half a unit for each pair, in the sum and in its largest value.
        let of_penalty = if self.penalty.is_exact { 0.0 } else { all * n * (n - 1.0) / most };
        let of_weights = if self.weight.is_exact { 0.0 } else { 2.0 / self.weight.factor };
        of_penalty + of_weights
    }
}

/// In thousandths. A kind is not divided by weight: that would make kinds of equals.
fn mean_weight(input: &Input, entries: &[usize]) -> u64 {
    let each = |e: &usize| (&input.containers[*e], f64::from(input.containers[*e].count));
    let (sum, count) = entries
        .iter()
        .map(each)
        .fold((0.0, 0.0), |(sum, all), (c, count)| (sum + c.weight * count, all + count));
    natural((sum / f64::max(count, 1.0) * 1000.0).round())
}

/// Names of the containers of each entry: a count above 1 stands for `name-1`, `name-2`, ….
fn expand(containers: &[Container]) -> Result<Vec<Vec<String>>, anyhow::Error> {
    let (mut entries, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut all = Vec::new();
    for c in containers {
        ensure!(c.count > 0, "container `{}`: `count` is at least 1", c.name);
        ensure!(
            c.deadline != Some(0),
            "container `{}`: `deadline` is 0: it is the number of a batch, and the first is 1",
            c.name
        );
        ensure!(
            c.weight > 0.0 && c.weight <= MOST_WEIGHT,
            "container `{}`: `weight` is {}: it is above 0 and at most {MOST_WEIGHT}",
            c.name,
            c.weight
        );
        ensure!(entries.insert(&c.name), "two entries of `containers` are called `{}`", c.name);
        let names: Vec<String> = match c.count {
            1 => vec![c.name.clone()],
            count => (1..=count).map(|n| format!("{}-{n}", c.name)).collect(),
        };
        for name in &names {
            ensure!(seen.insert(name.clone()), "two containers are called `{name}`");
        }
        all.push(names);
    }
    Ok(all)
}

/// Entries that another one names, by index.
fn predecessors(input: &Input, of: &Container) -> Result<Vec<usize>, anyhow::Error> {
    let find = |name: &String| {
        input.containers.iter().position(|c| c.name == *name).with_context(|| {
            format!("container `{}`: `after` names `{name}`, which is none", of.name)
        })
    };
    of.after.iter().map(find).collect()
}

/// Entries that do not differ, together.
fn group(input: &Input, table: &Penalties<'_>) -> Result<Vec<Vec<usize>>, anyhow::Error> {
    let mut awaited = BTreeSet::new();
    for c in &input.containers {
        awaited.extend(predecessors(input, c)?);
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (entry, c) in input.containers.iter().enumerate() {
        let is_like = |g: &Vec<usize>| {
            let other = &input.containers[g[0]];
            g.iter().all(|e| table.are_twins(&input.containers, *e, entry))
                && other.uses == c.uses
                && other.volume == c.volume
                && other.after == c.after
                && other.deadline == c.deadline
                && !awaited.contains(&entry)
                && !awaited.contains(&g[0])
        };
        match groups.iter_mut().find(|g| is_like(g)) {
            Some(group) => group.push(entry),
            None => groups.push(vec![entry]),
        }
    }
    Ok(groups)
}

fn weights(objective: &Objective) -> Result<((i64, i64), Scale), anyhow::Error> {
    let all = [objective.penalty, objective.batches];
    ensure!(
        all.iter().all(|w| w.is_finite() && *w >= 0.0) && all.iter().any(|w| *w > 0.0),
        "`objective`: weights are at least 0, and one is above"
    );
    let scale = Scale::of(all.into_iter());
    Ok(((integer(all[0] * scale.factor), integer(all[1] * scale.factor)), scale))
}

/// What is infeasible, by the names of the input.
fn explain(error: &Infeasible, input: &Input, groups: &[Vec<usize>]) -> anyhow::Error {
    let name = |kind: usize| &input.containers[groups[kind][0]].name;
    match error {
        Infeasible::TooLarge { kind, capacity } => {
            let capacity = input.capacity.keys().nth(*capacity).map_or("?", String::as_str);
            anyhow!(
                "container `{}` uses {} of `{capacity}`, and `capacity` has {}",
                name(*kind),
                input.containers[groups[*kind][0]].uses.get(capacity).unwrap_or(&0.0),
                input.capacity.get(capacity).unwrap_or(&0.0)
            )
        }
        Infeasible::Cycle { kind } => {
            anyhow!("container `{}`: `after` leads back to itself", name(*kind))
        }
        Infeasible::TooLate { kind } => anyhow!(
            "container `{}`: `deadline`: no plan was found that starts it, and all it comes before, in time",
            name(*kind)
        ),
        Infeasible::NoRoom => anyhow!("`max_batch` is 0: {error}"),
        Infeasible::Overflow => anyhow!("{error}"),
    }
}

#[cfg(test)]
mod tests;
