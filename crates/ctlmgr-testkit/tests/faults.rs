//! Closed loop with sensors that fail or lie, and writes that fail: every plan is sound on what was seen, nothing is taken
//! while something could not be read, and once all is well again so are those who were promised something.

use ctlmgr_model::{
    Action, Bytes, Gap, Knob, Limit, Millis, Mode, OnOverride, Outcome, Settings, Snapshot, Step,
};
use ctlmgr_policy::{State, check, decide};
use ctlmgr_testkit::{Kernel, Lru, Set, outcome};
use proptest::prelude::*;

fn mib(n: u64) -> Bytes {
    Bytes::mib(n)
}

/// What goes wrong in a second.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Nothing.
    None,
    /// A cgroup cannot be read.
    Gap(usize),
    /// PSI cannot be read, of the host and of everybody.
    Blind,
    /// One seems to hold so much, in per cent of what it does.
    Wrong(usize, u64),
    /// Counters of one begin anew.
    Reset(usize),
    /// Free memory is said to be so much, in MiB.
    Free(u64),
    /// A write fails: so many of the plan's steps, from the first on, are not done.
    Writes(usize),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::None),
        1 => (0usize..4).prop_map(Fault::Gap),
        1 => Just(Fault::Blind),
        1 => (0usize..3, 0u64..300).prop_map(|(which, pct)| Fault::Wrong(which, pct)),
        1 => (0usize..3).prop_map(Fault::Reset),
        1 => (0u64..3000).prop_map(Fault::Free),
        2 => (1usize..8).prop_map(Fault::Writes),
    ]
}

/// The snapshot as it is seen.
fn seen(mut snapshot: Snapshot, fault: Fault) -> Snapshot {
    match fault {
        Fault::Gap(which) => {
            if which < snapshot.workloads.len() {
                snapshot.workloads.remove(which);
            } else {
                snapshot.bystanders.clear();
            }
            snapshot.gaps.push(Gap { what: "a cgroup".into(), why: "a fault".into() });
        }
        Fault::Blind => {
            snapshot.host.pressure = None;
            let groups = snapshot.workloads.iter_mut().map(|w| &mut w.group);
            groups.chain(&mut snapshot.bystanders).for_each(|g| g.memory.pressure = None);
        }
        Fault::Wrong(which, pct) => {
            if let Some(w) = snapshot.workloads.get_mut(which) {
                let memory = &mut w.group.memory;
                memory.current = Bytes(memory.current.0 / 100 * pct);
                memory.anon = memory.current;
            }
        }
        Fault::Reset(which) => {
            if let Some(w) = snapshot.workloads.get_mut(which) {
                w.group.memory.refault_anon = 0;
                w.group.activity.io.cpu_usec = 0;
            }
        }
        Fault::Free(free) => snapshot.host.mem_free = mib(free).min(snapshot.host.mem_total),
        Fault::None | Fault::Writes(_) => {}
    }
    snapshot
}

/// Whether a step takes something from somebody.
fn takes(step: &Step) -> bool {
    match step.action {
        Action::Set {
            knob: Knob::MemoryHigh | Knob::MemoryLow | Knob::MemoryMin,
            from,
            to,
            ..
        } => to < from,
        Action::Release { knob, .. } => Knob::PROTECTION.contains(&knob),
        Action::Reclaim { .. } | Action::Stop { .. } => true,
        _ => false,
    }
}

/// One second of a host; returns the plan's steps.
fn second(
    kernel: &mut Kernel,
    state: State,
    settings: &Settings,
    fault: Fault,
) -> Result<(State, Vec<Step>), TestCaseError> {
    kernel.tick();
    let snapshot = seen(kernel.snapshot(), fault);
    let (mut plan, mut state) = decide(settings, state, &snapshot);
    prop_assert_eq!(check(settings, &plan, &snapshot), vec![], "{:?}", fault);
    let steps = plan.steps.clone();
    if let Fault::Writes(failed) = fault {
        for step in plan.steps.drain(..failed.min(plan.steps.len())) {
            state.learn(&step, &Outcome::Failed("a fault".into()), snapshot.at);
        }
    }
    plan.steps.iter().for_each(|step| state.learn(step, &outcome(step), snapshot.at));
    kernel.apply(&plan);
    Ok((state, steps))
}

