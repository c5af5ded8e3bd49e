//! Control groups as the sensors see them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Io, Pressure};

/// The inode of a cgroup directory. Paths are used again by later cgroups, ids are not while the
/// directory lives, so a step is only carried out when both still match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CgroupId(pub u64);

/// Path of a cgroup below the hierarchy's root, without leading slash; the root itself is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CgroupPath(String);

/// Who owns the knobs of a cgroup, hence through whom they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// The system manager: slow values go over D-Bus, or its next write undoes ours.
    Systemd,
    /// Nobody: the file is the truth (cgroupfs driver, or below a delegated unit).
    File,
}

impl CgroupPath {
    /// From a path below the root; surrounding slashes are dropped.
    pub fn new(path: &str) -> CgroupPath {
        CgroupPath(path.trim_matches('/').to_owned())
    }

    /// The text, without leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the root of the hierarchy.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Last component.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or("")
    }

    /// The parent; `None` for the root.
    pub fn parent(&self) -> Option<CgroupPath> {
        if self.is_root() {
            return None;
        }
        Some(CgroupPath(self.0.rsplit_once('/').map_or("", |(up, _)| up).to_owned()))
    }

    /// `self/name`.
    #[must_use]
    pub fn child(&self, name: &str) -> CgroupPath {
        if self.is_root() {
            CgroupPath::new(name)
        } else {
            CgroupPath(format!("{}/{name}", self.0))
        }
    }

    /// Parents from the nearest up to, and without, the root.
    pub fn ancestors(&self) -> impl Iterator<Item = CgroupPath> + use<> {
        std::iter::successors(self.parent(), CgroupPath::parent).take_while(|p| !p.is_root())
    }

    /// Whether `self` lies below `other`, or is it.
    pub fn is_within(&self, other: &CgroupPath) -> bool {
        other.is_root()
            || self.0.strip_prefix(&other.0).is_some_and(|r| r.is_empty() || r.starts_with('/'))
    }

    /// The unit name if the system manager keeps this cgroup.
    ///
    /// Below a user manager (`user@1000.service/…`) units belong to another manager, and below a
    /// scope or service to its payload.
    pub fn unit(&self) -> Option<&str> {
        // Whatever lies below anything but slices belongs to another manager or to a payload.
        let is_in_slices = self.ancestors().all(|a| a.name().ends_with(".slice"));
        let name = self.name();
        let is_unit = [".slice", ".scope", ".service"].iter().any(|end| name.ends_with(end));
        (is_unit && is_in_slices).then_some(name)
    }

    /// Whether this is the manager of a user's session, below which that user may do as they like.
    pub fn is_user_manager(&self) -> bool {
        self.name().starts_with("user@") && self.name().ends_with(".service")
    }

    /// Whether it is below the manager of a user's session, where anybody may give a cgroup another's name.
    pub fn is_of_user(&self) -> bool {
        self.ancestors().any(|above| above.is_user_manager())
    }

    /// Who owns the knobs here.
    pub fn keeper(&self) -> Keeper {
        if self.unit().is_some() { Keeper::Systemd } else { Keeper::File }
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

/// A limit that may be absent; the kernel writes it as `max`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// At most this much.
    Bytes(Bytes),
    /// No limit.
    #[default]
    Max,
}

impl Limit {
    /// The number, or `None` where there is no limit.
    pub fn bytes(self) -> Option<Bytes> {
        match self {
            Limit::Bytes(bytes) => Some(bytes),
            Limit::Max => None,
        }
    }
}

/// Counters of `memory.events`, since the cgroup was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEvents {
    /// Reclaimed although below `memory.low`. No loss signal under MGLRU on 6.12.
    pub low: u64,
    /// Went over `memory.high`.
    pub high: u64,
    /// Hit `memory.max`.
    pub max: u64,
    /// Out of memory inside the cgroup.
    pub oom: u64,
    /// Processes killed.
    pub oom_kill: u64,
}

/// The memory controller's files of one cgroup at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySample {
    /// `memory.current`.
    pub current: Bytes,
    /// `memory.swap.current`; zero where swap accounting is absent.
    pub swap: Bytes,
    /// `memory.swap.max`; no limit in recordings from before it was read.
    #[serde(default)]
    pub swap_max: Limit,
    /// `memory.min`, as read.
    pub min: Bytes,
    /// `memory.low`, as read.
    pub low: Bytes,
    /// `memory.high`.
    pub high: Limit,
    /// `memory.max`.
    pub max: Limit,
    /// Anonymous memory.
    pub anon: Bytes,
    /// Page cache used again since it was read.
    pub active_file: Bytes,
    /// Page cache not used again.
    pub inactive_file: Bytes,
    /// Shared memory and tmpfs.
    pub shmem: Bytes,
    /// Kernel memory that reclaim cannot free.
    pub kernel: Bytes,
    /// Kernel memory that reclaim can free (`slab_reclaimable`): names and inodes, and what goes with page cache. None in
    /// recordings from before that was read.
    #[serde(default)]
    pub kernel_cache: Bytes,
    /// Pages that are locked, by mlock(2) for the most part, so that reclaim cannot take them (`unevictable`). None in
    /// recordings from before that was read.
    #[serde(default)]
    pub locked: Bytes,
    /// What of them is page cache, which is on neither of the two lists above.
    #[serde(default)]
    pub locked_file: Bytes,
    /// Swap cache: in memory and in swap at once.
    pub swapcached: Bytes,
    /// Pages of the working set that came back, since the cgroup was made (anonymous).
    pub refault_anon: u64,
    /// The same for page cache.
    pub refault_file: u64,
    /// Those of them that came back so soon that they are of the working set
    /// (`workingset_activate_file`).
    #[serde(default)]
    pub activate_file: u64,
    /// Faults for which a page had to be read, since the cgroup was made (`pgmajfault`); `None` in recordings
    /// from before that was read.
    #[serde(default)]
    pub major_faults: Option<u64>,
    /// Pages that the kernel's background reclaim got of it, since the cgroup was made (`pgsteal_kswapd`); `None` where
    /// the kernel does not count that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen: Option<u64>,
    /// `memory.events`.
    pub events: MemoryEvents,
    /// `memory.pressure`, absent where PSI is off.
    pub pressure: Option<Pressure>,
}

