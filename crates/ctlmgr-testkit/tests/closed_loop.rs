//! Closed loop: the real policy against the simulated kernel.

use ctlmgr_model::{Action, Bytes, Gap, Mode, Settings};
use ctlmgr_policy::{State, check, decide};
use ctlmgr_testkit::{Kernel, Lru, Set, outcome};
use proptest::prelude::*;

/// Runs the loop for some seconds; every plan must be sound.
fn run(kernel: &mut Kernel, settings: &Settings, seconds: u32) -> Vec<usize> {
    run_on(kernel, &mut State::default(), settings, seconds)
}

/// The same, from what is known already.
fn run_on(kernel: &mut Kernel, state: &mut State, settings: &Settings, seconds: u32) -> Vec<usize> {
    let mut writes = Vec::new();
    for _ in 0..seconds {
        kernel.tick();
        let snapshot = kernel.snapshot();
        let (plan, next) = decide(settings, std::mem::take(state), &snapshot);
        *state = next;
        assert_eq!(check(settings, &plan, &snapshot), []);
        writes.push(plan.steps.iter().filter(|s| matches!(s.action, Action::Set { .. })).count());
        if settings.memory.mode == Mode::Act {
            for step in &plan.steps {
                state.learn(step, &outcome(step), snapshot.at);
            }
            kernel.apply(&plan);
        }
    }
    writes
}

fn act() -> Settings {
    let mut settings = Settings::default();
    settings.memory.mode = Mode::Act;
    settings
}

fn pair(weight_of_large: u16) -> Vec<Set> {
    vec![
        Set::managed("small", Bytes::mib(400), Some(Bytes::mib(400)), 100),
        Set::managed("large", Bytes::mib(800), Some(Bytes::mib(800)), weight_of_large),
    ]
}

#[test]
fn outside_pressure_does_not_break_promises() {
    for lru in [Lru::Mglru, Lru::Classic] {
        let mut kernel = Kernel::new(Bytes::mib(1970), lru, pair(100));
        run(&mut kernel, &act(), 30);
        kernel.sets.push(Set::bystander("pressure", Bytes::mib(1000)));
        run(&mut kernel, &act(), 120);
        let parts: Vec<f64> = kernel.sets.iter().map(Set::resident_part).collect();
        assert!(parts[0] > 0.9 && parts[1] > 0.9, "{lru:?} {parts:?}");
        assert!((parts[0] - parts[1]).abs() < 0.05, "{lru:?} {parts:?}");
    }
}

#[test]
fn observing_changes_nothing() {
    let mut kernel = Kernel::new(Bytes::mib(1970), Lru::Mglru, pair(100));
    kernel.sets.push(Set::bystander("pressure", Bytes::mib(1000)));
    let mut alone = kernel.clone();
    run(&mut kernel, &Settings::default(), 60);
    (0..60).for_each(|_| alone.tick());
    let resident = |k: &Kernel| k.sets.iter().map(|s| s.resident).collect::<Vec<_>>();
    assert_eq!(resident(&kernel), resident(&alone));
}

#[test]
fn equal_promises_split_equally_and_weight_decides_otherwise() {
    let three = |weight| {
        ["a", "b", "c"].map(|n| {
            Set::managed(
                n,
                Bytes::mib(800),
                Some(Bytes::mib(800)),
                if n == "a" { weight } else { 100 },
            )
        })
    };
    let mut equal = Kernel::new(Bytes::mib(1970), Lru::Mglru, three(100).to_vec());
    run(&mut equal, &act(), 180);
    let parts: Vec<f64> = equal.sets.iter().map(Set::resident_part).collect();
    let spread = parts.iter().fold(0.0_f64, |m, p| m.max((p - parts[0]).abs()));
    assert!(spread < 0.06, "{parts:?}");
    let mut heavy = Kernel::new(Bytes::mib(1970), Lru::Mglru, three(400).to_vec());
    run(&mut heavy, &act(), 180);
    assert!(heavy.sets[0].resident_part() > 0.93, "{:?}", heavy.sets);
}

