//! The history of processor use, by profile key, over restarts and reboots.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ctlmgr_model::CpuUse;
use ctlmgr_policy::cpu_use;
use ctlmgr_store::Profiles;
use tracing::warn;

/// What was learned is written after this time.
const EVERY: Duration = Duration::from_secs(300);
/// Beyond this the one that was not seen for longest goes.
const MOST: usize = 2000;

pub(super) struct Usage {
    by_key: BTreeMap<String, CpuUse>,
    /// Learned since the last write.
    changed: BTreeSet<String>,
    store: Option<Profiles>,
    kept_at: Instant,
}

impl Usage {
    pub fn new(store: Option<Profiles>) -> Usage {
        let read = store.as_ref().map(Profiles::cpu_uses).transpose();
        let by_key = read.unwrap_or_else(|error| {
            warn!(error = ctlmgr_host::chain(&error), "the history of processor use is lost");
            None
        });
        let by_key = by_key.unwrap_or_default();
        Usage { by_key, changed: BTreeSet::new(), store, kept_at: Instant::now() }
    }

    /// Learns, and returns what use stays below for 95 % of the time.
    pub fn learn(&mut self, key: &str, milli: u64, unix: u64) -> u64 {
        if self.by_key.len() >= MOST && !self.by_key.contains_key(key) {
            self.forget_oldest();
        }
        let known = self.by_key.entry(key.to_owned()).or_default();
        cpu_use::learn(known, milli, unix);
        self.changed.insert(key.to_owned());
        cpu_use::peak(known)
    }

    /// The same without learning.
    pub fn peak(&self, key: &str) -> u64 {
        self.by_key.get(key).map_or(0, cpu_use::peak)
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_key.iter().min_by_key(|(_, known)| known.learned_unix);
        let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
        self.by_key.remove(&key);
        self.changed.insert(key);
    }

    /// Writes what has changed, every few minutes; a failure costs only what was learned.
    pub fn keep(&mut self) {
        let Some(store) = self.store.as_ref().filter(|_| self.kept_at.elapsed() >= EVERY) else {
            return;
        };
        self.kept_at = Instant::now();
        let changed = std::mem::take(&mut self.changed);
        let all = changed.iter().map(|key| (key.as_str(), self.by_key.get(key)));
        if let Err(error) = store.put_cpu_uses(all) {
            warn!(error = ctlmgr_host::chain(&error), "the history of processor use was not kept");
        }
    }
}
