//! Knob → unit property, without a bus (systemd: org.freedesktop.systemd1(5), resource-control(5)).

use ctlmgr_model::{Bytes, Knob};

/// Name and value of the unit property behind a knob. Values are bytes; `u64::MAX` is infinity
/// on both sides.
pub fn property(knob: Knob, value: Bytes) -> (&'static str, u64) {
    let name = match knob {
        Knob::MemoryLow => "MemoryLow",
        Knob::MemoryMin => "MemoryMin",
        Knob::MemoryHigh => "MemoryHigh",
    };
    (name, value.0)
}
