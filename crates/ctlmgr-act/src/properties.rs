//! Knob → unit property, without a bus (systemd: org.freedesktop.systemd1(5), resource-control(5)).

use ctlmgr_host::{CgroupDir, HostError};
use ctlmgr_model::{Bytes, Knob, Value};

use crate::actuator::read_file;

/// Name and value of a unit property.
pub type Property = (&'static str, Value);

/// Name and value of the unit property behind a knob; `None` if the system manager has none. Values
/// are bytes, where `u64::MAX` is infinity on both sides, or lists.
pub fn property(knob: Knob, value: &Value) -> Option<Property> {
    let name = match knob {
        Knob::MemoryLow => "MemoryLow",
        Knob::MemoryMin => "MemoryMin",
        Knob::MemoryHigh => "MemoryHigh",
        // The manager freezes by a call of its own, and does not touch what others freeze; and it
        // has no setting for page aging.
        Knob::CgroupFreeze | Knob::LruGen => return None,
        Knob::CpusetCpus => "AllowedCPUs",
        Knob::CpusetMems => "AllowedMemoryNodes",
    };
    Some((name, value.clone()))
}

/// Values of the memory controller that the system manager writes again whenever it sets anything of a
/// unit (seen with AllowedCPUs and CPUWeight, systemd 257), and the files they are in.
///
/// runc writes some of them past the manager (a memory.swap.max of 0, as `docker run
/// --memory-swap` asks for): the manager would put back its own idea, which is no limit.
pub(crate) const BESIDE: [(&str, &str); 5] = [
    ("memory.min", "MemoryMin"),
    ("memory.low", "MemoryLow"),
    ("memory.high", "MemoryHigh"),
    ("memory.max", "MemoryMax"),
    ("memory.swap.max", "MemorySwapMax"),
];

/// What is there of a scope that its manager holds another idea of.
pub(crate) fn beside(
    dir: &CgroupDir,
    held: Option<&[Property]>,
) -> Result<Vec<Property>, HostError> {
    let mut beside = Vec::new();
    for (file, name) in BESIDE {
        let Some(value) = read_file(dir, file)? else { continue };
        // The kernel counts in pages.
        let is_same = |held: Bytes| held == value || held.page_floor() == value;
        let is_held = |(of, held): &Property| *of == name && held.amount().is_some_and(is_same);
        if !held.is_some_and(|held| held.iter().any(is_held)) {
            beside.push((name, value.into()));
        }
    }
    Ok(beside)
}

/// Whether a value of memory is told along with a property of that name.
pub(crate) fn goes_along(name: &str, target: &str, has_reclaim: bool) -> bool {
    let is_of_memory = target.starts_with("Memory");
    match name {
        // Protection of ours may be in force that the manager was not told of, and who writes lists does not note that it was:
        // it writes an older value of ours again, and the next look ours.
        "MemoryLow" | "MemoryMin" => is_of_memory,
        // Without memory.reclaim it may be a dip, which is there for a moment only.
        "MemoryHigh" => is_of_memory || has_reclaim,
        _ => true,
    }
}
