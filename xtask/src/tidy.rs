//! `cargo xtask tidy`: crate edges, sizes and lints that no compiler checks.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::sh;

/// Longest function, in lines.
const FUNCTION_LINES: usize = 60;
/// Longest file without its tests, in lines.
const FILE_LINES: usize = 400;

/// Who may use whom inside the workspace; development dependencies are not counted.
const EDGES: [(&str, &[&str]); 15] = [
    ("ctlmgr-model", &[]),
    ("ctlmgr-policy", &["ctlmgr-model"]),
    ("ctlmgr-config", &["ctlmgr-model"]),
    ("ctlmgr-host", &["ctlmgr-model"]),
    ("ctlmgr-store", &["ctlmgr-model"]),
    ("ctlmgr-api", &["ctlmgr-model"]),
    ("ctlmgr-sense", &["ctlmgr-model", "ctlmgr-host"]),
    ("ctlmgr-act", &["ctlmgr-model", "ctlmgr-host"]),
    ("ctlmgr-trace", &["ctlmgr-model", "ctlmgr-host"]),
    (
        "ctlmgr-testkit",
        &["ctlmgr-model", "ctlmgr-policy", "ctlmgr-host", "ctlmgr-sense", "ctlmgr-act"],
    ),
    (
        "ctlmgrd",
        &[
            "ctlmgr-act",
            "ctlmgr-api",
            "ctlmgr-config",
            "ctlmgr-host",
            "ctlmgr-model",
            "ctlmgr-policy",
            "ctlmgr-sense",
            "ctlmgr-store",
            "ctlmgr-trace",
        ],
    ),
    ("ctlmgr", &["ctlmgr-model", "ctlmgr-config", "ctlmgr-policy", "ctlmgr-api"]),
    ("ctlmgr-docker", &["ctlmgr-model", "ctlmgr-api"]),
    ("ctlmgr-init", &[]),
    ("xtask", &["ctlmgr", "ctlmgr-config", "ctlmgr-model", "ctlmgr-policy"]),
];
/// What purity means for the policy: none of these may appear in its sources.
const IMPURE: [&str; 8] = [
    "std::fs",
    "std::env",
    "std::time",
    "std::net",
    "std::process",
    "println!",
    "tracing",
    "rand::",
];

/// Runs all checks and reports every fault.
pub fn run() -> Result<()> {
    let mut faults = Vec::new();
    check_edges(&mut faults)?;
    for file in sources()? {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        check_sizes(&file, &text, &mut faults);
        check_purity(&file, &text, &mut faults);
    }
    match faults.is_empty() {
        true => Ok(()),
        false => bail!("untidy:\n  {}", faults.join("\n  ")),
    }
}

fn check_edges(faults: &mut Vec<String>) -> Result<()> {
    let words = ["metadata", "--format-version", "1", "--no-deps", "--locked"];
    let metadata: Value = serde_json::from_str(&sh::output(&mut sh::cargo(&words))?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let allowed = EDGES.iter().find(|(n, _)| *n == name).map_or(&[][..], |(_, list)| list);
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            let is_ours = packages.iter().any(|p| p["name"] == to);
            let is_development = dependency["kind"] == "dev";
            if is_ours && !is_development && !allowed.contains(&to) {
                faults.push(format!("{name} may not use {to}"));
            }
        }
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let text = std::fs::read_to_string(manifest)?;
        if !text.contains("[lints]\nworkspace = true") {
            faults.push(format!("{name} does not take the lints of the workspace"));
        }
    }
    Ok(())
}

/// All Rust sources that git knows or would add.
fn sources() -> Result<Vec<PathBuf>> {
    let words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs"];
    let text = sh::output(&mut sh::command(&words))?;
    Ok(text.lines().map(PathBuf::from).filter(|p| p.exists()).collect())
}

fn check_sizes(file: &Path, text: &str, faults: &mut Vec<String>) {
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let lines = code.lines().count();
    let is_test = file.components().any(|c| c.as_os_str() == "tests");
    if lines > FILE_LINES && !is_test {
        faults.push(format!("{} has {lines} lines, {FILE_LINES} are allowed", file.display()));
    }
    for (name, line, length) in functions(text) {
        if length > FUNCTION_LINES {
            let file = file.display();
            faults.push(format!(
                "{file}:{line}: {name} has {length} lines, {FUNCTION_LINES} are allowed"
            ));
        }
    }
}

/// Name, first line and length of every function, by the indentation that rustfmt gives.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().take(6).collect();
        let Some(at) = words.iter().position(|w| *w == "fn") else { continue };
        let is_item = words[..at]
            .iter()
            .all(|w| w.starts_with("pub") || ["async", "const", "unsafe", "extern"].contains(w));
        if !is_item || line.trim_end().ends_with(';') {
            continue;
        }
        let end = format!("{}}}", " ".repeat(indent));
        let length = lines[i..].iter().position(|l| *l == end).map_or(1, |n| n + 1);
        let name = words.get(at + 1).map_or("", |w| w.split(['(', '<']).next().unwrap_or(w));
        found.push((name.to_owned(), i + 1, length));
    }
    found
}

fn check_purity(file: &Path, text: &str, faults: &mut Vec<String>) {
    if !file.starts_with("crates/ctlmgr-policy/src") && !file.starts_with("crates/ctlmgr-model/src")
    {
        return;
    }
    for word in IMPURE.iter().filter(|w| text.contains(**w)) {
        faults.push(format!("{}: {word} has no place in a pure crate", file.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn lengths_of_functions() {
        let text = "pub fn a(\n    x: u8,\n) -> u8 {\n    x\n}\n\nimpl B {\n    async fn c() {\n    }\n}\n";
        assert_eq!(functions(text), [("a".to_owned(), 1, 5), ("c".to_owned(), 8, 2)]);
    }
}
