//! Early reclaim: from those above their share, before the kernel takes from anybody.
//!
//! # Problem
//! Global reclaim under MGLRU on 6.12 largely ignores memory.low. It must not start.
//!
//! # Approach
//! Keep `headroom` free. When memory is contended and free memory falls below the headroom, ask
//! the kernel to reclaim what is missing, plus a quarter of what the settings want free beside the kernel's watermark, plus what those below their shares have
//! back in a second, from those above their share. Where a
//! slice holds nothing but managed workloads the request goes to the *slice*, whose reclaim
//! honours the children's memory.low, if their shares are protected whole ([`crate::room`]); elsewhere to the cgroup itself, and then only for what it
//! has above its share, because reclaim on a cgroup ignores its own protection. Where memory.low is heeded background reclaim
//! takes from whoever is above that all the time, and not once a second; so who is as little above its share as background
//! reclaim may take it below is left to it.
//!
//! Without contention memory can be short all the same: a scan fills it with page cache that nobody needs, which is no
//! demand. Where the kernel takes by itself then (*swept*, see [`crate::scene`]) the same is asked for, page cache only, from
//! those themselves that hold more than they need and were promised, before limits are written. Where free memory is in
//! pieces the kernel takes although there is more of it than headroom; then a quarter of the headroom is asked for at each look that sees it.
//!
//! # Properties
//! Nothing without contention but page cache, and that only while the host is swept; never more in all than missing + a quarter of the headroom (or [`NOISE`]) + what workloads below their shares are owed and have back in a second, or than
//! the cycle's budget; never from a group at or below its share and its room ([`crate::room`]), nor from spared units on kernels without
//! memory.reclaim, where taking is a limit for a moment; never from who stands still where systemd-oomd could kill soon
//! ([`crate::oomd`]); where swap is used up or absent, no more
//! than there is page cache.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_model::{
    Action, Bytes, CapacityAccount, CgroupId, CgroupPath, Group, MemorySettings, Reason, Rung,
    Snapshot, Step, Telling, VerdictKind,
};

use crate::crowding::crowd;
use crate::keeping::Keeping;
use crate::oomd;
use crate::scene::Scene;
use crate::throttle::stands_still;

/// An excess smaller than this is noise.
pub(crate) const NOISE: Bytes = Bytes::mib(4);

