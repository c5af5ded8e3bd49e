//! `ctlmgr batch run`: containers that exist or that compose makes, started batch by batch.
//!
//! dockerd is asked through its own client, so that its context and credentials apply. When a start is
//! over is ctlmgrd's word: it sees each until it is healthy, quiet, ended or has had its time.

mod compose;
mod learned;
mod line;
mod listed;
mod needs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use ctlmgr_api::{Client, Queue};
use ctlmgr_model::Mode;

use self::line::Line;
use self::needs::{Condition, Need, Needs, Ready, sort_out};
use crate::docker_cli::docker;
use crate::input::read;
use crate::{Failure, batch_plan, show};

/// Between two looks at the queue.
const EVERY: Duration = Duration::from_secs(1);
/// ctlmgrd learns from dockerd that a container has started; so long that takes, and so long it may take where dockerd is
/// busy.
const NOTICE: Duration = Duration::from_secs(2);
const LATE_NOTICE: Duration = Duration::from_secs(30);
/// A dockerd or ctlmgrd that restarts is back within this time.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which containers are to start.
pub(crate) enum Containers {
    /// Those in a file, as for `batch plan`.
    Listed(PathBuf),
    /// Those of the services in a compose file.
    Compose(PathBuf),
}

/// How to run them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Show the plan, and start nothing.
    pub is_dry: bool,
    /// Each batch waits for all of the one before.
    pub is_strict: bool,
}

/// Runs the command.
pub(crate) fn run(
    socket: &Path,
    containers: &Containers,
    manner: Manner,
    json: bool,
) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(socket);
    let problem = match containers {
        Containers::Listed(file) => {
            let text = read(file).map_err(Failure::bad_input)?;
            let text = listed::filled_in(&runtime, &client, text)?;
            started_first(&text).map(|needs| (text, needs))
        }
        Containers::Compose(file) => compose::problem(&runtime, &client, file),
    };
    let (text, needs) = problem.map_err(Failure::bad_input)?;
    if manner.is_dry {
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
    let company = batch_plan::company(&text).map_err(Failure::bad_input)?;
    let after = needs.iter().map(|(name, all)| {
        (name.clone(), all.iter().map(|need| need.name.clone()).collect::<BTreeSet<_>>())
    });
    let mut line = Line::new(&company, &batches, after.collect(), manner.is_strict);
    let failed = start_in_turn(&mut line, &batches, &needs, &mut |starting, started| {
        runtime.block_on(still_starting(&client, starting, started))
    })?;
    Ok(u8::from(!failed.is_empty()))
}

/// Whose starts are under way, of those that started when.
type Watch<'a> = dyn FnMut(&BTreeSet<String>, &BTreeMap<String, Instant>) -> Result<BTreeSet<String>, Failure>
    + 'a;

/// Starts all, each when it may; returns those that did not start.
fn start_in_turn(
    line: &mut Line<'_>,
    batches: &[Vec<String>],
    needs: &Needs,
    watch: &mut Watch<'_>,
) -> Result<BTreeSet<String>, Failure> {
    let (mut failed, mut started, mut said) = (BTreeSet::new(), BTreeMap::new(), None);
    let mut waiting = Ready::new();
    loop {
        let (number, ready) = line.next(|name| !waiting.contains_key(name));
        if !ready.is_empty() && said.replace(number) != Some(number) {
            let names = batches.get(number).map_or(&[][..], Vec::as_slice).join(" ");
            show::line(&format!("batch {} of {}: {names}", number + 1, batches.len()));
        }
        waiting.extend(ready.into_iter().map(|name| (name, Instant::now())));
        let (may_start, mut errors) = sort_out(&mut waiting, needs, &failed);
        errors.extend(start_all(&may_start));
        started.extend(may_start.into_iter().map(|name| (name, Instant::now())));
        for (name, error) in errors {
            eprintln!("ctlmgr: {name} did not start: {error}");
            failed.insert(name);
        }
        line.keep(|name| !failed.contains(name));
        if line.is_done() && waiting.is_empty() {
            return Ok(failed);
        }
        let starting = watch(line.starting(), &started)?;
        line.keep(|name| starting.contains(name) || waiting.contains_key(name));
    }
}

/// What `after` of a file asks for: that the others have started.
fn started_first(text: &str) -> Result<Needs, anyhow::Error> {
    let need = |name| Need { name, condition: Condition::Started, is_required: true };
    let all = batch_plan::predecessors_by_name(text)?.into_iter();
    Ok(all.map(|(name, before)| (name, before.into_iter().map(need).collect())).collect())
}

/// Fails with the names of all that do not exist, before anything is started.
fn expect_containers(names: &[String]) -> Result<(), anyhow::Error> {
    let (mut missing, mut ids) = (Vec::new(), Vec::new());
    for name in names {
        match docker(&["container", "inspect", "--format", "{{.Name}}", name]) {
            Err(_) => missing.push(name.as_str()),
            Ok(text) => {
                let found = text.trim().trim_start_matches('/');
                ids.extend((found != name).then(|| format!("{name} is {found}")));
            }
        }
    }
    match missing.is_empty() {
        // Under which name it would be looked for among those that start.
        true if !ids.is_empty() => bail!("containers are named, not by id: {}", ids.join(", ")),
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

/// Whose starts are still under way, a look later. A daemon that began anew meanwhile does not know them;
/// the next follow then, rather than never.
async fn still_starting(
    client: &Client,
    starting: &BTreeSet<String>,
    started: &BTreeMap<String, Instant>,
) -> Result<BTreeSet<String>, Failure> {
    let (began, mut was_away) = (Instant::now(), false);
    loop {
        tokio::time::sleep(EVERY).await;
        match client.get::<Queue>("/v1/queue").await {
            // It has to hear from dockerd first what starts.
            Ok(_) if std::mem::take(&mut was_away) => tokio::time::sleep(NOTICE).await,
            Ok(queue) => {
                let is_over = |name: &String| queue.over.contains(name);
                // Who was neither seen to start nor to be over yet will be.
                let is_new = |name: &String| {
                    let patience = if is_over(name) { NOTICE } else { LATE_NOTICE };
                    started.get(name).is_some_and(|at| at.elapsed() < patience)
                };
                let is_seen = |name: &str| queue.starting.iter().any(|s| s.name == name);
                let all = starting.iter().filter(|name| is_seen(name) || is_new(name));
                return Ok(all.cloned().collect());
            }
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => was_away = true,
        }
    }
}
