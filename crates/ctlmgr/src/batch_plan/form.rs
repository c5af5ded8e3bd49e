//! What the command reads and prints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    pub max_batch: Option<u32>,
    #[serde(default)]
    pub objective: Objective,
    #[serde(default)]
    pub bins: Vec<String>,
    pub penalty: Option<Vec<Vec<f64>>>,
    pub pairwise: Option<Vec<Vec<f64>>>,
    pub containers: Vec<Container>,
    #[serde(default)]
    pub capacity: BTreeMap<String, f64>,
    #[serde(default = "default_limit_ms")]
    pub time_limit_ms: u64,
    /// Penalties of containers that were taken out, so that those left are counted in the same unit.
    #[serde(skip)]
    pub taken: Vec<f64>,
    /// How many containers those were.
    #[serde(skip)]
    pub taken_count: u32,
}

/// Weights of the two terms of Eq. 3.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Objective {
    pub penalty: f64,
    pub batches: f64,
}

impl Default for Objective {
    fn default() -> Self {
        Objective { penalty: 1.0, batches: 1.0 }
    }
}

pub(super) fn default_limit_ms() -> u64 {
    1000
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Container {
    pub name: String,
    pub bin: Option<String>,
    #[serde(default = "one")]
    pub count: u32,
    #[serde(default, rename = "use")]
    pub uses: BTreeMap<String, f64>,
    pub volume: Option<String>,
    #[serde(default)]
    pub after: Vec<String>,
    /// Number of the batch in which it starts at the latest.
    pub deadline: Option<u32>,
    #[serde(default = "default_weight")]
    pub weight: f64,
    /// It has started already, and is in the first batch.
    #[serde(default)]
    pub running: bool,
}

pub(super) fn default_weight() -> f64 {
    100.0
}

pub(super) fn one() -> u32 {
    1
}

#[derive(Debug, Serialize)]
pub(super) struct Output {
    pub objective: f64,
    pub bound: f64,
    pub gap: f64,
    pub proven: bool,
    pub penalty_total: f64,
    pub batches: Vec<Vec<String>>,
    pub solver: &'static str,
    pub time_ms: u64,
}
