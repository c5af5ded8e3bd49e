//! Loading of programs, and what libbpf says of it.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, PrintLevel};

/// Why nothing is traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// libbpf or the kernel refused.
    #[error("failed to {what} the eBPF programs{said}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The last that libbpf or the verifier said.
        said: String,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// The place to attach to cannot be opened.
    #[error("failed to open {path}")]
    Open {
        /// Which one.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The programs and this code were not built together.
    #[error("the eBPF object has no map `{0}` of the expected form")]
    NoMap(&'static str),
}

/// A refusal, with what was said.
pub(crate) fn refused(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> TraceError {
    move |source| TraceError::Refused { what, said: last_said(), source }
}

/// Loads an object into the kernel.
pub(crate) fn load(bytes: &[u8]) -> Result<Object, TraceError> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, listen)));
    let open = ObjectBuilder::default().open_memory(bytes).map_err(refused("read"))?;
    open.load().map_err(refused("load"))
}

/// A map of an object, if its values have this many bytes.
pub(crate) fn map(
    object: &Object,
    name: &'static str,
    value_bytes: usize,
) -> Result<MapHandle, TraceError> {
    let found = object.maps().find(|map| map.name() == name);
    let found = found.filter(|map| map.value_size() as usize == value_bytes);
    MapHandle::try_from(&found.ok_or(TraceError::NoMap(name))?).map_err(refused("open the map of"))
}

/// What libbpf warned of. A fallback is no cause for alarm, so it is kept for the error.
static SAID: Mutex<String> = Mutex::new(String::new());
/// Of a verifier's log the end says why.
const SAID_LINES: usize = 4;

#[expect(clippy::needless_pass_by_value, reason = "libbpf hands it over so")]
fn listen(_: PrintLevel, text: String) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
}

fn last_said() -> String {
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(SAID_LINES)..];
    if last.is_empty() { String::new() } else { format!(" ({})", last.join("; ")) }
}
