//! How much memory there is to share out: total − host − headroom (design §5).
//!
//! *Host* is what the kernel and units too small to count hold and reclaim cannot give back:
//! used memory that no listed group holds, less the page cache outside of them.

use ctlmgr_model::{Bytes, CapacityAccount, Group, MemorySettings, Snapshot};

/// The account of a snapshot, for `demand` asked in all.
pub(crate) fn account(
    settings: &MemorySettings,
    snapshot: &Snapshot,
    demand: Bytes,
) -> CapacityAccount {
    let host = &snapshot.host;
    let groups = || snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.bystanders);
    let held: Bytes = groups().map(|g| g.memory.current).sum();
    let cache_inside: Bytes = groups().map(file_cache).sum();
    let cache_outside = host.reclaimable_cache - cache_inside;
    let unlisted = host.mem_total - host.mem_free - held - cache_outside;
    // More than half of the memory idle is a slip of the pen, not a wish.
    let headroom = settings.headroom.of(host.mem_total).min(Bytes(host.mem_total.0 / 2));
    CapacityAccount {
        total: host.mem_total,
        host: unlisted,
        headroom,
        capacity: host.mem_total - unlisted - headroom,
        demand,
    }
}

fn file_cache(group: &Group) -> Bytes {
    group.memory.active_file + group.memory.inactive_file
}
