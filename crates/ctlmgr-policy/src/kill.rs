//! Stopping a workload: the last rung, for nobody unless the operator named its class.
//!
//! # Problem
//! When nothing fits any more, somebody goes: better the one whose owner agreed to it, in good
//! order and with a reason, than whom the kernel's OOM killer finds.
//!
//! # Approach
//! First it is asked: a little is reclaimed from it and a memory.high just above its use set, so that
//! its next allocations and faults stall ([`crate::throttle`]). That shows in its own
//! `memory.pressure`, which an application with a memory pressure handler (systemd: memory pressure
//! protocol) listens to; reclaim alone would not (seen in the live guest). If it is dire still after [`WARNING`], it is stopped as `docker stop` or `systemctl stop` would,
//! with the grace of the settings.
//!
//! # Terms
//! *Dire*, *suffering*: [`crate::scene`].
//!
//! # Algorithm
//! Dire for [`PATIENCE`] without a break, a heavier workload suffers (or, once somebody was asked, is short
//! still; where some miss so much that memory is used up, one of them), nobody was stopped within
//! [`APART`]: of the named classes' members that hold at least [`LEAST`] the lightest, then the one
//! furthest above its share, then by name. The reason names the victim and whom else it could
//! have been.
//!
//! # Properties
//! Nobody outside the named classes, and nobody spared; nobody as heavy as who suffers; nobody who was not asked
//! [`WARNING`] before; nobody for what a slice has no room for, unless it lies there; one at a time.

use std::cmp::Reverse;

use ctlmgr_model::{
    Action, Bytes, Millis, Percent, Reason, Rung, Source, Step, Stoppable, Telling, Weight,
    WorkloadName,
};

use crate::keeping::Keeping;
use crate::scene::Scene;
use crate::used_up::{self, LEAST};

/// Direness must last this long before anybody is asked.
const PATIENCE: Millis = Millis(20_000);
/// From being asked to being stopped.
const WARNING: Millis = Millis(10_000);
/// Between two stops.
const APART: Millis = Millis(60_000);
/// What is taken from who is asked, in per cent of what it holds.
const ASKED: Percent = Percent(5);
/// So many others are named.
const NAMED: usize = 3;

/// The request or the stop that is due, if any.
pub(crate) fn last_resort(scene: &Scene<'_, '_>) -> Option<Step> {
    let at = scene.snapshot.at;
    let was_just_used = scene.state.stopped_at.is_some_and(|t| at.since(t) < APART);
    if was_just_used || scene.dire_for().is_none_or(|t| t < PATIENCE) {
        return None;
    }
    let (victim, mut candidates) = victims(scene).into_iter().find_map(|victim| {
        let can = |k| Some((k, target(scene, victim, k)?));
        let candidates: Vec<_> = scene.all.iter().filter_map(can).collect();
        (!candidates.is_empty()).then_some((victim, candidates))
    })?;
    // Whoever was asked stays the one: an order that changes meanwhile must not ask round and round.
    let is_asked = |k: &Keeping<'_, '_>| scene.state.asked.is_some_and(|(id, _)| id == k.id());
    candidates.sort_by_key(|(k, _)| (!is_asked(k), order(k)));
    let others = candidates.iter().skip(1).map(|(k, _)| *k);
    let (chosen, target) = candidates.first()?;
    let reason = reason(&plight(scene), victim, chosen, others);
    let asked = scene.state.asked.filter(|_| is_asked(chosen));
    match asked {
        None => Some(ask(scene, chosen, &reason)),
        Some((_, since)) if at.since(since) < WARNING => None,
        Some(_) => Some(stop(scene, chosen, target.clone(), reason)),
    }
}

/// For whose sake somebody may have to go, the heaviest first.
fn victims<'a, 's>(scene: &Scene<'a, 's>) -> Vec<&'s Keeping<'a, 's>> {
    let mut victims = scene.suffering();
    let misses =
        |k: &&Keeping<'_, '_>| used_up::missed(scene.state, k.party, k.share) > Bytes::ZERO;
    // Where memory is used up because of what some miss, it is for them.
    if scene.standstill().is_none() && victims.iter().any(misses) {
        victims.retain(misses);
    }
    // Once somebody was asked, it is enough that another is short still.
    let still = || scene.state.asked.and_then(|_| scene.bereft());
    if victims.is_empty() { still().into_iter().collect() } else { victims }
}

/// What is dire, for people.
fn plight(scene: &Scene<'_, '_>) -> String {
    let missed = scene.all.iter().map(|k| used_up::missed(scene.state, k.party, k.share));
    match (scene.standstill(), missed.sum()) {
        (Some(full), _) => {
            format!("for want of memory everything stands still {full:.0} % of the time")
        }
        (None, Bytes::ZERO) => "memory is used up".to_owned(),
        (None, missed) => format!("memory is used up, {missed} that are due are missing,"),
    }
}

/// Lightest first, then by what is above the share.
fn order(keeping: &Keeping<'_, '_>) -> (Weight, Reverse<Bytes>, WorkloadName) {
    let party = keeping.party;
    (party.entitlement.weight, Reverse(keeping.for_limits().excess()), party.name.clone())
}

