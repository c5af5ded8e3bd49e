//! What deciding remembers from one snapshot to the next.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_model::{
    Action, Bytes, CgroupId, CgroupPath, Group, Knob, Millis, Outcome, Reason, Rung, Saved, Step,
    Telling, Value,
};

use serde::{Deserialize, Serialize};

use crate::cache_probe::{self, is_cache_probe};
use crate::capacity::Listed;
use crate::demand::Estimates;
use crate::heed::Heed;
use crate::making::Making;
use crate::scene::Tension;
use crate::turns::Turns;

/// Memory between decisions. A value like any other: clone it, compare it, replay with it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Demand and basis of each cgroup.
    pub(crate) estimates: Estimates,
    /// When all there was could last be read.
    pub(crate) looked_at: Option<Millis>,
    /// What is known of each knob that was written.
    ///
    /// By path, not by id: the unit of a slice keeps our value while its cgroup goes and comes.
    #[serde(with = "pairs")]
    pub(crate) written: BTreeMap<(CgroupPath, Knob), Written>,
    /// Those of them that have another writer's value now.
    #[serde(with = "pairs")]
    pub(crate) overridden: BTreeMap<(CgroupPath, Knob), Bytes>,
    /// How often another writer's value was found.
    pub(crate) overrides: u64,
    /// Since when the host is how tense.
    pub(crate) tension: Tension,
    /// What the lists of processors hold usually.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listed: Option<Listed>,
    /// Whether the kernel's own reclaim heeds memory.low.
    pub(crate) heed: Heed,
    /// Containers whose runtime is not done with them.
    #[serde(skip_serializing_if = "Making::is_empty")]
    pub(crate) making: Making,
    /// Who was held back by memory.high last time.
    pub(crate) braked: BTreeSet<CgroupPath>,
    /// Whose page cache crowded out that of others last time.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) crowding: BTreeSet<CgroupPath>,
    /// When each workload that was frozen was let run again.
    pub(crate) thawed_at: BTreeMap<CgroupId, Millis>,
    /// Who was last asked to give up memory before being stopped, and when.
    pub(crate) asked: Option<(CgroupId, Millis)>,
    /// When somebody was last stopped.
    pub(crate) stopped_at: Option<Millis>,
}

/// A knob that ctlmgr wrote, or tried to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) saved: Saved,
    /// When it was decided, which is when the host was read: a write that takes a while must not cost the next reading
    /// its say.
    pub(crate) at: Millis,
    /// How it was moved to and fro.
    #[serde(default)]
    pub(crate) turns: Turns,
    /// Whether its keeper has to be told still: it may be in force, and the keeper hold what was there before.
    #[serde(default)]
    pub(crate) is_pending: bool,
    /// Since when that is so, whatever was written since.
    #[serde(default)]
    pub(crate) untold_since: Millis,
}

impl Written {
    /// Learns what became of a write that was decided before this one, which is in force: its keeper may have been told of
    /// the older one only.
    fn learn_older(&mut self, older: Saved, outcome: &Outcome) {
        match outcome {
            Outcome::Done => {
                (self.saved.told, self.saved.asked) = (Some(older.ours), None);
                self.untold_since = self.at;
            }
            Outcome::Failed(_) => self.saved.asked = Some(older.ours),
            _ => {}
        }
    }
}

/// A map whose keys are no text, as a list of pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}

/// Who was asked to give up memory is let off after this time.
const ASKED_FOR: Millis = Millis(30_000);
/// Least time between two decisions to write one knob: a little less than the pace of readings, so that each may.
pub(crate) const WRITE_INTERVAL: Millis = Millis(900);
/// The same over what another writer wrote. Two who each wrote at every look would keep each other busy for ever.
pub(crate) const REASSERT_INTERVAL: Millis = Millis(10_000);

/// `None` for a list, which is not of this job.
fn release(saved: &Saved) -> Option<Step> {
    let (prior, ours) = (saved.prior.amount()?, saved.ours.amount()?);
    Some(Step {
        path: saved.path.clone(),
        id: saved.id,
        action: Action::Release { knob: saved.knob, ours, prior },
        rung: Rung::Protect,
        reason: Reason("there is no reason for it any more".to_owned()),
        telling: Telling::Now,
    })
}

impl State {
    /// Takes over a knob from the journal, after a restart.
    pub fn adopt(&mut self, saved: &Saved) {
        // Lists are of the placement job.
        if !saved.knob.is_list() {
            let turns = Turns::default();
            // Whether its keeper was told is not known.
            let is_pending = Knob::PROTECTION.contains(&saved.knob);
            let (known, at) = (saved.clone(), Millis(0));
            let mut written = Written { saved: known, at, turns, is_pending, untold_since: at };
            if is_pending {
                // An undo may have ended before it could say so: what was there before us is no other writer's until its
                // keeper is told anew.
                let Saved { told, asked, prior, .. } = &mut written.saved;
                let free = if asked.is_none() { asked } else { told };
                free.get_or_insert_with(|| prior.clone());
            }
            self.written.insert((saved.path.clone(), saved.knob), written);
        }
    }

