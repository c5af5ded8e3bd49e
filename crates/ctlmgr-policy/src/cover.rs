//! Protection of ancestors.
//!
//! # Problem
//! Protection below an uncovered ancestor does nothing: the kernel scales what children claim to
//! what their parent has, and a parent with zero passes on zero (facts: Docker in system.slice;
//! kernel `effective_protection()` in mm/page_counter.c).
//!
//! # Algorithm
//! For every ancestor: needed = prior + Σ protection of the managed workloads below it. Raise it
//! to needed plus slack when it is below; lower it when it is far above. `prior` is what others
//! had set, or what units of others claim below if that is more: it is theirs and stays on top. An ancestor with nothing below it needs no cover.
//!
//! # Properties
//! After the plan every ancestor is at least the sum of its managed workloads; an administrator's
//! value is never lowered.

use ctlmgr_model::{Bytes, Group, Percent};

/// What a covering ancestor should hold, or `None` where it is well as it is.
pub(crate) fn target(observed: Bytes, prior: Bytes, below: Bytes, step: Bytes) -> Option<Bytes> {
    let needed = prior + below;
    let slack = needed.scaled(Percent(2)).max(step);
    let roomy = (needed + slack).page_ceil();
    let is_short = observed < needed;
    let is_loose = observed > roomy + slack + slack;
    (is_short || is_loose).then_some(roomy)
}

/// Sum of `amount` over the groups below `ancestor`.
pub(crate) fn below<'a>(
    ancestor: &Group,
    amounts: impl Iterator<Item = (&'a Group, Bytes)>,
) -> Bytes {
    amounts.filter(|(g, _)| g.path.is_within(&ancestor.path)).map(|(_, b)| b).sum()
}
