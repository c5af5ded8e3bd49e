//! What the policy is asked, and of whom it is not.

use std::time::{Duration, Instant};

use ctlmgr_model::{Millis, Mode};
use ctlmgr_policy::gate::{self, Admission};

use super::Gate;
use super::starting::Member;
use super::waiting::{Entry, Known, find};

/// Where this daemon's time begins, so that somebody who waited before it can be told apart.
const ORIGIN: Duration = Duration::from_secs(86_400 * 2);

impl Gate {
    pub(super) fn decide(&self, now: Instant) -> Vec<Admission> {
        let is_acting = self.settings.starts.mode == Mode::Act;
        let may_tell = is_acting && self.containers.version.is_some();
        let at = |instant: Instant| {
            // What came before this daemon came at its beginning, less what it had waited.
            let after = instant.saturating_duration_since(self.started);
            let before = self.started.saturating_duration_since(instant);
            Millis(
                (ORIGIN + after).saturating_sub(before).as_millis().try_into().unwrap_or(u64::MAX),
            )
        };
        let is_ready = |e: &&Entry| e.is_awaited() && !e.is_unfamiliar(now, may_tell);
        let (free, gated): (Vec<&Entry>, Vec<&Entry>) =
            self.waiting.iter().filter(is_ready).partition(|e| self.passes(e).is_some());
        let mut admissions: Vec<Admission> = Vec::new();
        for entry in free {
            let reason = self.passes(entry).unwrap_or_default().to_owned();
            admissions.push(Admission {
                ticket: entry.ticket,
                may_start: true,
                reason,
                behind: Vec::new(),
            });
        }
        let starting =
            |m: &Member| gate::Starting { name: m.name().to_owned(), traits: m.traits() };
        let queue = gate::Queue {
            waiting: gated.into_iter().map(|e| e.for_policy(&self.settings, at)).collect(),
            starting: self.starting.iter().map(starting).collect(),
            penalties: self.learned.penalties(),
            ground: self.ground,
            is_held: self.is_held,
        };
        admissions.extend(gate::admit(&self.settings.starts, &queue, at(now)));
        admissions
    }

    /// Why a start is no matter for the gate, if it is none.
    pub(super) fn passes(&self, entry: &Entry) -> Option<&'static str> {
        let is_same = |m: &Member| match (m.id(), &entry.known) {
            (Some(id), Some(known)) if !known.id.is_empty() => id == known.id,
            // One that has no name yet is nobody else.
            _ => m.asked == entry.asked && !entry.asked.is_empty(),
        };
        let facts = entry.known.as_ref().and_then(|k| self.containers.by_id.get(&k.id));
        // While dockerd is away nobody knows who runs still.
        let is_known = entry.is_mere_start && self.containers.version.is_some();
        let is_running = is_known && facts.is_some_and(|f| f.is_running);
        // Its client may have given up and removed it; dockerd does not say so to whoever holds it.
        let is_gone = |k: &Known| {
            let is_there = find(&self.containers, &entry.asked).is_some();
            k.is_told && self.containers.version.is_some() && !is_there
        };
        match () {
            () if self.settings.starts.mode == Mode::Off => Some("the starts job is off"),
            () if entry.known.as_ref().is_some_and(|k| !k.is_managed) => Some("not managed"),
            () if self.starting.iter().any(is_same) || self.is_excused(entry) => {
                Some("was let go already")
            }
            () if entry.known.as_ref().is_some_and(is_gone) => Some("it is gone"),
            () if is_running => Some("it runs already"),
            () => None,
        }
    }

    /// Whether it was let go, and dockerd starts it only now. The plugin's question is about another start.
    fn is_excused(&self, entry: &Entry) -> bool {
        let is_inside = entry.is_late || entry.source == "runc";
        is_inside && entry.known.as_ref().is_some_and(|k| self.excused.contains_key(&k.id))
    }
}
