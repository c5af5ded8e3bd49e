//! What the gate is asked, and what it shows.

use std::time::Instant;

use ctlmgr_api::{
    FailedStart, Forget, Queue, QueueChange, StartAnswer, StartDecision, StartRequest,
};
use ctlmgr_model::Weight;
use ctlmgr_policy::gate::Ticket;

use super::starting::Member;
use super::waiting::{Entry, Known, find, millis};
use super::{Gate, Question};
use crate::control::{Refused, Reply};

const CANCELLED: &str = "cancelled by the operator";

impl Gate {
    /// Everything that was asked meanwhile: to move on after each would be slow in a storm.
    pub(super) fn hear_all(&mut self, first: Question) {
        self.hear(first);
        while let Ok(next) = self.sources.questions.try_recv() {
            self.hear(next);
        }
    }

    fn hear(&mut self, question: Question) {
        match question {
            Question::Start(request, reply) => self.hear_start(&request, reply),
            Question::GiveUp(failed, reply) => drop(reply.send(Ok(self.give_up(&failed)))),
            Question::Queue(reply) => {
                // Who has just asked is not to be shown as a stranger.
                self.introduce(Option::is_none);
                drop(reply.send(Ok(self.view())));
            }
            Question::Change(change, reply) => {
                let result = self.change(&change);
                self.move_on();
                drop(reply.send(result.map(|()| self.view())));
            }
            Question::Profiles(reply) => drop(reply.send(Ok(self.learned.keyed()))),
            Question::Containers(reply) => {
                let all = self.containers.by_id.values();
                let known = all.map(|facts| Known::shown(facts, &self.settings, &self.learned));
                drop(reply.send(Ok(known.collect())));
            }
            Question::Penalties(reply) => {
                drop(reply.send(Ok(self.learned.penalties().learned().copied().collect())));
            }
            Question::Keep(list, reply) => {
                self.learned.keep(list.into_iter().map(|p| (p.key, p.profile)).collect());
                drop(reply.send(Ok(self.learned.keyed())));
            }
            Question::Forget(Forget { key }, reply) => {
                let result = match self.learned.forget(&key) {
                    true => Ok(self.learned.keyed()),
                    false => Err(Refused::NotFound(format!("no profile `{key}`"))),
                };
                drop(reply.send(result));
            }
        }
    }

    fn hear_start(&mut self, request: &StartRequest, reply: Reply<StartAnswer>) {
        let now = Instant::now();
        if request.container.is_empty() && request.image.is_none() {
            let message = "neither `container` nor `image` says what starts".to_owned();
            return drop(reply.send(Err(Refused::Invalid(message))));
        }
        let ticket = request.ticket.map(Ticket);
        let at = self
            .waiting
            .iter()
            .position(|e| Some(e.ticket) == ticket && e.asked == request.container);
        if at.is_none() && request.source == "runc" {
            self.end_former(&request.container, None);
        }
        let at = at.unwrap_or_else(|| {
            self.last_ticket += 1;
            self.waiting.push(Entry::new(Ticket(self.last_ticket), request, now));
            self.waiting.len() - 1
        });
        let entry = &mut self.waiting[at];
        entry.hear(reply, request, now);
        if entry.is_refused {
            let ticket = entry.ticket;
            self.finish(ticket, StartDecision::Refuse, CANCELLED);
        }
    }

    /// dockerd has failed to start it: its place is free. Returns whether it was under way.
    fn give_up(&mut self, failed: &FailedStart) -> bool {
        let id = find(&self.containers, &failed.container).map(|facts| facts.id.as_str());
        let is_it = |m: &&mut Member| m.asked == failed.container || id.is_some() && m.id() == id;
        let member = self.starting.iter_mut().find(is_it);
        member.is_some_and(Member::fail)
    }

    fn change(&mut self, change: &QueueChange) -> Result<(), Refused> {
        match change {
            QueueChange::Hold => self.is_held = true,
            QueueChange::Release => {
                self.is_held = false;
                self.waiting.iter_mut().for_each(|e| e.is_released = true);
            }
            QueueChange::Skip(name) => self.named(name)?.is_released = true,
            QueueChange::Cancel(name) => {
                let entry = self.named(name)?;
                // dockerd is past asking: it would start all the same.
                if entry.is_late || entry.source == "runc" {
                    let message = format!("`{name}` is started by dockerd itself; stop it instead");
                    return Err(Refused::Invalid(message));
                }
                entry.is_refused = true;
                if entry.is_awaited() {
                    let ticket = entry.ticket;
                    self.finish(ticket, StartDecision::Refuse, CANCELLED);
                }
                self.counters.cancelled += 1;
            }
        }
        Ok(())
    }

    fn named(&mut self, name: &str) -> Result<&mut Entry, Refused> {
        let names: Vec<&str> = self.waiting.iter().map(Entry::name).collect();
        let message = match names.is_empty() {
            true => "nobody waits".to_owned(),
            false => format!("`{name}` does not wait; these do: {}", names.join(", ")),
        };
        let found = self.waiting.iter_mut().find(|e| e.name() == name || e.asked == name);
        found.ok_or(Refused::NotFound(message))
    }

    pub(super) fn view(&self) -> Queue {
        let now = Instant::now();
        let settings = &self.settings;
        let since = |at: Instant| millis(now.duration_since(at));
        let waiting = |e: &Entry| ctlmgr_api::Waiting {
            ticket: e.ticket.0,
            name: e.name().to_owned(),
            character: e.known.as_ref().and_then(|k| k.traits.character),
            waited_ms: since(e.since),
            longest_ms: e.longest(settings).0,
            reason: e.reason.clone(),
            behind: e.behind.clone(),
        };
        let starting = |m: &Member| ctlmgr_api::Starting {
            name: m.name().to_owned(),
            character: m.traits().character,
            lasted_ms: since(m.since),
            batch: m.batch,
            reason: m.reason.clone(),
        };
        // As the policy looks at them.
        let mut waits: Vec<&Entry> = self.waiting.iter().collect();
        let weight = |e: &Entry| e.known.as_ref().map_or(Weight::DEFAULT, |k| k.weight);
        waits.sort_by_key(|e| (std::cmp::Reverse(weight(e)), e.since, e.ticket));
        Queue {
            mode: settings.starts.mode,
            is_held: self.is_held,
            trace: self.sight.tracing.said(),
            waiting: waits.into_iter().map(waiting).collect(),
            starting: self.starting.iter().map(starting).collect(),
            over: self.over.iter().map(|(name, _)| name.clone()).collect(),
            counters: self.counters,
        }
    }
}