impl MemorySample {
    /// What is in memory and counts as in use: page cache only as far as the kernel holds it for active, or it is locked.
    pub fn working_set(&self) -> Bytes {
        self.anon + self.shmem + self.active_file + self.locked_file + self.kernel
    }

    /// What reclaim cannot take, however much room there is in swap.
    pub fn unreclaimable(&self) -> Bytes {
        (self.kernel + self.locked).min(self.current)
    }

    /// What goes nowhere but to swap.
    pub fn swappable(&self) -> Bytes {
        self.anon + self.shmem - (self.locked - self.locked_file)
    }

    /// How much more of it may go to swap by its own limit; `None` without one.
    pub fn swap_left(&self) -> Option<Bytes> {
        self.swap_max.bytes().map(|most| most - self.swap)
    }

    /// Page cache, shared memory without.
    pub fn page_cache(&self) -> Bytes {
        self.active_file + self.inactive_file
    }
}

/// What a cgroup did since it was made, and how it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// `usage_usec` of `cpu.stat` and, over all devices, `io.stat`.
    #[serde(flatten)]
    pub io: Io,
    /// Time in which a task waited for a disk, in microseconds (`io.pressure`, `some`); absent where
    /// PSI is off.
    #[serde(default)]
    pub disk_wait_usec: Option<u64>,
    /// The same in which all tasks that were not idle waited (`full`).
    #[serde(default)]
    pub disk_wait_full_usec: Option<u64>,
    /// Time in which a task that could run waited for a processor, in microseconds (`cpu.pressure`, `some`); absent where
    /// PSI is off, and before Linux 5.13.
    #[serde(default)]
    pub cpu_wait_usec: Option<u64>,
    /// The same in which all tasks that were not idle waited (`full`).
    #[serde(default)]
    pub cpu_wait_full_usec: Option<u64>,
    /// Whether a process lives here or below (`populated` of `cgroup.events`).
    pub is_populated: bool,
    /// Whether its processes are stopped by the freezer, as `docker pause` does (`frozen`).
    pub is_frozen: bool,
    /// Whether this very cgroup is to be frozen (`cgroup.freeze`); it may take a while.
    #[serde(default)]
    pub is_to_freeze: bool,
}

/// One cgroup in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Where it is.
    pub path: CgroupPath,
    /// Which one it is.
    pub id: CgroupId,
    /// Its memory.
    pub memory: MemorySample,
    /// What it does.
    pub activity: Activity,
}

impl Group {
    /// A cgroup that is not there: id 0, which no cgroup has, and nothing in it.
    pub(crate) fn absent() -> Group {
        let memory = MemorySample::default();
        let activity = Activity::default();
        Group { path: CgroupPath::new(""), id: CgroupId(0), memory, activity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_stop_below_the_root() {
        let path = CgroupPath::new("/a.slice/a-b.slice/x.scope/");
        let up: Vec<_> = path.ancestors().map(|p| p.to_string()).collect();
        assert_eq!(up, ["/a.slice/a-b.slice", "/a.slice"]);
        assert_eq!(CgroupPath::new("").parent(), None);
    }

    #[test]
    fn units_of_the_system_manager_only() {
        let unit = |p: &str| CgroupPath::new(p).unit().map(str::to_owned);
        assert_eq!(unit("system.slice/docker-1.scope").as_deref(), Some("docker-1.scope"));
        assert_eq!(unit("system.slice").as_deref(), Some("system.slice"));
        assert_eq!(unit("user.slice/user-1.slice/user@1.service/docker-1.scope"), None);
        assert_eq!(unit("docker/abc"), None);
        assert_eq!(unit("lxc.payload.x/system.slice"), None, "another machine's manager");
    }

    #[test]
    fn within_compares_components() {
        let a = CgroupPath::new("a");
        assert!(CgroupPath::new("a/b").is_within(&a) && a.is_within(&a));
        assert!(!CgroupPath::new("ab").is_within(&a));
    }
}
