//! What deciding about places remembers.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_model::{
    Action, CgroupId, CgroupPath, Cpus, Knob, Millis, Outcome, PlaceReading, Reason, Rung, Saved,
    Step, Telling, Tenant,
};

use super::aim::Basis;

/// After a failure a list is left alone for this time.
const AFTER_FAILURE: Millis = Millis(60_000);
/// Who has stopped talking stays pinned for this time.
const STILL_TALKS: Millis = Millis(300_000);

/// Memory between decisions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PinState {
    /// Lists that ctlmgr wrote, or tried to.
    pins: BTreeMap<(CgroupPath, Knob), Pin>,
    /// Whose lists another writer has set since.
    yielded: BTreeSet<CgroupId>,
    /// When each was last moved.
    moved_at: BTreeMap<CgroupPath, Millis>,
    /// When each last talked to somebody.
    talked_at: BTreeMap<CgroupPath, Millis>,
    /// What the last aim was made from, and what it is.
    pub(super) basis: Option<Basis>,
}

/// A list of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pin {
    id: CgroupId,
    prior: Cpus,
    ours: Cpus,
    before: Cpus,
    failed_at: Option<Millis>,
    /// Giving it back has failed, and may come through yet.
    is_given_back: bool,
}

impl PinState {
    /// Takes over a list from the journal, after a restart at time `at`. Whoever it is of talked until then, as
    /// far as anybody knows.
    pub fn adopt(&mut self, saved: &Saved, at: Millis) {
        let lists = [&saved.prior, &saved.ours, &saved.before].map(|value| value.list().cloned());
        let [Some(prior), Some(ours), Some(before)] = lists else { return };
        let pin = Pin { id: saved.id, prior, ours, before, failed_at: None, is_given_back: false };
        self.pins.insert((saved.path.clone(), saved.knob), pin);
        self.moved_at.insert(saved.path.clone(), at);
        self.talked_at.insert(saved.path.clone(), at);
    }

    /// Forgets all lists, before those that the journal still knows are adopted.
    pub fn forget(&mut self) {
        self.pins.clear();
    }

    /// Whether nothing is ours.
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    /// Steps that give everything back.
    pub fn release_all(&self) -> Vec<Step> {
        let why = |_: &CgroupPath| "placement does not act".to_owned();
        self.pins.iter().map(|(key, pin)| unpin(key, pin, why)).collect()
    }

    /// Learns what became of a step at time `at`.
    pub fn learn(&mut self, step: &Step, outcome: &Outcome, at: Millis) {
        match &step.action {
            Action::Pin { knob, from, prior, to } if *outcome != Outcome::Vanished => {
                // A write that failed or was not read back may still come through: either is ours.
                let failed_at = (*outcome != Outcome::Done).then_some(at);
                let pin = Pin {
                    id: step.id,
                    prior: prior.clone(),
                    ours: to.clone(),
                    before: from.clone(),
                    failed_at,
                    is_given_back: false,
                };
                self.pins.insert((step.path.clone(), *knob), pin);
                self.moved_at.insert(step.path.clone(), at);
            }
            Action::Unpin { knob, .. } => {
                let key = (step.path.clone(), *knob);
                match (outcome, self.pins.get_mut(&key)) {
                    (Outcome::Failed(_), Some(pin)) => {
                        (pin.failed_at, pin.is_given_back) = (Some(at), true);
                    }
                    _ => drop(self.pins.remove(&key)),
                }
            }
            _ => {}
        }
    }

