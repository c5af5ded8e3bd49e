//! What the sensors would see of a set.

use ctlmgr_model::{
    Activity, Bytes, CgroupId, CgroupPath, ContainerFacts, Group, Io, Limit, MemorySample, Source,
    Workload, WorkloadName,
};

use crate::set::Set;

/// The slice that holds the managed sets.
pub(crate) const SLICE: &str = "ctlmgr.slice";

/// The cgroup of the set at this place.
pub(crate) fn id(index: usize) -> CgroupId {
    CgroupId(index as u64 + 100)
}

/// A managed set, as dockerd and the kernel show it.
pub(crate) fn workload(index: usize, set: &Set) -> Workload {
    let container = format!("{index:064x}");
    let label = match &set.class {
        Some(class) => ("ctlmgr.class".to_owned(), class.clone()),
        None => ("ctlmgr.weight".to_owned(), set.weight.to_string()),
    };
    let facts = ContainerFacts {
        id: container.clone(),
        name: Some(set.name.clone()),
        labels: [label].into_iter().collect(),
        reservation: set.promise,
        ..ContainerFacts::default()
    };
    Workload {
        name: WorkloadName(set.name.clone()),
        source: Source::Container(facts),
        group: group(&format!("{SLICE}/docker-{container}.scope"), id(index), set),
    }
}

/// Its cgroup.
pub(crate) fn group(path: &str, id: CgroupId, set: &Set) -> Group {
    let memory = MemorySample {
        low: set.low,
        min: set.min,
        swap: set.in_swap(),
        refault_anon: if set.is_files { 0 } else { set.refaults },
        refault_file: if set.is_files { set.refaults } else { 0 },
        activate_file: if set.is_files { set.activated } else { 0 },
        stolen: Some(set.stolen),
        high: if set.high.0 == u64::MAX { Limit::Max } else { Limit::Bytes(set.high) },
        pressure: Some(set.pressure()),
        inactive_file: set.page_cache(),
        current: set.resident,
        locked: set.locked.min(set.resident),
        ..memory(set.resident - set.page_cache())
    };
    let (is_frozen, is_to_freeze) = (set.stands_still(), set.is_frozen);
    // Nobody waits for a processor here.
    let (cpu_wait_usec, cpu_wait_full_usec) = (Some(0), Some(0));
    let paged = if set.is_files { set.refaults } else { 0 };
    let read = set.scanned + Bytes(paged * Bytes::PAGE.0);
    let reads = (set.scanned.0 >> 17) + paged;
    let io = Io { cpu_usec: set.cpu_usec, read, reads, ..Io::default() };
    let (is_populated, rest) = (true, Activity::default());
    let activity = Activity {
        io,
        is_populated,
        is_frozen,
        is_to_freeze,
        cpu_wait_usec,
        cpu_wait_full_usec,
        ..rest
    };
    Group { path: CgroupPath::new(path), id, memory, activity }
}

/// A cgroup with this much anonymous memory and nothing else.
pub(crate) fn memory(anon: Bytes) -> MemorySample {
    MemorySample { current: anon, anon, ..MemorySample::default() }
}
