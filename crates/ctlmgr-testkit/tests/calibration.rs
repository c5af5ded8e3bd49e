//! How well the simulated kernel fits the guest: the scene `sizes` of `cargo xtask bench memory`,
//! 400 and 800 MiB under 200 to 1000 MiB of outside pressure on 2 GiB, beside what was measured
//! (benches/results/memory-under-pressure.md, means of three runs), and *exp2*, two of 500 MiB, of which pressure,
//! refaults and swap were measured, too (benches/results/reports/memory-exp2.md, one run).
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

/// What else was measured of *exp2*: refaults of both since the beginning, parts of the time in which the host stalled
/// (`some` and `full`, per cent), and MiB that went to swap and did not come back.
type Felt = [f64; 5];

const PLAIN_FELT: [Felt; 5] = [
    [0.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 893.0, 0.0, 0.0, 52.0],
    [0.0, 12911.0, 40.8, 21.5, 135.0],
    [4764.0, 21599.0, 72.5, 33.1, 240.0],
    [10906.0, 30951.0, 78.7, 27.4, 290.0],
];
const ACTING_FELT: [Felt; 5] = [
    [0.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 15.0],
    [0.0, 425.0, 32.0, 18.5, 128.0],
    [186.0, 2283.0, 50.8, 25.9, 280.0],
    [1799.0, 4504.0, 54.4, 21.2, 342.0],
];

/// *sizes*: steps of 12 s, the later half of which is averaged.
fn simulate(lru: Lru, mode: Mode) -> Vec<Step> {
    let promised = |name, mib| Set::managed(name, Bytes::mib(mib), Some(Bytes::mib(mib)), 100);
    let kernel = guest(lru, [promised("small", 400), promised("large", 800)]);
    run_steps(kernel, mode, (STEP, LATE)).into_iter().map(|(step, _)| step).collect()
}

/// MemTotal of the guest, and what it holds beside the pair.
fn guest(lru: Lru, pair: [Set; 2]) -> Kernel {
    let kernel = Kernel::new(Bytes::mib(1970), lru, Vec::from(pair));
    Kernel { own: Bytes::mib(240), swap: Some(Bytes::mib(2048)), ..kernel }
}

/// Under 200 to 1000 MiB of outside pressure: means of the late part of each step, and what was felt at its end.
fn run_steps(mut kernel: Kernel, mode: Mode, (secs, late): (u32, u32)) -> Vec<(Step, Felt)> {
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
            run(&mut kernel, secs - late);
            let mean = run(&mut kernel, late);
            (mean, felt(&kernel))
        })
        .collect()
}

fn felt(kernel: &Kernel) -> Felt {
    let snapshot = kernel.snapshot();
    let refaults = |i: usize| snapshot.workloads[i].group.memory.refault_anon as f64;
    let pressure = snapshot.host.pressure.unwrap_or_default();
    let swapped = snapshot.host.swap_total - snapshot.host.swap_free;
    let stalls = [pressure.some, pressure.full].map(|line| f64::from(line.avg10_pct));
    [refaults(0), refaults(1), stalls[0], stalls[1], (swapped.0 >> 20) as f64]
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

/// At the end as many refaults and as much in swap as on the kernel where nobody acts, and less where ctlmgr does. The simulated host fills up later, by what the guest holds beside the pair, and stalls more often and less long.
#[test]
fn what_is_felt_fits_roughly() {
    let member = |name| Set::managed(name, Bytes::mib(500), Some(Bytes::mib(1000)), 100);
    let at_the_end = |mode, measured: &[Felt; 5]| -> [Felt; 2] {
        let kernel = guest(Lru::Mglru, [member("first"), member("second")]);
        let all = run_steps(kernel, mode, (8, 4));
        for (step, ((_, felt), real)) in all.iter().zip(measured).enumerate() {
            println!(
                "{mode:?} {} MiB: simulated {felt:.0?}, measured {real:.0?}",
                200 * (step + 1)
            );
        }
        [all[4].1, measured[4]]
    };
    let refaults = |felt: &Felt| felt[0] + felt[1];
    let [plain, real] = at_the_end(Mode::Observe, &PLAIN_FELT);
    let is_like = |a: f64, b: f64| (0.67..1.5).contains(&(a / b));
    assert!(is_like(refaults(&plain), refaults(&real)) && is_like(plain[4], real[4]), "{plain:?}");
    assert!((plain[2] - real[2]).abs() < 25.0 && (plain[3] - real[3]).abs() < 20.0, "{plain:?}");
    let [acting, real] = at_the_end(Mode::Act, &ACTING_FELT);
    assert!(refaults(&acting) <= refaults(&real) && acting[4] < real[4], "{acting:?}");
}
