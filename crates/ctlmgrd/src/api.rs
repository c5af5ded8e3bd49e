//! The API server.

mod starts;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, RawQuery, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post, put};
use ctlmgr_api::{Refusal, Why};
use ctlmgr_model::PlaceVerdict;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;

use crate::access::Peer;
use crate::control::{Command, Line, Refused};

/// Serves the API on `listener` until it is dropped.
pub(crate) async fn serve(listener: UnixListener, line: Line) -> std::io::Result<()> {
    let app = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/plan", get(plan))
        .route("/v1/why/{name}", get(why))
        .route("/v1/settings", get(settings))
        .route("/v1/record", get(record))
        .route("/v1/diff", get(diff))
        .route("/v1/revert", post(revert))
        .route("/v1/mode", put(mode))
        .route("/v1/weight", put(weight))
        .route("/v1/starts", post(starts::ask).delete(starts::give_up))
        .route("/v1/queue", get(starts::queue).put(starts::change))
        .route("/v1/place", get(place))
        .route("/v1/place/graph", get(graph))
        .route("/v1/containers", get(starts::containers))
        .route("/v1/penalties", get(starts::penalties))
        .route("/v1/profiles", get(starts::profiles).put(starts::keep).delete(starts::forget))
        .fallback(|| async { refusal(StatusCode::NOT_FOUND, "no such resource".to_owned()) })
        .layer(middleware::from_fn(guard))
        .with_state(line);
    axum::serve(listener, app.into_make_service_with_connect_info::<Peer>()).await
}

/// Readers may GET, admins may do everything.
async fn guard(ConnectInfo(peer): ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    let is_allowed = match *request.method() {
        Method::GET => peer.may_read(),
        _ => peer.may_change(),
    };
    if is_allowed {
        return next.run(request).await;
    }
    let message = "not allowed: reading takes group ctlmgr, changing takes root or ctlmgr-admin";
    refusal(StatusCode::FORBIDDEN, message.to_owned())
}

async fn status(State(line): State<Line>) -> Response {
    answer(line.ask(Command::Status).await)
}

async fn graph(State(line): State<Line>) -> Response {
    answer(Ok(line.seen.borrow().graph.clone()))
}

async fn place(State(line): State<Line>) -> Response {
    answer(Ok(line.place.borrow().clone()))
}

async fn plan(State(line): State<Line>) -> Response {
    answer(line.ask(Command::Plan).await)
}

async fn why(State(line): State<Line>, Path(name): Path<String>) -> Response {
    let place = line.place.borrow().plan.as_ref().and_then(|plan| {
        let of_name = |v: &&PlaceVerdict| v.name.0 == name;
        plan.verdicts.iter().find(of_name).cloned()
    });
    let why = line.ask(|reply| Command::Why(name, reply)).await;
    answer(why.map(|why| Why { place, ..why }))
}

async fn settings(State(line): State<Line>) -> Response {
    answer(line.ask(Command::Settings).await)
}

/// `?from=N` asks for events from number N on.
async fn record(State(line): State<Line>, RawQuery(query): RawQuery) -> Response {
    let from = query.as_deref().and_then(|q| q.strip_prefix("from=")).map(str::parse::<u64>);
    match from.transpose() {
        Ok(from) => answer(line.ask(|reply| Command::Record(from, reply)).await),
        Err(error) => answer::<()>(Err(Refused::Invalid(format!("from: {error}")))),
    }
}

async fn diff(State(line): State<Line>) -> Response {
    answer(line.ask(Command::Diff).await)
}

async fn revert(State(line): State<Line>) -> Response {
    answer(line.ask(Command::Revert).await)
}

async fn mode(State(line): State<Line>, body: Bytes) -> Response {
    match read(&body) {
        Ok(change) => answer(line.ask(|reply| Command::Mode(change, reply)).await),
        Err(refused) => answer::<()>(Err(refused)),
    }
}

async fn weight(State(line): State<Line>, body: Bytes) -> Response {
    match read(&body) {
        Ok(change) => answer(line.ask(|reply| Command::Weight(change, reply)).await),
        Err(refused) => answer::<()>(Err(refused)),
    }
}

/// Reads a body, whatever its content type says.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|e| Refused::Invalid(e.to_string()))
}

fn answer<T: Serialize>(result: Result<T, Refused>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(Refused::NotFound(message)) => refusal(StatusCode::NOT_FOUND, message),
        Err(Refused::Invalid(message)) => refusal(StatusCode::BAD_REQUEST, message),
        Err(Refused::Failed(message)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, message),
        Err(Refused::Stopping) => {
            refusal(StatusCode::SERVICE_UNAVAILABLE, "ctlmgrd is stopping".to_owned())
        }
    }
}

fn refusal(status: StatusCode, error: String) -> Response {
    (status, Json(Refusal { error })).into_response()
}
