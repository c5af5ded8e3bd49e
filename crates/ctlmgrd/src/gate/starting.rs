//! Starts under way: what they do, and when they are over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ctlmgr_model::{Bytes, CgroupId, Character, Io, Millis, Profile, StartSettings};
use ctlmgr_policy::gate::{self, Progress, Slowdown, Traits};
use ctlmgr_sense::{Containers, Look};

use super::waiting::{Known, millis};

/// A start under way.
#[derive(Debug)]
pub(super) struct Member {
    /// As it was asked for.
    pub asked: String,
    pub known: Option<Known>,
    pub since: Instant,
    pub batch: u64,
    pub reason: String,
    /// What it did until the last look, and when that was.
    last: Option<(Io, Instant)>,
    /// Where it was then.
    cgroup: Option<CgroupId>,
    /// Whether it was at work with a disk so far.
    was_at_work: bool,
    quiet_since: Option<Instant>,
    /// What it had done until then.
    done_before_quiet: Option<Io>,
    /// Since which look it, or its cgroup of before, was not to be seen; nobody who was not looked for is absent.
    absent_since: Option<Instant>,
    /// Whether dockerd has started it since it was let go: a restart goes on to be what it was until
    /// then.
    has_begun: bool,
    /// Whether dockerd has told of that. It may be seen before, and dockerd may yet have to tell how it ended the last time.
    is_told_of: bool,
    /// Whether dockerd says that it could not be started.
    has_failed: bool,
    /// How often it had ended when it began.
    ends_before: u32,
    /// For how long others of each character started beside it, all of them together; and the same since
    /// it was quiet, which is part of its start only if it gets busy again.
    company: BTreeMap<Character, Millis>,
    company_while_quiet: BTreeMap<Character, Millis>,
    /// Whether one started beside it that nobody knows.
    was_beside_unknown: bool,
}

/// How a start came to be over.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub is_whole: bool,
    /// The container does not run any more.
    pub has_ended: bool,
}

/// Who was let go has begun within this time, or does not start at all.
const BEGINS: Duration = Duration::from_secs(30);
/// Length of a container's full id.
const ID: usize = 64;

impl Member {
    pub fn new(
        asked: String,
        known: Option<Known>,
        containers: &Containers,
        now: Instant,
    ) -> Member {
        let member = Member {
            asked,
            known,
            since: now,
            batch: 0,
            reason: String::new(),
            last: None,
            cgroup: None,
            was_at_work: false,
            quiet_since: None,
            done_before_quiet: None,
            absent_since: None,
            has_begun: false,
            is_told_of: false,
            has_failed: false,
            ends_before: 0,
            company: BTreeMap::new(),
            company_while_quiet: BTreeMap::new(),
            was_beside_unknown: false,
        };
        Member { ends_before: member.ends(containers), ..member }
    }

    /// dockerd has started it.
    pub fn begin(&mut self, containers: &Containers, now: Instant) {
        self.begin_soon(containers, now);
        // It may have ended again since.
        self.note_start(containers);
    }

    /// dockerd tells of the start that is under way: how it ended before is no end of this one.
    pub fn note_start(&mut self, containers: &Containers) {
        self.is_told_of = true;
        let started = self.id().and_then(|id| containers.starts.get(id));
        self.ends_before = started.map_or(self.ends_before, |s| s.ends_before);
    }

    /// dockerd says that it could not be started. What has begun goes on: to start what runs fails, too.
    pub fn fail(&mut self) -> bool {
        self.has_failed = !self.has_begun;
        self.has_failed
    }

    /// dockerd is about to make its cgroup, or has made it.
    pub fn begin_soon(&mut self, containers: &Containers, now: Instant) {
        (self.has_begun, self.since, self.absent_since) = (true, now, None);
        (self.last, self.quiet_since, self.done_before_quiet) = (None, None, None);
        self.cgroup = None;
        (self.is_told_of, self.was_at_work) = (false, false);
        self.company.clear();
        self.company_while_quiet.clear();
        self.was_beside_unknown = false;
        self.ends_before = self.ends(containers);
    }

