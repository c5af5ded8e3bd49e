//! Protection of ancestors.
//!
//! # Problem
//! Protection below an uncovered ancestor does nothing: the kernel scales what children claim to
//! what their parent has, and a parent with zero passes on zero (facts: Docker in system.slice;
//! kernel `effective_protection()` in mm/page_counter.c).
//!
//! # Algorithm
//! For every ancestor: needed = prior + Σ protection of the managed workloads, and units, below it. Raise it
//! to needed plus slack when it is below; lower it when it is far above. Slack is a fiftieth, or the dead band of a write but no more than an eighth:
//! what a slice has beyond the need protects those below as well, which a small slice would be large for. `prior` is what others
//! had set, or what units of others claim below if that is more, and what is too small to be looked at ([`crate::units`]): it is theirs and stays on top. An ancestor with nothing below it needs no cover.
//!
//! # Properties
//! After the plan every ancestor is at least the sum of what ctlmgr protects below it, and no more than half more than that and 4 MiB; what was
//! written stays while the need falls by less than its slack; an administrator's value is never lowered.

use ctlmgr_model::{Action, Bytes, CgroupPath, Group, Knob, Percent, Snapshot, Step};

use crate::state::State;

/// Slack of a small need is no more than one part in so many, or [`LEAST`].
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

/// What a step leaves in its knob.
pub(crate) fn left_by(step: &Step) -> Bytes {
    match step.action {
        Action::Set { to, .. } => to,
        Action::Release { prior, .. } => prior,
        _ => Bytes::ZERO,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_need_is_covered_closely_and_what_was_written_stands_still(
            observed in 0u64..4_000_000, prior in 0u64..200_000, below in 0u64..2_000_000, less in 0u64..2_000
        ) {
            let [observed, prior, below] = [observed, prior, below].map(|kib| Bytes(kib << 10));
            let (needed, step) = (prior + below, Bytes::mib(8));
            let to = target(observed, prior, below, step).unwrap_or(observed);
            prop_assert!(to >= needed);
            prop_assert!(to <= needed + Bytes(needed.0 / 2) + Bytes::mib(4), "{needed} by {to}");
            if to != observed {
                // By up to a fiftieth, which is no more than any slack.
                let fallen = Bytes(below.0 - below.0.min(needed.0 / 50) * less / 2_000);
                prop_assert_eq!(target(to, prior, fallen, step), None);
            }
        }
    }
}
