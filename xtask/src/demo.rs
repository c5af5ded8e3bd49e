//! `cargo xtask demo`: the main job, observing and acting, side by side.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::lab::{self, Kit, Record, mean};
use crate::picture::{Line, Panel, draw};
use crate::{fresh, sh};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// On this machine instead of the guest; needs cgroup v2, systemd, dockerd and root.
    #[arg(long)]
    here: bool,
}

/// Containers in the order in which they are shown, and their classes.
const CONTAINERS: [(&str, &str); 4] =
    [("lab-redis", "critical"), ("lab-normal", "normal"), ("lab-low", "low"), ("lab-idle", "low")];
const MODES: [&str; 2] = ["observe", "act"];

/// Runs the demo.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.here {
        refuse_unless_fit()?;
    }
    fresh::ensure_compiler()?;
    let kit = lab::kit()?;
    let mut records = Vec::new();
    for mode in MODES {
        sh::say(&format!("demo with ctlmgr in mode {mode}"));
        records.push(one(arguments, &kit, mode)?);
    }
    print_table(&records);
    let picture = picture(&records)?;
    println!("\nPicture: {picture}");
    println!("After each run ctlmgr was stopped, and nothing differed from before it.");
    Ok(())
}

fn one(arguments: &Arguments, kit: &Kit, mode: &str) -> Result<Record> {
    let script = format!("demo.sh {mode}");
    let record = match arguments.here {
        true => lab::run_here(kit, &script)?,
        false => lab::run(kit, &script, Duration::from_secs(600))?,
    };
    record.expect_undone()?;
    Ok(record)
}

/// What `--here` needs, each refusal with its reason.
fn refuse_unless_fit() -> Result<()> {
    let controllers = Path::new("/sys/fs/cgroup/cgroup.controllers");
    let text = std::fs::read_to_string(controllers).unwrap_or_default();
    if !text.split_whitespace().any(|c| c == "memory") {
        bail!(
            "this machine has no cgroup v2 with the memory controller; leave out --here for the guest"
        );
    }
    if !Path::new("/run/systemd/system").is_dir() {
        bail!("systemd is not the system manager of this machine; leave out --here for the guest");
    }
    let known = sh::output(&mut sh::command(&["dpkg-query", "-W", "-f", "${Status}", "ctlmgr"]));
    if known.is_ok_and(|status| !status.contains("not-installed")) {
        bail!("ctlmgr is installed on this machine, or its configuration is: purge it first");
    }
    sh::quiet(&mut sh::privileged(&["docker", "version"]))
        .context("dockerd does not answer on this machine; leave out --here for the guest")?;
    let text = std::fs::read_to_string("/proc/meminfo").context("failed to read /proc/meminfo")?;
    refuse_unless_roomy(&text)
}

/// The demo wants 62 % of memory for its containers and 50 % for pressure: the part that is too
/// much must fit into swap, and others must have left the room.
fn refuse_unless_roomy(meminfo: &str) -> Result<()> {
    let kib = |key: &str| {
        let line = meminfo.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0)
    };
    let part = |key: &str| kib(key) * 100 / kib("MemTotal").max(1);
    let (available, swap) = (part("MemAvailable"), part("SwapFree"));
    if available < 65 {
        bail!("only {available} % of this machine's memory is available and the demo needs 65 %");
    }
    if available + swap < 125 {
        bail!(
            "the demo puts this machine under memory pressure, which needs swap: {swap} % of the \
             size of memory is free there, {} % are needed",
            125 - available
        );
    }
    Ok(())
}

/// Time of a mark, in seconds of uptime.
fn mark(record: &Record, name: &str) -> f64 {
    record.select(&[("mark", name)]).next().and_then(|v| v["uptime"].as_f64()).unwrap_or(0.0)
}

