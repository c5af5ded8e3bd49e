//! `cargo xtask bench place`: the planner of placements on graphs like those of many small applications,
//! beside METIS.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::keep;
use crate::{dist, fresh, sh};

/// Workloads and domains.
const SIZES: [(usize, usize); 4] = [(100, 8), (500, 16), (1000, 32), (2000, 64)];
const SEEDS: u64 = 2;

/// Builds the command, plans, and prints the table.
pub fn run() -> Result<()> {
    fresh::ensure_metis()?;
    sh::run(&mut sh::cargo(&["build", "--release", "--locked", "--package", "ctlmgr"]))?;
    let work = tempfile::tempdir()?;
    let mut out = "| workloads x domains | METIS k-way | recursive | our first starts | ctlmgr, 1 s | overload | time, ms |\n\
         |---|---|---|---|---|---|---|\n"
        .to_owned();
    for (n, k) in SIZES {
        for seed in 1..=SEEDS {
            let input = graph(n, k, seed);
            let first = plan(&input, &["--rounds", "0"])?;
            let mut cells = Vec::new();
            for method in ["kway", "rb"] {
                let parts = metis(work.path(), &input, k, method)?;
                cells
                    .push(plan(&from(&input, &parts), &["--rounds", "0"])?["weighted_cut"].clone());
            }
            let best = plan(&input, &[])?;
            writeln!(
                out,
                "| {n} x {k}, graph {seed} | {} | {} | {} | {} | {} | {} |",
                cells[0],
                cells[1],
                first["weighted_cut"],
                best["weighted_cut"],
                best["overload"],
                best["time_ms"]
            )?;
        }
    }
    print!("{out}");
    keep("place.md", &out)
}

#[expect(clippy::cast_sign_loss, reason = "a cast saturates")]
fn natural(value: f64) -> u64 {
    value as u64
}

/// A fixed sequence of numbers without pattern (splitmix64).
pub(super) struct Sequence(pub u64);

impl Sequence {
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(natural(self.unit() * end as f64)).unwrap_or(0)
    }

    /// Log-normal.
    fn skewed(&mut self, mean: f64, deviation: f64) -> f64 {
        let (a, b) = (self.unit().max(1e-12), self.unit());
        (mean + deviation * (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()).exp()
    }
}

/// Applications of 6 to 40 services, each of which talks to one or a few of those before it; some
/// applications talk to another. Seven tenths of the machine are busy.
fn graph(n: usize, k: usize, seed: u64) -> Value {
    let mut sequence = Sequence(seed * 7919 + n as u64);
    let mut edges: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    let mut applications = Vec::new();
    let mut first = 0;
    while first < n {
        let size = (6 + sequence.below(35)).min(n - first);
        for service in first + 1..first + size {
            let near = [1, 3, 8][sequence.below(3)].min(service - first);
            let other = first + sequence.below(near);
            *edges.entry((other, service)).or_default() += natural(sequence.skewed(7.0, 1.2)) + 1;
        }
        applications.push(first..first + size);
        first += size;
    }
    for (index, application) in applications.iter().enumerate() {
        let other = sequence.below(applications.len());
        if other != index && sequence.unit() < 0.3 {
            let one = application.start + sequence.below(application.len());
            let far = applications[other].start + sequence.below(applications[other].len());
            *edges.entry((one.min(far), one.max(far))).or_default() +=
                natural(sequence.skewed(6.0, 1.0)) + 1;
        }
    }
    let mut cpus: Vec<f64> = (0..n).map(|_| sequence.skewed(-1.5, 0.9)).collect();
    let scale = 6.0 * k as f64 * 0.7 / cpus.iter().sum::<f64>();
    cpus.iter_mut().for_each(|c| *c = (*c * scale * 1000.0).round().clamp(1.0, 3500.0) / 1000.0);
    let domain =
        |d: usize| json!({"id": format!("d{d}"), "cpus": 6, "numa": d / 2, "socket": d / 8});
    let workload = |(w, cpu): (usize, &f64)| json!({"name": format!("c{w}"), "cpu": cpu});
    let edge =
        |((a, b), bytes): (&(usize, usize), &u64)| json!([format!("c{a}"), format!("c{b}"), bytes]);
    json!({
        "domains": (0..k).map(domain).collect::<Vec<_>>(),
        "workloads": cpus.iter().enumerate().map(workload).collect::<Vec<_>>(),
        "edges": edges.iter().map(edge).collect::<Vec<_>>(),
        "balance_tolerance": 0.1,
        "time_limit_ms": 1000,
    })
}

/// The input with a placement to begin with, from which moves are free.
fn from(input: &Value, parts: &[usize]) -> Value {
    let mut input = input.clone();
    input["move_price"] = json!(0);
    for (w, part) in input["workloads"].as_array_mut().into_iter().flatten().zip(parts) {
        w["current"] = json!(format!("d{part}"));
    }
    input
}

fn plan(input: &Value, arguments: &[&str]) -> Result<Value> {
    planned(&[&["place", "plan", "-", "--json"], arguments].concat(), input)
}

/// What `ctlmgr` says to an input.
pub(super) fn planned(words: &[&str], input: &Value) -> Result<Value> {
    let mut child = Command::new(dist::target().join("release/ctlmgr"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to run ctlmgr")?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    std::io::Write::write_all(&mut stdin, input.to_string().as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("ctlmgr {} failed: {}", words.join(" "), output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The part of each workload, by METIS' own idea of balance.
fn metis(work: &Path, input: &Value, k: usize, method: &str) -> Result<Vec<usize>> {
    let workloads = input["workloads"].as_array().context("no workloads")?;
    let index = |v: &Value| v.as_str().and_then(|t| t[1..].parse::<usize>().ok()).unwrap_or(0);
    let mut neighbours = vec![String::new(); workloads.len()];
    let edges = input["edges"].as_array().context("no edges")?;
    for e in edges {
        let (a, b) = (index(&e[0]), index(&e[1]));
        write!(neighbours[a], " {} {}", b + 1, e[2])?;
        write!(neighbours[b], " {} {}", a + 1, e[2])?;
    }
    let mut text = format!("{} {} 011 1\n", workloads.len(), edges.len());
    for (w, neighbours) in workloads.iter().zip(neighbours) {
        let load = natural((w["cpu"].as_f64().unwrap_or(0.0) * 1000.0).round());
        writeln!(text, "{load}{neighbours}")?;
    }
    let file = work.join("graph");
    std::fs::write(&file, text)?;
    let words = ["gpmetis", &format!("-ptype={method}"), "-ufactor=100"];
    sh::quiet(sh::command(&words).arg(&file).arg(k.to_string()))?;
    let parts = std::fs::read_to_string(work.join(format!("graph.part.{k}")))?;
    parts.lines().map(|l| l.trim().parse().context("gpmetis wrote no number")).collect()
}
