//! The command line of ctlmgr: asks the daemon, shows answers.
//!
//! It senses nothing and writes no knob; `memory plan`, `batch plan` and `config` need no daemon at
//! all.

mod batch_plan;
mod batch_run;
pub mod cli;
mod coalesce;
mod config;
mod daemon;
mod docker;
mod docker_cli;
mod graph;
mod input;
mod l3;
mod memory_plan;
mod offline;
mod penalties;
mod place_plan;
mod recording;
mod sample;
mod scale;
mod show;
mod starts;
mod top;
mod topology;
mod what_if;

use std::fmt;

pub use cli::Cli;
use cli::{BatchCommand, BenchCommand, Command, ConfigCommand, MemoryCommand, PlaceCommand};

/// A failure with its exit status.
#[derive(Debug)]
pub struct Failure {
    /// Exit status: 1 failed, 2 bad input or a host that ctlmgr cannot work on, 3 no daemon.
    pub status: u8,
    /// What went wrong.
    pub error: anyhow::Error,
}

impl Failure {
    /// Something the user gave cannot be used.
    pub fn bad_input(error: impl Into<anyhow::Error>) -> Failure {
        Failure { status: 2, error: error.into() }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        let error = error.into();
        let is_absent =
            error.downcast_ref::<ctlmgr_api::ClientError>().is_some_and(|e| e.is_absent());
        Failure { status: if is_absent { 3 } else { 1 }, error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

/// Runs a command and returns the exit status.
///
/// # Errors
/// What went wrong, with its exit status.
pub fn run(cli: Cli) -> Result<u8, Failure> {
    let json = cli.json;
    match cli.command {
        Command::Memory { command: MemoryCommand::Plan { file } } => memory_plan::run(&file, json),
        Command::Batch { command } => batch(&cli.socket, command, json),
        Command::Place { command: PlaceCommand::Plan { file, rounds, prove } } => {
            place_plan::run(&file, place_plan::Effort { rounds, prove_secs: prove }, json)
        }
        Command::Place { command: PlaceCommand::Show } => graph::places(&cli.socket, json),
        Command::Place { command: PlaceCommand::Suggest } => graph::suggest(&cli.socket, json),
        Command::Place { command: PlaceCommand::Graph { dot, svg } } => {
            graph::run(&cli.socket, dot, svg.as_ref(), json)
        }
        Command::Config { root, command: ConfigCommand::Check } => config::check(&root, json),
        Command::Config { root, command: ConfigCommand::Show } => config::show(&root, json),
        Command::Topology { root, svg } => topology::run(&root, svg.as_ref(), json),
        Command::Coalesce { command } => coalesce::run(&cli.socket, command, json),
        Command::Bench { command: BenchCommand::L3 } => l3::run(json),
        Command::Doctor => offline::doctor(json),
        Command::Docker { command } => docker::run(&command, json),
        Command::Replay { file } => recording::again(&file, json),
        command => daemon::run(&cli.socket, command, json),
    }
}

/// Prints a value as JSON.
fn print_json<T: serde::Serialize>(value: &T) -> Result<(), Failure> {
    show::line(&serde_json::to_string_pretty(value)?);
    Ok(())
}

fn batch(socket: &std::path::Path, command: BatchCommand, json: bool) -> Result<u8, Failure> {
    match command {
        BatchCommand::Plan { file, rounds } => batch_plan::run(&file, rounds, json),
        BatchCommand::Run { file, compose, dry_run, strict } => {
            let containers = match (file, compose) {
                (_, Some(compose)) => batch_run::Containers::Compose(compose),
                (file, None) => batch_run::Containers::Listed(file.unwrap_or_default()),
            };
            let manner = batch_run::Manner { is_dry: dry_run, is_strict: strict };
            batch_run::run(socket, &containers, manner, json)
        }
        BatchCommand::Sample { images, seconds, run_option } => {
            let limit = std::time::Duration::from_secs(seconds);
            sample::run(socket, &images, limit, &run_option, json)
        }
        BatchCommand::Penalties => penalties::run(socket, json),
    }
}
