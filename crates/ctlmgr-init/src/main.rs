//! The first process of a coalesced container (`ctlmgr coalesce build`).
//!
//! It starts the services of a list one after the other, hands every signal on to all of them, reaps whatever
//! is left to it, and ends as soon as one of them ends: the others get their stop signal and ten seconds.
//! Its exit status is that of the first that ended, so a restart policy means what it meant before.
//!
//! `ctlmgr-init exec NUMBER PROGRAM [ARGUMENT...]` runs a program as that service runs: with its environment,
//! in its directory. Health checks are run so.

mod services;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, alarm};

use crate::services::{Service, environment, read};

/// Where the list is, unless an argument says otherwise.
const LIST: &str = "/.ctlmgr/services.json";
/// Signals that are handed on, or say what becomes of the services. Others do nothing to a first process.
const HEARD: [Signal; 11] = [
    Signal::SIGALRM,
    Signal::SIGCHLD,
    Signal::SIGCONT,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];
/// Time to end in good order.
const GRACE_SECS: u32 = 10;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match &arguments[..] {
        [word, number, argv @ ..] if word == "exec" => run_as(number, argv),
        [list] => run(Path::new(list)),
        _ => run(Path::new(LIST)),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("ctlmgr-init: {error:#}");
            ExitCode::from(125)
        }
    }
}

/// Becomes a program that runs as a service does; returns only if that fails.
fn run_as(number: &OsStr, argv: &[OsString]) -> Result<u8> {
    let services = read(Path::new(LIST))?;
    let index = number.to_str().and_then(|text| text.parse().ok());
    let service = index.and_then(|index: usize| Some((index, services.get(index)?)));
    let (index, service) = service.with_context(|| format!("there is no service {number:?}"))?;
    let (program, arguments) = argv.split_first().context("no program was named")?;
    let failed = command(index, service, program, arguments).exec();
    Err(failed).with_context(|| format!("failed to run {program:?}"))
}

/// A command with the environment and the directory of a service.
fn command<S: AsRef<OsStr>>(
    index: usize,
    service: &Service,
    program: &S,
    arguments: &[S],
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment(index, service, container()));
    if !service.dir.is_empty() {
        command.current_dir(&service.dir);
    }
    command
}

fn run(list: &Path) -> Result<u8> {
    let services = read(list)?;
    // Blocked, so that each is taken in turn.
    let signals: SigSet = HEARD.into_iter().collect();
    signals.thread_block().context("failed to block signals")?;
    let mut running = Running::default();
    for (index, service) in services.iter().enumerate() {
        match start(index, service) {
            Ok(pid) => drop(running.stop_signals.insert(pid, service.stop_signal())),
            Err(error) => {
                running.end();
                running.attend(&signals)?;
                return Err(error);
            }
        }
    }
    running.attend(&signals)
}

fn start(index: usize, service: &Service) -> Result<Pid> {
    let Some((program, arguments)) = service.argv.split_first() else {
        bail!("service `{}` has no command", service.name);
    };
    let mut command = command(index, service, program, arguments);
    #[expect(unsafe_code, reason = "what runs between fork and exec is promised to be safe there")]
    // SAFETY: sigprocmask is async-signal-safe, and nothing is allocated.
    unsafe {
        // A child has the mask of its parent, and would hear of nothing.
        command.pre_exec(|| SigSet::empty().thread_set_mask().map_err(std::io::Error::from));
    }
    let child = command
        .spawn()
        .with_context(|| format!("failed to start `{program}` of service `{}`", service.name))?;
    let pid = i32::try_from(child.id()).context("a process id beyond what there is")?;
    Ok(Pid::from_raw(pid))
}

/// The environment of the container; what is no text is left out.
fn container() -> impl Iterator<Item = (String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text)
}

/// The services that run, and how the first of them ended.
#[derive(Debug, Default)]
struct Running {
    stop_signals: BTreeMap<Pid, Signal>,
    status: Option<u8>,
    is_ending: bool,
}

impl Running {
    /// Until all have ended; returns the status of the first.
    fn attend(&mut self, signals: &SigSet) -> Result<u8> {
        while !self.stop_signals.is_empty() {
            match signals.wait().context("failed to wait for a signal")? {
                Signal::SIGCHLD => self.reap(),
                Signal::SIGALRM => self.signal_all(|_| Signal::SIGKILL),
                // What stops a container stops each in its own way.
                Signal::SIGTERM | Signal::SIGINT => self.end(),
                other => self.signal_all(|_| other),
            }
        }
        Ok(self.status.unwrap_or(0))
    }

    /// Asks all to end, and gives them time.
    fn end(&mut self) {
        // Once: many programs take the second request as one to end at once.
        if !std::mem::replace(&mut self.is_ending, true) {
            self.signal_all(|stop| stop);
            alarm::set(GRACE_SECS);
        }
    }

    fn signal_all(&self, which: impl Fn(Signal) -> Signal) {
        for (pid, stop) in &self.stop_signals {
            // It may have ended just now.
            let _ = kill(*pid, which(*stop));
        }
    }

    /// Takes note of everybody who ended, orphans of the services included.
    fn reap(&mut self) {
        loop {
            let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, u8::try_from(code).unwrap_or(1)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, died_of(signal)),
                Err(Errno::EINTR) => continue,
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => continue,
            };
            let was_service = self.stop_signals.remove(&pid).is_some();
            if was_service && self.status.is_none() {
                self.status = Some(status);
                self.end();
            }
        }
    }
}

/// As shells have it.
fn died_of(signal: Signal) -> u8 {
    let raw = std::process::ExitStatus::from_raw(signal as i32).signal().unwrap_or(0);
    128_u8.saturating_add(u8::try_from(raw).unwrap_or(0))
}
