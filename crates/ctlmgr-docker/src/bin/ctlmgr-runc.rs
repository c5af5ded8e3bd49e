//! An OCI runtime that asks ctlmgrd for leave before it becomes runc.
//!
//! Only `create` is held, and never longer than dockerd's own boot bears; every other command, and every
//! failure, goes straight to runc. The process is replaced, so signals, exit status, descriptors and
//! output are runc's own.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use ctlmgr_docker::ask::{Daemon, Start};
use ctlmgr_docker::{ask, install};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(container) = created(&arguments) {
        hold(&container);
    }
    let runc = runc();
    let error = Command::new(&runc).args(&arguments).exec();
    eprintln!("ctlmgr-runc: failed to run {}: {error}", runc.display());
    ExitCode::FAILURE
}

/// The container that `create` or `run` is about, which is the last word of the command line.
fn created(arguments: &[OsString]) -> Option<String> {
    let is_creating = |word: &OsString| word == OsStr::new("create") || word == OsStr::new("run");
    let is_help = |word: &OsString| word == OsStr::new("--help") || word == OsStr::new("-h");
    if !arguments.iter().any(is_creating) || arguments.iter().any(is_help) {
        return None;
    }
    let last = arguments.last()?.to_str()?;
    let is_id = !last.starts_with('-') && last.len() >= 12;
    is_id.then(|| last.to_owned())
}

fn hold(container: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Ok(runtime) = runtime {
        let daemon = Daemon::at(std::env::var_os("CTLMGR_SOCKET").map(PathBuf::from));
        // Refused or not: dockerd has decided, and an error here would look like one of runc's.
        let start = Start {
            container,
            source: ask::SOURCES[1],
            is_mere_start: false,
            longest: ask::LONGEST,
            waited: Duration::ZERO,
            ticket: None,
        };
        let _ = runtime.block_on(ask::leave(&daemon, start, |_| {}));
    }
}

/// The real runtime: what the environment says, else where it usually is, else by name.
fn runc() -> PathBuf {
    std::env::var_os("CTLMGR_RUNC").map_or_else(|| install::real_runc().into(), PathBuf::from)
}
