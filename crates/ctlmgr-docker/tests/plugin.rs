//! The plugin between a dockerd, which is this test, and a ctlmgrd, which is one too.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::Json;
use axum::routing::post;
use ctlmgr_api::{Client, StartAnswer, StartDecision, StartRequest};
use ctlmgr_docker::ask::{self, Daemon, Leave, Start};
use ctlmgr_docker::held::{Held, since_boot_ms};
use ctlmgr_docker::plugin::{Plugin, serve};
use hyper::Method;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};

/// Longer than any test takes.
const A_LONG_TIME: Duration = Duration::from_secs(3600);

struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new(longest: Duration) -> World {
        World::asking(patient, longest)
    }

    fn asking(daemon_at: fn(PathBuf) -> Daemon, longest: Duration) -> World {
        let dir = tempfile::tempdir().unwrap();
        let world = World { dir };
        let listener = UnixListener::bind(world.plugin()).unwrap();
        let plugin = Plugin::new(daemon_at(world.daemon()), longest);
        tokio::spawn(serve(listener, Vec::new(), plugin, std::future::pending()));
        world
    }

    fn plugin(&self) -> PathBuf {
        self.dir.path().join("docker.sock")
    }

    fn daemon(&self) -> PathBuf {
        self.dir.path().join("api.sock")
    }

    /// As dockerd asks: raw URI, and a body that only some requests have.
    async fn ask(&self, method: &str, uri: &str) -> Value {
        let body = json!({"RequestMethod": method, "RequestUri": uri, "RequestBody": "e30=",
            "RequestHeaders": {"Accept": "x"}});
        post_to(&self.plugin(), "/AuthZPlugin.AuthZReq", &body).await
    }
}

/// Whoever asks it waits for its answer, however busy the machine is on which this test runs.
fn patient(socket: PathBuf) -> Daemon {
    Daemon { patience: A_LONG_TIME, ..Daemon::at(Some(socket)) }
}

async fn post_to(socket: &Path, path: &str, body: &Value) -> Value {
    Client::new(socket).patient(A_LONG_TIME).send(Method::POST, path, body).await.unwrap()
}

/// A daemon that lets everybody go at the third question.
fn patient_daemon(socket: &Path, last: StartDecision) -> Arc<AtomicU64> {
    let asked = Arc::new(AtomicU64::new(0));
    let answer = move |State(asked): State<Arc<AtomicU64>>, Json(request): Json<StartRequest>| async move {
        let count = asked.fetch_add(1, Ordering::SeqCst);
        assert!(count == 0 || request.ticket == Some(7), "{request:?}");
        assert_eq!((request.container.as_str(), request.source.as_str()), ("web-1", "docker"));
        let decision = if count < 2 { StartDecision::Wait } else { last };
        Json(StartAnswer {
            decision,
            ticket: 7,
            batch: 1,
            waited_ms: 0,
            longest_ms: Some(600_000),
            reason: "so".into(),
        })
    };
    let app = Router::new().route("/v1/starts", post(answer)).with_state(asked.clone());
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    asked
}

#[tokio::test]
async fn it_is_an_authorization_plugin() {
    let world = World::new(A_LONG_TIME);
    let said = post_to(&world.plugin(), "/Plugin.Activate", &json!(null)).await;
    assert_eq!(said, json!({"Implements": ["authz"]}));
    let said =
        post_to(&world.plugin(), "/AuthZPlugin.AuthZRes", &json!({"ResponseStatusCode": 204}))
            .await;
    assert_eq!(said, json!({"Allow": true}));
}

#[tokio::test]
async fn it_tells_which_probe_dockerd_asked_about_last() {
    let world = World::new(A_LONG_TIME);
    let probed = || async {
        let client = Client::new(world.plugin()).patient(A_LONG_TIME);
        client.get::<Option<String>>("/ctlmgr/probed").await.unwrap()
    };
    assert_eq!(probed().await, None);
    world.ask("GET", "/version?ctlmgr-probe=5").await;
    world.ask("GET", "/version").await;
    assert_eq!(probed().await.as_deref(), Some("/version?ctlmgr-probe=5"));
}

