//! Fakes and a simulated kernel, for tests only.

mod kernel;
mod tree;

pub use kernel::{Kernel, Lru, Set};
pub use tree::FakeHost;
