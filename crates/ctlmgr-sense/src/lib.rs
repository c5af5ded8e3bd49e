//! Sensors: what the kernel and dockerd say, as one [`Snapshot`](ctlmgr_model::Snapshot).
//!
//! Nothing here writes a knob (arming a PSI trigger is a subscription, not a knob). What cannot be
//! read is a gap in the snapshot; what vanished is simply not in it.

mod appear;
mod bystander;
pub mod cgroup;
pub mod docker;
mod facts;
mod kept;
mod machine;
mod oomd;
mod reading;
mod sensor;
mod swap;
mod topology;
mod tree;
mod wake;
mod workload;

pub use appear::{Appearance, watch_appearances};
pub use docker::{Containers, Started, watch_containers};
pub use facts::{HostFacts, facts};
pub use machine::{parse_lru, parse_pressure, parse_watermark};
pub use oomd::watch_oomd;
pub use sensor::{Cpuset, DiskTrace, Glance, Look, Members, Query, Sensor};
pub use topology::read_topology;
pub use wake::{Wake, Wakes};
