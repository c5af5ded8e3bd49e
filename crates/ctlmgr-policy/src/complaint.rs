//! What could not be done as asked, in words for the operator.

use ctlmgr_model::{Bytes, CapacityAccount, Knob, Percent, Settings, Snapshot, VerdictKind};

use crate::memory::read;
use crate::state::State;
use crate::verdict::Party;

/// Hard protection is given for floors up to this part of the capacity …
const FLOOR_PART: Percent = Percent(80);
/// … and taken away above this one, so that a capacity that breathes does not make it flap.
const FLOOR_PART_AT_MOST: Percent = Percent(90);

/// What could not be followed, and who else writes.
pub(crate) fn complaints(state: &State, snapshot: &Snapshot, parties: &[Party<'_>]) -> Vec<String> {
    let mut out: Vec<String> =
        parties.iter().flat_map(|p| p.entitlement.complaints.iter().cloned()).collect();
    let groups = snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.ancestors);
    for group in groups {
        for knob in Knob::ALL {
            let observed = read(group, knob);
            if state.was_overridden(group, knob, observed) {
                out.push(format!(
                    "{}: {knob} was changed to {observed} by another writer",
                    group.path
                ));
            }
        }
    }
    out
}

/// What stands in the way of the whole.
pub(crate) fn troubles(
    settings: &Settings,
    state: &State,
    snapshot: &Snapshot,
    account: &CapacityAccount,
    parties: &[Party<'_>],
) -> Vec<String> {
    let mut out = Vec::new();
    let asked = settings.memory.headroom.of(account.total);
    if asked > account.headroom {
        out.push(format!("a headroom of {asked} is too much here; {} is kept", account.headroom));
    }
    let managed = parties.iter().filter(|p| p.kind == VerdictKind::Workload);
    let floors: Bytes = managed.map(|p| p.entitlement.floor).sum();
    let most = hard_at_most(state, account);
    if floors > most {
        out.push(format!(
            "floors of {floors} in all are too much for hard protection ({most} at most); they are kept by memory.low only"
        ));
    }
    if !snapshot.gaps.is_empty() {
        out.push("not everything could be read, so nothing is taken from anybody".to_owned());
    }
    out
}

/// Most that may be given to floors as hard protection.
pub(crate) fn hard_at_most(state: &State, account: &CapacityAccount) -> Bytes {
    let is_given = state.has_any(Knob::MemoryMin);
    account.capacity.scaled(if is_given { FLOOR_PART_AT_MOST } else { FLOOR_PART })
}
