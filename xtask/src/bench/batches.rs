//! `cargo xtask bench batches`: the planner of batches beside the methods that the paper compares (Bhimani
//! et al., §6.3, Fig. 15 and 16).
//!
//! Brute force tries all divisions, and ends for a dozen containers. The paper's other methods are Matlab's:
//! interior point and sequential quadratic programming on the relaxed matrix P, from one start (local) or
//! many (global). In their place stands projected gradient ascent on the same relaxation, rounded; what it
//! shows is what becomes of relaxing, climbing and rounding, not how fast Matlab is.
//!
//! Then how many random problems are proven ([`general`]).

use std::fmt::Write;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::place::{Sequence, planned};
use super::{general, keep};
use crate::sh;

/// Divisions of more containers than this are not tried one by one.
const MOST_TRIED: usize = 13;
/// Larger instances are left out: the relaxed methods take n³ for a step.
const MOST: usize = 30;
/// Starts of the global search, and steps of each, as many as the paper's.
const STARTS: usize = 50;
const STEPS: usize = 50;

/// A problem of Eq. 1–6, container by container.
struct Case {
    penalty: Vec<Vec<f64>>,
    /// All of them together.
    worst: f64,
    most: usize,
    weights: [f64; 2],
}

/// Builds the command, plans, and prints the table.
pub fn run() -> Result<()> {
    sh::run(&mut sh::cargo(&["build", "--release", "--locked", "--package", "ctlmgr"]))?;
    let mut out =
        "| instance | containers | brute force | local search | global search | ctlmgr | proven |\n\
         |---|---|---|---|---|---|---|\n"
            .to_owned();
    let directory = sh::root().join("crates/ctlmgr/tests/batch");
    let mut files: Vec<_> = std::fs::read_dir(directory)?.collect::<std::io::Result<_>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    for file in files {
        let text = std::fs::read_to_string(file.path())?;
        let input = serde_json::from_str::<Value>(&text)?["input"].clone();
        // The paper knows no capacities.
        if input["capacity"].as_object().is_none_or(serde_json::Map::is_empty) {
            let name = file.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let case = Case::new(&input)?;
            if case.penalty.len() <= MOST {
                writeln!(out, "{}", row(&name, &case, &input)?)?;
            }
        }
    }
    writeln!(out, "\n{}", general::table()?)?;
    writeln!(out, "\n{}", general::constrained()?)?;
    print!("{out}");
    keep("batches.md", &out)
}

fn row(name: &str, case: &Case, input: &Value) -> Result<String> {
    let n = case.penalty.len();
    let timed = |work: &dyn Fn() -> f64| {
        let started = Instant::now();
        let value = work();
        format!("{value:.4} ({:.0} ms)", started.elapsed().as_secs_f64() * 1000.0)
    };
    let all = if n <= MOST_TRIED { timed(&|| case.best_of_all()) } else { "does not end".into() };
    let (local, global) = (timed(&|| case.climb(1)), timed(&|| case.climb(STARTS)));
    let found = planned(&["batch", "plan", "-", "--json"], input)?;
    let ours =
        format!("{:.4} ({} ms)", found["objective"].as_f64().unwrap_or(0.0), found["time_ms"]);
    Ok(format!("| {name} | {n} | {all} | {local} | {global} | {ours} | {} |", found["proven"]))
}

