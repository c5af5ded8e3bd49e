//! What the sensors saw at one moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Bytes, CgroupPath, Group, Millis, Oomd, Workload};

/// One line of a PSI file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PressureLine {
    /// Share of the last 10 s lost, in per cent (0–100).
    pub avg10_pct: f32,
    /// Total time lost since boot, in microseconds.
    pub total_usec: u64,
}

impl Eq for PressureLine {}

/// Pressure stall information of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// At least one task stalled.
    pub some: PressureLine,
    /// All non-idle tasks stalled.
    pub full: PressureLine,
}

/// Which page-aging algorithm the kernel runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LruFlavour {
    /// Multi-generational LRU; on 6.12 global reclaim largely ignores `memory.low`.
    Mglru,
    /// Active and inactive lists.
    Classic,
}

/// The machine as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSample {
    /// `MemTotal`; it changes under balloons and hotplug.
    pub mem_total: Bytes,
    /// `MemFree`.
    pub mem_free: Bytes,
    /// Below about this much free memory the kernel reclaims by itself: the zones' high watermarks.
    #[serde(default)]
    pub watermark: Bytes,
    /// Free pages on the lists of processors, which `MemFree` leaves out; since Linux 6.7 up to an eighth of the machine
    /// (`count:` in `/proc/zoneinfo`). None in recordings from before that was read.
    #[serde(default)]
    pub listed_free: Bytes,
    /// `MemAvailable`.
    pub mem_available: Bytes,
    /// Page cache on the file LRU lists: what reclaim gets without swapping.
    pub reclaimable_cache: Bytes,
    /// Pages that the kernel has taken by itself, in the background, since boot (`pgsteal_kswapd`); absent where it
    /// cannot be told.
    #[serde(default)]
    pub stolen: Option<u64>,
    /// `SwapTotal`.
    pub swap_total: Bytes,
    /// `SwapFree`.
    pub swap_free: Bytes,
    /// zram, where pages that leave memory go there next; absent where they go to a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zram: Option<Zram>,
    /// `/proc/pressure/memory`; absent where PSI is off.
    pub pressure: Option<Pressure>,
    /// `/proc/pressure/io`; absent where PSI is off.
    #[serde(default)]
    pub io_pressure: Option<Pressure>,
    /// `some` of `/proc/pressure/cpu`; absent where PSI is off.
    #[serde(default)]
    pub cpu_pressure: Option<PressureLine>,
    /// Processors that are online; absent where it cannot be told.
    #[serde(default)]
    pub cpus: Option<u64>,
    /// Page-aging algorithm; absent where it cannot be told.
    pub lru: Option<LruFlavour>,
    /// Which parts of MGLRU are on, as the kernel writes it; absent where the kernel has none.
    #[serde(default)]
    pub lru_gen: Option<u32>,
    /// Whether memory can be taken from a cgroup without limiting it: memory.reclaim (Linux 5.19).
    #[serde(default = "yes")]
    pub has_reclaim: bool,
}

/// Swap in memory itself, compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zram {
    /// Pages that are there, as they were (`orig_data_size`).
    pub stored: Bytes,
    /// What they take compressed (`compr_data_size`).
    pub used: Bytes,
    /// How much more can go there.
    pub left: Bytes,
}

/// What a recording of before means where it does not say.
fn yes() -> bool {
    true
}

/// Something that could not be read. A gap never tightens anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The sensor, and the path or object it looked at.
    pub what: String,
    /// Why nothing came.
    pub why: String,
}

/// The world at one moment; deciding takes nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Monotonic time of the reading.
    pub at: Millis,
    /// The machine.
    pub host: HostSample,
    /// What ctlmgr manages.
    pub workloads: Vec<Workload>,
    /// Other cgroups of some size: units nobody asked ctlmgr to manage. They have a share too.
    pub bystanders: Vec<Group>,
    /// Ancestors of the workloads, without the root.
    pub ancestors: Vec<Group>,
    /// Ancestors of the bystanders that are none of a workload's, without the root and what a user's manager runs.
    #[serde(default)]
    pub above_bystanders: Vec<Group>,
    /// Page cache that is still on account of each slice for cgroups that were removed from it.
    #[serde(default)]
    pub dead: BTreeMap<CgroupPath, Bytes>,
    /// When systemd-oomd kills.
    #[serde(default)]
    pub oomd: Oomd,
    /// Whether values were being written meanwhile: some may be ours that nobody has told us of yet.
    #[serde(default)]
    pub is_mixed: bool,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

impl Snapshot {
    /// All that have a share: workloads, and units that nobody asked to manage.
    pub fn sharers(&self) -> impl Iterator<Item = &Group> {
        self.workloads.iter().map(|w| &w.group).chain(&self.bystanders)
    }

    /// All that is above somebody.
    pub fn slices(&self) -> impl Iterator<Item = &Group> {
        self.ancestors.iter().chain(&self.above_bystanders)
    }

    /// Every cgroup that was read.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.sharers().chain(self.slices())
    }
}
