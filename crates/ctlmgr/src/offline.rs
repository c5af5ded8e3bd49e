//! What works without a running daemon: its binary does the work once and prints JSON.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};
use ctlmgr_api::{Difference, Finding, Reverted, Severity};
use serde::de::DeserializeOwned;

use crate::{Failure, print_json, show};

/// `ctlmgr doctor`.
pub(crate) fn doctor(json: bool) -> Result<u8, Failure> {
    let findings: Vec<Finding> = ask("doctor")?;
    if json {
        print_json(&findings)?;
    } else {
        show::findings(&findings);
    }
    Ok(if findings.iter().any(|f| f.severity == Severity::Fatal) { 2 } else { 0 })
}

/// Undo from the journal.
pub(crate) fn revert() -> Result<Vec<Reverted>, Failure> {
    Ok(ask("revert")?)
}

/// Differences from the journal.
pub(crate) fn diff() -> Result<Vec<Difference>, Failure> {
    Ok(ask("diff")?)
}

fn ask<T: DeserializeOwned>(what: &str) -> anyhow::Result<T> {
    let program = program("ctlmgrd", "/usr/sbin");
    let output = Command::new(&program)
        .arg(what)
        .env("CTLMGR_LOG", "error")
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("failed to run {}", program.display()))?;
    if output.stdout.is_empty() {
        bail!("{} {what} failed: {}", program.display(), output.status);
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("failed to understand what {} says", program.display()))
}

/// A program beside this one (a build tree), or where packages put it.
pub(crate) fn program(name: &str, directory: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|p| Some(p.parent()?.join(name)));
    beside.filter(|p| p.exists()).unwrap_or_else(|| PathBuf::from(directory).join(name))
}