fn act() -> Settings {
    let mut settings = Settings::default();
    settings.memory.mode = Mode::Act;
    settings
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn whatever_sensors_and_writes_do_promises_hold_once_it_is_over(
        faults in proptest::collection::vec(fault(), 20..60),
        outside in 300u64..1000,
        mglru in any::<bool>(),
    ) {
        let settings = act();
        let lru = if mglru { Lru::Mglru } else { Lru::Classic };
        let sets = vec![
            Set::managed("small", mib(400), Some(mib(400)), 100),
            Set::managed("large", mib(800), Some(mib(800)), 100),
            Set::managed("other", mib(200), None, 100),
        ];
        let mut kernel = Kernel::new(mib(2100), lru, sets);
        let mut state = State::default();
        for _ in 0..20 {
            state = second(&mut kernel, state, &settings, Fault::None)?.0;
        }
        kernel.sets.push(Set::bystander("outside", mib(outside)));
        for fault in &faults {
            let (next, steps) = second(&mut kernel, state, &settings, *fault)?;
            state = next;
            let is_gap = matches!(fault, Fault::Gap(_));
            let taken = steps.iter().find(|s| is_gap && takes(s));
            prop_assert!(taken.is_none(), "with a gap: {taken:?}");
        }
        for _ in 0..90 {
            state = second(&mut kernel, state, &settings, Fault::None)?.0;
        }
        let parts: Vec<f64> = kernel.sets.iter().map(Set::resident_part).collect();
        prop_assert!(parts[0] > 0.9 && parts[1] > 0.9, "{parts:?}");
        let limits = kernel.snapshot().workloads.iter().take(2).all(|w| match w.group.memory.high {
            Limit::Max => true,
            Limit::Bytes(high) => high >= w.group.memory.current,
        });
        prop_assert!(limits, "nobody who was promised something is held below what it uses");
    }
}

/// One second of a host on which somebody else may have written; what ctlmgr wrote to the first one's memory.low.
fn contested(kernel: &mut Kernel, state: State, settings: &Settings) -> (State, Vec<Step>) {
    kernel.tick();
    let snapshot = kernel.snapshot();
    let (plan, mut state) = decide(settings, state, &snapshot);
    assert_eq!(check(settings, &plan, &snapshot), []);
    plan.steps.iter().for_each(|step| state.learn(step, &outcome(step), snapshot.at));
    kernel.apply(&plan);
    let is_it = |s: &Step| {
        let is_low = matches!(s.action, Action::Set { knob: Knob::MemoryLow, .. });
        is_low && s.path == snapshot.workloads[0].group.path
    };
    let steps = plan.steps.into_iter().filter(is_it).collect();
    (state, steps)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A kubelet, senpai or an administrator's script that writes memory.low of one container every few seconds.
    #[test]
    fn another_writers_value_stays_or_is_written_over_now_and_then(
        values in proptest::collection::vec(0u64..700, 6..20), every in 1u32..8, reassert in any::<bool>(), mglru in any::<bool>(),
    ) {
        let mut settings = act();
        if reassert {
            settings.memory.on_override = OnOverride::Reassert;
        }
        let sets = vec![
            Set::managed("small", mib(400), Some(mib(400)), 100),
            Set::managed("large", mib(800), Some(mib(800)), 100),
        ];
        let lru = if mglru { Lru::Mglru } else { Lru::Classic };
        let mut kernel = Kernel::new(mib(2100), lru, sets);
        let mut state = State::default();
        for _ in 0..20 {
            state = contested(&mut kernel, state, &settings).0;
        }
        kernel.sets.push(Set::bystander("outside", mib(700)));
        let mut last = Millis(0);
        for value in &values {
            // Not by chance what ctlmgr would write, or what was there before it.
            let foreign = mib(*value) + Bytes::PAGE;
            kernel.sets[0].write(Knob::MemoryLow, foreign);
            for _ in 0..every {
                let (next, steps) = contested(&mut kernel, state, &settings);
                state = next;
                for step in steps {
                    let apart = kernel.now.since(last);
                    last = kernel.now;
                    let Action::Set { from, .. } = step.action else { continue };
                    prop_assert!(from != foreign || apart >= Millis(10_000), "again after {apart:?}");
                }
                let low = kernel.snapshot().workloads[0].group.memory.low;
                prop_assert!(reassert || low == foreign, "{low} in place of {foreign}");
            }
        }
        prop_assert!(state.overrides() > 0);
        if reassert {
            for _ in 0..60 {
                state = contested(&mut kernel, state, &settings).0;
            }
            prop_assert!(kernel.sets[0].resident_part() > 0.9, "{:?}", kernel.sets[0]);
        }
    }
}
