//! The daemon: one loop that senses, decides and acts, and owns all state.
//!
//! The loop does no arithmetic and knows no file of the kernel: it wires sensors, policy,
//! actuators, journal and API together, and alone reads the clock.

mod access;
mod api;
mod calm;
mod control;
mod cycle;
mod daemon;
pub mod doctor;
mod gate;
mod gone;
mod history;
mod journald;
pub mod log;
mod notify;
mod obey;
mod overrides;
mod pace;
mod place;
mod places;
mod processors;
mod recorder;
mod step;
mod tasks;
mod traffic;
mod undo;
mod workers;
mod writer;

pub use daemon::run;
pub use places::Places;
pub use undo::{differences, revert};
