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
//! budget; never from a group at or below its share, nor from spared units on kernels without
//! memory.reclaim, where taking is a limit for a moment; where swap is used up or absent, no more
//! than there is page cache.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_model::{
    Action, Bytes, CapacityAccount, CgroupId, CgroupPath, Group, MemorySettings, Reason, Rung,
    Snapshot, Step,
};

use crate::oomd;
use crate::scene::{Keeping, Scene};

/// An excess smaller than this is noise.
const NOISE: Bytes = Bytes::mib(4);

/// What a party has beyond its share, as far as there is a place for it to go.
fn excess(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> Bytes {
    let excess = keeping.excess().min(scene.takeable(keeping.party.group));
    // Without memory.reclaim whoever is taken from is limited meanwhile.
    let path = &keeping.party.group.path;
    let must_not_be = scene.is_spared(keeping.party) || oomd::is_close(&scene.snapshot.oomd, path);
    let is_limited = !scene.snapshot.host.has_reclaim && must_not_be;
    if excess < NOISE || is_limited || keeping.party.is_untold() { Bytes::ZERO } else { excess }
}

/// The reclaim steps of one cycle.
pub(crate) fn reclaim(scene: &Scene<'_, '_>) -> Vec<Step> {
    let Scene { settings, account, snapshot, .. } = *scene;
    let missing = account.headroom - snapshot.host.mem_free;
    if !account.is_contended() || missing == Bytes::ZERO {
        return Vec::new();
    }
    let wanted = (missing + Bytes(account.headroom.0 / 4)).min(settings.reclaim_per_cycle);
    let targets = targets(scene);
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
fn targets<'s>(scene: &Scene<'_, 's>) -> BTreeMap<CgroupPath, Target<'s>> {
    let Scene { snapshot, all, .. } = *scene;
    let slices = pure_slices(snapshot, all);
    let workloads: BTreeSet<CgroupId> = snapshot.workloads.iter().map(|w| w.group.id).collect();
    let mut targets = BTreeMap::new();
    for keeping in all.iter().filter(|k| excess(scene, k) > Bytes::ZERO) {
        let own = keeping.party.group;
        let parent = own.path.parent().filter(|_| workloads.contains(&own.id));
        let slice = parent.and_then(|path| slices.get(&path).copied());
        let group = slice.unwrap_or(own);
        let target = targets.entry(group.path.clone()).or_insert(Target {
            group,
            excess: Bytes::ZERO,
            on_slice: slice.is_some(),
        });
        target.excess = target.excess + excess(scene, keeping);
    }
    targets
}

/// Slices all of whose memory belongs to managed groups directly below them.
fn pure_slices<'a>(
    snapshot: &'a Snapshot,
    all: &[Keeping<'a, '_>],
) -> BTreeMap<CgroupPath, &'a Group> {
    let mut managed: BTreeMap<CgroupPath, Bytes> = BTreeMap::new();
    for group in all.iter().map(|k| k.party.group) {
        if let Some(parent) = group.path.parent() {
            let sum = managed.entry(parent).or_default();
            *sum = *sum + group.memory.current;
        }
    }
    let is_pure = |slice: &&Group| {
        // Who is not managed, or not told of, has no protection of ours there, spared units included.
        let is_ours = |id| all.iter().any(|k| k.id() == id && !k.party.is_untold());
        let others = snapshot.workloads.iter().map(|w| &w.group).filter(|g| !is_ours(g.id));
        if others.chain(&snapshot.bystanders).any(|g| g.path.is_within(&slice.path)) {
            return false;
        }
        // Nor have small units, and reclaim on the slice would hit them.
        let current = slice.memory.current;
        let rest = current - managed.get(&slice.path).copied().unwrap_or_default();
        // Readings of parent and children are not of the same instant.
        rest <= NOISE.max(Bytes(current.0 / 50))
    };
    let pure = snapshot.ancestors.iter().filter(is_pure);
    pure.map(|slice| (slice.path.clone(), slice)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, group, host, settings};
    use crate::{State, decide};
    use ctlmgr_model::Percent;

    /// What is asked for in all, with this much swap left, and where systemd-oomd kills beyond so much of it.
    fn asked(swap_free: Bytes, swap_limit: Option<Percent>) -> Bytes {
        let mib = Bytes::mib;
        let pair = ["hog", "web"].into_iter().zip([11, 12]).map(|(name, id)| {
            let mut workload = container(name, id, mib(1000), None);
            workload.group.memory.inactive_file = mib(8);
            workload.group.memory.current = mib(1008);
            workload
        });
        let mut snapshot = host(mib(2100), pair.collect(), Vec::new());
        (snapshot.host.swap_free, snapshot.oomd.swap_limit) = (swap_free, swap_limit);
        let (plan, _) = decide(&settings(), State::default(), &snapshot);
        let amounts = plan.steps.iter().filter_map(|s| match s.action {
            Action::Reclaim { amount, .. } => Some(amount),
            _ => None,
        });
        amounts.sum()
    }

    #[test]
    fn spared_units_are_not_limited_where_taking_is_a_limit() {
        let mib = Bytes::mib;
        let asked = |unit: &str, has_reclaim| {
            let web = container("web", 11, mib(1000), Some(mib(1000)));
            let unit = group(&format!("system.slice/{unit}"), 21, mib(1000));
            let mut snapshot = host(mib(2100), vec![web], vec![unit.clone()]);
            snapshot.host.has_reclaim = has_reclaim;
            let (plan, _) = decide(&settings(), State::default(), &snapshot);
            let is_it = |s: &&Step| s.rung == Rung::Reclaim && s.path == unit.path;
            plan.steps.iter().filter(is_it).count()
        };
        assert_eq!((asked("docker.service", true), asked("other.service", false)), (1, 1));
        assert_eq!(asked("docker.service", false), 0);
    }

    #[test]
    fn without_swap_nothing_but_page_cache_is_asked_for() {
        assert!(asked(Bytes::mib(1000), None) > Bytes::mib(48));
        for swap_left in [Bytes::ZERO, Bytes::mib(1)] {
            assert_eq!(asked(swap_left, None), Bytes::mib(16));
        }
    }

    #[test]
    fn swap_is_not_filled_up_to_where_systemd_oomd_kills() {
        // 2100 MiB of swap in all.
        assert!(asked(Bytes::mib(320), Some(Percent(90))) > Bytes::mib(48));
        assert_eq!(asked(Bytes::mib(310), Some(Percent(90))), Bytes::mib(16));
    }
}