#[test]
fn a_settled_world_is_left_alone() {
    let mut kernel = Kernel::new(Bytes::mib(4000), Lru::Mglru, pair(100));
    let writes = run(&mut kernel, &act(), 60);
    assert_eq!(writes[30..].iter().sum::<usize>(), 0, "{writes:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_mix_settles_within_the_machine(
        sizes in proptest::collection::vec((20u64..900, proptest::option::of(20u64..900), 1u16..2000, any::<bool>()), 1..12),
        total in 500u64..4000, mglru in any::<bool>()
    ) {
        let sets = sizes.iter().enumerate().map(|(i, (size, promise, weight, managed))| match managed {
            true => Set::managed(&format!("w{i}"), Bytes::mib(*size), promise.map(Bytes::mib), *weight),
            false => Set::bystander(&format!("u{i}"), Bytes::mib(*size)),
        });
        let lru = if mglru { Lru::Mglru } else { Lru::Classic };
        let mut kernel = Kernel::new(Bytes::mib(total), lru, sets.collect());
        let writes = run(&mut kernel, &act(), 120);
        // No oscillation: in the last half minute next to nothing is written any more.
        let late: usize = writes[90..].iter().sum();
        prop_assert!(late <= kernel.sets.len() * 4, "{late} late writes: {writes:?}");
        let low: Bytes = kernel.snapshot().workloads.iter().map(|w| w.group.memory.low).sum();
        prop_assert!(low <= kernel.total);
    }

    #[test]
    fn a_sudden_hog_that_was_promised_nothing_has_no_claim_on_what_others_were_promised(
        hog in 500u64..4000,
        heat in 0.2f64..4.0,
    ) {
        let mut kernel = Kernel::new(Bytes::mib(1970), Lru::Mglru, pair(100));
        run(&mut kernel, &act(), 30);
        kernel.sets.push(Set::managed("hog", Bytes::mib(hog), None, 100).hot(heat));
        run(&mut kernel, &act(), 60);
        let parts: Vec<f64> = kernel.sets.iter().map(Set::resident_part).collect();
        prop_assert!(parts[0] > 0.95 && parts[1] > 0.95, "{:?}", parts);
        prop_assert!(kernel.sets[2].resident > Bytes::mib(150), "nor does it starve: {:?}", parts);
    }

    /// Who weighs little and locks what it has, all at once or as it grows, beside one that weighs more.
    #[test]
    fn what_is_locked_is_kept_and_counted_on_by_nobody(
        part in 0u64..=100, weight in 1u16..400, total in 1000u64..2200, grows in any::<bool>(), is_mglru in any::<bool>(),
    ) {
        let lru = if is_mglru { Lru::Mglru } else { Lru::Classic };
        let mut sets = pair(400);
        sets[0].weight = weight;
        let locked = Bytes::mib(4 * part);
        let mut kernel = Kernel::new(Bytes::mib(total), lru, sets);
        kernel.sets.push(Set::bystander("pressure", Bytes::mib(300)));
        let mut state = State::default();
        for second in 1..=40 {
            // It is locked as it is touched, and what is locked is not taken.
            let stuck = kernel.sets[0].locked.min(kernel.sets[0].resident);
            run_on(&mut kernel, &mut state, &act(), 1);
            prop_assert!(kernel.sets[0].resident >= stuck);
            kernel.sets[0].locked = if grows { Bytes(locked.0 * second / 40) } else { locked };
        }
        let of = |snapshot: &ctlmgr_model::Snapshot| {
            let (plan, _) = decide(&act(), state.clone(), snapshot);
            plan.verdicts.into_iter().find(|v| v.name.0 == "small").unwrap()
        };
        let snapshot = kernel.snapshot();
        let mut unlocked = snapshot.clone();
        unlocked.workloads[0].group.memory.locked = Bytes::ZERO;
        let (own, by_weight) = (of(&snapshot), of(&unlocked));
        prop_assert!(own.share >= snapshot.workloads[0].group.memory.locked.min(own.demand));
        prop_assert!(own.due.0.abs_diff(by_weight.share.0.min(own.share.0)) <= Bytes::mib(2).0, "{} {}", own.due, by_weight.share);
        prop_assert!(by_weight.due == by_weight.share);
    }

    #[test]
    fn a_gap_never_tightens_anything(missing in 0usize..3, seconds in 5u32..40) {
        let mut kernel = Kernel::new(Bytes::mib(1970), Lru::Mglru, pair(100));
        kernel.sets.push(Set::bystander("pressure", Bytes::mib(900)));
        run(&mut kernel, &act(), seconds);
        let whole = kernel.snapshot();
        let mut gappy = whole.clone();
        if missing < gappy.workloads.len() {
            gappy.workloads.remove(missing);
        } else {
            gappy.bystanders.clear();
        }
        gappy.gaps.push(Gap { what: "a cgroup".into(), why: "vanished".into() });
        let settings = act();
        let (plan, mut state) = decide(&settings, State::default(), &whole);
        kernel.apply(&plan);
        plan.steps.iter().for_each(|s| state.learn(s, &ctlmgr_model::Outcome::Done, whole.at));
        let low = |k: &Kernel| k.snapshot().workloads.iter().map(|w| (w.group.id, w.group.memory.low)).collect::<std::collections::BTreeMap<_, _>>();
        let after = low(&kernel);
        gappy.workloads.iter_mut().for_each(|w| w.group.memory.low = after[&w.group.id]);
        gappy.ancestors = kernel.snapshot().ancestors;
        gappy.at = ctlmgr_model::Millis(whole.at.0 + 2000);
        let (plan, _) = decide(&settings, state, &gappy);
        let takes = |s: &ctlmgr_model::Step| match s.action {
            Action::Set { knob: ctlmgr_model::Knob::MemoryHigh, from, to, .. } => to < from,
            Action::Release { knob: ctlmgr_model::Knob::MemoryHigh, .. } => false,
            Action::Set { from, to, .. } => to < from,
            _ => true,
        };
        prop_assert!(!plan.steps.iter().any(takes), "{:?}", plan.steps);
        prop_assert_eq!(check(&settings, &plan, &gappy), vec![]);
        let present: Vec<_> = gappy.workloads.iter().map(|w| w.group.id).chain([ctlmgr_model::CgroupId(1)]).collect();
        let is_known = |s: &ctlmgr_model::Step| present.contains(&s.id) || gappy.bystanders.iter().any(|b| b.id == s.id);
        prop_assert!(plan.steps.iter().all(is_known));
    }
}
