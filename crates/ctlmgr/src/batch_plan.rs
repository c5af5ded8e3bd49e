//! `ctlmgr batch plan FILE`: dividing containers into batches, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use ctlmgr_model::Millis;
use ctlmgr_policy::batching::{Batches, Infeasible, Kind, Problem, Solver, Work, plan};
use serde::{Deserialize, Serialize};

use crate::memory_plan::read;
use crate::{Failure, print_json, show};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    max_batch: Option<u32>,
    #[serde(default)]
    objective: Objective,
    #[serde(default)]
    bins: Vec<String>,
    penalty: Option<Vec<Vec<f64>>>,
    pairwise: Option<Vec<Vec<f64>>>,
    containers: Vec<Container>,
    #[serde(default)]
    capacity: BTreeMap<String, f64>,
    #[serde(default = "default_limit_ms")]
    time_limit_ms: u64,
}

/// Weights of the two terms of Eq. 3.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Objective {
    penalty: f64,
    batches: f64,
}

impl Default for Objective {
    fn default() -> Self {
        Objective { penalty: 1.0, batches: 1.0 }
    }
}

fn default_limit_ms() -> u64 {
    1000
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Container {
    name: String,
    bin: Option<String>,
    #[serde(default = "one")]
    count: u32,
    #[serde(default, rename = "use")]
    uses: BTreeMap<String, f64>,
    volume: Option<String>,
    #[serde(default)]
    after: Vec<String>,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Serialize)]
struct Output {
    objective: f64,
    bound: f64,
    gap: f64,
    proven: bool,
    penalty_total: f64,
    batches: Vec<Vec<String>>,
    solver: &'static str,
    time_ms: u64,
}

