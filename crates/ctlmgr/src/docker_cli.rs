//! dockerd through its own client, so that its context and credentials apply.

use std::process::Command;

use anyhow::{Context, bail};

/// Runs docker and returns what it printed.
pub(crate) fn docker(arguments: &[&str]) -> Result<String, anyhow::Error> {
    let output = Command::new("docker").args(arguments).output().context("failed to run docker")?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => bail!("{}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}
