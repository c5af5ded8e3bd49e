//! Settings of the placement job.

use serde::{Deserialize, Serialize};

/// When the traffic of containers is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountTraffic {
    /// Where there are several domains to choose from.
    #[default]
    Auto,
    /// In any case.
    On,
    /// Never.
    Off,
}

/// Settings of the placement job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlaceSettings {
    /// When the traffic of containers is counted.
    pub traffic: CountTraffic,
}
