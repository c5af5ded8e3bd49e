//! What dockerd tells of as it happens.

use std::collections::{BTreeMap, VecDeque};

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{EventMessage, EventMessageTypeEnum};
use ctlmgr_model::ContainerFacts;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use tokio::sync::watch;

use super::{Containers, inspect};

/// What changes more of a container than the event tells.
const CHANGES: [&str; 6] = ["create", "start", "update", "rename", "pause", "unpause"];

/// Takes events until dockerd closes the stream.
///
/// dockerd holds a container's lock while it starts, and answers no question about it before its start is let go. Who
/// waited for that would hear of nothing else meanwhile, not even of what that start waits for: only what is told
/// of the same container waits.
pub(super) async fn listen(
    docker: &Docker,
    mut events: impl Stream<Item = Result<EventMessage, Error>> + Unpin,
    publish: &watch::Sender<Containers>,
    seen: &mut i64,
) -> Result<(), Error> {
    let seen_before = *seen;
    let (mut looks, mut arrivals) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut waiting = Waiting::default();
    let end = loop {
        let event = tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => event,
                Some(Err(error)) => break Err(error),
                None => break Ok(()),
            },
            Some(()) = arrivals.next() => continue,
            Some((id, looked)) = looks.next() => match looked {
                Ok(facts) => {
                    looks.extend(waiting.note_first(publish, id, facts).map(|id| look(docker, id)));
                    continue;
                }
                Err(error) => break Err(error),
            },
        };
        let at = event.time_nano.unwrap_or(i64::MAX);
        // What was seen before the connection was made anew is told once more. Events of the same moment
        // come in any order.
        if at <= seen_before {
            continue;
        }
        *seen = if at == i64::MAX { *seen } else { at.max(*seen) };
        match event.typ {
            Some(EventMessageTypeEnum::NETWORK) => {
                arrivals.extend(member(event).map(|id| note_network(docker, publish, id)));
            }
            _ => looks.extend(waiting.push(publish, event).map(|id| look(docker, id))),
        }
    };
    waiting.note_all(publish);
    end
}

/// What is yet to be noted of each container, in the order in which it was told; the first of each is being looked at.
#[derive(Default)]
struct Waiting(BTreeMap<String, VecDeque<EventMessage>>);

impl Waiting {
    /// Takes one more; `Some` is a container that is to be looked at for it.
    fn push(&mut self, publish: &watch::Sender<Containers>, event: EventMessage) -> Option<String> {
        let id = event.actor.as_ref().and_then(|actor| actor.id.clone()).unwrap_or_default();
        let queue = self.0.entry(id.clone()).or_default();
        queue.push_back(event);
        if queue.len() > 1 { None } else { self.advance(publish, id) }
    }

    /// Notes what a look was for; `Some` is the container where what was told next needs another.
    fn note_first(
        &mut self,
        publish: &watch::Sender<Containers>,
        id: String,
        facts: Option<ContainerFacts>,
    ) -> Option<String> {
        let first = self.0.get_mut(&id).and_then(VecDeque::pop_front);
        first.into_iter().for_each(|event| note(publish, event, facts.clone()));
        self.advance(publish, id)
    }

    /// Notes what needs no look, up to what does.
    fn advance(&mut self, publish: &watch::Sender<Containers>, id: String) -> Option<String> {
        let queue = self.0.get_mut(&id)?;
        while let Some(event) = queue.pop_front() {
            if needs_look(&event) {
                queue.push_front(event);
                return Some(id);
            }
            note(publish, event, None);
        }
        self.0.remove(&id);
        None
    }

    /// Notes the rest unseen: nothing is told twice, and a connection that is made anew lists what is there, not what has started.
    fn note_all(self, publish: &watch::Sender<Containers>) {
        self.0.into_values().flatten().for_each(|event| note(publish, event, None));
    }
}

/// Whether there is more to be known than it tells.
fn needs_look(event: &EventMessage) -> bool {
    event.action.as_deref().is_some_and(|action| CHANGES.contains(&action))
}

