//! Running other programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The top of the repository.
pub fn root() -> PathBuf {
    // What cargo says now comes first: clones that share one target directory share this program.
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

/// Says what is going on; progress goes to standard error, results to standard output.
pub fn say(text: &str) {
    eprintln!("==> {text}");
}

/// A command from words.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// The same as root: as it is for root, else through sudo.
pub fn privileged(words: &[&str]) -> Command {
    match is_root() {
        true => command(words),
        false => command(&[&["sudo"], words].concat()),
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|l| l.starts_with("Uid:") && l.split_whitespace().nth(2) == Some("0"))
}

/// Runs a command with its output visible.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("failed to start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed: {status}");
    }
    Ok(())
}

/// Runs a command quietly; its output is shown only if it fails.
pub fn quiet(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("failed to start {shown}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{shown} failed: {}\n{stdout}{stderr}", output.status);
    }
    Ok(stdout)
}

/// `cargo` as it was called.
pub fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(words);
    command
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let text: Vec<String> = words.map(|w| w.to_string_lossy().into_owned()).collect();
    let text = text.join(" ");
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}
