//! Share computation, whole decisions, readings, and parsing, at 10, 100 and 1000 workloads.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ctlmgr_host::Host;
use ctlmgr_model::{Bytes, Millis, Settings, Weight};
use ctlmgr_policy::share::{Claim, divide};
use ctlmgr_policy::{State, decide};
use ctlmgr_sense::cgroup::{parse_events, parse_stat};
use ctlmgr_sense::{Query, Sensor};
use ctlmgr_testkit::{FakeHost, Kernel, Lru, Set};

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

/// All files that a container's cgroup has in a scenario.
const SCOPE: &str = "../crates/ctlmgrd/tests/scenarios/10-contended/sys/fs/cgroup/ctlmgr.slice/\
    docker-9da4c543dd6e536a4f82d430f1ada93e03023b1fcf6585abc2aa0542aa53f99e.scope";

/// A look at files that look like a host: what a reading costs but for the kernel's counting.
fn readings(c: &mut Criterion) {
    let scope = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(SCOPE);
    let files: Vec<(String, String)> = std::fs::read_dir(scope)
        .expect("the scenario is there")
        .map(|entry| {
            let path = entry.expect("it can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("it can be read"))
        })
        .collect();
    let mut group = c.benchmark_group("read");
    for n in SIZES {
        let directory = tempfile::tempdir().expect("there is a directory for temporary files");
        let host = FakeHost::new(directory.path());
        host.cgroup("ctlmgr.slice", n << 20, 0);
        for (i, (name, text)) in (0..n).flat_map(|i| files.iter().map(move |file| (i, file))) {
            host.write(&format!("sys/fs/cgroup/ctlmgr.slice/docker-{i:064x}.scope/{name}"), text);
        }
        let sensor = Sensor::new(Host::fake(directory.path())).expect("it looks like a host");
        let query = Query::default();
        let seen = sensor.snapshot(Millis(1), &query).expect("it can be read");
        assert_eq!(seen.workloads.len() as u64, n);
        group.throughput(Throughput::Elements(n));
        group.bench_with_input(BenchmarkId::from_parameter(n), &query, |b, query| {
            b.iter(|| sensor.snapshot(Millis(1), black_box(query)));
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

criterion_group!(benches, shares, decisions, readings, parsing);
criterion_main!(benches);
