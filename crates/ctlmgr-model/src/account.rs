//! How much there is to share out, and how much is asked for.

use serde::{Deserialize, Serialize};

use crate::{Bytes, CgroupPath};

/// How the capacity was computed: total − host − headroom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityAccount {
    /// `MemTotal`.
    pub total: Bytes,
    /// Used by the kernel and by small units: not ours to share out.
    pub host: Bytes,
    /// Kept free.
    pub headroom: Bytes,
    /// What is shared out.
    pub capacity: Bytes,
    /// What is asked for.
    pub demand: Bytes,
}

impl CapacityAccount {
    /// Whether more is asked for than there is.
    pub fn is_contended(&self) -> bool {
        self.demand > self.capacity
    }

    /// Whether contention is so near that a burst could bring it about: demand above four fifths
    /// of the capacity.
    pub fn is_near_contention(&self) -> bool {
        self.demand.0 / 4 > self.capacity.0 / 5
    }
}

/// A slice with a limit of its own, and what those below it ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceAccount {
    /// Which slice.
    pub path: CgroupPath,
    /// What those below it can hold: its limit, less what the kernel and others hold there.
    pub most: Bytes,
    /// What is shared out of that.
    pub capacity: Bytes,
    /// What is asked for there, as far as slices further in let it through.
    pub demand: Bytes,
}

impl SliceAccount {
    /// Whether more is asked for than it may share out.
    pub fn is_full(&self) -> bool {
        self.demand > self.capacity
    }

    /// Whether a cgroup lies below it.
    pub fn holds(&self, path: &CgroupPath) -> bool {
        *path != self.path && path.is_within(&self.path)
    }

    /// Whether a cgroup lies below it, and it is full: what that one lacks is not to be had elsewhere.
    pub fn holds_back(&self, path: &CgroupPath) -> bool {
        self.is_full() && self.holds(path)
    }
}
