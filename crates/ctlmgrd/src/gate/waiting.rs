//! Starts that wait, and what is known of containers.

use std::time::{Duration, Instant};

use ctlmgr_api::{KnownContainer, StartAnswer, StartDecision, StartRequest};
use ctlmgr_model::{
    Bytes, CgroupId, Character, ContainerFacts, Millis, Profile, Remembered, Settings, Weight,
    Workload,
};
use ctlmgr_policy::entitlement;
use ctlmgr_policy::gate::{self, Ticket, Traits};
use ctlmgr_sense::Containers;

use super::learned::Learned;
use crate::control::Reply;

/// Who does not ask again for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(5);
/// dockerd tells of a new container after it has answered: so long an unknown name may become known.
const INTRODUCTION: Duration = Duration::from_millis(300);

/// Whoever waits where waiting harms, frozen or under dockerd's lock of its container, waits no longer.
const LONGEST_INSIDE: Millis = Millis(50_000);

/// A container, as far as starts care.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Known {
    pub id: String,
    pub name: String,
    /// Key of its profile.
    pub key: String,
    pub traits: Traits,
    pub steady_per_sec: Bytes,
    pub weight: Weight,
    pub longest: Millis,
    pub after: Vec<String>,
    pub is_managed: bool,
    /// Whether dockerd tells of it; else it is known from its last start.
    pub is_told: bool,
}

impl Known {
    /// What dockerd, the settings and earlier starts tell of it.
    pub fn of(facts: &ContainerFacts, settings: &Settings, learned: &Learned) -> Known {
        Known::keyed(facts, Known::key_of(facts), settings, learned)
    }

    /// Key of its profile.
    pub fn key_of(facts: &ContainerFacts) -> String {
        key(&Workload::unstarted(facts.clone()), facts)
    }

    /// The same while dockerd does not tell: as it was when it started last.
    pub fn remembered(id: &str, settings: &Settings, learned: &Learned) -> Option<Known> {
        let Remembered { key, facts } = learned.remembered(id)?;
        Some(Known { is_told: false, ..Known::keyed(facts, key.clone(), settings, learned) })
    }

    /// For who plans starts ahead.
    pub fn shown(facts: &ContainerFacts, settings: &Settings, learned: &Learned) -> KnownContainer {
        let workload = Workload::unstarted(facts.clone());
        let profile = profile_of(&workload, facts, &key(&workload, facts), learned);
        KnownContainer {
            weight: entitlement(settings, &workload).weight,
            stated: stated(&workload),
            profile: profile.cloned(),
            name: workload.name.0,
        }
    }

    fn keyed(facts: &ContainerFacts, key: String, settings: &Settings, learned: &Learned) -> Known {
        let workload = Workload::unstarted(facts.clone());
        let entitlement = entitlement(settings, &workload);
        let profile = profile_of(&workload, facts, &key, learned);
        let after = workload.label("ctlmgr.batch.after").unwrap_or_default();
        let names = after.split(',').map(str::trim).filter(|name| !name.is_empty());
        Known {
            id: facts.id.clone(),
            name: workload.name.0.clone(),
            traits: gate::traits(profile, stated(&workload)),
            steady_per_sec: profile.map_or(Bytes::ZERO, |p| p.steady_per_sec),
            weight: entitlement.weight,
            longest: settings.starts.longest_wait(entitlement.class.as_ref()),
            after: names.map(str::to_owned).collect(),
            is_managed: entitlement.managed,
            is_told: true,
            key,
        }
    }
}

/// Of a service that was never seen to start its image may have been, by sampling.
fn profile_of<'a>(
    workload: &Workload,
    facts: &ContainerFacts,
    key: &str,
    learned: &'a Learned,
) -> Option<&'a Profile> {
    let own = learned.get(key);
    let of_image = || learned.get(&image_key(workload, facts)).or(own);
    own.filter(|p| p.starts > 0).or_else(of_image)
}

