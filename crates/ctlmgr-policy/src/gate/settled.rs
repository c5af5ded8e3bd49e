//! When a start is over.

use ctlmgr_model::{Millis, StartSettings};

/// What was seen of a start under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// How long it has been under way.
    pub lasted: Millis,
    /// Since when it moved little data, if it does.
    pub quiet_for: Option<Millis>,
    /// Whether its health check says that it is healthy.
    pub is_healthy: bool,
    /// Whether dockerd says that it has ended.
    pub has_ended: bool,
    /// For how long no process of it was to be seen, if it was looked for.
    pub absent_for: Option<Millis>,
}

/// A container that is not to be seen for so long has ended, or never started.
const ABSENT: Millis = Millis(10_000);

/// The container does not run any more.
pub const ENDED: &str = "ended";

/// It was let go, and dockerd did not start it.
pub const NOT_STARTED: &str = "it did not start";

/// Whether a start is over, and why.
pub fn is_settled(settings: &StartSettings, progress: &Progress) -> Option<&'static str> {
    match progress {
        p if p.is_healthy => Some("healthy"),
        p if p.has_ended => Some(ENDED),
        p if p.absent_for.is_some_and(|t| t >= ABSENT) => Some(ENDED),
        p if p.quiet_for.is_some_and(|t| t >= settings.settle) => Some("its disk use is down"),
        p if p.lasted >= settings.settle_at_most => Some("it has had its time"),
        _ => None,
    }
}

/// Whether a start that is over for this reason ([`is_settled`]) was a whole one. Only such say how long
/// one like it takes. `is_cut_off`: it failed, was told to end, or nobody knows.
pub fn is_whole(why: &str, is_cut_off: bool) -> bool {
    match why {
        "healthy" | "its disk use is down" => true,
        ENDED => !is_cut_off,
        _ => false,
    }
}
