//! A dockerd that runs every container there is, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Path;
use axum::routing::get;
use axum::{Json, Router};
use bollard::Docker;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;

/// Its lock is held for ever.
pub const HELD: &str = "held";
/// Its lock is held when it is asked about for the first time.
pub const LATE: &str = "late";
/// It is about to start again.
pub const AGAIN: &str = "again";

/// Connects to what listens there; a request may take so many seconds.
pub fn connect(dir: &TempDir, secs: u64) -> Docker {
    let socket = dir.path().join("docker.sock");
    let address = socket.to_string_lossy();
    Docker::connect_with_unix(&address, secs, bollard::API_DEFAULT_VERSION).unwrap()
}

/// Makes it listen, with these containers in its list.
pub fn serve(dir: &TempDir, listed: &[&str]) {
    let listener = UnixListener::bind(dir.path().join("docker.sock")).unwrap();
    let entry = |id: &&str| {
        let state = if *id == AGAIN { "restarting" } else { "running" };
        json!({ "Id": id, "Names": [format!("/{id}")], "State": state })
    };
    let list: Vec<Value> = listed.iter().map(entry).collect();
    let was_asked = Arc::new(AtomicBool::new(false));
    let inspect = async move |Path(id): Path<String>| {
        let is_late = id == LATE && !was_asked.swap(true, Ordering::Relaxed);
        if id == HELD || is_late {
            std::future::pending::<()>().await;
        }
        Json(json!({
            "Id": id,
            "Name": id,
            "State": { "Running": true, "Restarting": id == AGAIN },
            "HostConfig": { "MemoryReservation": 1 << 20 },
            "NetworkSettings": { "Networks": { "net": { "IPAddress": "10.0.0.2" } } },
        }))
    };
    let routes = Router::new()
        .route("/version", get(async || Json(json!({ "Version": "26.1.5" }))))
        .route("/containers/json", get(async || Json(list)))
        .route("/containers/{id}/json", get(inspect));
    tokio::spawn(async move { axum::serve(listener, routes).await });
}
