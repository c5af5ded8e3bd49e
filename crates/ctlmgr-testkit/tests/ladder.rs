//! Closed loop: feedback and throttling against the simulated kernel.

use ctlmgr_model::{
    Action, Bytes, CgroupId, Controller, Headroom, Knob, Limit, Millis, Mode, Percent, Plan,
    Pressure, Rung, Settings, Step,
};
use ctlmgr_policy::{State, check, decide};
use ctlmgr_testkit::{Kernel, Lru, Set, outcome};
use proptest::prelude::*;

/// A host with ctlmgr on it.
struct World {
    kernel: Kernel,
    settings: Settings,
    state: State,
    rungs: Vec<Rung>,
    steps: Vec<(u64, Step)>,
}

impl World {
    fn new(kernel: Kernel, controller: Controller) -> World {
        let mut settings = Settings::default();
        settings.memory.mode = Mode::Act;
        settings.memory.controller = controller;
        settings.memory.throttle = true;
        // Global reclaim begins here at the very watermark that is told, not a sixth below it, so headroom is all
        // that is between.
        settings.memory.headroom = Headroom::Percent(Percent(3));
        World { kernel, settings, state: State::default(), rungs: Vec::new(), steps: Vec::new() }
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
                self.rungs.push(step.rung);
                self.steps.push((snapshot.at.0 / 1000, step.clone()));
            }
        }
    }

    /// Mean pace of a set over some seconds, which pass.
    fn pace(&mut self, seconds: u32) -> Vec<f64> {
        let mut sums = vec![0.0; self.kernel.sets.len()];
        for _ in 0..seconds {
            self.run(1);
            for (sum, set) in sums.iter_mut().zip(&self.kernel.sets) {
                *sum += set.pace;
            }
        }
        sums.iter().map(|sum| sum / f64::from(seconds)).collect()
    }
}

fn mib(n: u64) -> Bytes {
    Bytes::mib(n)
}

/// Same size, promise and weight, but one is touched ten times as often.
fn hot_and_cold(weight_of_hot: u16) -> Kernel {
    let sets = vec![
        Set::managed("hot", mib(800), Some(mib(800)), weight_of_hot).hot(0.5),
        Set::managed("cold", mib(800), Some(mib(800)), 100).hot(0.05),
    ];
    Kernel::new(mib(1600), Lru::Classic, sets)
}

/// How much slower each is than it could be.
fn slowdowns(kernel: Kernel, controller: Controller) -> (f64, f64) {
    let mut world = World::new(kernel, controller);
    world.run(240);
    let pace = world.pace(60);
    (1.0 - pace[0], 1.0 - pace[1])
}

#[test]
fn feedback_brings_equal_slowdown_where_equal_bytes_do_not() {
    let (hot, cold) = slowdowns(hot_and_cold(100), Controller::Shares);
    let apart = (hot - cold).abs();
    let (hot, cold) = slowdowns(hot_and_cold(100), Controller::Both);
    assert!((hot - cold).abs() < 0.10, "hot {hot:.2} cold {cold:.2}");
    assert!((hot - cold).abs() < apart, "{apart:.2} with shares alone");
}

/// A disk that is at its limit makes all wait, whoever misses little or much; and of many threads some one
/// waits nearly always.
#[test]
fn two_alike_of_different_size_slow_down_alike_where_the_disk_is_at_its_limit() {
    let disks = [300.0, 1500.0, 3000.0, 6000.0, 20_000.0];
    for (total, faults_per_sec) in [1200, 1300].into_iter().flat_map(|t| disks.map(|d| (t, d))) {
        let of = |name, size, threads| {
            Set::managed(name, mib(size), Some(mib(size)), 100).hot(0.15).by_threads(threads)
        };
        let mut kernel =
            Kernel::new(mib(2000), Lru::Mglru, vec![of("small", 400, 4), of("large", 800, 8)]);
        kernel.own = mib(150);
        kernel.faults_per_sec = faults_per_sec;
        let mut world = World::new(kernel, Controller::Both);
        world.run(30);
        world.kernel.total = mib(total);
        world.run(60);
        let paces = world.pace(20);
        // Equal parts, which is what those get that differ within doubt, are between 0.06 and 0.07 apart at worst here.
        assert!((paces[0] - paces[1]).abs() < 0.07, "{total} {faults_per_sec}: {paces:?}");
    }
}