/// What a party has beyond its share, as far as there is a place for it to go; of a host that is swept, page cache only.
fn excess(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> Bytes {
    let excess = match scene.account.is_contended() {
        true => (keeping.excess() - keeping.open()).min(scene.takeable(keeping.party.group)),
        false => crowd(keeping.party),
    };
    let group = keeping.party.group;
    let is_close = oomd::is_close(&scene.snapshot.oomd, &group.path);
    // Without memory.reclaim whoever is taken from is limited meanwhile.
    let is_limited =
        !scene.snapshot.host.has_reclaim && (scene.is_spared(keeping.party) || is_close);
    // It would wait for what is taken, and be the one that systemd-oomd kills.
    let is_in_danger = is_close && stands_still(scene, group);
    let is_being_made = scene.state.making.has(group, scene.snapshot.at);
    let must_not_be = is_limited || is_in_danger || is_being_made || keeping.party.is_untold();
    if excess < NOISE || must_not_be { Bytes::ZERO } else { excess }
}

/// The reclaim steps of one cycle.
pub(crate) fn reclaim(scene: &Scene<'_, '_>) -> Vec<Step> {
    let Scene { settings, account, snapshot, .. } = *scene;
    let missing = account.headroom - snapshot.host.mem_free;
    let is_due = match account.is_contended() {
        true => true,
        // A limit for a moment would not tell page cache from other memory.
        false => scene.is_swept() && snapshot.host.has_reclaim,
    };
    if !is_due || (missing == Bytes::ZERO && !scene.is_being_robbed()) {
        return Vec::new();
    }
    // A little more, so that not each look asks for a little. Page cache that nobody needs costs nothing; of anything else
    // what the kernel itself keeps free is no measure.
    let own = settings.headroom.of(account.total).min(account.headroom);
    let whole = if account.is_contended() { own } else { account.headroom };
    let more = Bytes(whole.0 / 4).max(NOISE) + coming_back(scene);
    let wanted = (missing + more).min(settings.reclaim_per_cycle);
    let targets = targets(scene);
    let excess: Bytes = targets.values().map(|t| t.excess).sum();
    // What is neither page cache nor has room in swap cannot be had.
    let givers = scene.all.iter().filter(|k| self::excess(scene, k) > Bytes::ZERO);
    let cache: Bytes = givers.map(|k| k.party.group.memory.page_cache()).sum();
    let dead: Bytes = targets.values().map(|t| t.dead).sum();
    let wanted = wanted.min(excess).min(cache + dead + scene.swap_left());
    let mut steps = Vec::new();
    for target in targets.values() {
        let amount = part(wanted, target.excess, excess).page_floor();
        if amount > Bytes::ZERO {
            steps.push(target.step(settings, account, snapshot, amount));
        }
    }
    steps
}

/// What workloads below their shares will have back in the next second, as far as they are owed it: taken from nobody by
/// then, the kernel would take it from anybody.
fn coming_back(scene: &Scene<'_, '_>) -> Bytes {
    let is_meant = |k: &&Keeping<'_, '_>| {
        // What a limited slice has not is of no help from elsewhere.
        let is_held = scene.is_in_limited_slice(k.party.group);
        scene.account.is_contended() && k.party.kind == VerdictKind::Workload && !is_held
    };
    let owed = |k: &Keeping<'_, '_>| {
        let back = Bytes(k.party.estimate.refaults_per_sec.saturating_mul(Bytes::PAGE.0));
        (k.share - k.open() - k.party.group.memory.current).min(back)
    };
    scene.all.iter().filter(is_meant).map(owed).sum()
}

/// `whole · of / total`, rounded down.
pub(crate) fn part(whole: Bytes, of: Bytes, total: Bytes) -> Bytes {
    let product = u128::from(whole.0) * u128::from(of.0) / u128::from(total.0.max(1));
    Bytes(u64::try_from(product).unwrap_or(u64::MAX))
}

struct Target<'a> {
    group: &'a Group,
    /// What is beyond shares.
    excess: Bytes,
    /// Part of it that is on account of cgroups that were removed.
    dead: Bytes,
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
        let dead = match self.dead {
            Bytes::ZERO => String::new(),
            dead => format!(", {dead} of it left over from removed ones"),
        };
        let (free, headroom, excess) = (snapshot.host.mem_free, account.headroom, self.excess);
        let reason = match account.is_contended() {
            true => format!(
                "{free} free of {headroom} headroom while {} is asked of {}: {whom} {excess} above share{dead}",
                account.demand, account.capacity
            ),
            false if free < headroom => format!(
                "{free} free of {headroom} headroom because of page cache, of which {excess} here are beyond what is \
                 needed or promised{dead}"
            ),
            false => format!(
                "the kernel takes from others although {free} are free, and {excess} of page cache here are beyond what \
                 is needed or promised{dead}"
            ),
        };
        let only_cache = !account.is_contended();
        Step {
            path: self.group.path.clone(),
            id: self.group.id,
            action: Action::Reclaim { amount, chunk: settings.reclaim_chunk, only_cache },
            rung: Rung::Reclaim,
            reason: Reason(reason),
            telling: Telling::Now,
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
        // Page cache that crowds out others goes from where it is, and the limit there with it. And where memory.low is
        // heeded those at their shares have some of it unprotected (`crate::room`), which a slice would give as well.
        let is_whole = scene.state.heed.is_ignored(&snapshot.host) || !snapshot.host.has_reclaim;
        let may_be = |_: &CgroupPath| {
            workloads.contains(&own.id) && scene.account.is_contended() && is_whole
        };
        let parent = own.path.parent().filter(may_be);
        let slice = parent.and_then(|path| slices.get(&path).copied());
        let group = slice.unwrap_or(own);
        let target = targets.entry(group.path.clone()).or_insert(Target {
            group,
            excess: Bytes::ZERO,
            dead: Bytes::ZERO,
            on_slice: slice.is_some(),
        });
        target.excess = target.excess + excess(scene, keeping);
    }
    for (path, dead) in &snapshot.dead {
        let Some(group) = slices.get(path).copied().filter(|_| *dead >= NOISE) else { continue };
        let of_slice = Target { group, excess: Bytes::ZERO, dead: Bytes::ZERO, on_slice: true };
        let target = targets.entry(path.clone()).or_insert(of_slice);
        (target.excess, target.dead) = (target.excess + *dead, *dead);
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
        // What is left of those that were removed has no protection, and is the first to go.
        let rest = current - managed.get(&slice.path).copied().unwrap_or_default();
        let rest = rest - snapshot.dead.get(&slice.path).copied().unwrap_or_default();
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
    use ctlmgr_model::{Percent, Pressure, PressureLine, Source, Watched, Weight, Zram};

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
    fn nothing_is_asked_for_that_is_locked() {
        let asked = |locked: u64| {
            let mib = Bytes::mib;
            let pair = [11, 12].map(|id| container(&format!("w{id}"), id, mib(700), None));
            let mut snapshot = host(mib(1540), pair.to_vec(), Vec::new());
            snapshot.workloads[0].group.memory.locked = mib(locked);
            let mut settings = settings();
            settings.memory.bystanders.weight = Weight::new(1).unwrap();
            if let Source::Container(facts) = &mut snapshot.workloads[0].source {
                facts.labels.insert("ctlmgr.weight".into(), "5".into());
            }
            let (plan, _) = decide(&settings, State::default(), &snapshot);
            assert_eq!(crate::check(&settings, &plan, &snapshot), []);
            let path = &snapshot.workloads[0].group.path;
            let of = plan.steps.iter().filter(|s| path.is_within(&s.path));
            of.filter_map(|s| s.action.amount_to_reclaim()).sum::<Bytes>()
        };
        assert!(asked(0) > Bytes::ZERO && asked(680) <= Bytes::mib(20), "{}", asked(680));
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
    fn who_stands_still_where_systemd_oomd_could_kill_is_not_asked() {
        let mib = Bytes::mib;
        let asked = |slice_pct: f32, own_pct: f32| {
            let mut pair =
                vec![container("hog", 11, mib(1000), None), container("web", 12, mib(1000), None)];
            let still = |pct| {
                let line = PressureLine { avg10_pct: pct, total_usec: 0 };
                Some(Pressure { some: line, full: line })
            };
            pair[0].group.memory.pressure = still(own_pct);
            let mut snapshot = host(mib(2100), pair, Vec::new());
            let watched = Watched { limit: Percent(60), pressure: still(slice_pct) };
            snapshot.oomd.watched.insert(CgroupPath::new("a.slice"), watched);
            let (plan, _) = decide(&settings(), State::default(), &snapshot);
            let amounts = plan.steps.iter().filter_map(|s| s.action.amount_to_reclaim());
            amounts.sum::<Bytes>()
        };
        let all = asked(10.0, 50.0);
        assert_eq!(asked(40.0, 5.0), all, "others give what they are asked for");
        assert!(asked(40.0, 50.0) < all, "it would be killed for what is taken");
    }

    /// What is asked for beside what is missing follows what the one below its share has back, up to its share.
    #[test]
    fn what_is_owed_and_coming_back_is_asked_of_those_above() {
        let mib = Bytes::mib;
        let asked = |lacks: u64, back_per_sec: u64| {
            let mut web = container("web", 11, mib(600), Some(mib(600)));
            web.group.memory.swap = mib(lacks);
            (web.group.memory.anon, web.group.memory.current) =
                (mib(600 - lacks), mib(600 - lacks));
            let hog = container("hog", 12, mib(1300), Some(mib(100)));
            let mut snapshot = host(mib(1700), vec![web, hog], Vec::new());
            (snapshot.host.mem_free, snapshot.host.watermark) = (mib(10), mib(10));
            let (_, state) = decide(&settings(), State::default(), &snapshot);
            snapshot.at = ctlmgr_model::Millis(snapshot.at.0 + 1000);
            snapshot.workloads[0].group.memory.refault_anon = back_per_sec * 256;
            let (plan, _) = decide(&settings(), state, &snapshot);
            assert!(plan.verdicts.iter().any(|v| v.name.0 == "web" && v.share >= mib(590)));
            plan.steps.iter().filter_map(|s| s.action.amount_to_reclaim()).sum::<Bytes>()
        };
        let none = asked(60, 0);
        assert_eq!(asked(60, 16), none + mib(16));
        assert!(asked(60, 500) <= none + mib(60) && asked(60, 500) >= none + mib(50));
        assert_eq!(asked(0, 500), asked(0, 0), "who has its share is owed nothing");
    }

    /// Where memory.low is heeded background reclaim leaves it that far below.
    #[test]
    fn nothing_is_owed_within_what_is_left_to_background_reclaim() {
        let mib = Bytes::mib;
        let asked = |lru, lacks: u64, back_per_sec: u64| {
            let both = [("web", 11, 600), ("hog", 12, 1300)];
            let both = both.map(|(name, id, size)| container(name, id, mib(size), Some(mib(size))));
            let mut snapshot = host(mib(1700), both.to_vec(), Vec::new());
            (snapshot.host.mem_free, snapshot.host.watermark) = (mib(10), mib(10));
            snapshot.host.lru = Some(lru);
            let (plan, state) = decide(&settings(), State::default(), &snapshot);
            let share = plan.verdicts.iter().find(|v| v.name.0 == "web").unwrap().share;
            let web = &mut snapshot.workloads[0].group.memory;
            (web.anon, web.current) = (share - mib(lacks), share - mib(lacks));
            web.swap = mib(600) - web.current;
            web.refault_anon = back_per_sec * 256;
            snapshot.at = ctlmgr_model::Millis(snapshot.at.0 + 1000);
            let (plan, _) = decide(&settings(), state, &snapshot);
            plan.steps.iter().filter_map(|s| s.action.amount_to_reclaim()).sum::<Bytes>()
        };
        use ctlmgr_model::LruFlavour::{Classic, Mglru};
        let owed = |lru, lacks| asked(lru, lacks, 500) - asked(lru, lacks, 0);
        assert_eq!((owed(Mglru, 20), owed(Mglru, 80)), (mib(20), mib(80)));
        // A thirty-second of the share is 17 MiB.
        assert_eq!((owed(Classic, 15), owed(Classic, 80).0 >> 20), (Bytes::ZERO, 63));
    }

    /// A slice would give of those at their shares as well, of which some is unprotected there.
    #[test]
    fn where_memory_low_is_heeded_each_is_asked_itself() {
        let asked = |lru, has_reclaim| {
            let pair = ["hog", "web"].into_iter().zip([11, 12]);
            let pair = pair.map(|(name, id)| container(name, id, Bytes::mib(1000), None));
            let mut snapshot = host(Bytes::mib(1800), pair.collect(), Vec::new());
            (snapshot.host.lru, snapshot.host.has_reclaim) = (Some(lru), has_reclaim);
            let (plan, _) = decide(&settings(), State::default(), &snapshot);
            let of = plan.steps.iter().filter(|s| s.rung == Rung::Reclaim);
            of.map(|s| s.id.0).collect::<Vec<_>>()
        };
        use ctlmgr_model::LruFlavour::{Classic, Mglru};
        assert_eq!(asked(Mglru, true), [1]);
        assert_eq!(asked(Classic, true), [11, 12]);
        assert_eq!(asked(Classic, false), [1], "a limit for a moment is the slice's");
    }

    #[test]
    fn where_memory_low_is_heeded_who_is_hardly_above_its_share_is_left_to_the_kernel() {
        let mib = Bytes::mib;
        let asked = |lru, total: u64| {
            let web = container("web", 11, mib(1000), Some(mib(1000)));
            let mut snapshot = host(mib(total), vec![web], Vec::new());
            snapshot.host.lru = Some(lru);
            let (plan, _) = decide(&settings(), State::default(), &snapshot);
            assert_eq!(crate::check(&settings(), &plan, &snapshot), []);
            plan.steps.iter().filter_map(|s| s.action.amount_to_reclaim()).sum::<Bytes>()
        };
        use ctlmgr_model::LruFlavour::{Classic, Mglru};
        // By 18 MiB, and by 127.
        assert_eq!((asked(Mglru, 1115) > mib(15), asked(Classic, 1115)), (true, Bytes::ZERO));
        assert!(asked(Classic, 900) > mib(20));
    }

    #[test]
    fn without_swap_nothing_but_page_cache_is_asked_for() {
        assert!(asked(Bytes::mib(1000), None) > Bytes::mib(48));
        for swap_left in [Bytes::ZERO, Bytes::mib(1)] {
            assert_eq!(asked(swap_left, None), Bytes::mib(16));
        }
    }

    #[test]
    fn zram_that_gains_nothing_is_no_swap() {
        let mib = Bytes::mib;
        let mut web = container("web", 11, mib(2000), None);
        (web.group.memory.inactive_file, web.group.memory.current) = (mib(8), mib(2008));
        let mut snapshot = host(mib(2100), vec![web], Vec::new());
        let asked = |snapshot: &Snapshot| {
            let (plan, _) = decide(&settings(), State::default(), snapshot);
            plan.steps.iter().find_map(|s| match s.action {
                Action::Reclaim { amount, .. } => Some(amount),
                _ => None,
            })
        };
        assert!(asked(&snapshot) > Some(mib(16)));
        snapshot.host.zram = Some(Zram { stored: mib(100), used: mib(99), left: mib(2100) });
        assert_eq!(asked(&snapshot), Some(mib(8)));
    }

    #[test]
    fn swap_is_not_filled_up_to_where_systemd_oomd_kills() {
        // 2100 MiB of swap in all.
        assert!(asked(Bytes::mib(400), Some(Percent(90))) > Bytes::mib(48));
        let little = asked(Bytes::mib(320), Some(Percent(90)));
        assert!(little > Bytes::mib(16) && little <= Bytes::mib(16 + 5), "{little}");
        assert_eq!(asked(Bytes::mib(310), Some(Percent(90))), Bytes::mib(16));
    }

    /// What is seen since a reading, so many milliseconds before.
    #[derive(Clone, Copy)]
    struct Seen {
        after_ms: u64,
        /// Pages that the kernel has taken.
        stolen: u64,
        /// How often it took protected ones of another container.
        robbed: u64,
        read: Bytes,
    }

    const SCAN: Seen = Seen { after_ms: 1000, stolen: 100_000, robbed: 3, read: Bytes::mib(200) };

    /// One with page cache that was promised and one who scans, on a machine that is full: what is decided then.
    fn scanned(seen: Seen, has_promise: bool) -> (Snapshot, ctlmgr_model::Plan) {
        let (snapshot, plan, _) = scanned_so_far(seen, has_promise);
        (snapshot, plan)
    }

    fn scanned_so_far(seen: Seen, has_promise: bool) -> (Snapshot, ctlmgr_model::Plan, State) {
        let mib = Bytes::mib;
        let cached = |memory: &mut ctlmgr_model::MemorySample, all: u64, anon: u64| {
            (memory.current, memory.anon, memory.inactive_file) =
                (mib(all), mib(anon), mib(all - anon));
        };
        let mut web = container("web", 11, mib(300), has_promise.then_some(mib(300)));
        cached(&mut web.group.memory, 300, 20);
        web.group.memory.low = mib(300);
        let mut robbed = container("db", 12, mib(100), Some(mib(100)));
        cached(&mut robbed.group.memory, 100, 95);
        let mut scan = group("system.slice/scan.service", 21, mib(500));
        cached(&mut scan.memory, 1400, 10);
        let mut snapshot = host(mib(2000), vec![web, robbed], vec![scan]);
        (snapshot.host.mem_free, snapshot.host.stolen) = (mib(10), Some(7));
        snapshot.host.reclaimable_cache = mib(1770);
        let (_, state) = decide(&settings(), State::default(), &snapshot);
        snapshot.at = ctlmgr_model::Millis(snapshot.at.0 + seen.after_ms);
        snapshot.host.stolen = Some(7 + seen.stolen);
        snapshot.workloads[1].group.memory.events.low += seen.robbed;
        snapshot.bystanders[0].activity.io.read = seen.read;
        let (plan, state) = decide(&settings(), state, &snapshot);
        assert_eq!(crate::check(&settings(), &plan, &snapshot), []);
        (snapshot, plan, state)
    }

    fn limit_of_scan(snapshot: &Snapshot, plan: &ctlmgr_model::Plan) -> Option<Bytes> {
        plan.steps.iter().find_map(|s| match s.action {
            Action::Set { knob: ctlmgr_model::Knob::MemoryHigh, to, .. }
                if s.id == snapshot.bystanders[0].id =>
            {
                Some(to)
            }
            _ => None,
        })
    }

    /// A second later: what was decided is done, and the scan has read on and filled all that its limit leaves it.
    fn reads_on(
        snapshot: &mut Snapshot,
        plan: &ctlmgr_model::Plan,
        state: &mut State,
        limit: Bytes,
    ) {
        for step in &plan.steps {
            state.learn(step, &ctlmgr_model::Outcome::Done, snapshot.at);
        }
        snapshot.at = ctlmgr_model::Millis(snapshot.at.0 + 1000);
        let scan = &mut snapshot.bystanders[0];
        (scan.memory.high, scan.memory.current) = (ctlmgr_model::Limit::Bytes(limit), limit);
        scan.activity.io.read = scan.activity.io.read + SCAN.read;
    }

    /// Background reclaim takes more than was missing, of others too: a limit that followed would be their loss for good.
    #[test]
    fn the_limit_of_a_scan_goes_down_with_what_is_taken_and_not_up_while_it_reads_on() {
        let (mut snapshot, mut plan, mut state) = scanned_so_far(SCAN, true);
        let mut limit = limit_of_scan(&snapshot, &plan).unwrap_or_default();
        assert!(limit > snapshot.bystanders[0].memory.current, "the first one has to hold");
        // Some 70 MiB are to be free.
        for (free, may_fall) in [(10, true), (100, false), (10, true), (100, false)] {
            reads_on(&mut snapshot, &plan, &mut state, limit);
            snapshot.host.mem_free = Bytes::mib(free);
            (plan, state) = decide(&settings(), state, &snapshot);
            assert_eq!(crate::check(&settings(), &plan, &snapshot), []);
            let to = limit_of_scan(&snapshot, &plan);
            assert_eq!(to.is_some_and(|to| to < limit), may_fall, "{to:?} after {limit} at {free}");
            assert!(may_fall || to.is_none(), "{to:?} after {limit} at {free}");
            limit = to.unwrap_or(limit);
        }
    }

    /// Where free memory is in pieces, or the kernel has raised its watermarks for a while, background reclaim goes on
    /// however much is free (seen: 6.12 after some containers had come and gone).
    #[test]
    fn who_scans_gives_more_while_the_kernel_takes_on_although_enough_is_free() {
        for (stolen, robbed, gives) in [(6000, 1, true), (100, 1, false), (6000, 0, false)] {
            let (mut snapshot, plan, mut state) = scanned_so_far(SCAN, true);
            let limit = limit_of_scan(&snapshot, &plan).unwrap_or_default();
            reads_on(&mut snapshot, &plan, &mut state, limit);
            snapshot.host.mem_free = Bytes::mib(500);
            snapshot.host.stolen = snapshot.host.stolen.map(|before| before + stolen);
            snapshot.workloads[1].group.memory.events.low += robbed;
            let (plan, _) = decide(&settings(), state, &snapshot);
            assert_eq!(crate::check(&settings(), &plan, &snapshot), []);
            let taken = plan.steps.iter().find(|s| s.rung == Rung::Reclaim);
            let names_cause = |s: &Step| s.reason.0.contains("although 500 MiB are free");
            assert_eq!(taken.is_some_and(names_cause), gives, "{stolen} {robbed}: {taken:?}");
            assert_eq!(taken.is_some(), gives);
            let to = limit_of_scan(&snapshot, &plan);
            assert_eq!(to.is_some_and(|to| to < limit), gives, "{stolen} {robbed}: {to:?}");
        }
    }

    #[test]
    fn a_scan_is_kept_from_crowding_out_what_was_promised() {
        assert!(!scanned(Seen { stolen: 100, ..SCAN }, true).1.is_swept, "a trifle");
        // Nobody looks while all is calm. Somebody's loss brought the look forward, half a second after it began.
        let calm = Seen { after_ms: 60_000, stolen: 20_000, read: Bytes::mib(1500), ..SCAN };
        assert!(scanned(calm, true).1.is_swept, "much was taken just now");
        assert!(!scanned(Seen { stolen: 1000, ..calm }, true).1.is_swept, "a trifle");
        let nobody = scanned(Seen { robbed: 0, ..SCAN }, true);
        assert!(!nobody.1.is_swept, "nobody loses anything that is needed");
        let (snapshot, at_rest) = scanned(Seen { read: Bytes::ZERO, ..SCAN }, true);
        let limits = |s: &&Step| s.rung == Rung::Throttle && s.id == snapshot.bystanders[0].id;
        let why = at_rest.steps.iter().find(limits).map(|s| s.reason.0.clone());
        assert!(why.is_none_or(|why| why.contains("are free")), "who rests crowds out nobody");
        let (snapshot, plan) = scanned(SCAN, true);
        assert!(plan.is_swept && !plan.account.is_contended());
        assert!(
            plan.complaints.iter().any(|c| c.contains("of which scan.service holds 1.")),
            "{:?}",
            plan.complaints
        );
        let scan = &snapshot.bystanders[0];
        let of = |rung| plan.steps.iter().filter(move |s| s.rung == rung);
        let reclaimed: Vec<_> = of(Rung::Reclaim).collect();
        assert!(
            matches!(reclaimed[..], [Step { id, action: Action::Reclaim { only_cache: true, amount, .. }, .. }]
                if *id == scan.id && *amount >= Bytes::mib(40)),
            "{reclaimed:?}"
        );
        let limit = limit_of_scan(&snapshot, &plan).unwrap_or_default();
        let least = scan.memory.current;
        assert!(limit >= least && limit <= least + Bytes::mib(16), "{limit} of {least}");
    }

    #[test]
    fn without_a_promise_page_cache_that_nobody_misses_is_taken_where_most_of_it_is() {
        let (snapshot, plan) = scanned(SCAN, false);
        let amount = |id| {
            let is_it = |s: &&Step| s.id == id && s.rung == Rung::Reclaim;
            plan.steps
                .iter()
                .find(is_it)
                .and_then(|s| s.action.amount_to_reclaim())
                .unwrap_or_default()
        };
        let (scan, web) = (amount(snapshot.bystanders[0].id), amount(CgroupId(11)));
        assert!(scan > Bytes(web.0 * 4) && web > Bytes::ZERO, "{scan} {web}");
    }

    /// What a removed container left behind has no protection, and keeps nobody from asking the slice.
    #[test]
    fn page_cache_of_the_dead_goes_first_and_does_not_make_a_slice_impure() {
        let mib = Bytes::mib;
        let targets = |dead: Option<u64>| {
            let hog = container("hog", 11, mib(1000), None);
            let web = container("web", 12, mib(600), Some(mib(600)));
            let mut snapshot = host(mib(2000), vec![hog, web], Vec::new());
            let slice = &mut snapshot.ancestors[0];
            slice.memory.current = slice.memory.current + mib(300);
            slice.memory.inactive_file = mib(300);
            snapshot.dead.extend(dead.map(|dead| (slice.path.clone(), mib(dead))));
            snapshot.host.mem_free = mib(10);
            let (plan, _) = decide(&settings(), State::default(), &snapshot);
            let reclaims = plan.steps.into_iter().filter(|s| s.rung == Rung::Reclaim);
            reclaims.map(|s| (s.id.0, s.reason.0)).collect::<Vec<_>>()
        };
        let with = targets(Some(300));
        assert!(
            matches!(&with[..], [(1, why)] if why.contains("300 MiB of it left over")),
            "{with:?}"
        );
        let without = targets(None);
        assert!(
            without.iter().all(|(id, _)| *id != 1),
            "somebody is in it who is not known: {without:?}"
        );
    }

    /// `docker run --memory-swap` leaves it no swap: three quarters of what is asked would be asked of nobody.
    #[test]
    fn who_may_not_swap_is_asked_for_page_cache_only() {
        let mib = Bytes::mib;
        let asked = |swap_max| {
            let mut web = container("web", 11, mib(900), None);
            web.group.memory.swap_max = swap_max;
            let hog = container("hog", 12, mib(900), None);
            let mut snapshot = host(mib(1900), vec![web], vec![hog.group]);
            snapshot.host.mem_free = mib(10);
            let (plan, _) = decide(&settings(), State::default(), &snapshot);
            plan.steps
                .iter()
                .filter(|s| s.rung == Rung::Reclaim)
                .map(|s| s.id.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(asked(ctlmgr_model::Limit::Max).len(), 2);
        assert_eq!(asked(ctlmgr_model::Limit::Bytes(Bytes::ZERO)), [12]);
    }
}
