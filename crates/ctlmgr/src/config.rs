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

/// Shows all settings.
pub(crate) fn show(root: &Path, json: bool) -> Result<u8, Failure> {
    let settings = ctlmgr_config::load(root).map_err(Failure::bad_input)?;
    let value = serde_json::to_value(&settings)?;
    if json {
        print_json(&value)?;
    } else {
        let mut lines = Vec::new();
        flatten("", &value, &mut lines);
        lines.iter().for_each(|l| show::line(l));
    }
    Ok(0)
}

/// One line per leaf: `memory.headroom.percent = 5`. What depends on the machine unless it is set has one, too, but not each field that a
/// rule leaves out.
fn flatten(prefix: &str, value: &Value, lines: &mut Vec<String>) {
    let below =
        |key: &str| if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| flatten(&below(k), v, lines)),
        Value::Array(list) if list.iter().any(Value::is_object) => {
            list.iter().enumerate().for_each(|(i, v)| flatten(&format!("{prefix}[{i}]"), v, lines));
        }
        Value::Null if prefix.contains('[') => {}
        Value::Null => lines.push(format!("{prefix} is not set")),
        leaf => lines.push(format!("{prefix} = {leaf}")),
    }
}

#[cfg(test)]
mod tests {
    use super::flatten;
    use serde_json::json;

    #[test]
    fn what_is_not_set_is_shown_but_not_of_each_rule() {
        let settings = json!({
            "memory": {"floor": null, "weight": 100},
            "rules": [{"name": "web", "weight": null}],
        });
        let mut lines = Vec::new();
        flatten("", &settings, &mut lines);
        let expected =
            ["memory.floor is not set", "memory.weight = 100", "rules[0].name = \"web\""];
        assert_eq!(lines, expected);
    }
}