fn stated(workload: &Workload) -> Option<Character> {
    workload.label("ctlmgr.batch.class").and_then(|text| text.parse().ok())
}

/// What containers that do the same have in common: the compose service, else image and command,
/// else the name.
pub(crate) fn key(workload: &Workload, facts: &ContainerFacts) -> String {
    let service = workload.label("com.docker.compose.service");
    match (workload.project(), service) {
        (Some(project), Some(service)) => format!("{project}/{service}"),
        _ => image_key(workload, facts),
    }
}

fn image_key(workload: &Workload, facts: &ContainerFacts) -> String {
    match (&facts.image, &facts.command) {
        // Commands are long, and hold what need not be shown.
        (Some(image), Some(command)) => format!("{image}#{:08x}", fingerprint(command)),
        (Some(image), None) => image.clone(),
        _ => workload.name.0.clone(),
    }
}

/// FNV-1a of 32 bits: the same in every version, and enough to tell commands of one image apart.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

/// A container by name, id, or the beginning of its id if no other begins so.
pub(super) fn find<'a>(containers: &'a Containers, asked: &str) -> Option<&'a ContainerFacts> {
    let by_id = &containers.by_id;
    let named = || by_id.values().find(|f| f.name.as_deref() == Some(asked));
    let abbreviated = || {
        let mut all = by_id.range(asked.to_owned()..).take_while(|(id, _)| id.starts_with(asked));
        all.next().filter(|_| !asked.is_empty() && all.next().is_none()).map(|(_, facts)| facts)
    };
    by_id.get(asked).or_else(named).or_else(abbreviated)
}

/// Where an answer goes, and by when.
#[derive(Debug)]
struct Asker {
    reply: Reply<StartAnswer>,
    until: Option<Instant>,
}

/// A start that waits.
#[derive(Debug)]
pub(super) struct Entry {
    pub ticket: Ticket,
    /// As it was asked for.
    pub asked: String,
    pub source: String,
    /// Whether it is no matter where it runs already.
    pub is_mere_start: bool,
    /// What whoever asks tells of it.
    described: ContainerFacts,
    pub known: Option<Known>,
    pub since: Instant,
    /// Without dockerd's word nothing more will be known.
    pub since_asked_first: Instant,
    pub is_released: bool,
    /// Whether the operator cancelled it between two of its questions: the next one is answered so.
    pub is_refused: bool,
    /// Whether it runs already, and is held by the freezer.
    pub is_late: bool,
    pub is_frozen: bool,
    /// Where one that is late appeared last.
    pub cgroup: Option<CgroupId>,
    pub reason: String,
    pub behind: Vec<String>,
    asked_at: Instant,
    asker: Option<Asker>,
}

impl Entry {
    pub fn new(ticket: Ticket, request: &StartRequest, now: Instant) -> Entry {
        // Nobody can have waited longer than a day; and time may not reach back that far.
        let waited = Duration::from_millis(request.waited_ms.min(86_400_000));
        let name = Some(&request.container).filter(|name| !name.is_empty());
        let described = ContainerFacts {
            name: name.or(request.image.as_ref()).cloned(),
            image: request.image.clone(),
            labels: request.labels.clone(),
            ..ContainerFacts::default()
        };
        Entry {
            ticket,
            asked: request.container.clone(),
            source: request.source.clone(),
            is_mere_start: request.is_mere_start,
            described,
            known: None,
            since: now.checked_sub(waited).unwrap_or(now),
            since_asked_first: now,
            is_released: false,
            is_refused: false,
            is_late: false,
            is_frozen: false,
            cgroup: None,
            reason: String::new(),
            behind: Vec::new(),
            asked_at: now,
            asker: None,
        }
    }

