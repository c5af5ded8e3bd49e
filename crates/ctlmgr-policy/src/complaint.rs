//! What could not be done as asked, in words for the operator.

use std::collections::BTreeMap;

use ctlmgr_model::{
    Bytes, CapacityAccount, CgroupPath, Group, Knob, Millis, OnOverride, Settings, SliceAccount,
    Snapshot, Source, VerdictKind,
};

use crate::aging;
use crate::entitlement::is_podmans;
use crate::floors::{Floor, Refused, grant};
use crate::memory::read;
use crate::oomd;
use crate::state::{REASSERT_INTERVAL, State};
use crate::swap;
use crate::verdict::Party;

/// So many of what workloads bring along are named: labels come from images, and those from anywhere.
const OF_WORKLOADS: usize = 30;
/// So many are named, each in a line.
const NAMED: usize = 5;

/// What could not be followed, and who else writes.
pub(crate) fn complaints(settings: &Settings, state: &State, parties: &[Party<'_>]) -> Vec<String> {
    let of_workloads = || parties.iter().flat_map(|p| &p.entitlement.complaints);
    let mut out: Vec<String> = of_workloads().take(OF_WORKLOADS).cloned().collect();
    if let Some(rest @ 1..) = of_workloads().count().checked_sub(OF_WORKLOADS) {
        out.push(format!("{rest} more about labels and promises of workloads"));
    }
    let then = match settings.memory.on_override {
        OnOverride::Yield => "ctlmgr leaves it at that",
        OnOverride::Reassert => "ctlmgr writes its own again",
    };
    out.extend(state.overridden.iter().map(|((path, knob), observed)| {
        let what = match knob {
            Knob::LruGen => "page aging (lru_gen) was changed".to_owned(),
            _ => {
                format!("{}: {knob} was changed to {}", whose(parties, path), knob.words(*observed))
            }
        };
        format!("{what} by another writer; {then}")
    }));
    out
}

/// A workload by the name that its owner knows, a unit or slice by its path.
fn whose(parties: &[Party<'_>], path: &CgroupPath) -> String {
    let workload = parties.iter().find(|p| p.workload.is_some() && p.group.path == *path);
    workload.map_or_else(|| path.to_string(), |p| p.name.to_string())
}

/// Knobs of ours that have another writer's value now.
pub(crate) fn overridden(
    state: &State,
    snapshot: &Snapshot,
) -> BTreeMap<(CgroupPath, Knob), Bytes> {
    let groups = snapshot.workloads.iter().map(|w| &w.group);
    let groups = groups.chain(&snapshot.bystanders).chain(snapshot.slices());
    let knobs = groups.flat_map(|g| Knob::OF_CGROUP.map(|knob| (g, knob, read(g, knob))));
    let foreign = knobs.filter(|(group, knob, value)| {
        state.was_overridden(group, *knob, *value)
            && !is_promise(snapshot, group, *knob, *value)
            && !is_bare_again(state, snapshot, group, *knob, *value)
    });
    let foreign = foreign.map(|(group, knob, value)| ((group.path.clone(), knob), value));
    foreign.chain(aging::foreign(state, snapshot)).collect()
}

/// Whether another writer's value is left as it is: always, or where ours are to be written again, for a while.
pub(crate) fn is_left(
    on_override: OnOverride,
    (state, snapshot): (&State, &Snapshot),
    group: &Group,
    knob: Knob,
) -> bool {
    let is_foreign = state.overridden.contains_key(&(group.path.clone(), knob));
    let written = state.written_at(group, knob).unwrap_or(Millis(0));
    let is_recent = written > Millis(0) && snapshot.at.since(written) < REASSERT_INTERVAL;
    is_foreign && (on_override == OnOverride::Yield || is_recent)
}

/// A slice of a user's manager as it was before ctlmgr: that manager does not know of the cover, and has
/// applied its own settings again. It does so with a change of any unit, and nobody meant what is below.
fn is_bare_again(
    state: &State,
    snapshot: &Snapshot,
    group: &Group,
    knob: Knob,
    observed: Bytes,
) -> bool {
    snapshot.ancestors.iter().any(|slice| slice.id == group.id)
        && group.path.is_of_user()
        && state.first_prior(group, knob) == Some(observed)
}

/// A reservation that dockerd or podman has just set is a promise to us, not a contest.
fn is_promise(snapshot: &Snapshot, group: &Group, knob: Knob, observed: Bytes) -> bool {
    let owner = snapshot.workloads.iter().find(|w| w.group.id == group.id);
    let is_reserved = owner.is_some_and(|w| match &w.source {
        Source::Container(facts) => {
            is_podmans(group) || facts.reservation.map(Bytes::page_floor) == Some(observed)
        }
        Source::Unit(_) => false,
    });
    knob == Knob::MemoryLow && is_reserved
}

/// What stands in the way of the whole.
pub(crate) fn troubles(
    settings: &Settings,
    state: &State,
    snapshot: &Snapshot,
    (account, slices): (&CapacityAccount, &[SliceAccount]),
    parties: &[Party<'_>],
) -> Vec<String> {
    let mut out = Vec::new();
    let asked = settings.memory.headroom.of(account.total);
    if asked > account.headroom {
        out.push(format!("a headroom of {asked} is too much here; {} is kept", account.headroom));
    }
    out.extend(refused_floors(state, (account, slices), parties));
    out.extend(oomd::warnings(snapshot));
    out.extend(swap::warning(&snapshot.host));
    if !snapshot.gaps.is_empty() {
        out.push("not everything could be read, so nothing is taken from anybody".to_owned());
    }
    out
}

/// Floors that cannot be hard, by name, and what would have to give.
fn refused_floors(
    state: &State,
    (account, slices): (&CapacityAccount, &[SliceAccount]),
    parties: &[Party<'_>],
) -> Vec<String> {
    let is_meant = |p: &&Party<'_>| p.kind == VerdictKind::Workload && p.entitlement.managed;
    let floor = |p: &Party<'_>| {
        let floor = p.entitlement.floor;
        p.group.memory.max.bytes().map_or(floor, |max| floor.min(max))
    };
    let floors = parties.iter().filter(is_meant).map(|p| Floor {
        group: p.group,
        name: &p.name,
        weight: p.entitlement.weight,
        amount: floor(p),
        from: &p.entitlement.floor_from,
    });
    let all: Vec<&Group> = parties.iter().map(|p| p.group).collect();
    let (_, refused) = grant(state, (account, slices), &all, floors.collect());
    let named = refused.iter().take(NAMED).map(Refused::words);
    let rest = (refused.len() > NAMED)
        .then(|| format!("{} floors more are refused", refused.len() - NAMED));
    named.chain(rest).collect()
}