async fn look(docker: &Docker, id: String) -> (String, Result<Option<ContainerFacts>, Error>) {
    let looked = inspect(docker, &id).await;
    (id, looked)
}

/// Notes what happened to a container, with what a look at it has shown, if that was needed and it could be looked at.
fn note(
    publish: &watch::Sender<Containers>,
    event: EventMessage,
    inspected: Option<ContainerFacts>,
) {
    let actor = event.actor.unwrap_or_default();
    let code = actor.attributes.as_ref().and_then(|a| a.get("exitCode"));
    let is_failure = code.is_some_and(|code| code != "0");
    let id = actor.id.unwrap_or_default();
    let Some(action) = event.action.as_deref() else { return };
    publish.send_if_modified(|c| {
        // Also of one that has ended and was removed meanwhile, or that cannot be looked at: it is told of once.
        if action == "start" {
            c.note_start(&id);
        }
        if let Some(mut facts) = inspected {
            let is_running_on = !matches!(action, "create" | "start");
            let before = c.by_id.get(&facts.id).filter(|_| is_running_on);
            facts.was_signalled = before.is_some_and(|f| f.was_signalled);
            c.by_id.insert(facts.id.clone(), facts);
        }
        match action {
            // Also the first thing that a stop does.
            "kill" => {
                c.by_id.entry(id).and_modify(|f| f.was_signalled = true);
            }
            "die" => {
                match is_failure {
                    true => c.failed.insert(id.clone()),
                    false => c.failed.remove(&id),
                };
                let ended = |f: &mut ContainerFacts| (f.is_healthy, f.is_running) = (false, false);
                c.by_id.entry(id.clone()).and_modify(ended);
                *c.ends.entry(id).or_default() += 1;
            }
            "destroy" => c.forget(&id),
            _ if action.starts_with("health_status") => {
                let is_healthy = action == "health_status: healthy";
                c.by_id.entry(id).and_modify(|f| f.is_healthy = is_healthy);
            }
            _ => return CHANGES.contains(&action),
        }
        true
    });
}

/// The container that came into a network or left one; networks that come and go are of nobody.
fn member(event: EventMessage) -> Option<String> {
    let id = event.actor?.attributes?.remove("container")?;
    (!id.is_empty()).then_some(id)
}

