//! Deciding: `decide(settings, state, snapshot) → (plan, state')`.
//!
//! No I/O, no clock, no randomness, no log: the same input gives the same bytes. The daemon,
//! dry run, replay and simulation all call the same function; only what follows differs.

mod aging;
pub mod batching;
mod cache;
mod cache_probe;
mod capacity;
pub mod check;
mod claim;
mod complaint;
mod cover;
pub mod cpu_use;
mod crowding;
mod demand;
mod dividing;
mod entitlement;
mod fade;
mod feedback;
mod floors;
mod freed;
mod freeze;
pub mod gate;
mod hard;
mod harden;
mod heat;
mod heed;
mod keeping;
mod kill;
mod labels;
mod ladder;
mod lent;
mod linear;
mod making;
mod memory;
pub mod nested;
mod oomd;
mod order;
pub mod pins;
pub mod placement;
mod price;
mod probe;
mod progress;
mod reclaim;
pub mod replay;
mod room;
mod scene;
mod sequence;
pub mod share;
mod stall;
mod state;
mod swap;
mod telling;
#[cfg(test)]
mod testing;
mod throttle;
mod toll;
mod turns;
mod units;
mod used_up;
mod verdict;
mod waiting;
mod work;

pub use check::{Violation, check};
pub use entitlement::{Entitlement, entitlement};
pub use memory::decide;
pub use state::State;
pub use swap::warning as swap_warning;
