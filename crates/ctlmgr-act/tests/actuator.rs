//! Steps on a directory that looks like a host, with a system manager that is a fake.

#![expect(clippy::unwrap_used, reason = "a test that cannot make its own world may panic")]

use std::sync::{Arc, Mutex};

use ctlmgr_act::{Actuator, Ask, Property, RECLAIM_TIME, UnitError, UnitProperties};
use ctlmgr_host::Host;
use ctlmgr_model::*;
use ctlmgr_testkit::FakeHost;

const SCOPE: &str = "a.slice/x.scope";

/// Unit, property, value.
type Call = (String, &'static str, Value);

/// A system manager that writes what it is told to one cgroup's files.
#[derive(Clone)]
struct FakeSystemd {
    host: FakeHost,
    calls: Arc<Mutex<Vec<Call>>>,
    /// All that it was told with the last call.
    sent: Arc<Mutex<Vec<Property>>>,
    /// What happens instead of obeying.
    fault: Option<Fault>,
    /// What it holds of the scope's memory.max, if it says so, and what that is by the time it is told anything.
    limit: Option<(u64, u64)>,
    /// Whether that is in the file as soon as it has said what it holds.
    is_quick: bool,
}

#[derive(Clone, Copy)]
enum Fault {
    NoSuchUnit,
    Timeout,
    /// Says yes, and another writer is there before who looks.
    Overridden,
}

impl UnitProperties for FakeSystemd {
    async fn set(&self, unit: &str, all: &[Property]) -> Result<(), UnitError> {
        let property = all[0].clone();
        *self.sent.lock().unwrap() = all.to_vec();
        self.calls.lock().unwrap().push((unit.to_owned(), property.0, property.1.clone()));
        match self.fault {
            Some(Fault::NoSuchUnit) => return Err(UnitError::NoSuchUnit(unit.to_owned())),
            Some(Fault::Timeout) => {
                return Err(UnitError::Timeout { unit: unit.to_owned(), property: property.0 });
            }
            Some(Fault::Overridden) => {
                self.host.write(&format!("sys/fs/cgroup/{SCOPE}/memory.low"), "12288\n");
                return Ok(());
            }
            None => {}
        }
        let path = if unit == "x.scope" { SCOPE } else { "a.slice" };
        let file = match property.0 {
            "MemoryLow" => "memory.low",
            "AllowedCPUs" => "cpuset.cpus",
            _ => "memory.min",
        };
        let text = format!("{}\n", property.1.file_text());
        self.host.write(&format!("sys/fs/cgroup/{path}/{file}"), &text);
        // Like the real one: what it was not told about swap, it takes for no limit.
        let swap = all.iter().find(|(name, _)| *name == "MemorySwapMax");
        let swap = swap.map_or("max".to_owned(), |(_, value)| value.file_text());
        self.host.write(&format!("sys/fs/cgroup/{path}/memory.swap.max"), &swap);
        let limit = all.iter().find(|(name, _)| *name == "MemoryMax").map(|(_, value)| value);
        let own = self.limit.map(|(_, limit)| Bytes(limit).into());
        if let Some(limit) = limit.or(own.as_ref()) {
            self.host.write(&format!("sys/fs/cgroup/{path}/memory.max"), &limit.file_text());
        }
        Ok(())
    }

    async fn held(&self, _: &str) -> Option<Vec<Property>> {
        let (limit, meanwhile) = self.limit?;
        if self.is_quick {
            let file = format!("sys/fs/cgroup/{SCOPE}/memory.max");
            self.host.write(&file, &meanwhile.to_string());
        }
        Some(vec![("MemoryMax", Bytes(limit).into()), ("MemorySwapMax", Bytes(u64::MAX).into())])
    }
}

struct World {
    _directory: tempfile::TempDir,
    host: FakeHost,
    systemd: FakeSystemd,
    actuator: Actuator<FakeSystemd>,
}

fn world(fault: Option<Fault>) -> World {
    let directory = tempfile::tempdir().unwrap();
    let host = FakeHost::new(directory.path());
    host.cgroup("a.slice", 10 << 20, 0);
    host.cgroup(SCOPE, 10 << 20, 4096);
    host.cgroup("docker/abc", 10 << 20, 0);
    let systemd = FakeSystemd {
        host: host.clone(),
        calls: Arc::default(),
        sent: Arc::default(),
        fault,
        limit: None,
        is_quick: false,
    };
    let actuator = Actuator::new(Host::fake(directory.path()), systemd.clone()).unwrap();
    World { _directory: directory, host, systemd, actuator }
}

impl World {
    fn id(&self, path: &str) -> CgroupId {
        let cgroups = Host::fake(self.host.root()).cgroups().unwrap();
        cgroups.open(&CgroupPath::new(path)).unwrap().unwrap().id()
    }

    /// memory.low of `path`, 4096 before, about to become `ours`.
    fn saved(&self, path: &str, ours: u64) -> Saved {
        Saved {
            path: CgroupPath::new(path),
            id: self.id(path),
            knob: Knob::MemoryLow,
            prior: Bytes(4096).into(),
            ours: Bytes(ours).into(),
            before: Bytes(4096).into(),
            told: None,
            asked: None,
            had_setting: false,
        }
    }

    async fn set(&self, path: &str, ours: u64) -> Outcome {
        self.actuator.set(&self.saved(path, ours)).await
    }
}

fn ask(amount: u64, chunk: u64) -> Ask {
    let (amount, chunk) = (Bytes::mib(amount), Bytes::mib(chunk));
    Ask { amount, chunk, only_cache: false, deadline: std::time::Instant::now() + RECLAIM_TIME }
}

#[tokio::test]
async fn units_go_through_the_manager_and_files_do_not() {
    let w = world(None);
    assert_eq!(w.set(SCOPE, 8192).await, Outcome::Done);
    assert_eq!(w.set("docker/abc", 8192).await, Outcome::Done);
    assert_eq!(
        *w.systemd.calls.lock().unwrap(),
        [("x.scope".to_owned(), "MemoryLow", Bytes(8192).into())]
    );
    assert_eq!(w.host.read("sys/fs/cgroup/docker/abc/memory.low"), "8192");
}

/// runc writes a swap limit of nothing past the manager, which must not lift it, whatever it is asked to set.
#[tokio::test]
async fn a_swap_limit_beside_the_knob_stays() {
    let w = world(None);
    let file = format!("sys/fs/cgroup/{SCOPE}/memory.swap.max");
    w.host.write(&file, "0\n");
    w.host.write(&format!("sys/fs/cgroup/{SCOPE}/cpuset.cpus"), "\n");
    assert_eq!(w.actuator.set(&pinned(&w, "0-1")).await, Outcome::Done);
    assert_eq!(w.host.read(&file), "0");
    let sent: Vec<_> = w.systemd.sent.lock().unwrap().iter().map(|(name, _)| *name).collect();
    assert_eq!(sent, ["AllowedCPUs", "MemoryHigh", "MemoryMax", "MemorySwapMax"]);
    assert_eq!(w.set(SCOPE, 8192).await, Outcome::Done);
    assert_eq!(w.host.read(&file), "0");
    assert_eq!(w.actuator.put_back(&w.saved(SCOPE, 8192)).await, Undone::PutBack);
    assert_eq!(w.host.read(&file), "0");
}

/// `docker update --memory` between our look at a scope and what its manager does for us.
#[tokio::test]
async fn a_limit_that_is_set_through_the_manager_meanwhile_stays() {
    let max = format!("sys/fs/cgroup/{SCOPE}/memory.max");
    let (before, meanwhile) = (300 << 20, 200 << 20);
    // The kernel has whole pages only of what the manager holds.
    for (held, in_file, is_quick, expected) in [
        (before, before, false, meanwhile),
        (before, before, true, meanwhile),
        (before + 1, before, false, meanwhile),
        (before, 100 << 20, false, 100 << 20),
    ] {
        let mut w = world(None);
        w.host.write(&max, &in_file.to_string());
        w.systemd.limit = Some((held, meanwhile));
        w.systemd.is_quick = is_quick;
        w.actuator = Actuator::new(Host::fake(w.host.root()), w.systemd.clone()).unwrap();
        assert_eq!(w.set(SCOPE, 8192).await, Outcome::Done);
        let found: u64 = w.host.read(&max).parse().unwrap();
        assert_eq!(found, expected, "what was written past it stays, and else its own");
    }
}

#[tokio::test]
async fn a_step_for_another_cgroup_of_the_same_path_is_dropped() {
    let w = world(None);
    let mut saved = w.saved(SCOPE, 8192);
    saved.id = CgroupId(saved.id.0 + 1);
    assert_eq!(w.actuator.set(&saved).await, Outcome::Vanished);
    assert!(w.systemd.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn faults_of_the_manager_become_outcomes() {
    let w = world(Some(Fault::NoSuchUnit));
    assert_eq!(w.set(SCOPE, 8192).await, Outcome::Done, "by its file");
    let w = world(Some(Fault::Overridden));
    assert_eq!(w.set(SCOPE, 8192).await, Outcome::Overridden(Bytes(12_288).into()));
    let w = world(Some(Fault::Timeout));
    let Outcome::Failed(text) = w.set(SCOPE, 8192).await else { panic!("a timeout is a failure") };
    assert!(text.contains("MemoryLow of x.scope"), "{text}");
}

/// The manager may be waiting for the very memory that is to be freed.
#[tokio::test]
async fn protection_takes_effect_though_the_manager_does_not_answer() {
    let w = world(Some(Fault::Timeout));
    let low = || w.host.read(&format!("sys/fs/cgroup/{SCOPE}/memory.low"));
    assert!(matches!(w.set(SCOPE, 8192).await, Outcome::Failed(_)));
    assert_eq!(low(), "8192");
    assert!(matches!(w.set(SCOPE, 0).await, Outcome::Failed(_)), "it has to be told still");
    assert_eq!(low(), "0");
    assert!(matches!(w.actuator.put_back(&w.saved(SCOPE, 0)).await, Undone::Failed(_)));
}

/// Whom a limit holds back has no part in what keeps the manager.
#[tokio::test]
async fn who_is_let_go_does_not_wait_for_the_manager() {
    let w = world(Some(Fault::Timeout));
    let file = format!("sys/fs/cgroup/{SCOPE}/memory.high");
    let high = |ours| Saved {
        knob: Knob::MemoryHigh,
        prior: Bytes(u64::MAX).into(),
        before: Bytes::mib(11).into(),
        ..w.saved(SCOPE, ours)
    };
    w.host.write(&file, &Bytes::mib(11).0.to_string());
    assert!(matches!(w.actuator.set(&high(10 << 20)).await, Outcome::Failed(_)));
    assert_eq!(w.host.read(&file), Bytes::mib(11).0.to_string(), "to limit may wait");
    assert!(matches!(w.actuator.set(&high(12 << 20)).await, Outcome::Failed(_)));
    assert_eq!(w.host.read(&file), Bytes::mib(12).0.to_string());
    assert!(matches!(w.actuator.put_back(&high(12 << 20)).await, Undone::Failed(_)));
    assert_eq!(w.host.read(&file), "max", "and the journal keeps it until the manager knows");
}

#[tokio::test]
async fn what_is_written_ahead_takes_nothing_is_as_decided_on_and_nothing_else() {
    let w = world(None);
    let ahead = |saved: &Saved| w.actuator.write_ahead(saved);
    let max = Bytes(u64::MAX).into();
    let high = Saved { knob: Knob::MemoryHigh, before: max, ..w.saved(SCOPE, 12 << 20) };
    assert!(!ahead(&high), "a limit that is lowered");
    let other = Saved { before: Bytes(12_288).into(), ..w.saved(SCOPE, 0) };
    assert!(!ahead(&other), "another value is there by now");
    let gone = Saved { id: CgroupId(7), ..w.saved(SCOPE, 0) };
    assert!(!ahead(&gone), "another cgroup");
    assert_eq!(w.host.read(&format!("sys/fs/cgroup/{SCOPE}/memory.low")), "4096");
    assert!(ahead(&w.saved(SCOPE, 0)));
    assert_eq!(w.host.read(&format!("sys/fs/cgroup/{SCOPE}/memory.low")), "0");
    assert!(w.systemd.calls.lock().unwrap().is_empty());
}

/// The manager takes its own scope for a transient one, and nobody writes past it there.
#[tokio::test]
async fn undo_leaves_no_setting_of_the_managers_own_scope() {
    let w = world(None);
    w.host.cgroup("init.scope", 10 << 20, 4096);
    let drop_in = "run/systemd/transient/init.scope.d/50-MemoryLow.conf";
    w.host.write(drop_in, "[Scope]\nMemoryLow=8192\n");
    w.host.write("sys/fs/cgroup/init.scope/memory.low", "8192\n");
    let saved = w.saved("init.scope", 8192);
    assert_eq!(w.actuator.put_back(&saved).await, Undone::PutBack);
    assert!(!w.host.root().join("run/systemd/transient/init.scope.d").exists());
}

/// The kernel would reclaim the difference within the write, in PID 1.
#[tokio::test]
async fn a_limit_that_use_has_passed_meanwhile_is_overtaken() {
    let w = world(None);
    let lower = |ours| Saved {
        knob: Knob::MemoryHigh,
        prior: Bytes(u64::MAX).into(),
        before: Bytes(u64::MAX).into(),
        ..w.saved(SCOPE, ours)
    };
    assert!(w.actuator.is_overtaken(&lower(9 << 20)));
    assert!(!w.actuator.is_overtaken(&lower(11 << 20)));
    let released = Saved { before: Bytes(8 << 20).into(), ..lower(u64::MAX) };
    assert!(!w.actuator.is_overtaken(&released), "to let go is always right");
    assert!(!w.actuator.is_overtaken(&w.saved(SCOPE, 8192)), "protection may lie below use");
    w.host.write(&format!("sys/fs/cgroup/{SCOPE}/memory.high"), "2097152\n");
    assert!(w.actuator.is_overtaken(&w.saved(SCOPE, 8192)), "but the limit goes along with it");
}

/// The manager has no property for it, and does not touch what others freeze.
#[tokio::test]
async fn freezing_goes_past_the_manager() {
    let w = world(None);
    let file = format!("sys/fs/cgroup/{SCOPE}/cgroup.freeze");
    w.host.write(&file, "0\n");
    let saved = Saved {
        knob: Knob::CgroupFreeze,
        prior: Bytes::ZERO.into(),
        before: Bytes::ZERO.into(),
        ..w.saved(SCOPE, Knob::STILL.0)
    };
    assert_eq!(w.actuator.set(&saved).await, Outcome::Done);
    assert_eq!(w.host.read(&file), "1");
    assert_eq!(w.actuator.put_back(&saved).await, Undone::PutBack);
    assert_eq!(w.host.read(&file), "0");
    assert!(w.systemd.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn reclaim_writes_bounded_chunks() {
    let w = world(None);
    let target = (&CgroupPath::new(SCOPE), w.id(SCOPE));
    let outcome = w.actuator.reclaim(target, ask(5, 2)).await;
    assert_eq!(outcome, Outcome::Reclaimed(Bytes::mib(5)));
    let last = w.host.read(&format!("sys/fs/cgroup/{SCOPE}/memory.reclaim"));
    assert_eq!(last, (1u64 << 20).to_string(), "two chunks and the rest");
}

#[tokio::test]
async fn undo_puts_back_only_what_is_still_ours() {
    let w = world(None);
    let saved = w.saved(SCOPE, 8192);
    w.set(SCOPE, 8192).await;
    assert_eq!(w.actuator.put_back(&saved).await, Undone::PutBack);
    assert_eq!(w.host.read(&format!("sys/fs/cgroup/{SCOPE}/memory.low")), "4096");
    w.host.write(&format!("sys/fs/cgroup/{SCOPE}/memory.low"), "12288\n");
    assert_eq!(w.actuator.put_back(&saved).await, Undone::LeftToOthers(Bytes(12288).into()));
    std::fs::remove_dir_all(w.host.root().join(format!("sys/fs/cgroup/{SCOPE}"))).unwrap();
    assert_eq!(w.actuator.put_back(&saved).await, Undone::Vanished);
}

/// The journal knows of a second write that never came through: the first value is ours too.
#[tokio::test]
async fn undo_knows_the_value_before_an_interrupted_write() {
    let w = world(None);
    w.set(SCOPE, 8192).await;
    let saved = Saved { before: Bytes(8192).into(), ..w.saved(SCOPE, 16384) };
    assert_eq!(w.actuator.put_back(&saved).await, Undone::PutBack);
}

#[tokio::test]
async fn undo_leaves_no_drop_in_behind_but_the_users_own() {
    let w = world(None);
    let drop_in = "run/systemd/system.control/a.slice.d/50-MemoryLow.conf";
    w.host.write(drop_in, "[Slice]\nMemoryLow=8192\n");
    w.set("a.slice", 8192).await;
    let saved = Saved { prior: Bytes::ZERO.into(), ..w.saved("a.slice", 8192) };
    assert_eq!(w.actuator.put_back(&saved).await, Undone::PutBack);
    assert!(!w.host.root().join("run/systemd/system.control/a.slice.d").exists());
    w.host.write(drop_in, "[Slice]\nMemoryLow=4096\n");
    let saved = Saved { prior: Bytes(4096).into(), ..saved };
    assert!(w.actuator.has_setting(&saved));
    w.host.write(drop_in, "[Slice]\nMemoryLow=5000\n");
    assert!(w.actuator.has_setting(&saved), "the kernel counts in pages");
    w.set("a.slice", 8192).await;
    let saved = Saved { had_setting: true, ..saved };
    assert_eq!(w.actuator.put_back(&saved).await, Undone::PutBack);
    assert!(w.host.root().join(drop_in).exists());
}

/// A value written past the manager stays, and the manager must not bring ours back.
#[tokio::test]
async fn undo_takes_ours_out_of_the_manager_where_another_wrote_the_file() {
    let w = world(None);
    let drop_in = "run/systemd/system.control/a.slice.d/50-MemoryLow.conf";
    w.set("a.slice", 8192).await;
    w.host.write(drop_in, "[Slice]\nMemoryLow=8192\n");
    w.host.write("sys/fs/cgroup/a.slice/memory.low", "12288\n");
    let saved = w.saved("a.slice", 8192);
    assert!(!w.actuator.has_setting(&saved), "that setting is ours");
    assert_eq!(w.actuator.put_back(&saved).await, Undone::LeftToOthers(Bytes(12288).into()));
    assert_eq!(w.host.read("sys/fs/cgroup/a.slice/memory.low"), "12288");
    assert_eq!(w.systemd.calls.lock().unwrap().last().unwrap().2, Value::from(Bytes(12288)));
    assert!(!w.host.root().join(drop_in).exists());
}

/// A slice goes with its last container, but its unit would come again with our value.
#[tokio::test]
async fn undo_reaches_the_unit_of_a_slice_that_is_gone() {
    let w = world(None);
    let saved = Saved { prior: Bytes::ZERO.into(), ..w.saved("a.slice", 8192) };
    let drop_in = "run/systemd/system.control/a.slice.d/50-MemoryLow.conf";
    w.host.write(drop_in, "[Slice]\nMemoryLow=8192\n");
    std::fs::remove_dir_all(w.host.root().join("sys/fs/cgroup/a.slice")).unwrap();
    assert_eq!(w.actuator.put_back(&saved).await, Undone::Vanished);
    assert_eq!(
        *w.systemd.calls.lock().unwrap(),
        [("a.slice".to_owned(), "MemoryLow", Bytes::ZERO.into())]
    );
    assert!(!w.host.root().join(drop_in).exists());
}

/// A kernel before 5.19.
#[tokio::test]
async fn without_memory_reclaim_a_limit_dips_for_one_write() {
    let w = world(None);
    assert!(w.actuator.has_reclaim());
    for path in ["a.slice", SCOPE, "docker", "docker/abc"] {
        let file = w.host.root().join(format!("sys/fs/cgroup/{path}/memory.reclaim"));
        let _ = std::fs::remove_file(file);
    }
    let actuator = Actuator::new(Host::fake(w.host.root()), w.systemd.clone()).unwrap();
    assert!(!actuator.has_reclaim());
    let target = (&CgroupPath::new("docker/abc"), w.id("docker/abc"));
    let high = "sys/fs/cgroup/docker/abc/memory.high".to_owned();
    w.host.write(&high, "max\n");
    let dip = actuator.dip(target, Bytes::mib(2), None).unwrap().unwrap();
    let saved = dip.saved().clone();
    assert!(saved.prior == Bytes(u64::MAX) && saved.ours == Bytes::mib(8), "{saved:?}");
    assert_eq!(dip.take().unwrap(), Bytes::ZERO, "use of a fake never falls");
    assert_eq!(w.host.read(&high), "max");
    // Killed in the midst of it.
    w.host.write(&high, &saved.ours.file_text());
    assert_eq!(actuator.put_back(&saved).await, Undone::PutBack);
    assert_eq!(w.host.read(&high), "max");
    // A limit of ours from before: undo must know what was there before both.
    let known = Saved { ours: Bytes::mib(9).into(), before: Bytes(u64::MAX).into(), ..saved };
    w.host.write(&high, &known.ours.file_text());
    let dip = actuator.dip(target, Bytes::mib(2), Some(&known)).unwrap().unwrap();
    assert!(dip.saved().prior == Bytes(u64::MAX) && dip.saved().before == known.ours);
    // Somebody's limit is lower already.
    w.host.write(&high, &Bytes::mib(1).0.to_string());
    assert!(actuator.dip(target, Bytes::mib(2), None).unwrap().is_none());
}

#[tokio::test]
async fn page_aging_is_switched_and_put_back_unless_another_wrote_it() {
    let w = world(None);
    let file = "sys/kernel/mm/lru_gen/enabled";
    w.host.write(file, "0x0007\n");
    let saved = Saved {
        path: CgroupPath::new(""),
        id: CgroupId(0),
        knob: Knob::LruGen,
        prior: Bytes(7).into(),
        ours: Bytes::ZERO.into(),
        before: Bytes(7).into(),
        told: None,
        asked: None,
        had_setting: false,
    };
    assert_eq!(w.actuator.present(&saved).unwrap(), Some(Bytes(7).into()));
    assert_eq!(w.actuator.set(&saved).await, Outcome::Done);
    assert_eq!(w.host.read(file), "0");
    assert_eq!(w.actuator.put_back(&saved).await, Undone::PutBack);
    assert_eq!(w.host.read(file), "7");
    w.host.write(file, "0x0003\n");
    assert_eq!(w.actuator.put_back(&saved).await, Undone::LeftToOthers(Bytes(3).into()));
    std::fs::remove_file(w.host.root().join(file)).unwrap();
    assert_eq!(w.actuator.set(&saved).await, Outcome::Vanished);
}

/// cpuset.cpus of the scope, which inherits, about to become `ours`.
fn pinned(w: &World, ours: &str) -> Saved {
    let list = |text: &str| Value::from(text.parse::<Cpus>().unwrap());
    Saved {
        knob: Knob::CpusetCpus,
        prior: list(""),
        ours: list(ours),
        before: list(""),
        ..w.saved(SCOPE, 0)
    }
}

#[tokio::test]
async fn a_pin_goes_through_the_manager_and_undo_gives_all_processors_back() {
    let w = world(None);
    let file = format!("sys/fs/cgroup/{SCOPE}/cpuset.cpus");
    w.host.write(&file, "\n");
    w.host.write("sys/devices/system/cpu/possible", "0-7\n");
    let saved = pinned(&w, "2-3");
    assert_eq!(w.actuator.set(&saved).await, Outcome::Done);
    let call = ("x.scope".to_owned(), "AllowedCPUs", saved.ours.clone());
    assert_eq!(*w.systemd.calls.lock().unwrap(), [call]);
    assert_eq!(w.host.read(&file), "2-3");
    assert_eq!(w.actuator.put_back(&saved).await, Undone::PutBack);
    assert_eq!(w.host.read(&file), "0-7", "no list cannot be written while anybody runs");
    // Somebody else's list stays.
    w.host.write(&file, "5\n");
    let five = "5".parse::<Cpus>().unwrap();
    assert_eq!(w.actuator.put_back(&saved).await, Undone::LeftToOthers(five.into()));
    // A write that never came through.
    w.host.write(&file, "\n");
    assert_eq!(w.actuator.put_back(&saved).await, Undone::PutBack);
    assert_eq!(w.host.read(&file), "");
}

#[tokio::test]
async fn without_a_list_of_all_processors_a_pin_stays_in_the_journal() {
    let w = world(None);
    w.host.write(&format!("sys/fs/cgroup/{SCOPE}/cpuset.cpus"), "2-3\n");
    let undone = w.actuator.put_back(&pinned(&w, "2-3")).await;
    assert!(matches!(&undone, Undone::Failed(why) if why.contains("cpu/possible")), "{undone:?}");
}
