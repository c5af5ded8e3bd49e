//! The authorization plugin: dockerd's questions, answered.
//!
//! Protocol: Docker Engine "Access authorization plugin"; details that matter (no content type, bodies
//! of any size, a retry with an empty body) are in `docs/starts.md`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::header;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::serve::IncomingStream;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ask::{self, Daemon, Leave, Start};
use crate::held::{Held, Kept, Store, since_boot_ms};
use crate::uri::{Started, started};

/// Status of a start that succeeded (Docker Engine API, `ContainerStart`, `ContainerRestart`).
const STARTED: u16 = 204;

/// Name under which dockerd knows the plugin.
pub const NAME: &str = "ctlmgr";

/// What dockerd asks; everything else in it is skipped.
#[derive(Debug, Default, Deserialize)]
struct Question {
    #[serde(rename = "RequestMethod", default)]
    method: String,
    #[serde(rename = "RequestUri", default)]
    uri: String,
    /// Afterwards only.
    #[serde(rename = "ResponseStatusCode", default)]
    status: Option<u16>,
}

/// What dockerd is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Answer {
    #[serde(rename = "Allow")]
    allow: bool,
    #[serde(rename = "Msg", skip_serializing_if = "String::is_empty")]
    message: String,
}

impl Answer {
    fn yes() -> Answer {
        Answer { allow: true, message: String::new() }
    }
}

/// A plugin that asks the daemon at one socket.
#[derive(Debug)]
pub struct Plugin {
    daemon: Daemon,
    longest: Duration,
    unasked: AtomicU64,
    /// Questions whose content was lost.
    lost: AtomicU64,
    /// Starts that dockerd asked about and has not reported the end of.
    open: AtomicU64,
    /// Whether everybody is let go, because the plugin is about to end.
    draining: watch::Sender<bool>,
    /// The last request of [`PROBE`] that dockerd asked about.
    probed: Mutex<Option<String>>,
    store: Store,
}

/// The connection on which dockerd waits, if it could be copied.
#[derive(Debug, Clone)]
struct Connection(Option<Arc<OwnedFd>>);

impl Connected<IncomingStream<'_, UnixListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Connection {
        Connection(stream.io().as_fd().try_clone_to_owned().ok().map(Arc::new))
    }
}

/// A harmless request, with something at the end that tells it from all others: whether dockerd asks about
/// it is the only sure sign that it uses the plugin (its own list is that of its start).
pub const PROBE: &str = "/version?ctlmgr-probe=";

impl Plugin {
    /// Asks the daemon at `daemon`, and holds nobody longer than `longest`.
    pub fn new(daemon: Daemon, longest: Duration) -> Plugin {
        Plugin {
            daemon,
            longest,
            unasked: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            open: AtomicU64::new(0),
            draining: watch::Sender::new(false),
            probed: Mutex::default(),
            store: Store::new(),
        }
    }

    /// What dockerd is told, and whether the connection was kept while it waited.
    async fn decide(&self, body: &[u8], connection: &Connection) -> (Answer, bool) {
        // A retry after this process died comes with an empty body: nobody knows what it was.
        if body.is_empty() {
            let count = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            eprintln!(
                "<5>a question that dockerd asked again came without content, and is allowed ({count} so far)"
            );
        }
        let question: Question = serde_json::from_slice(body).unwrap_or_default();
        if question.uri.starts_with(PROBE) {
            *self.probed.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(question.uri.clone());
        }
        let Some(Started { container, is_restart }) = started(&question.method, &question.uri)
        else {
            return (Answer::yes(), false);
        };
        let since_ms = since_boot_ms();
        let mut kept: Option<Kept> = None;
        let on_hold = |ticket| {
            if let (None, Some(fd)) = (&kept, &connection.0) {
                let held = Held { container: container.clone(), ticket, since_ms };
                kept = self.store.keep(&held, fd);
            }
        };
        let start = Start {
            container: &container,
            source: ask::SOURCES[0],
            is_mere_start: !is_restart,
            longest: self.longest,
            waited: Duration::ZERO,
            ticket: None,
        };
        (self.hold(start, on_hold).await, kept.is_some())
    }

    async fn hold(&self, start: Start<'_>, on_hold: impl FnMut(u64)) -> Answer {
        self.open.fetch_add(1, Ordering::Relaxed);
        let mut draining = self.draining.subscribe();
        let leave = tokio::select! {
            leave = ask::leave(&self.daemon, start, on_hold) => leave,
            _ = draining.wait_for(|is_draining| *is_draining) => {
                Leave::Unasked("the plugin ends".to_owned())
            }
        };
        match leave {
            Leave::Start => Answer::yes(),
            Leave::Refused(reason) => {
                // dockerd reports the end of none that was refused.
                self.close();
                Answer { allow: false, message: reason }
            }
            Leave::Unasked(why) => {
                let count = self.unasked.fetch_add(1, Ordering::Relaxed) + 1;
                let container = start.container;
                eprintln!("<4>start of {container} is allowed unasked ({count} so far): {why}");
                Answer::yes()
            }
        }
    }

