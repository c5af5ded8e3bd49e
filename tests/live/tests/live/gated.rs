//! Containers whose starts go through the gate.

use anyhow::Result;
use ctlmgr_live::{Container, json, sh, status};
use serde_json::Value;

/// The plugin in use; dockerd does without it again at the end.
pub struct Gated;

impl Gated {
    pub fn enable(arguments: &str) -> Result<Gated> {
        let gated = Gated;
        sh(&format!("ctlmgr docker enable {arguments}"))?;
        Ok(gated)
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        let _ = status("ctlmgr docker disable");
    }
}

/// A container that is made and does not run, with a stated character.
pub fn make(name: &str, character: &str) -> Result<Container> {
    let label = format!("--label ctlmgr.batch.class={character}");
    sh(&format!("docker create --name {name} --network none {label} busybox sleep 100000"))?;
    Ok(Container { name: name.to_owned(), cgroup: std::path::PathBuf::new() })
}

/// Who starts and who waits.
pub fn queue() -> Result<Value> {
    json("ctlmgr queue --json")
}

/// Whether a container is held.
pub fn waits(name: &str) -> Result<bool> {
    let queue = queue()?;
    Ok(queue["waiting"].as_array().into_iter().flatten().any(|w| w["name"] == name))
}
