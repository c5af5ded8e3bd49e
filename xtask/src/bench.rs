//! `cargo xtask bench memory`: policies side by side in one call, three runs each.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;

use crate::lab::{self, Kit, Record, mean};
use crate::picture::{Line, Panel, draw};
use crate::{dist, fresh, sh};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Two hogs promised 1:2 under outside pressure: resident parts and pace per step.
    Memory {
        /// Runs of each policy.
        #[arg(long, default_value_t = 3)]
        runs: u32,
        /// Seconds per pressure step.
        #[arg(long, default_value_t = 20)]
        step_secs: u32,
        /// Only policies whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
}

/// A way of treating the host, and what the script needs to know of it.
struct Policy {
    name: &'static str,
    mode: &'static str,
    weight_of_large: u32,
    lru: &'static str,
}

const POLICIES: [Policy; 6] = [
    Policy { name: "plain kernel, MGLRU", mode: "observe", weight_of_large: 100, lru: "mglru" },
    Policy {
        name: "plain kernel, classic LRU",
        mode: "observe",
        weight_of_large: 100,
        lru: "classic",
    },
    Policy { name: "ctlmgr 1:1, MGLRU", mode: "act", weight_of_large: 100, lru: "mglru" },
    Policy { name: "ctlmgr 1:1, classic LRU", mode: "act", weight_of_large: 100, lru: "classic" },
    Policy { name: "ctlmgr 1:4, MGLRU", mode: "act", weight_of_large: 400, lru: "mglru" },
    Policy { name: "ctlmgr 1:4, classic LRU", mode: "act", weight_of_large: 400, lru: "classic" },
];
const STEPS: u64 = 5;

/// One run of one policy.
struct Run {
    policy: usize,
    record: Record,
}

/// Runs `cargo xtask bench`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Command::Memory { runs, step_secs, only } = &arguments.command;
    fresh::ensure_compiler()?;
    let kit = lab::kit()?;
    let mut results = Vec::new();
    // Rounds, not blocks: a machine that drifts drifts for all policies.
    for round in 1..=*runs {
        for (i, policy) in
            POLICIES.iter().enumerate().filter(|(_, p)| p.name.contains(only.as_str()))
        {
            sh::say(&format!("round {round} of {runs}: {}", policy.name));
            results.push(Run { policy: i, record: measure(&kit, policy, *step_secs)? });
            // After every run: an hour of measuring must not be lost to what comes last.
            write(&results, *step_secs)?;
        }
    }
    print!("{}", report(&results, *step_secs)?);
    Ok(())
}

/// Writes report and picture of what was measured so far.
fn write(results: &[Run], step_secs: u32) -> Result<()> {
    let directory = dist::target().join("bench");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("memory.md"), report(results, step_secs)?)?;
    picture(results, &directory.join("memory.svg"))
}

fn measure(kit: &Kit, policy: &Policy, step_secs: u32) -> Result<Record> {
    let Policy { mode, weight_of_large, lru, .. } = policy;
    let script = format!("bench-memory.sh {mode} {weight_of_large} {lru} {step_secs}");
    let limit = Duration::from_secs(300 + u64::from(step_secs) * STEPS * 3);
    let record = lab::run(kit, &script, limit)?;
    record.expect_undone()?;
    Ok(record)
}

/// Mean over the second half of a step: resident part, pace, 99th percentile in microseconds.
fn step(record: &Record, name: &str, step: u64) -> (f64, f64, f64) {
    let of = || record.select_step(name, step);
    let set = mean(of(), "set_mib").max(1.0);
    (mean(of(), "resident_mib") / set, mean(of(), "pace"), mean(of(), "p99_us"))
}

impl Record {
    fn select_step<'a>(
        &'a self,
        name: &'a str,
        step: u64,
    ) -> impl Iterator<Item = &'a serde_json::Value> {
        self.data
            .iter()
            .filter(move |v| v["name"].as_str() == Some(name) && v["step"].as_u64() == Some(step))
    }
}

