//! Knobs that the host has once, outside the cgroup hierarchy.

use ctlmgr_host::{Host, HostError};
use ctlmgr_model::{Bytes, Outcome, Saved, Undone, Value};

/// Writes `saved.ours` to `file`, and reads it back.
pub(crate) fn set(host: &Host, file: &str, saved: &Saved) -> Result<Outcome, HostError> {
    if !host.write(file, &saved.ours.file_text())? {
        return Ok(Outcome::Vanished);
    }
    Ok(match present(host, file)? {
        None => Outcome::Vanished,
        Some(value) if value == saved.ours => Outcome::Done,
        Some(other) => Outcome::Overridden(other),
    })
}

/// Puts `saved.prior` back, unless somebody else has written `file` since.
pub(crate) fn put_back(host: &Host, file: &str, saved: &Saved) -> Result<Undone, HostError> {
    match present(host, file)? {
        None => return Ok(Undone::Vanished),
        Some(value) if value == saved.prior => return Ok(Undone::PutBack),
        Some(value) if !saved.is_ours(&value) => return Ok(Undone::LeftToOthers(value)),
        Some(_) => {}
    }
    Ok(match host.write(file, &saved.prior.file_text())? {
        true => Undone::PutBack,
        false => Undone::Vanished,
    })
}

/// What `file` holds: a mask in hexadecimal, or a plain number.
pub(crate) fn present(host: &Host, file: &str) -> Result<Option<Value>, HostError> {
    let Some(text) = host.read(file)? else { return Ok(None) };
    let number = match text.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.trim().parse(),
    };
    number.map(|n| Some(Bytes(n).into())).map_err(|_| HostError::malformed(host.path(file), &text))
}
