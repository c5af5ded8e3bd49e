//! What dockerd tells of as it happens.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{EventActor, EventMessage, EventMessageTypeEnum};
use ctlmgr_model::ContainerFacts;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use tokio::sync::watch;
use tracing::debug;

use super::{Containers, inspect};

/// What changes more of a container than the event tells.
const CHANGES: [&str; 6] = ["create", "start", "update", "rename", "pause", "unpause"];

/// Takes events until dockerd closes the stream.
///
/// dockerd holds a container's lock while it starts, and answers no question about it before its start is let go. Who
/// waited for that would hear of nothing else meanwhile, not even of what that start waits for: only what is told
/// of the same container waits.
///
/// Events were asked for `since` then, and those until `seen` are not told for the first time.
pub(super) async fn listen(
    docker: &Docker,
    mut events: impl Stream<Item = Result<EventMessage, Error>> + Unpin,
    publish: &watch::Sender<Containers>,
    (since, seen): (Duration, &mut i64),
) -> Result<(), Error> {
    // Before that nothing is told again: the clock was set back.
    let told_before = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)..=*seen;
    let mut waiting = Waiting::default();
    let (mut looks, mut arrivals) = (FuturesUnordered::new(), FuturesUnordered::new());
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
        if told_before.contains(&at) {
            continue;
        }
        *seen = if at == i64::MAX { *seen } else { at.max(*seen) };
        match event.typ {
            // Who ends leaves its networks first, and its next start may have the lock before it is looked at: that it has
            // ended must not wait for that.
            Some(EventMessageTypeEnum::NETWORK) => {
                arrivals.extend(member(event).map(|id| note_network(docker, publish, id)));
            }
            _ => looks.extend(waiting.push(publish, event).map(|id| look(docker, id))),
        }
    };
    waiting.note_all(publish);
    end
}

/// Until when events were seen, by the clock as it is `now`, since 1970. Set back since it says nothing of those to come, which would
/// all count as seen; some are noted twice then.
pub(super) fn seen_until(seen: i64, now: Duration) -> i64 {
    let is_past = i64::try_from(now.as_nanos()).is_ok_and(|now| seen <= now);
    if is_past { seen } else { 0 }
}

/// An event after which a container is looked at, for one that was not answered about.
pub(super) fn update_of(id: String) -> EventMessage {
    let actor = Some(EventActor { id: Some(id), ..EventActor::default() });
    EventMessage { action: Some("update".to_owned()), actor, ..EventMessage::default() }
}

/// Looks at a container, again and again while dockerd answers, but not about it.
async fn look(docker: &Docker, id: String) -> (String, Result<Option<ContainerFacts>, Error>) {
    loop {
        match inspect(docker, &id).await {
            Err(Error::RequestTimeoutError) => debug!(id, "dockerd does not answer about it"),
            looked => return (id, looked),
        }
        if let Err(error) = docker.version().await {
            return (id, Err(error));
        }
    }
}

/// What is yet to be noted of each container, in the order in which it was told; the first of each is being looked at.
#[derive(Default)]
struct Waiting(BTreeMap<String, VecDeque<EventMessage>>);

