//! Freezing: processes of opted-in classes stand still while heavier ones suffer.
//!
//! # Problem
//! An idle-class workload that keeps touching a set which does not fit reads and writes swap all
//! the time. Taking more from it makes that worse.
//!
//! # Approach
//! Where the operator named its class (`memory.freeze`), and only after the rungs below had their
//! time, its processes are stopped by cgroup.freeze: its pages grow cold, and reclaim gets them for
//! nothing. A freeze is short, and followed by time to run: nobody starves, and a peer that waits
//! for an answer gets one.
//!
//! # Terms
//! *Tense*, *suffering*: [`crate::scene`]. *Restless*: refaulting, stalling, or above its share.
//!
//! # Algorithm
//! Enter: tense for [`PATIENCE`], a heavier workload suffers, this one is restless and has run for
//! [`AWAKE`] since its last thaw. One at a time, the lightest first, [`APART`] from the last. Stay:
//! until the host has been calm for a while, or for [`MOST`]; not when its user pauses or signals
//! it, because a stop must reach its processes; nor if it does not come to a stand within
//! [`SETTLE`].
//!
//! # Properties
//! Nothing outside the named classes, and only containers that dockerd knows; nothing without PSI,
//! without contention, or with nobody heavier suffering; never longer than [`MOST`], nor beyond a
//! restart; never who is paused, signalled, or about to be stopped.

use ctlmgr_model::{Action, Bytes, ContainerFacts, Group, Knob, Millis, Reason, Source, Step};

use crate::keeping::Keeping;
use crate::memory::read;
use crate::scene::Scene;
use crate::verdict::Party;

/// Tension must last this long.
const PATIENCE: Millis = Millis(10_000);
/// Between two freezes.
const APART: Millis = Millis(10_000);
/// Longest freeze.
const MOST: Millis = Millis(120_000);
/// Who does not stand still by then has tasks that the freezer cannot reach (uninterruptible sleep):
/// half frozen it helps nobody.
const SETTLE: Millis = Millis(10_000);
/// Least time to run between two freezes of one workload.
pub(crate) const AWAKE: Millis = Millis(60_000);

/// A group that should stand still.
pub(crate) struct Frozen<'a> {
    pub group: &'a Group,
    pub why: String,
}

/// Everybody who should stand still now; with `may_enter` one more than before at most.
pub(crate) fn freeze<'a>(scene: &Scene<'a, '_>, may_enter: bool) -> Vec<Frozen<'a>> {
    let may_be: Vec<_> = scene.all.iter().filter(|k| is_allowed(scene, k.party)).collect();
    let mut out: Vec<Frozen<'a>> = may_be
        .iter()
        .filter(|k| scene.is_recently_uneasy() && stays(scene, k.party.group))
        .map(|k| frozen(k, "until others had what is theirs"))
        .collect();
    if may_enter {
        out.extend(newcomer(scene, &may_be));
    }
    out
}

/// The next one to freeze.
fn newcomer<'a>(scene: &Scene<'a, '_>, may_be: &[&Keeping<'a, '_>]) -> Option<Frozen<'a>> {
    let victim = scene.victim()?;
    let is_too_soon = may_be.iter().any(|k| is_frozen_within(scene, k.party.group, APART));
    if is_too_soon || scene.tense_for().is_none_or(|t| t < PATIENCE) {
        return None;
    }
    let weight = |k: &Keeping<'_, '_>| k.party.entitlement.weight;
    let lightest = may_be
        .iter()
        .filter(|k| weight(k) < weight(victim) && is_restless(k) && has_run(scene, k.party.group))
        .min_by_key(|k| (weight(k), &k.party.name))?;
    Some(frozen(lightest, &format!("because {} goes short", victim.party.name)))
}

fn frozen<'a>(keeping: &Keeping<'a, '_>, cause: &str) -> Frozen<'a> {
    let class = keeping.party.entitlement.class.as_deref().unwrap_or("?");
    let why = format!("class {class} may be frozen, and stands still {cause}");
    Frozen { group: keeping.party.group, why }
}

