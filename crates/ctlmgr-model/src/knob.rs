//! Files of the kernel that ctlmgr may leave a value in.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Value};

/// A file of a cgroup, or of the host, that ctlmgr may leave a value in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Knob {
    /// Best-effort protection.
    #[serde(rename = "memory.low")]
    MemoryLow,
    /// Hard protection.
    #[serde(rename = "memory.min")]
    MemoryMin,
    /// Allocations beyond it are slowed down.
    #[serde(rename = "memory.high")]
    MemoryHigh,
    /// Processes stand still: [`Knob::STILL`], or run: zero. Not an amount, but a number like them.
    #[serde(rename = "cgroup.freeze")]
    CgroupFreeze,
    /// Page aging of the whole host: the mask of MGLRU's parts that are on, or zero for the classic
    /// lists. Its cgroup is the root.
    #[serde(rename = "lru_gen")]
    LruGen,
    /// Processors that the workload may run on. Empty is those of the parent.
    #[serde(rename = "cpuset.cpus")]
    CpusetCpus,
    /// Nodes that it may take memory from. Empty is those of the parent.
    #[serde(rename = "cpuset.mems")]
    CpusetMems,
}

impl Knob {
    /// Every knob of a cgroup that the memory job may leave a value in.
    pub const OF_CGROUP: [Knob; 4] =
        [Knob::MemoryLow, Knob::MemoryMin, Knob::MemoryHigh, Knob::CgroupFreeze];
    /// Every one that the placement job may.
    pub const OF_PLACE: [Knob; 2] = [Knob::CpusetCpus, Knob::CpusetMems];
    /// Those that protect, and are covered by ancestors.
    pub const PROTECTION: [Knob; 2] = [Knob::MemoryLow, Knob::MemoryMin];
    /// What `cgroup.freeze` holds while processes stand still.
    pub const STILL: Bytes = Bytes(1);

    /// File name in a cgroup directory, or the name of what the host has once.
    pub const fn file(self) -> &'static str {
        match self {
            Knob::MemoryLow => "memory.low",
            Knob::MemoryMin => "memory.min",
            Knob::MemoryHigh => "memory.high",
            Knob::CgroupFreeze => "cgroup.freeze",
            Knob::LruGen => "lru_gen",
            Knob::CpusetCpus => "cpuset.cpus",
            Knob::CpusetMems => "cpuset.mems",
        }
    }

    /// Whether it holds a list; all others hold a number.
    pub const fn is_list(self) -> bool {
        matches!(self, Knob::CpusetCpus | Knob::CpusetMems)
    }

    /// Path of the file that the host has once; `None` for a file of a cgroup.
    pub const fn host_file(self) -> Option<&'static str> {
        match self {
            // Kernel: admin-guide/mm/multigen_lru.rst.
            Knob::LruGen => Some("sys/kernel/mm/lru_gen/enabled"),
            _ => None,
        }
    }

    /// A value of this knob, in words.
    pub fn words(self, value: impl Into<Value>) -> String {
        match (self, value.into()) {
            (Knob::CgroupFreeze, Value::Amount(Knob::STILL)) => "frozen".to_owned(),
            (Knob::CgroupFreeze, _) => "running".to_owned(),
            (Knob::LruGen, Value::Amount(Bytes::ZERO)) => "classic lists".to_owned(),
            (Knob::LruGen, Value::Amount(Bytes(mask))) => format!("MGLRU ({mask:#x})"),
            (_, Value::Amount(Bytes(u64::MAX))) => "max".to_owned(),
            (_, Value::List(list)) if list.is_empty() => "all".to_owned(),
            (_, value) => value.to_string(),
        }
    }

    /// The knob with this file name.
    pub fn from_file(name: &str) -> Option<Knob> {
        let all = Knob::OF_CGROUP.into_iter().chain(Knob::OF_PLACE).chain([Knob::LruGen]);
        all.into_iter().find(|k| k.file() == name)
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.file())
    }
}
