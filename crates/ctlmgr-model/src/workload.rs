//! What ctlmgr manages.

// Data only: nothing is connected here.
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Group};

/// The name an operator uses: container name, else unit name, else short id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkloadName(pub String);

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What dockerd knows about a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFacts {
    /// Full id, 64 hex digits.
    pub id: String,
    /// Name without the leading slash.
    pub name: Option<String>,
    /// Image reference.
    pub image: Option<String>,
    /// What runs in it: entry point and arguments, as far as dockerd told.
    /// It may hold secrets, so it is not written anywhere.
    #[serde(skip)]
    pub command: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// `--memory-reservation`, a promise made by the user.
    pub reservation: Option<Bytes>,
    /// Whether the user has paused it.
    #[serde(default)]
    pub is_paused: bool,
    /// Whether a signal was sent to it since it started; it may be about to end.
    #[serde(default)]
    pub was_signalled: bool,
    /// Addresses in its networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Whether its health check says that it is well.
    #[serde(default)]
    pub is_healthy: bool,
    /// Whether it runs, as far as dockerd has told.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_running: bool,
    /// Whether it is dockerd's, and dockerd has not told of it: nothing but its id is known.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_untold: bool,
    /// Whether it is dockerd's, which does not answer: what is known of it may be of before it was started anew.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_unheard: bool,
    /// Whether it is dockerd's, which answers and has not told that it runs: its runtime may be setting its cgroup up.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_unstarted: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A container that was seen, for when dockerd cannot be asked about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Key of its profile, which its command is a part of.
    pub key: String,
    /// What dockerd said of it.
    pub facts: ContainerFacts,
}

/// Where a workload comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A container; what dockerd does not tell (yet) is empty.
    Container(ContainerFacts),
    /// A systemd unit chosen by configuration.
    Unit(String),
}

/// A container or unit together with its cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Its name.
    pub name: WorkloadName,
    /// Where it comes from.
    pub source: Source,
    /// Its cgroup.
    pub group: Group,
}

impl Workload {
    /// A container that does not run yet, so that no cgroup is there.
    pub fn unstarted(facts: ContainerFacts) -> Workload {
        let short = || facts.id.chars().take(12).collect();
        let name = WorkloadName(facts.name.clone().unwrap_or_else(short));
        Workload { name, source: Source::Container(facts), group: Group::absent() }
    }

    /// A label of the container, if it is one and has it.
    pub fn label(&self, key: &str) -> Option<&str> {
        match &self.source {
            Source::Container(facts) => facts.labels.get(key).map(String::as_str),
            Source::Unit(_) => None,
        }
    }

    /// The compose project, if any.
    pub fn project(&self) -> Option<&str> {
        self.label("com.docker.compose.project")
    }

    /// The image, if it is a container.
    pub fn image(&self) -> Option<&str> {
        match &self.source {
            Source::Container(facts) => facts.image.as_deref(),
            Source::Unit(_) => None,
        }
    }

    /// The unit, if it is one.
    pub fn unit(&self) -> Option<&str> {
        match &self.source {
            Source::Unit(unit) => Some(unit),
            Source::Container(_) => None,
        }
    }
}
