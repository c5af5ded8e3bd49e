//! `ctlmgr batch sample IMAGE…`: each image alone for a while (the first step of Bhimani et al., §6.1).

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ctlmgr_api::{Client, ClientError, KeyedProfile, Queue};
use ctlmgr_model::Mode;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::docker_cli::docker;
use crate::{Failure, print_json, show, starts};

/// Between two looks at the container.
const EVERY: Duration = Duration::from_secs(1);
/// ctlmgrd learns from dockerd that a container has ended, and writes down what it was like.
const NOTICE: Duration = Duration::from_secs(30);
/// Its name while it runs, and what marks it.
const NAME: &str = "ctlmgr-sample";

/// Runs the command.
pub(crate) fn run(
    socket: &Path,
    images: &[String],
    limit: Duration,
    options: &[String],
    json: bool,
) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sampling = Sampling { runtime, client: Client::new(socket), limit, options, json };
    if sampling.get::<Queue>("/v1/queue")?.mode == Mode::Off {
        return Err(Failure::bad_input(anyhow!("starts.mode is off: nobody would learn anything")));
    }
    let (mut failed, mut all) = (false, Vec::new());
    for image in images {
        match sampling.sample(image) {
            Ok(Some(learned)) if json => all.push(learned),
            Ok(Some(learned)) => starts::details(&learned),
            Ok(None) => {
                failed = true;
                eprintln!("ctlmgr: {image}: nothing was seen of it; it may have ended too soon");
            }
            Err(error) => {
                failed = true;
                eprintln!("ctlmgr: {image}: {:#}", error.error);
                if error.error.is::<Interrupted>() {
                    break;
                }
            }
        }
    }
    if json {
        print_json(&all)?;
    }
    Ok(u8::from(failed))
}

struct Sampling<'a> {
    runtime: Runtime,
    client: Client,
    limit: Duration,
    options: &'a [String],
    /// Then progress is for standard error.
    json: bool,
}

/// By the operator, who does not want the next image either.
#[derive(Debug)]
struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Removes the container when sampling ends, or is interrupted.
struct Container(String);

impl Drop for Container {
    fn drop(&mut self) {
        // It is gone already if dockerd is.
        let _ = docker(&["rm", "--force", "--volumes", &self.0]);
    }
}

impl Sampling<'_> {
    fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.runtime.block_on(self.client.get(path))
    }

    /// What was learned of an image.
    fn sample(&self, image: &str) -> Result<Option<KeyedProfile>, Failure> {
        let before: Vec<KeyedProfile> = self.get("/v1/profiles")?;
        let name = format!("{NAME}-{}", std::process::id());
        let mut words = vec!["run", "--detach", "--name", &name];
        words.extend(self.options.iter().map(String::as_str));
        words.push(image);
        let container = Container(name.clone());
        docker(&words)?;
        self.watch(image, &name)?;
        drop(container);
        let began = Instant::now();
        loop {
            let now: Vec<KeyedProfile> = self.get("/v1/profiles")?;
            let is_new = |p: &KeyedProfile| {
                let rest = p.key.strip_prefix(image);
                let is_its = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'));
                is_its
                    && p.profile.starts > 0
                    && before.iter().all(|b| b.key != p.key || b.profile.starts < p.profile.starts)
            };
            let queue: Queue = self.get("/v1/queue")?;
            // Others may start meanwhile; the one that has just left is the last to be learned.
            let is_under_way = queue.starting.iter().any(|s| s.name == name);
            if !is_under_way || began.elapsed() > NOTICE {
                let found = now.into_iter().filter(is_new).max_by_key(|p| p.profile.learned_unix);
                if found.is_some() || began.elapsed() > NOTICE / 3 {
                    return Ok(found);
                }
            }
            std::thread::park_timeout(EVERY);
        }
    }

    /// Waits a little; fails if it is interrupted meanwhile, so that the container is removed.
    fn pause(&self) -> Result<(), Failure> {
        let interrupted = self.runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                () = tokio::time::sleep(EVERY) => Ok(false),
                done = tokio::signal::ctrl_c() => done.map(|()| true),
                _ = terminate.recv() => Ok(true),
            }
        });
        match interrupted? {
            true => Err(anyhow!(Interrupted).into()),
            false => Ok(()),
        }
    }

    /// Shows how it goes, until its time is over or it has ended.
    fn watch(&self, image: &str, name: &str) -> Result<(), Failure> {
        let (began, is_terminal) = (Instant::now(), std::io::stdout().is_terminal());
        loop {
            let passed = began.elapsed();
            let state = docker(&["inspect", "--format", "{{.State.Running}}", name])?;
            let is_over = passed >= self.limit || state.trim() != "true";
            let (passed, limit) = (passed.min(self.limit).as_secs(), self.limit.as_secs());
            let text = format!("sampling {image}: {passed} of {limit} s");
            match is_terminal {
                _ if self.json && (is_over || passed % 10 == 0) => eprintln!("{text}"),
                _ if self.json => {}
                true => print!("\r{text}{}", if is_over { "\n" } else { "" }),
                false if is_over || passed % 10 == 0 => show::line(&text),
                false => {}
            }
            std::io::stdout().flush()?;
            if is_over {
                return Ok(());
            }
            self.pause()?;
        }
    }
}
