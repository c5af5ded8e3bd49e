//! What deciding remembers from one snapshot to the next.

use std::collections::BTreeMap;

use ctlmgr_model::{Action, Bytes, CgroupId, Knob, Millis, Outcome, Step};

use crate::demand::Estimate;

/// Memory between decisions. A value like any other: clone it, compare it, replay with it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Demand and basis of each cgroup.
    pub(crate) estimates: BTreeMap<CgroupId, Estimate>,
    /// What is known of each knob that was written.
    pub(crate) written: BTreeMap<(CgroupId, Knob), Written>,
}

/// A knob that ctlmgr wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// What others last wrote there.
    pub prior: Bytes,
    /// What we last wrote there.
    pub ours: Bytes,
    /// When.
    pub at: Millis,
}

impl State {
    /// Takes over a knob from the journal, after a restart.
    pub fn adopt(&mut self, id: CgroupId, knob: Knob, prior: Bytes, ours: Bytes) {
        self.written.insert((id, knob), Written { prior, ours, at: Millis(0) });
    }

    /// Forgets every written knob, after an undo.
    pub fn forget_written(&mut self) {
        self.written.clear();
    }

    /// Learns what became of a step at time `at`.
    pub fn learn(&mut self, step: &Step, outcome: &Outcome, at: Millis) {
        let Action::Set { knob, to, prior, .. } = &step.action else { return };
        if *outcome == Outcome::Done {
            self.written.insert((step.id, *knob), Written { prior: *prior, ours: *to, at });
        }
    }

    /// The value that undo would put back, given what is read now.
    ///
    /// A value that is not ours was written by somebody else since: it is their will, hence what
    /// undo must leave behind.
    pub(crate) fn prior(&self, id: CgroupId, knob: Knob, observed: Bytes) -> Bytes {
        match self.written.get(&(id, knob)) {
            Some(written) if written.ours == observed => written.prior,
            _ => observed,
        }
    }

    /// Whether another writer changed the knob since we wrote it.
    pub(crate) fn was_overridden(&self, id: CgroupId, knob: Knob, observed: Bytes) -> bool {
        self.written.get(&(id, knob)).is_some_and(|w| w.ours != observed)
    }

    /// When the knob was last written.
    pub(crate) fn written_at(&self, id: CgroupId, knob: Knob) -> Option<Millis> {
        self.written.get(&(id, knob)).map(|w| w.at)
    }
}