/// Many threads that each wait little, with many faults, beside one that waits for few.
fn many_and_one(cpus: Option<u64>) -> (World, Vec<Bytes>) {
    let many = Set::managed("many", mib(800), Some(mib(800)), 100).hot(0.3).by_threads(32);
    let one = Set::managed("one", mib(800), Some(mib(800)), 100).hot(0.02).by_threads(1);
    let mut world =
        World::new(Kernel::new(mib(2200), Lru::Mglru, vec![many, one]), Controller::Both);
    world.kernel.cpus = cpus;
    world.run(60);
    world.kernel.total = mib(1400);
    world.run(120);
    let held = world.kernel.sets.iter().map(|s| s.resident).collect();
    (world, held)
}

#[test]
fn faults_that_keep_short_processors_busy_count_for_who_makes_them() {
    let (_, idle) = many_and_one(None);
    let (_, plenty) = many_and_one(Some(64));
    let (mut world, short) = many_and_one(Some(2));
    assert!(
        short[0] > idle[0] + mib(40) && short[1] < idle[1],
        "{short} {idle}",
        short = short[0],
        idle = idle[0]
    );
    assert!(plenty[0].0.abs_diff(idle[0].0) < mib(20).0, "{} {}", plenty[0], idle[0]);
    // And that comes to rest.
    world.run(60);
    assert!(world.kernel.sets[0].resident.0.abs_diff(short[0].0) < mib(40).0);
}

#[test]
fn a_heavier_one_slows_down_less_than_half_as_much() {
    let (hot, cold) = slowdowns(hot_and_cold(400), Controller::Both);
    assert!(hot <= cold / 2.0 + 0.02, "hot {hot:.2} cold {cold:.2}");
}

#[test]
fn a_greedy_bystander_is_slowed_down_and_let_go_again() {
    let sets = vec![
        Set::managed("web", mib(700), Some(mib(700)), 400),
        Set::managed("db", mib(500), Some(mib(500)), 400),
    ];
    let mut world = World::new(Kernel::new(mib(1970), Lru::Mglru, sets), Controller::Both);
    world.run(30);
    world.kernel.sets.push(Set::bystander("hog", mib(4000)).hot(1.0));
    world.run(60);
    assert!(world.rungs.contains(&Rung::Throttle), "{:?}", world.rungs);
    assert!(world.kernel.sets[2].high < Bytes(u64::MAX));
    let resident =
        |w: &World| w.kernel.sets[..2].iter().map(Set::resident_part).fold(1.0, f64::min);
    assert!(resident(&world) > 0.9, "{:?}", world.kernel.sets);
    world.kernel.sets[2].wanted = mib(10);
    world.kernel.sets[2].resident = mib(10);
    world.run(240);
    assert_eq!(world.kernel.sets[2].high, Bytes(u64::MAX), "calm: nothing is left of it");
}

