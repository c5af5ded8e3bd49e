//! memory.min: floors as far as the host can cover them ([`crate::floors`]), and what is hard of shares ([`crate::harden`]).
//!
//! # Properties
//! What others had set is never lowered where more of a share is hard, and counts with what is hard already.

use std::collections::BTreeMap;

use ctlmgr_model::{Bytes, CgroupId, Group, Knob, Snapshot, Verdict};

use crate::floors::{Floor, grant};
use crate::harden::{Hard, harden};
use crate::keeping::Keeping;
use crate::scene::Scene;
use crate::state::State;
use crate::verdict::Party;

/// Protection wanted for one managed workload.
pub(crate) struct Wanted<'a> {
    pub group: &'a Group,
    pub amount: Bytes,
    /// Whether it was said so, and does not follow what changes all the time.
    pub is_said: bool,
    /// Whether there is too much of such protection, so that less of it does not wait.
    pub is_too_much: bool,
    pub why: String,
}

/// What memory.min is to be.
pub(crate) fn hard<'a>(
    scene: &Scene<'a, '_>,
    workloads: &[(&Keeping<'a, '_>, &Verdict)],
) -> Vec<Wanted<'a>> {
    let Scene { state, snapshot, account, .. } = *scene;
    let floor = |p: &Party<'_>, v: &Verdict| match p.is_untold() {
        true => v.floor.max(p.group.memory.min),
        false => v.floor,
    };
    let floors = workloads.iter().map(|(k, v)| (k.party, v)).map(|(p, v)| Floor {
        group: p.group,
        name: &p.name,
        weight: p.entitlement.weight,
        amount: floor(p, v),
        from: &p.entitlement.floor_from,
    });
    let all: Vec<&Group> = snapshot.sharers().collect();
    let (floors, _) = grant(state, (account, scene.slices), &all, floors.collect());
    let Hard { amounts, is_too_much } = harden(scene, &given(state, snapshot, &floors));
    let wanted = |group: &'a Group| {
        let floor = floors.iter().find(|f| f.group.id == group.id).map(|f| f.amount);
        let hardened = amounts.get(&group.id).copied();
        if floor.is_none() && hardened.is_none() {
            return None;
        }
        let said = users(state, group).max(floor.unwrap_or_default());
        let hardened = hardened.unwrap_or_default();
        let is_said = floor.is_some() && said >= hardened;
        let why = match is_said {
            true => format!("floor of {said}"),
            false => {
                "so much of its share is hard, because global reclaim heeds no soft protection here"
                    .to_owned()
            }
        };
        Some(Wanted { group, amount: said.max(hardened), is_said, is_too_much, why })
    };
    workloads.iter().filter_map(|(k, _)| wanted(k.party.group)).collect()
}

/// memory.min that others had set.
fn users(state: &State, group: &Group) -> Bytes {
    state.prior(group, Knob::MemoryMin, group.memory.min)
}

/// What is hard already of each: its floor, or what others had set as far as it is used.
fn given(state: &State, snapshot: &Snapshot, floors: &[Floor<'_>]) -> BTreeMap<CgroupId, Bytes> {
    let said = snapshot.sharers().map(|g| (g.id, users(state, g).min(g.memory.current)));
    let mut given: BTreeMap<_, _> = said.collect();
    for floor in floors {
        let amount = given.entry(floor.group.id).or_default();
        *amount = floor.amount.max(*amount);
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, host, settings};
    use crate::{check, decide};
    use ctlmgr_model::{Action, Source};

    /// memory.min that a light workload of 800 MiB and a heavy one of 400 get, where somebody had set so much for either.
    fn set(others: u64, own: u64) -> [Option<u64>; 2] {
        let mib = Bytes::mib;
        let mut light = container("light", 11, mib(800), Some(mib(800)));
        light.group.memory.min = mib(others);
        let mut heavy = container("heavy", 12, mib(400), Some(mib(400)));
        heavy.group.memory.min = mib(own);
        if let Source::Container(facts) = &mut heavy.source {
            facts.labels.insert("ctlmgr.weight".into(), "400".into());
        }
        let mut snapshot = host(mib(1400), vec![light, heavy], Vec::new());
        snapshot.ancestors[0].memory.min = mib(own + others);
        let (plan, _) = decide(&settings(), State::default(), &snapshot);
        assert_eq!(check(&settings(), &plan, &snapshot), []);
        let of = |id| {
            let is_it = |s: &&ctlmgr_model::Step| s.id.0 == id;
            plan.steps.iter().filter(is_it).find_map(|s| match s.action {
                Action::Set { knob: Knob::MemoryMin, to, .. } => Some(to.0 >> 20),
                _ => None,
            })
        };
        [11, 12].map(of)
    }

    #[test]
    fn what_others_had_set_is_not_lowered_and_counts_as_hard() {
        // Three quarters of what there is to share are some 944 MiB.
        assert_eq!(set(0, 0), [Some(553), Some(390)]);
        assert_eq!(set(0, 396).get(1), Some(&None), "more than weight makes hard");
        assert_eq!(set(0, 100).get(1), Some(&Some(390)));
        let [light, heavy] = set(780, 0);
        assert!(light.is_none() && heavy.is_some_and(|hard| hard < 170), "{heavy:?}");
    }
}
