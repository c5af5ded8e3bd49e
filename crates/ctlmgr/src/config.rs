//! `ctlmgr config`.

use std::path::Path;

use ctlmgr_model::Bytes;
use procfs_core::{FromBufRead, Meminfo};
use serde_json::Value;

use crate::{Failure, print_json, show};

/// Says everything that is wrong, on a machine of this size if that can be told.
pub(crate) fn check(root: &Path, json: bool) -> Result<u8, Failure> {
    let faults = match ctlmgr_config::load(root) {
        Ok(settings) => {
            memory(root).map_or_else(Vec::new, |total| ctlmgr_config::beyond(&settings, total))
        }
        Err(error) => error.0,
    };
    if json {
        let list: Vec<Value> = faults
            .iter()
            .map(|f| {
                serde_json::json!({
                    "file": f.file, "line": f.line, "key": f.key, "message": f.message,
                })
            })
            .collect();
        print_json(&list)?;
    } else if faults.is_empty() {
        show::line("The configuration is well.");
    } else {
        faults.iter().for_each(|f| show::line(&f.to_string()));
    }
    Ok(if faults.is_empty() { 0 } else { 2 })
}

fn memory(root: &Path) -> Option<Bytes> {
    let text = std::fs::read(root.join("proc/meminfo")).ok()?;
    Some(Bytes(Meminfo::from_buf_read(text.as_slice()).ok()?.mem_total))
}

/// Shows all settings, as a fragment that says the same.
pub(crate) fn show(root: &Path, json: bool) -> Result<u8, Failure> {
    let settings = ctlmgr_config::load(root).map_err(Failure::bad_input)?;
    if json {
        print_json(&settings)?;
    } else {
        ctlmgr_config::to_toml(&settings)?.lines().for_each(show::line);
    }
    Ok(0)
}
