//! Closed loop: what is asked for and what is needed are not the same.

use ctlmgr_model::{Bytes, Mode, Plan, Settings};
use ctlmgr_policy::{State, check, decide};
use ctlmgr_testkit::{Kernel, Lru, Set, outcome};
use proptest::prelude::*;

fn mib(n: u64) -> Bytes {
    Bytes::mib(n)
}

/// Runs a host for some seconds; each second something may happen to its sets.
fn run(kernel: Kernel, probe: bool, seconds: u32, each: impl FnMut(&mut Kernel)) -> Kernel {
    watch(kernel, probe, seconds, (each, |_| ()))
}

/// The same, and each plan is looked at.
fn watch(
    kernel: Kernel,
    probe: bool,
    seconds: u32,
    each_look: (impl FnMut(&mut Kernel), impl FnMut(&Plan)),
) -> Kernel {
    let mut settings = Settings::default();
    settings.memory.mode = Mode::Act;
    settings.memory.probe = probe;
    decided(kernel, &settings, seconds, each_look)
}

/// The same, by these settings.
fn decided(
    mut kernel: Kernel,
    settings: &Settings,
    seconds: u32,
    (mut each, mut look): (impl FnMut(&mut Kernel), impl FnMut(&Plan)),
) -> Kernel {
    let mut state = State::default();
    for _ in 0..seconds {
        each(&mut kernel);
        kernel.tick();
        let snapshot = kernel.snapshot();
        let (plan, next) = decide(settings, std::mem::take(&mut state), &snapshot);
        state = next;
        assert_eq!(check(settings, &plan, &snapshot), []);
        look(&plan);
        kernel.apply(&plan);
        plan.steps.iter().for_each(|step| state.learn(step, &outcome(step), snapshot.at));
    }
    kernel
}

/// Filled once and hardly used, beside one that uses all it can get.
fn hoarder_and_worker() -> Kernel {
    let sets = vec![
        Set::managed("hoarder", mib(100), None, 100).with_unused(mib(600)),
        Set::managed("worker", mib(900), None, 100),
    ];
    Kernel::new(mib(1500), Lru::Classic, sets)
}

#[test]
fn probing_finds_what_is_never_used() {
    let held = |probe| run(hoarder_and_worker(), probe, 400, |_| ()).sets[1].resident;
    assert!(held(true) > mib(880), "{}", held(true));
    assert!(held(false) < mib(800), "{}", held(false));
}

