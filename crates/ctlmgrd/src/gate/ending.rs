//! Starts that are over: who leaves, and what is learned of it.

use std::time::{Duration, Instant};

use ctlmgr_model::CgroupId;
use ctlmgr_policy::gate;
use tracing::info;

use super::Gate;
use super::starting::{End, Member};
use super::waiting::Known;

/// For so long it is told whose starts are over.
const OF_LATE: Duration = Duration::from_secs(900);
/// Nobody who was let go takes longer to start.
const EXCUSED: Duration = Duration::from_secs(600);

impl Gate {
    /// Lets those go whose starts are over.
    pub(super) fn settle(&mut self, now: Instant) {
        let over = |m: &Member| m.is_over(&self.settings.starts, &self.containers, now);
        let (done, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.starting)
            .into_iter()
            .map(|m| (over(&m), m))
            .partition(|(why, _)| why.is_some());
        self.starting = left.into_iter().map(|(_, member)| member).collect();
        self.excused.retain(|_, since| now.duration_since(*since) < EXCUSED);
        self.appeared.retain(|_, since| now.duration_since(*since) < EXCUSED);
        self.over.retain(|(_, since)| now.duration_since(*since) < OF_LATE);
        if !done.is_empty() {
            self.note_left(now);
        }
        for (why, member) in done.iter().filter_map(|(why, member)| Some(((*why)?, member))) {
            self.end(member, why, now);
        }
    }

    /// Ends the start of one that was gone, or was seen in another cgroup than it has now. A dockerd that stops may tell of
    /// no end, and start it again before it has been gone for long enough to count as ended.
    pub(super) fn end_former(&mut self, id: &str, cgroup: Option<CgroupId>) {
        let now = Instant::now();
        let is_over = |m: &Member| m.is_gone() || cgroup.is_some_and(|new| m.is_elsewhere(new));
        let is_it = |m: &mut Member| m.id() == Some(id) && is_over(m);
        let gone: Vec<Member> = self.starting.extract_if(.., is_it).collect();
        if !gone.is_empty() {
            self.note_left(now);
        }
        gone.iter().for_each(|member| self.end(member, gate::ENDED, now));
    }

    /// Somebody starts no more.
    fn note_left(&mut self, now: Instant) {
        self.emptied_at = self.starting.is_empty().then_some(now).or(self.emptied_at);
        self.running.keep(|id| self.containers.by_id.contains_key(id));
    }

    fn end(&mut self, member: &Member, why: &'static str, now: Instant) {
        info!(container = member.name(), why, "start is over");
        self.part_with(member, why, now);
        self.learn_from(member, why);
    }

    fn part_with(&mut self, member: &Member, why: &str, now: Instant) {
        self.over.retain(|(name, _)| name != member.name());
        self.over.push_back((member.name().to_owned(), now));
        let Some(id) = member.id() else { return };
        // Who starts again counts from nothing.
        self.running.note(id, member.last_look().filter(|_| why != gate::ENDED));
        // What appears next has a mark of its own.
        if why == gate::ENDED {
            self.appeared.remove(id);
        }
        if why == gate::NOT_STARTED && self.containers.by_id.contains_key(id) {
            self.excused.insert(id.to_owned(), now);
        }
    }

    fn learn_from(&mut self, member: &Member, why: &str) {
        let Some(Known { key, .. }) = &member.known else { return };
        let facts = member.id().and_then(|id| self.containers.by_id.get(id));
        if let Some(facts) = facts.filter(|_| self.containers.version.is_some()) {
            self.learned.remember(facts, key, &self.containers.by_id);
        }
        if why == gate::NOT_STARTED {
            return;
        }
        let known = self.learned.get(key);
        let slowdown = member.slowdown(known);
        let has_failed = member.id().is_some_and(|id| self.containers.failed.contains(id));
        let was_signalled = facts.is_some_and(|f| f.was_signalled);
        let has_ended = why == gate::ENDED;
        // How one has ended that is gone already, or that dockerd told no end of, nobody can tell.
        let is_told = member.is_told_to_have_ended(&self.containers);
        let is_cut_off = has_ended && (!is_told || has_failed || was_signalled || facts.is_none());
        let is_whole = gate::is_whole(why, is_cut_off);
        // A crash says nothing of what it does when it works; a signal may be the end of a sampling.
        if has_ended && has_failed && !was_signalled && known.is_some() {
            return;
        }
        if let Some(profile) = member.lesson(known, End { is_whole, has_ended }) {
            let own = member.traits().character.unwrap_or(profile.character);
            if is_whole {
                self.learned.learn_pairs(own, &slowdown);
            }
            self.learned.learn(key.clone(), profile);
        }
    }
}
