//! The placement job: its settings, what it sees, and what it decides.

use serde::{Deserialize, Serialize};

use crate::{
    CgroupId, CgroupPath, Cpus, Millis, Mode, Percent, Reason, Step, Topology, WorkloadName,
};

/// When the traffic of containers is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountTraffic {
    /// Where there are several domains to choose from, and placement is not off.
    #[default]
    Auto,
    /// In any case.
    On,
    /// Never.
    Off,
}

/// Settings of the placement job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlaceSettings {
    /// What the job may do.
    pub mode: Mode,
    /// When the traffic of containers is counted.
    pub traffic: CountTraffic,
    /// A move must pay for itself within this time.
    pub horizon: Millis,
    /// Who was moved stays for this time, unless it lacks processors.
    pub cool_down: Millis,
    /// Nobody is placed before it was watched for this long.
    pub learn: Millis,
    /// Up to this part of its processors a domain may be filled whatever the others carry.
    pub fill: Percent,
    /// Whether memory follows to the nodes of the domains (`cpuset.mems`), which moves it.
    pub memory: bool,
}

impl Default for PlaceSettings {
    fn default() -> Self {
        PlaceSettings {
            mode: Mode::Observe,
            traffic: CountTraffic::Auto,
            horizon: Millis(600_000),
            cool_down: Millis(600_000),
            learn: Millis(120_000),
            fill: Percent(70),
            memory: false,
        }
    }
}

/// Processor time that a workload used over its history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuUse {
    /// How often the use was in each step of the scale; old ones fade.
    pub steps: Vec<u32>,
    /// How often it was looked at in all.
    pub samples: u64,
    /// When it was last looked at, seconds since 1970.
    pub learned_unix: u64,
}

/// What is asked for a workload's place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceWish {
    /// Whether ctlmgr may place it at all.
    pub managed: bool,
    /// Those of the same group are to be on the same domain.
    pub group: Option<String>,
    /// Nobody else is to be on its domain.
    pub exclusive: bool,
}

/// A workload that runs, as far as its place is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name.
    pub name: WorkloadName,
    /// Its cgroup.
    pub path: CgroupPath,
    /// Which one that is.
    pub id: CgroupId,
    /// Processors that it keeps busy, in thousandths; a mean in which the last minute counts for half.
    pub use_milli: u64,
    /// What it stays below for 95 % of the time.
    pub peak_milli: u64,
    /// For how long it has been watched.
    pub known_for: Millis,
    /// `cpuset.cpus`, as read; empty is what the parent has.
    pub cpus: Cpus,
    /// `cpuset.mems`, as read.
    pub mems: Cpus,
    /// What the parent has (`cpuset.cpus.effective`).
    pub allowed: Cpus,
    /// What is asked for; absent while dockerd has not told of it.
    pub wish: Option<PlaceWish>,
}

/// What the placement job saw at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceReading {
    /// Monotonic time of it.
    pub at: Millis,
    /// The processors.
    pub topology: Topology,
    /// Containers that run.
    pub tenants: Vec<Tenant>,
    /// Bytes per second between two of them, by their places in the list.
    pub traffic: Vec<(usize, usize, u64)>,
}

/// What was decided about one workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceVerdict {
    /// Who.
    pub name: WorkloadName,
    /// Where it is to run; absent where that is left to the kernel or to others.
    pub cpus: Option<Cpus>,
    /// Processors that it uses, in thousandths.
    pub use_milli: u64,
    /// What it stays below for 95 % of the time.
    pub peak_milli: u64,
    /// Bytes per second with other containers.
    pub talks_per_sec: u64,
    /// Of these, bytes per second that stay on its domain.
    pub near_per_sec: u64,
    /// The rule in words.
    pub reason: Reason,
}

/// The result of one decision about places.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacePlan {
    /// Time of the reading it was made from.
    pub at: Millis,
    /// One per container, by name.
    pub verdicts: Vec<PlaceVerdict>,
    /// What to do.
    pub steps: Vec<Step>,
    /// Bytes · distance per second as it is.
    pub cut_now: u64,
    /// The same as planned.
    pub cut_planned: u64,
    /// What the moves cost, in bytes · distance, once.
    pub cost: u64,
    /// What it comes to, in words.
    pub note: String,
}
