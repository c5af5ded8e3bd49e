//! `cargo xtask bench bomb`: what a service feels of a neighbour that runs into its own memory.max.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use crate::dist;
use crate::lab::{self, Kit, mean};

#[derive(Debug, clap::Args)]
pub struct Bomb {
    /// Runs in each mode.
    #[arg(long, default_value_t = 1)]
    runs: u32,
}

/// Measures, prints the table and keeps it.
pub fn run(kit: &Kit, bomb: &Bomb) -> Result<()> {
    let mut table = String::from(
        "| mode | run | phase | pace of the service | p99 µs | pages by kswapd and direct reclaim | OOM kills |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for run in 1..=bomb.runs {
        for mode in ["off", "act"] {
            let limit = Duration::from_secs(600);
            let record = lab::run(kit, &format!("bench-bomb.sh {mode}"), limit)?;
            record.expect_undone()?;
            let count = |name: &str| record.counter(name).unwrap_or(0);
            for phase in ["before", "during", "after"] {
                let fields = [("phase", phase)];
                let of = |field| mean(record.select(&fields), field);
                writeln!(
                    table,
                    "| {mode} | {run} | {phase} | {:.3} | {:.0} | {} | {} |",
                    of("pace"),
                    of("p99_us"),
                    count(&format!("stolen_{phase}")),
                    count(&format!("kills_{phase}"))
                )?;
            }
        }
    }
    let directory = dist::target().join("bench");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("bomb.md"), &table)?;
    print!("{table}");
    Ok(())
}
