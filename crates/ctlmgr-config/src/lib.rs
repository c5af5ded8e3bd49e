//! Configuration in three stages: fragments (text, file by file) → merged → [`Settings`].
//!
//! Fragments are `*.toml` in three directories. Files are read in the order of their names; a
//! later one wins key by key. A file in `/etc` replaces one of the same name in `/usr/lib`, and
//! one in `/run` replaces both. Every error names file, line and key; all errors are reported
//! together; nothing is applied unless all is well.

mod field;
mod fragment;
mod keys;
mod rules;
mod to_toml;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ctlmgr_model::{Bytes, Settings};

pub use keys::{KEYS, Key};
pub use to_toml::to_toml;

/// Directories of fragments below the root, weakest first.
pub const DIRECTORIES: [&str; 3] =
    ["usr/lib/ctlmgr/config.d", "etc/ctlmgr/config.d", "run/ctlmgr/config.d"];

/// One thing wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Which file.
    pub file: String,
    /// Line, from 1; `None` if it concerns the whole file.
    pub line: Option<usize>,
    /// Key in dotted form; empty if it concerns no key.
    pub key: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// All that is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub Vec<Fault>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Fault::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

/// A fragment: file name as shown to people, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// Path as shown in messages.
    pub file: String,
    /// Content; not necessarily text.
    pub bytes: Vec<u8>,
}

/// Reads and validates the configuration below `root`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(root: &Path) -> Result<Settings, ConfigError> {
    parse(&fragments(root)?)
}

/// Validates fragments that are already read, weakest first.
///
/// # Errors
/// Everything that is wrong with them.
pub fn parse(fragments: &[Fragment]) -> Result<Settings, ConfigError> {
    let mut merged = fragment::Merged::default();
    for fragment in fragments {
        merged.take(fragment);
    }
    merged.finish()
}

/// Rules that ask for more memory than a machine of this size has. They are no reason not to run: machines shrink, and
/// whoever has such a promise has all that is there.
pub fn beyond(settings: &Settings, total: Bytes) -> Vec<Fault> {
    let amounts = settings.rules.iter().flat_map(|rule| {
        let (promise, floor) = (rule.effect.promise, rule.effect.floor);
        [("rule.promise", promise), ("rule.floor", floor)].map(|(key, asked)| (rule, key, asked))
    });
    let too_large = amounts.filter_map(|(rule, key, asked)| {
        let asked = asked.filter(|asked| *asked > total)?;
        Some(Fault {
            file: rule.origin.file.clone(),
            line: Some(rule.origin.line),
            key: key.to_owned(),
            message: format!("{asked} is more than this machine has ({total})"),
        })
    });
    too_large.collect()
}

/// The fragments below `root`, in the order in which they apply.
///
/// # Errors
/// A directory or file that is there but cannot be read.
pub fn fragments(root: &Path) -> Result<Vec<Fragment>, ConfigError> {
    let mut by_name: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
    for directory in DIRECTORIES {
        for path in list(&root.join(directory))? {
            if let Some(name) = path.file_name() {
                by_name.insert(name.to_owned(), path);
            }
        }
    }
    by_name
        .into_values()
        .map(|path| {
            let bytes = std::fs::read(&path).map_err(|e| unreadable(&path, &e))?;
            Ok(Fragment { file: path.display().to_string(), bytes })
        })
        .collect()
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(unreadable(directory, &e)),
    };
    let paths = entries.filter_map(Result::ok).map(|e| e.path());
    Ok(paths.filter(|p| p.extension().is_some_and(|e| e == "toml")).collect())
}

fn unreadable(path: &Path, error: &std::io::Error) -> ConfigError {
    ConfigError(vec![Fault {
        file: path.display().to_string(),
        line: None,
        key: String::new(),
        message: format!("failed to read: {error}"),
    }])
}