    /// Forgets every written knob, after an undo.
    pub fn forget_written(&mut self) {
        self.written.clear();
    }

    /// How often a value of another writer was found in a knob of ours.
    pub fn overrides(&self) -> u64 {
        self.overrides
    }

    /// Whether this very value of another writer was found in a knob of ours when the host was last read.
    pub fn is_overridden(&self, path: &CgroupPath, knob: Knob, value: &Value) -> bool {
        let found = self.overridden.get(&(path.clone(), knob));
        found.is_some_and(|found| value.amount() == Some(*found))
    }

    /// Notes where another writer's value is now; the same one found again is no news.
    pub(crate) fn note_overridden(&mut self, now: BTreeMap<(CgroupPath, Knob), Bytes>) {
        let news = now.iter().filter(|(knob, value)| self.overridden.get(knob) != Some(value));
        self.overrides += news.count() as u64;
        self.overridden = now;
    }

    /// Learns what became of a step that was decided at time `at`.
    ///
    /// A write that failed or was not read back may still come through: either value is ours. One
    /// whose cgroup vanished is remembered too, so that its line in the journal is given up later.
    pub fn learn(&mut self, step: &Step, outcome: &Outcome, at: Millis) {
        match step.action {
            Action::Set { .. } if *outcome == Outcome::Overtaken => {}
            Action::Set { knob, from, to, .. } => {
                let Some(mut saved) = step.to_save() else { return };
                let key = (step.path.clone(), knob);
                let newer = self.written.get_mut(&key);
                if let Some(newer) = newer.filter(|w| w.saved.id == step.id && w.at > at) {
                    newer.learn_older(saved, outcome);
                    return;
                }
                // Whatever is found there next was written after ours.
                self.overridden.remove(&key);
                // It was read back, and no reading from before is decided upon: what was there before is another's will, if it
                // is there again. Until its keeper is told he may write it by himself.
                if matches!(outcome, Outcome::Done | Outcome::Overridden(_)) {
                    saved.before = saved.ours.clone();
                }
                let last = self.written.get(&key).filter(|last| last.saved.id == step.id);
                let turns = last.map_or(Turns::default(), |last| last.turns).after(from, to, at);
                // Over another's value: that is what its keeper holds by now.
                let is_over_ours = |l: &&Written| l.saved.is_ours(&from.into());
                let last = last.filter(is_over_ours);
                if let Some(last) = last.filter(|l| l.is_pending && *outcome != Outcome::Done) {
                    saved.told = last.saved.told.clone().or(Some(last.saved.before.clone()));
                    saved.asked = last.saved.asked.clone();
                }
                if matches!(outcome, Outcome::Failed(_)) {
                    saved.asked = Some(saved.ours.clone());
                }
                let is_pending = matches!(outcome, Outcome::Failed(_) | Outcome::Untold);
                // That its keeper was not told yet makes a value no younger.
                let is_same = step.is_told_only() && *outcome == Outcome::Untold;
                let at = last.filter(|_| is_same).map_or(at, |last| last.at);
                let since =
                    last.filter(|last| last.is_pending).map_or(at, |last| last.untold_since);
                let written = Written { saved, at, turns, is_pending, untold_since: since };
                self.written.insert(key, written);
            }
            Action::Release { knob, .. } => self.learn_release(step, knob, outcome, at),
            Action::Reclaim { .. } => self.learn_reclaim(step, outcome, at),
            Action::Stop { .. } | Action::Pin { .. } | Action::Unpin { .. } => {}
        }
    }

    fn learn_release(&mut self, step: &Step, knob: Knob, outcome: &Outcome, at: Millis) {
        let key = (step.path.clone(), knob);
        // Written anew since, by a newer plan.
        if self.written.get(&key).is_some_and(|newer| newer.at > at) {
            return;
        }
        match (outcome, self.written.get_mut(&key)) {
            // To try again after a while; but the age of a freeze counts from its beginning.
            (Outcome::Failed(_), Some(written)) if knob != Knob::CgroupFreeze => {
                written.at = at;
                // It may be in force already, and only its keeper not told; or he does it late.
                let prior = &written.saved.prior;
                (written.saved.before, written.saved.asked) = (prior.clone(), Some(prior.clone()));
            }
            (Outcome::Failed(_), _) => {}
            _ => {
                self.written.remove(&key);
                if knob == Knob::CgroupFreeze {
                    self.thawed_at.insert(step.id, at);
                }
            }
        }
    }

    /// What came of a probe, and who was really asked before being stopped.
    fn learn_reclaim(&mut self, step: &Step, outcome: &Outcome, at: Millis) {
        let taken = match outcome {
            Outcome::Reclaimed(taken) => Some(*taken),
            _ => None,
        };
        if is_cache_probe(step) {
            self.estimates.entry(step.id).and_modify(|e| e.cache_probe.learn(taken));
            return;
        }
        let Some(taken) = taken else { return };
        match step.rung {
            Rung::Kill => self.asked = Some((step.id, at)),
            Rung::Probe => {
                self.estimates.entry(step.id).and_modify(|e| e.probe.taken = taken);
            }
            _ => {}
        }
    }

