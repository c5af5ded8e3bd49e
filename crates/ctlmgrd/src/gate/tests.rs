mod asking;
mod late;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::*;
use crate::control::Refused;
use ctlmgr_host::Host;
use ctlmgr_model::{Bytes, CgroupId, Character, ContainerFacts, Io, Moved, Remembered};
use tokio::sync::oneshot;

/// A host with one container's cgroup, and everything that the gate listens to.
struct World {
    dir: tempfile::TempDir,
    settings: watch::Sender<Settings>,
    containers: watch::Sender<Containers>,
    questions: mpsc::Sender<Question>,
    appeared: mpsc::UnboundedSender<Appearance>,
    orders: tokio::sync::Mutex<mpsc::UnboundedReceiver<Order>>,
}

fn id(name: &str) -> String {
    let digits: String = name.bytes().map(|b| format!("{b:02x}")).collect();
    format!("{digits:0<64}")
}

fn facts(name: &str, labels: &[(&str, &str)]) -> ContainerFacts {
    ContainerFacts {
        id: id(name),
        name: Some(name.to_owned()),
        image: Some(format!("{name}-image")),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..ContainerFacts::default()
    }
}

impl World {
    fn new(mode: Mode, list: Vec<ContainerFacts>) -> World {
        World::with(mode, list, |_| {})
    }

    /// With a store that holds something already.
    fn with(mode: Mode, list: Vec<ContainerFacts>, fill: impl FnOnce(&Profiles)) -> World {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("sys/fs/cgroup");
        std::fs::create_dir_all(&top).unwrap();
        std::fs::write(top.join("cgroup.controllers"), "memory io\n").unwrap();
        let sensor = Arc::new(Sensor::new(Host::fake(dir.path())).unwrap());
        let mut all = Settings::default();
        all.starts.mode = mode;
        let (settings, settings_seen) = watch::channel(all);
        let by_id = list.into_iter().map(|f| (f.id.clone(), f)).collect();
        let known = Containers { by_id, version: Some("test".into()), ..Containers::default() };
        let (containers, containers_seen) = watch::channel(known);
        let (questions, heard) = mpsc::channel(1024);
        let (orders, obeyed) = mpsc::unbounded_channel();
        let (appeared, seen) = mpsc::unbounded_channel();
        let store = Profiles::open(&dir.path().join("profiles.db")).unwrap();
        fill(&store);
        let store = Some(store);
        drop(open(Parts {
            settings: settings_seen,
            containers: containers_seen,
            sensor,
            store,
            questions: heard,
            appeared: seen,
            orders,
        }));
        World { dir, settings, containers, questions, appeared, orders: obeyed.into() }
    }

    /// A container of which nothing but its I/O so far is to be seen.
    fn runs(&self, name: &str, read_mib: u64, reads: u64) {
        let dir = self.scope(name);
        std::fs::create_dir_all(&dir).unwrap();
        let stat = format!("8:0 rbytes={} wbytes=0 rios={reads} wios=0\n", read_mib << 20);
        std::fs::write(dir.join("io.stat"), stat).unwrap();
        std::fs::write(dir.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    }

    /// Its cgroup goes; as in the kernel, none has its number again.
    fn ends(&self, name: &str) {
        let before = std::fs::read_dir(self.dir.path()).unwrap().count();
        std::fs::rename(self.scope(name), self.dir.path().join(format!("gone-{before}"))).unwrap();
    }

    /// It runs its own program.
    fn appears(&self, name: &str) {
        let cgroup = std::fs::metadata(self.scope(name)).map_or(0, |dir| dir.ino());
        self.appeared.send(Appearance { id: id(name), cgroup: CgroupId(cgroup) }).unwrap();
    }

    fn scope(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("sys/fs/cgroup/system.slice/docker-{}.scope", id(name)))
    }

    async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> Question) -> Result<T, Refused> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(question(reply)).await.unwrap();
        answer.await.unwrap()
    }

    async fn start(&self, request: StartRequest) -> StartAnswer {
        self.ask(|reply| Question::Start(request, reply)).await.unwrap()
    }

    async fn queue(&self) -> Queue {
        self.ask(Question::Queue).await.unwrap()
    }
}

fn wants(name: &str) -> StartRequest {
    StartRequest { container: name.into(), wait_ms: Some(50), ..StartRequest::default() }
}

const READER: (&str, &str) = ("ctlmgr.batch.class", "random-read");
const SCANNER: (&str, &str) = ("ctlmgr.batch.class", "sequential-read");

