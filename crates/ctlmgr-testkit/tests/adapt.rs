//! Closed loop: the machine and the wishes change, shares settle again.

use std::collections::BTreeMap;

use ctlmgr_model::{Action, Bytes, CgroupPath, Knob, Mode, Settings};
use ctlmgr_policy::{State, check, decide};
use ctlmgr_testkit::{Kernel, Lru, Set, outcome};
use proptest::prelude::*;

fn mib(n: u64) -> Bytes {
    Bytes::mib(n)
}

/// A host with ctlmgr on it, and every value it wrote.
struct World {
    kernel: Kernel,
    settings: Settings,
    state: State,
    /// Seconds and values, per knob.
    written: BTreeMap<(CgroupPath, Knob), Vec<(u64, u64)>>,
    /// Protections when the change came.
    low_before: BTreeMap<CgroupPath, u64>,
}

impl World {
    fn new(kernel: Kernel) -> World {
        let mut settings = Settings::default();
        settings.memory.mode = Mode::Act;
        World {
            kernel,
            settings,
            state: State::default(),
            written: BTreeMap::new(),
            low_before: BTreeMap::new(),
        }
    }

    fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.kernel.tick();
            let snapshot = self.kernel.snapshot();
            let (plan, state) = decide(&self.settings, std::mem::take(&mut self.state), &snapshot);
            self.state = state;
            assert_eq!(check(&self.settings, &plan, &snapshot), []);
            self.kernel.apply(&plan);
            for step in &plan.steps {
                self.state.learn(step, &outcome(step), snapshot.at);
                let (knob, value) = match step.action {
                    Action::Set { knob, to, .. } => (knob, to),
                    Action::Release { knob, prior, .. } => (knob, prior),
                    _ => continue,
                };
                let series = self.written.entry((step.path.clone(), knob)).or_default();
                series.push((snapshot.at.0 / 1000, value.0));
            }
        }
    }

    /// Settles, changes something, and gives it a minute.
    fn change(&mut self, change: impl FnOnce(&mut Kernel)) {
        self.run(120);
        self.written.clear();
        let snapshot = self.kernel.snapshot();
        let workloads = snapshot.workloads.iter().map(|w| (&w.group.path, w.group.memory.low));
        let above = snapshot.ancestors.iter().map(|g| (&g.path, g.memory.low));
        let low = workloads.chain(above).map(|(path, low)| (path.clone(), low.0));
        self.low_before = low.collect();
        change(&mut self.kernel);
        self.run(60);
    }

    /// How often a knob turned round.
    fn turns(series: &[(u64, u64)]) -> usize {
        let up: Vec<bool> = series.windows(2).map(|w| w[1].1 > w[0].1).collect();
        up.windows(2).filter(|w| w[0] != w[1]).count()
    }

    /// With what was written until then only.
    fn until(mut self, second: u64) -> World {
        self.written.values_mut().for_each(|series| series.retain(|(at, _)| *at <= second));
        self
    }

    /// memory.low; memory.min follows what is held, and who was squeezed faults its pages back one by one.
    fn protections(&self) -> impl Iterator<Item = (&CgroupPath, &Vec<(u64, u64)>)> {
        let of_low = self.written.iter().filter(|((_, knob), _)| *knob == Knob::MemoryLow);
        of_low.map(|((path, _), series)| (path, series))
    }

    /// Fails if a knob of these turned round more than twice.
    fn expect_few_turns(&self, is_meant: fn(Knob) -> bool) -> Result<(), String> {
        let mut meant = self.written.iter().filter(|((_, knob), _)| is_meant(*knob));
        let swings = meant.find(|(_, series)| World::turns(series) > 2);
        swings.map_or(Ok(()), |((path, knob), series)| {
            Err(format!("{knob} of {path} swings: {series:?}"))
        })
    }

    /// Fails if a knob turned round more than twice, or a protection still moved after ten seconds.
    fn expect_settled(&self, changed_at: u64) -> Result<(), String> {
        self.expect_few_turns(|_| true)?;
        for (path, series) in self.protections() {
            let is_before = |(at, _): &&(u64, u64)| *at <= changed_at + 10;
            let then = series.iter().rfind(is_before).map(|(_, value)| *value);
            // Who was not written by then had what it had before.
            let then = then.or_else(|| self.low_before.get(path).copied());
            let (Some(then), Some((_, end))) = (then, series.last()) else { continue };
            if then.abs_diff(*end) > (*end / 10).max(mib(24).0) {
                return Err(format!("{path} moved from {then} to {end} after 10 s: {series:?}"));
            }
        }
        Ok(())
    }
}