/// How to stop it; `None` if it must not be.
fn target(
    scene: &Scene<'_, '_>,
    victim: &Keeping<'_, '_>,
    keeping: &Keeping<'_, '_>,
) -> Option<Stoppable> {
    let party = keeping.party;
    let class = party.entitlement.class.as_ref()?;
    let is_lighter = party.entitlement.weight < victim.party.entitlement.weight;
    let may = scene.settings.kill.contains(class) && is_lighter;
    // What its slice has no room for nobody outside can give.
    let lacks = victim.share - victim.party.group.memory.current;
    let all: Vec<_> = scene.all.iter().map(|k| k.party.group).collect();
    let full = used_up::without_room(scene.slices, &all, victim.party.group, lacks);
    let helps = full.iter().all(|slice| slice.holds(&party.group.path));
    // Who stands still can neither react nor end in good order.
    let is_able = !party.group.activity.is_to_freeze && !scene.is_spared(party);
    if !may || !helps || !is_able || party.group.memory.current < LEAST {
        return None;
    }
    match &party.workload?.source {
        // Who was signalled is on its way out already, and one without a name dockerd does not know.
        Source::Container(facts) if facts.was_signalled || facts.name.is_none() => None,
        Source::Container(facts) => Some(Stoppable::Container(facts.id.clone())),
        Source::Unit(unit) => Some(Stoppable::Unit(unit.clone())),
    }
}

fn reason<'a: 's, 's>(
    plight: &str,
    victim: &Keeping<'_, '_>,
    chosen: &Keeping<'_, '_>,
    others: impl Iterator<Item = &'s Keeping<'a, 's>>,
) -> String {
    let describe = |k: &Keeping<'_, '_>| {
        let (party, held) = (k.party, k.party.group.memory.current);
        format!("{} (weight {}, holds {held})", party.name, party.entitlement.weight)
    };
    let named: Vec<String> = others.take(NAMED).map(describe).collect();
    let alternatives =
        if named.is_empty() { "nobody else may be".to_owned() } else { named.join(", ") };
    let class = chosen.party.entitlement.class.as_deref().unwrap_or("?");
    format!(
        "{plight} and {} goes short: {} is the least of class {class}, which may be \
         stopped; instead of it: {alternatives}",
        describe(victim),
        describe(chosen)
    )
}

/// Its own memory pressure is the notification.
fn ask(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>, reason: &str) -> Step {
    let chunk = scene.settings.reclaim_chunk;
    let amount = keeping.party.group.memory.current.scaled(ASKED).page_floor();
    let reason = format!("asked by its memory pressure to give up memory: {reason}");
    step(keeping, Action::Reclaim { amount, chunk, only_cache: false }, reason)
}

fn stop(
    scene: &Scene<'_, '_>,
    keeping: &Keeping<'_, '_>,
    target: Stoppable,
    reason: String,
) -> Step {
    step(keeping, Action::Stop { target, grace: scene.settings.kill_grace }, reason)
}

fn step(keeping: &Keeping<'_, '_>, action: Action, reason: String) -> Step {
    let group = keeping.party.group;
    Step {
        path: group.path.clone(),
        id: group.id,
        action,
        rung: Rung::Kill,
        reason: Reason(reason),
        telling: Telling::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Tension;
    use crate::state::State;
    use crate::testing;
    use ctlmgr_model::{CapacityAccount, CgroupPath, MemorySettings, SliceAccount};

    #[test]
    fn nobody_goes_for_what_a_slice_has_no_room_for_unless_it_lies_there() {
        let mib = Bytes::mib;
        let path = CgroupPath::new;
        let is_asked = |batch_in: &str, most| {
            let web = testing::container("web", 1, mib(300), None);
            let mut batch = testing::container("batch", 2, mib(300), None);
            batch.group.path = path(&format!("{batch_in}/batch.scope"));
            let snapshot = testing::host(mib(1000), vec![web.clone(), batch.clone()], Vec::new());
            let kill = vec!["idle".to_owned()];
            let settings = MemorySettings { kill, ..MemorySettings::default() };
            let (mut victim, mut other) =
                (testing::party(&web, None, 400), testing::party(&batch, None, 5));
            victim.estimate.refaults_per_sec = 1000;
            other.entitlement.class = Some("idle".to_owned());
            let [total, host, headroom, capacity, asked] = [1000, 100, 100, 800, 900].map(mib);
            let account = CapacityAccount { total, host, headroom, capacity, demand: asked };
            let tension = Tension { dire_since: Some(Millis(0)), ..Tension::default() };
            let state = State { tension, ..State::default() };
            let snapshot = ctlmgr_model::Snapshot { at: Millis(60_000), ..snapshot };
            let keep = |party, share| Keeping {
                party,
                share,
                due: share,
                lift_pct: 100,
                room: Bytes::ZERO,
            };
            let all = [keep(&victim, mib(500)), keep(&other, mib(100))];
            let (capacity, demand) = (mib(600), mib(900));
            let slice = SliceAccount { path: path("a.slice"), most, capacity, demand };
            let scene = Scene {
                settings: &settings,
                account: &account,
                state: &state,
                snapshot: &snapshot,
                all: &all,
                slices: &[slice],
            };
            last_resort(&scene).is_some()
        };
        assert!(is_asked("b.slice", mib(500)), "there is room in the slice for all of the share");
        assert!(!is_asked("b.slice", mib(499)), "it would not help");
        assert!(is_asked("a.slice", mib(499)));
    }
}
