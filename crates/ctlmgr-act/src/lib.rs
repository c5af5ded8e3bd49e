//! Actuators: a [`Step`](ctlmgr_model::Step) in, an [`Outcome`](ctlmgr_model::Outcome) out.
//!
//! Nothing is chosen here: target, value and order are in the step. Slow values of cgroups that
//! the system manager keeps go over D-Bus, because its next write would undo ours; everything else
//! goes to the file. A step whose cgroup is not the one it was made for is dropped.

mod actuator;
mod dip;
mod host_knob;
mod properties;
mod stop;
mod systemd;

pub use actuator::{Actuator, Ask, RECLAIM_TIME};
pub use dip::Dip;
pub use properties::{Property, property};
pub use stop::Stopper;
pub use systemd::{SystemdBus, UnitError, UnitProperties};