/// Looks up its addresses; what cannot be told stays as it was.
async fn note_network(docker: &Docker, publish: &watch::Sender<Containers>, id: String) {
    if let Ok(Some(facts)) = inspect(docker, &id).await {
        publish.send_modify(|c| {
            c.by_id.entry(facts.id).and_modify(|known| known.addresses = facts.addresses);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::Started;
    use axum::extract::Path;
    use axum::routing::get;
    use axum::{Json, Router};
    use bollard::models::EventActor;
    use futures_util::stream::{iter, pending};
    use std::time::Duration;
    use tokio::net::UnixListener;

    fn event(action: &str, id: &str) -> Result<EventMessage, Error> {
        let actor = Some(EventActor { id: Some(id.to_owned()), ..EventActor::default() });
        Ok(EventMessage { action: Some(action.to_owned()), actor, ..EventMessage::default() })
    }

    fn connect(dir: &tempfile::TempDir) -> Docker {
        let socket = dir.path().join("docker.sock");
        let address = socket.to_string_lossy();
        Docker::connect_with_unix(&address, 60, bollard::API_DEFAULT_VERSION).unwrap()
    }

    /// A dockerd that runs every container there is, and holds the lock of one of them for ever.
    fn serve(dir: &tempfile::TempDir) -> Docker {
        let inspect = async |Path(id): Path<String>| {
            if id == "held" {
                std::future::pending::<()>().await;
            }
            Json(serde_json::json!({ "Id": id, "Name": id, "State": { "Running": true } }))
        };
        let listener = UnixListener::bind(dir.path().join("docker.sock")).unwrap();
        let routes = Router::new().route("/containers/{id}/json", get(inspect));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        connect(dir)
    }

    /// What a start waits for is that of others, as where starts are let go one after the other.
    #[tokio::test]
    async fn who_is_held_keeps_nobody_from_hearing_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let docker = serve(&dir);
        let (publish, mut seen) = watch::channel(Containers::default());
        let told = [("create", "held"), ("start", "web"), ("kill", "web"), ("start", "db")];
        let events = iter(told.map(|(action, id)| event(action, id))).chain(pending());
        let is_heard = |c: &Containers| {
            let is_running = |id| c.by_id.get(id).is_some_and(|f| f.is_running);
            is_running("db") && is_running("web") && c.by_id["web"].was_signalled
        };
        let mut since = 0;
        tokio::select! {
            end = listen(&docker, Box::pin(events), &publish, &mut since) => panic!("{end:?}"),
            heard = tokio::time::timeout(Duration::from_secs(50), seen.wait_for(is_heard)) => {
                let heard = heard.expect("others are heard of").unwrap();
                assert!(!heard.by_id.contains_key("held"));
            }
        }
    }

    /// Events are told once, and the connection that is made anew lists what is there, not that it has started.
    #[tokio::test]
    async fn what_waits_is_noted_when_dockerd_goes() {
        let dir = tempfile::tempdir().unwrap();
        let docker = serve(&dir);
        let (publish, seen) = watch::channel(Containers::default());
        let told = [("create", "held"), ("start", "held"), ("die", "held"), ("start", "held")];
        let events = iter(told.map(|(action, id)| event(action, id)));
        assert!(listen(&docker, Box::pin(events), &publish, &mut 0).await.is_ok());
        assert_eq!(seen.borrow().starts["held"], Started { times: 2, ends_before: 1 });
    }

    #[tokio::test]
    async fn a_start_is_noted_though_it_cannot_be_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(dir.path().join("docker.sock")).unwrap());
        let (publish, seen) = watch::channel(Containers::default());
        let events = iter([event("start", "c")]).chain(pending());
        let end = listen(&connect(&dir), Box::pin(events), &publish, &mut 0).await;
        assert!(end.is_err(), "it is no success either");
        assert_eq!(seen.borrow().starts["c"], Started { times: 1, ends_before: 0 });
    }

    proptest::proptest! {
        /// In whatever order dockerd answers, and wherever it goes away: each start and each end is counted once.
        #[test]
        fn each_is_noted_once_and_in_order(
            told in proptest::collection::vec((0..3usize, 0..4usize), 0..40),
            answers in proptest::collection::vec(0..4usize, 0..40),
        ) {
            let (publish, seen) = watch::channel(Containers::default());
            let (mut waiting, mut looks) = (Waiting::default(), Vec::new());
            let mut answers = answers.into_iter();
            for (action, id) in &told {
                let event = event(["start", "die", "exec_start"][*action], &id.to_string());
                looks.extend(waiting.push(&publish, event.unwrap()));
                if let Some(at) = answers.next().filter(|at| *at < looks.len()) {
                    let id = looks.swap_remove(at);
                    looks.extend(waiting.note_first(&publish, id, None));
                }
            }
            proptest::prop_assert!(looks.len() <= 4, "one look at each at a time");
            waiting.note_all(&publish);
            for id in 0..4usize {
                let count = |action| told.iter().filter(|t| **t == (action, id)).count() as u32;
                let ended_before = told.iter().rposition(|t| *t == (0, id)).map(|at| {
                    told[..at].iter().filter(|t| **t == (1, id)).count() as u32
                });
                let known = seen.borrow();
                let id = id.to_string();
                let started = known.starts.get(&id).copied();
                proptest::prop_assert_eq!(started.map_or(0, |s| s.times), count(0));
                proptest::prop_assert_eq!(started.map(|s| s.ends_before), ended_before);
                proptest::prop_assert_eq!(known.ends.get(&id).copied().unwrap_or(0), count(1));
            }
        }
    }
}
