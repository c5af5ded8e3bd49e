//! Placement over the API.

use ctlmgr_model::{Mode, PlacePlan};
use serde::{Deserialize, Serialize};

/// Answer of `GET /v1/place`: who runs where, and why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceStatus {
    /// What the placement job may do.
    pub mode: Mode,
    /// What was decided last; absent until the first reading, and in mode off.
    pub plan: Option<PlacePlan>,
}

/// Answer of `GET /v1/place/graph`: who talks to whom.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Whether traffic is counted: on, off, beginning, or why it cannot be.
    pub traffic: String,
    /// Containers that run, by name.
    pub nodes: Vec<GraphNode>,
    /// Pairs that have exchanged anything, the busiest first.
    pub edges: Vec<GraphEdge>,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphNode {
    /// Its name.
    pub name: String,
    /// Processors that it keeps busy, in thousandths; a mean in which the last minute counts for half.
    pub cpu_milli: u64,
    /// Bytes per second to and from addresses that are no container's.
    pub outside_per_sec: u64,
}

/// Traffic between two containers, both directions together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphEdge {
    /// The one, by name.
    pub a: String,
    /// The other.
    pub b: String,
    /// Bytes of IP packets per second; a mean in which the last minute counts for half.
    pub bytes_per_sec: u64,
    /// Bytes since both run and traffic is counted.
    pub bytes: u64,
}