/// Runs the command; with `rounds` the clock is not looked at.
pub(crate) fn run(file: &Path, rounds: Option<u64>, json: bool) -> Result<u8, Failure> {
    let output = read(file).and_then(|text| solve(&text, rounds)).map_err(Failure::bad_input)?;
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

fn solve(text: &str, rounds: Option<u64>) -> Result<Output, anyhow::Error> {
    let started = Instant::now();
    let input: Input = serde_json::from_str(text).context("failed to understand the input")?;
    let case = Case::new(&input)?;
    let passed = || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let left = || rounds.is_none().then(|| Millis(input.time_limit_ms.saturating_sub(passed())));
    let result = plan(&case.problem, &mut Work::new(rounds.unwrap_or(u64::MAX), &left));
    Ok(case.output(&result, started.elapsed()))
}

/// A problem, and what its figures stand for.
struct Case {
    problem: Problem,
    /// Names of the containers of each kind.
    names: Vec<Vec<String>>,
    /// What penalties, and weights, were multiplied by.
    penalty_scale: f64,
    weight_scale: f64,
}

/// Use of capacities is counted in millionths of their unit.
const USE_SCALE: f64 = 1e6;

impl Case {
    fn new(input: &Input) -> Result<Case, anyhow::Error> {
        let table = Penalties::new(input)?;
        let names = expand(&input.containers)?;
        let groups = group(input, &table)?;
        let uses = |c: &Container| -> Result<Vec<u64>, anyhow::Error> {
            let one = |name: &String| {
                let amount = c.uses.get(name).copied().unwrap_or(0.0);
                whole(amount * USE_SCALE)
                    .with_context(|| format!("container `{}`: use of `{name}` is {amount}", c.name))
            };
            input.capacity.keys().map(one).collect()
        };
        let of_entry =
            |entry: usize| groups.iter().position(|g| g.contains(&entry)).unwrap_or_default();
        let kinds: Result<Vec<Kind>, anyhow::Error> = groups
            .iter()
            .map(|entries| {
                let first = &input.containers[entries[0]];
                let after: BTreeSet<usize> =
                    predecessors(input, first)?.into_iter().map(of_entry).collect();
                Ok(Kind {
                    count: entries.iter().map(|e| input.containers[*e].count).sum(),
                    uses: uses(first)?,
                    after: after.into_iter().collect(),
                })
            })
            .collect();
        let capacities: Result<Vec<u64>, anyhow::Error> = input
            .capacity
            .iter()
            .map(|(name, have)| {
                whole(have * USE_SCALE).with_context(|| format!("capacity `{name}` is {have}"))
            })
            .collect();
        let (penalty, penalty_scale) = table.between(input, &groups)?;
        let (weights, weight_scale) = weights(&input.objective)?;
        let problem = Problem::new(kinds?, penalty, input.max_batch, capacities?, weights)
            .map_err(|e| explain(&e, input, &groups))?;
        let names = groups.iter().map(|g| g.iter().flat_map(|e| names[*e].clone()).collect());
        Ok(Case { problem, names: names.collect(), penalty_scale, weight_scale })
    }

    #[expect(clippy::cast_precision_loss, reason = "figures to show")]
    fn output(&self, result: &Batches, took: Duration) -> Output {
        let objective = |cost| self.problem.objective(cost) / self.weight_scale;
        let penalty: i64 = result.batches.iter().map(|b| self.problem.penalty(b)).sum();
        let mut names: Vec<_> = self.names.iter().map(|n| n.iter()).collect();
        let named = |batch: &Vec<u32>| {
            let of = batch.iter().zip(&mut names);
            of.flat_map(|(n, names)| names.take(*n as usize).cloned().collect::<Vec<_>>()).collect()
        };
        Output {
            objective: objective(result.cost),
            bound: objective(result.bound),
            gap: (result.cost - result.bound) as f64 / result.cost.max(1) as f64,
            proven: result.is_proven(),
            penalty_total: penalty as f64 / self.penalty_scale,
            batches: result.batches.iter().map(named).collect(),
            solver: match result.solver {
                Solver::Dp => "dp",
                Solver::Colgen => "colgen",
                Solver::Local => "local",
            },
            time_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Penalties as they were given: by bin, or by entry.
struct Penalties<'a> {
    rows: &'a [Vec<f64>],
    field: &'static str,
    /// Row of each entry.
    row: Vec<usize>,
}

impl<'a> Penalties<'a> {
    fn new(input: &'a Input) -> Result<Penalties<'a>, anyhow::Error> {
        let (rows, field, row) = match (&input.penalty, &input.pairwise) {
            (Some(rows), None) => (rows, "penalty", by_bin(input)?),
            (None, Some(rows)) => (rows, "pairwise", (0..input.containers.len()).collect()),
            (Some(_), Some(_)) => {
                return Err(anyhow!("`penalty` and `pairwise` exclude each other"));
            }
            (None, None) => return Err(anyhow!("missing field `penalty` or `pairwise`")),
        };
        let size = if field == "penalty" { input.bins.len() } else { input.containers.len() };
        ensure!(
            rows.len() == size && rows.iter().all(|r| r.len() == size),
            "`{field}` must have {size} rows of {size}"
        );
        for (a, values) in rows.iter().enumerate() {
            for (b, value) in values.iter().enumerate() {
                ensure!(
                    value.is_finite() && *value >= 0.0,
                    "`{field}[{a}][{b}]` is {value}: a penalty is at least 0"
                );
                ensure!(*value == rows[b][a], "`{field}[{a}][{b}]` and `{field}[{b}][{a}]` differ");
            }
        }
        Ok(Penalties { rows, field, row })
    }

    /// Between kinds, as integers, and what they were multiplied by. Different volumes do not
    /// conflict.
    fn between(
        &self,
        input: &Input,
        groups: &[Vec<usize>],
    ) -> Result<(Vec<Vec<i64>>, f64), anyhow::Error> {
        let scale = scale(&self.rows.iter().flatten().copied()).with_context(|| {
            format!("`{}` has too many decimals, or too large a value", self.field)
        })?;
        let one = |a: usize, b: usize| {
            let is_apart = input.containers[a].volume != input.containers[b].volume;
            if is_apart { 0 } else { integer(self.rows[self.row[a]][self.row[b]] * scale) }
        };
        let row = |a: &Vec<usize>| groups.iter().map(|b| one(a[0], b[0])).collect();
        Ok((groups.iter().map(row).collect(), scale))
    }
}

fn by_bin(input: &Input) -> Result<Vec<usize>, anyhow::Error> {
    let row = |c: &Container| {
        let bin = c.bin.as_ref().with_context(|| format!("container `{}` has no `bin`", c.name))?;
        input
            .bins
            .iter()
            .position(|b| b == bin)
            .with_context(|| format!("container `{}`: `bins` has no `{bin}`", c.name))
    };
    input.containers.iter().map(row).collect()
}

/// Names of the containers of each entry: a count above 1 stands for `name-1`, `name-2`, ….
fn expand(containers: &[Container]) -> Result<Vec<Vec<String>>, anyhow::Error> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for c in containers {
        ensure!(c.count > 0, "container `{}`: `count` is at least 1", c.name);
        let names: Vec<String> = match c.count {
            1 => vec![c.name.clone()],
            count => (1..=count).map(|n| format!("{}-{n}", c.name)).collect(),
        };
        let twice = names.iter().find(|n| !seen.insert((*n).clone()));
        ensure!(
            twice.is_none(),
            "two containers are called `{}`",
            twice.cloned().unwrap_or_default()
        );
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
            table.row[g[0]] == table.row[entry]
                && other.uses == c.uses
                && other.volume == c.volume
                && other.after == c.after
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

fn weights(objective: &Objective) -> Result<((i64, i64), f64), anyhow::Error> {
    let all = [objective.penalty, objective.batches];
    ensure!(
        all.iter().all(|w| w.is_finite() && *w >= 0.0) && all.iter().any(|w| *w > 0.0),
        "`objective`: weights are at least 0, and one is above"
    );
    let scale = scale(&all.into_iter()).context("`objective` has too many decimals")?;
    Ok(((integer(all[0] * scale), integer(all[1] * scale)), scale))
}

/// The least power of ten that makes all values integers.
fn scale(values: &(impl Iterator<Item = f64> + Clone)) -> Option<f64> {
    let is_whole = |v: f64| (v - v.round()).abs() < 1e-6 && v.abs() < 1e12;
    [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]
        .into_iter()
        .find(|s| values.clone().all(|v| is_whole(v * s)))
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and below 1e12")]
fn integer(value: f64) -> i64 {
    value.round() as i64
}

/// An amount of a capacity; `None` if it is negative, no number, or beyond exact arithmetic.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
fn whole(value: f64) -> Option<u64> {
    (value.is_finite() && (0.0..1e15).contains(&value)).then(|| value.round() as u64)
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
        Infeasible::NoRoom => anyhow!("`max_batch` is 0: {error}"),
        Infeasible::Overflow => anyhow!("{error}"),
    }
}