#[tokio::test]
async fn who_does_not_fit_waits_until_the_other_is_over_and_learns_from_it() {
    let world = World::new(Mode::Act, vec![facts("db", &[READER]), facts("scan", &[SCANNER])]);
    let db = world.start(wants("db")).await;
    assert_eq!((db.decision, db.batch), (StartDecision::Start, 1));
    let scan = world.start(wants(&id("scan")[..12])).await;
    assert_eq!(scan.decision, StartDecision::Wait);
    assert_eq!(scan.reason, "sequential-read beside those costs 2.00, more than 1.25");
    let queue = world.queue().await;
    assert_eq!(queue.waiting[0].behind, ["db"]);
    assert_eq!((queue.starting[0].name.as_str(), queue.waiting[0].name.as_str()), ("db", "scan"));
    // It reads 40 MiB in requests of 4 KiB, and is healthy then.
    world.runs("db", 40, 10_240);
    world.containers.send_modify(|c| {
        c.note_start(&id("db"));
    });
    let ask = world.start(StartRequest {
        ticket: Some(scan.ticket),
        wait_ms: None,
        ..wants(&id("scan")[..12])
    });
    let healthy = async {
        world.containers.send_modify(|c| c.by_id.get_mut(&id("db")).unwrap().is_healthy = true);
    };
    let (answer, ()) = tokio::join!(ask, healthy);
    assert_eq!((answer.decision, answer.ticket), (StartDecision::Start, scan.ticket));
    assert_eq!((answer.batch, answer.reason.as_str()), (2, "nobody else starts"));
    let profiles = world.ask(Question::Profiles).await.unwrap();
    assert_eq!((profiles.len(), profiles[0].key.as_str()), (1, "db-image"));
    assert_eq!(profiles[0].profile.character, Character::RandomRead);
    let moved = Moved { read: Bytes::mib(40), reads: 10_240, ..Moved::default() };
    let disks = [("8:0".parse().unwrap(), moved)].into_iter().collect();
    let io = Io { read: moved.read, reads: moved.reads, disks, ..Io::default() };
    assert_eq!(profiles[0].profile.io, io);
    assert!(profiles[0].profile.alone.is_some(), "nobody started beside it");
    let known = world.ask(Question::Containers).await.unwrap();
    let of = |name: &str| known.iter().find(|k| k.name == name).unwrap();
    assert_eq!(of("db").profile.as_ref(), Some(&profiles[0].profile));
    assert_eq!((of("scan").stated, &of("scan").profile), (Some(Character::SequentialRead), &None));
    // It is written beside the gate's own work.
    let store = Profiles::open(&world.dir.path().join("profiles.db")).unwrap();
    while !store.remembered().unwrap().contains_key(&id("db")) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn while_dockerd_boots_containers_are_known_as_they_started_last() {
    let world = World::with(Mode::Act, Vec::new(), |store| {
        for (name, class) in [("db", READER), ("scan", SCANNER)] {
            let facts = facts(name, &[class]);
            store.remember(&Remembered { key: name.to_owned(), facts }, &[]).unwrap();
        }
    });
    let asks = |name| StartRequest { source: "runc".into(), ..wants(&id(name)) };
    assert_eq!(world.start(asks("db")).await.decision, StartDecision::Start);
    let scan = world.start(asks("scan")).await;
    assert_eq!(scan.reason, "sequential-read beside those costs 2.00, more than 1.25");
    assert_eq!(world.queue().await.waiting[0].name, "scan");
}

#[tokio::test]
async fn while_observing_nobody_waits_and_the_answer_says_what_would_be() {
    let world = World::new(Mode::Observe, vec![facts("db", &[READER]), facts("scan", &[SCANNER])]);
    world.start(wants("db")).await;
    let scan = world.start(wants("scan")).await;
    assert_eq!(scan.decision, StartDecision::Start);
    assert!(
        scan.reason.starts_with("only observing; would wait: sequential-read"),
        "{}",
        scan.reason
    );
    world.settings.send_modify(|s| s.starts.mode = Mode::Off);
    assert_eq!(world.start(wants("other")).await.reason, "the starts job is off");
}

#[tokio::test]
async fn the_operator_lets_go_cancels_holds_and_releases() {
    let world = World::new(Mode::Act, vec![facts("a", &[]), facts("b", &[]), facts("c", &[])]);
    let change = |change| world.ask(move |reply| Question::Change(change, reply));
    change(QueueChange::Hold).await.unwrap();
    let ask = |name| world.start(StartRequest { wait_ms: None, ..wants(name) });
    let operate = async {
        while world.queue().await.waiting.len() < 3 {
            tokio::task::yield_now().await;
        }
        let nobody = change(QueueChange::Skip("x".into())).await.unwrap_err();
        assert_eq!(nobody, Refused::NotFound("`x` does not wait; these do: a, b, c".into()));
        change(QueueChange::Skip("b".into())).await.unwrap();
        change(QueueChange::Cancel("a".into())).await.unwrap();
        change(QueueChange::Release).await.unwrap()
    };
    let (a, b, c, queue) = tokio::join!(ask("a"), ask("b"), ask("c"), operate);
    assert_eq!(
        (a.decision, a.reason.as_str()),
        (StartDecision::Refuse, "cancelled by the operator")
    );
    assert_eq!((b.decision, c.decision), (StartDecision::Start, StartDecision::Start));
    assert!(!queue.is_held && queue.waiting.is_empty());
    assert_eq!((queue.counters.admitted, queue.counters.cancelled), (2, 1));
}

#[tokio::test]
async fn waiting_goes_on_after_the_daemon_was_replaced_and_ends_in_time() {
    let world = World::new(Mode::Act, vec![facts("a", &[])]);
    world.ask(|reply| Question::Change(QueueChange::Hold, reply)).await.unwrap();
    let old = StartRequest { ticket: Some(77), waited_ms: 44_900, wait_ms: None, ..wants("a") };
    let answer = world.start(old).await;
    assert_eq!(answer.reason, "waited its longest time of 45 s");
    assert!(answer.waited_ms >= 45_000);
    assert_eq!(world.queue().await.counters.overdue, 1);
}

#[tokio::test]
async fn class_critical_and_those_not_managed_never_wait() {
    let list = vec![
        facts("a", &[("ctlmgr.class", "critical")]),
        facts("b", &[("ctlmgr.managed", "false")]),
    ];
    let world = World::new(Mode::Act, list);
    world.ask(|reply| Question::Change(QueueChange::Hold, reply)).await.unwrap();
    assert_eq!(world.start(wants("a")).await.reason, "its class never waits");
    assert_eq!(world.start(wants("b")).await.reason, "not managed");
}

#[tokio::test]
async fn only_where_waiting_holds_nobody_else_up_may_it_be_long() {
    let world = World::new(Mode::Act, vec![facts("a", &[]), facts("b", &[])]);
    world.settings.send_modify(|s| s.starts.max_wait = Millis(600_000));
    world.ask(|reply| Question::Change(QueueChange::Hold, reply)).await.unwrap();
    let plugin = StartRequest { source: "docker".into(), ..wants("a") };
    let first = world.start(plugin.clone()).await;
    assert_eq!(first.longest_ms, Some(600_000));
    let again = StartRequest { ticket: Some(first.ticket), ..plugin };
    let wrapper = StartRequest { source: "runc".into(), ..wants("b") };
    assert_eq!(world.start(wrapper).await.longest_ms, Some(50_000));
    let longest: Vec<u64> = world.queue().await.waiting.iter().map(|w| w.longest_ms).collect();
    assert_eq!(longest, [600_000, 50_000]);
    // Who waits already waits no longer than the settings say now; who was removed, not at all.
    world.settings.send_modify(|s| s.starts.max_wait = Millis(30_000));
    assert_eq!(world.start(again.clone()).await.longest_ms, Some(30_000));
    let another = ContainerFacts { name: Some("a".into()), ..facts("a2", &[]) };
    world.containers.send_modify(|c| {
        c.by_id.remove(&id("a"));
        c.by_id.insert(another.id.clone(), another);
    });
    let is_another = world.start(again.clone()).await.decision;
    assert_eq!(is_another, StartDecision::Wait, "another of that name wants to start now");
    world.containers.send_modify(|c| {
        c.by_id.remove(&id("a2"));
    });
    let gone = world.start(again).await;
    assert_eq!((gone.decision, gone.reason.as_str()), (StartDecision::Start, "it is gone"));
}

/// 500 at once, each asking again and again as the plugin does: none is lost, none starts twice, and everybody is told
/// why it waits, the heavy ones before the others.
#[tokio::test]
async fn five_hundred_at_once() {
    let is_heavy = |n: usize| n.is_multiple_of(10);
    let labels = |n| if is_heavy(n) { &[("ctlmgr.weight", "1000")][..] } else { &[] };
    let list = (0..500).map(|n| facts(&format!("c{n}"), labels(n))).collect();
    let world = Arc::new(World::new(Mode::Act, list));
    let ask = |n: usize| {
        let world = world.clone();
        tokio::spawn(async move {
            let mut request = wants(&format!("c{n}"));
            loop {
                let answer = world.start(request.clone()).await;
                match answer.decision {
                    StartDecision::Wait => request.ticket = Some(answer.ticket),
                    StartDecision::Start => return answer,
                    StartDecision::Refuse => panic!("{answer:?}"),
                }
            }
        })
    };
    let all: Vec<_> = (0..500).map(ask).collect();
    let waiting = loop {
        let queue = world.queue().await;
        if queue.waiting.len() + queue.starting.len() == 500 {
            break queue.waiting;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(waiting.len(), 484, "16 start at once");
    assert!(waiting.iter().all(|w| w.reason == "16 start now, no more than 16 may"), "{waiting:?}");
    let number = |w: &ctlmgr_api::Waiting| w.name[1..].parse::<usize>().unwrap();
    let heavy: Vec<bool> = waiting.iter().map(|w| is_heavy(number(w))).collect();
    assert!(heavy.is_sorted_by(|a, b| a >= b), "those of more weight come first");
    let tickets_of = |wanted: bool| -> Vec<u64> {
        waiting.iter().filter(|w| is_heavy(number(w)) == wanted).map(|w| w.ticket).collect()
    };
    assert!(
        tickets_of(true).is_sorted() && tickets_of(false).is_sorted(),
        "then those that came first"
    );
    // None of them runs, so it is by having waited for too long that they go.
    world.settings.send_modify(|s| s.starts.max_wait = Millis(3000));
    let mut tickets = BTreeSet::new();
    for task in all {
        tickets.insert(task.await.unwrap().ticket);
    }
    assert_eq!(tickets.len(), 500);
    let queue = world.queue().await;
    assert_eq!((queue.counters.admitted, queue.counters.abandoned), (500, 0));
    assert!(queue.counters.waited >= 484, "16 start at once: {:?}", queue.counters);
}

#[tokio::test]
async fn what_starts_by_itself_counts_too_and_goes_when_it_is_not_to_be_seen() {
    let world = World::new(Mode::Act, vec![facts("boot", &[READER]), facts("scan", &[SCANNER])]);
    world.containers.send_modify(|c| {
        c.note_start(&id("boot"));
    });
    while world.queue().await.starting.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.queue().await.starting[0].reason, "came by itself");
    assert_eq!(world.start(wants("scan")).await.decision, StartDecision::Wait);
    let again = world.start(wants("boot")).await;
    assert_eq!(again.reason, "was let go already");
}

/// The plugin is asked before the stop: what the container did until then is no part of its start.
#[tokio::test]
async fn a_restart_teaches_what_came_after_it_only() {
    let world = World::new(Mode::Observe, vec![facts("db", &[])]);
    world.runs("db", 400_000, 9_000_000);
    world.start(wants("db")).await;
    // It stops, which ends nothing that was let go, and dockerd starts it in a new cgroup.
    world.containers.send_modify(|c| {
        c.ends.insert(id("db"), 1);
    });
    assert_eq!(world.start(wants("db")).await.reason, "was let go already");
    world.runs("db", 40, 10_240);
    world.containers.send_modify(|c| {
        c.note_start(&id("db"));
        c.by_id.get_mut(&id("db")).unwrap().is_healthy = true;
    });
    let profiles = || async { world.ask(Question::Profiles).await.unwrap() };
    while profiles().await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(profiles().await[0].profile.io.read, Bytes::mib(40));
}

/// At boot dockerd does not answer: nothing but the id is known, and that is enough to look.
#[tokio::test]
async fn while_dockerd_boots_the_id_does() {
    let world = World::new(Mode::Act, Vec::new());
    world.containers.send_modify(|c| c.version = None);
    let request = StartRequest { source: "runc".into(), ..wants(&id("early")) };
    assert_eq!(world.start(request).await.decision, StartDecision::Start);
    world.runs("early", 40, 10_240);
    world.containers.send_modify(|c| {
        c.by_id.insert(id("early"), ContainerFacts { is_healthy: true, ..facts("early", &[]) });
    });
    let profiles = || async { world.ask(Question::Profiles).await.unwrap() };
    while profiles().await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(profiles().await[0].key, "early-image");
}
