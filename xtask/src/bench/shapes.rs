//! `cargo xtask bench shapes`: fio jobs whose character is known, and what ctlmgr takes them for.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use ctlmgr_model::{Character, Io, Profile};
use ctlmgr_policy::gate;

use super::keep;
use crate::lab::{self, Kit};
use crate::sh;
use crate::vm::Costs;

#[derive(Debug, clap::Args)]
pub struct Shapes {
    /// Only jobs whose name begins so, such as write-4k.
    #[arg(long, default_value = "")]
    only: String,
    /// How many jobs of a kind work at once, numbers with commas between them.
    #[arg(long, default_value = "1,8", value_delimiter = ',')]
    jobs: Vec<u32>,
    /// How requests are traced: ebpf, events, or calls (not at all, but by the calls in which tasks wait).
    #[arg(long, default_value = "ebpf")]
    by: String,
}

/// One job.
struct Job {
    name: String,
    truth: Character,
    traced: Option<Character>,
    counted: Character,
}

/// Runs the jobs, prints the matrices and keeps them.
pub fn run(kit: &Kit, shapes: &Shapes) -> Result<()> {
    // Time is not what is measured.
    let costs = Costs {
        sequential: Duration::ZERO,
        random: Duration::ZERO,
        switch: Duration::ZERO,
        bytes_per_sec: 512 << 20,
    };
    let at_once: Vec<String> = shapes.jobs.iter().map(u32::to_string).collect();
    let at_once = at_once.join(",");
    let script = format!("bench-shapes.sh only={} by={} at_once={at_once}", shapes.only, shapes.by);
    let record = lab::run_on(kit, &script, Duration::from_secs(2400), costs)?;
    record.expect_undone()?;
    let profiles = record.data.iter().find_map(|v| v["profiles"].as_array());
    let mut jobs = Vec::new();
    for keyed in profiles.context("the script said no profiles")? {
        let key = keyed["key"].as_str().unwrap_or_default();
        let Some(name) = key.strip_prefix("shape/") else { continue };
        let profile: Profile = serde_json::from_value(keyed["profile"].clone())
            .with_context(|| format!("failed to read the profile of {name}"))?;
        jobs.push(judge(name, &profile));
    }
    let mut out = String::new();
    matrix(&mut out, &format!("traced ({})", shapes.by), &jobs, |j| j.traced)?;
    matrix(&mut out, "io.stat alone", &jobs, |j| Some(j.counted))?;
    print!("{out}");
    let file = format!("shapes-{}.md", shapes.by);
    keep(&file, &out)?;
    sh::say(&format!(
        "{} jobs; the matrices are in bench/{file} of the build directory",
        jobs.len()
    ));
    Ok(())
}

fn judge(name: &str, profile: &Profile) -> Job {
    let io = profile.io;
    Job {
        name: name.to_owned(),
        truth: truth(name),
        traced: io.shape.map(|_| gate::classify(&io, profile.lasts)),
        counted: gate::classify(&Io { shape: None, ..io }, profile.lasts),
    }
}

/// What a job is, by the options that it was given.
fn truth(name: &str) -> Character {
    match name {
        "randrw-50" | "rw-50" | "read-and-randwrite" => Character::Mixed,
        "randrw-90" | "much-randread-little-read" => Character::RandomRead,
        "randrw-10" => Character::RandomWrite,
        "much-read-little-randread" => Character::SequentialRead,
        "much-write-little-randwrite" => Character::SequentialWrite,
        name if name.starts_with("randread") => Character::RandomRead,
        name if name.starts_with("randwrite") => Character::RandomWrite,
        name if name.starts_with("read") => Character::SequentialRead,
        _ => Character::SequentialWrite,
    }
}

/// Rows are what the jobs are, columns what they are taken for.
fn matrix(
    out: &mut String,
    title: &str,
    jobs: &[Job],
    said: impl Fn(&Job) -> Option<Character>,
) -> Result<()> {
    let mut counts: BTreeMap<(Character, Option<Character>), u32> = BTreeMap::new();
    for job in jobs {
        *counts.entry((job.truth, said(job))).or_default() += 1;
    }
    let right = jobs.iter().filter(|j| said(j) == Some(j.truth)).count();
    let pct = 100.0 * right as f64 / jobs.len().max(1) as f64;
    writeln!(out, "{title}: {right} of {} right, {pct:.1} %\n", jobs.len())?;
    let columns = || Character::ALL.into_iter().map(Some).chain([None]);
    write!(out, "| is |")?;
    for column in columns() {
        write!(out, " {} |", column.map_or("not traced", Character::as_str))?;
    }
    writeln!(out, "\n|---|{}", "---|".repeat(Character::ALL.len() + 1))?;
    for truth in Character::ALL.into_iter().filter(|c| jobs.iter().any(|j| j.truth == *c)) {
        write!(out, "| {truth} |")?;
        for column in columns() {
            write!(out, " {} |", counts.get(&(truth, column)).copied().unwrap_or(0))?;
        }
        writeln!(out)?;
    }
    let wrong = jobs.iter().filter(|j| said(j) != Some(j.truth));
    let named: Vec<String> = wrong
        .map(|j| format!("{} as {}", j.name, said(j).map_or("not traced", Character::as_str)))
        .collect();
    writeln!(
        out,
        "\nWrong: {}.\n",
        if named.is_empty() { "none".to_owned() } else { named.join(", ") }
    )?;
    Ok(())
}
