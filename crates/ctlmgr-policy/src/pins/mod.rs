//! Which containers to pin to which L3 domains, now: `decide(settings, state, reading) → (plan, state')`.
//!
//! # Problem
//! [`crate::placement`] assigns workloads to domains once. On a running host loads and traffic change all
//! the time, every move costs a cache, people have cpusets of their own, and a pin that is wrong starves.
//!
//! # Approach
//! Only those that talk to each other, or are asked to be together or alone, are pinned; the others run
//! wherever the kernel likes, and room is left for them. A new assignment is sought when something has
//! changed by more than noise. Traffic over the horizon is what a place is worth, the contents of a
//! last-level cache what a move costs, so a move must pay for itself (Rao et al., §7).
//!
//! # Terms
//! *Standing*: whether a container may be pinned, and why not ([`standing`]). *Aim*: the domains that each
//! is to be on ([`aim`]). *Saturated*: pinned, and using more than [`SATURATED`] of what it has.
//!
//! # Algorithm
//! Standings; if they, loads or traffic have changed, or a cool-down is over, a new aim: the problem of
//! [`crate::placement`] whose limits leave room for those that are not pinned, with those in their cool-down
//! fixed. Then the difference between the lists that are there and the aim becomes steps.
//!
//! # Properties
//! Pure. Nobody is pinned who was not watched for as long as the settings say, has a list of its own, runs
//! below a slice with one, or is not managed. Noise changes nothing. Within its cool-down nobody is moved
//! but who is saturated. A list that another writer set stays, and its container is left alone from then
//! on. Whoever is not wanted pinned any more is given back. A list is never empty.

mod aim;
mod seek;
mod standing;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ctlmgr_model::{
    Action, Bytes, CgroupPath, Cpus, Knob, PlacePlan, PlaceReading, PlaceSettings, PlaceVerdict,
    Reason, Rung, Step, Telling, Tenant,
};

use self::aim::{Aim, Place};
use self::standing::{Standing, standings};
pub use self::state::PinState;

/// Traffic below this is noise, in bytes per second.
const NOISE: u64 = 16 * 1024;

/// Decides where containers run.
///
/// `state` is what the last call returned, plus what [`PinState::learn`] was told since.
pub fn decide(
    settings: &PlaceSettings,
    mut state: PinState,
    reading: &PlaceReading,
) -> (PlacePlan, PinState) {
    state.notice(reading);
    let standings = standings(settings, &state, reading);
    let aim = aim::follow(settings, &mut state, reading, &standings);
    let mut steps = release(&state, reading, &standings, &aim);
    let places = reading.tenants.iter().zip(&aim.places);
    for ((tenant, place), verdict) in places.zip(verdicts(reading, &standings, &aim)) {
        let Place::On { cpus, mems, .. } = place else { continue };
        steps.extend(pin(&state, reading, tenant, (Knob::CpusetCpus, cpus), &verdict.reason));
        if let Some(mems) = mems {
            steps.extend(pin(&state, reading, tenant, (Knob::CpusetMems, mems), &verdict.reason));
        }
    }
    let mut verdicts = verdicts(reading, &standings, &aim);
    verdicts.sort_by(|a, b| a.name.cmp(&b.name));
    let Aim { cut_now, cut_planned, cost, note, .. } = aim;
    let plan = PlacePlan { at: reading.at, verdicts, steps, cut_now, cut_planned, cost, note };
    (plan, state)
}

fn list_of(tenant: &Tenant, knob: Knob) -> &Cpus {
    if knob == Knob::CpusetMems { &tenant.mems } else { &tenant.cpus }
}

