//! `cargo xtask bench starts`: ways of starting containers that fight for a disk, side by side.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use ctlmgr_model::Character;
use ctlmgr_policy::gate::{Penalties, Traits};
use serde_json::Value;

use super::{is_named, keep};
use crate::lab::{self, Kit, Record, mean};
use crate::sh;
use crate::vm::Costs;

#[derive(Debug, clap::Args)]
pub struct Starts {
    /// Runs of each policy.
    #[arg(long, default_value_t = 1)]
    runs: u32,
    /// Containers of each of the five classes; each has a part of the disk to itself.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=5))]
    per_class: u32,
    /// How much each of them does, in parts of about 4 s alone.
    #[arg(long, default_value_t = 3)]
    work: u32,
    /// A disk on which mixing sequential and random costs, or one with limits only.
    #[arg(long, default_value = "mixing", value_parser = ["mixing", "flat"])]
    disk: String,
    /// ctlmgr is told no characters: one start of each class teaches it before.
    #[arg(long)]
    learned: bool,
    /// Only policies whose name contains this, or one of these with | between them; solo runs in any case.
    #[arg(long, default_value = "")]
    only: String,
}

/// Name for the report, and for the script.
const POLICIES: [(&str, &str); 8] = [
    ("all at once", "all"),
    ("fixed concurrency 3", "fixed-3"),
    ("fixed concurrency 5", "fixed-5"),
    ("one every 5 s", "delay-5"),
    ("the paper's batches, by ctlmgr batch run --strict", "batches"),
    ("ctlmgr batch run", "offline"),
    ("ctlmgr's gate", "online"),
    ("ctlmgr's gate, waits of up to 15 min", "patient"),
];
const CLASSES: [&str; 5] = ["rr", "rw", "sw", "db", "lsm"];

/// Measures, prints the table and keeps it.
pub fn run(kit: &Kit, starts: &Starts) -> Result<()> {
    let solo = measure(kit, starts, "solo")?;
    let mut table = head(starts, &solo)?;
    for run in 1..=starts.runs {
        for (name, script) in POLICIES.iter().filter(|(name, _)| is_named(name, &starts.only)) {
            sh::say(&format!("round {run} of {}: {name}", starts.runs));
            let record = measure(kit, starts, script)?;
            row(&mut table, name, run, &record, &solo)?;
            keep(&format!("starts-{}.md", starts.disk), &table)?;
            // When each began and how long it took, for whoever wants to know why.
            let raw = serde_json::to_string(&record.data)?;
            keep(&format!("starts-{}-{script}-{run}.json", starts.disk), &raw)?;
        }
    }
    print!("{table}");
    Ok(())
}

fn measure(kit: &Kit, starts: &Starts, policy: &str) -> Result<Record> {
    // As slow beside a disk as the emulated processor is beside a processor, or that would be all that
    // anybody waits for.
    let costs = Costs {
        sequential: Duration::from_micros(600),
        random: Duration::from_millis(6),
        switch: Duration::from_millis(if starts.disk == "mixing" { 18 } else { 0 }),
        bytes_per_sec: 8 << 20,
    };
    // Alone, one of each class says what it takes.
    let per_class = if policy == "solo" { 1 } else { starts.per_class };
    let script = format!(
        "bench-starts.sh policy={policy} per_class={per_class} work={} learned={}",
        starts.work, starts.learned
    );
    let limit = Duration::from_secs(600 + u64::from(starts.per_class * starts.work * 60));
    let record = lab::run_on(kit, &script, limit, costs)?;
    record.expect_undone()?;
    Ok(record)
}

/// Seconds that a class takes alone.
fn alone(solo: &Record, class: &str) -> f64 {
    mean(solo.select(&[("class", class)]), "secs")
}

