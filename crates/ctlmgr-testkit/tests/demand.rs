//! Closed loop: what is asked for and what is needed are not the same.

use ctlmgr_model::{Bytes, Mode, Settings};
use ctlmgr_policy::{State, check, decide};
use ctlmgr_testkit::{Kernel, Lru, Set, outcome};
use proptest::prelude::*;

fn mib(n: u64) -> Bytes {
    Bytes::mib(n)
}

/// Runs a host for some seconds; each second something may happen to its sets.
fn run(mut kernel: Kernel, probe: bool, seconds: u32, mut each: impl FnMut(&mut Kernel)) -> Kernel {
    let mut settings = Settings::default();
    settings.memory.mode = Mode::Act;
    settings.memory.probe = probe;
    let mut state = State::default();
    for _ in 0..seconds {
        each(&mut kernel);
        kernel.tick();
        let snapshot = kernel.snapshot();
        let (plan, next) = decide(&settings, std::mem::take(&mut state), &snapshot);
        state = next;
        assert_eq!(check(&settings, &plan, &snapshot), []);
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

#[test]
fn a_leak_takes_nothing_from_who_was_promised() {
    let sets = vec![
        Set::managed("web", mib(600), Some(mib(600)), 100),
        Set::managed("leak", mib(100), Some(mib(200)), 100),
    ];
    let kernel = run(Kernel::new(mib(1300), Lru::Classic, sets), false, 600, |kernel| {
        let leaked = mib(2).min(kernel.free());
        let leak = &mut kernel.sets[1];
        (leak.unused, leak.resident) = (leak.unused + leaked, leak.resident + leaked);
    });
    assert!(kernel.sets[0].resident_part() > 0.98, "{:?}", kernel.sets[0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

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
