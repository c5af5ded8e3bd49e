//! What works without a running daemon: its binary does the work once and prints JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use ctlmgr_api::{Difference, Finding, Reverted, Severity};
use ctlmgr_model::Topology;
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

/// The processors of this host, or of one below another root.
pub(crate) fn topology(root: &Path) -> Result<Topology, Failure> {
    let root = root.to_str().context("the root is no UTF-8")?;
    Ok(ask_with(&["--root", root, "topology"])?)
}

fn ask<T: DeserializeOwned>(what: &str) -> anyhow::Result<T> {
    ask_with(&[what])
}

fn ask_with<T: DeserializeOwned>(words: &[&str]) -> anyhow::Result<T> {
    let program = program("ctlmgrd", "/usr/sbin");
    let output = Command::new(&program)
        .args(words)
        .env("CTLMGR_LOG", "error")
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("failed to run {}", program.display()))?;
    if output.stdout.is_empty() {
        bail!("{} {} failed: {}", program.display(), words.join(" "), output.status);
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("failed to understand what {} says", program.display()))
}

/// A program beside this one (a build tree), or where packages put it.
pub(crate) fn program(name: &str, directory: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|p| Some(p.parent()?.join(name)));
    beside.filter(|p| p.exists()).unwrap_or_else(|| PathBuf::from(directory).join(name))
}
