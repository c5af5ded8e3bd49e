//! Containers that are being made.
//!
//! # Problem
//! A runtime makes the cgroup of a container first, and sets it up a while later: with runc 1.1 on an emulated machine half a
//! second, in which memory.low is 0 and memory.max none. Who writes then takes what is there for the user's own, and the
//! system's manager may carry out the two in the other order: the reservation is lost, and so is its value to put back.
//!
//! # Approach
//! Leave a container of dockerd's alone until dockerd has told that it runs. But dockerd may be late, or the container be
//! another's that looks the same: after [`MADE`] it is made. dockerd starts containers before it answers, at boot for one:
//! whose cgroup appears while it does not may be among them, whatever it told of that container before.
//!
//! # Properties
//! Whoever runs, by dockerd's word, is not being made; nobody is for longer than [`MADE`]; where dockerd does not answer nobody is
//! who was there before.

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
    /// Who is being made by this snapshot, in which some have appeared.
    pub(crate) fn next(
        &self,
        snapshot: &Snapshot,
        has_appeared: impl Fn(CgroupId) -> bool,
    ) -> Making {
        let is_unstarted = |w: &&Workload| match &w.source {
            Source::Container(facts) if facts.is_unheard => {
                self.0.contains_key(&w.group.id) || has_appeared(w.group.id)
            }
            Source::Container(facts) => facts.is_unstarted,
            Source::Unit(_) => false,
        };
        let unstarted = snapshot.workloads.iter().filter(is_unstarted).map(|w| w.group.id);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::decide;
    use crate::state::State;
    use crate::testing::{container, host, settings};
    use ctlmgr_model::{Bytes, Outcome};
    use proptest::prelude::*;

    /// One that was promised 300 MiB, and what its cgroup says of it at a moment.
    fn seen(second: u64, low_mib: u64, (is_unheard, is_unstarted): (bool, bool)) -> Snapshot {
        let mut web = container("web", 11, Bytes::mib(8), Some(Bytes::mib(300)));
        web.group.memory.low = Bytes::mib(low_mib);
        let Source::Container(facts) = &mut web.source else { unreachable!() };
        (facts.is_unheard, facts.is_unstarted) = (is_unheard, is_unstarted);
        Snapshot { at: Millis(second * 1000), ..host(Bytes::mib(1000), vec![web], vec![]) }
    }

    const RUNNING: (bool, bool) = (false, false);
    const UNSTARTED: (bool, bool) = (false, true);
    const UNHEARD: (bool, bool) = (true, false);

    /// Seen in the testbed: its memory.low was set to what it used while it was made.
    #[test]
    fn what_the_runtime_is_about_to_set_is_not_taken_for_the_users() {
        expect_left_alone(UNSTARTED);
        expect_left_alone(UNHEARD);
    }

    fn expect_left_alone(word: (bool, bool)) {
        // A look at a host without it.
        let mut nobody = seen(9, 0, word);
        nobody.workloads.clear();
        let mut state = decide(&settings(), State::default(), &nobody).1;
        let mut written = Vec::new();
        for (second, low, word) in [(10, 0, word), (11, 0, word), (12, 300, RUNNING)] {
            let snapshot = seen(second, low, word);
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
        fn nobody_is_being_made_for_ever(
            words in proptest::collection::vec(0..3usize, 1..80), has_appeared in any::<bool>()
        ) {
            let mut making = Making::default();
            let mut since = None;
            for (second, word) in (1..).zip(words.into_iter().map(|n| [RUNNING, UNSTARTED, UNHEARD][n])) {
                let snapshot = seen(second, 0, word);
                let unstarted = word == UNSTARTED || (word == UNHEARD && (since.is_some() || (has_appeared && second == 1)));
                making = making.next(&snapshot, |_| has_appeared && second == 1);
                since = since.filter(|_| unstarted).or(unstarted.then_some(snapshot.at));
                let is = making.has(&snapshot.workloads[0].group, snapshot.at);
                prop_assert_eq!(is, since.is_some_and(|since| snapshot.at.since(since) < MADE));
                prop_assert_eq!(making.is_empty(), !unstarted);
            }
        }
    }
}
