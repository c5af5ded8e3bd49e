//! Input of the commands that plan: a file or standard input, as JSON.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use serde::de::DeserializeOwned;

pub(crate) fn read(file: &Path) -> Result<String, anyhow::Error> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("failed to read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
}

/// Understands a text, or names the field that it does not.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, anyhow::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let input =
        serde_path_to_error::deserialize(&mut reader).context("failed to understand the input")?;
    reader.end().context("failed to understand what follows the input")?;
    Ok(input)
}
