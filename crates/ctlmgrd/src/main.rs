//! The ctlmgr daemon.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use ctlmgr_act::{Actuator, SystemdBus};
use ctlmgr_api::{Client, Severity};
use ctlmgr_model::{Millis, Plan};
use ctlmgr_sense::{Query, Sensor, read_topology};
use ctlmgr_store::Journal;
use ctlmgrd::doctor::{Examination, judge};
use ctlmgrd::{Places, differences, log, revert};
use tokio::net::UnixListener;

/// Makes a container host keep its promises: shares memory by weight under pressure.
///
/// Started by systemd as ctlmgr.service; operators use ctlmgr(1).
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Everything below this directory instead of /.
    #[arg(long, default_value = "/", hide = true)]
    root: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon (the default).
    Run,
    /// Without a daemon: put back every value that ctlmgr wrote; prints JSON.
    Revert,
    /// Without a daemon: show what differs from before ctlmgr; prints JSON.
    Diff,
    /// Examine this host; prints JSON. Exit status 2 if ctlmgr cannot work here.
    Doctor,
    /// Read the processors and the caches that they share; prints JSON.
    Topology,
}

/// Exit status of a configuration error (sysexits.h); systemd does not try again after it.
const CONFIG: u8 = 78;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log::start();
    match try_main(arguments) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            match error.downcast_ref::<ctlmgr_config::ConfigError>() {
                Some(_) => ExitCode::from(CONFIG),
                None => ExitCode::FAILURE,
            }
        }
    }
}

fn try_main(arguments: Arguments) -> Result<ExitCode> {
    let places = Places { root: arguments.root };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let code = runtime.block_on(async {
        match arguments.command.unwrap_or(Command::Run) {
            Command::Run => ctlmgrd::run(places, inherited()?).await.map(|()| ExitCode::SUCCESS),
            Command::Revert => revert_offline(&places).await,
            Command::Diff => diff_offline(&places).await,
            Command::Doctor => doctor(&places).await,
            Command::Topology => {
                let topology =
                    read_topology(&places.host()).context("failed to read the processors")?;
                print_json(&topology)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    });
    // A reclaim that is still in the kernel must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

/// The API socket, if systemd opened it for us.
fn inherited() -> Result<Option<UnixListener>> {
    let mut sockets = sd_notify::listen_fds_with_names().context("failed to read $LISTEN_FDS")?;
    let Some((fd, _)) = sockets.find(|(_, name)| name == "ctlmgr.socket") else { return Ok(None) };
    #[expect(unsafe_code, reason = "systemd hands descriptors over as numbers")]
    // SAFETY: $LISTEN_FDS says that the descriptor is open and ours; it is taken once.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let listener = std::os::unix::net::UnixListener::from(fd);
    listener.set_nonblocking(true).context("failed to set up the API socket")?;
    UnixListener::from_std(listener).map(Some).context("failed to take over the API socket")
}

/// What undo needs: a way to write, and what to put back.
type Offline = (Actuator<SystemdBus>, Arc<Mutex<Journal>>);

/// `None` if there is no journal, hence nothing to undo.
fn offline(places: &Places) -> Result<Option<Offline>> {
    if !places.journal().exists() {
        return Ok(None);
    }
    let actuator = Actuator::new(places.host(), SystemdBus::new())?;
    let journal = Journal::open(&places.journal(), &places.boot_id())?;
    Ok(Some((actuator, Arc::new(Mutex::new(journal)))))
}

async fn revert_offline(places: &Places) -> Result<ExitCode> {
    ctlmgr_trace::EventTrace::remove(&places.host());
    let lines = match offline(places)? {
        Some((actuator, journal)) => revert(&actuator, &journal).await?,
        None => Vec::new(),
    };
    print_json(&lines)?;
    let has_failed = lines.iter().any(|l| matches!(l.undone, ctlmgr_model::Undone::Failed(_)));
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn diff_offline(places: &Places) -> Result<ExitCode> {
    let lines = match offline(places)? {
        Some((actuator, journal)) => differences(&actuator, &journal).await?,
        None => Vec::new(),
    };
    print_json(&lines)?;
    Ok(ExitCode::SUCCESS)
}

async fn doctor(places: &Places) -> Result<ExitCode> {
    let facts = ctlmgr_sense::facts(&places.host());
    let query = Query::default();
    let snapshot = Sensor::new(places.host()).ok().and_then(|s| s.snapshot(Millis(0), &query).ok());
    let differences = match offline(places) {
        Ok(Some((actuator, journal))) => differences(&actuator, &journal).await?,
        _ => Vec::new(),
    };
    let docker = ctlmgr_sense::docker::version(&places.docker()).await;
    let heeding = seen_by_daemon(places).await.and_then(|plan| plan.heeding);
    let findings = judge(&Examination { facts, docker, snapshot, heeding, differences });
    print_json(&findings)?;
    let is_fatal = findings.iter().any(|f| f.severity == Severity::Fatal);
    Ok(if is_fatal { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// What the daemon decided last, if it runs and answers soon.
async fn seen_by_daemon(places: &Places) -> Option<Plan> {
    let client = Client::new(places.socket());
    let answer = client.get::<Plan>("/v1/plan");
    tokio::time::timeout(Duration::from_secs(2), answer).await.ok()?.ok()
}

fn print_json<T: serde::Serialize>(value: &T) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(value).context("failed to write JSON")?);
    Ok(())
}
