//! `cargo xtask bench`: what is measured, beside what it is measured against.

mod batches;
mod bomb;
mod changes;
mod gate;
mod general;
mod idle;
mod place;
mod placement;
mod report;
mod scene;
mod settling;
mod shapes;
mod starts;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use clap::builder::PossibleValuesParser;

use self::report::{Results, Run};
use self::scene::{Member, POLICIES, Policy, Pressure, SCENES, STEPS, Scene};
use crate::lab::{self, Kit, Record};
use crate::{dist, fresh, sh, vm};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Two hogs under pressure: resident parts, pace and latency per step and policy.
    Memory(Memory),
    /// How soon shares settle after a container came, grew or went, a promise or a weight changed, or the machine did.
    Changes(changes::Changes),
    /// What a service and a database feel of a neighbour that runs into its own memory.max.
    Bomb(bomb::Bomb),
    /// What dockerd's clients feel of a gate that holds nobody.
    Gate(gate::Gate),
    /// Ways of starting containers that fight for a disk.
    Starts(starts::Starts),
    /// Whether the character of fio jobs is learned right, traced and from io.stat alone.
    Shapes(shapes::Shapes),
    /// The planner of batches beside the methods of the paper, on this machine.
    Batches,
    /// The planner of placements beside METIS, on this machine.
    Place,
    /// Services that talk, on a machine with four last-level caches: counted, placed, measured.
    Placement(placement::Placement),
    /// CPU time of the daemon while many containers rest, beside systemd-oomd's.
    Idle(idle::Idle),
}

#[derive(Debug, clap::Args)]
struct Memory {
    /// Which pair of hogs, under which pressure; all: one after the other, each with a report of its own.
    #[arg(long, default_value = "sizes", value_parser = PossibleValuesParser::new(SCENES.iter().map(|s| s.name).chain([ALL])))]
    scene: String,
    /// Runs of each policy.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Seconds per pressure step.
    #[arg(long, default_value_t = 20)]
    step_secs: u32,
    /// Also peers (covered memory.low, exceed-based reclaim) and the other controllers.
    #[arg(long)]
    peers: bool,
    /// One more setting of [memory] for ctlmgr, such as 'throttle = false'.
    #[arg(long, default_value = "")]
    set: String,
    /// Redis have the processor before the others, and before units where a unit presses: what slows them down then is
    /// memory and disk.
    #[arg(long)]
    cpu_first: bool,
    /// Hogs have the processor by their size: where it is short, nobody is slowed down by it more than others.
    #[arg(long)]
    cpu_by_size: bool,
    /// For the peer "equal parts by hand": per cent of its set that each may hold, at each step.
    #[arg(long, value_parser = parse_parts)]
    parts: Option<Parts>,
    /// Where pages go.
    #[arg(long, default_value = "disk", value_parser = ["disk", "zram", "zswap", "none"])]
    swap: String,
    /// Debian release whose kernel boots, such as trixie-backports.
    #[arg(long, default_value = vm::RELEASE)]
    kernel: String,
    /// Memory of the machine, in MiB. With 4096 pairs beside a unit miss nothing at any step, and what is left is what processors do.
    #[arg(long, default_value_t = vm::MEMORY_MIB)]
    memory: u32,
    /// Only policies whose name contains this, or one of these with | between them.
    #[arg(long, default_value = "")]
    only: String,
}

/// For `--scene`.
const ALL: &str = "all";

/// Per cent of its set that each member may hold, at each step.
type Parts = [u32; STEPS];

fn parse_parts(text: &str) -> Result<Parts, String> {
    let part = |text: &str| text.parse().ok().filter(|part| (1..=100).contains(part));
    let parts: Option<Vec<u32>> = text.split(',').map(part).collect();
    let parts = parts.ok_or("not numbers from 1 to 100 with commas between them")?;
    parts.try_into().map_err(|p: Vec<u32>| format!("{} parts for {STEPS} steps", p.len()))
}

