//! dockerd's authorization plugin, and what installs it.

use std::fs::{File, TryLockError};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use ctlmgr_docker::ask::{Daemon, LONGEST_EVER};
use ctlmgr_docker::daemon_json::Use;
use ctlmgr_docker::held;
use ctlmgr_docker::install::Places;
use ctlmgr_docker::plugin::{Plugin, serve};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

/// Stands between dockerd and ctlmgrd: dockerd asks it before every start.
///
/// Run by systemd as ctlmgr-docker.service; operators use `ctlmgr docker`.
#[derive(Debug, Parser)]
#[command(name = "ctlmgr-docker", version, max_term_width = 80)]
struct Arguments {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer dockerd on the socket that systemd has opened, or on one of its own.
    Serve {
        /// Socket to listen on where systemd has opened none.
        #[arg(long, default_value = "/run/ctlmgr/docker.sock")]
        listen: PathBuf,
        /// Socket of ctlmgrd.
        #[arg(long, default_value = ctlmgr_api::SOCKET)]
        daemon: PathBuf,
    },
    /// Have dockerd ask before every start.
    Enable {
        /// Also wrap the runtime of containers created from now on, so that starts that dockerd makes
        /// by itself are asked for too.
        #[arg(long)]
        runtime: bool,
    },
    /// Have dockerd do without ctlmgr again.
    Disable,
    /// Show what dockerd's configuration says.
    Status,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ctlmgr-docker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(Arguments { json, command }: Arguments) -> Result<()> {
    let places = Places::default();
    match command {
        Command::Serve { listen, daemon } => {
            let Inherited { socket, held: kept } = inherited()?;
            let listener = match socket {
                Some(listener) => listener,
                None => UnixListener::bind(&listen)
                    .with_context(|| format!("failed to listen on {}", listen.display()))?,
            };
            let mut terminate =
                signal(SignalKind::terminate()).context("failed to wait for signals")?;
            let end = async move {
                terminate.recv().await;
            };
            let plugin = Plugin::new(Daemon::at(Some(daemon)), LONGEST_EVER);
            serve(listener, kept, plugin, end).await.context("failed to serve dockerd")
        }
        Command::Enable { runtime } => {
            let _turn =
                turn()?.context("somebody else changes dockerd's configuration just now")?;
            say(&places.enable(Use { plugin: true, runtime }).await?, json)
        }
        Command::Disable => {
            // Whoever hangs in the midst of it must not keep dockerd from doing without the plugin.
            let _turn = turn()?;
            say(&places.disable().await?, json)
        }
        Command::Status => {
            let Use { plugin, runtime } = places.in_use()?;
            if json {
                println!("{}", serde_json::json!({ "plugin": plugin, "runtime": runtime }));
                return Ok(());
            }
            let word = |is_on| if is_on { "enabled" } else { "disabled" };
            println!("authorization plugin: {}", word(plugin));
            println!("runtime wrapper: {}", word(runtime));
            Ok(())
        }
    }
}

/// Whose turn it is to change dockerd's configuration: an operator who enables the plugin while
/// ctlmgr-docker-off.service takes it out would get half of each.
const TURN: &str = "/run/ctlmgr-docker.lock";

/// Nobody who does not hang takes longer for it.
const PATIENCE: Duration = Duration::from_secs(120);
const EVERY: Duration = Duration::from_millis(100);

/// Waits for those that change it now, for a while; others wait until the file is closed.
fn turn() -> Result<Option<File>> {
    let file = File::create(TURN).with_context(|| format!("failed to open {TURN}"))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if began.elapsed() > PATIENCE => return Ok(None),
            Err(TryLockError::WouldBlock) => std::thread::park_timeout(EVERY),
            Err(TryLockError::Error(e)) => {
                return Err(e).with_context(|| format!("failed to lock {TURN}"));
            }
        }
    }
}

fn say(lines: &[String], json: bool) -> Result<()> {
    match json {
        true => println!("{}", serde_json::to_string_pretty(lines)?),
        false => lines.iter().for_each(|line| println!("{line}")),
    }
    Ok(())
}

/// What systemd hands over.
#[derive(Debug, Default)]
struct Inherited {
    /// The socket that it has opened.
    socket: Option<UnixListener>,
    /// Connections that it kept, by name.
    held: Vec<(String, OwnedFd)>,
}

fn inherited() -> Result<Inherited> {
    let mut inherited = Inherited::default();
    for (fd, name) in sd_notify::listen_fds_with_names().context("failed to read $LISTEN_FDS")? {
        #[expect(unsafe_code, reason = "systemd hands descriptors over as numbers")]
        // SAFETY: $LISTEN_FDS says that the descriptor is open and ours; each is taken once.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        match name.starts_with(held::PREFIX) {
            true => inherited.held.push((name, fd)),
            false if inherited.socket.is_none() => inherited.socket = Some(listener(fd)?),
            false => {}
        }
    }
    Ok(inherited)
}

fn listener(fd: OwnedFd) -> Result<UnixListener> {
    let listener = std::os::unix::net::UnixListener::from(fd);
    listener.set_nonblocking(true).context("failed to set up the socket")?;
    UnixListener::from_std(listener).context("failed to take over the socket")
}
