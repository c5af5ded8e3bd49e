//! `cargo xtask bench gate`: what dockerd's clients feel of a gate that holds nobody.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use super::keep;
use crate::lab::{self, Kit, Record};

#[derive(Debug, clap::Args)]
pub struct Gate {
    /// Pairs of measurements, without and with the plugin.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// `docker ps` on this machine, which has dockerd installed, in place of the guest: a dockerd of its own is
    /// started for that, apart from the rest, and no container.
    #[arg(long)]
    here: bool,
}

/// Measures, prints the table and keeps it.
pub fn run(kit: &Kit, gate: &Gate) -> Result<()> {
    let record = measure(kit, gate)?;
    let table = table(&record, gate.here)?;
    keep(if gate.here { "gate-here.md" } else { "gate.md" }, &table)?;
    print!("{table}");
    Ok(())
}

fn measure(kit: &Kit, gate: &Gate) -> Result<Record> {
    if gate.here {
        return lab::run_here(kit, &format!("bench-gate-here.sh {}", gate.rounds));
    }
    let script = format!("bench-gate.sh {}", gate.rounds);
    let record = lab::run(kit, &script, Duration::from_secs(1800))?;
    record.expect_undone()?;
    Ok(record)
}

fn table(record: &Record, here: bool) -> Result<String> {
    let mut out = String::from(
        "| request | without, ms: least / median / most | asked, ms | difference of the medians, ms | ratio |\n\
         |---|---|---|---|---|\n",
    );
    let asked_for = [("ps", "docker ps"), ("run", "docker run --rm")];
    for (what, text) in &asked_for[..if here { 1 } else { 2 }] {
        let of = |mode| {
            let mut all: Vec<f64> = record
                .select(&[("mode", mode), ("what", what)])
                .filter_map(|v| Some(v["us"].as_f64()? / 1000.0))
                .collect();
            all.sort_by(f64::total_cmp);
            let at = |part: usize| all.get((all.len().max(1) - 1) * part / 2).copied();
            [0, 1, 2].map(|part| at(part).unwrap_or(f64::NAN))
        };
        let (without, asked) = (of("without"), of("asked"));
        let show =
            |[least, median, most]: [f64; 3]| format!("{least:.1} / {median:.1} / {most:.1}");
        let (difference, ratio) = (asked[1] - without[1], asked[1] / without[1]);
        let (without, asked) = (show(without), show(asked));
        writeln!(out, "| {text} | {without} | {asked} | {difference:.1} | {ratio:.3} |")?;
    }
    Ok(out)
}
