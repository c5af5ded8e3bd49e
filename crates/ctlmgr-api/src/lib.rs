//! The Unix-socket API, version 1: its types, and a client.
//!
//! HTTP/1.1 with JSON bodies on `/run/ctlmgr/api.sock`. Members of group `ctlmgr` may read, root
//! and members of `ctlmgr-admin` may change. Only these types are serialised towards others.

mod client;
mod place;
mod starts;

use ctlmgr_model::{
    Bytes, Gap, Mode, Outcome, Percent, PlaceVerdict, Plan, Step, Undone, Value, Verdict,
};
use serde::{Deserialize, Serialize};

pub use client::{Client, ClientError};
pub use place::{Graph, GraphEdge, GraphNode, PlaceStatus};
pub use starts::{
    FailedStart, Forget, KeyedProfile, KnownContainer, Queue, QueueChange, StartAnswer,
    StartCounters, StartDecision, StartRequest, Starting, Waiting,
};

/// Default place of the socket.
pub const SOCKET: &str = "/run/ctlmgr/api.sock";

/// Answer of `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// What the memory job may do.
    pub memory_mode: Mode,
    /// What the starts job may do.
    pub starts_mode: Mode,
    /// What the placement job may do.
    #[serde(default)]
    pub place_mode: Mode,
    /// Seconds since the daemon started.
    pub uptime_secs: u64,
    /// Version of dockerd, while it answers.
    pub docker: Option<String>,
    /// The last plan; absent until the first reading is in.
    pub plan: Option<Plan>,
    /// What could not be read last time.
    pub gaps: Vec<Gap>,
    /// Host-wide memory stall (`some`, 10 s), per cent.
    pub stall_pct: Option<u8>,
    /// Steps carried out and failed since the start.
    pub counters: Counters,
    /// What needs an operator's attention, in words.
    pub troubles: Vec<String>,
}

/// What happened since the daemon started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Readings of the host.
    pub cycles: u64,
    /// Knobs written.
    pub writes: u64,
    /// Bytes reclaimed, by the kernel's word.
    pub reclaimed_bytes: u64,
    /// Steps that failed.
    pub failures: u64,
    /// Knobs that another writer changed after us.
    pub overrides: u64,
}

/// Something that was decided and, in mode `act`, done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Unix time, in milliseconds.
    pub unix_ms: u64,
    /// What.
    pub step: Step,
    /// What became of it; absent while observing.
    pub outcome: Option<Outcome>,
    /// How those whom it concerns were when it was decided …
    pub before: Option<Felt>,
    /// … and half a minute later; absent until then, or if they are gone.
    pub after: Option<Felt>,
}

/// How the workloads at or below a cgroup are, taken together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Felt {
    /// Memory held by all of them.
    pub held: Bytes,
    /// Working-set pages that came back per second, of all of them.
    pub refaults_per_sec: u64,
    /// Share of the last 10 s in which a task of the worst one waited for memory, per cent.
    pub stall_pct: Option<Percent>,
}

/// Answer of `GET /v1/why/NAME`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// What is decided now; of one that is gone, what was last.
    pub verdict: Verdict,
    /// Last decisions about it and its ancestors, newest first; then that the one of that name before it was stopped.
    pub decisions: Vec<Decision>,
    /// Where it is to run; absent where placement does not look at it.
    #[serde(default)]
    pub place: Option<PlaceVerdict>,
    /// When it was first found gone, in milliseconds since 1970; absent while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_unix_ms: Option<u64>,
}

/// One knob that differs from what was there before ctlmgr.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Path of the cgroup.
    pub path: String,
    /// File in it.
    pub knob: String,
    /// What undo puts back: bytes, or a list.
    pub prior: Value,
    /// What ctlmgr wrote.
    pub ours: Value,
    /// What is there now; absent if the cgroup is gone.
    pub present: Option<Value>,
}

/// One line of the answer to `POST /v1/revert`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reverted {
    /// Path of the cgroup.
    pub path: String,
    /// File in it.
    pub knob: String,
    /// What became of it.
    pub undone: Undone,
}

/// Body of `PUT /v1/mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeChange {
    /// Which job.
    pub job: Job,
    /// Its new mode, until reboot; absent gives it back to the configuration.
    pub mode: Option<Mode>,
}

/// What ctlmgr does, each with a mode of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Job {
    /// Who keeps how much memory.
    #[default]
    Memory,
    /// Who may start when.
    Starts,
    /// Who runs on which processors.
    Place,
}

/// Body of `PUT /v1/weight`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightChange {
    /// Name of the workload.
    pub name: String,
    /// Its new weight, until reboot: it is of no class then. Without weight and class it is as configured.
    pub weight: Option<u16>,
    /// Its new class in place of a weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// Body of every answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why.
    pub error: String,
}

/// Answer of `GET /v1/doctor` and of `ctlmgrd doctor --json`: one entry per check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, and what to do.
    pub message: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// ctlmgr works, but not as well as it could.
    Warning,
    /// ctlmgr cannot work here.
    Fatal,
}