/// The guard of the brake: PSI `full` of the one that is held.
#[test]
fn who_stands_still_at_its_limit_is_let_off_a_step() {
    let web = Set::managed("web", mib(700), Some(mib(700)), 400);
    let mut world = World::new(Kernel::new(mib(1470), Lru::Mglru, vec![web]), Controller::Both);
    // What is hard would keep web from suffering, and so would the limit against bursts.
    world.settings.memory.harden = false;
    world.run(30);
    world.settings.memory.throttle = false;
    world.kernel.sets.push(Set::bystander("hog", mib(4000)).hot(1.0));
    world.run(30);
    world.settings.memory.throttle = true;
    let is_braked = |w: &World| {
        let last = w.steps.iter().rfind(|(_, s)| s.rung == Rung::Throttle);
        last.is_some_and(|(_, s)| s.reason.0.contains("growth is slowed down"))
    };
    while !is_braked(&world) && world.kernel.now < Millis(150_000) {
        world.run(1);
    }
    assert!(is_braked(&world), "{:?}", world.steps.last());
    world.kernel.tick();
    let present = world.kernel.sets[1].high;
    let standing = |full_pct: f32, held: Bytes, at: Millis| {
        let mut snapshot = world.kernel.snapshot();
        let hog = &mut snapshot.bystanders[0].memory;
        hog.current = held;
        hog.pressure.as_mut().unwrap().full.avg10_pct = full_pct;
        snapshot.at = at;
        snapshot
    };
    let limit_of = |plan: &Plan| {
        plan.steps.iter().filter(|s| s.id == CgroupId(101)).find_map(|s| match s.action {
            Action::Set { knob: Knob::MemoryHigh, to, .. } => Some(to),
            _ => None,
        })
    };
    let decided = |snapshot| decide(&world.settings, world.state.clone(), &snapshot);
    let now = world.kernel.now;
    let limit_if = |full_pct| limit_of(&decided(standing(full_pct, present, now)).0);
    assert!(limit_if(25.0).is_some_and(|to| to >= present + mib(16)), "{:?}", limit_if(25.0));
    assert!(limit_if(5.0).is_none_or(|to| to <= present), "{:?} from {present}", limit_if(5.0));

    // And what it was let off is not taken again by the next look.
    let (plan, mut state) = decided(standing(25.0, present, now));
    plan.steps.iter().for_each(|step| state.learn(step, &outcome(step), now));
    let raised = limit_of(&plan).unwrap();
    let later = |seconds: u64, held: Bytes| {
        let mut snapshot = standing(5.0, held, Millis(now.0 + seconds * 1000));
        snapshot.bystanders[0].memory.high = Limit::Bytes(raised);
        limit_of(&decide(&world.settings, state.clone(), &snapshot).0)
    };
    let breathes = present - mib(20);
    assert_eq!(later(1, breathes), None, "let off from {present} to {raised}");
    assert!(later(61, breathes).is_some_and(|to| to < raised), "{:?}", later(61, breathes));
    let gone = present - mib(150);
    assert!(later(1, gone).is_some_and(|to| to < raised), "it has shrunk: {:?}", later(1, gone));
}

/// Waiting at a limit of ours must not get anybody killed.
#[test]
fn where_systemd_oomd_could_kill_soon_no_limit_holds_who_stands_still_and_none_is_new() {
    let sets = vec![Set::managed("web", mib(700), Some(mib(700)), 400)];
    let run = |limit: Option<Percent>| {
        let kernel =
            Kernel { oomd_limit: limit, ..Kernel::new(mib(1470), Lru::Mglru, sets.clone()) };
        let mut world = World::new(kernel, Controller::Both);
        world.run(30);
        world.kernel.sets.push(Set::bystander("hog", mib(4000)).hot(1.0));
        let has_limit = |world: &World| world.kernel.sets[1].high < Bytes(u64::MAX);
        let mut limited = 0;
        for _ in 0..60 {
            let (had_limit, snapshot) = (has_limit(&world), world.kernel.snapshot());
            let full_pct = |p: Option<Pressure>| p.unwrap().full.avg10_pct;
            let stood_pct = full_pct(snapshot.host.pressure);
            let own_pct = full_pct(snapshot.bystanders[0].memory.pressure);
            // The next reading, which is decided upon, is of a second later.
            world.run(1);
            let now_pct = full_pct(world.kernel.snapshot().host.pressure);
            limited += usize::from(has_limit(&world));
            let Some(limit) = limit.map(|limit| f32::from(limit.0)) else { continue };
            let was_above = |part: f32| stood_pct >= limit * part && now_pct >= limit * part;
            assert!(
                !was_above(0.25) || had_limit || !has_limit(&world),
                "{now_pct} % and a new one"
            );
            let is_to_be_free = was_above(0.5) && own_pct >= limit / 2.0;
            assert!(!is_to_be_free || !has_limit(&world), "{now_pct} % and held");
        }
        limited
    };
    let (alone, watched) = (run(None), run(Some(Percent(10))));
    assert!(watched < alone, "{watched} of {alone} s");
}