impl Waiting {
    /// Takes one more; `Some` is a container that is to be looked at for it.
    fn push(&mut self, publish: &watch::Sender<Containers>, event: EventMessage) -> Option<String> {
        let id = event.actor.as_ref()?.id.clone()?;
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
        if let Some(event) = self.0.get_mut(&id).and_then(VecDeque::pop_front) {
            note(publish, event, facts);
        }
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

/// Notes what happened to a container, with what a look at it has shown, if that was needed and it could be looked at.
fn note(
    publish: &watch::Sender<Containers>,
    event: EventMessage,
    inspected: Option<ContainerFacts>,
) {
    let actor = event.actor.unwrap_or_default();
    let (id, attributes) = (actor.id.unwrap_or_default(), actor.attributes.unwrap_or_default());
    let is_failure = attributes.get("exitCode").is_some_and(|code| code != "0");
    let Some(action) = event.action.as_deref() else { return };
    publish.send_if_modified(|c| {
        match action {
            "start" => note_start(c, &id, inspected),
            _ if CHANGES.contains(&action) => {
                let Some(mut facts) = inspected else { return false };
                let before = c.by_id.get(&id).filter(|_| action != "create");
                facts.was_signalled = before.is_some_and(|f| f.was_signalled);
                c.by_id.insert(id, facts);
            }
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
            _ => return false,
        }
        true
    });
}

/// Also of one that has ended and was removed meanwhile, or that cannot be looked at: it is told of once.
fn note_start(c: &mut Containers, id: &str, inspected: Option<ContainerFacts>) {
    c.note_start(id);
    match inspected {
        Some(facts) => _ = c.by_id.insert(id.to_owned(), facts),
        None => {
            let started = |f: &mut ContainerFacts| (f.was_signalled, f.is_running) = (false, true);
            c.by_id.entry(id.to_owned()).and_modify(started);
        }
    }
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
    use crate::docker::fake::{HELD, LATE, connect, serve};
    use futures_util::stream::{iter, pending};
    use tokio::net::UnixListener;

    fn event(action: &str, id: &str) -> Result<EventMessage, Error> {
        let actor = Some(EventActor { id: Some(id.to_owned()), ..EventActor::default() });
        Ok(EventMessage { action: Some(action.to_owned()), actor, ..EventMessage::default() })
    }

    /// What a start waits for is that of others, as where starts are let go one after the other.
    #[tokio::test]
    async fn who_is_held_keeps_nobody_from_hearing_of_others() {
        let dir = tempfile::tempdir().unwrap();
        serve(&dir, &[]);
        let docker = connect(&dir, 60);
        let (publish, mut seen) = watch::channel(Containers::default());
        let told = [("create", HELD), ("start", "web"), ("kill", "web"), ("start", "db")];
        let events = iter(told.map(|(action, id)| event(action, id))).chain(pending());
        let is_heard = |c: &Containers| {
            let is_running = |id| c.by_id.get(id).is_some_and(|f| f.is_running);
            is_running("db") && is_running("web") && c.by_id["web"].was_signalled
        };
        let mut since = 0;
        tokio::select! {
            end = listen(&docker, Box::pin(events), &publish, (Duration::ZERO, &mut since)) => panic!("{end:?}"),
            heard = tokio::time::timeout(Duration::from_secs(50), seen.wait_for(is_heard)) => {
                let heard = heard.expect("others are heard of").unwrap();
                assert!(!heard.by_id.contains_key(HELD));
            }
        }
    }

    /// Events are told once, and the connection that is made anew lists what is there, not that it has started.
    #[tokio::test]
    async fn what_waits_is_noted_when_dockerd_goes() {
        let dir = tempfile::tempdir().unwrap();
        serve(&dir, &[]);
        let docker = connect(&dir, 60);
        let (publish, seen) = watch::channel(Containers::default());
        let told = [("create", HELD), ("start", HELD), ("die", HELD), ("start", HELD)];
        let events = iter(told.map(|(action, id)| event(action, id)));
        assert!(
            listen(&docker, Box::pin(events), &publish, (Duration::ZERO, &mut 0)).await.is_ok()
        );
        assert_eq!(seen.borrow().starts[HELD], Started { times: 2, ends_before: 1 });
    }

    #[tokio::test]
    async fn who_was_held_for_long_is_looked_at_again() {
        let dir = tempfile::tempdir().unwrap();
        serve(&dir, &[]);
        let docker = connect(&dir, 1);
        let (publish, mut seen) = watch::channel(Containers::default());
        let events = iter([event("start", LATE)]).chain(pending());
        let mut since = 0;
        tokio::select! {
            end = listen(&docker, Box::pin(events), &publish, (Duration::ZERO, &mut since)) => panic!("{end:?}"),
            heard = tokio::time::timeout(Duration::from_secs(50), seen.wait_for(|c| c.by_id.contains_key(LATE))) => {
                assert_eq!(heard.expect("it is looked at").unwrap().starts[LATE].times, 1);
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nobody_deaf() {
        let now = Duration::from_secs(1_000);
        assert_eq!(seen_until(999_000_000_000, now), 999_000_000_000);
        assert_eq!(seen_until(4_600_000_000_000, now), 0);
    }

    /// A container that ends leaves its networks first, and may be held in its next start before anybody has looked.
    #[tokio::test]
    async fn an_end_does_not_wait_for_a_network() {
        let dir = tempfile::tempdir().unwrap();
        serve(&dir, &[]);
        let docker = connect(&dir, 60);
        let facts = |id: &str| ContainerFacts { id: id.into(), ..ContainerFacts::default() };
        let known = [HELD, "web"]
            .map(|id| (id.to_owned(), ContainerFacts { is_running: true, ..facts(id) }));
        let (publish, mut seen) =
            watch::channel(Containers { by_id: known.into(), ..Containers::default() });
        let network = |action: &str, id: &str| {
            let attributes = Some([("container".to_owned(), id.to_owned())].into());
            let actor = Some(EventActor { id: Some("net".into()), attributes });
            let typ = Some(EventMessageTypeEnum::NETWORK);
            Ok(EventMessage { typ, action: Some(action.into()), actor, ..EventMessage::default() })
        };
        let told = [network("disconnect", HELD), network("connect", "web"), event("die", HELD)];
        let is_heard =
            |c: &Containers| !c.by_id[HELD].is_running && !c.by_id["web"].addresses.is_empty();
        let mut since = 0;
        tokio::select! {
            end = listen(&docker, Box::pin(iter(told).chain(pending())), &publish, (Duration::ZERO, &mut since)) => panic!("{end:?}"),
            heard = tokio::time::timeout(Duration::from_secs(50), seen.wait_for(is_heard)) => {
                assert_eq!(heard.expect("it has ended").unwrap().ends[HELD], 1);
            }
        }
    }

    #[tokio::test]
    async fn a_start_is_noted_though_it_cannot_be_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(dir.path().join("docker.sock")).unwrap());
        let (publish, seen) = watch::channel(Containers::default());
        let events = iter([event("start", "c")]).chain(pending());
        let end =
            listen(&connect(&dir, 5), Box::pin(events), &publish, (Duration::ZERO, &mut 0)).await;
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
