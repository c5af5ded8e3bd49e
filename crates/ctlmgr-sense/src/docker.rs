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
    ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum, HealthStatusEnum,
    NetworkSettings,
};
use bollard::query_parameters::{EventsOptions, ListContainersOptions};

use ctlmgr_model::{Bytes, ContainerFacts};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::watch;
use tracing::{debug, info};

mod events;
#[cfg(test)]
mod fake;

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

    /// Whether the last start that was seen of this one has not ended yet.
    pub fn is_up(&self, id: &str) -> bool {
        let ends = self.ends.get(id).copied().unwrap_or_default();
        self.starts.get(id).is_some_and(|started| started.ends_before == ends)
    }

    /// Forgets one that was removed.
    fn forget(&mut self, id: &str) {
        self.by_id.remove(id);
        self.starts.remove(id);
        self.ends.remove(id);
        self.failed.remove(id);
    }
}

/// First and longest pause between attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Events of this time before the connection count as new: starts of the boot among them.
const LOOK_BACK: Duration = Duration::from_secs(30);
/// So many containers are asked about at once.
const AT_ONCE: usize = 16;
/// Until then each must be answered about; nothing is heard meanwhile, and dockerd remembers its last events only.
const IN_TIME: Duration = Duration::from_secs(5);
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
    let now = now.unwrap_or_default();
    let since = Duration::from_secs(now.saturating_sub(LOOK_BACK).as_secs());
    *seen = events::seen_until(*seen, now);
    let types = ["container", "network"].map(str::to_owned).to_vec();
    let filters = [("type".to_owned(), types)].into_iter().collect();
    let events = docker.events(Some(EventsOptions {
        filters: Some(filters),
        since: Some(since.as_secs().to_string()),
        ..EventsOptions::default()
    }));
    let before = publish.borrow().by_id.clone();
    let (by_id, unanswered) = list(&docker, &before, IN_TIME).await?;
    let unanswered = unanswered.into_iter().map(|id| Ok(events::update_of(id)));
    let events = stream::iter(unanswered).chain(events);
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
    events::listen(&docker, events, publish, (since, seen)).await
}

/// What there is. Those that dockerd does not answer about in time, as while it holds their lock, are as they were `before`, and
/// come along by their ids.
async fn list(
    docker: &Docker,
    before: &BTreeMap<String, ContainerFacts>,
    in_time: Duration,
) -> Result<(BTreeMap<String, ContainerFacts>, Vec<String>), Error> {
    let options = ListContainersOptions { all: true, ..ListContainersOptions::default() };
    let all = docker.list_containers(Some(options)).await?;
    // What is known of it, and whether that is all.
    let known = all.into_iter().map(|summary| async {
        // What it is called and what it is made of is all that matters of one that rests.
        if is_resting(&summary) {
            return Ok((Some(facts_of_resting(summary)), true));
        }
        let id = summary.id.clone().unwrap_or_default();
        match tokio::time::timeout(in_time, inspect(docker, &id)).await {
            Ok(known) => known.map(|facts| (facts, true)),
            // The list says that it does not rest.
            Err(_) => {
                let known = before.get(&id).cloned().unwrap_or_else(|| facts_of_resting(summary));
                Ok((Some(ContainerFacts { is_running: true, ..known }), false))
            }
        }
    });
    let known: Vec<_> = stream::iter(known).buffer_unordered(AT_ONCE).try_collect().await?;
    let known = known.into_iter().filter_map(|(facts, is_all)| Some((facts?, is_all)));
    let (mut by_id, mut unanswered) = (BTreeMap::new(), Vec::new());
    for (facts, is_all) in known {
        unanswered.extend((!is_all).then(|| facts.id.clone()));
        by_id.insert(facts.id.clone(), facts);
    }
    Ok((by_id, unanswered))
}

fn is_resting(summary: &ContainerSummary) -> bool {
    use ContainerSummaryStateEnum::{CREATED, EXITED, RESTARTING};
    matches!(summary.state, Some(EXITED | CREATED | RESTARTING))
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
    let state = response.state.unwrap_or_default();
    let health = state.health.and_then(|h| h.status);
    let config = response.config.unwrap_or_default();
    let reservation = response.host_config.and_then(|h| h.memory_reservation);
    ContainerFacts {
        id: response.id.unwrap_or_default(),
        name: response.name.map(|n| n.trim_start_matches('/').to_owned()),
        image: config.image,
        command: command(response.path, response.args),
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        reservation: reservation.and_then(|r| u64::try_from(r).ok()).filter(|&r| r > 0).map(Bytes),
        // One that is to start again in a while is said to run, too.
        is_running: state.running == Some(true) && state.restarting != Some(true),
        is_paused: state.paused == Some(true),
        was_signalled: false,
        is_untold: false,
        is_unheard: false,
        is_unstarted: false,
        is_healthy: health == Some(HealthStatusEnum::HEALTHY),
        addresses: response.network_settings.map(addresses).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_cannot_be_asked_about_is_as_before_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        fake::serve(&dir, &[fake::HELD, "web", fake::AGAIN]);
        let docker = fake::connect(&dir, 60);
        let of = |all: &BTreeMap<String, ContainerFacts>, id: &str| all[id].clone();
        let (all, unanswered) = list(&docker, &BTreeMap::new(), IN_TIME).await.unwrap();
        assert_eq!(unanswered, [fake::HELD]);
        let (held, web) = (of(&all, fake::HELD), of(&all, "web"));
        assert!(held.is_running && web.is_running && !of(&all, fake::AGAIN).is_running);
        assert_eq!((held.name.as_deref(), held.reservation), (Some(fake::HELD), None));
        assert_eq!(web.reservation, Some(Bytes::mib(1)));
        let again = inspect(&docker, fake::AGAIN).await.unwrap().unwrap();
        assert!(!again.is_running, "it is said to run, too");
        let before = ContainerFacts { reservation: Some(Bytes::mib(2)), ..held };
        let known = [(fake::HELD.to_owned(), before.clone())].into();
        let (all, unanswered) = list(&docker, &known, Duration::ZERO).await.unwrap();
        // The other one may be quicker than no time at all.
        assert_eq!((of(&all, fake::HELD), unanswered.contains(&before.id)), (before, true));
    }
}
