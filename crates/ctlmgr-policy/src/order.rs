//! The order of steps: first let go, take page cache that crowds out others, and limit, then narrow, bottom-up; then widen, top-down; then reclaim.
//!
//! So a child's protection never exceeds its ancestors' in between, the sum of protection never
//! exceeds the larger of before and after, and reclaim runs with the new protection in place. Where a keeper of knobs is slow
//! what is set of protection comes before what is let go: a value is written before its keeper is told.

use ctlmgr_model::{Action, Knob, Step};

/// Sorts steps into the order in which they are safe.
pub(crate) fn order(mut steps: Vec<Step>) -> Vec<Step> {
    steps.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.path.cmp(&b.path)));
    steps
}

/// Phase, then depth (deepest first when narrowing).
pub(crate) fn key(step: &Step) -> (u8, i64) {
    let depth = i64::try_from(step.path.ancestors().count()).unwrap_or(i64::MAX);
    match &step.action {
        // Who is let go is let go first, and who is frozen needs no manager for that.
        Action::Release { knob: Knob::CgroupFreeze, .. } => (0, i64::MIN),
        // The manager writes memory.high along with every other value of a unit, so it must not lie below use by then.
        Action::Release { knob: Knob::MemoryHigh, .. } => (0, i64::MIN + 1),
        // The limit that follows counts on it; of a probe the place does not matter.
        Action::Reclaim { only_cache: true, .. } => (0, i64::MIN + 2),
        Action::Set { knob: Knob::MemoryHigh, .. } => (0, i64::MIN + 3),
        Action::Release { .. } | Action::Unpin { .. } => (0, -depth),
        Action::Set { from, to, .. } if to < from => (0, -depth),
        Action::Set { .. } | Action::Pin { .. } => (1, depth),
        Action::Reclaim { .. } => (2, depth),
        Action::Stop { .. } => (3, depth),
    }
}