fn three() -> Kernel {
    let sets = vec![
        Set::managed("a", mib(500), Some(mib(500)), 100),
        Set::managed("b", mib(700), Some(mib(700)), 200),
        Set::managed("c", mib(400), Some(mib(400)), 50),
    ];
    Kernel::new(mib(2000), Lru::Mglru, sets)
}

#[test]
fn a_machine_that_shrinks_settles_within_ten_seconds() {
    for (left, has_reclaim) in
        [(1700, true), (1400, true), (1100, true), (1700, false), (1400, false)]
    {
        let mut world = World::new(Kernel { has_reclaim, ..three() });
        world.change(|kernel| kernel.total = mib(left));
        world.expect_settled(121).unwrap();
        let sum: Bytes = world.kernel.sets.iter().map(|s| s.resident).sum();
        assert!(sum < mib(left));
    }
}

#[test]
fn newcomers_weights_and_promises_settle_within_ten_seconds() {
    let mut world = World::new(three());
    world.change(|kernel| kernel.sets.push(Set::managed("new", mib(600), Some(mib(600)), 100)));
    world.expect_settled(121).unwrap();
    let mut world = World::new(Kernel { total: mib(1400), ..three() });
    world.change(|kernel| kernel.sets[2].weight = 1000);
    world.expect_settled(121).unwrap();
    assert!(world.kernel.sets[2].resident_part() > 0.95, "{:?}", world.kernel.sets[2]);
    let mut world = World::new(Kernel { total: mib(1400), ..three() });
    world.change(|kernel| kernel.sets[0].promise = Some(mib(1000)));
    world.expect_settled(121).unwrap();
}

#[test]
fn who_goes_leaves_its_memory_to_the_others() {
    let mut world = World::new(Kernel { total: mib(1500), ..three() });
    world.change(|kernel| drop(kernel.sets.pop()));
    assert!(world.kernel.sets.iter().all(|s| s.resident_part() > 0.97), "{:?}", world.kernel.sets);
}

/// It gives up 400 MiB itself, so nobody is kept from them for as long as a short dip is waited out.
#[test]
fn who_shrinks_leaves_its_memory_to_the_others_within_ten_seconds() {
    for lru in [Lru::Classic, Lru::Mglru] {
        let kernel = Kernel { total: mib(1400), ..three() };
        let mut world = World::new(Kernel::new(kernel.total, lru, kernel.sets));
        world.run(120);
        assert!(world.kernel.sets[2].resident_part() < 0.8, "{:?}", world.kernel.sets[2]);
        world.kernel.sets[1].resize(mib(300));
        world.run(10);
        let (plan, _) = decide(&world.settings, world.state.clone(), &world.kernel.snapshot());
        for verdict in plan.verdicts.iter().filter(|v| ["a", "c"].contains(&&*v.name.0)) {
            assert!(verdict.share >= verdict.demand, "{lru:?}: {verdict:?}");
        }
        // They have it back page by page.
        world.run(30);
        assert!(world.kernel.sets.iter().all(|s| s.resident_part() > 0.97), "{lru:?}");
    }
}

#[test]
fn who_shrinks_and_grows_settles_within_ten_seconds() {
    let mut world = World::new(Kernel { total: mib(1400), ..three() });
    world.change(|kernel| kernel.sets[1].resize(mib(300)));
    world.expect_settled(121).unwrap();
    world.change(|kernel| kernel.sets[1].resize(mib(700)));
    world.expect_settled(301).unwrap();
}

/// The same situation, the same result, whoever started first.
#[test]
fn the_order_of_starts_does_not_matter() {
    let parts = |reversed: bool| {
        let kernel = three();
        let mut all = kernel.sets.clone();
        if reversed {
            all.reverse();
        }
        let mut world = World::new(Kernel { total: mib(1500), sets: Vec::new(), ..kernel });
        for set in all {
            world.kernel.sets.push(set);
            world.run(15);
        }
        world.run(120);
        let mut parts: Vec<_> =
            world.kernel.sets.iter().map(|s| (s.name.clone(), s.resident_part())).collect();
        parts.sort_by(|a, b| a.0.cmp(&b.0));
        parts
    };
    for (one, other) in parts(false).iter().zip(parts(true)) {
        assert!((one.1 - other.1).abs() < 0.03, "{one:?} {other:?}");
    }
}

