//! The list of services.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde::Deserialize;

/// What a container ran before it was coalesced with another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// For messages.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Environment of its image.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory; empty is that of the container.
    #[serde(default)]
    pub dir: String,
    /// Asks it to end; empty is SIGTERM.
    #[serde(default)]
    pub stop: String,
}

impl Service {
    pub fn stop_signal(&self) -> Signal {
        Signal::from_str(&self.stop).unwrap_or(Signal::SIGTERM)
    }
}

/// Reads the list.
pub fn read(path: &Path) -> Result<Vec<Service>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    let services: Vec<Service> = serde_json::from_str(&text)
        .with_context(|| format!("{} is no list of services", path.display()))?;
    if services.is_empty() {
        bail!("{} names no service", path.display());
    }
    Ok(services)
}

/// What a container gives everybody in it.
const COMMON: [&str; 4] = ["HOSTNAME", "HOME", "PATH", "TERM"];

/// The environment of service number `index`: that of its image, and what the container has for it as
/// `CTLMGR_<index>_<NAME>`. What the container has for all is that of the other's image, too, and stays out.
pub fn environment(
    index: usize,
    service: &Service,
    container: impl Iterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let mine = format!("CTLMGR_{index}_");
    let mut env = service.env.clone();
    for (name, value) in container {
        if let Some(name) = name.strip_prefix(&mine) {
            env.insert(name.to_owned(), value);
        } else if COMMON.contains(&name.as_str()) {
            env.entry(name).or_insert(value);
        }
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(env: &[(&str, &str)]) -> Service {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Service {
            name: "web".to_owned(),
            argv: vec!["/web".to_owned()],
            env: env.iter().map(own).collect(),
            dir: String::new(),
            stop: String::new(),
        }
    }

    #[test]
    fn each_gets_its_own_environment() {
        let container = [
            ("HOSTNAME", "c1"),
            ("PATH", "/usr/bin"),
            ("OF_THE_OTHER_IMAGE", "1"),
            ("CTLMGR_0_PORT", "80"),
            ("CTLMGR_1_PORT", "81"),
        ];
        let container = || container.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let env = environment(1, &service(&[("PATH", "/opt"), ("PORT", "1")]), container());
        let found: Vec<_> = env.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(found, ["HOSTNAME=c1", "PATH=/opt", "PORT=81"]);
    }

    #[test]
    fn signals_are_named_as_docker_does() {
        let mut web = service(&[]);
        assert_eq!(web.stop_signal(), Signal::SIGTERM);
        web.stop = "SIGQUIT".to_owned();
        assert_eq!(web.stop_signal(), Signal::SIGQUIT);
    }
}
