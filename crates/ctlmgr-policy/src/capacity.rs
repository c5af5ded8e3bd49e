//! How much memory there is to share out: total − host − headroom (design §5).
//!
//! *Headroom* is what the settings ask for, above the watermark at which the kernel's own reclaim
//! ends. *Host* is what the kernel and units too small to count hold and reclaim cannot give back:
//! used memory that no listed group holds, less the page cache outside of them.

use ctlmgr_model::{Bytes, CapacityAccount, MemorySettings, Snapshot};

/// The account of a snapshot, for `demand` asked in all.
pub(crate) fn account(
    settings: &MemorySettings,
    snapshot: &Snapshot,
    demand: Bytes,
) -> CapacityAccount {
    let host = &snapshot.host;
    let groups = || snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.bystanders);
    let held: Bytes = groups().map(|g| g.memory.current).sum();
    let cache_inside: Bytes = groups().map(|g| g.memory.page_cache()).sum();
    let cache_outside = host.reclaimable_cache - cache_inside;
    let unlisted = host.mem_total - host.mem_free - held - cache_outside;
    // The kernel's own reclaim must stay asleep, so what it keeps free comes on top. More than half
    // of the memory idle is a slip of the pen, not a wish.
    let wanted = settings.headroom.of(host.mem_total) + host.watermark;
    let headroom = wanted.min(Bytes(host.mem_total.0 / 2));
    CapacityAccount {
        total: host.mem_total,
        host: unlisted,
        headroom,
        capacity: host.mem_total - unlisted - headroom,
        demand,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{host, settings};

    #[test]
    fn headroom_lies_above_the_watermark_of_the_kernels_own_reclaim() {
        let mut snapshot = host(Bytes::mib(1000), Vec::new(), Vec::new());
        let of = |s: &Snapshot| account(&settings().memory, s, Bytes::ZERO);
        assert_eq!(of(&snapshot).headroom, Bytes::mib(30));
        snapshot.host.watermark = Bytes::mib(30);
        assert_eq!(of(&snapshot).headroom, Bytes::mib(60));
        assert_eq!(of(&snapshot).capacity, Bytes::mib(1000 - 100 - 60));
        snapshot.host.watermark = Bytes::mib(900);
        assert_eq!(of(&snapshot).headroom, Bytes::mib(500));
    }
}
