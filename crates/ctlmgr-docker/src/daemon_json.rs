//! dockerd's configuration file, edited without touching what is not ours.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::plugin;

/// Name of the runtime in the file.
pub const RUNTIME: &str = "ctlmgr-runc";
const PLUGINS: &str = "authorization-plugins";
const DEFAULT_RUNTIME: &str = "default-runtime";

/// What of ctlmgr dockerd should use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Use {
    /// The authorization plugin.
    pub plugin: bool,
    /// The runtime wrapper, for containers created from now on.
    pub runtime: bool,
}

/// What a file has dockerd use.
///
/// # Errors
/// It is no JSON object, or one of our keys holds something else than dockerd would understand.
pub fn in_use(text: &str) -> Result<Use> {
    let file = parse(text)?;
    let plugin = plugins(&file)?.iter().any(|p| p == plugin::NAME);
    Ok(Use { plugin, runtime: file.get(DEFAULT_RUNTIME) == Some(&json!(RUNTIME)) })
}

/// The file with ctlmgr in use; `path` is that of the wrapper.
///
/// # Errors
/// See [`in_use`]; or another default runtime than runc is set, which the wrapper would replace.
pub fn enabled(text: &str, wanted: Use, path: &str) -> Result<String> {
    let mut file = parse(text)?;
    if wanted.plugin {
        let mut list = plugins(&file)?;
        if !list.iter().any(|p| p == plugin::NAME) {
            list.push(plugin::NAME.to_owned());
        }
        file.insert(PLUGINS.to_owned(), json!(list));
    }
    if wanted.runtime {
        match file.get(DEFAULT_RUNTIME).and_then(Value::as_str) {
            None | Some("runc" | RUNTIME) => {}
            Some(other) => {
                bail!("{DEFAULT_RUNTIME} is `{other}`: the wrapper would replace it by runc")
            }
        }
        runtimes(&mut file)?.insert(RUNTIME.to_owned(), json!({ "path": path }));
        file.insert(DEFAULT_RUNTIME.to_owned(), json!(RUNTIME));
    }
    print(&file)
}

/// The file without ctlmgr. Containers that were created with the wrapper name it for ever, so its name
/// stays and means `runc` from now on.
///
/// # Errors
/// See [`in_use`].
pub fn disabled(text: &str, runc: &str) -> Result<String> {
    let mut file = parse(text)?;
    let list: Vec<String> = plugins(&file)?.into_iter().filter(|p| p != plugin::NAME).collect();
    match list.is_empty() {
        true => drop(file.remove(PLUGINS)),
        false => drop(file.insert(PLUGINS.to_owned(), json!(list))),
    }
    if file.get(DEFAULT_RUNTIME) == Some(&json!(RUNTIME)) {
        file.remove(DEFAULT_RUNTIME);
    }
    if file.get("runtimes").and_then(|r| r.get(RUNTIME)).is_some() {
        runtimes(&mut file)?.insert(RUNTIME.to_owned(), json!({ "path": runc }));
    }
    print(&file)
}

/// Whether two files say different things.
///
/// # Errors
/// One of them is no JSON object.
pub fn differ(one: &str, other: &str) -> Result<bool> {
    Ok(parse(one)? != parse(other)?)
}

/// An empty file is what dockerd takes for none.
fn parse(text: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(if text.trim().is_empty() { "{}" } else { text }) {
        Ok(Value::Object(file)) => Ok(file),
        Ok(_) => bail!("it holds no JSON object"),
        Err(error) => Err(error).context("it is not valid JSON"),
    }
}

fn plugins(file: &Map<String, Value>) -> Result<Vec<String>> {
    match file.get(PLUGINS) {
        None => Ok(Vec::new()),
        Some(list) => serde_json::from_value(list.clone())
            .with_context(|| format!("{PLUGINS} is no list of names")),
    }
}

fn runtimes(file: &mut Map<String, Value>) -> Result<&mut Map<String, Value>> {
    let value = file.entry("runtimes").or_insert_with(|| json!({}));
    value.as_object_mut().context("runtimes is no object")
}

fn print(file: &Map<String, Value>) -> Result<String> {
    Ok(serde_json::to_string_pretty(file)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Use = Use { plugin: true, runtime: true };

    #[test]
    fn what_is_not_ours_stays_in_its_order() {
        let before =
            r#"{"storage-driver": "overlay2", "authorization-plugins": ["opa"], "bip": "x"}"#;
        let after = enabled(before, BOTH, "/w").unwrap();
        assert_eq!(in_use(&after).unwrap(), BOTH);
        let value: Value = serde_json::from_str(&after).unwrap();
        assert_eq!(value["authorization-plugins"], json!(["opa", "ctlmgr"]));
        assert_eq!(value["runtimes"]["ctlmgr-runc"]["path"], "/w");
        assert!(after.find("storage-driver").unwrap() < after.find("bip").unwrap());
        assert_eq!(enabled(&after, BOTH, "/w").unwrap(), after, "twice is once");
        let gone = disabled(&after, "/usr/bin/runc").unwrap();
        assert_eq!(in_use(&gone).unwrap(), Use::default());
        let value: Value = serde_json::from_str(&gone).unwrap();
        assert_eq!(value["authorization-plugins"], json!(["opa"]));
        assert_eq!(value["runtimes"]["ctlmgr-runc"]["path"], "/usr/bin/runc");
    }

    #[test]
    fn nothing_is_left_of_the_plugin() {
        let plugin = Use { plugin: true, runtime: false };
        let after = enabled("", plugin, "/w").unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&disabled(&after, "runc").unwrap()).unwrap(),
            json!({})
        );
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for (text, complaint) in [
            ("[]", "no JSON object"),
            ("{", "not valid JSON"),
            (r#"{"authorization-plugins": "opa"}"#, "no list of names"),
            (r#"{"runtimes": []}"#, "runtimes is no object"),
            (r#"{"default-runtime": "nvidia"}"#, "default-runtime is `nvidia`"),
        ] {
            let error = enabled(text, BOTH, "/w").unwrap_err();
            assert!(format!("{error:#}").contains(complaint), "{error:#}");
        }
    }
}
