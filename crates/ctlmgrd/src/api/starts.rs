//! Starts over the API: leave to start, the queue, profiles.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use ctlmgr_api::Queue;
use futures_util::{Stream, stream};
use tokio::sync::watch;

use super::{answer, read};
use crate::control::{Line, Reply};
use crate::gate::Question;

/// Events of the queue are at least this far apart.
const EVENT_PAUSE: Duration = Duration::from_millis(500);

pub(super) async fn ask(State(line): State<Line>, body: Bytes) -> Response {
    put(&line, &body, Question::Start).await
}

pub(super) async fn give_up(State(line): State<Line>, body: Bytes) -> Response {
    put(&line, &body, Question::GiveUp).await
}

/// Once, or again at every change for those who accept an event stream.
pub(super) async fn queue(State(line): State<Line>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accept.is_some_and(|text| text.contains("text/event-stream")) {
        return Sse::new(events(line.queue)).keep_alive(KeepAlive::default()).into_response();
    }
    answer(line.ask_gate(Question::Queue).await)
}

pub(super) async fn change(State(line): State<Line>, body: Bytes) -> Response {
    put(&line, &body, Question::Change).await
}

pub(super) async fn profiles(State(line): State<Line>) -> Response {
    answer(line.ask_gate(Question::Profiles).await)
}

pub(super) async fn containers(State(line): State<Line>) -> Response {
    answer(line.ask_gate(Question::Containers).await)
}

pub(super) async fn penalties(State(line): State<Line>) -> Response {
    answer(line.ask_gate(Question::Penalties).await)
}

pub(super) async fn keep(State(line): State<Line>, body: Bytes) -> Response {
    put(&line, &body, Question::Keep).await
}

pub(super) async fn forget(State(line): State<Line>, body: Bytes) -> Response {
    put(&line, &body, Question::Forget).await
}

async fn put<B: serde::de::DeserializeOwned, T: serde::Serialize>(
    line: &Line,
    body: &[u8],
    question: fn(B, Reply<T>) -> Question,
) -> Response {
    match read(body) {
        Ok(body) => answer(line.ask_gate(|reply| question(body, reply)).await),
        Err(refused) => answer::<()>(Err(refused)),
    }
}

fn events(mut queue: watch::Receiver<Queue>) -> impl Stream<Item = Result<Event, Infallible>> {
    queue.mark_changed();
    stream::unfold(queue, |mut queue| async {
        // The end of the gate is the end of the stream.
        queue.changed().await.ok()?;
        tokio::time::sleep(EVENT_PAUSE).await;
        let event = Event::default().json_data(&*queue.borrow_and_update());
        Some((Ok(event.unwrap_or_default()), queue))
    })
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn every_change_of_the_queue_is_an_event_until_the_gate_ends() {
        let (gate, queue) = watch::channel(Queue::default());
        let body = Sse::new(events(queue)).into_response().into_body();
        let mut frames = body.into_data_stream();
        let mut next = async || {
            let frame = frames.next().await?.unwrap();
            let text = String::from_utf8(frame.to_vec()).unwrap();
            let json = text.strip_prefix("data: ").unwrap().to_owned();
            Some(serde_json::from_str::<Queue>(&json).unwrap())
        };
        assert_eq!(next().await, Some(Queue::default()));
        gate.send_modify(|queue| queue.is_held = true);
        assert!(next().await.unwrap().is_held);
        drop(gate);
        assert_eq!(next().await, None);
    }
}