    /// One start less of which dockerd has to report the end.
    fn close(&self) {
        let less = |open: u64| Some(open.saturating_sub(1));
        let _ = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Goes on with a start that another process held, and answers in its place.
    async fn resume(&self, held: &Held, connection: OwnedFd) -> std::io::Result<()> {
        let connection = std::os::unix::net::UnixStream::from(connection);
        connection.set_nonblocking(true)?;
        let mut connection = UnixStream::from_std(connection)?;
        let start = Start {
            container: &held.container,
            source: ask::SOURCES[0],
            is_mere_start: false,
            longest: self.longest,
            waited: held.waited(),
            ticket: Some(held.ticket),
        };
        let mut byte = [0];
        let answer = tokio::select! {
            biased;
            answer = self.hold(start, |_| {}) => answer,
            // It says nothing more until it is answered: it is gone, and so is who waits for it.
            _ = connection.read(&mut byte) => {
                self.close();
                return Ok(());
            }
        };
        let answer = serde_json::to_string(&answer)?;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
        let length = answer.len();
        let whole = format!("{head}Content-Length: {length}\r\n\r\n{answer}");
        connection.write_all(whole.as_bytes()).await?;
        connection.shutdown().await
    }
}

/// Answers dockerd on `listener`, and for those that another process held, until `end`; then everybody who
/// is held is let go.
///
/// # Errors
/// The socket fails.
pub async fn serve(
    listener: UnixListener,
    kept: Vec<(String, OwnedFd)>,
    plugin: Plugin,
    end: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let plugin = Arc::new(plugin);
    let mut resumed = JoinSet::new();
    for (name, connection) in kept {
        let (plugin, held) = (plugin.clone(), Held::from_name(&name));
        plugin.store.forget(name);
        // Where dockerd is gone, nobody waits any more.
        resumed.spawn(async move {
            if let Some(held) = held {
                let _ = plugin.resume(&held, connection).await;
            }
        });
    }
    let ending = plugin.clone();
    let end = async move {
        end.await;
        ending.draining.send_replace(true);
    };
    let app = Router::new()
        .route("/Plugin.Activate", post(activate))
        .route("/AuthZPlugin.AuthZReq", post(request))
        .route("/ctlmgr/probed", get(probed))
        .route("/ctlmgr/drain", post(drain))
        // What was done is done: dockerd asks again when it has the answer.
        .route("/AuthZPlugin.AuthZRes", post(response))
        .layer(DefaultBodyLimit::disable())
        .with_state(plugin);
    let app = app.into_make_service_with_connect_info::<Connection>();
    axum::serve(listener, app).with_graceful_shutdown(end).await?;
    resumed.join_all().await;
    Ok(())
}

async fn activate() -> &'static str {
    r#"{"Implements":["authz"]}"#
}

async fn probed(State(plugin): State<Arc<Plugin>>) -> Json<Option<String>> {
    Json(plugin.probed.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// The body is read to its end, or dockerd would fail to write it.
async fn response(State(plugin): State<Arc<Plugin>>, body: Bytes) -> Json<Answer> {
    let question: Question = serde_json::from_slice(&body).unwrap_or_default();
    if let Some(Started { container, .. }) = started(&question.method, &question.uri) {
        plugin.close();
        // Of a handler that failed dockerd asks before it has written the error: there is no status yet.
        if question.status != Some(STARTED) {
            // dockerd must not wait for it, and without it the place is free a little later.
            tokio::spawn(async move { ask::give_up(&plugin.daemon, container).await });
        }
    }
    Json(Answer::yes())
}

/// Lets everybody go who is held; says how many starts dockerd still has to report the end of.
async fn drain(State(plugin): State<Arc<Plugin>>) -> Json<u64> {
    plugin.draining.send_replace(true);
    Json(plugin.open.load(Ordering::Relaxed))
}

async fn request(
    State(plugin): State<Arc<Plugin>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    body: Bytes,
) -> Response {
    match plugin.decide(&body, &connection).await {
        // The service manager forgets it a little later: nothing else may be asked on it until then.
        (answer, true) => ([(header::CONNECTION, "close")], Json(answer)).into_response(),
        (answer, false) => Json(answer).into_response(),
    }
}