    fn ends(&self, containers: &Containers) -> u32 {
        self.id().and_then(|id| containers.ends.get(id)).copied().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.known.as_ref().map_or(&self.asked, |k| &k.name)
    }

    pub fn id(&self) -> Option<&str> {
        let is_full = |asked: &&str| asked.len() == ID;
        let known = self.known.as_ref().map(|k| k.id.as_str()).filter(|id| !id.is_empty());
        // While dockerd boots nobody can tell more than the id.
        known.or_else(|| Some(self.asked.as_str()).filter(is_full))
    }

    /// Whether its cgroup was there, and a look since did not find it.
    pub fn is_gone(&self) -> bool {
        self.last.is_some() && self.absent_since.is_some()
    }

    /// Whether it was seen in another cgroup than this one.
    pub fn is_elsewhere(&self, cgroup: CgroupId) -> bool {
        self.cgroup.is_some_and(|own| own != cgroup)
    }

    /// Whether dockerd told of its end.
    pub fn is_told_to_have_ended(&self, containers: &Containers) -> bool {
        self.is_told_of && self.ends(containers) > self.ends_before
    }

    /// What it had done at the last look, and when that was.
    pub fn last_look(&self) -> Option<(Io, Instant)> {
        self.last
    }

    pub fn traits(&self) -> Traits {
        self.known.as_ref().map_or(Traits::default(), |k| k.traits)
    }

    /// Takes a look at it, and at those that start beside it.
    pub fn follow(&mut self, look: &Look, beside: &[Traits], now: Instant) {
        if !self.has_begun {
            return;
        }
        // Who was gone and is found again, or is found in another cgroup, runs anew: this start of it is over.
        let cgroup = self.id().and_then(|id| look.cgroups.get(id)).copied();
        let is_another = self.is_gone() || cgroup.is_some_and(|cgroup| self.is_elsewhere(cgroup));
        let found = self.id().and_then(|id| look.io.get(id)).filter(|_| !is_another);
        let Some(io) = found.copied() else {
            self.absent_since = self.absent_since.or(Some(now));
            return;
        };
        (self.absent_since, self.cgroup) = (None, cgroup);
        if let Some((before, at)) = self.last {
            let passed = Millis(millis(now.duration_since(at)));
            let done = io.since(before);
            let steady = self.known.as_ref().map_or(Bytes::ZERO, |k| k.steady_per_sec);
            match gate::is_quiet(&done, passed, steady) {
                true => {
                    self.quiet_since = self.quiet_since.or(Some(at));
                    self.done_before_quiet = self.done_before_quiet.or(Some(before));
                }
                false => {
                    self.was_at_work = true;
                    (self.quiet_since, self.done_before_quiet) = (None, None);
                    for (character, time) in std::mem::take(&mut self.company_while_quiet) {
                        self.company.entry(character).or_default().0 += time.0;
                    }
                }
            }
            self.keep_company(beside, passed);
        } else {
            // A new cgroup counts from nothing.
            let passed = Millis(millis(now.duration_since(self.since)));
            self.was_at_work = !gate::is_quiet(&io, passed, Bytes::ZERO);
        }
        self.last = Some((io, now));
    }