#[test]
fn without_psi_nobody_is_braked() {
    let sets = vec![Set::managed("web", mib(700), Some(mib(700)), 400)];
    let mut kernel = Kernel::new(mib(1000), Lru::Mglru, sets);
    kernel.has_psi = false;
    kernel.sets.push(Set::bystander("hog", mib(2000)));
    let mut world = World::new(kernel, Controller::Both);
    world.run(90);
    let throttled = world.steps.iter().filter(|(_, s)| s.rung == Rung::Throttle);
    let is_ramp = |s: &Step| {
        matches!(s.action, Action::Release { .. }) || !s.reason.0.contains("growth is slowed down")
    };
    assert!(throttled.clone().all(|(_, s)| is_ramp(s)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the mix: plans are sound (asserted inside), and all is given back in the end.
    #[test]
    fn any_mix_is_let_go_when_memory_is_plenty_again(
        sizes in proptest::collection::vec((50u64..900, 1u16..2000, any::<bool>(), 0.01f64..1.0), 1..9),
        total in 600u64..3000, controller in prop_oneof![Just(Controller::Shares), Just(Controller::Stall), Just(Controller::Both)]
    ) {
        let sets = sizes.iter().enumerate().map(|(i, (size, weight, managed, heat))| match managed {
            true => Set::managed(&format!("w{i}"), mib(*size), None, *weight).hot(*heat),
            false => Set::bystander(&format!("u{i}"), mib(*size)).hot(*heat),
        });
        let mut world = World::new(Kernel::new(mib(total), Lru::Classic, sets.collect()), controller);
        world.run(90);
        world.kernel.total = mib(20_000);
        world.run(120);
        prop_assert!(world.kernel.sets.iter().all(|s| s.high == Bytes(u64::MAX)));
    }
}

/// Found by the property test: others' stalls must not lift a memory.high without end.
#[test]
fn a_stall_that_is_not_ours_moves_no_limit() {
    let unit = |name, size| Set::bystander(name, mib(size));
    let sets = vec![
        Set::managed("w2", mib(703), None, 190),
        Set::managed("w6", mib(63), Some(mib(892)), 1753),
        Set::managed("w7", mib(227), Some(mib(229)), 938),
        unit("u0", 193),
        unit("u1", 355),
        unit("u3", 334),
        unit("u4", 530),
        unit("u5", 594),
        unit("u8", 885),
    ];
    let mut world = World::new(Kernel::new(mib(2500), Lru::Mglru, sets), Controller::Both);
    world.run(120);
    let limits = world.kernel.sets.iter().filter(|s| s.high < Bytes(u64::MAX));
    assert!(limits.clone().all(|s| s.high < mib(1000)), "{:?}", world.kernel.sets);
}

/// A promise that was not needed for a while counts in full when it is needed.
#[test]
fn who_sleeps_does_not_lose_its_promise() {
    let sets = vec![
        Set::managed("idle", mib(100), Some(mib(800)), 100),
        Set::managed("busy", mib(1800), Some(mib(800)), 100),
    ];
    let mut world = World::new(Kernel::new(mib(1600), Lru::Classic, sets), Controller::Both);
    world.run(240);
    world.kernel.sets[0].wanted = mib(800);
    world.run(120);
    let held = world.kernel.sets[0].resident;
    assert!(held > mib(600), "{held} of a promise of 800 MiB");
}

/// A heavy service that loses to the quirk of the kernel, and two of class idle that never rest.
fn restless(controller: Controller) -> World {
    let sets = vec![
        Set::managed("web", mib(900), Some(mib(900)), 400).hot(0.2),
        Set::managed("b1", mib(1400), None, 5).of_class("idle").hot(2.0),
        Set::managed("b2", mib(1400), None, 5).of_class("idle").hot(2.0),
    ];
    World::new(Kernel::new(mib(1500), Lru::Mglru, sets), controller)
}

#[test]
fn an_idle_class_stands_still_for_a_while_and_then_runs_again() {
    let mut world = restless(Controller::Shares);
    world.settings.memory.freeze = vec!["idle".to_owned()];
    let (mut still, mut longest, mut runs) = (0, 0, 0);
    for _ in 0..600 {
        world.run(1);
        assert!(!world.kernel.sets[0].is_frozen, "nobody named its class");
        still = if world.kernel.sets[1].is_frozen { still + 1 } else { 0 };
        runs += u32::from(!world.kernel.sets[1].is_frozen);
        longest = longest.max(still);
    }
    assert!((1..=125).contains(&longest), "frozen for {longest} s");
    assert!(runs >= 180, "ran for {runs} s of 600");
    for set in &mut world.kernel.sets[1..] {
        (set.wanted, set.resident) = (mib(50), mib(50));
    }
    world.run(60);
    assert!(world.kernel.sets.iter().all(|s| !s.is_frozen), "calm: nobody is kept");
    expect_let_run(&world, "others have had what is theirs");
}

/// That it stands still is no help where somebody else never rests.
#[test]
fn nobody_stands_still_for_longer_than_the_most() {
    let mut world = restless(Controller::Shares);
    world.kernel.sets[2] = Set::managed("b2", mib(1400), None, 300).hot(2.0);
    world.settings.memory.freeze = vec!["idle".to_owned()];
    let (mut still, mut longest) = (0, 0);
    for _ in 0..400 {
        world.run(1);
        still = if world.kernel.sets[1].is_frozen { still + 1 } else { 0 };
        longest = longest.max(still);
    }
    assert!((118..=122).contains(&longest), "frozen for {longest} s");
    expect_let_run(&world, "it stood still for 120 s, the most, and runs for at least 60 s");
}

fn expect_let_run(world: &World, why: &str) {
    let is_end = |s: &Step| matches!(s.action, Action::Release { knob: Knob::CgroupFreeze, .. });
    let reasons: Vec<_> = world.steps.iter().map(|(_, s)| s).filter(|s| is_end(s)).collect();
    assert!(reasons.iter().any(|s| s.reason.0 == why), "{reasons:?}");
}

/// Half frozen it helps nobody, and its user cannot stop it.
#[test]
fn who_does_not_come_to_a_stand_is_let_go_soon() {
    let mut world = restless(Controller::Shares);
    world.settings.memory.freeze = vec!["idle".to_owned()];
    world.kernel.sets[1].is_unreachable = true;
    let (mut asked, mut longest, mut others) = (0, 0, 0);
    for _ in 0..300 {
        world.run(1);
        asked = if world.kernel.sets[1].is_frozen { asked + 1 } else { 0 };
        longest = longest.max(asked);
        others += u32::from(world.kernel.sets[2].is_frozen);
    }
    assert!((1..=12).contains(&longest), "asked to stand still for {longest} s");
    let why =
        "it did not come to a stand within 10 s: a task of it waits where it cannot be frozen";
    expect_let_run(&world, why);
    assert!(others > 20, "the other one stood still for {others} s");
}

#[test]
fn freezing_and_stopping_need_leave() {
    let mut world = restless(Controller::Both);
    world.run(300);
    assert!(world.rungs.iter().all(|r| *r < Rung::Freeze));
    assert!(world.kernel.sets.iter().all(|s| s.wanted > Bytes::ZERO));
}

#[test]
fn who_may_be_stopped_is_asked_before_and_one_is_enough_at_a_time() {
    let mut world = restless(Controller::Shares);
    world.settings.memory.kill = vec!["idle".to_owned()];
    world.run(300);
    let last: Vec<_> = world.steps.iter().filter(|(_, s)| s.rung == Rung::Kill).collect();
    let (asked, first) = (&last[0], &last[1]);
    assert!(matches!(asked.1.action, Action::Reclaim { .. }), "{asked:?}");
    assert!(matches!(first.1.action, Action::Stop { .. }), "{first:?}");
    assert_eq!(asked.1.id, first.1.id);
    assert!(first.0 >= asked.0 + 10, "{} s to give up memory", first.0 - asked.0);
    let reason = &first.1.reason.0;
    assert!(reason.starts_with("for want of memory everything stands still "), "{reason}");
    assert!(reason.contains("web") && reason.contains("instead of it: b"), "{reason}");
    let stops: Vec<_> =
        last.iter().filter(|(_, s)| matches!(s.action, Action::Stop { .. })).collect();
    assert!(stops.windows(2).all(|w| w[1].0 >= w[0].0 + 60), "{stops:?}");
    assert!(world.kernel.sets[0].wanted > Bytes::ZERO, "nobody named its class");
}

/// What is needed of page cache counts as used: it is lost before nothing at all is available.
#[test]
fn who_may_be_stopped_is_stopped_before_others_have_lost_the_page_cache_that_they_need() {
    for (lru, throttle) in [(Lru::Mglru, true), (Lru::Classic, true), (Lru::Mglru, false)] {
        let web = Set::managed("web", mib(400), Some(mib(400)), 400).of_files().by_threads(32);
        let sets = vec![web, Set::managed("batch", mib(300), None, 0).of_class("idle")];
        let kernel = Kernel { swap: Some(Bytes::ZERO), ..Kernel::new(mib(1000), lru, sets) };
        let mut world = World::new(kernel, Controller::Both);
        world.settings.memory.kill = vec!["idle".to_owned()];
        world.settings.memory.throttle = throttle;
        world.run(60);
        let mut least: f64 = 1.0;
        for _ in 0..400 {
            let batch = &mut world.kernel.sets[1];
            // Who was stopped wants nothing any more.
            batch.wanted =
                if batch.wanted > Bytes::ZERO { batch.wanted + mib(1) } else { batch.wanted };
            world.run(1);
            least = least.min(world.kernel.sets[0].resident_part());
        }
        let stopped = |s: &Step| matches!(s.action, Action::Stop { .. });
        assert!(world.steps.iter().any(|(_, s)| stopped(s) && s.id == CgroupId(101)), "{lru:?}");
        assert!(least > 0.75, "{lru:?} {throttle} kept {least:.2}");
        // Growing on it waits, and that is what it is told by.
        let asked = world.steps.iter().position(|(_, s)| s.rung == Rung::Kill).unwrap();
        let rest = world.steps.iter().skip(asked).take_while(|(_, s)| !stopped(s));
        let limits = rest.filter(|(_, s)| {
            let is_limit = matches!(s.action, Action::Set { knob: Knob::MemoryHigh, .. });
            s.id == CgroupId(101) && is_limit
        });
        assert!(limits.count() <= 1, "its limit follows it");
    }
}

/// Who holds page cache beyond its share gives that, and nobody has to go.
#[test]
fn who_has_page_cache_to_give_is_not_stopped() {
    for (lru, size) in
        [(Lru::Mglru, 500), (Lru::Mglru, 900), (Lru::Classic, 500), (Lru::Classic, 900)]
    {
        let web = Set::managed("web", mib(400), Some(mib(400)), 400).of_files().by_threads(32);
        let batch = Set::managed("batch", mib(size), None, 0).of_class("idle").of_files();
        let kernel =
            Kernel { swap: Some(Bytes::ZERO), ..Kernel::new(mib(1000), lru, vec![web, batch]) };
        let mut world = World::new(kernel, Controller::Both);
        world.settings.memory.kill = vec!["idle".to_owned()];
        world.run(400);
        let last: Vec<_> = world.steps.iter().filter(|(_, s)| s.rung == Rung::Kill).collect();
        assert!(last.is_empty(), "{lru:?} {size} {last:?}");
        assert!(world.kernel.sets[0].resident_part() > 0.9, "{:?}", world.kernel.sets[0]);
    }
}

/// Who has lost its page cache and reads it again from a slow disk only needs the time, and a trifle that others lack is no reason.
#[test]
fn who_comes_back_stops_nobody() {
    for (lru, headroom) in [(Lru::Mglru, 1), (Lru::Mglru, 3), (Lru::Classic, 1), (Lru::Classic, 3)]
    {
        let files = |name: &str, size, weight| {
            Set::managed(name, mib(size), Some(mib(size)), weight).of_files().by_threads(32)
        };
        // With it shop lacks less than an eighth of its set.
        let batch = Set::managed("batch", mib(100), None, 0).of_class("idle");
        let sets = vec![files("web", 400, 400), batch, files("shop", 400, 100)];
        let swap = Some(Bytes::ZERO);
        let kernel = Kernel { swap, faults_per_sec: 2000.0, ..Kernel::new(mib(1000), lru, sets) };
        let mut world = World::new(kernel, Controller::Both);
        world.settings.memory.headroom = Headroom::Percent(Percent(headroom));
        world.settings.memory.kill = vec!["idle".to_owned()];
        for _ in 0..3 {
            world.run(150);
            let last: Vec<_> = world.steps.iter().filter(|(_, s)| s.rung == Rung::Kill).collect();
            assert!(last.is_empty(), "{lru:?} {headroom} {last:?}");
            let web = &mut world.kernel.sets[0];
            web.lose(web.resident);
        }
    }
}

#[test]
fn a_burst_meets_its_ramp_before_it_meets_others_memory() {
    let taken = |throttle: bool| {
        let sets = vec![
            Set::managed("web", mib(700), Some(mib(700)), 400),
            Set::bystander("job", mib(150)).hot(1.0),
        ];
        let mut world = World::new(Kernel::new(mib(1200), Lru::Mglru, sets), Controller::Shares);
        world.settings.memory.throttle = throttle;
        world.run(30);
        world.kernel.sets[1].wanted = mib(900);
        world.run(60);
        world.kernel.global_reclaimed
    };
    assert!(taken(true) < mib(10), "{}", taken(true));
    assert!(taken(false) > mib(100), "{}", taken(false));
}
