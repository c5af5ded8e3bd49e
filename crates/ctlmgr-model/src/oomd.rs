//! What systemd-oomd watches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{CgroupPath, Percent, Pressure};

/// One cgroup that systemd-oomd watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Part of the last 10 s in which all stood still (`full`) above which it kills
    /// (`ManagedOOMMemoryPressureLimit=`).
    pub limit: Percent,
    /// `memory.pressure` there; absent where it could not be read.
    pub pressure: Option<Pressure>,
}

/// When systemd-oomd kills, by its own account. Nothing where it does not run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Oomd {
    /// Cgroups in which it kills something when all stand still for want of memory for too much of the time
    /// (`ManagedOOMMemoryPressure=`).
    pub watched: BTreeMap<CgroupPath, Watched>,
    /// Part of swap, and of memory, in use above which it kills who has most of it (`SwapUsedLimit=`);
    /// absent where no cgroup is watched for that (`ManagedOOMSwap=`).
    pub swap_limit: Option<Percent>,
}
