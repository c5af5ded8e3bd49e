//! How well the simulated kernel fits the guest: the scene `sizes` of `cargo xtask bench memory`,
//! 400 and 800 MiB under 200 to 1000 MiB of outside pressure on 2 GiB, beside what was measured
//! (benches/results/memory-under-pressure.md, means of three runs).
//!
//! `cargo test -p ctlmgr-testkit --test calibration -- --nocapture` prints both.

use ctlmgr_model::{Bytes, Mode, Settings};
use ctlmgr_policy::{State, decide};
use ctlmgr_testkit::{Kernel, Lru, Set, outcome};

/// Seconds per step, and how many of them are averaged.
const STEP: u32 = 12;
const LATE: u32 = 6;

/// Resident parts and paces of small and large.
type Step = [f64; 4];

/// Measured, step by step.
const PLAIN_MGLRU: [Step; 5] = [
    [1.008, 1.005, 1.00, 1.00],
    [0.960, 0.970, 0.78, 0.71],
    [0.933, 0.873, 0.43, 0.16],
    [0.855, 0.488, 0.55, 0.10],
    [0.931, 0.433, 0.80, 0.09],
];
const PLAIN_CLASSIC: [Step; 5] = [
    [1.008, 1.005, 1.00, 1.00],
    [1.007, 1.005, 1.00, 1.00],
    [0.953, 0.953, 0.68, 0.56],
    [0.928, 0.939, 0.67, 0.60],
    [0.974, 0.976, 0.88, 0.84],
];
const ACTING: [Step; 5] = [
    [1.008, 1.005, 1.00, 1.00],
    [1.008, 1.005, 1.00, 1.00],
    [1.008, 1.005, 1.00, 1.00],
    [1.008, 1.005, 0.99, 0.99],
    [1.008, 1.005, 0.99, 0.98],
];

fn simulate(lru: Lru, mode: Mode) -> Vec<Step> {
    let promised = |name, mib| Set::managed(name, Bytes::mib(mib), Some(Bytes::mib(mib)), 100);
    // MemTotal of the guest, and what it holds beside the pair.
    let mut kernel =
        Kernel::new(Bytes::mib(1970), lru, vec![promised("small", 400), promised("large", 800)]);
    kernel.own = Bytes::mib(240);
    let mut settings = Settings::default();
    settings.memory.mode = mode;
    let mut state = State::default();
    let mut run = |kernel: &mut Kernel, seconds: u32| -> Step {
        let mut sum = [0.0; 4];
        for _ in 0..seconds {
            kernel.tick();
            let snapshot = kernel.snapshot();
            let (plan, next) = decide(&settings, std::mem::take(&mut state), &snapshot);
            state = next;
            if mode == Mode::Act {
                plan.steps.iter().for_each(|s| state.learn(s, &outcome(s), snapshot.at));
                kernel.apply(&plan);
            }
            let [small, large] = [&kernel.sets[0], &kernel.sets[1]];
            let now = [small.resident_part(), large.resident_part(), small.pace, large.pace];
            sum.iter_mut().zip(now).for_each(|(s, n)| *s += n);
        }
        sum.map(|s| s / f64::from(seconds))
    };
    run(&mut kernel, 30);
    kernel.sets.push(Set::bystander("pressure", Bytes::ZERO));
    (1..=5u64)
        .map(|step| {
            kernel.sets[2].wanted = Bytes::mib(200 * step);
            run(&mut kernel, STEP - LATE);
            run(&mut kernel, LATE)
        })
        .collect()
}

/// Mean and largest error of resident parts, and of paces.
fn errors(name: &str, simulated: &[Step], measured: &[Step; 5]) -> [f64; 4] {
    for (step, (sim, real)) in simulated.iter().zip(measured).enumerate() {
        println!("{name} {} MiB: simulated {sim:.2?}, measured {real:.2?}", 200 * (step + 1));
    }
    let of = |part: std::ops::Range<usize>| -> [f64; 2] {
        let differences: Vec<f64> = simulated
            .iter()
            .zip(measured)
            .flat_map(|(s, m)| {
                part.clone().map(|i| (s[i] - m[i].min(1.0)).abs()).collect::<Vec<_>>()
            })
            .collect();
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        [mean, differences.iter().fold(0.0, |a, b| a.max(*b))]
    };
    let ([mean_part, worst_part], [mean_pace, worst_pace]) = (of(0..2), of(2..4));
    println!(
        "{name}: resident off by {mean_part:.3}, at worst {worst_part:.3}; pace by {mean_pace:.2}, at worst {worst_pace:.2}"
    );
    [mean_part, worst_part, mean_pace, worst_pace]
}

#[test]
fn it_fits_where_ctlmgr_acts() {
    for lru in [Lru::Mglru, Lru::Classic] {
        let [_, part, _, pace] = errors("acting", &simulate(lru, Mode::Act), &ACTING);
        assert!(part < 0.05 && pace < 0.15, "{part} {pace}");
    }
}

#[test]
fn it_fits_the_plain_kernel_roughly() {
    let classic = simulate(Lru::Classic, Mode::Observe);
    let [part, _, pace, _] = errors("plain classic", &classic, &PLAIN_CLASSIC);
    assert!(part < 0.1 && pace < 0.3, "{part} {pace}");
    let mglru = simulate(Lru::Mglru, Mode::Observe);
    let [part, _, pace, _] = errors("plain MGLRU", &mglru, &PLAIN_MGLRU);
    assert!(part < 0.2 && pace < 0.3, "{part} {pace}");
}
