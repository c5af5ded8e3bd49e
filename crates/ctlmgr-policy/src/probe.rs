//! Probing: a little is taken from those that seem to need it all, to learn whether they do.
//!
//! # Problem
//! The kernel does not say which anonymous pages are warm. Who once filled memory and never looks
//! at it again seems to need all of it, and keeps others short.
//!
//! # Approach
//! That of Senpai in TMO (Weiner et al., ASPLOS 2022, §3.3): reclaim a small part, and listen to
//! refaults and to the workload's own stall. Here only while memory is contended, because
//! otherwise nobody needs what is found. What is not missed stays in swap, and demand falls by it.
//!
//! # Terms
//! *Missed*: half of what was taken came back, or the workload stalls for at least [`LIMIT`].
//!
//! # Algorithm
//! A probe every [`PERIOD`], of [`LEAST`] of what is held and can be taken, one workload at a time; twice as much each
//! time that nothing is missed, up to [`MOST`]. When it is missed: nothing, for twice as long as the last time, up to
//! [`REST`], and [`LEAST`] again.
//!
//! # Properties
//! Nothing without contention, without PSI, from bystanders, or from who is bound by anything but
//! its demand, frozen or held back; never below a floor; a set that is all warm loses at most
//! [`LEAST`] of itself between two rests.

use ctlmgr_model::{
    Action, Bound, Bytes, Millis, Reason, Rung, Step, Telling, Verdict, VerdictKind,
};
use serde::{Deserialize, Serialize};

use crate::keeping::Keeping;
use crate::scene::Scene;

/// From one probe to the next (TMO: 6 s).
const PERIOD: Millis = Millis(6_000);
/// Longest pause after a probe that was missed.
const REST: Millis = Millis(600_000);
/// Smallest and largest probe, in millionths of what is held and can be taken.
const LEAST: u64 = 5_000;
const MOST: u64 = 40_000;
/// A stall of the workload from which on nothing is taken, in millionths of its time.
const LIMIT: u32 = 10_000;
/// Who holds less that can be taken has nothing to find.
const SMALL: Bytes = Bytes::mib(32);

/// What is remembered of the last probe of one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    pub(crate) at: Option<Millis>,
    pause: Millis,
    part_ppm: u64,
    /// What it got, once that is known.
    pub(crate) taken: Bytes,
    /// Its refaults at that time.
    refaults: u64,
}

impl Default for Probe {
    fn default() -> Self {
        Probe { at: None, pause: PERIOD, part_ppm: LEAST, taken: Bytes::ZERO, refaults: 0 }
    }
}

/// The next probe of one workload, and its step if something is to be taken.
pub(crate) fn probe(
    scene: &Scene<'_, '_>,
    keeping: &Keeping<'_, '_>,
    verdict: &Verdict,
) -> Option<(Probe, Option<Step>)> {
    let (estimate, at) = (&keeping.party.estimate, scene.snapshot.at);
    let last = estimate.probe;
    let stall = estimate.stall.ppm.filter(|_| may_be_probed(scene, keeping, verdict))?;
    if last.at.is_some_and(|before| at.since(before) < last.pause) {
        return None;
    }
    let came_back =
        Bytes((estimate.refaults - last.refaults.min(estimate.refaults)) * Bytes::PAGE.0);
    let was_missed = last.taken > Bytes::ZERO && came_back.0 > last.taken.0 / 2;
    let next = Probe { at: Some(at), refaults: estimate.refaults, ..last };
    if was_missed || stall >= LIMIT {
        let pause = Millis((last.pause.0 * 2).min(REST.0));
        return Some((Probe { pause, part_ppm: LEAST, taken: Bytes::ZERO, ..next }, None));
    }
    let part_ppm = if last.taken > Bytes::ZERO { (last.part_ppm * 2).min(MOST) } else { LEAST };
    let (spare, takeable) = (verdict.held - verdict.floor, scene.takeable(keeping.party.group));
    let amount = part(takeable, part_ppm).min(spare).page_floor();
    // What was not taken must not pass for not missed.
    let next = Probe { pause: PERIOD, part_ppm, taken: Bytes::ZERO, ..next };
    Some((next, (amount > Bytes::ZERO).then(|| step(scene, keeping, amount))))
}

fn part(of: Bytes, ppm: u64) -> Bytes {
    let part = u128::from(of.0) * u128::from(ppm) / 1_000_000;
    Bytes(u64::try_from(part).unwrap_or(u64::MAX))
}

fn may_be_probed(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>, verdict: &Verdict) -> bool {
    let party = keeping.party;
    scene.settings.probe
        && scene.may_swap()
        && party.kind == VerdictKind::Workload
        && verdict.bound == Bound::Demand
        && scene.takeable(party.group) >= SMALL
        && !party.group.activity.is_to_freeze
}

fn step(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>, amount: Bytes) -> Step {
    let group = keeping.party.group;
    let reason = format!("probes whether {amount} of the {} held are missed", group.memory.current);
    Step {
        path: group.path.clone(),
        id: group.id,
        action: Action::Reclaim { amount, chunk: scene.settings.reclaim_chunk, only_cache: false },
        rung: Rung::Probe,
        reason: Reason(reason),
        telling: Telling::Now,
    }
}
