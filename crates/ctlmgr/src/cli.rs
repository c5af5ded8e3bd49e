//! Arguments; also the source of man page and completions.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Shows and steers ctlmgr, which shares a container host's memory by weight under pressure, lets only
/// those containers start together that do not fight for the disk, and runs those near each other that talk.
///
/// After installation ctlmgr only observes: `ctlmgr plan` shows what it would do, and
/// `ctlmgr mode act` lets it. `ctlmgr revert` puts everything back.
///
/// Exit status: 0 done; 1 failed; 2 bad input, or (doctor) a host that ctlmgr cannot work on;
/// 3 no daemon is running.
#[derive(Debug, Parser)]
#[command(name = "ctlmgr", version, max_term_width = 80)]
pub struct Cli {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// Socket of the daemon.
    #[arg(long, global = true, default_value = ctlmgr_api::SOCKET)]
    pub socket: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show mode, capacity and every workload: what it holds, needs and may keep.
    Status,
    /// Explain what is decided about a workload, and what was done.
    Why {
        /// Name of a container or unit.
        name: String,
    },
    /// Show what ctlmgr would do now.
    Plan,
    /// Show who would keep what after a change, if all felt as they do now, without making it.
    WhatIf(WhatIf),
    /// Write what deciding depends on to a file, one JSON object a line, for `replay`.
    Record {
        /// The file; it must not exist.
        file: PathBuf,
        /// Stop after this many seconds; Ctrl-C stops too.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Decide again what a recording holds, and show what comes out differently.
    ///
    /// Needs no daemon. Exit status 1 if anything does.
    Replay {
        /// The recording; - is standard input.
        file: PathBuf,
    },
    /// Show every value that differs from before ctlmgr. Exit status 0 also if there are some.
    Diff,
    /// Put back every value that ctlmgr wrote; with a daemon all jobs only observe until reboot.
    Revert {
        /// Do not ask the daemon, read its journal; also done by itself if no daemon runs.
        #[arg(long)]
        offline: bool,
    },
    /// Show or change what a job may do, until reboot.
    ///
    /// For good: `mode = "act"` under [memory], [starts] or [place] in /etc/ctlmgr/config.d/.
    Mode {
        /// off, observe, act, or default (as configured).
        mode: Option<String>,
        /// Which job.
        #[arg(long, default_value = "memory", value_parser = ["memory", "starts", "place"])]
        job: String,
    },
    /// Show or change the weight of a workload, until reboot.
    ///
    /// For good: a [[rule]] in /etc/ctlmgr/config.d/, or the label ctlmgr.weight.
    Weight {
        /// Name of a container or unit.
        name: String,
        /// 1–10000 (then it is of no class), a class (critical, high, normal, low, idle), or default.
        weight: Option<String>,
    },
    /// Check or show the configuration; needs no daemon.
    Config {
        /// Read it below this directory instead of /.
        #[arg(long, default_value = "/")]
        root: PathBuf,
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Examine this host: what stops ctlmgr from working, and what to do about it.
    Doctor,
    /// The memory job: watch it, or compute shares without a daemon.
    Memory {
        /// Which one.
        #[command(subcommand)]
        command: MemoryCommand,
    },
    /// Show which containers wait to start, for what and how long, and which start now.
    Queue {
        /// What to do with it; nothing is to show it.
        #[command(subcommand)]
        command: Option<QueueCommand>,
    },
    /// Show what was learned of starts, or take it from one host to another.
    Profile {
        /// Which one.
        #[command(subcommand)]
        command: ProfileCommand,
    },
    /// Have dockerd ask ctlmgr before it starts a container, or not.
    Docker {
        /// Which one.
        #[command(subcommand)]
        command: DockerCommand,
    },
    /// Batches of containers that start together: plan them, or start them so.
    Batch {
        /// Which one.
        #[command(subcommand)]
        command: BatchCommand,
    },
    /// Show which processors share a last-level cache, a node and a socket; needs no daemon.
    Topology {
        /// Read it below this directory instead of /.
        #[arg(long, default_value = "/")]
        root: PathBuf,
        /// Draw it into this file, too.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// Two containers that talk much as one.
    Coalesce {
        /// What to do.
        #[command(subcommand)]
        command: CoalesceCommand,
    },
    /// Measure this machine; needs no daemon.
    Bench {
        /// What of it.
        #[command(subcommand)]
        command: BenchCommand,
    },
    /// Workloads on L3 domains.
    Place {
        /// Which one.
        #[command(subcommand)]
        command: PlaceCommand,
    },
}

/// Commands on coalescing.
#[derive(Debug, Subcommand)]
pub enum CoalesceCommand {
    /// Say which pairs of containers talk most, whether each could be one container, and if not, why not.
    ///
    /// Needs ctlmgrd, place.traffic and the docker command. Changes nothing.
    Advise,
    /// Build an image that runs both of two containers, the first one first, and say how to run it.
    ///
    /// Needs the docker command. Both go on running; nothing is replaced. The image has the files of both
    /// images and a small init that hands signals on and ends when one of them ends. Their own environment is
    /// not in the image but in the compose override, or in the words for docker run.
    Build {
        /// Name of the container that starts first.
        first: String,
        /// Name of the other.
        second: String,
        /// Name of the new image.
        #[arg(long, short)]
        tag: String,
        /// The compose override, for containers of a compose project.
        #[arg(long, short, value_name = "FILE", default_value = "compose.coalesced.yaml")]
        output: PathBuf,
        /// Replace an image of that name, and the file.
        #[arg(long)]
        replace: bool,
    },
}

/// Measurements of this machine.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure what messages between processors cost, by which caches they share.
    ///
    /// Takes a few seconds and keeps two processors at a time busy.
    L3,
}

/// A change to try out.
#[derive(Debug, Default, clap::Args)]
pub struct WhatIf {
    /// NAME=WEIGHT: give a workload another weight, 1–10000 or a class.
    #[arg(long, value_name = "NAME=WEIGHT")]
    pub weight: Vec<String>,
    /// Share out this much, or more or less than now: 8G, +2G, -2G.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub capacity: Option<String>,
    /// SIZE@WEIGHT: add a workload that needs this much, and was promised it.
    #[arg(long, value_name = "SIZE@WEIGHT")]
    pub add: Vec<String>,
}

/// Commands on the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say everything that is wrong, with file, line and key. Exit status 2 if anything is.
    Check,
    /// Show all settings in force, defaults included, as a file that would set them.
    Show,
}

/// Commands on the queue of starts.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Show it again at every change.
    Watch,
    /// Let a container start now.
    Skip {
        /// Its name.
        name: String,
    },
    /// Refuse the start of a container that waits; its client is told.
    Cancel {
        /// Its name.
        name: String,
    },
    /// Let everybody start who waits now, and end `hold`.
    Release,
    /// Hold all starts, each for its longest wait at most.
    Hold,
}

