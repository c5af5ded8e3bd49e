//! Starts: asking for leave, the queue, and what was learned.

use std::collections::BTreeMap;

use ctlmgr_model::{Character, Mode, Profile, Weight};
use serde::{Deserialize, Serialize};

/// Body of `POST /v1/starts`: a container is about to start, and whoever starts it asks for leave.
///
/// Without `wait_ms` the answer comes when it is decided. With it the answer comes by then, `wait` if
/// need be, and the same question is asked again with the ticket: so whoever asks sees soon that the
/// daemon hangs. Who does not ask again for five seconds is forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// Its name, id, or the beginning of its id; absent if it has none yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// Its image, if the one who asks knows it. What dockerd tells of the container goes before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether it is a mere start, which is no matter where it runs already; a restart is one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_mere_start: bool,
    /// Its labels, if the one who asks knows them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Who asks, for people: `docker`, `runc`.
    #[serde(default)]
    pub source: String,
    /// From an earlier answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<u64>,
    /// How long it has waited already, in ms, as far as another daemon knew.
    #[serde(default)]
    pub waited_ms: u64,
    /// When an answer is wanted in any case, in ms from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// What is decided about a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartDecision {
    /// It may start.
    Start,
    /// Not yet; ask again with the ticket.
    Wait,
    /// The operator cancelled it.
    Refuse,
}

/// Answer of `POST /v1/starts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartAnswer {
    /// What is decided.
    pub decision: StartDecision,
    /// For the next question.
    pub ticket: u64,
    /// Number of the batch that it starts in; those that start together have the same.
    pub batch: u64,
    /// How long it has waited, in ms.
    pub waited_ms: u64,
    /// Its longest wait, in ms: whoever holds it need not do so for longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<u64>,
    /// Why.
    pub reason: String,
}

/// Body of `DELETE /v1/starts`: what was let go has come to nothing, and keeps nobody waiting any more. The answer says
/// whether it was under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedStart {
    /// As it was asked for.
    pub container: String,
}

/// Answer of `GET /v1/queue`, and each of its events (`Accept: text/event-stream`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// What the starts job may do.
    pub mode: Mode,
    /// Whether the operator holds all starts.
    pub is_held: bool,
    /// Whether requests to disks are traced: on, events (not by eBPF), calls (not, but by
    /// the calls in which tasks wait), off, beginning, or why they cannot be.
    pub trace: String,
    /// Who waits, in the order in which they are looked at.
    pub waiting: Vec<Waiting>,
    /// Who starts.
    pub starting: Vec<Starting>,
    /// Whose starts were over within the last quarter of an hour.
    #[serde(default)]
    pub over: Vec<String>,
    /// Starts since the daemon started, and how many of them waited.
    pub counters: StartCounters,
}

/// Starts since the daemon started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCounters {
    /// Let go.
    pub admitted: u64,
    /// Of these, after waiting.
    pub waited: u64,
    /// Of these, because their longest wait was over.
    pub overdue: u64,
    /// Cancelled by the operator.
    pub cancelled: u64,
    /// Forgotten because nobody asked for them any more.
    pub abandoned: u64,
}

/// A start that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Its ticket.
    pub ticket: u64,
    /// Name of the container.
    pub name: String,
    /// What its starts are like, if that is known.
    pub character: Option<Character>,
    /// How long it has waited, in ms.
    pub waited_ms: u64,
    /// Its longest wait, in ms.
    pub longest_ms: u64,
    /// For what it waits.
    pub reason: String,
    /// For whom it waits.
    pub behind: Vec<String>,
}

/// A start under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starting {
    /// Name of the container.
    pub name: String,
    /// What its starts are like, if that is known.
    pub character: Option<Character>,
    /// How long it has been starting, in ms.
    pub lasted_ms: u64,
    /// Number of its batch.
    pub batch: u64,
    /// Why it was let go.
    pub reason: String,
}

/// Body of `PUT /v1/queue`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum QueueChange {
    /// Lets this one go now.
    Skip(String),
    /// Refuses this one.
    Cancel(String),
    /// Lets everybody go who waits, and holds nobody any more.
    Release,
    /// Holds all starts, each for its longest wait at most.
    Hold,
}

/// A profile under its key: an entry of `GET` and `PUT /v1/profiles`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyedProfile {
    /// Compose service, else image and command, else name.
    pub key: String,
    /// What was learned.
    pub profile: Profile,
}

/// A container that dockerd has, running or not, as far as its start matters: an entry of
/// `GET /v1/containers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownContainer {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: Weight,
    /// What its label `ctlmgr.batch.class` says that it is like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated: Option<Character>,
    /// What was learned of its kind, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// Body of `DELETE /v1/profiles`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// Which profile.
    pub key: String,
}
