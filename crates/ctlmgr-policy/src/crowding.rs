//! Page cache that crowds out that of others.
//!
//! # Problem
//! A scan or a backup fills memory with page cache that nobody asked for. That is no demand, so nothing is contended; but
//! global reclaim starts, and under MGLRU takes from everybody, protected or not.
//!
//! # Terms
//! *Crowd*: page cache that one holds beyond what it needs and was promised. *Robbed*: protected pages were taken from it, or it misses
//! some. What follows from it is in [`crate::scene`] (swept), [`crate::reclaim`] and [`crate::throttle`].
//!
//! # Properties
//! Nobody is robbed who has a crowd of its own to give; who neither reads nor writes fills nothing.

use ctlmgr_model::{Bytes, Knob, VerdictKind};

use crate::scene::is_at_work;
use crate::state::State;
use crate::verdict::Party;

/// Page cache that somebody holds beyond what it needs and was promised, where all fits.
pub(crate) fn crowd(party: &Party<'_>) -> Bytes {
    let due = party.estimate.demand.max(party.entitlement.promise.unwrap_or_default());
    (party.group.memory.current - due).min(party.group.memory.page_cache())
}

/// Whether somebody whom we keep from crowding out others reads from disks, or writes to them.
pub(crate) fn is_filling(state: &State, parties: &[Party<'_>]) -> bool {
    let is_held = |p: &&Party<'_>| state.ours(p.group, Knob::MemoryHigh).is_some();
    let mut held = parties.iter().filter(is_held);
    held.any(|p| crowd(p) >= LITTLE && is_at_work(&p.estimate))
}

/// Less than this crowds out nobody.
const LITTLE: Bytes = Bytes::mib(4);

/// Who crowds out others, for the operator.
pub(crate) fn words(parties: &[Party<'_>]) -> Option<String> {
    let worst = parties.iter().filter(|p| p.entitlement.managed).max_by_key(|p| crowd(p))?;
    let (name, crowd) = (&worst.name, crowd(worst));
    (crowd >= LITTLE).then(|| {
        format!("the kernel takes memory from others for page cache, of which {name} holds {crowd} beyond its need")
    })
}

/// Whether a workload misses what was taken from it, which has no page cache of its own to give.
pub(crate) fn is_robbed(parties: &[Party<'_>]) -> bool {
    let is_meant = |p: &&Party<'_>| p.kind == VerdictKind::Workload && p.entitlement.managed;
    parties.iter().filter(is_meant).any(|p| p.estimate.is_robbed && crowd(p) < LITTLE)
}
