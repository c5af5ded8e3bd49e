//! What fades: half of it is left after a half-life, half of that after another.

use ctlmgr_model::{Bytes, Millis};

/// The part, 0–1, that is left after `passed` of what fades by half per `half_life`.
#[expect(clippy::cast_precision_loss, reason = "milliseconds between readings are few")]
pub(crate) fn kept(passed: Millis, half_life: Millis) -> f64 {
    (-(passed.0 as f64) / half_life.0 as f64).exp2()
}

/// Moves `from` towards `to`, half the way per `half_life`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "amounts up to 2^53 are exact, and the result lies between two of them"
)]
pub(crate) fn toward(from: Bytes, to: Bytes, passed: Millis, half_life: Millis) -> Bytes {
    if half_life.0 == 0 {
        return to;
    }
    let value = to.0 as f64 + (from.0 as f64 - to.0 as f64) * kept(passed, half_life);
    Bytes(value as u64).clamp(from.min(to), from.max(to))
}
