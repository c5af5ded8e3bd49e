//! What cgroup v2 files do not tell, seen by eBPF programs in the kernel, by its event tracing, or in /proc.
//!
//! [`DiskTrace`] counts the requests of each cgroup to each disk: their size, whether they lie side by
//! side, how long they take. [`TrafficTrace`] counts the bytes that each cgroup sends to each address. They
//! need Linux 5.8, the former with BTF (`/sys/kernel/btf/vmlinux`) and the io controller, and `CAP_BPF` with
//! `CAP_PERFMON` and `CAP_NET_ADMIN`, or `CAP_SYS_ADMIN`. Nothing is pinned: when the process ends, the
//! programs go.
//!
//! [`EventTrace`] is for where the former cannot be, and [`CallTrace`], which sees no requests but the system
//! calls in which tasks wait, for where neither can.

mod call;
mod calls;
#[cfg(feature = "ebpf")]
mod disk;
mod events;
mod line;
#[cfg(feature = "ebpf")]
mod load;
mod runs;
#[cfg(feature = "ebpf")]
mod traffic;

pub use calls::CallTrace;
#[cfg(feature = "ebpf")]
pub use disk::DiskTrace;
pub use events::EventTrace;
#[cfg(feature = "ebpf")]
pub use load::TraceError;
#[cfg(feature = "ebpf")]
pub use traffic::{Sent, TrafficTrace};