/// Commands on dockerd.
#[derive(Debug, Subcommand)]
pub enum DockerCommand {
    /// Have dockerd ask before every start, by its authorization plugin.
    ///
    /// Changes /etc/docker/daemon.json, keeps the former beside it, and has dockerd reload. Starts wait
    /// only once the starts job acts: `ctlmgr mode --job starts act`.
    Enable {
        /// Also wrap the runtime of containers created from now on, so that restarts and the boot, which
        /// dockerd makes by itself, are asked for too.
        #[arg(long)]
        runtime: bool,
    },
    /// Have dockerd do without ctlmgr, and put its configuration back.
    Disable,
    /// Show what dockerd's configuration says.
    Status,
}

/// Commands on profiles.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Show all of them.
    List,
    /// Show one with all figures.
    Show {
        /// Its key, as in the list.
        key: String,
    },
    /// Forget one; it is learned anew.
    Forget {
        /// Its key, as in the list.
        key: String,
    },
    /// Write all of them to a file.
    Export {
        /// The file; - is standard output.
        file: PathBuf,
    },
    /// Read profiles from a file that `export` wrote; those of the same key are replaced.
    Import {
        /// The file; - is standard input.
        file: PathBuf,
    },
}

/// Commands on placement.
#[derive(Debug, Subcommand)]
pub enum PlaceCommand {
    /// Show which containers run on which processors, and why; needs ctlmgrd.
    Show,
    /// Show which containers talk to each other, and how much; needs ctlmgrd, and place.traffic.
    Graph {
        /// In the language of Graphviz.
        #[arg(long, conflicts_with = "svg")]
        dot: bool,
        /// Draw it into this file, domain by domain.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// Say on which L3 domain each container would be near those that it talks to, from the traffic and
    /// the CPU use of now. Changes nothing.
    Suggest,
    /// Assign workloads to L3 domains, so that those that talk to each other are near, and nothing else.
    ///
    /// FILE holds {"domains": [{"id", "cpus", "numa", "socket"}], "workloads": [{"name", "cpu", "weight",
    /// "current": DOMAIN, [DOMAIN] or null, "pinned", "exclusive", "max_domains"}], "edges": [[A, B,
    /// BYTES]], "distance": {"same_l3": 0, "same_numa": 1, "same_socket": 2, "other_socket": 4},
    /// "balance_tolerance": 0.1, "time_limit_ms": 100, "move_price": BYTES}. First the least load beyond
    /// min(cpus, (1 + balance_tolerance) * part of all load) is sought, then the least sum of
    /// bytes * distance, where each move away from current costs move_price: by default a
    /// ten-thousandth of all bytes. Where a load must exceed the limit, of equals those of least weight
    /// bear it. - is standard input.
    Plan {
        /// Domains, workloads and their traffic, as JSON.
        file: PathBuf,
        /// Stop after so many rounds of search, in place of the time limit: the same plan every time.
        #[arg(long)]
        rounds: Option<u64>,
        /// Have an exact solver look for something better for so long, or prove that there is nothing:
        /// seconds for some forty workloads on four domains, and often too long for more.
        #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=86400))]
        prove: Option<u64>,
    },
}

/// Commands on batches.
#[derive(Debug, Subcommand)]
pub enum BatchCommand {
    /// Divide containers into batches that do not fight, and nothing else.
    ///
    /// FILE holds {"max_batch": N or null, "objective": {"penalty": 1, "batches": 1}, "bins": [NAME],
    /// "penalty": [[S]], "containers": [{"name", "bin", "count", "use": {CAPACITY: AMOUNT}, "volume",
    /// "after": [NAME], "deadline": N, "weight": 100, "running": false}], "capacity": {CAPACITY: AMOUNT},
    /// "time_limit_ms": 1000}; in place of bins and penalty, "pairwise": [[S]] over the containers. A
    /// deadline is the number of the batch in which it starts at the latest. Of orders that cost the same,
    /// one is taken in which more weight starts earlier. Those that run already are in the first batch. - is
    /// standard input.
    Plan {
        /// The containers, as JSON.
        file: PathBuf,
        /// Stop after so many rounds of search, in place of the time limit: the same plan every time.
        #[arg(long)]
        rounds: Option<u64>,
    },
    /// Start containers that exist batch by batch.
    ///
    /// Those of the next batch start in turn, as soon as they and those that still start fight with no more
    /// than was planned and waste nothing; with --strict, when all of the batch before are over. Needs the docker command, and ctlmgrd, which sees when a start is over.
    Run {
        /// The containers, as for `plan`; names are those of containers. Without bins, penalty and pairwise
        /// what they cost each other, and what they use, is what was learned of them.
        #[arg(required_unless_present = "compose")]
        file: Option<PathBuf>,
        /// In place of FILE: the services of a compose file, planned with what was learned of them. Their
        /// containers are made where they are not there.
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        compose: Option<PathBuf>,
        /// Show the plan, and start nothing.
        #[arg(long)]
        dry_run: bool,
        /// Start nobody of a batch before all of the one before are over.
        #[arg(long)]
        strict: bool,
    },
    /// Run each image alone for a while, so that its character is known before it matters.
    ///
    /// Needs the docker command, and ctlmgrd, which learns. What was run is removed again.
    Sample {
        /// Images, one after the other.
        #[arg(required = true)]
        images: Vec<String>,
        /// How long each of them runs, at most.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        /// An option for `docker run`, such as --env=PASSWORD=x; may be given several times.
        #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
        run_option: Vec<String>,
    },
    /// Show what characters cost each other when they start together, learned and by guideline.
    Penalties,
}

/// Commands of the memory job.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Show who needs, keeps and misses what, again and again.
    Top {
        /// Seconds between two looks.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
        every: u64,
        /// Look once; also done by itself where the output is no terminal.
        #[arg(long)]
        once: bool,
    },
    /// Divide a capacity among workloads by weight, and nothing else.
    ///
    /// FILE holds {"capacity_bytes": N, "workloads": [{"name", "weight", "promise_bytes" or null,
    /// "demand_bytes", "floor_bytes", "max_bytes" or null}]}; - is standard input.
    Plan {
        /// The workloads, as JSON.
        file: PathBuf,
    },
}
