//! What was learned of starts: in memory, and kept off the gate's task.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ctlmgr_api::KeyedProfile;
use ctlmgr_model::{Character, ContainerFacts, Profile, Remembered};
use ctlmgr_policy::gate::{self, Penalties, Slowdown};
use ctlmgr_store::{Profiles, ProfilesError};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::running::Ordinary;

/// Beyond this the profile that was learned from longest ago goes: jobs that are never the same leave
/// one each.
const MOST: usize = 2000;

/// Labels that say how to treat a container; others may be secret.
const LABELS: [&str; 2] = ["ctlmgr.", "com.docker.compose."];

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Profiles by key, and penalties.
#[derive(Debug, Default)]
pub(super) struct Learned {
    by_key: BTreeMap<String, Profile>,
    penalties: Penalties,
    /// Containers by id: dockerd does not tell of any while it starts those that were up before.
    remembered: BTreeMap<String, Remembered>,
    /// To whoever writes to the store, in the order in which it is learned.
    store: Option<mpsc::UnboundedSender<Change>>,
}

/// One write to the store.
type Change = Box<dyn FnOnce(&Profiles) -> Result<(), ProfilesError> + Send>;

/// Writes until nobody can learn any more; a failure costs only what was learned.
fn write_all(store: &Profiles, mut changes: mpsc::UnboundedReceiver<Change>) {
    while let Some(change) = changes.blocking_recv() {
        if let Err(error) = change(store) {
            warn!(error = ctlmgr_host::chain(&error), "a profile was not kept");
        }
    }
}

impl Learned {
    /// What the store holds; without one everything is learned anew.
    pub fn new(store: Option<Profiles>) -> Learned {
        let all = store.as_ref().map(Profiles::all).transpose().unwrap_or_else(|error| {
            warn!(error = ctlmgr_host::chain(&error), "what was learned of starts is lost");
            None
        });
        let pairs = store.as_ref().map(Profiles::penalties).transpose().unwrap_or_else(|error| {
            warn!(error = ctlmgr_host::chain(&error), "what was learned of penalties is lost");
            None
        });
        let seen = store.as_ref().map(Profiles::remembered).transpose().unwrap_or_else(|error| {
            warn!(error = ctlmgr_host::chain(&error), "containers that were seen are forgotten");
            None
        });
        Learned {
            remembered: seen.unwrap_or_default(),
            by_key: all.unwrap_or_default(),
            penalties: Penalties::new(pairs.unwrap_or_default()),
            store: store.map(|store| {
                let (sender, changes) = mpsc::unbounded_channel();
                tokio::task::spawn_blocking(move || write_all(&store, changes));
                sender
            }),
        }
    }

    pub fn get(&self, key: &str) -> Option<&Profile> {
        self.by_key.get(key)
    }

    /// What was known of a container when it started last.
    pub fn remembered(&self, id: &str) -> Option<&Remembered> {
        self.remembered.get(id)
    }

    /// Remembers a container that has started, and forgets those that dockerd does not know any more.
    pub fn remember(
        &mut self,
        facts: &ContainerFacts,
        key: &str,
        all: &BTreeMap<String, ContainerFacts>,
    ) {
        let is_ours = |label: &String| LABELS.iter().any(|start| label.starts_with(start));
        let labels = facts.labels.iter().filter(|(label, _)| is_ours(label));
        let facts = ContainerFacts {
            id: facts.id.clone(),
            name: facts.name.clone(),
            image: facts.image.clone(),
            labels: labels.map(|(label, value)| (label.clone(), value.clone())).collect(),
            ..ContainerFacts::default()
        };
        let seen = Remembered { key: key.to_owned(), facts };
        let gone = self.remembered.keys().filter(|id| !all.contains_key(*id));
        let gone: Vec<String> = gone.cloned().collect();
        if gone.is_empty() && self.remembered.get(&seen.facts.id) == Some(&seen) {
            return;
        }
        gone.iter().for_each(|id| drop(self.remembered.remove(id)));
        self.remembered.insert(seen.facts.id.clone(), seen.clone());
        self.write(move |store| store.remember(&seen, &gone));
    }

    /// Penalties as they are now.
    pub fn penalties(&self) -> Penalties {
        self.penalties.at(unix_now())
    }

    /// Learns from the company of a start.
    pub fn learn_pairs(&mut self, own: Character, start: &Slowdown) {
        for pair in self.penalties.learn(own, start, unix_now()) {
            debug!(a = %pair.a, b = %pair.b, hundredths = pair.hundredths, "learned a penalty");
            self.write(move |store| store.put_penalty(&pair));
        }
    }

    /// Keeps what was learned just now.
    pub fn learn(&mut self, key: String, mut profile: Profile) {
        profile.learned_unix = unix_now();
        self.keep(vec![(key, profile)]);
    }

    /// Learns from those that run; in one write, as they may be many.
    pub fn learn_running<'a>(&mut self, seen: impl Iterator<Item = (String, Ordinary<'a>)>) {
        let mut news: BTreeMap<String, Profile> = BTreeMap::new();
        for (key, Ordinary { io, passed, memory }) in seen {
            let known = news.get(&key).or_else(|| self.by_key.get(&key));
            let mut profile = gate::learn_running(known, io, passed, memory);
            profile.learned_unix = unix_now();
            news.insert(key, profile);
        }
        self.keep(news.into_iter().collect());
    }

    pub fn keep(&mut self, mut news: Vec<(String, Profile)>) {
        for (key, profile) in &news {
            self.keep_in_mind(key.clone(), profile.clone());
        }
        // More at once than are kept.
        news.retain(|(key, _)| self.by_key.contains_key(key));
        if !news.is_empty() {
            self.write(move |store| store.put(news.iter().map(|(key, p)| (key.as_str(), p))));
        }
    }

    fn keep_in_mind(&mut self, key: String, profile: Profile) {
        if self.by_key.len() >= MOST && !self.by_key.contains_key(&key) {
            let oldest = self.by_key.iter().min_by_key(|(_, p)| p.learned_unix);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.forget(&oldest);
            }
        }
        debug!(key, character = %profile.character, starts = profile.starts, "learned");
        self.by_key.insert(key, profile);
    }

    /// Whether there was such a profile.
    pub fn forget(&mut self, key: &str) -> bool {
        let was_there = self.by_key.remove(key).is_some();
        let key = key.to_owned();
        self.write(move |store| store.forget(&key));
        was_there
    }

    pub fn keyed(&self) -> Vec<KeyedProfile> {
        let keyed = |(key, profile): (&String, &Profile)| KeyedProfile {
            key: key.clone(),
            profile: profile.clone(),
        };
        self.by_key.iter().map(keyed).collect()
    }

    fn write(&self, change: impl FnOnce(&Profiles) -> Result<(), ProfilesError> + Send + 'static) {
        // The writer is gone only when the daemon is.
        let _ = self.store.as_ref().map(|store| store.send(Box::new(change)));
    }
}