fn head(starts: &Starts, solo: &Record) -> Result<String> {
    let mut out = format!(
        "Disk `{}`, {} containers of each class.\n\n| class | alone, s | learned as |\n|---|---|---|\n",
        starts.disk, starts.per_class
    );
    let profiles = solo.data.iter().find_map(|v| v["profiles"].as_array());
    for class in CLASSES {
        let of_class = |p: &&Value| p["key"] == format!("bench/{class}");
        let learned = profiles.into_iter().flatten().find(of_class);
        let character = learned.and_then(|p| p["profile"]["character"].as_str()).unwrap_or("-");
        writeln!(out, "| {class} | {:.1} | {character} |", alone(solo, class))?;
    }
    out.push_str("\nSlowdown in the mean / at worst; penalty is that of all pairs that ran together (guidelines).");
    out.push_str("\n\n| policy | run | makespan, s | all |");
    for class in CLASSES {
        write!(out, " {class} |")?;
    }
    out.push_str(" longest wait, s | penalty | failures |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    Ok(out)
}

fn row(out: &mut String, name: &str, run: u32, record: &Record, solo: &Record) -> Result<()> {
    let makespan = record.data.iter().find_map(|v| v["makespan"].as_str());
    let makespan = makespan.context("the script said no makespan")?;
    let mut all = Vec::new();
    let mut classes = String::new();
    for class in CLASSES {
        let slowdowns: Vec<f64> = record
            .select(&[("class", class)])
            .filter_map(|v| Some(v["secs"].as_f64()? / alone(solo, class).max(0.01)))
            .collect();
        write!(classes, " {} |", mean_and_worst(&slowdowns))?;
        all.extend(slowdowns);
    }
    let jobs = || record.data.iter().filter(|v| v["class"].is_string());
    let waited = jobs().filter_map(|v| v["since"].as_f64()).fold(0.0, f64::max);
    let failures = jobs().filter(|v| v["status"] != 0).count();
    let (all, penalty) = (mean_and_worst(&all), penalty(&jobs().collect::<Vec<_>>()));
    writeln!(
        out,
        "| {name} | {run} | {makespan} | {all} |{classes} {waited:.0} | {penalty:.1} | {failures} |"
    )?;
    Ok(())
}

fn mean_and_worst(slowdowns: &[f64]) -> String {
    let mean = slowdowns.iter().sum::<f64>() / slowdowns.len().max(1) as f64;
    format!("{mean:.2} / {:.2}", slowdowns.iter().copied().fold(0.0, f64::max))
}

/// Of every two the penalty that the guidelines give them, as far as the shorter one ran beside the other
/// (the paper's T_p, equation 1, where batches have no borders).
fn penalty(jobs: &[&Value]) -> f64 {
    let cost = |a: &Value, b: &Value| {
        let traits = |v: &Value| Traits {
            character: v["class"].as_str().and_then(character),
            ..Traits::default()
        };
        f64::from(traits(a).conflict(&traits(b), &Penalties::default())) / 100.0
    };
    let span = |v: &Value| {
        let (from, secs) = (v["since"].as_f64().unwrap_or(0.0), v["secs"].as_f64().unwrap_or(0.0));
        (from, from + secs.max(0.01))
    };
    let beside = |a: &Value, b: &Value| {
        let ((from, to), (other_from, other_to)) = (span(a), span(b));
        let together = (to.min(other_to) - from.max(other_from)).max(0.0);
        together / (to - from).min(other_to - other_from)
    };
    let pairs = jobs.iter().enumerate().flat_map(|(n, a)| jobs[..n].iter().map(move |b| (a, b)));
    pairs.map(|(a, b)| cost(a, b) * beside(a, b)).sum()
}

/// What the jobs of a class are by the options that they are given.
fn character(class: &str) -> Option<Character> {
    match class {
        "rr" => Some(Character::RandomRead),
        "rw" | "db" => Some(Character::RandomWrite),
        "sw" | "lsm" => Some(Character::SequentialWrite),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_ran_together_is_a_penalty() {
        let job = |class, since, secs| json!({"class": class, "since": since, "secs": secs});
        let (sw, rw, rr) = (job("sw", 0.0, 10.0), job("rw", 5.0, 10.0), job("rr", 0.0, 99.0));
        // Half of it at 2 for sequential beside random; reads beside writes cost nothing.
        assert!((penalty(&[&sw, &rw, &rr]) - 1.0).abs() < 1e-9);
        assert!(penalty(&[&sw, &job("rw", 10.0, 10.0)]).abs() < 1e-9);
    }
}
