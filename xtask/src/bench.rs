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
    /// Two hogs under outside pressure: resident parts, pace and latency per step and policy.
    Memory(Memory),
}

#[derive(Debug, clap::Args)]
struct Memory {
    /// sizes: 400 and 800 MiB, equally hot, promised 1:2. heat: 500 MiB each, one four times as
    /// hot.
    #[arg(long, value_enum, default_value_t = Scene::Sizes)]
    scene: Scene,
    /// Runs of each policy.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Seconds per pressure step.
    #[arg(long, default_value_t = 20)]
    step_secs: u32,
    /// Also peers (covered memory.low, exceed-based reclaim) and the parts of the controller.
    #[arg(long)]
    peers: bool,
    /// One more setting of [memory] for ctlmgr, such as 'hard = "75%"'.
    #[arg(long, default_value = "")]
    set: String,
    /// Only policies whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Scene {
    Sizes,
    Heat,
}

impl Scene {
    fn name(self) -> &'static str {
        match self {
            Scene::Sizes => "sizes",
            Scene::Heat => "heat",
        }
    }

    /// The two hogs.
    fn hogs(self) -> [&'static str; 2] {
        match self {
            Scene::Sizes => ["small", "large"],
            Scene::Heat => ["cold", "hot"],
        }
    }
}

/// A way of treating the host, and what the script needs to know of it.
struct Policy {
    name: &'static str,
    script: &'static str,
    weight_of_second: u32,
    lru: &'static str,
    is_peer: bool,
}

const fn policy(
    name: &'static str,
    script: &'static str,
    weight_of_second: u32,
    lru: &'static str,
) -> Policy {
    Policy { name, script, weight_of_second, lru, is_peer: false }
}

const fn peer(name: &'static str, script: &'static str) -> Policy {
    Policy { name, script, weight_of_second: 100, lru: "mglru", is_peer: true }
}

const POLICIES: [Policy; 10] = [
    policy("plain kernel, MGLRU", "plain", 100, "mglru"),
    policy("plain kernel, classic LRU", "plain", 100, "classic"),
    peer("covered memory.low, MGLRU", "static"),
    peer("exceed-based, MGLRU", "exceed"),
    peer("ctlmgr 1:1 with stall feedback, MGLRU", "act-both"),
    peer("ctlmgr 1:1 by stall only, MGLRU", "act-stall"),
    policy("ctlmgr 1:1, MGLRU", "act", 100, "mglru"),
    policy("ctlmgr 1:1, classic LRU", "act", 100, "classic"),
    policy("ctlmgr 1:4, MGLRU", "act", 400, "mglru"),
    policy("ctlmgr 1:4, classic LRU", "act", 400, "classic"),
];
const STEPS: u64 = 5;

/// One run of one policy.
struct Run {
    policy: usize,
    record: Record,
}

/// Everything that was measured so far.
struct Results<'a> {
    memory: &'a Memory,
    runs: Vec<Run>,
}

/// Runs `cargo xtask bench`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Command::Memory(memory) = &arguments.command;
    fresh::ensure_compiler()?;
    let kit = lab::kit()?;
    let mut results = Results { memory, runs: Vec::new() };
    let is_wanted =
        |p: &Policy| p.name.contains(memory.only.as_str()) && (memory.peers || !p.is_peer);
    // Rounds, not blocks: a machine that drifts drifts for all policies.
    for round in 1..=memory.runs {
        for (i, policy) in POLICIES.iter().enumerate().filter(|(_, p)| is_wanted(p)) {
            sh::say(&format!("round {round} of {}: {}", memory.runs, policy.name));
            results.runs.push(Run { policy: i, record: measure(&kit, memory, policy)? });
            // After every run: an hour of measuring must not be lost to what comes last.
            results.write()?;
        }
    }
    print!("{}", results.report()?);
    Ok(())
}

fn measure(kit: &Kit, memory: &Memory, policy: &Policy) -> Result<Record> {
    let Policy { script, weight_of_second, lru, .. } = policy;
    let (scene, step_secs) = (memory.scene.name(), memory.step_secs);
    let set = &memory.set;
    let script =
        format!("bench-memory.sh {scene} {script} {weight_of_second} {lru} {step_secs} '{set}'");
    let limit = Duration::from_secs(300 + u64::from(step_secs) * STEPS * 3);
    let record = lab::run(kit, &script, limit)?;
    record.expect_undone()?;
    Ok(record)
}

/// One hog in one step: means over its second half.
struct Felt {
    /// Part of its set in memory.
    resident: f64,
    /// Part of the wanted touches that were made.
    pace: f64,
    /// Latency of a touch, in microseconds.
    p50_us: f64,
    p99_us: f64,
}

fn felt(record: &Record, name: &str, step: u64) -> Felt {
    let of = || record.select_step(name, step);
    let set = mean(of(), "set_mib").max(1.0);
    Felt {
        resident: mean(of(), "resident_mib") / set,
        pace: mean(of(), "pace"),
        p50_us: mean(of(), "p50_us"),
        p99_us: mean(of(), "p99_us"),
    }
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

    /// Refaults of a hog since before the pressure, at the end of a step.
    fn refaults(&self, name: &str, step: u64) -> u64 {
        let at = |step: &str| {
            let wanted = [("of", name), ("step", step)];
            self.select(&wanted).next().and_then(|v| v["refaults"].as_u64()).unwrap_or(0)
        };
        at(&step.to_string()).saturating_sub(at("0"))
    }
}