fn report(results: &[Run], step_secs: u32) -> Result<String> {
    let mut out = String::new();
    writeln!(
        out,
        "Steps of {step_secs} s; means over the second half of each; every run is shown.\n"
    )?;
    writeln!(
        out,
        "| policy | run | step | resident small / large | pace small / large | p99 µs small / large | outside MiB |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for (i, policy) in POLICIES.iter().enumerate() {
        for (n, run) in results.iter().filter(|r| r.policy == i).enumerate() {
            for s in 1..=STEPS {
                let (small, large) = (step(&run.record, "small", s), step(&run.record, "large", s));
                let outside = mean(run.record.select_step("pressure", s), "resident_mib");
                writeln!(
                    out,
                    "| {} | {} | {} | {:.3} / {:.3} | {:.2} / {:.2} | {:.0} / {:.0} | {outside:.0} |",
                    policy.name,
                    n + 1,
                    s * 200,
                    small.0,
                    large.0,
                    small.1,
                    large.1,
                    small.2,
                    large.2
                )?;
            }
        }
    }
    writeln!(out)?;
    verdicts(results, &mut out)?;
    counters(results, &mut out)?;
    Ok(out)
}

/// The figures that the goals are about, worst over all runs and steps.
fn verdicts(results: &[Run], out: &mut String) -> Result<()> {
    writeln!(
        out,
        "| policy | largest difference of resident parts | least (pace large - pace small) | least pace large |"
    )?;
    writeln!(out, "|---|---|---|---|")?;
    for (i, policy) in POLICIES.iter().enumerate() {
        let runs = results.iter().filter(|r| r.policy == i);
        let all: Vec<_> = runs
            .flat_map(|r| {
                (1..=STEPS).map(|s| (step(&r.record, "small", s), step(&r.record, "large", s)))
            })
            .collect();
        if all.is_empty() {
            continue;
        }
        let apart = all.iter().map(|(s, l)| (s.0 - l.0).abs()).fold(0.0, f64::max);
        let behind = all.iter().map(|(s, l)| l.1 - s.1).fold(f64::INFINITY, f64::min);
        let least = all.iter().map(|(_, l)| l.1).fold(f64::INFINITY, f64::min);
        writeln!(out, "| {} | {apart:.3} | {behind:+.2} | {least:.2} |", policy.name)?;
    }
    Ok(())
}

fn counters(results: &[Run], out: &mut String) -> Result<()> {
    writeln!(
        out,
        "\n| policy | run | pages by kswapd | by direct reclaim | swapped in | swapped out | ctlmgrd CPU s |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for (i, policy) in POLICIES.iter().enumerate() {
        for (n, run) in results.iter().filter(|r| r.policy == i).enumerate() {
            let count = |name| run.record.counter(name).unwrap_or(0);
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} |",
                policy.name,
                n + 1,
                count("pgsteal_kswapd"),
                count("pgsteal_direct"),
                count("pswpin"),
                count("pswpout"),
                count("ctlmgr_cpu_nsec") / 1_000_000_000
            )?;
        }
    }
    Ok(())
}

fn picture(results: &[Run], path: &Path) -> Result<()> {
    let mut panels = Vec::new();
    for (i, policy) in POLICIES.iter().enumerate() {
        let runs: Vec<&Run> = results.iter().filter(|r| r.policy == i).collect();
        if runs.is_empty() {
            continue;
        }
        let line = |name: &str, field: fn(&(f64, f64, f64)) -> f64, label: &str| {
            let at = |s: u64| {
                let sum: f64 = runs.iter().map(|r| field(&step(&r.record, name, s))).sum();
                (s as f64 * 200.0, sum / runs.len() as f64 * 100.0)
            };
            Line { name: format!("{name} {label}"), points: (1..=STEPS).map(at).collect() }
        };
        panels.push(Panel {
            title: policy.name.to_owned(),
            unit: "per cent".to_owned(),
            x: "MiB of outside pressure".to_owned(),
            lines: vec![
                line("small", |s| s.0, "resident"),
                line("large", |s| s.0, "resident"),
                line("small", |s| s.1, "pace"),
                line("large", |s| s.1, "pace"),
            ],
            marks: Vec::new(),
            top: 110.0,
        });
    }
    draw(path, "Two hogs of 400 and 800 MiB promised 1:2, means over runs", &panels, 2)
}
