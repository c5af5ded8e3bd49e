//! Throttling: memory.high on those above their share, where early reclaim does not suffice.
//!
//! # Problem
//! Who allocates faster than one reclaim per second can take back drives the host into global
//! reclaim, and that hits everybody.
//!
//! # Approach
//! While the host stalls and somebody who is below its share suffers, whoever is far above its own
//! gets a memory.high: at first just above what it holds, so that growth slows down at once, then
//! stepped down as it shrinks, never below its share and a margin. It is never set below present
//! use: the kernel would reclaim the difference within the write, in PID 1 (facts §3.2).
//!
//! # Terms
//! *Ceiling*: share + the larger of 64 MiB and 10 %. *Tense*, *suffering*: [`crate::scene`].
//!
//! # Algorithm
//! Enter: tense, above the ceiling, and somebody suffers. Stay: unless it holds clearly less than
//! its share, until the host has been calm for a while. The value is the lower of the present one
//! and use + slack, at least the ceiling; if everything in the throttled one stands still (PSI
//! `full` ≥ [`GUARD`]), it is raised a step instead, as far as that can be our doing.
//!
//! # Properties
//! Never below the ceiling nor below present use; never above what was there before; nothing
//! without PSI or with nobody suffering; after a rest of calm nothing is left.

use ctlmgr_model::{Bytes, Group, Knob, Percent};

use crate::scene::{Keeping, Scene};

/// Standstill (`full`, 10 s) of the throttled one at which it is let off a little, in per cent.
const GUARD: f32 = 20.0;
/// Least room above the share, and least step.
const ROOM: Bytes = Bytes::mib(64);
const STEP: Bytes = Bytes::mib(16);
const ROOM_PART: Percent = Percent(10);
/// A group and the memory.high that it should have.
pub(crate) struct Throttled<'a> {
    pub group: &'a Group,
    pub high: Bytes,
    pub why: String,
}

/// Everybody who should have a memory.high from us now.
pub(crate) fn throttle<'a>(scene: &Scene<'a, '_>) -> Vec<Throttled<'a>> {
    if !scene.settings.throttle {
        return Vec::new();
    }
    let is_tense = scene.tense_for().is_some();
    let victim = scene.victim();
    scene
        .all
        .iter()
        .filter_map(|keeping| {
            let group = keeping.party.group;
            let present = scene.state.ours(group, Knob::MemoryHigh);
            let may_enter = is_tense && group.memory.current > ceiling(keeping.share);
            let high = match (present, victim) {
                (Some(present), _) if scene.is_recently_uneasy() && is_above(keeping) => {
                    next(keeping, present)
                }
                (None, Some(_)) if may_enter => fresh(keeping),
                _ => return None,
            };
            let who = victim.map_or("others".to_owned(), |v| v.party.name.0.clone());
            let why = format!(
                "holds {} of a share of {} while {who} goes short: growth is slowed down",
                group.memory.current, keeping.share
            );
            Some(Throttled { group, high: high.page_ceil(), why })
        })
        .collect()
}

fn ceiling(share: Bytes) -> Bytes {
    share + share.scaled(ROOM_PART).max(ROOM)
}

/// Just above what it holds: it may breathe, not grow.
fn above_use(group: &Group) -> Bytes {
    group.memory.current + group.memory.current.scaled(Percent(2)).max(STEP)
}

fn fresh(keeping: &Keeping<'_, '_>) -> Bytes {
    above_use(keeping.party.group).max(ceiling(keeping.share))
}

/// Reclaim aims at the share itself, so letting go takes a step below it.
fn is_above(keeping: &Keeping<'_, '_>) -> bool {
    keeping.party.group.memory.current + STEP > keeping.share
}

fn next(keeping: &Keeping<'_, '_>, present: Bytes) -> Bytes {
    let group = keeping.party.group;
    let near = above_use(group).max(ceiling(keeping.share));
    let full = group.memory.pressure.map(|p| p.full.avg10_pct);
    let next = match full {
        // Further away than this it is not ours that it runs into.
        Some(full) if full >= GUARD => {
            (present + present.scaled(Percent(5)).max(STEP)).min(near + ROOM)
        }
        _ => present.min(near),
    };
    next.max(ceiling(keeping.share)).max(group.memory.current)
}
