//! What dockerd knows about containers: a list, then the event stream, with reconnection.
//!
//! Containers are found in the cgroup tree, not here: names, labels and promises only decorate
//! them. So ctlmgr works while dockerd is down, restarts, or is not there at all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{
    ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum, EventMessage,
    EventMessageTypeEnum, HealthStatusEnum, NetworkSettings,
};
use bollard::query_parameters::{EventsOptions, ListContainersOptions};

use ctlmgr_model::{Bytes, ContainerFacts};
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use tokio::sync::watch;
use tracing::{debug, info};

/// What is known of dockerd and its containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Containers {
    /// By full id; kept while dockerd is away.
    pub by_id: BTreeMap<String, ContainerFacts>,
    /// Starts that were seen, by full id.
    pub starts: BTreeMap<String, Started>,
    /// How often each was seen to end.
    pub ends: BTreeMap<String, u32>,
    /// Those whose last end was a failure.
    pub failed: BTreeSet<String>,
    /// Version of dockerd while it answers.
    pub version: Option<String>,
    /// Whether dockerd was asked at least once, with whatever success.
    pub was_tried: bool,
}

/// How often a container was seen to start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Started {
    /// So often.
    pub times: u32,
    /// How often it had ended when it started last.
    pub ends_before: u32,
}

impl Containers {
    /// Notes a start.
    pub fn note_start(&mut self, id: &str) {
        let ends_before = self.ends.get(id).copied().unwrap_or_default();
        let started = self.starts.entry(id.to_owned()).or_default();
        *started = Started { times: started.times.saturating_add(1), ends_before };
    }
}

/// First and longest pause between attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Events of this time before the connection count as new: starts of the boot among them.
const LOOK_BACK: Duration = Duration::from_secs(30);
/// Seconds that one request may take; a busy dockerd is slow, a hung one is a gap.
const REQUEST_TIMEOUT_SECS: u64 = 60;

/// Follows dockerd behind `socket` for ever, and publishes what it says.
pub async fn watch_containers(socket: PathBuf, publish: watch::Sender<Containers>) {
    let mut pause = BACK_OFF.0;
    // When the last event that was seen happened, in nanoseconds of Unix time.
    let mut seen = 0;
    loop {
        match follow(&socket, &publish, (&mut pause, &mut seen)).await {
            Ok(()) => info!("dockerd closed the event stream"),
            Err(error) => debug!(%error, socket = %socket.display(), "dockerd does not answer"),
        }
        publish.send_if_modified(|c| {
            let was_known = c.version.take().is_some();
            was_known | !std::mem::replace(&mut c.was_tried, true)
        });
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACK_OFF.1);
    }
}

/// Version of dockerd behind `socket`; `None` if it does not answer within a few seconds.
pub async fn version(socket: &Path) -> Option<String> {
    let address = socket.to_string_lossy();
    let docker =
        Docker::connect_with_unix(&address, REQUEST_TIMEOUT_SECS, bollard::API_DEFAULT_VERSION)
            .ok()?;
    let answer = tokio::time::timeout(Duration::from_secs(5), docker.version()).await;
    answer.ok()?.ok()?.version
}

