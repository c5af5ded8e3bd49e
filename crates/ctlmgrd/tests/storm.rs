//! A storm of starts from end to end: clients, a dockerd (this test), the plugin, and the whole daemon.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use ctlmgr_api::{Client, ClientError, Queue};
use ctlmgr_docker::ask::{Daemon, LONGEST_EVER};
use ctlmgr_docker::plugin::{Plugin, serve};
use ctlmgr_testkit::FakeHost;
use futures_util::{StreamExt, stream};
use hyper::Method;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::broadcast;

const CLASS: &str = "ctlmgr.batch.class";
/// Those that fight for a disk are of different kinds.
const KINDS: [&str; 2] = ["random-read", "sequential-read"];
const ALL: usize = 500;
/// Every so many is heavy.
const HEAVY: usize = 25;
/// Longer than any test takes: nobody goes unasked because this machine is busy.
const A_LONG_TIME: Duration = Duration::from_secs(3600);
/// As by default.
const TOGETHER: usize = 16;

fn id(n: usize) -> String {
    format!("{n:064x}")
}

fn kind(n: usize) -> &'static str {
    KINDS[n % KINDS.len()]
}

fn is_heavy(n: usize) -> bool {
    n % HEAVY < KINDS.len()
}

fn labels(n: usize) -> Value {
    let weight = if is_heavy(n) { "1000" } else { "100" };
    json!({CLASS: kind(n), "ctlmgr.weight": weight})
}

/// A dockerd, as far as starts matter.
#[derive(Debug)]
struct Docker {
    root: PathBuf,
    events: broadcast::Sender<String>,
    book: Mutex<Book>,
}

/// What it has done.
#[derive(Debug, Default)]
struct Book {
    running: BTreeSet<usize>,
    started: Vec<usize>,
    /// Most that ran at once, and how often some of both kinds did.
    most: usize,
    fights: usize,
}

impl Docker {
    fn serve(root: &Path) -> Arc<Docker> {
        let (events, _) = broadcast::channel(4096);
        let docker = Arc::new(Docker { root: root.into(), events, book: Mutex::default() });
        std::fs::create_dir_all(root.join("run")).unwrap();
        let listener = UnixListener::bind(root.join("run/docker.sock")).unwrap();
        let app = Router::new().fallback(answer).with_state(docker.clone());
        tokio::spawn(async { axum::serve(listener, app).await });
        docker
    }

    fn tell(&self, action: &str, n: usize) {
        let event = json!({
            "Type": "container", "Action": action,
            "Actor": {"ID": id(n), "Attributes": {"exitCode": "0"}},
        });
        let _ = self.events.send(format!("{event}\n"));
    }

    fn cgroup(&self, n: usize) -> PathBuf {
        self.root.join(format!("sys/fs/cgroup/system.slice/docker-{}.scope", id(n)))
    }

    /// What dockerd does once a start is allowed: a job that works for a while.
    async fn start(&self, n: usize) {
        let directory = self.cgroup(n);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("io.stat"), "8:0 rbytes=4096 wbytes=0 rios=1 wios=0\n")
            .unwrap();
        {
            let mut book = self.book.lock().unwrap();
            let Book { running, started, most, fights } = &mut *book;
            running.insert(n);
            started.push(n);
            *most = (*most).max(running.len());
            let kinds: BTreeSet<&str> = running.iter().map(|n| kind(*n)).collect();
            *fights += usize::from(kinds.len() > 1);
        }
        self.tell("start", n);
    }

    fn end(&self, n: usize) {
        std::fs::remove_dir_all(self.cgroup(n)).unwrap();
        self.book.lock().unwrap().running.remove(&n);
        self.tell("die", n);
    }

    fn list(&self) -> Value {
        let one = |n| json!({"Id": id(n), "Names": [format!("/c{n}")], "Image": "job", "State": "created", "Labels": labels(n)});
        (0..ALL).map(one).collect()
    }

    fn inspect(&self, wanted: &str) -> Option<Value> {
        let n = (0..ALL).find(|n| id(*n) == wanted)?;
        let is_running = self.book.lock().unwrap().running.contains(&n);
        Some(json!({
            "Id": id(n), "Name": format!("/c{n}"), "State": {"Running": is_running},
            "Config": {"Image": "job", "Labels": labels(n)},
        }))
    }
}

async fn answer(State(docker): State<Arc<Docker>>, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').skip_while(|part| part.starts_with("v1.")).collect();
    match parts[..] {
        ["version"] => {
            Json(json!({"Version": "test", "ApiVersion": "1.45", "MinAPIVersion": "1.24"}))
                .into_response()
        }
        ["containers", "json"] => Json(docker.list()).into_response(),
        ["containers", id, "json"] => match docker.inspect(id) {
            Some(facts) => Json(facts).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        ["events"] => {
            let lines = stream::unfold(docker.events.subscribe(), |mut events| async {
                let line = events.recv().await.ok()?;
                Some((Ok::<_, Infallible>(line), events))
            });
            Body::from_stream(lines.boxed()).into_response()
        }
        _ => (StatusCode::NOT_FOUND, Json(json!({"message": path}))).into_response(),
    }
}

/// A client's start, as dockerd treats it: ask, do, tell.
async fn start(docker: Arc<Docker>, plugin: PathBuf, n: usize) {
    // By name or by id.
    let name = if n.is_multiple_of(2) { format!("c{n}") } else { id(n) };
    let uri = format!("/v1.45/containers/{name}/start");
    let mut question = json!({"RequestMethod": "POST", "RequestUri": uri});
    let plugin = Client::new(plugin).patient(A_LONG_TIME);
    let ask = |path: &'static str, question: Value| {
        let plugin = plugin.clone();
        async move { plugin.send::<_, Value>(Method::POST, path, &question).await.unwrap() }
    };
    let said = ask("/AuthZPlugin.AuthZReq", question.clone()).await;
    assert_eq!(said, json!({"Allow": true}), "{name}");
    docker.start(n).await;
    question["ResponseStatusCode"] = json!(204);
    ask("/AuthZPlugin.AuthZRes", question).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    docker.end(n);
}