/// The step that brings a list to what is wanted, if it is not that.
fn pin(
    state: &PinState,
    reading: &PlaceReading,
    tenant: &Tenant,
    (knob, to): (Knob, &Cpus),
    reason: &Reason,
) -> Option<Step> {
    let from = list_of(tenant, knob);
    if from == to || to.is_empty() || state.failed_lately(&tenant.path, knob, reading.at) {
        return None;
    }
    let prior = state.prior(tenant, knob).unwrap_or(from).clone();
    let action = Action::Pin { knob, from: from.clone(), prior, to: to.clone() };
    let (path, id, reason) = (tenant.path.clone(), tenant.id, reason.clone());
    Some(Step { path, id, action, rung: Rung::Place, reason, telling: Telling::Now })
}

/// Steps that give back what nobody is to have any more.
fn release(
    state: &PinState,
    reading: &PlaceReading,
    standings: &[Standing],
    aim: &Aim,
) -> Vec<Step> {
    let index: BTreeMap<&CgroupPath, usize> =
        reading.tenants.iter().enumerate().map(|(i, t)| (&t.path, i)).collect();
    let wanted = |path: &CgroupPath, knob| {
        let Some(index) = index.get(path) else { return false };
        match &aim.places[*index] {
            Place::On { mems, .. } => knob == Knob::CpusetCpus || mems.is_some(),
            // What is not known changes nothing.
            Place::Anywhere => standings[*index] == Standing::Unknown,
        }
    };
    let why = |path: &CgroupPath| match index.get(path) {
        None => "the container is gone".to_owned(),
        Some(i) => standings[*i].words(),
    };
    state.release(reading.at, wanted, why)
}

/// What is said about each, in the order of the reading.
fn verdicts(reading: &PlaceReading, standings: &[Standing], aim: &Aim) -> Vec<PlaceVerdict> {
    let mut talks = vec![0_u64; reading.tenants.len()];
    let mut near = vec![0_u64; reading.tenants.len()];
    let mut best: Vec<Option<(u64, usize)>> = vec![None; reading.tenants.len()];
    for &(a, b, rate) in &reading.traffic {
        let is_near = aim.places[a].is_with(&aim.places[b]);
        for (one, other) in [(a, b), (b, a)] {
            talks[one] = talks[one].saturating_add(rate);
            if is_near {
                near[one] = near[one].saturating_add(rate);
                best[one] = best[one].max(Some((rate, other)));
            }
        }
    }
    let verdict = |(i, tenant): (usize, &Tenant)| {
        let partner = best[i].map(|(_, other)| &reading.tenants[other].name);
        let (cpus, reason) = match &aim.places[i] {
            Place::On { cpus, .. } => {
                let sums = (near[i], talks[i]);
                (Some(cpus.clone()), on(&standings[i], tenant, sums, partner))
            }
            _ => (None, standings[i].words()),
        };
        PlaceVerdict {
            name: tenant.name.clone(),
            cpus,
            use_milli: tenant.use_milli,
            peak_milli: tenant.peak_milli,
            talks_per_sec: talks[i],
            near_per_sec: near[i],
            reason: Reason(reason),
        }
    };
    reading.tenants.iter().enumerate().map(verdict).collect()
}

/// Why it is where it is.
fn on(
    standing: &Standing,
    tenant: &Tenant,
    (near, talks): (u64, u64),
    partner: Option<&ctlmgr_model::WorkloadName>,
) -> String {
    if *standing == Standing::Quiet {
        return "talks to nobody; kept off the domains that others have for themselves".to_owned();
    }
    let mut words = Vec::new();
    let wish = tenant.wish.as_ref();
    words.extend(wish.filter(|w| w.exclusive).map(|_| "asked to be alone".to_owned()));
    words.extend(wish.and_then(|w| w.group.as_ref()).map(|g| format!("of group {g}")));
    words.extend(partner.map(|other| {
        format!("{}/s of {}/s stay near, most with {other}", Bytes(near), Bytes(talks))
    }));
    if words.is_empty() {
        words.push(format!("{}/s with others, none of them near", Bytes(talks)));
    }
    let peak = tenant.peak_milli.max(tenant.use_milli);
    words.push(format!("uses up to {}.{:01} CPUs", peak / 1000, peak % 1000 / 100));
    words.join("; ")
}