#[tokio::test]
async fn a_start_is_held_until_it_may_go_and_nothing_else_is() {
    let world = World::new(A_LONG_TIME);
    let asked = patient_daemon(&world.daemon(), StartDecision::Start);
    for (method, uri) in [
        ("GET", "/_ping"),
        ("GET", "/v1.45/containers/json"),
        ("POST", "/v1.45/containers/create?name=start"),
        ("DELETE", "/v1.45/containers/web-1"),
    ] {
        assert_eq!(world.ask(method, uri).await, json!({"Allow": true}), "{uri}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(world.ask("POST", "/v1.45/containers/web-1/start").await, json!({"Allow": true}));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

/// Who was told to wait or to start, by container.
#[derive(Debug, Default)]
struct Crowd {
    tickets: BTreeMap<String, u64>,
    /// How often each was let go.
    let_go: BTreeMap<String, u32>,
    questions: u64,
}

/// A daemon that lets 16 go at once, and then one for every fourth question, in the order in which they came.
fn busy_daemon(socket: &Path) -> Arc<Mutex<Crowd>> {
    let crowd = Arc::new(Mutex::new(Crowd::default()));
    let answer = |State(crowd): State<Arc<Mutex<Crowd>>>, Json(request): Json<StartRequest>| async move {
        let mut crowd = crowd.lock().unwrap();
        crowd.questions += 1;
        let next = crowd.tickets.len() as u64;
        let ticket = *crowd.tickets.entry(request.container.clone()).or_insert(next);
        assert!(request.ticket.is_none_or(|own| own == ticket), "{request:?}");
        let may_start = ticket < 16 + crowd.questions / 4;
        if may_start {
            *crowd.let_go.entry(request.container).or_default() += 1;
        }
        Json(StartAnswer {
            decision: if may_start { StartDecision::Start } else { StartDecision::Wait },
            ticket,
            batch: 1,
            waited_ms: 0,
            longest_ms: Some(600_000),
            reason: "so".into(),
        })
    };
    let app = Router::new().route("/v1/starts", post(answer)).with_state(crowd.clone());
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    crowd
}

/// As by a large compose project: none is lost, none is let go twice, none is answered for another.
#[tokio::test]
async fn five_hundred_starts_at_once() {
    // Both ends of each connection are this process's.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let world = Arc::new(World::new(A_LONG_TIME));
    let crowd = busy_daemon(&world.daemon());
    let start = |n: u32| {
        let world = world.clone();
        tokio::spawn(
            async move { world.ask("POST", &format!("/v1.45/containers/c{n}/start")).await },
        )
    };
    let all: Vec<_> = (0..500).map(start).collect();
    for said in all {
        assert_eq!(said.await.unwrap(), json!({"Allow": true}));
    }
    let crowd = crowd.lock().unwrap();
    assert_eq!((crowd.tickets.len(), crowd.let_go.len()), (500, 500));
    assert!(crowd.let_go.values().all(|times| *times == 1), "{:?}", crowd.let_go);
}

#[tokio::test]
async fn what_the_operator_cancels_is_refused_in_his_words() {
    let world = World::new(A_LONG_TIME);
    patient_daemon(&world.daemon(), StartDecision::Refuse);
    let said = world.ask("POST", "/containers/web-1/restart").await;
    assert_eq!(said, json!({"Allow": false, "Msg": "so"}));
}

#[tokio::test]
async fn without_a_daemon_or_with_one_that_hangs_everybody_starts() {
    let world = World::asking(|socket| Daemon::at(Some(socket)), Duration::from_secs(30));
    let yes = json!({"Allow": true});
    assert_eq!(world.ask("POST", "/containers/web-1/start").await, yes, "no socket");
    // It accepts nothing: the kernel takes the connection, and nobody ever answers.
    let _silent = std::os::unix::net::UnixListener::bind(world.daemon()).unwrap();
    let began = Instant::now();
    assert_eq!(world.ask("POST", "/containers/web-1/start").await, yes);
    // Not a measurement: it is held for a slice, not for the thirty seconds that it might be.
    assert!(began.elapsed() < Duration::from_secs(25));
    // The wrapper asks about the same start, and does not wait as long again.
    let daemon = Daemon::at(Some(world.daemon()));
    let start = Start {
        container: "web-1",
        source: "runc",
        is_mere_start: false,
        longest: ask::LONGEST,
        waited: Duration::ZERO,
        ticket: None,
    };
    let noted = || std::fs::metadata(daemon.silence_to("docker")).unwrap().modified().unwrap();
    let by_plugin = noted();
    // Only who has waited for the whole time notes it.
    assert!(matches!(ask::leave(&daemon, start, |_| {}).await, Leave::Unasked(_)));
    assert!(!daemon.silence_to("runc").exists());
    // The plugin does not go by its own: one late answer is no hang.
    assert_eq!(world.ask("POST", "/containers/web-2/start").await, yes);
    assert!(noted() > by_plugin);
}

#[tokio::test]
async fn a_daemon_that_says_wait_for_ever_is_not_believed() {
    let world = World::new(Duration::from_millis(1));
    patient_daemon(&world.daemon(), StartDecision::Wait);
    assert_eq!(world.ask("POST", "/containers/web-1/start").await, json!({"Allow": true}));
}

#[tokio::test]
async fn garbage_and_the_empty_body_of_a_retry_are_allowed() {
    let world = World::new(A_LONG_TIME);
    for body in [json!(null), json!([]), json!({"RequestUri": 5}), json!("x".repeat(8 << 20))] {
        let said = post_to(&world.plugin(), "/AuthZPlugin.AuthZReq", &body).await;
        assert_eq!(said, json!({"Allow": true}));
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    /// Whatever comes in is answered, and what is no start is allowed: the daemon is not even there.
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let said: Value = runtime.block_on(async {
            let world = World::new(A_LONG_TIME);
            raw(&world.plugin(), &bytes).await
        });
        proptest::prop_assert_eq!(said, json!({"Allow": true}));
    }
}

/// A question whose body is no JSON, as dockerd would never send it.
async fn raw(socket: &Path, body: &[u8]) -> Value {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    let head = format!(
        "POST /AuthZPlugin.AuthZReq HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

#[tokio::test]
async fn who_is_held_when_the_plugin_ends_is_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let (plugin, daemon) = (dir.path().join("docker.sock"), dir.path().join("api.sock"));
    // It says wait for ever.
    let asked = patient_daemon(&daemon, StartDecision::Wait);
    let listener = UnixListener::bind(&plugin).unwrap();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(serve(
        listener,
        Vec::new(),
        Plugin::new(patient(daemon), A_LONG_TIME),
        async {
            let _ = ended.await;
        },
    ));
    let start = json!({"RequestMethod": "POST", "RequestUri": "/containers/web-1/start"});
    let held = tokio::spawn({
        let plugin = plugin.clone();
        async move { post_to(&plugin, "/AuthZPlugin.AuthZReq", &start).await }
    });
    while asked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    end.send(()).unwrap();
    assert_eq!(held.await.unwrap(), json!({"Allow": true}));
    serving.await.unwrap().unwrap();
}

/// What systemd kept is taken over: asked for under its old ticket, and answered on its connection.
#[tokio::test]
async fn a_start_that_another_process_held_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (plugin, daemon) = (dir.path().join("docker.sock"), dir.path().join("api.sock"));
    let asked = patient_daemon(&daemon, StartDecision::Refuse);
    // Its first question comes with a ticket, as the later ones of a process that lived on.
    asked.store(1, Ordering::SeqCst);
    let listener = UnixListener::bind(&plugin).unwrap();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let held = Held {
        container: "web-1".into(),
        ticket: 7,
        since_ms: since_boot_ms().saturating_sub(5000),
    };
    let plugin = Plugin::new(patient(daemon), A_LONG_TIME);
    tokio::spawn(serve(
        listener,
        vec![(held.to_name().unwrap(), theirs.into())],
        plugin,
        std::future::pending(),
    ));
    let mut answer = String::new();
    let mut ours = UnixStream::from_std(ours).unwrap();
    ours.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Connection: close"),
        "{head}"
    );
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body, json!({"Allow": false, "Msg": "so"}));
}

/// dockerd asks before it has written the error: of one that failed it gives no status.
#[tokio::test]
async fn that_dockerd_failed_to_start_one_is_passed_on() {
    let world = World::new(A_LONG_TIME);
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let hear = move |Json(failed): Json<Value>| async move {
        told.send(failed).unwrap();
        Json(true)
    };
    let app = Router::new().route("/v1/starts", axum::routing::delete(hear));
    let listener = UnixListener::bind(world.daemon()).unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    for (verb, name, status) in [
        ("start", "fine", 204),
        ("stop", "other", 200),
        ("start", "broken", 0),
        ("restart", "bad", 500),
    ] {
        let uri = format!("/v1.47/containers/{name}/{verb}");
        let mut body = json!({"RequestMethod": "POST", "RequestUri": uri});
        if status > 0 {
            body["ResponseStatusCode"] = json!(status);
        }
        post_to(&world.plugin(), "/AuthZPlugin.AuthZRes", &body).await;
    }
    let mut names = Vec::new();
    for _ in 0..2 {
        names.push(heard.recv().await.unwrap()["container"].as_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["bad", "broken"]);
}

#[tokio::test]
async fn draining_lets_go_and_tells_how_many_starts_are_open() {
    let world = World::new(A_LONG_TIME);
    patient_daemon(&world.daemon(), StartDecision::Wait);
    let held = world.ask("POST", "/containers/web-1/start");
    let drain = async {
        let client = Client::new(world.plugin()).patient(A_LONG_TIME);
        while client.send::<_, u64>(Method::POST, "/ctlmgr/drain", &()).await.unwrap() == 0 {}
    };
    let (said, ()) = tokio::join!(held, drain);
    assert_eq!(said, json!({"Allow": true}));
    let body = json!({"RequestMethod": "POST", "RequestUri": "/containers/web-1/start"});
    post_to(&world.plugin(), "/AuthZPlugin.AuthZRes", &body).await;
    assert_eq!(post_to(&world.plugin(), "/ctlmgr/drain", &json!(null)).await, json!(0));
}