/// The queue, once it is as wanted.
async fn queue_when(api: &Client, is_it: impl Fn(&Queue) -> bool) -> Queue {
    loop {
        if let Ok(queue) = api.get::<Queue>("/v1/queue").await
            && is_it(&queue)
        {
            return queue;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What was said to those that waited, and in which order they were shown.
#[derive(Debug, Default)]
struct Seen {
    reasons: BTreeMap<String, usize>,
    /// A light one was shown before a heavy one.
    is_disordered: bool,
}

impl Seen {
    fn note(&mut self, queue: Queue) {
        // One that has just asked is known by what it asked for only.
        let is_light = |w: &ctlmgr_api::Waiting| {
            let n = w.name.strip_prefix('c')?.parse().ok().filter(|n| w.name == format!("c{n}"));
            n.map(|n| !is_heavy(n))
        };
        let order: Vec<bool> = queue.waiting.iter().filter_map(is_light).collect();
        self.is_disordered |= !order.is_sorted();
        for waiting in queue.waiting {
            *self.reasons.entry(waiting.reason).or_default() += 1;
        }
    }
}

async fn watch(api: Client, seen: Arc<Mutex<Seen>>) -> Result<(), ClientError> {
    let note = |queue| {
        seen.lock().unwrap().note(queue);
        Ok(())
    };
    api.follow("/v1/queue", note).await
}

/// dockerd, ctlmgrd's API and the plugin's socket, once they know each other.
async fn host(root: &Path) -> (Arc<Docker>, Client, PathBuf) {
    let host = FakeHost::new(root);
    // However slow this machine is, nobody is let go because he has waited for too long.
    let config = "[starts]\nmode = \"act\"\nmax_wait_secs = 3600\ntrace = \"off\"\n";
    host.write("etc/ctlmgr/config.d/50-local.toml", config);
    let docker = Docker::serve(root);
    let places = ctlmgrd::Places { root: root.into() };
    let api = Client::new(places.socket()).patient(A_LONG_TIME);
    tokio::spawn(async { ctlmgrd::run(places, None).await.unwrap() });
    let socket = root.join("plugin.sock");
    let daemon = Daemon { patience: A_LONG_TIME, ..Daemon::at(Some(api.socket().into())) };
    let plugin = Plugin::new(daemon, LONGEST_EVER);
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(serve(listener, Vec::new(), plugin, std::future::pending()));
    queue_when(&api, |queue| !queue.trace.is_empty()).await;
    while api.get::<Vec<Value>>("/v1/containers").await.unwrap().len() < ALL {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (docker, api, socket)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_starts_at_once_are_let_go_once_each_and_never_beside_whom_they_fight() {
    // Both ends of each connection are this process's.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (docker, api, socket) = host(dir.path()).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let watching = tokio::spawn(watch(api.clone(), seen.clone()));
    let clients: Vec<_> =
        (0..ALL).map(|n| tokio::spawn(start(docker.clone(), socket.clone(), n))).collect();
    for client in clients {
        client.await.unwrap();
    }
    let end = queue_when(&api, |queue| queue.starting.is_empty()).await;
    watching.abort();

    let book = docker.book.lock().unwrap();
    let each: BTreeSet<usize> = book.started.iter().copied().collect();
    assert_eq!((each.len(), book.started.len()), (ALL, ALL), "each once");
    assert!(book.most <= TOGETHER, "{} at once", book.most);
    assert_eq!(book.fights, 0, "some of both kinds ran at once");
    let counters = end.counters;
    assert_eq!((counters.admitted, counters.overdue, counters.abandoned), (ALL as u64, 0, 0));
    assert_eq!(end.waiting, []);
    let seen = seen.lock().unwrap();
    assert!(!seen.is_disordered, "the heavy ones are looked at first, and shown so");
    let explained = |reason: &String| {
        reason.contains("beside those costs")
            || reason.contains("start at once")
            || reason.contains("together")
    };
    let unexplained: Vec<&String> =
        seen.reasons.keys().filter(|r| !r.is_empty() && !explained(r)).collect();
    assert!(seen.reasons.len() > 1 && unexplained.is_empty(), "{:?}", seen.reasons);
    // One kind is held back by the other; but of each kind the heavy ones came first, as far as they had asked by then.
    for wanted in KINDS {
        let order: Vec<usize> =
            book.started.iter().copied().filter(|n| kind(*n) == wanted).collect();
        let places = |heavy: bool| {
            let all = order.iter().enumerate().filter(|(_, n)| is_heavy(**n) == heavy);
            all.map(|(place, _)| place).collect::<Vec<_>>()
        };
        let mean = |all: Vec<usize>| all.iter().sum::<usize>() / all.len();
        let (heavy, light) = (mean(places(true)), mean(places(false)));
        assert!(heavy * 3 < light, "{wanted}: {heavy} {light}");
    }
}