    /// Notes who is probed, and what the last rung does.
    pub(crate) fn note_steps(&mut self, steps: &[Step], at: Millis) {
        cache_probe::note(&mut self.estimates, steps, at);
        let is_dire = self.tension.dire_since.is_some();
        // Its own stall while it is asked must not keep it asked.
        self.asked = self.asked.filter(|(_, since)| is_dire && at.since(*since) < ASKED_FOR);
        if steps.iter().any(|s| matches!(s.action, Action::Stop { .. })) {
            // It has its grace for itself: nothing holds it back while it ends.
            (self.stopped_at, self.asked) = (Some(at), None);
        }
    }

    /// Steps that give back every knob of ours that is not among `wanted`.
    pub(crate) fn release(
        &self,
        now: Millis,
        wanted: impl Fn(&CgroupPath, Knob) -> bool,
    ) -> Vec<Step> {
        let is_due = |w: &Written| w.at == Millis(0) || now.since(w.at) >= WRITE_INTERVAL;
        self.written
            .iter()
            .filter(|((path, knob), written)| !wanted(path, *knob) && is_due(written))
            .filter_map(|(_, written)| release(&written.saved))
            .collect()
    }

    fn of(&self, group: &Group, knob: Knob) -> Option<&Written> {
        self.written.get(&(group.path.clone(), knob))
    }

    /// What ctlmgr last wrote to the knob of this very cgroup.
    pub(crate) fn ours(&self, group: &Group, knob: Knob) -> Option<Bytes> {
        self.of(group, knob).filter(|w| w.saved.id == group.id)?.saved.ours.amount()
    }

    /// The value that undo would put back, given what is read now.
    ///
    /// A value that is not ours was written by somebody else since: it is their will, hence what
    /// undo must leave behind.
    pub(crate) fn prior(&self, group: &Group, knob: Knob, observed: Bytes) -> Bytes {
        match self.of(group, knob) {
            Some(written) if written.saved.is_ours(&observed.into()) => {
                written.saved.prior.amount().unwrap_or(observed)
            }
            _ => observed,
        }
    }

    /// Whether the knob of this very cgroup holds what was wanted, but its keeper may not know.
    pub(crate) fn is_pending(&self, group: &Group, knob: Knob) -> bool {
        self.of(group, knob).is_some_and(|w| w.saved.id == group.id && w.is_pending)
    }

    /// What is known of the knob of a step, if it is of that very cgroup.
    pub(crate) fn known(&self, step: &Step) -> Option<&Written> {
        let written = self.written.get(&(step.path.clone(), step.action.knob()?));
        written.filter(|written| written.saved.id == step.id)
    }

    /// Whether protection of ours is in force by that value, and its keeper has to be told still.
    pub(crate) fn is_untold(&self, group: &Group, knob: Knob, value: Bytes) -> bool {
        let is_ours = self.ours(group, knob) == Some(value);
        Knob::PROTECTION.contains(&knob) && is_ours && self.is_pending(group, knob)
    }

    /// What the knob held before ctlmgr wrote it.
    pub(crate) fn first_prior(&self, group: &Group, knob: Knob) -> Option<Bytes> {
        self.of(group, knob).and_then(|w| w.saved.prior.amount())
    }

    /// The way that the knob of this very cgroup was moved of late.
    pub(crate) fn turns(&self, group: &Group, knob: Knob) -> Turns {
        let written = self.of(group, knob).filter(|w| w.saved.id == group.id);
        written.map_or(Turns::default(), |w| w.turns)
    }

    /// When the knob of this very cgroup was last written, if that raised it.
    pub(crate) fn raised_at(&self, group: &Group, knob: Knob) -> Option<Millis> {
        let written = self.of(group, knob).filter(|w| w.saved.id == group.id);
        written.filter(|w| w.turns.rises()).map(|w| w.at)
    }

    /// Whether another writer changed the knob since we wrote it.
    pub(crate) fn was_overridden(&self, group: &Group, knob: Knob, observed: Bytes) -> bool {
        // A cgroup that is new at the same path starts with values of its own.
        let written = self.of(group, knob).map(|w| &w.saved);
        written.is_some_and(|w| w.id == group.id && !w.is_ours(&observed.into()))
    }

    /// Whether anybody has a knob of this kind from ctlmgr.
    pub fn has_any_of(&self, is_meant: fn(Knob) -> bool) -> bool {
        self.written.keys().any(|(_, knob)| is_meant(*knob))
    }

    /// When the knob was last written.
    pub(crate) fn written_at(&self, group: &Group, knob: Knob) -> Option<Millis> {
        self.of(group, knob).map(|w| w.at)
    }
}