impl Results<'_> {
    /// Writes report and picture of what was measured so far.
    fn write(&self) -> Result<()> {
        let directory = dist::target().join("bench");
        std::fs::create_dir_all(&directory)?;
        let name = format!("memory-{}", self.memory.scene.name());
        std::fs::write(directory.join(format!("{name}.md")), self.report()?)?;
        self.picture(&directory.join(format!("{name}.svg")))
    }

    fn of(&self, policy: usize) -> Vec<&Run> {
        self.runs.iter().filter(|r| r.policy == policy).collect()
    }

    /// Both hogs in a step.
    fn pair(&self, run: &Run, step: u64) -> [Felt; 2] {
        self.memory.scene.hogs().map(|name| felt(&run.record, name, step))
    }

    fn report(&self) -> Result<String> {
        let mut out = String::new();
        let [first, second] = self.memory.scene.hogs();
        writeln!(
            out,
            "Steps of {} s; means over the second half of each; {first} / {second}; every run is \
             shown.\n",
            self.memory.step_secs
        )?;
        writeln!(
            out,
            "| policy | run | step MiB | resident | pace | p50 µs | p99 µs | refaults | outside MiB |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
        for (i, policy) in POLICIES.iter().enumerate() {
            for (n, run) in self.of(i).into_iter().enumerate() {
                (1..=STEPS).try_for_each(|s| self.line(&mut out, policy, (n + 1, run), s))?;
            }
        }
        writeln!(out)?;
        self.verdicts(&mut out)?;
        self.counters(&mut out)?;
        Ok(out)
    }

    fn line(
        &self,
        out: &mut String,
        policy: &Policy,
        (number, run): (usize, &Run),
        step: u64,
    ) -> Result<()> {
        let [a, b] = self.pair(run, step);
        let refaults = self.memory.scene.hogs().map(|name| run.record.refaults(name, step));
        let outside = mean(run.record.select_step("pressure", step), "resident_mib");
        writeln!(
            out,
            "| {} | {number} | {} | {:.3} / {:.3} | {:.2} / {:.2} | {:.0} / {:.0} | {:.0} / {:.0} | {} / {} | {outside:.0} |",
            policy.name,
            step * 200,
            a.resident,
            b.resident,
            a.pace,
            b.pace,
            a.p50_us,
            b.p50_us,
            a.p99_us,
            b.p99_us,
            refaults[0],
            refaults[1]
        )?;
        Ok(())
    }

    /// The figures that the goals are about, worst over all runs and steps.
    fn verdicts(&self, out: &mut String) -> Result<()> {
        let [first, second] = self.memory.scene.hogs();
        writeln!(
            out,
            "| policy | largest difference of resident parts | least (pace {second} - pace {first}) | least pace {second} | largest difference of slowdowns | mean pace of both |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|")?;
        for (i, policy) in POLICIES.iter().enumerate() {
            let runs = self.of(i);
            let all: Vec<[Felt; 2]> =
                runs.iter().flat_map(|r| (1..=STEPS).map(|s| self.pair(r, s))).collect();
            if all.is_empty() {
                continue;
            }
            let most = |f: fn(&[Felt; 2]) -> f64| all.iter().map(f).fold(f64::MIN, f64::max);
            let total: f64 = all.iter().map(|[a, b]| (a.pace + b.pace) / 2.0).sum();
            writeln!(
                out,
                "| {} | {:.3} | {:+.2} | {:.2} | {:.2} | {:.2} |",
                policy.name,
                most(|[a, b]| (a.resident - b.resident).abs()),
                -most(|[a, b]| a.pace - b.pace),
                -most(|[_, b]| -b.pace),
                most(|[a, b]| (a.pace - b.pace).abs()),
                total / all.len() as f64
            )?;
        }
        Ok(())
    }

    fn counters(&self, out: &mut String) -> Result<()> {
        writeln!(
            out,
            "\n| policy | run | pages by kswapd | by direct reclaim | swapped in | swapped out | ctlmgrd CPU s |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|")?;
        for (i, policy) in POLICIES.iter().enumerate() {
            for (n, run) in self.of(i).into_iter().enumerate() {
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

    fn picture(&self, path: &Path) -> Result<()> {
        let hogs = self.memory.scene.hogs();
        let mut panels = Vec::new();
        for (i, policy) in POLICIES.iter().enumerate() {
            let runs = self.of(i);
            if runs.is_empty() {
                continue;
            }
            let line = |hog: usize, field: fn(&Felt) -> f64, label: &str| {
                let at = |s: u64| {
                    let sum: f64 = runs.iter().map(|r| field(&self.pair(r, s)[hog])).sum();
                    (s as f64 * 200.0, sum / runs.len() as f64 * 100.0)
                };
                let points = (1..=STEPS).map(at).collect();
                Line { name: format!("{} {label}", hogs[hog]), points }
            };
            panels.push(Panel {
                title: policy.name.to_owned(),
                unit: "per cent".to_owned(),
                x: "MiB of outside pressure".to_owned(),
                lines: vec![
                    line(0, |f| f.resident, "resident"),
                    line(1, |f| f.resident, "resident"),
                    line(0, |f| f.pace, "pace"),
                    line(1, |f| f.pace, "pace"),
                ],
                marks: Vec::new(),
                top: 110.0,
            });
        }
        draw(path, "Two hogs under outside pressure, means over runs", &panels, 2)
    }
}
