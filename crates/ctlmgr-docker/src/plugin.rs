//! The authorization plugin: dockerd's questions, answered.
//!
//! Protocol: Docker Engine "Access authorization plugin"; details that matter (no content type, bodies
//! of any size, a retry with an empty body) are in `docs/starts.md`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Json;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use tokio::sync::watch;

use crate::ask::{self, Leave};
use crate::uri::started;

/// Name under which dockerd knows the plugin.
pub const NAME: &str = "ctlmgr";

/// What dockerd asks; everything else in it is skipped.
#[derive(Debug, Default, Deserialize)]
struct Question {
    #[serde(rename = "RequestMethod", default)]
    method: String,
    #[serde(rename = "RequestUri", default)]
    uri: String,
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
    daemon: PathBuf,
    longest: Duration,
    unasked: AtomicU64,
    /// Starts that dockerd asked about and has not reported the end of.
    open: AtomicU64,
    /// Whether everybody is let go, because the plugin is about to end.
    draining: watch::Sender<bool>,
    /// The last request of [`PROBE`] that dockerd asked about.
    probed: Mutex<Option<String>>,
}

/// A harmless request, with something at the end that tells it from all others: whether dockerd asks about
/// it is the only sure sign that it uses the plugin (its own list is that of its start).
pub const PROBE: &str = "/version?ctlmgr-probe=";

impl Plugin {
    /// Asks the daemon at `daemon`, and holds nobody longer than `longest`.
    pub fn new(daemon: PathBuf, longest: Duration) -> Plugin {
        Plugin {
            daemon,
            longest,
            unasked: AtomicU64::new(0),
            open: AtomicU64::new(0),
            draining: watch::Sender::new(false),
            probed: Mutex::default(),
        }
    }

    async fn decide(&self, body: &[u8]) -> Answer {
        // A retry after this process died comes with an empty body: nobody knows what it was.
        let question: Question = serde_json::from_slice(body).unwrap_or_default();
        if question.uri.starts_with(PROBE) {
            *self.probed.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(question.uri.clone());
        }
        let Some(container) = started(&question.method, &question.uri) else {
            return Answer::yes();
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        let mut draining = self.draining.subscribe();
        let leave = tokio::select! {
            leave = ask::leave(&self.daemon, &container, "docker", self.longest) => leave,
            _ = draining.wait_for(|is_draining| *is_draining) => {
                Leave::Unasked("the plugin ends".to_owned())
            }
        };
        match leave {
            Leave::Start => Answer::yes(),
            Leave::Refused(reason) => Answer { allow: false, message: reason },
            Leave::Unasked(why) => {
                let count = self.unasked.fetch_add(1, Ordering::Relaxed) + 1;
                eprintln!("<4>start of {container} is allowed unasked ({count} so far): {why}");
                Answer::yes()
            }
        }
    }
}

/// Answers dockerd on `listener` until `end`; then everybody who is held is let go.
///
/// # Errors
/// The socket fails.
pub async fn serve(
    listener: UnixListener,
    plugin: Plugin,
    end: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let plugin = Arc::new(plugin);
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
    axum::serve(listener, app.into_make_service()).with_graceful_shutdown(end).await
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
    if started(&question.method, &question.uri).is_some() {
        let less = |open: u64| Some(open.saturating_sub(1));
        let _ = plugin.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
    Json(Answer::yes())
}

/// Lets everybody go who is held; says how many starts dockerd still has to report the end of.
async fn drain(State(plugin): State<Arc<Plugin>>) -> Json<u64> {
    plugin.draining.send_replace(true);
    Json(plugin.open.load(Ordering::Relaxed))
}

async fn request(State(plugin): State<Arc<Plugin>>, body: Bytes) -> Json<Answer> {
    Json(plugin.decide(&body).await)
}