/// Mean of a field of one container between two marks.
fn between(record: &Record, name: &str, field: &str, from: &str, to: &str) -> f64 {
    let span = mark(record, from)..mark(record, to);
    let data = record.data.iter().filter(|v| v["name"].as_str() == Some(name));
    mean(data.filter(|v| v["uptime"].as_f64().is_some_and(|t| span.contains(&t))), field)
}

/// Memory kept and throughput under the last step, as parts of those before pressure.
fn kept(record: &Record, name: &str) -> (f64, f64) {
    let part = |field| {
        let before = between(record, name, field, "quiet", "pressure");
        let under = between(record, name, field, "step 3", "full");
        if before > 0.0 { under / before * 100.0 } else { f64::NAN }
    };
    (part("held_bytes"), part("rate"))
}

fn print_table(records: &[Record]) {
    println!(
        "\nUnder full pressure, in per cent of what it was without (lab-redis also has a floor, and in \
         both modes the processor first):\n"
    );
    println!("{:<12} {:<9} {:>21} {:>21}", "", "", "memory kept", "throughput");
    println!(
        "{:<12} {:<9} {:>10} {:>10} {:>10} {:>10}",
        "CONTAINER", "CLASS", "observing", "acting", "observing", "acting"
    );
    let show = |v: f64| if v.is_nan() { "-".to_owned() } else { format!("{v:.0}") };
    for (name, class) in CONTAINERS {
        let (observed, acted) = (kept(&records[0], name), kept(&records[1], name));
        println!(
            "{name:<12} {class:<9} {:>10} {:>10} {:>10} {:>10}",
            show(observed.0),
            show(acted.0),
            show(observed.1),
            show(acted.1)
        );
    }
}

fn picture(records: &[Record]) -> Result<String> {
    let directory = crate::dist::target().join("demo");
    std::fs::create_dir_all(&directory)?;
    let path = directory.join("demo.svg");
    let mut panels = Vec::new();
    for (title, field, names) in [
        ("memory kept", "held_bytes", &["lab-redis", "lab-normal", "lab-low", "lab-idle"][..]),
        ("throughput", "rate", &["lab-redis", "lab-normal", "lab-low"][..]),
    ] {
        for (mode, record) in MODES.iter().zip(records) {
            panels.push(panel(record, &format!("{title}, {mode}"), field, names));
        }
    }
    draw(
        &path,
        "Memory pressure in steps: ctlmgr observing (left) and acting (right)",
        &panels,
        2,
    )?;
    Ok(path.display().to_string())
}

fn panel(record: &Record, title: &str, field: &str, names: &[&str]) -> Panel {
    let start = mark(record, "quiet");
    let line = |name: &&str| {
        let before = between(record, name, field, "quiet", "pressure").max(1.0);
        let point = |v: &Value| {
            let at = v["uptime"].as_f64()? - start;
            (at >= 0.0).then_some((at, v[field].as_f64()? / before * 100.0))
        };
        let points = record.select(&[("name", name)]).filter_map(point).collect();
        Line { name: (*name).to_owned(), points }
    };
    Panel {
        title: title.to_owned(),
        unit: "% of unpressured".to_owned(),
        x: "seconds".to_owned(),
        lines: names.iter().map(line).collect(),
        marks: ["pressure", "step 1", "step 2", "step 3", "released"]
            .iter()
            .map(|m| mark(record, m) - start)
            .collect(),
        top: 130.0,
    }
}

#[cfg(test)]
mod tests {
    use super::refuse_unless_roomy;

    #[test]
    fn a_machine_in_use_or_without_swap_is_spared() {
        let text = |available, swap| {
            format!("MemTotal: 1000 kB\nMemAvailable: {available} kB\nSwapFree: {swap} kB\n")
        };
        assert!(refuse_unless_roomy(&text(900, 350)).is_ok());
        let error = refuse_unless_roomy(&text(900, 0)).unwrap_err().to_string();
        assert!(error.contains("needs swap"), "{error}");
        let error = refuse_unless_roomy(&text(600, 2000)).unwrap_err().to_string();
        assert!(error.contains("only 60 %"), "{error}");
    }
}
