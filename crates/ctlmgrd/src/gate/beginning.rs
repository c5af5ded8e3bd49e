//! Starts that dockerd tells of: of those that were let go, and of others.

use std::time::{Duration, Instant};

use ctlmgr_model::{Mode, Reason};
use ctlmgr_policy::gate::Ticket;
use ctlmgr_sense::{Appearance, Containers};

use super::Gate;
use super::late::Order;
use super::starting::Member;
use super::waiting::{Entry, Known, find};

/// In this time what somebody did has left the pressure of the last 10 s.
const FADED: Duration = Duration::from_secs(20);

/// Whether this one is what was described by its image, before it had a name.
fn is_described(described: &Known, known: &Known) -> bool {
    let rest = known.key.strip_prefix(described.key.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
}

impl Gate {
    /// Starts that came by themselves: without the plugin, by restart policy, by another client.
    pub(super) fn note_starts(&mut self) {
        let (containers, now) = (self.containers.clone(), Instant::now());
        let seen = std::mem::replace(&mut self.seen, containers.starts.clone());
        for id in containers.starts.iter().filter(|(id, n)| seen.get(*id) != Some(n)).map(|s| s.0) {
            let known = containers.by_id.get(id);
            let known = known.map(|facts| Known::of(facts, &self.settings, &self.learned));
            if self.appeared.contains_key(id) {
                // One that has ended already came before what appeared, which is yet to be told of.
                if containers.is_up(id) {
                    self.note_told(id, known.as_ref(), &containers);
                }
                continue;
            }
            if let Some(entry) = self.waiting.iter().find(|e| e.is_late && e.asked == *id) {
                self.freeze_again(entry);
                continue;
            }
            let was_excused = self.excused.remove(id).is_some();
            self.running.forget(id);
            let is_it = |m: &&mut Member| match m.id() {
                Some(own) => own == id,
                None if m.asked.is_empty() => {
                    m.known.as_ref().zip(known.as_ref()).is_some_and(|(m, k)| is_described(m, k))
                }
                None => find(&containers, &m.asked).is_some_and(|f| f.id == *id),
            };
            let member = self.starting.iter_mut().find(is_it);
            match (member, known) {
                (Some(member), known) => {
                    member.known = known.or_else(|| member.known.take());
                    member.begin(&containers, now);
                }
                (None, Some(known)) if was_excused => {
                    self.join_begun(id, known, "was let go long before", now);
                }
                (None, Some(known)) => self.note_late(id, known, now),
                (None, None) => {}
            }
        }
    }

    /// dockerd tells of one that has appeared.
    fn note_told(&mut self, id: &str, known: Option<&Known>, containers: &Containers) {
        self.appeared.remove(id);
        let member = self.starting.iter_mut().find(|m| m.id() == Some(id));
        if let Some(member) = member {
            member.known = known.cloned().or_else(|| member.known.take());
            member.note_start(containers);
        }
    }

    /// One that waits was made anew, and stands still no more.
    fn freeze_again(&self, entry: &Entry) {
        if entry.is_frozen {
            let order = Order::Freeze(entry.asked.clone(), Reason(entry.reason.clone()));
            // The hand is gone only when the daemon is.
            let _ = self.orders.send(order);
        }
    }

    /// A container runs of which dockerd has not told yet. One that was asked about has leave; of one that nobody
    /// knows nothing can be said.
    pub(super) fn note_appearance(&mut self, Appearance { id, cgroup }: &Appearance) {
        let known = match find(&self.containers, id) {
            Some(facts) => Some(Known::of(facts, &self.settings, &self.learned)),
            None => Known::remembered(id, &self.settings, &self.learned),
        };
        let Some(known) = known.filter(|known| known.is_managed) else { return };
        self.end_former(&known.id, Some(*cgroup));
        if !self.is_under_way(&known) {
            let now = Instant::now();
            self.appeared.insert(id.clone(), now);
            self.note_late(id, known, now);
        }
        let is_it = |e: &Entry| e.is_late && e.asked == *id;
        let Some(at) = self.waiting.iter().position(is_it) else { return };
        if self.waiting[at].cgroup.replace(*cgroup) != Some(*cgroup) {
            self.freeze_again(&self.waiting[at]);
        }
    }

    /// Whether somebody has asked about it.
    fn is_under_way(&self, known: &Known) -> bool {
        let is_it = |own: &Option<Known>| own.as_ref().is_some_and(|k| k.id == known.id);
        let is_nameless = |m: &Member| m.asked.is_empty() && m.id().is_none();
        let is_described = |m: &Member| m.known.as_ref().is_some_and(|k| is_described(k, known));
        let starts = |m: &Member| m.id() == Some(&known.id) || is_nameless(m) && is_described(m);
        self.starting.iter().any(starts)
            || self.waiting.iter().any(|e| e.asked == known.id || is_it(&e.known))
            || self.excused.contains_key(&known.id)
    }

    /// Nobody was asked about it.
    fn note_late(&mut self, id: &str, known: Known, now: Instant) {
        if self.settings.starts.freeze && self.settings.starts.mode == Mode::Act {
            self.last_ticket += 1;
            return self.waiting.push(Entry::late(Ticket(self.last_ticket), known, now));
        }
        self.join_begun(id, known, "came by itself", now);
    }

    fn join_begun(&mut self, id: &str, known: Known, reason: &str, now: Instant) {
        let mut member = Member::new(id.to_owned(), Some(known), &self.containers, now);
        match self.appeared.contains_key(id) {
            true => member.begin_soon(&self.containers, now),
            false => member.begin(&self.containers, now),
        }
        self.join(member, reason);
    }

    /// What others do to the disk: nobody starts now, and those that did are over for long enough not to count any more.
    fn note_pressure(&mut self, now: Instant) {
        let rested = self.emptied_at.is_none_or(|at| now.saturating_duration_since(at) > FADED);
        if rested {
            self.ground.io_full_before_pct = self.sight.io_full_pct();
        }
    }

    pub(super) fn join(&mut self, mut member: Member, reason: &str) {
        if self.settings.starts.mode == Mode::Off {
            return;
        }
        if self.starting.is_empty() {
            self.batch += 1;
            self.note_pressure(member.since);
        }
        if let Some(id) = member.id() {
            self.excused.remove(id);
        }
        member.batch = self.batch;
        reason.clone_into(&mut member.reason);
        self.starting.push(member);
    }
}