    /// Whether its start is over, and why.
    pub fn is_over(
        &self,
        settings: &StartSettings,
        containers: &Containers,
        now: Instant,
    ) -> Option<&'static str> {
        // dockerd knew it, and does not any more.
        let is_told =
            self.known.as_ref().is_some_and(|k| k.is_told) && containers.version.is_some();
        let is_gone = is_told && self.id().is_some_and(|id| !containers.by_id.contains_key(id));
        if !self.has_begun {
            let is_late = now.duration_since(self.since) > BEGINS;
            return (is_gone || is_late || self.has_failed).then_some(gate::NOT_STARTED);
        }
        let facts = self.id().and_then(|id| containers.by_id.get(id));
        let since = |at: Instant| Millis(millis(now.duration_since(at)));
        let progress = Progress {
            lasted: since(self.since),
            quiet_for: self.quiet_since.map(since),
            is_healthy: facts.is_some_and(|f| f.is_healthy) && self.last.is_some(),
            has_ended: is_gone || self.is_told_to_have_ended(containers),
            absent_for: self.absent_since.map(since),
        };
        gate::is_settled(settings, &progress)
    }

    fn keep_company(&mut self, beside: &[Traits], passed: Millis) {
        let own = self.traits();
        let uses_disk = |c: &Character| !matches!(c, Character::Cpu | Character::Quiet);
        let near = || beside.iter().filter(|other| !own.is_apart(other)).map(|o| o.character);
        self.was_beside_unknown |= near().any(|character| character.is_none());
        let company = match self.quiet_since {
            Some(_) => &mut self.company_while_quiet,
            None => &mut self.company,
        };
        for character in near().flatten().filter(uses_disk) {
            company.entry(character).or_default().0 += passed.0;
        }
    }

    /// How long its start took, if anything was seen of it: how long it was quiet at the end is not part
    /// of it.
    pub fn lasted(&self) -> Option<Millis> {
        let (_, seen_at) = self.last?;
        let end = self.quiet_since.unwrap_or(seen_at);
        Some(Millis(millis(end.duration_since(self.since)).max(1000)))
    }

    /// What it moves in normal running, in the mean since it was quiet. One that was healthy, or had its
    /// time, while it was at work has not shown it yet.
    fn steady_per_sec(&self) -> Option<Bytes> {
        let quiet = self.quiet_since.zip(self.done_before_quiet).zip(self.last);
        quiet.map(|((since, before), (io, now))| {
            gate::per_sec(io.since(before).moved(), Millis(millis(now.duration_since(since))))
        })
    }

    /// What its start teaches of those like it: how long it takes alone only if it was whole, not cut off
    /// or failed, and what it moves in normal running only if it goes on to run.
    pub fn lesson(&self, known: Option<&Profile>, end: End) -> Option<Profile> {
        let (io, seen_at) = self.last?;
        let lasted = self.lasted()?;
        // Who leaves the disks alone may compute all the time: how much, its first second does not tell.
        let (done, in_time) = match self.was_at_work {
            true => (self.done_before_quiet.unwrap_or(io), lasted),
            false => (io, Millis(millis(seen_at.duration_since(self.since)).max(1000))),
        };
        let steady = self.steady_per_sec().filter(|_| !end.has_ended);
        let mut profile = gate::learn(known, done, in_time, steady);
        let was_alone = self.company.is_empty() && self.company_while_quiet.is_empty();
        if end.is_whole && was_alone && !self.was_beside_unknown {
            gate::learn_alone(&mut profile, lasted);
        }
        Some(profile)
    }

    /// What its start teaches of its company; nothing if somebody was there whom nobody knows.
    pub fn slowdown(&self, known: Option<&Profile>) -> Slowdown {
        let alone = known.and_then(|p| p.alone).filter(|_| !self.was_beside_unknown);
        Slowdown {
            lasted: self.lasted().unwrap_or_default(),
            alone: alone.unwrap_or_default(),
            company: self.company.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ctlmgr_model::{Percent, Weight};

    use super::*;

    fn look(id: &str, mib: u64) -> Look {
        let io = Io { read: Bytes::mib(mib), reads: mib, ..Io::default() };
        Look { io: [(id.to_owned(), io)].into_iter().collect(), ..Look::default() }
    }

    #[test]
    fn nobody_is_absent_who_was_not_looked_for() {
        let (id, began) = ("a".repeat(ID), Instant::now());
        let containers = Containers::default();
        let mut member = Member::new(id.clone(), None, &containers, began);
        member.begin(&containers, began);
        let at = |secs| began + Duration::from_secs(secs);
        let settings = StartSettings::default();
        member.follow(&look(&id, 50), &[], at(1));
        assert_eq!(member.is_over(&settings, &containers, at(30)), None);
        member.follow(&Look::default(), &[], at(31));
        assert_eq!(member.is_over(&settings, &containers, at(40)), None);
        assert_eq!(member.is_over(&settings, &containers, at(41)), Some(gate::ENDED));
        // Who is found again runs anew, which is no part of this start.
        member.follow(&look(&id, 5000), &[], at(41));
        assert_eq!(member.is_over(&settings, &containers, at(42)), Some(gate::ENDED));
        member.begin(&containers, at(42));
        member.follow(&look(&id, 5000), &[], at(43));
        assert_eq!(member.is_over(&settings, &containers, at(52)), None);
    }

    /// A container that does nothing but compute, and leaves the disks alone from its first second on.
    #[test]
    fn how_much_a_start_computes_is_learned_of_all_of_it() {
        let (id, began) = ("a".repeat(ID), Instant::now());
        let containers = Containers::default();
        let mut member = Member::new(id.clone(), None, &containers, began);
        member.begin(&containers, began);
        for second in 1..=11 {
            // It takes a second to begin.
            let io = Io { cpu_usec: (second - 1) * 1_000_000, ..Io::default() };
            let look = Look { io: [(id.clone(), io)].into_iter().collect(), ..Look::default() };
            member.follow(&look, &[], began + Duration::from_secs(second));
        }
        let now = began + Duration::from_secs(11);
        let over = member.is_over(&StartSettings::default(), &containers, now);
        assert_eq!(over, Some("its disk use is down"));
        let learned = member.lesson(None, End { is_whole: true, has_ended: false }).unwrap();
        assert_eq!((learned.character, learned.lasts), (Character::Cpu, Millis(11_000)));
        assert_eq!(gate::traits(Some(&learned), None).cpu_milli, 909);
        assert_eq!(learned.alone, Some(Millis(1000)), "it kept nobody from a disk");
    }

    #[test]
    fn company_is_who_uses_the_same_disk() {
        let id = "a".repeat(ID);
        let of = |character, minor| {
            let disk = ctlmgr_model::Disk { major: 8, minor };
            let mix = gate::Mix { read: character, write: character, written: Percent(0) };
            let all_of_it = gate::Use { disk, part: Percent(100), mix };
            let disks = [Some(all_of_it), None, None, None];
            Traits { character: Some(character), disks, ..Traits::default() }
        };
        let known = Known {
            id: id.clone(),
            name: "db".to_owned(),
            key: "shop/db".to_owned(),
            traits: of(Character::RandomRead, 0),
            steady_per_sec: Bytes::ZERO,
            weight: Weight::DEFAULT,
            longest: Millis(0),
            after: Vec::new(),
            is_managed: true,
            is_told: true,
        };
        let (containers, began) = (Containers::default(), Instant::now());
        let mut member = Member::new(id.clone(), Some(known), &containers, began);
        member.begin(&containers, began);
        let beside = [
            of(Character::SequentialRead, 0),
            of(Character::SequentialRead, 0),
            of(Character::SequentialWrite, 16),
            of(Character::Cpu, 0),
        ];
        for second in 1..=4 {
            member.follow(&look(&id, second * 50), &beside, began + Duration::from_secs(second));
        }
        let told = member.slowdown(None);
        assert_eq!((told.lasted, told.alone), (Millis(4000), Millis(0)));
        // Two of them, from the first look to the last.
        let company = BTreeMap::from([(Character::SequentialRead, Millis(6000))]);
        assert_eq!(told.company, company);
        let whole = End { is_whole: true, has_ended: false };
        let learned = member.lesson(None, whole).unwrap();
        // Healthy while it is at work: what it moves then is no normal running, or its next start would be
        // over at once.
        assert_eq!((learned.alone, learned.steady_per_sec), (None, Bytes::ZERO));
        let known = Profile { alone: Some(Millis(3000)), ..learned };
        assert_eq!(member.slowdown(Some(&known)).alone, Millis(3000));
        // It is quiet at the end: that is not part of its start, and neither is who is there then.
        member.follow(&look(&id, 200), &beside, began + Duration::from_secs(5));
        assert_eq!(member.slowdown(None).company, company);
        // Beside one that nobody knows nothing is learned of company.
        member.follow(&look(&id, 300), &[Traits::default()], began + Duration::from_secs(6));
        assert_eq!(member.slowdown(Some(&known)).alone, Millis(0));
        assert_eq!(member.lesson(None, whole).unwrap().alone, None);
    }
}