async fn follow(
    socket: &Path,
    publish: &watch::Sender<Containers>,
    (pause, seen): (&mut Duration, &mut i64),
) -> Result<(), Error> {
    let address = socket.to_string_lossy();
    let docker =
        Docker::connect_with_unix(&address, REQUEST_TIMEOUT_SECS, bollard::API_DEFAULT_VERSION)?
            .negotiate_version()
            .await?;
    let version = docker.version().await?.version.unwrap_or_default();
    info!(version, "connected to dockerd");
    // The request goes out when the stream is first read, so events since before the list are asked for:
    // nothing falls between the two. A dockerd that has just begun has started containers before it
    // answered, and remembers.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = now.ok().map(|t| t.saturating_sub(LOOK_BACK).as_secs().to_string());
    let types = ["container", "network"].map(str::to_owned).to_vec();
    let filters = [("type".to_owned(), types)].into_iter().collect();
    let events = docker.events(Some(EventsOptions {
        filters: Some(filters),
        since,
        ..EventsOptions::default()
    }));
    let by_id = list(&docker).await?;
    publish.send_modify(|c| {
        let before = std::mem::replace(&mut c.by_id, by_id);
        // A list does not tell. Of one that had ended it says nothing of what it is now.
        let was_signalled = |f: &ContainerFacts| f.was_signalled && f.is_running;
        for facts in c.by_id.values_mut() {
            facts.was_signalled = before.get(&facts.id).is_some_and(was_signalled);
        }
        (c.version, c.was_tried) = (Some(version), true);
        // What was removed meanwhile is not told of.
        c.starts.retain(|id, _| c.by_id.contains_key(id));
        c.ends.retain(|id, _| c.by_id.contains_key(id));
        c.failed.retain(|id| c.by_id.contains_key(id));
    });
    *pause = BACK_OFF.0;
    listen(&docker, events, publish, seen).await
}

/// Takes events until dockerd closes the stream.
async fn listen(
    docker: &Docker,
    mut events: impl Stream<Item = Result<EventMessage, Error>> + Unpin,
    publish: &watch::Sender<Containers>,
    seen: &mut i64,
) -> Result<(), Error> {
    let seen_before = *seen;
    // dockerd tells of a network while it still holds a container's lock, and does not let go of that before its start is
    // let go: who looked at it then would hear of nothing else meanwhile, not even of what that start waits for.
    let mut arrivals = FuturesUnordered::new();
    loop {
        let event = tokio::select! {
            event = events.next() => match event {
                Some(event) => event?,
                None => return Ok(()),
            },
            Some(()) = arrivals.next() => continue,
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
            _ => handle(docker, publish, event).await?,
        }
    }
}

async fn list(docker: &Docker) -> Result<BTreeMap<String, ContainerFacts>, Error> {
    let mut by_id = BTreeMap::new();
    let options = ListContainersOptions { all: true, ..ListContainersOptions::default() };
    for summary in docker.list_containers(Some(options)).await? {
        let known = match summary.state {
            // What it is called and what it is made of is all that matters of one that rests.
            Some(ContainerSummaryStateEnum::EXITED | ContainerSummaryStateEnum::CREATED) => {
                Some(facts_of_resting(summary))
            }
            _ => inspect(docker, &summary.id.unwrap_or_default()).await?,
        };
        by_id.extend(known.map(|facts| (facts.id.clone(), facts)));
    }
    Ok(by_id)
}

