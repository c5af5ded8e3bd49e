//! `ctlmgr batch run`: containers that exist or that compose makes, started batch by batch.
//!
//! dockerd is asked through its own client, so that its context and credentials apply. When a batch is
//! over is ctlmgrd's word: it sees each start until it is healthy, quiet, ended or has had its time.

mod compose;
mod needs;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use ctlmgr_api::{Client, Queue};
use ctlmgr_model::Mode;

use self::needs::{Condition, Need, Needs, sort_out};
use crate::docker_cli::docker;
use crate::input::read;
use crate::{Failure, batch_plan, show};

/// Between two looks at the queue.
const EVERY: Duration = Duration::from_secs(1);
/// ctlmgrd learns from dockerd that a container has started; so long that may take.
const NOTICE: Duration = Duration::from_secs(2);
/// A dockerd or ctlmgrd that restarts is back within this time.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which containers are to start.
pub(crate) enum Containers {
    /// Those in a file, as for `batch plan`.
    Listed(PathBuf),
    /// Those of the services in a compose file.
    Compose(PathBuf),
}

/// Runs the command.
pub(crate) fn run(
    socket: &Path,
    containers: &Containers,
    is_dry: bool,
    json: bool,
) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(socket);
    let problem = match containers {
        Containers::Listed(file) => read(file).and_then(|text| {
            let needs = started_first(&text)?;
            Ok((text, needs))
        }),
        Containers::Compose(file) => compose::problem(&runtime, &client, file),
    };
    let (text, needs) = problem.map_err(Failure::bad_input)?;
    if is_dry {
        return batch_plan::run_text(&text, None, json);
    }
    let batches = batch_plan::batches(&text).map_err(Failure::bad_input)?;
    // Without ctlmgrd nobody could tell when a batch is over.
    if runtime.block_on(client.get::<Queue>("/v1/queue"))?.mode == Mode::Off {
        let message = "starts.mode is off: nobody would see when a batch is over";
        return Err(Failure::bad_input(anyhow!(message)));
    }
    if let Containers::Compose(file) = containers {
        compose::create(file)?;
    }
    expect_containers(&batches.concat()).map_err(Failure::bad_input)?;
    let mut failed = BTreeSet::new();
    for (number, batch) in batches.iter().enumerate() {
        show::line(&format!("batch {} of {}: {}", number + 1, batches.len(), batch.join(" ")));
        let (may_start, mut errors) = sort_out(batch, &needs, &failed);
        errors.extend(start_all(&may_start));
        for (name, error) in errors {
            eprintln!("ctlmgr: {name} did not start: {error}");
            failed.insert(name);
        }
        if number + 1 < batches.len() {
            runtime.block_on(wait_for(&client, batch))?;
        }
    }
    Ok(u8::from(!failed.is_empty()))
}

/// What `after` of a file asks for: that the others have started.
fn started_first(text: &str) -> Result<Needs, anyhow::Error> {
    let need = |name| Need { name, condition: Condition::Started, is_required: true };
    let all = batch_plan::predecessors_by_name(text)?.into_iter();
    Ok(all.map(|(name, before)| (name, before.into_iter().map(need).collect())).collect())
}

/// Fails with the names of all that do not exist, before anything is started.
fn expect_containers(names: &[String]) -> Result<(), anyhow::Error> {
    let is_there =
        |name: &&String| docker(&["container", "inspect", "--format", "x", name]).is_err();
    let missing: Vec<&str> = names.iter().filter(is_there).map(String::as_str).collect();
    match missing.is_empty() {
        true => Ok(()),
        false if docker(&["version"]).is_err() => bail!("dockerd does not answer"),
        false => bail!("no such container: {}; nothing was started", missing.join(", ")),
    }
}

/// Starts the containers of a batch at once; returns those that did not start.
fn start_all(batch: &[String]) -> Vec<(String, anyhow::Error)> {
    std::thread::scope(|scope| {
        let started: Vec<_> =
            batch.iter().map(|name| (name, scope.spawn(move || start(name)))).collect();
        let joined = |(name, thread): (&String, std::thread::ScopedJoinHandle<'_, _>)| {
            let result = thread.join().unwrap_or_else(|_| Err(anyhow!("starting it failed")));
            result.err().map(|error| (name.clone(), error))
        };
        started.into_iter().filter_map(joined).collect()
    })
}

/// Starts one; if dockerd is away just then, again when it is back.
fn start(name: &str) -> Result<(), anyhow::Error> {
    let began = Instant::now();
    loop {
        let error = match docker(&["start", name]) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if docker(&["version"]).is_ok() || began.elapsed() > PATIENCE {
            return Err(error);
        }
        std::thread::park_timeout(EVERY);
    }
}

/// Waits until no start of the batch is under way any more. A daemon that began anew meanwhile does not
/// know them; the next batch follows then, rather than never.
async fn wait_for(client: &Client, batch: &[String]) -> Result<(), Failure> {
    let (mut since, mut away_since) = (Instant::now(), None);
    loop {
        tokio::time::sleep(EVERY).await;
        match client.get::<Queue>("/v1/queue").await {
            Ok(queue) => {
                if away_since.take().is_some() {
                    since = Instant::now();
                }
                let is_under_way = queue.starting.iter().any(|s| batch.contains(&s.name));
                if !is_under_way && since.elapsed() > NOTICE {
                    return Ok(());
                }
            }
            Err(error) => {
                let away = away_since.get_or_insert_with(Instant::now);
                if away.elapsed() > PATIENCE {
                    return Err(error.into());
                }
            }
        }
    }
}
