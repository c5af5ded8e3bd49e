//! `cargo xtask bench idle`: what the daemon costs while nothing happens.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};

use super::keep;
use crate::lab::{self, Kit, Record};

#[derive(Debug, clap::Args)]
pub struct Idle {
    /// How many containers rest.
    #[arg(long, default_value_t = 200)]
    count: u32,
    /// Seconds that are measured, in each mode.
    #[arg(long, default_value_t = 600)]
    secs: u32,
}

/// Measures, prints the table and keeps it.
pub fn run(kit: &Kit, idle: &Idle) -> Result<()> {
    let script = format!("bench-idle.sh count={} secs={}", idle.count, idle.secs);
    let limit = Duration::from_secs(600 + 2 * u64::from(idle.secs));
    let record = lab::run(kit, &script, limit)?;
    record.expect_undone()?;
    let table = table(&record, idle)?;
    keep("idle.md", &table)?;
    print!("{table}");
    Ok(())
}

fn table(record: &Record, idle: &Idle) -> Result<String> {
    let percent = |name: &str| -> Result<f64> {
        let nsec = record.counter(name).with_context(|| format!("the script said no {name}"))?;
        Ok(nsec as f64 / (f64::from(idle.secs) * 1e9) * 100.0)
    };
    let mut out = format!("{} resting containers, {} s each.\n\n", idle.count, idle.secs);
    writeln!(out, "| mode | ctlmgrd, % of a processor | systemd-oomd | ratio |")?;
    writeln!(out, "|---|---|---|---|")?;
    for mode in ["observe", "act"] {
        let (ours, theirs) =
            (percent(&format!("ctlmgr_{mode}_nsec"))?, percent(&format!("oomd_{mode}_nsec"))?);
        writeln!(out, "| {mode} | {ours:.3} | {theirs:.3} | {:.2} |", ours / theirs)?;
    }
    Ok(out)
}