    /// A container that started without being asked about.
    pub fn late(ticket: Ticket, known: Known, now: Instant) -> Entry {
        let request = StartRequest { container: known.id.clone(), ..StartRequest::default() };
        let source = "by itself".to_owned();
        Entry { is_late: true, source, known: Some(known), ..Entry::new(ticket, &request, now) }
    }

    /// What whoever asks tells of it, if anything.
    pub fn described(&self, settings: &Settings, learned: &Learned) -> Option<Known> {
        let is_told = self.described.image.is_some() || !self.described.labels.is_empty();
        let known = || Known::of(&self.described, settings, learned);
        is_told.then(|| Known { is_told: false, ..known() })
    }

    /// Somebody waits for the answer.
    pub fn hear(&mut self, reply: Reply<StartAnswer>, request: &StartRequest, now: Instant) {
        let until = request.wait_ms.map(|ms| now + Duration::from_millis(ms.min(60_000)));
        self.asked_at = now;
        self.asker = Some(Asker { reply, until });
    }

    /// The name, or what it was asked for by.
    pub fn name(&self) -> &str {
        self.known.as_ref().map_or(&self.asked, |k| &k.name)
    }

    /// Its longest wait.
    pub fn longest(&self, settings: &Settings) -> Millis {
        let configured = self.known.as_ref().map_or(settings.starts.max_wait, |k| k.longest);
        let is_inside = self.is_late || self.source == "runc";
        if is_inside { configured.min(LONGEST_INSIDE) } else { configured }
    }

    /// Whether somebody waits for the answer right now.
    pub fn is_awaited(&self) -> bool {
        self.is_late || self.asker.as_ref().is_some_and(|a| !a.reply.is_closed())
    }

    /// Whether nobody will ask again.
    pub fn is_forgotten(&self, now: Instant) -> bool {
        !self.is_awaited() && now.duration_since(self.asked_at) > FORGOTTEN
    }

    /// Whether more may be known of it in a moment.
    pub fn is_unfamiliar(&self, now: Instant, has_docker: bool) -> bool {
        let is_strange = self.known.as_ref().is_none_or(|k| k.id.is_empty());
        has_docker
            && is_strange
            && !self.asked.is_empty()
            && now.duration_since(self.since_asked_first) < INTRODUCTION
    }

    /// As the policy sees it; `at` turns instants into times.
    pub fn for_policy(&self, settings: &Settings, at: impl Fn(Instant) -> Millis) -> gate::Waiting {
        let known = self.known.as_ref();
        gate::Waiting {
            ticket: self.ticket,
            name: self.name().to_owned(),
            traits: known.map_or(Traits::default(), |k| k.traits),
            weight: known.map_or(Weight::DEFAULT, |k| k.weight),
            since: at(self.since),
            longest: self.longest(settings),
            after: known.map_or(Vec::new(), |k| k.after.clone()),
            is_released: self.is_released,
        }
    }

    /// Answers whoever waits; `false` if they are gone.
    pub fn answer(&mut self, decision: StartDecision, with: Terms<'_>) -> bool {
        let longest = self.longest(with.settings);
        let Some(asker) = self.asker.take() else { return self.is_late };
        self.asked_at = with.now;
        let answer = StartAnswer {
            decision,
            ticket: self.ticket.0,
            batch: with.batch,
            waited_ms: millis(with.now.duration_since(self.since)),
            longest_ms: Some(longest.0),
            reason: self.reason.clone(),
        };
        asker.reply.send(Ok(answer)).is_ok()
    }

    /// Tells whoever wants to know by now that it is not decided.
    pub fn answer_in_time(&mut self, with: Terms<'_>) {
        let is_time = |a: &Asker| a.until.is_some_and(|until| until <= with.now);
        if self.asker.as_ref().is_some_and(is_time) {
            self.answer(StartDecision::Wait, with);
        }
    }
}

/// What an answer says beside the decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    pub settings: &'a Settings,
    pub batch: u64,
    pub now: Instant,
}

/// A span in milliseconds.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
