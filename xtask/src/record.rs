//! `cargo xtask record`: runs of the guest, kept so that tests decide them again.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::lab::{self, Kit};
use crate::{fresh, sh};

/// As `record.sh` knows them.
const NAMES: [&str; 10] =
    ["burst", "squeeze", "needs", "waste", "used-up", "files", "shrink", "weight", "idle", "slice"];

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which; all of them if none is named.
    #[arg(value_parser = PossibleValuesParser::new(NAMES))]
    names: Vec<String>,
}

/// Replaces the recordings of those names.
pub fn run(arguments: &Arguments) -> Result<()> {
    fresh::ensure_compiler()?;
    let kit = lab::kit()?;
    let is_asked = |name: &&str| {
        arguments.names.is_empty() || arguments.names.iter().any(|asked| asked == name)
    };
    NAMES.iter().copied().filter(is_asked).try_for_each(|name| record(&kit, name))
}

fn record(kit: &Kit, name: &str) -> Result<()> {
    sh::say(&format!("recording {name}"));
    let said = lab::run(kit, &format!("record.sh {name}"), Duration::from_secs(900))?;
    let is_event = |v: &&Value| ["start", "decided", "learned"].iter().any(|k| v.get(k).is_some());
    let events: Vec<&Value> = said.data.iter().filter(is_event).collect();
    let wanted =
        said.counter("events").context("the guest did not say how many events there are")?;
    ensure!(events.len() as u64 == wanted, "{} of {wanted} events of {name} came", events.len());
    ensure!(
        events.first().is_some_and(|v| v.get("start").is_some()),
        "the recording {name} does not say where deciding began"
    );
    let path = format!("crates/ctlmgr-policy/tests/recordings/{name}.jsonl.gz");
    write(Path::new(&path), &events).with_context(|| format!("failed to write {path}"))?;
    sh::say(&format!("{} events in {path}", events.len()));
    Ok(())
}

/// All of it or nothing: the recording that is replaced may not be made again.
fn write(path: &Path, events: &[&Value]) -> Result<()> {
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    for event in events {
        writeln!(out, "{event}")?;
    }
    Ok(std::fs::write(path, out.finish()?)?)
}