#[test]
fn probing_costs_a_warm_set_next_to_nothing() {
    let sets = vec![
        Set::managed("a", mib(600), Some(mib(600)), 400),
        Set::managed("b", mib(1200), Some(mib(600)), 100),
    ];
    let mut paces = Vec::new();
    run(Kernel::new(mib(1500), Lru::Classic, sets), true, 600, |kernel| {
        paces.push(kernel.sets[0].pace);
    });
    let mean = paces[60..].iter().sum::<f64>() / (paces.len() - 60) as f64;
    assert!(mean > 0.97, "{mean}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// It grows by what it never touches again, until there is no more, and beyond.
    #[test]
    fn a_leak_takes_nothing_from_who_was_promised(
        web in 100u64..900, promised in 50u64..300, leaks in 1u64..12, spare in 50u64..600, mglru in any::<bool>(),
    ) {
        let sets = vec![
            Set::managed("web", mib(web), Some(mib(web)), 100),
            Set::managed("leak", mib(50), Some(mib(promised)), 100),
        ];
        let (mut second, mut pace) = (0, 0.0);
        let total = mib(150 + web + promised + 60 + spare);
        let lru = if mglru { Lru::Mglru } else { Lru::Classic };
        let kernel = run(Kernel::new(total, lru, sets), false, 400, |kernel| {
            let leaked = mib(leaks).min(kernel.free());
            let leak = &mut kernel.sets[1];
            (leak.unused, leak.resident) = (leak.unused + leaked, leak.resident + leaked);
            second += 1;
            if second > 60 {
                pace += kernel.sets[0].pace / 340.0;
            }
        });
        prop_assert!(pace > 0.95, "{pace}");
        prop_assert!(kernel.sets[0].resident_part() > 0.95, "{:?}", kernel.sets[0]);
    }

    /// What was filled once and is never used is taken before what somebody works with, whatever both weigh.
    #[test]
    fn who_allocates_without_use_gives_it_to_who_needs_it(
        unused in 200u64..900, used in 50u64..200, need in 300u64..900, weight in 50u16..400,
    ) {
        let sets = vec![
            Set::managed("hoarder", mib(used), None, weight).with_unused(mib(unused)),
            Set::managed("worker", mib(need), Some(mib(need)), 100),
        ];
        // All that is used fits, and a third of what is not.
        let total = mib(150 + used + need + need / 20 + 60 + unused / 3);
        let kernel = run(Kernel::new(total, Lru::Classic, sets), true, 400, |_| ());
        prop_assert!(kernel.sets[1].resident_part() > 0.9, "{:?}", kernel.sets[1]);
        prop_assert!(kernel.sets[0].pace > 0.9, "{:?}", kernel.sets[0]);
    }

    /// Pages that children share with their parent are there once, those that they write come and go with them.
    #[test]
    fn a_fork_server_keeps_its_pace_and_its_neighbour_what_it_was_promised(
        shared in 100u64..400, own in 5u64..40, children in 1u64..9, secs in 2u32..12, mglru in any::<bool>(),
    ) {
        let most = shared + own * children;
        let lru = if mglru { Lru::Mglru } else { Lru::Classic };
        let sets = vec![
            Set::managed("server", mib(shared), Some(mib(most)), 100),
            Set::managed("web", mib(400), Some(mib(400)), 100),
            Set::managed("batch", mib(900), None, 10).hot(0.05),
        ];
        let (mut second, mut alive, mut paces) = (0, 0, [0.0; 2]);
        let total = mib(150 + most + 400 + 300);
        run(Kernel::new(total, lru, sets), false, 300, |kernel| {
            second += 1;
            if second % secs == 0 {
                alive = (alive + 1) % (children + 1);
            }
            kernel.sets[0].resize(mib(shared + own * alive));
            if second > 60 {
                paces = [0, 1].map(|i| paces[i] + kernel.sets[i].pace / 240.0);
            }
        });
        prop_assert!(paces[0] > 0.9 && paces[1] > 0.95, "{:?}", paces);
    }

    /// Twenty seconds of every minute it wants much more than it was promised.
    #[test]
    fn a_burst_gets_what_nobody_else_needs_and_takes_from_nobody(
        usual in 50u64..300, more in 100u64..900, room in 0u64..900, mglru in any::<bool>(),
    ) {
        let lru = if mglru { Lru::Mglru } else { Lru::Classic };
        let sets = vec![
            Set::managed("web", mib(600), Some(mib(600)), 100),
            Set::managed("burst", mib(usual), Some(mib(usual)), 100),
        ];
        let (mut second, mut pace, mut peak) = (0, 0.0, Bytes::ZERO);
        let total = mib(150 + 600 + usual + 100 + room);
        // It ends twenty seconds after a burst has.
        let kernel = run(Kernel::new(total, lru, sets), false, 339, |kernel| {
            second += 1;
            let wanted = if second % 60 < 20 { usual + more } else { usual };
            kernel.sets[1].resize(mib(wanted));
            if second > 60 {
                pace += kernel.sets[0].pace / 279.0;
            }
            peak = peak.max(kernel.sets[1].resident);
        });
        prop_assert!(pace > 0.9, "{pace}");
        prop_assert!(kernel.sets[1].resident_part() > 0.9, "it has its own back: {:?}", kernel.sets[1]);
        prop_assert!(peak + mib(120) >= mib(usual + more.min(room)), "{peak}");
    }

    /// Sound plans (asserted inside), and with nothing short nobody is probed.
    #[test]
    fn without_contention_nobody_is_probed(
        sizes in proptest::collection::vec((50u64..300, 0u64..300), 1..6)
    ) {
        let sets: Vec<Set> = sizes
            .iter()
            .enumerate()
            .map(|(i, (warm, cold))| {
                Set::managed(&format!("w{i}"), mib(*warm), None, 100).with_unused(mib(*cold))
            })
            .collect();
        let before: Bytes = sets.iter().map(|s| s.unused).sum();
        let kernel = run(Kernel::new(mib(8000), Lru::Classic, sets), true, 120, |_| ());
        prop_assert_eq!(kernel.sets.iter().map(|s| s.unused).sum::<Bytes>(), before);
    }
}

/// What the simulated kernel takes from whom tells which of the two it is.
#[test]
fn it_is_seen_whether_the_kernel_heeds_memory_low() {
    let seen = |lru| {
        let sets = vec![
            Set::managed("web", mib(600), Some(mib(600)), 100),
            Set::bystander("hog", mib(300)),
        ];
        let (mut second, mut last) = (0, None);
        // Faster than a reading a second can follow.
        let each = |kernel: &mut Kernel| {
            kernel.sets[1].resize(mib(if second % 20 < 10 { 300 } else { 1100 }));
            second += 1;
        };
        watch(Kernel::new(mib(1400), lru, sets), false, 240, (each, |p: &Plan| last = p.heeding));
        last
    };
    assert_eq!(seen(Lru::Mglru).and_then(|h| h.is_heeded), Some(false), "{:?}", seen(Lru::Mglru));
    assert_eq!(
        seen(Lru::Classic).and_then(|h| h.is_heeded),
        Some(true),
        "{:?}",
        seen(Lru::Classic)
    );
}

/// What is read again within a minute is need, though less was promised: a unit that appears and grows gives way to it.
#[test]
fn page_cache_in_use_is_need_beyond_the_promise() {
    for lru in [Lru::Mglru, Lru::Classic] {
        let files = |name| Set::managed(name, mib(500), Some(mib(150)), 100).of_files().hot(0.03);
        let sets = vec![files("first"), files("second"), Set::bystander("unit", mib(10))];
        let mut second = 0;
        let grow = |kernel: &mut Kernel| {
            second += 1;
            kernel.sets[2].wanted = if second < 60 { mib(10) } else { mib(700) };
        };
        let kernel = run(Kernel::new(mib(1700), lru, sets), false, 240, grow);
        let parts = [0, 1].map(|i| kernel.sets[i].resident_part());
        assert!(parts.iter().all(|part| *part > 0.96), "{lru:?} {parts:?}");
    }
}

/// The same two, and a unit that grows faster than anybody looks: who has shown before that it uses what it has, and weighs more, keeps it.
#[test]
fn who_was_probed_before_memory_is_short_keeps_its_page_cache_by_weight() {
    let least = |probe_cache| {
        let files = |name, weight| {
            Set::managed(name, mib(500), Some(mib(150)), weight).of_files().hot(0.03)
        };
        let sets = vec![files("heavy", 400), files("light", 100), Set::bystander("unit", mib(300))];
        let mut settings = Settings::default();
        settings.memory.mode = Mode::Act;
        settings.memory.probe_cache = probe_cache;
        let (mut second, mut least, mut lost) = (0, 1.0f64, 0.0f64);
        let each = |kernel: &mut Kernel| {
            second += 1;
            kernel.sets[2].wanted = if second < 120 { mib(300) } else { mib(700) };
            if second > 120 {
                least = least.min(kernel.sets[0].resident_part());
            } else {
                lost = lost.max(1.0 - kernel.sets[0].pace);
            }
        };
        decided(Kernel::new(mib(1640), Lru::Mglru, sets), &settings, 200, (each, |_| ()));
        (least, lost)
    };
    let [(probed, lost), (unknown, _)] = [true, false].map(least);
    assert!(probed > 0.96 && unknown < 0.85, "{probed} {unknown}");
    assert!(lost < 0.05, "a probe costs little: {lost}");
}
