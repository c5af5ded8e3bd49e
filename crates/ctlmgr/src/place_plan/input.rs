//! The input, and the problem that it is.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use ctlmgr_policy::placement::{Domain, Problem, Workload};
use serde::Deserialize;

use crate::scale::{Scale, integer};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    pub domains: Vec<InputDomain>,
    pub workloads: Vec<InputWorkload>,
    #[serde(default)]
    pub edges: Vec<(String, String, f64)>,
    #[serde(default)]
    pub distance: Distance,
    #[serde(default = "default_tolerance")]
    pub balance_tolerance: f64,
    #[serde(default = "default_limit_ms")]
    pub time_limit_ms: u64,
    /// In bytes · distance; by default a ten-thousandth of all bytes.
    pub move_price: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputDomain {
    pub id: String,
    pub cpus: f64,
    #[serde(default)]
    pub numa: u32,
    #[serde(default)]
    pub socket: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputWorkload {
    pub name: String,
    pub cpu: f64,
    #[serde(default = "default_weight")]
    pub weight: f64,
    #[serde(default)]
    pub current: Current,
    #[serde(default)]
    pub pinned: bool,
    #[serde(default)]
    pub exclusive: bool,
    #[serde(default = "one")]
    pub max_domains: usize,
}

/// Nowhere, one domain, or several.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged, expecting = "expected the id of a domain, a list of such, or null")]
pub(super) enum Current {
    #[default]
    Nowhere,
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Distance {
    same_l3: f64,
    same_numa: f64,
    same_socket: f64,
    other_socket: f64,
}

impl Default for Distance {
    fn default() -> Self {
        Distance { same_l3: 0.0, same_numa: 1.0, same_socket: 2.0, other_socket: 4.0 }
    }
}

fn default_tolerance() -> f64 {
    0.1
}

fn default_limit_ms() -> u64 {
    100
}

fn default_weight() -> f64 {
    100.0
}

fn one() -> usize {
    1
}

impl Input {
    /// Distance of two domains.
    pub fn distance(&self, a: usize, b: usize) -> f64 {
        let (x, y, d) = (&self.domains[a], &self.domains[b], &self.distance);
        match () {
            () if a == b => d.same_l3,
            () if (x.socket, x.numa) == (y.socket, y.numa) => d.same_numa,
            () if x.socket == y.socket => d.same_socket,
            () => d.other_socket,
        }
    }

    /// min(cpus_d, (1 + balance_tolerance) · total_cpu · cpus_d / Σ cpus).
    pub fn limit(&self, domain: usize) -> f64 {
        let cpus = self.domains[domain].cpus;
        let (load, all): (f64, f64) =
            (self.workloads.iter().map(|w| w.cpu).sum(), self.domains.iter().map(|d| d.cpus).sum());
        cpus.min((1.0 + self.balance_tolerance) * load * cpus / all)
    }

    /// Where a workload is now, by index.
    pub fn current(&self, workload: usize) -> Vec<usize> {
        let find = |id: &String| self.domains.iter().position(|d| d.id == *id);
        match &self.workloads[workload].current {
            Current::Nowhere => Vec::new(),
            Current::One(id) => find(id).into_iter().collect(),
            Current::Several(ids) => ids.iter().filter_map(find).collect(),
        }
    }
}

/// The problem in integers.
#[derive(Debug)]
pub(super) struct Case {
    pub problem: Problem,
}

/// More than this is refused: a table over workloads and domains is kept.
const MOST_WORKLOADS: usize = 20_000;
const MOST_DOMAINS: usize = 1024;
/// The table has so many cells at most, of 8 bytes each.
const MOST_CELLS: usize = 30_000_000;
/// Sums of costs stay below this.
const MOST_COST: f64 = 1e15;

impl Case {
    pub fn new(input: &Input) -> Result<Case, anyhow::Error> {
        check_domains(input)?;
        let names = check_workloads(input)?;
        let loads = input.workloads.iter().map(|w| w.cpu);
        let exact = Scale::of(loads.clone().chain(input.domains.iter().map(|d| d.cpus)));
        // Finer than the loads, so that a limit loses nothing that matters.
        let unit = exact.factor.max(1e6);
        let mut problem = Problem {
            domains: input
                .domains
                .iter()
                .map(|d| Domain { cpus: integer(d.cpus * unit) })
                .collect(),
            limits: (0..input.domains.len())
                .map(|d| integer((input.limit(d) * unit + 1e-3).floor()))
                .collect(),
            ..Problem::default()
        };
        for (index, w) in input.workloads.iter().enumerate() {
            problem.workloads.push(Workload {
                load: integer(w.cpu * unit),
                current: input.current(index),
                is_pinned: w.pinned,
                is_exclusive: w.exclusive,
                widest: w.max_domains,
                weight: integer(w.weight * 1000.0),
            });
        }
        let cells = problem.units().saturating_mul(input.domains.len());
        ensure!(
            cells <= MOST_CELLS,
            "workloads, each as wide as it is, times domains are {cells}, and {MOST_CELLS} are the most"
        );
        add_costs(input, &names, &mut problem)?;
        Ok(Case { problem })
    }
}

fn add_costs(
    input: &Input,
    names: &BTreeMap<&str, usize>,
    problem: &mut Problem,
) -> Result<(), anyhow::Error> {
    let d = &input.distance;
    let named = [
        ("same_l3", d.same_l3),
        ("same_numa", d.same_numa),
        ("same_socket", d.same_socket),
        ("other_socket", d.other_socket),
    ];
    for (name, value) in named {
        ensure!(
            (0.0..=1e6).contains(&value),
            "`distance.{name}` is {value}: it is from 0 to 1000000"
        );
    }
    let far = Scale::of(named.iter().map(|(_, v)| *v)).factor.min(1000.0);
    let k = input.domains.len();
    let row = |a: usize| (0..k).map(|b| integer(input.distance(a, b) * far)).collect();
    problem.distance = (0..k).map(row).collect();
    let all: f64 = input.edges.iter().map(|(_, _, bytes)| bytes).sum();
    let largest = named.iter().fold(1.0_f64, |most, (_, v)| most.max(v * far));
    let exact = Scale::of(input.edges.iter().map(|(_, _, bytes)| *bytes)).factor;
    let factor = exact.min(MOST_COST / (all * largest).max(1.0));
    for (index, (a, b, bytes)) in input.edges.iter().enumerate() {
        let find = |name: &String| {
            let found = names.get(name.as_str()).copied();
            found.with_context(|| format!("`edges[{index}]` names `{name}`, which is no workload"))
        };
        ensure!(
            bytes.is_finite() && *bytes >= 0.0,
            "`edges[{index}]`: bytes are {bytes}: they are at least 0"
        );
        problem.edges.push((find(a)?, find(b)?, integer(bytes * factor)));
    }
    let price = input.move_price.unwrap_or(all / 10_000.0);
    ensure!(price.is_finite() && price >= 0.0, "`move_price` is {price}: it is at least 0");
    problem.move_price = integer((price * factor * far).min(MOST_COST));
    Ok(())
}

fn check_domains(input: &Input) -> Result<(), anyhow::Error> {
    let count = input.domains.len();
    ensure!(count > 0, "`domains` is empty");
    ensure!(count <= MOST_DOMAINS, "`domains` are {count}, and {MOST_DOMAINS} are the most");
    for (index, d) in input.domains.iter().enumerate() {
        ensure!(
            d.cpus.is_finite() && d.cpus > 0.0 && d.cpus < 1e6,
            "domain `{}`: `cpus` is {}: it is above 0",
            d.id,
            d.cpus
        );
        let is_new = input.domains[..index].iter().all(|o| o.id != d.id);
        ensure!(is_new, "two entries of `domains` are called `{}`", d.id);
    }
    let tolerance = input.balance_tolerance;
    ensure!(
        tolerance.is_finite() && (0.0..=1000.0).contains(&tolerance),
        "`balance_tolerance` is {tolerance}: it is from 0 to 1000"
    );
    Ok(())
}

/// Names and indices of the workloads.
fn check_workloads(input: &Input) -> Result<BTreeMap<&str, usize>, anyhow::Error> {
    let count = input.workloads.len();
    ensure!(count <= MOST_WORKLOADS, "`workloads` are {count}, and {MOST_WORKLOADS} are the most");
    let mut names = BTreeMap::new();
    for (index, w) in input.workloads.iter().enumerate() {
        let name = &w.name;
        ensure!(names.insert(name.as_str(), index).is_none(), "two workloads are called `{name}`");
        ensure!(
            w.cpu.is_finite() && (0.0..1e6).contains(&w.cpu),
            "workload `{name}`: `cpu` is {}: it is at least 0",
            w.cpu
        );
        ensure!(w.max_domains > 0, "workload `{name}`: `max_domains` is at least 1");
        ensure!(
            w.weight.is_finite() && w.weight > 0.0,
            "workload `{name}`: `weight` is {}: it is above 0",
            w.weight
        );
        let stated: Vec<&String> = match &w.current {
            Current::Nowhere => Vec::new(),
            Current::One(id) => vec![id],
            Current::Several(ids) => ids.iter().collect(),
        };
        for (place, id) in stated.iter().enumerate() {
            let is_known = input.domains.iter().any(|d| d.id == **id);
            ensure!(is_known, "workload `{name}`: `current` names `{id}`, which is no domain");
            ensure!(
                !stated[..place].contains(id),
                "workload `{name}`: `current` names `{id}` twice"
            );
        }
    }
    Ok(names)
}