#[test]
fn two_thousand_containers_stay_within_the_machine() {
    let sets: Vec<Set> = (0..2000)
        .map(|i| Set::managed(&format!("w{i}"), mib(20 + i % 50), None, 1 + (i % 400) as u16))
        .collect();
    let mut world = World::new(Kernel::new(mib(80_000), Lru::Classic, sets));
    world.run(60);
    let held: Bytes = world.kernel.sets.iter().map(|s| s.resident).sum();
    assert!(held < mib(80_000));
    assert!(world.kernel.sets.iter().all(|s| s.resident > mib(2)), "nobody starves");
    let snapshot = world.kernel.snapshot();
    let low: Bytes = snapshot.workloads.iter().map(|w| w.group.memory.low).sum();
    assert!(low <= snapshot.host.mem_total - snapshot.host.watermark, "{low} are protected");
    assert!(snapshot.ancestors[0].memory.low >= low, "and covered");
    let late =
        |(_, series): (_, &Vec<(u64, u64)>)| series.iter().filter(|(at, _)| *at > 31).count();
    let late: usize = world.written.iter().map(late).sum();
    assert!(late < 2000, "{late} writes in the last half minute");
}

/// Found by the property below: a share swung by a little more than the dead band.
#[test]
fn a_shrinking_machine_does_not_make_a_small_share_swing() {
    let sizes = [(347, 612), (354, 104), (246, 168), (415, 726), (241, 822), (369, 147)];
    shrunk(&sizes.map(anonymous), 56).expect_few_turns(|_| true).unwrap();
}

/// Found by the property below, when slices were covered closely: what covers a sum swung though its parts did not.
#[test]
fn what_covers_shares_that_settle_does_not_swing() {
    let sizes = [(143, 184), (372, 188), (149, 577), (383, 888)];
    shrunk(&sizes.map(anonymous), 53).expect_few_turns(|_| true).unwrap();
}

/// Found by the property below: the guard of the brake let a limit go by 16 MiB, and the next look took that again.
#[test]
fn what_one_that_stood_still_was_let_off_does_not_make_its_limit_swing() {
    let sizes = [(420, 365), (94, 636), (343, 690), (234, 89), (560, 334), (201, 516)];
    shrunk(&sizes.map(anonymous), 59).expect_few_turns(|_| true).unwrap();
}

fn anonymous((size, weight): (u64, u16)) -> (u64, u16, bool) {
    (size, weight, false)
}

/// A minute after memory was taken away until `part_pct` of it was left.
fn shrunk(sizes: &[(u64, u16, bool)], part_pct: u64) -> World {
    shrunk_with(Lru::Classic, sizes, part_pct)
}

fn shrunk_with(lru: Lru, sizes: &[(u64, u16, bool)], part_pct: u64) -> World {
    let set = |(i, (size, weight, is_files)): (usize, &(u64, u16, bool))| {
        let set = Set::managed(&format!("w{i}"), mib(*size), Some(mib(*size)), *weight);
        if *is_files { set.of_files() } else { set }
    };
    let sets = sizes.iter().enumerate().map(set).collect();
    let total = sizes.iter().map(|(size, ..)| size).sum::<u64>() + 300;
    let mut world = World::new(Kernel::new(mib(total), lru, sets));
    world.change(|kernel| kernel.total = mib(total * part_pct / 100));
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever the mix and the change: no protection swings.
    #[test]
    fn no_protection_swings(
        sizes in proptest::collection::vec((50u64..600, 10u16..1000), 2..7), part in 50u64..95
    ) {
        let sizes: Vec<_> = sizes.into_iter().map(anonymous).collect();
        let few = shrunk(&sizes, part).expect_few_turns(|_| true);
        prop_assert!(few.is_ok(), "{few:?}");
    }

    /// Nor what is hard, where the kernel heeds nothing else; nor any knob while shares settle.
    #[test]
    fn what_is_hard_does_not_swing(
        sizes in proptest::collection::vec((50u64..600, 10u16..1000, any::<bool>()), 2..7),
        part in 50u64..95,
    ) {
        let world = shrunk_with(Lru::Mglru, &sizes, part);
        let few = world.expect_few_turns(|knob| knob == Knob::MemoryMin);
        prop_assert!(few.is_ok(), "{few:?}");
        let few = world.until(131).expect_few_turns(|_| true);
        prop_assert!(few.is_ok(), "{few:?}");
    }

    /// Nor where some live by page cache. It is lent out until some of it is missed, and a limit follows what is held.
    #[test]
    fn no_protection_of_page_cache_swings(
        sizes in proptest::collection::vec((50u64..600, 10u16..1000, any::<bool>()), 2..7),
        part in 50u64..95,
    ) {
        let few = shrunk(&sizes, part).expect_few_turns(|knob| Knob::PROTECTION.contains(&knob));
        prop_assert!(few.is_ok(), "{few:?}");
    }
}
