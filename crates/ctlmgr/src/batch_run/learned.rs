//! What ctlmgrd has learned, as the planner wants it.

use std::collections::BTreeMap;

use ctlmgr_api::{Client, KeyedProfile, Status};
use ctlmgr_model::{Bytes, Character, PairPenalty, Profile};
use ctlmgr_policy::gate::{Penalties, Traits};
use serde_json::{Value, json};

/// What ctlmgrd knows.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// By key.
    pub profiles: BTreeMap<String, Profile>,
    pub penalties: Penalties,
    /// Memory that nobody works with: as much page cache there can be.
    pub cache: Option<Bytes>,
    /// Processors.
    pub cpus: Option<u64>,
}

impl Learned {
    pub(super) async fn ask(client: &Client) -> Result<Learned, ctlmgr_api::ClientError> {
        let profiles: Vec<KeyedProfile> = client.get("/v1/profiles").await?;
        let penalties: Vec<PairPenalty> = client.get("/v1/penalties").await?;
        let account = client.get::<Status>("/v1/status").await?.plan.map(|plan| plan.account);
        let cpus = std::thread::available_parallelism().ok();
        Ok(Learned {
            profiles: profiles.into_iter().map(|p| (p.key, p.profile)).collect(),
            penalties: Penalties::new(penalties),
            // Where there is none, one that needs some starts at a time.
            cache: account.map(|a| (a.capacity - a.demand).max(Bytes(1))),
            cpus: cpus.and_then(|n| u64::try_from(n.get()).ok()),
        })
    }

    /// What the containers of a batch may use up together: processors in thousandths, page cache in
    /// bytes. What is not known holds nobody up.
    pub(super) fn capacity(&self) -> Value {
        let all = [("cpu", self.cpus.map(|n| n * 1000)), ("page_cache", self.cache.map(|b| b.0))];
        all.into_iter().filter_map(|(name, have)| Some((name.to_owned(), json!(have?)))).collect()
    }

    /// What one uses of that; one that is too large by itself starts alone.
    pub(super) fn uses(&self, traits: &Traits) -> Value {
        let have = self.capacity();
        let mut uses = json!({"cpu": traits.cpu_milli, "page_cache": traits.cache.0});
        for (name, used) in uses.as_object_mut().into_iter().flatten() {
            let most = have.get(name).and_then(Value::as_u64).unwrap_or(u64::MAX);
            *used = json!(used.as_u64().unwrap_or_default().min(most));
        }
        uses
    }
}

/// What costs others different amounts, each once.
#[derive(Debug, Default)]
pub(super) struct Bins(Vec<Traits>);

impl Bins {
    /// The name of the bin of one that is like this.
    pub(super) fn name_of(&mut self, traits: &Traits) -> String {
        let Traits { character, disks, .. } = *traits;
        let mix = traits.mix.filter(|_| character == Some(Character::Mixed));
        let is_idle = matches!(character, None | Some(Character::Cpu | Character::Quiet));
        let disks = if is_idle { Traits::default().disks } else { disks };
        let bin = Traits { character, mix, disks, ..Traits::default() };
        let at = self.0.iter().position(|b| *b == bin).unwrap_or_else(|| {
            self.0.push(bin);
            self.0.len() - 1
        });
        self.names()[at].clone()
    }

    pub(super) fn names(&self) -> Vec<String> {
        let name = |(n, b): (usize, &Traits)| {
            // One that nobody knows holds nobody up.
            format!("{}-{}", b.character.map_or("unknown", Character::as_str), n + 1)
        };
        self.0.iter().enumerate().map(name).collect()
    }

    pub(super) fn table(&self, penalties: &Penalties) -> Vec<Vec<f64>> {
        let cost = |a: &Traits, b: &Traits| f64::from(a.conflict(b, penalties)) / 100.0;
        self.0.iter().map(|a| self.0.iter().map(|b| cost(a, b)).collect()).collect()
    }
}
