//! Commands that ask the daemon.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use ctlmgr_api::{
    Client, ClientError, Difference, Job, ModeChange, Reverted, Status, WeightChange, Why,
};
use ctlmgr_model::{Mode, Plan, Undone, Verdict, VerdictKind, Weight};
use hyper::Method;

use crate::cli::{Command, MemoryCommand};
use crate::{Failure, offline, print_json, recording, show, starts, top, what_if};

/// Runs a command that needs the daemon.
pub(crate) fn run(socket: &Path, command: Command, json: bool) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(socket);
    runtime.block_on(async {
        match command {
            Command::Status => {
                present(json, &client.get::<Status>("/v1/status").await?, show::status)
            }
            Command::Plan => present(json, &client.get::<Plan>("/v1/plan").await?, show::plan),
            Command::Why { name } => {
                let why: Why = client.get(&format!("/v1/why/{}", escape(&name))).await?;
                // Without a plan there is nothing to compare with, nor for who is gone.
                let plan = client.get::<Plan>("/v1/plan").await.ok();
                let plan = plan.filter(|_| why.gone_unix_ms.is_none());
                let alternative = plan.and_then(|plan| what_if::alternative(&plan, &why.verdict));
                present(json, &show::Explained { why, alternative }, show::why)
            }
            Command::Diff => present(json, &diff(&client).await?, |d| show::differences(d)),
            Command::Revert { offline } => revert(&client, offline, json).await,
            Command::Mode { mode, job } => change_mode(&client, &job, mode, json).await,
            Command::Queue { command } => starts::queue(&client, command, json).await,
            Command::Profile { command } => starts::profile(&client, command, json).await,
            Command::Weight { name, weight } => change_weight(&client, name, weight, json).await,
            Command::WhatIf(asked) => {
                let plan = client.get::<Plan>("/v1/plan").await?;
                let settings: serde_json::Value = client.get("/v1/settings").await?;
                if settings["memory"]["controller"] == "stall" {
                    return Err(Failure::bad_input(anyhow!(
                        "with memory.controller = \"stall\" shares follow what workloads feel, which cannot be told beforehand"
                    )));
                }
                let comparison =
                    what_if::compare(&plan, &asked, |text| read_weight(text, &settings))?;
                present(json, &comparison, what_if::show)
            }
            Command::Memory { command: MemoryCommand::Top { every, once } } => {
                top::run(&client, Duration::from_secs(every), once, json).await
            }
            Command::Record { file, seconds } => recording::record(&client, &file, seconds).await,
            Command::Config { .. }
            | Command::Docker { .. }
            | Command::Doctor
            | Command::Replay { .. }
            | Command::Memory { .. }
            | Command::Batch { .. }
            | Command::Coalesce { .. }
            | Command::Bench { .. }
            | Command::Place { .. }
            | Command::Topology { .. } => {
                Err(Failure::bad_input(anyhow!("this command needs no daemon")))
            }
        }
    })
}

pub(crate) fn present<T: serde::Serialize>(
    json: bool,
    value: &T,
    text: impl Fn(&T),
) -> Result<u8, Failure> {
    if json {
        print_json(value)?;
    } else {
        text(value);
    }
    Ok(0)
}

