//! `cargo xtask bench bomb`: what a service and a database feel of a neighbour that runs into its own memory.max.
//!
//! The experiment of Xavier et al., *Performance Isolation of Disk-Intensive Containers*, §IV-B, with fio in the
//! place of the database: the same requests again and again, at a pace that the disk can hold.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::keep;
use crate::lab::{self, Kit, Record, mean};

#[derive(Debug, clap::Args)]
pub struct Bomb {
    /// Runs in each mode.
    #[arg(long, default_value_t = 1)]
    runs: u32,
}

/// Requests per second that the database is asked for, reads and writes together (`bench-bomb.sh`).
const WANTED_PER_SEC: f64 = 200.0;

/// Measures, prints the table and keeps it.
pub fn run(kit: &Kit, bomb: &Bomb) -> Result<()> {
    let mut table = String::from(
        "| mode | run | phase | pace of the service | p99 µs | pace of the database | p99 ms, read / write / making sure | pages by kswapd and direct reclaim | OOM kills |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for run in 1..=bomb.runs {
        for mode in ["off", "act"] {
            let limit = Duration::from_secs(900);
            let record = lab::run(kit, &format!("bench-bomb.sh {mode}"), limit)?;
            record.expect_undone()?;
            for phase in ["before", "during", "after"] {
                writeln!(table, "| {mode} | {run} | {phase} | {} |", row(&record, phase)?)?;
            }
            keep("bomb.md", &table)?;
        }
    }
    print!("{table}");
    Ok(())
}

fn row(record: &Record, phase: &str) -> Result<String> {
    let fields = [("phase", phase), ("name", "web")];
    let of = |field| mean(record.select(&fields), field);
    let phase_of = [("phase", phase)];
    let database = record.select(&phase_of).find_map(|v| v["database"]["jobs"].get(0));
    let database = database.with_context(|| format!("the database said nothing {phase}"))?;
    let done = |way: &str| database[way]["iops"].as_f64().unwrap_or(0.0);
    let count = |name: &str| record.counter(&format!("{name}_{phase}")).unwrap_or(0);
    Ok(format!(
        "{:.3} | {:.0} | {:.3} | {:.1} / {:.1} / {:.1} | {} | {}",
        of("pace"),
        of("p99_us"),
        (done("read") + done("write")) / WANTED_PER_SEC,
        p99_ms(&database["read"]["clat_ns"]),
        p99_ms(&database["write"]["clat_ns"]),
        p99_ms(&database["sync"]["lat_ns"]),
        count("stolen"),
        count("kills"),
    ))
}

/// What 99 of 100 requests took at most, as fio says it.
fn p99_ms(times: &Value) -> f64 {
    times["percentile"]["99.000000"].as_f64().unwrap_or(f64::NAN) / 1e6
}