/// Runs `cargo xtask bench`.
pub fn run(arguments: &Arguments) -> Result<()> {
    fresh::ensure_compiler()?;
    match &arguments.command {
        Command::Batches => return batches::run(),
        Command::Place => return place::run(),
        _ => {}
    }
    let kit = lab::kit()?;
    match &arguments.command {
        Command::Batches => batches::run(),
        Command::Memory(memory) => run_memory(&kit, memory),
        Command::Changes(changes) => changes::run(&kit, changes),
        Command::Bomb(bomb) => bomb::run(&kit, bomb),
        Command::Idle(idle) => idle::run(&kit, idle),
        Command::Gate(gate) => gate::run(&kit, gate),
        Command::Place => place::run(),
        Command::Placement(placement) => placement::run(&kit, placement),
        Command::Shapes(shapes) => shapes::run(&kit, shapes),
        Command::Starts(starts) => starts::run(&kit, starts),
    }
}

/// Whether a policy is among those asked for: `only` is a part of its name, or several with | between them.
fn is_named(policy: &str, only: &str) -> bool {
    only.split('|').any(|part| policy.contains(part))
}

/// Where what was measured is kept.
fn directory() -> PathBuf {
    dist::target().join("bench")
}

fn keep(name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(directory())?;
    let path = directory().join(name);
    std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
}

fn run_memory(kit: &Kit, memory: &Memory) -> Result<()> {
    let is_asked = |scene: &&Scene| memory.scene == ALL || scene.name == memory.scene;
    SCENES.iter().filter(is_asked).try_for_each(|scene| run_scene(kit, memory, scene))
}

fn run_scene(kit: &Kit, memory: &Memory, scene: &Scene) -> Result<()> {
    let Memory { step_secs, swap, kernel, memory: memory_mib, .. } = memory;
    let (step_secs, memory_mib, runs) = (*step_secs, *memory_mib, Vec::new());
    let mut results = Results { scene, step_secs, swap, kernel, memory_mib, runs };
    let is_possible = |p: &Policy| p.script != "parts" || memory.parts.is_some();
    let is_wanted = |p: &Policy| {
        is_named(p.name, &memory.only) && (memory.peers || !p.is_peer) && is_possible(p)
    };
    ensure!(
        POLICIES.iter().any(is_wanted),
        "no policy is called `{}` (peers are measured with --peers only, equal parts with --parts too)",
        memory.only
    );
    // Rounds, not blocks: a machine that drifts drifts for all policies.
    for round in 1..=memory.runs {
        for (i, policy) in POLICIES.iter().enumerate().filter(|(_, p)| is_wanted(p)) {
            sh::say(&format!("{}, round {round} of {}: {}", scene.name, memory.runs, policy.name));
            let record = measure(kit, memory, scene, policy)?;
            results.runs.push(Run { policy: i, record });
            // After every run: an hour of measuring must not be lost to what comes last.
            results.write()?;
        }
    }
    print!("{}", results.report()?);
    Ok(())
}

fn measure(kit: &Kit, memory: &Memory, scene: &Scene, policy: &Policy) -> Result<Record> {
    let member =
        |m: &Member| format!("{}:{}:{}:{}:{}", m.name, m.kind.script(), m.mib, m.promise, m.rate);
    let members: Vec<String> = scene.members.iter().map(member).collect();
    let pressure = match scene.pressure {
        Pressure::Unit(_) => "unit",
        Pressure::Balloon(_) => "balloon",
    };
    let with_commas = |numbers: [u32; STEPS]| numbers.map(|n| n.to_string()).join(",");
    let script = [
        "bench-memory.sh".to_owned(),
        format!("members={}", members.join(",")),
        format!("swap={}", memory.swap),
        format!("pressure={pressure}"),
        format!("steps={}", with_commas(scene.pressure.steps())),
        format!("parts={}", memory.parts.map(with_commas).unwrap_or_default()),
        format!("step_secs={}", memory.step_secs),
        format!("policy={}", policy.script),
        format!("weight={}", policy.weight_of_second),
        format!("lru={}", policy.lru),
        format!("'setting={}'", memory.set),
        format!("cpu_first={}", memory.cpu_first),
        format!("cpu_by_size={}", memory.cpu_by_size),
    ];
    let limit = Duration::from_secs(300 + u64::from(memory.step_secs) * STEPS as u64 * 3);
    let kernel = memory.kernel.clone();
    let shape = vm::Shape { kernel, memory: memory.memory, ..vm::Shape::default() };
    let record = lab::run_in_shape(kit, &script.join(" "), limit, &shape)?;
    record.expect_undone()?;
    Ok(record)
}