/// In a named class, and its user wants nothing of it just now.
fn is_allowed(scene: &Scene<'_, '_>, party: &Party<'_>) -> bool {
    let class = party.entitlement.class.as_ref();
    // Only where it is known what its user wants: a stop must reach the processes.
    let is_left_alone =
        facts(party).is_some_and(|f| f.name.is_some() && !f.is_paused && !f.was_signalled);
    let is_named = class.is_some_and(|c| scene.settings.freeze.contains(c));
    is_left_alone && !is_asked(scene, party.group) && is_named
}

fn stays(scene: &Scene<'_, '_>, group: &Group) -> bool {
    let most = if group.activity.is_frozen { MOST } else { SETTLE };
    is_frozen_within(scene, group, most)
}

/// Whether we froze it, and not longer ago than this.
fn is_frozen_within(scene: &Scene<'_, '_>, group: &Group, most: Millis) -> bool {
    let since = scene.state.written_at(group, Knob::CgroupFreeze);
    scene.state.ours(group, Knob::CgroupFreeze) == Some(Knob::STILL)
        // Not one of an earlier run, whose age is not known.
        && since.is_some_and(|at| at > Millis(0) && scene.snapshot.at.since(at) < most)
        && group.activity.is_to_freeze
}

/// Says in the step that lets somebody run again why it does.
pub(crate) fn explain(scene: &Scene<'_, '_>, step: &mut Step) {
    let Action::Release { knob: Knob::CgroupFreeze, .. } = step.action else { return };
    if let Some(keeping) = scene.all.iter().find(|k| k.id() == step.id) {
        step.reason = Reason(over(scene, keeping.party));
    }
}

/// Why one that was frozen stands still no longer.
fn over(scene: &Scene<'_, '_>, party: &Party<'_>) -> String {
    let secs = |time: Millis| time.0 / 1000;
    let (group, facts) = (party.group, facts(party));
    let why = if facts.is_none_or(|f| f.name.is_none()) {
        "dockerd does not tell what its user wants of it"
    } else if facts.is_some_and(|f| f.is_paused || f.was_signalled) {
        "its user wants something of it"
    } else if is_asked(scene, group) {
        "it is asked to give up memory"
    } else if !is_allowed(scene, party) {
        "its class may not be frozen"
    } else if scene.state.was_overridden(group, Knob::CgroupFreeze, read(group, Knob::CgroupFreeze))
    {
        "somebody else let it run"
    } else if !group.activity.is_to_freeze {
        "to freeze it failed"
    } else if scene.state.written_at(group, Knob::CgroupFreeze) == Some(Millis(0)) {
        "it is not known since when it stands still"
    } else if stays(scene, group) {
        "others have had what is theirs"
    } else if group.activity.is_frozen {
        let (most, awake) = (secs(MOST), secs(AWAKE));
        return format!("it stood still for {most} s, the most, and runs for at least {awake} s");
    } else {
        let settle = secs(SETTLE);
        return format!(
            "it did not come to a stand within {settle} s: a task of it waits where it cannot be frozen"
        );
    };
    why.to_owned()
}

/// What dockerd knows, of a container.
fn facts<'a>(party: &Party<'a>) -> Option<&'a ContainerFacts> {
    match &party.workload?.source {
        Source::Container(facts) => Some(facts),
        Source::Unit(_) => None,
    }
}

fn is_asked(scene: &Scene<'_, '_>, group: &Group) -> bool {
    scene.state.asked.is_some_and(|(id, _)| id == group.id)
}

/// Whether it runs, and did so for a while.
fn has_run(scene: &Scene<'_, '_>, group: &Group) -> bool {
    let thawed = scene.state.thawed_at.get(&group.id);
    !group.activity.is_to_freeze && thawed.is_none_or(|at| scene.snapshot.at.since(*at) >= AWAKE)
}

fn is_restless(keeping: &Keeping<'_, '_>) -> bool {
    let estimate = &keeping.party.estimate;
    // What is locked cannot be taken of it while it stands still either.
    keeping.excess() > Bytes::ZERO
        || estimate.refaults_per_sec > 0
        || estimate.stall.ppm.is_some_and(|s| s > 0)
}
