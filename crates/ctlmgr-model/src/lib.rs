//! The words of ctlmgr.
//!
//! Every other crate speaks in these types. The data flow is
//! `Snapshot` + `Settings` → decide → `Plan` of `Step`s → outcomes; nothing here performs I/O,
//! reads a clock or knows a file name.

mod account;
mod disk;
mod group;
mod knob;
mod oomd;
mod place;
mod plan;
mod quantity;
mod saved;
mod selector;
mod settings;
mod snapshot;
mod start;
mod topology;
mod value;
mod workload;

pub use account::{CapacityAccount, SliceAccount};
pub use disk::{DISKS, Disk, Disks, Io, Moved, Requests, SIZES, Shape};
pub use group::{Activity, CgroupId, CgroupPath, Group, Keeper, Limit, MemoryEvents, MemorySample};
pub use knob::Knob;
pub use oomd::{Oomd, Watched};
pub use place::{
    CountTraffic, CpuUse, PlacePlan, PlaceReading, PlaceSettings, PlaceVerdict, PlaceWish, Tenant,
};
pub use plan::{
    Action, Bound, Doing, Heeding, Outcome, Plan, Reason, Rung, Step, Stoppable, Telling, Verdict,
    VerdictKind,
};
pub use quantity::{Bytes, BytesError, Millis, Percent, Weight, WeightError};
pub use saved::{Saved, Undone};
pub use selector::{Selector, SelectorField};
pub use settings::{
    Bystanders, ClassName, Controller, Headroom, MemorySettings, Mode, OnOverride, Origin,
    PageAging, Rule, RuleEffect, Settings,
};
pub use snapshot::{Gap, HostSample, LruFlavour, Pressure, PressureLine, Snapshot, Zram};
pub use start::{
    Character, CharacterError, DiskTracing, PairPenalty, Profile, Running, StartSettings,
};
pub use topology::{CacheDomain, Cpus, CpusError, Shared, Topology};
pub use value::Value;
pub use workload::{ContainerFacts, Remembered, Source, Workload, WorkloadName};
