//! Share computation, whole decisions, and parsing, at 10, 100 and 1000 workloads.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ctlmgr_model::{Bytes, Settings, Weight};
use ctlmgr_policy::share::{Claim, divide};
use ctlmgr_policy::{State, decide};
use ctlmgr_sense::cgroup::{parse_events, parse_stat};
use ctlmgr_testkit::{Kernel, Lru, Set};

const SIZES: [u64; 3] = [10, 100, 1000];

fn shares(c: &mut Criterion) {
    let mut group = c.benchmark_group("divide");
    for n in SIZES {
        let claims: Vec<Claim> = (0..n)
            .map(|i| Claim {
                name: format!("w{i}"),
                weight: Weight::of_class(["high", "normal", "low"][i as usize % 3])
                    .unwrap_or_default(),
                basis: Bytes::mib(50 + i % 97),
                demand: Bytes::mib(40 + i % 131),
                floor: Bytes::mib(i % 11),
                max: None,
            })
            .collect();
        let capacity = Bytes::mib(60 * n);
        group.throughput(Throughput::Elements(n));
        group.bench_with_input(BenchmarkId::from_parameter(n), &claims, |b, claims| {
            b.iter(|| divide(black_box(capacity), black_box(claims)));
        });
    }
    group.finish();
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide");
    let settings = Settings::default();
    for n in SIZES {
        let set = |i| Set::managed(&format!("w{i}"), Bytes::mib(100), Some(Bytes::mib(80)), 100);
        let mut kernel =
            Kernel::new(Bytes::mib(90 * n + 200), Lru::Mglru, (0..n).map(set).collect());
        (0..5).for_each(|_| kernel.tick());
        let snapshot = kernel.snapshot();
        let (_, state) = decide(&settings, State::default(), &snapshot);
        group.throughput(Throughput::Elements(n));
        group.bench_with_input(BenchmarkId::from_parameter(n), &snapshot, |b, snapshot| {
            b.iter(|| decide(&settings, state.clone(), black_box(snapshot)));
        });
    }
    group.finish();
}

fn parsing(c: &mut Criterion) {
    let stat = include_str!(
        "../../crates/ctlmgrd/tests/scenarios/10-contended/sys/fs/cgroup/ctlmgr.slice/memory.stat"
    );
    let events = "low 3\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n";
    c.bench_function("parse memory.stat", |b| b.iter(|| parse_stat(black_box(stat))));
    c.bench_function("parse memory.events", |b| b.iter(|| parse_events(black_box(events))));
}

criterion_group!(benches, shares, decisions, parsing);
criterion_main!(benches);
