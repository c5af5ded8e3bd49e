//! `cargo xtask bench changes`: how soon shares settle after something came, went or changed, by the journal of ctlmgr.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use super::keep;
use super::settling::{self, Settling};
use crate::lab::{self, Kit, Record};
use crate::sh;

#[derive(Debug, clap::Args)]
pub struct Changes {
    /// How often all of it happens.
    #[arg(long, default_value_t = 1)]
    runs: u32,
}

/// Measures, prints the table and keeps it.
pub fn run(kit: &Kit, changes: &Changes) -> Result<()> {
    let mut table = String::from(
        "Seconds since the command began; changes of more than 5 %. A memory.low is a share; what is hard (memory.min) follows what is used.\n\n\
         | what happens | run | the command took | first change of a memory.low | last one, and whose | last change of a memory.min | writes of both | most turns of one knob, memory.high among them, in 10 s |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for run in 1..=changes.runs {
        sh::say(&format!("round {run} of {}", changes.runs));
        let record = lab::run(kit, "bench-changes.sh", Duration::from_secs(1200))?;
        record.expect_undone()?;
        rows(&mut table, run, &record)?;
        keep("changes.md", &table)?;
        // Every write, for whoever wants to know why.
        keep(&format!("changes-{run}.json"), &serde_json::to_string(&record.data)?)?;
    }
    print!("{table}");
    Ok(())
}

fn rows(table: &mut String, run: u32, record: &Record) -> Result<()> {
    let changes = record.data.iter().filter(|v| v["changed_usec"].is_u64());
    for (change, settled) in changes.zip(settling::of(record)) {
        let what = change["what"].as_str().unwrap_or_default();
        let took_secs = change["took_usec"].as_f64().unwrap_or(f64::NAN) / 1e6;
        let Settling { writes, first_secs, last_secs, last_of, hard_secs, turns } = settled;
        let changed = match first_secs {
            Some(first) => format!("{first:.1} | {last_secs:.1} {last_of}"),
            None => "none | none".to_owned(),
        };
        let hard = hard_secs.map_or("none".to_owned(), |secs| format!("{secs:.1}"));
        writeln!(
            table,
            "| {what} | {run} | {took_secs:.1} | {changed} | {hard} | {writes} | {turns} |"
        )?;
    }
    Ok(())
}