/// A name as one path segment.
fn escape(name: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    name.bytes()
        .map(|b| if is_plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

/// Between two questions to a daemon that goes or comes back, and how many there are.
const PAUSE: Duration = Duration::from_millis(200);
const ATTEMPTS: u32 = 25;

/// Asks until it is not cut off any more: after `systemctl stop` the socket listens for a moment still, and after a
/// crash the next daemon answers.
async fn persist<T>(ask: impl AsyncFn() -> Result<T, ClientError>) -> Result<T, ClientError> {
    for _ in 1..ATTEMPTS {
        match ask().await {
            Err(error) if error.is_cut_off() => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
    ask().await
}

async fn diff(client: &Client) -> Result<Vec<Difference>, Failure> {
    match persist(async || client.get("/v1/diff").await).await {
        Err(error) if error.is_absent() => offline::diff(),
        other => Ok(other?),
    }
}

async fn revert(client: &Client, is_offline: bool, json: bool) -> Result<u8, Failure> {
    let asked: Result<Vec<Reverted>, ClientError> = match is_offline {
        true => return finish_revert(&offline::revert()?, json),
        // Undoing twice does no harm.
        false => persist(async || client.send(Method::POST, "/v1/revert", &()).await).await,
    };
    let lines = match asked {
        Err(error) if error.is_absent() => offline::revert()?,
        other => other?,
    };
    finish_revert(&lines, json)
}

fn finish_revert(lines: &Vec<Reverted>, json: bool) -> Result<u8, Failure> {
    present(json, lines, |l| show::reverted(l))?;
    Ok(u8::from(lines.iter().any(|l| matches!(l.undone, Undone::Failed(_)))))
}

async fn change_mode(
    client: &Client,
    job: &str,
    mode: Option<String>,
    json: bool,
) -> Result<u8, Failure> {
    let job = match job {
        "starts" => Job::Starts,
        "place" => Job::Place,
        _ => Job::Memory,
    };
    let status: Status = match mode {
        None => client.get("/v1/status").await?,
        Some(text) => {
            let change = ModeChange { job, mode: read_mode(&text)? };
            client.send(Method::PUT, "/v1/mode", &change).await?
        }
    };
    present(json, &status, |s| {
        show::line(&match job {
            Job::Memory => format!("memory: {}", s.memory_mode),
            Job::Starts => format!("starts: {}", s.starts_mode),
            Job::Place => format!("place: {}", s.place_mode),
        });
    })
}

fn read_mode(text: &str) -> Result<Option<Mode>, Failure> {
    match text {
        "off" => Ok(Some(Mode::Off)),
        "observe" => Ok(Some(Mode::Observe)),
        "act" => Ok(Some(Mode::Act)),
        "default" => Ok(None),
        other => Err(Failure::bad_input(anyhow!(
            "`{other}` is no mode: expected off, observe, act or default"
        ))),
    }
}

async fn change_weight(
    client: &Client,
    name: String,
    weight: Option<String>,
    json: bool,
) -> Result<u8, Failure> {
    if let Some(text) = weight {
        let settings: serde_json::Value = client.get("/v1/settings").await?;
        let of = |weight, class| WeightChange { name: name.clone(), weight, class };
        let change = match text.as_str() {
            "default" => of(None, None),
            class if settings["classes"][class].is_i64() || settings["classes"][class].is_u64() => {
                of(None, Some(class.to_owned()))
            }
            number => of(Some(read_weight(number, &settings)?.get()), None),
        };
        let status: Status = client.send(Method::PUT, "/v1/weight", &change).await?;
        if !is_running(&status, &name) {
            eprintln!("ctlmgr: no workload is called `{name}` now; the weight waits for one");
        }
        let told = match &change {
            WeightChange { class: Some(class), .. } => format!("that of class {class}"),
            WeightChange { weight: Some(weight), .. } => weight.to_string(),
            _ => "as configured".to_owned(),
        };
        return present(json, &change, |_| show::line(&format!("{name}: weight {told}")));
    }
    let why: Why = client.get(&format!("/v1/why/{}", escape(&name))).await?;
    present(json, &why.verdict, |v| {
        show::line(&format!("{}: weight {} ({})", v.name, v.weight, v.weight_from));
    })
}

fn is_running(status: &Status, name: &str) -> bool {
    // Units that nobody chose have the weight of bystanders.
    let is_it = |v: &Verdict| v.kind == VerdictKind::Workload && v.name.0 == name;
    status.plan.iter().flat_map(|p| &p.verdicts).any(is_it)
}

/// A number, or a class of the running configuration.
fn read_weight(text: &str, settings: &serde_json::Value) -> Result<Weight, Failure> {
    let class = settings["classes"][text].as_i64();
    let number = class.or_else(|| text.parse().ok());
    let expected = || anyhow!("`{text}` is no weight: expected 1–10000 or a class");
    let number = number.ok_or_else(|| Failure::bad_input(expected()))?;
    Weight::new(number).map_err(Failure::bad_input)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What comes of asking somebody who answers like this, and how often he was asked.
    async fn asked(
        answer: impl Fn(u32) -> Result<u32, ClientError>,
    ) -> (Result<u32, ClientError>, u32) {
        let times = Cell::new(0);
        let got = persist(async || {
            times.set(times.get() + 1);
            answer(times.get())
        })
        .await;
        (got, times.get())
    }

    #[tokio::test]
    async fn who_is_cut_off_asks_again_and_who_is_refused_does_not() {
        let (got, times) = asked(|n| if n < 3 { Err(ClientError::Stopping) } else { Ok(n) }).await;
        assert_eq!((got.unwrap(), times), (3, 3));
        let (got, times) = asked(|_| Err(ClientError::Exchange("refused".to_owned()))).await;
        assert_eq!((got.unwrap_err().to_string().contains("refused"), times), (true, 1));
    }
}