impl Case {
    fn new(input: &Value) -> Result<Case> {
        let entries = input["containers"].as_array().context("no containers")?;
        let bins = input["bins"].as_array().cloned().unwrap_or_default();
        let mut rows = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let bin = bins.iter().position(|b| *b == entry["bin"]).unwrap_or(index);
            let count = entry["count"].as_u64().unwrap_or(1);
            rows.extend((0..count).map(|_| bin));
        }
        let table = input.get("penalty").or(input.get("pairwise")).context("no penalties")?;
        let between = |a: usize, b: usize| table[a][b].as_f64().unwrap_or(0.0);
        let penalty: Vec<Vec<f64>> =
            rows.iter().map(|a| rows.iter().map(|b| between(*a, *b)).collect()).collect();
        let worst = (0..rows.len()).map(|a| penalty[a][a + 1..].iter().sum::<f64>()).sum();
        let most = input["max_batch"].as_u64().and_then(|n| usize::try_from(n).ok());
        let weight = |name: &str| input["objective"][name].as_f64().unwrap_or(1.0);
        Ok(Case {
            penalty,
            worst,
            most: most.unwrap_or(rows.len()),
            weights: [weight("penalty"), weight("batches")],
        })
    }

    /// Eq. 3.
    fn value(&self, penalty: f64, batches: f64) -> f64 {
        let part = |value: f64, most: f64| if most > 0.0 { 1.0 - value / most } else { 1.0 };
        let n = self.penalty.len() as f64;
        self.weights[0] * part(penalty, self.worst) + self.weights[1] * part(batches - 1.0, n - 1.0)
    }

    fn best_of_all(&self) -> f64 {
        let mut best = f64::MIN;
        self.divide(&mut Vec::new(), 0.0, &mut best);
        best
    }

    fn divide(&self, batches: &mut Vec<Vec<usize>>, penalty: f64, best: &mut f64) {
        let next = batches.iter().map(Vec::len).sum::<usize>();
        if next == self.penalty.len() {
            *best = best.max(self.value(penalty, batches.len() as f64));
            return;
        }
        for i in 0..batches.len() {
            if batches[i].len() < self.most {
                let more: f64 = batches[i].iter().map(|other| self.penalty[next][*other]).sum();
                batches[i].push(next);
                self.divide(batches, penalty + more, best);
                batches[i].pop();
            }
        }
        batches.push(vec![next]);
        self.divide(batches, penalty, best);
        batches.pop();
    }

    /// The best that so many starts come to: the relaxed P climbed, each container put where most of it is.
    fn climb(&self, starts: usize) -> f64 {
        let mut sequence = Sequence(7);
        let from = |_| self.climb_from(&mut sequence);
        (0..starts).map(from).fold(f64::MIN, f64::max)
    }

    fn climb_from(&self, sequence: &mut Sequence) -> f64 {
        let n = self.penalty.len();
        let mut p: Vec<Vec<f64>> =
            (0..n).map(|_| to_simplex((0..n).map(|_| sequence.unit()).collect())).collect();
        for step in 0..STEPS {
            let slope = self.slope(&p);
            let size = 1.0 / (1.0 + step as f64 / 10.0);
            for (row, slope) in p.iter_mut().zip(slope) {
                let steepest = slope.iter().fold(1e-12_f64, |most, s| most.max(s.abs()));
                let moved = row.iter().zip(&slope).map(|(x, s)| x + size * s / steepest);
                *row = to_simplex(moved.collect());
            }
        }
        self.rounded(&p)
    }

    /// How Eq. 3 grows with each entry of P; a batch counts as far as somebody is in it.
    fn slope(&self, p: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let n = p.len();
        let empty: Vec<f64> = (0..n).map(|k| p.iter().map(|row| 1.0 - row[k]).product()).collect();
        let entry = |i: usize, k: usize| {
            let fight: f64 = (0..n).filter(|j| *j != i).map(|j| self.penalty[i][j] * p[j][k]).sum();
            let others = empty[k] / (1.0 - p[i][k]).max(1e-9);
            -self.weights[0] * fight / self.worst.max(1e-9)
                - self.weights[1] * others / (n as f64 - 1.0).max(1.0)
        };
        (0..n).map(|i| (0..n).map(|k| entry(i, k)).collect()).collect()
    }

    fn rounded(&self, p: &[Vec<f64>]) -> f64 {
        let mut batches: Vec<Vec<usize>> = vec![Vec::new(); p.len()];
        let mut penalty = 0.0;
        for (i, row) in p.iter().enumerate() {
            let mut wishes: Vec<usize> = (0..row.len()).collect();
            wishes.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
            let place = wishes.into_iter().find(|k| batches[*k].len() < self.most).unwrap_or(i);
            penalty += batches[place].iter().map(|j| self.penalty[i][*j]).sum::<f64>();
            batches[place].push(i);
        }
        let used = batches.iter().filter(|b| !b.is_empty()).count();
        self.value(penalty, used as f64)
    }
}

/// The nearest point whose entries are parts of one.
fn to_simplex(mut row: Vec<f64>) -> Vec<f64> {
    let mut sorted = row.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut level) = (0.0, 0.0);
    for (index, value) in sorted.iter().enumerate() {
        sum += value;
        let next = (sum - 1.0) / (index as f64 + 1.0);
        if value - next <= 0.0 {
            break;
        }
        level = next;
    }
    row.iter_mut().for_each(|x| *x = (*x - level).max(0.0));
    row
}
