//! Builders for tests in this crate.

use std::collections::BTreeMap;

use ctlmgr_model::*;

use crate::demand::{Look, estimate};
use crate::entitlement::{Entitlement, entitlement};
use crate::verdict::Party;

/// The defaults, with a headroom that is a round part of a host of 1000 MiB.
pub(crate) fn settings() -> Settings {
    let headroom = Headroom::Percent(Percent(3));
    Settings {
        memory: MemorySettings { headroom, ..MemorySettings::default() },
        ..Settings::default()
    }
}

/// A cgroup whose memory is all anonymous and all working set.
pub(crate) fn sample(anon: Bytes) -> MemorySample {
    MemorySample { current: anon, anon, ..MemorySample::default() }
}

pub(crate) fn group(path: &str, id: u64, anon: Bytes) -> Group {
    let activity = Activity { is_populated: true, ..Activity::default() };
    Group { path: CgroupPath::new(path), id: CgroupId(id), memory: sample(anon), activity }
}

/// A container below `a.slice`, with a promise.
pub(crate) fn container(name: &str, id: u64, anon: Bytes, promise: Option<Bytes>) -> Workload {
    let facts = ContainerFacts {
        id: format!("{id:064x}"),
        name: Some(name.into()),
        reservation: promise,
        ..ContainerFacts::default()
    };
    Workload {
        name: WorkloadName(name.into()),
        group: group(&format!("a.slice/docker-{:064x}.scope", id), id, anon),
        source: Source::Container(facts),
    }
}

/// A host of `total` that holds these workloads, 100 MiB of its own and nothing else.
pub(crate) fn host(total: Bytes, workloads: Vec<Workload>, bystanders: Vec<Group>) -> Snapshot {
    let held: Bytes = workloads.iter().map(|w| w.group.memory.current).sum();
    let beside: Bytes = bystanders.iter().map(|g| g.memory.current).sum();
    let free = total - held - beside - Bytes::mib(100);
    Snapshot {
        at: Millis(10_000),
        host: HostSample {
            mem_total: total,
            mem_free: free,
            watermark: Bytes::ZERO,
            listed_free: Bytes::ZERO,
            mem_available: free,
            reclaimable_cache: Bytes::ZERO,
            stolen: None,
            swap_total: total,
            swap_free: total,
            zram: None,
            pressure: None,
            lru: Some(LruFlavour::Mglru),
            io_pressure: None,
            cpu_pressure: None,
            cpus: None,
            lru_gen: Some(7),
            has_reclaim: true,
        },
        ancestors: vec![group("a.slice", 1, held)],
        above_bystanders: Vec::new(),
        workloads,
        bystanders,
        dead: BTreeMap::new(),
        oomd: Oomd::default(),
        is_mixed: false,
        gaps: Vec::new(),
    }
}

/// At one that was not promised anything, with idle processors.
pub(crate) fn look(at: Millis, memory: &MemorySample, seen: Activity) -> Look<'_> {
    Look {
        at,
        memory,
        seen,
        prices: crate::price::Prices::default(),
        promise: None,
        is_new: false,
        is_kept: true,
        contended_ago: None,
        goes_soon: false,
        says_cache: true,
    }
}

/// A managed party with this stall (in permille) and weight.
pub(crate) fn party(workload: &Workload, stall: Option<u16>, weight: u16) -> Party<'_> {
    let settings = Settings::default();
    let group = &workload.group;
    let (memory, seen) = (&group.memory, group.activity);
    let mut estimate = estimate(&settings.memory, None, &look(Millis(0), memory, seen));
    estimate.stall.ppm = stall.map(|permille| u32::from(permille) * 1000);
    let weight = Weight::new(i64::from(weight)).expect("a weight between 1 and 10000");
    let entitlement = Entitlement { weight, ..entitlement(&settings, workload) };
    let name = workload.name.clone();
    let kind = VerdictKind::Workload;
    Party { name, kind, group, workload: Some(workload), entitlement, estimate, owed: Bytes::ZERO }
}

/// A rule that gives workloads of this name a floor.
pub(crate) fn floor_of(name: &str, floor: Bytes) -> Rule {
    let pattern = glob::Pattern::new(name).expect("a pattern");
    Rule {
        selector: Selector { field: SelectorField::Name, pattern },
        effect: RuleEffect { floor: Some(floor), ..RuleEffect::default() },
        origin: Origin { file: "t".into(), line: 1 },
    }
}
