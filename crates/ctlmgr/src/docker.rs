//! `ctlmgr docker`: done by the program that dockerd talks to.

use std::process::Command;

use anyhow::Context;

use crate::cli::DockerCommand;
use crate::{Failure, offline};

/// Runs it and returns its exit status.
pub(crate) fn run(command: &DockerCommand, json: bool) -> Result<u8, Failure> {
    let program = offline::program("ctlmgr-docker", "/usr/libexec/ctlmgr");
    let words: &[&str] = match command {
        DockerCommand::Enable { runtime: true } => &["enable", "--runtime"],
        DockerCommand::Enable { runtime: false } => &["enable"],
        DockerCommand::Disable => &["disable"],
        DockerCommand::Status => &["status"],
    };
    let status = Command::new(&program)
        .args(words)
        .args(json.then_some("--json"))
        .status()
        .with_context(|| format!("failed to run {}", program.display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