async fn handle(
    docker: &Docker,
    publish: &watch::Sender<Containers>,
    event: EventMessage,
) -> Result<(), Error> {
    let actor = event.actor.unwrap_or_default();
    let code = actor.attributes.as_ref().and_then(|a| a.get("exitCode"));
    let is_failure = code.is_some_and(|code| code != "0");
    let id = actor.id.unwrap_or_default();
    match event.action.as_deref() {
        Some(action @ ("create" | "start" | "update" | "rename" | "pause" | "unpause")) => {
            let (inspected, failure) = match inspect(docker, &id).await {
                Ok(inspected) => (inspected, Ok(())),
                Err(error) => (None, Err(error)),
            };
            let is_running_on = !matches!(action, "create" | "start");
            publish.send_modify(|c| {
                // Also of one that has ended and was removed meanwhile, or that cannot be looked at: it is told of once.
                if action == "start" {
                    c.note_start(&id);
                }
                if let Some(mut facts) = inspected {
                    let before = c.by_id.get(&facts.id).filter(|_| is_running_on);
                    facts.was_signalled = before.is_some_and(|f| f.was_signalled);
                    c.by_id.insert(facts.id.clone(), facts);
                }
            });
            failure?;
        }
        Some(action) if action.starts_with("health_status") => publish.send_modify(|c| {
            let is_healthy = action == "health_status: healthy";
            c.by_id.entry(id).and_modify(|f| f.is_healthy = is_healthy);
        }),
        // Also the first thing that a stop does.
        Some("kill") => publish.send_modify(|c| {
            c.by_id.entry(id).and_modify(|f| f.was_signalled = true);
        }),
        Some("die") => publish.send_modify(|c| {
            match is_failure {
                true => c.failed.insert(id.clone()),
                false => c.failed.remove(&id),
            };
            let ended = |f: &mut ContainerFacts| (f.is_healthy, f.is_running) = (false, false);
            c.by_id.entry(id.clone()).and_modify(ended);
            *c.ends.entry(id).or_default() += 1;
        }),
        Some("destroy") => publish.send_modify(|c| {
            c.by_id.remove(&id);
            c.starts.remove(&id);
            c.ends.remove(&id);
            c.failed.remove(&id);
        }),
        _ => {}
    }
    Ok(())
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

/// One container; `None` if it is gone already.
async fn inspect(docker: &Docker, id: &str) -> Result<Option<ContainerFacts>, Error> {
    match docker.inspect_container(id, None).await {
        Ok(response) => Ok(Some(facts(response))),
        Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn facts_of_resting(summary: ContainerSummary) -> ContainerFacts {
    let name = summary.names.and_then(|names| names.into_iter().next());
    ContainerFacts {
        id: summary.id.unwrap_or_default(),
        name: name.map(|n| n.trim_start_matches('/').to_owned()),
        image: summary.image,
        command: summary.command,
        labels: summary.labels.unwrap_or_default().into_iter().collect(),
        ..ContainerFacts::default()
    }
}

/// Addresses in all networks.
fn addresses(settings: NetworkSettings) -> Vec<IpAddr> {
    let networks = settings.networks.unwrap_or_default().into_values();
    let texts = networks.flat_map(|n| [n.ip_address, n.global_ipv6_address]);
    let mut all: Vec<IpAddr> = texts.flatten().filter_map(|text| text.parse().ok()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// As dockerd's list shows it: arguments with a space in them are quoted.
fn command(path: Option<String>, arguments: Option<Vec<String>>) -> Option<String> {
    let quote = |a: String| if a.contains(' ') { format!("'{a}'") } else { a };
    let words = path.into_iter().chain(arguments.unwrap_or_default().into_iter().map(quote));
    let text = words.collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

fn facts(response: ContainerInspectResponse) -> ContainerFacts {
    let health = response.state.as_ref().and_then(|s| s.health.as_ref()).and_then(|h| h.status);
    let config = response.config.unwrap_or_default();
    let reservation = response.host_config.and_then(|h| h.memory_reservation);
    ContainerFacts {
        id: response.id.unwrap_or_default(),
        name: response.name.map(|n| n.trim_start_matches('/').to_owned()),
        image: config.image,
        command: command(response.path, response.args),
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        reservation: reservation.and_then(|r| u64::try_from(r).ok()).filter(|&r| r > 0).map(Bytes),
        is_running: response.state.as_ref().and_then(|s| s.running).unwrap_or(false),
        is_paused: response.state.and_then(|s| s.paused).unwrap_or(false),
        was_signalled: false,
        is_untold: false,
        is_unstarted: false,
        is_healthy: health == Some(HealthStatusEnum::HEALTHY),
        addresses: response.network_settings.map(addresses).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::EventActor;

    /// The event is not told again, and the connection that is made anew lists what is there, not that it has started.
    #[tokio::test]
    async fn a_start_is_noted_though_it_cannot_be_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("docker.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let address = socket.to_string_lossy();
        let docker = Docker::connect_with_unix(&address, 5, bollard::API_DEFAULT_VERSION).unwrap();
        let (publish, seen) = watch::channel(Containers::default());
        let actor = Some(EventActor { id: Some("c".to_owned()), ..EventActor::default() });
        let event = EventMessage { action: Some("start".into()), actor, ..EventMessage::default() };
        assert!(handle(&docker, &publish, event).await.is_err(), "it is no success either");
        assert_eq!(seen.borrow().starts["c"], Started { times: 1, ends_before: 0 });
    }
}
