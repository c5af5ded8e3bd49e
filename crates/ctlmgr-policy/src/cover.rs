//! Protection of ancestors.
//!
//! # Problem
//! Protection below an uncovered ancestor does nothing: the kernel scales what children claim to
//! what their parent has, and a parent with zero passes on zero (facts: Docker in system.slice;
//! kernel `effective_protection()` in mm/page_counter.c).
//!
//! # Algorithm
//! For every ancestor: needed = prior + Σ protection of the managed workloads, and units, below it. Raise it
//! to needed plus slack when it is below; lower it when it is far above. `prior` is what others
//! had set, or what units of others claim below if that is more, and what is too small to be looked at ([`crate::units`]): it is theirs and stays on top. An ancestor with nothing below it needs no cover.
//!
//! # Properties
//! After the plan every ancestor is at least the sum of what ctlmgr protects below it; an administrator's
//! value is never lowered.

use ctlmgr_model::{Bytes, CgroupPath, Group, Knob, Percent, Snapshot};

use crate::state::State;

/// Slack of a small need is one part in so many, or [`LEAST`]: what a slice has beyond that protects those below as well.
const SMALL: u64 = 8;
const LEAST: Bytes = Bytes::mib(1);

/// What a covering ancestor should hold, or `None` where it is well as it is.
pub(crate) fn target(observed: Bytes, prior: Bytes, below: Bytes, step: Bytes) -> Option<Bytes> {
    let needed = prior + below;
    let slack = needed.scaled(Percent(2)).max(step.min(Bytes(needed.0 / SMALL))).max(LEAST);
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

/// What units that are not ours claim of an ancestor's memory.low, as far as they can use it: the kernel divides what
/// the ancestor has among all that claim of it. Where a slice between the two is not covered the claim does
/// not reach it.
pub(crate) fn beside(ancestor: &Group, state: &State, snapshot: &Snapshot) -> Bytes {
    let is_covered = |path: CgroupPath| snapshot.slices().any(|a| a.path == path);
    let reaches = |g: &&Group| {
        let mut between = g.path.ancestors().take_while(|path| *path != ancestor.path);
        between.all(is_covered)
    };
    let claims = snapshot.bystanders.iter().filter(reaches);
    // What is ours is among what is below.
    let theirs = |g: &Group| state.prior(g, Knob::MemoryLow, g.memory.low);
    below(ancestor, claims.map(|g| (g, theirs(g).min(g.memory.current))))
}
