//! Containers that are being made.
//!
//! # Problem
//! A runtime makes the cgroup of a container first, and sets it up a while later: with runc 1.1 on an emulated machine half a
//! second, in which memory.low is 0 and memory.max none. Who writes then takes what is there for the user's own, and the
//! system's manager may carry out the two in the other order: the reservation is lost, and so is its value to put back.
//!
//! # Approach
//! Leave a container of dockerd's alone until dockerd has told that it runs. But dockerd may be late, or the container be
//! another's that looks the same: after [`MADE`] it is made.
//!
//! # Properties
//! Whoever runs, by dockerd's word, is not being made; nobody is for longer than [`MADE`]; where dockerd does not answer nobody is.

use std::collections::BTreeMap;

use ctlmgr_model::{CgroupId, Group, Millis, Snapshot, Source, Workload};
use serde::{Deserialize, Serialize};

/// By then every runtime is done.
const MADE: Millis = Millis(30_000);

/// When each of them was first seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Making(BTreeMap<CgroupId, Millis>);

impl Making {
    /// Who is being made by this snapshot.
    pub(crate) fn next(&self, snapshot: &Snapshot) -> Making {
        let unstarted = snapshot.workloads.iter().filter(|w| is_unstarted(w)).map(|w| w.group.id);
        let since = |id| (id, self.0.get(&id).copied().unwrap_or(snapshot.at));
        Making(unstarted.map(since).collect())
    }

    /// Whether it is one of them.
    pub(crate) fn has(&self, group: &Group, at: Millis) -> bool {
        self.0.get(&group.id).is_some_and(|&since| at.since(since) < MADE)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn is_unstarted(workload: &Workload) -> bool {
    matches!(&workload.source, Source::Container(facts) if facts.is_unstarted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::decide;
    use crate::state::State;
    use crate::testing::{container, host, settings};
    use ctlmgr_model::{Bytes, Outcome};
    use proptest::prelude::*;

    /// One that was promised 300 MiB, and what its cgroup says of it at a moment.
    fn seen(second: u64, low_mib: u64, is_unstarted: bool) -> Snapshot {
        let mut web = container("web", 11, Bytes::mib(8), Some(Bytes::mib(300)));
        web.group.memory.low = Bytes::mib(low_mib);
        let Source::Container(facts) = &mut web.source else { unreachable!() };
        facts.is_unstarted = is_unstarted;
        Snapshot { at: Millis(second * 1000), ..host(Bytes::mib(1000), vec![web], vec![]) }
    }

    /// Seen once in the testbed: its memory.low stayed at what it used while it was made.
    #[test]
    fn what_the_runtime_is_about_to_set_is_not_taken_for_the_users() {
        let mut state = State::default();
        let mut written = Vec::new();
        for (second, low, is_unstarted) in [(10, 0, true), (11, 0, true), (12, 300, false)] {
            let snapshot = seen(second, low, is_unstarted);
            let (plan, next) = decide(&settings(), state, &snapshot);
            state = next;
            plan.steps.iter().for_each(|step| state.learn(step, &Outcome::Done, snapshot.at));
            written.extend(plan.steps.into_iter().map(|step| (second, step.id)));
        }
        assert_eq!(written, [(12, CgroupId(1))], "its own reservation is more, and covered");
        assert_eq!(state.overrides(), 0);
    }

    proptest! {
        #[test]
        fn nobody_is_being_made_for_ever(unstarted in proptest::collection::vec(any::<bool>(), 1..80)) {
            let mut making = Making::default();
            let mut since = None;
            for (second, unstarted) in (1..).zip(unstarted) {
                let snapshot = seen(second, 0, unstarted);
                making = making.next(&snapshot);
                since = since.filter(|_| unstarted).or(unstarted.then_some(snapshot.at));
                let is = making.has(&snapshot.workloads[0].group, snapshot.at);
                prop_assert_eq!(is, since.is_some_and(|since| snapshot.at.since(since) < MADE));
                prop_assert_eq!(making.is_empty(), !unstarted);
            }
        }
    }
}
