//! Fakes and a simulated kernel, for tests only.

mod kernel;
mod seen;
mod set;
mod tree;

pub use kernel::{Kernel, Lru, outcome};
pub use set::Set;
pub use tree::FakeHost;