    /// Looks who is there, whose lists were changed by others, and who talks.
    pub(super) fn notice(&mut self, reading: &PlaceReading) {
        for tenant in &reading.tenants {
            let lists = [(Knob::CpusetCpus, &tenant.cpus), (Knob::CpusetMems, &tenant.mems)];
            // Undo that was not waited for has come through: nobody else's doing.
            let is_back = |pin: &Pin, list: &Cpus| {
                let is_prior =
                    *list == pin.prior || pin.prior.is_empty() && list.len() > pin.ours.len();
                pin.id == tenant.id && pin.is_given_back && is_prior
            };
            for (knob, list) in lists {
                let key = (tenant.path.clone(), knob);
                if self.pins.get(&key).is_some_and(|pin| is_back(pin, list)) {
                    self.pins.remove(&key);
                }
            }
            let is_foreign = |(knob, list): &(Knob, &Cpus)| {
                let pin = self.pins.get(&(tenant.path.clone(), *knob));
                let pin = pin.filter(|pin| pin.id == tenant.id);
                pin.is_some_and(|pin| **list != pin.ours && **list != pin.before)
            };
            if lists.iter().any(is_foreign) {
                self.yielded.insert(tenant.id);
            }
        }
        for &(a, b, _) in reading.traffic.iter().filter(|(_, _, rate)| *rate >= super::NOISE) {
            for tenant in [&reading.tenants[a], &reading.tenants[b]] {
                self.talked_at.insert(tenant.path.clone(), reading.at);
            }
        }
        let here: BTreeSet<&CgroupPath> = reading.tenants.iter().map(|t| &t.path).collect();
        let ids: BTreeSet<CgroupId> = reading.tenants.iter().map(|t| t.id).collect();
        self.moved_at.retain(|path, _| here.contains(path));
        self.talked_at.retain(|path, _| here.contains(path));
        self.yielded.retain(|id| ids.contains(id));
    }

    pub(super) fn is_yielded(&self, tenant: &Tenant) -> bool {
        self.yielded.contains(&tenant.id)
    }

    /// Whether its list is ours.
    pub(super) fn is_pinned(&self, tenant: &Tenant) -> bool {
        let pin = self.pins.get(&(tenant.path.clone(), Knob::CpusetCpus));
        pin.is_some_and(|pin| pin.id == tenant.id)
    }

    /// The list that is ours and there.
    pub(super) fn pinned_to<'a>(&self, tenant: &'a Tenant) -> Option<&'a Cpus> {
        self.is_pinned(tenant).then_some(&tenant.cpus).filter(|cpus| !cpus.is_empty())
    }

    /// What undo puts back, of a list that is ours.
    pub(super) fn prior(&self, tenant: &Tenant, knob: Knob) -> Option<&Cpus> {
        let pin = self.pins.get(&(tenant.path.clone(), knob));
        pin.filter(|pin| pin.id == tenant.id).map(|pin| &pin.prior)
    }

    /// Who was pinned because it talked is not let go at the first silence.
    pub(super) fn still_talks(&self, tenant: &Tenant, at: Millis) -> bool {
        let last = self.talked_at.get(&tenant.path);
        self.is_pinned(tenant) && last.is_some_and(|last| at.since(*last) < STILL_TALKS)
    }

    /// When its cool-down ends, if it is in one.
    pub(super) fn cools_until(&self, tenant: &Tenant, at: Millis, long: Millis) -> Option<Millis> {
        let moved = self.moved_at.get(&tenant.path).filter(|_| self.is_pinned(tenant))?;
        Some(Millis(moved.0.saturating_add(long.0))).filter(|end| *end > at)
    }

    pub(super) fn failed_lately(&self, path: &CgroupPath, knob: Knob, at: Millis) -> bool {
        self.pins.get(&(path.clone(), knob)).is_some_and(|pin| pin.failed_lately(at))
    }

    /// Steps that give back what is not wanted.
    pub(super) fn release(
        &self,
        at: Millis,
        wanted: impl Fn(&CgroupPath, Knob) -> bool,
        why: impl Fn(&CgroupPath) -> String,
    ) -> Vec<Step> {
        let is_due = |((path, knob), pin): &(&(CgroupPath, Knob), &Pin)| {
            !wanted(path, *knob) && !pin.failed_lately(at)
        };
        self.pins.iter().filter(is_due).map(|(key, pin)| unpin(key, pin, &why)).collect()
    }
}

impl Pin {
    fn failed_lately(&self, now: Millis) -> bool {
        self.failed_at.is_some_and(|at| now.since(at) < AFTER_FAILURE)
    }
}

fn unpin(
    (path, knob): &(CgroupPath, Knob),
    pin: &Pin,
    why: impl Fn(&CgroupPath) -> String,
) -> Step {
    let action = Action::Unpin { knob: *knob, ours: pin.ours.clone(), prior: pin.prior.clone() };
    let reason = Reason(why(path));
    Step {
        path: path.clone(),
        id: pin.id,
        action,
        rung: Rung::Place,
        reason,
        telling: Telling::Now,
    }
}
