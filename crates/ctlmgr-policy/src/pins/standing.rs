//! Who may be pinned, and why not.

use ctlmgr_model::{Knob, PlaceReading, PlaceSettings, Tenant};

use super::NOISE;
use super::state::PinState;

/// How a container stands to being pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It is placed.
    Free,
    /// It has a list of its own, or its parent has one: that counts, and stays.
    Own,
    /// Another writer has set its list while it was ours.
    Yielded,
    /// dockerd has not told of it (yet): it stays as it is.
    Unknown,
    /// Not managed.
    Unmanaged,
    /// Too little is known of it.
    Young,
    /// It talks to nobody, and nothing is asked for it.
    Quiet,
}

impl Standing {
    /// Why it is not pinned.
    pub fn words(self) -> String {
        match self {
            Standing::Free => "no better place was found",
            Standing::Own => "has processors of its own choice, which stay",
            Standing::Yielded => "another writer has set its processors, which stay",
            Standing::Unknown => "dockerd has not told of it",
            Standing::Unmanaged => "not managed",
            Standing::Young => "not watched for long enough yet",
            Standing::Quiet => "talks to no other container: the kernel may run it anywhere",
        }
        .to_owned()
    }
}

/// The standings of all, in their order.
pub(super) fn standings(
    settings: &PlaceSettings,
    state: &PinState,
    reading: &PlaceReading,
) -> Vec<Standing> {
    let mut talks = vec![false; reading.tenants.len()];
    for &(a, b, _) in reading.traffic.iter().filter(|(_, _, rate)| *rate >= NOISE) {
        (talks[a], talks[b]) = (true, true);
    }
    let standing = |(tenant, talks): (&Tenant, bool)| {
        let Some(wish) = &tenant.wish else { return Standing::Unknown };
        let is_asked = talks || wish.exclusive || wish.group.is_some();
        match () {
            () if state.is_yielded(tenant) => Standing::Yielded,
            () if !wish.managed => Standing::Unmanaged,
            () if has_own(state, reading, tenant) => Standing::Own,
            // Whoever is pinned already was known well enough once.
            () if tenant.known_for < settings.learn && !state.is_pinned(tenant) => Standing::Young,
            () if !is_asked && !state.still_talks(tenant, reading.at) => Standing::Quiet,
            () => Standing::Free,
        }
    };
    reading.tenants.iter().zip(talks).map(standing).collect()
}

/// A list that leaves nothing out is none.
fn has_own(state: &PinState, reading: &PlaceReading, tenant: &Tenant) -> bool {
    let online = &reading.topology.online;
    let leaves_out = |list: &ctlmgr_model::Cpus| !online.without(list).is_empty();
    let own = !state.is_pinned(tenant) && !tenant.cpus.is_empty() && leaves_out(&tenant.cpus);
    own || leaves_out(&tenant.allowed) || has_own_memory(state, reading, tenant)
}

fn has_own_memory(state: &PinState, reading: &PlaceReading, tenant: &Tenant) -> bool {
    let mut nodes = reading.topology.domains.iter().map(|d| d.numa);
    let is_ours = state.prior(tenant, Knob::CpusetMems).is_some();
    !is_ours && !tenant.mems.is_empty() && nodes.any(|node| !tenant.mems.contains(node))
}
