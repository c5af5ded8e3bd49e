//! Early reclaim: from those above their share, before the kernel takes from anybody.
//!
//! # Problem
//! Global reclaim under MGLRU on 6.12 largely ignores memory.low. It must not start.
//!
//! # Approach
//! Keep `headroom` free. When memory is contended and free memory falls below the headroom, ask
//! the kernel to reclaim what is missing, plus a quarter, from those above their share. Where a
//! slice holds nothing but managed workloads the request goes to the *slice*, whose reclaim
//! honours the children's memory.low; elsewhere to the cgroup itself, and then only for what it
//! has above its share, because reclaim on a cgroup ignores its own protection.
//!
//! # Properties
//! Nothing without contention; never more in all than missing + a quarter, or than the cycle's
//! budget; never from a group at or below its share.

use std::collections::BTreeMap;

use ctlmgr_model::{
    Action, Bytes, CapacityAccount, CgroupPath, Group, MemorySettings, Reason, Rung, Snapshot, Step,
};

/// An excess smaller than this is noise.
const NOISE: Bytes = Bytes::mib(4);

/// A group and what it may keep.
pub(crate) struct Holding<'a> {
    pub group: &'a Group,
    pub share: Bytes,
}

impl Holding<'_> {
    fn excess(&self) -> Bytes {
        let excess = self.group.memory.current - self.share;
        if excess < NOISE { Bytes::ZERO } else { excess }
    }
}

/// The reclaim steps of one cycle.
pub(crate) fn reclaim(
    settings: &MemorySettings,
    account: &CapacityAccount,
    snapshot: &Snapshot,
    holdings: &[Holding<'_>],
) -> Vec<Step> {
    let missing = account.headroom - snapshot.host.mem_free;
    if !account.is_contended() || missing == Bytes::ZERO {
        return Vec::new();
    }
    let wanted = (missing + Bytes(account.headroom.0 / 4)).min(settings.reclaim_per_cycle);
    let targets = targets(snapshot, holdings);
    let excess: Bytes = targets.values().map(|t| t.excess).sum();
    let mut steps = Vec::new();
    for target in targets.values() {
        let amount = part(wanted.min(excess), target.excess, excess).page_floor();
        if amount > Bytes::ZERO {
            steps.push(target.step(settings, account, snapshot, amount));
        }
    }
    steps
}

/// `whole · of / total`, rounded down.
fn part(whole: Bytes, of: Bytes, total: Bytes) -> Bytes {
    let product = u128::from(whole.0) * u128::from(of.0) / u128::from(total.0.max(1));
    Bytes(u64::try_from(product).unwrap_or(u64::MAX))
}

struct Target<'a> {
    group: &'a Group,
    excess: Bytes,
    on_slice: bool,
}

impl Target<'_> {
    fn step(
        &self,
        settings: &MemorySettings,
        account: &CapacityAccount,
        snapshot: &Snapshot,
        amount: Bytes,
    ) -> Step {
        let whom = if self.on_slice { "its workloads are" } else { "it is" };
        let reason = format!(
            "{} free of {} headroom while {} is asked of {}: {whom} {} above share",
            snapshot.host.mem_free, account.headroom, account.demand, account.capacity, self.excess
        );
        Step {
            path: self.group.path.clone(),
            id: self.group.id,
            action: Action::Reclaim { amount, chunk: settings.reclaim_chunk },
            rung: Rung::Reclaim,
            reason: Reason(reason),
        }
    }
}

/// Whom to ask: pure slices for their workloads, everybody else for themselves.
fn targets<'a>(
    snapshot: &'a Snapshot,
    holdings: &[Holding<'a>],
) -> BTreeMap<CgroupPath, Target<'a>> {
    let mut targets = BTreeMap::new();
    for holding in holdings {
        let slice = pure_slice(snapshot, holdings, holding.group);
        let group = slice.unwrap_or(holding.group);
        let target = targets.entry(group.path.clone()).or_insert(Target {
            group,
            excess: Bytes::ZERO,
            on_slice: slice.is_some(),
        });
        target.excess = target.excess + holding.excess();
    }
    targets.retain(|_, t| t.excess > Bytes::ZERO);
    targets
}

/// The parent, if all it holds belongs to workloads directly below it that ctlmgr manages.
fn pure_slice<'a>(
    snapshot: &'a Snapshot,
    holdings: &[Holding<'a>],
    group: &Group,
) -> Option<&'a Group> {
    let parent = group.path.parent()?;
    if !snapshot.workloads.iter().any(|w| w.group.id == group.id) {
        return None;
    }
    let slice = snapshot.ancestors.iter().find(|a| a.path == parent)?;
    // Unmanaged containers are not among the holdings, and reclaim on the slice would hit them.
    let managed: Bytes = holdings
        .iter()
        .filter(|h| h.group.path.parent().as_ref() == Some(&parent))
        .map(|h| h.group.memory.current)
        .sum();
    // Readings of parent and children are not of the same instant.
    let rest = slice.memory.current - managed;
    (rest <= NOISE.max(Bytes(slice.memory.current.0 / 50))).then_some(slice)
}
