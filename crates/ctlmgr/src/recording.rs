//! `ctlmgr record` and `ctlmgr replay`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use ctlmgr_api::Client;
use ctlmgr_model::{Plan, Verdict};
use ctlmgr_policy::replay::{Event, Replay, replay};
use serde::Deserialize;

use crate::{Failure, input, print_json, show};

/// How often the daemon is asked for what is new.
const EVERY: Duration = Duration::from_secs(1);
/// Deviations shown as text.
const SHOWN: usize = 10;

#[derive(Debug, Deserialize)]
struct Numbered {
    number: u64,
    event: Event,
}

/// Writes events to `file` for some time.
pub(crate) async fn record(client: &Client, file: &Path, seconds: u64) -> Result<u8, Failure> {
    let failed = || format!("failed to write {}", file.display());
    // Labels may hold what is not for everybody.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut out = options.open(file).with_context(failed)?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut next, mut count) = (None, 0);
    // One for all: an interrupt that comes during a question counts, too.
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    while Instant::now() < until {
        let path = next.map_or("/v1/record".to_owned(), |n| format!("/v1/record?from={n}"));
        for Numbered { number, event } in client.get::<Vec<Numbered>>(&path).await? {
            writeln!(out, "{}", serde_json::to_string(&event)?).with_context(failed)?;
            next = Some(number + 1);
            count += 1;
        }
        tokio::select! {
            _ = &mut interrupted => break,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
    show::line(&format!("{count} events in {}", file.display()));
    Ok(0)
}

/// Decides again what `file` holds.
pub(crate) fn again(file: &Path, json: bool) -> Result<u8, Failure> {
    let text = input::read(file).map_err(Failure::bad_input)?;
    let events = parse(&text).map_err(Failure::bad_input)?;
    let result = replay(&events);
    if json {
        print_json(&result)?;
    } else {
        show_deviations(&result);
    }
    Ok(u8::from(!result.deviations.is_empty()))
}

fn parse(text: &str) -> Result<Vec<Event>, anyhow::Error> {
    let events: Vec<Event> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(i, line)| serde_json::from_str(line).with_context(|| format!("line {}", i + 1)))
        .collect::<Result<_, _>>()?;
    match events.first() {
        Some(Event::Start { .. }) => Ok(events),
        _ => Err(anyhow!("no recording: the first line does not say where deciding began")),
    }
}

fn show_deviations(result: &Replay) {
    for deviation in result.deviations.iter().take(SHOWN) {
        show::line(&format!("at {} ms", deviation.at.0));
        let (recorded, replayed) = (&deviation.recorded, &deviation.replayed);
        for (name, plan, other) in
            [("recorded", recorded, replayed), ("replayed", replayed, recorded)]
        {
            show::line(&format!("  {name}: {} to share", plan.account.capacity));
            plan.steps.iter().for_each(|step| show::line(&format!("    {step}")));
            for line in of_its_own(plan, other) {
                show::line(&format!("    {line}"));
            }
        }
    }
    let (all, different) = (result.decisions, result.deviations.len());
    show::line(&format!("{all} decisions, {different} came out differently"));
}

/// What one of two plans says of workloads, and complains of, as the other does not.
fn of_its_own(plan: &Plan, other: &Plan) -> Vec<String> {
    let verdicts = plan.verdicts.iter().filter_map(|v| {
        let fields = own_fields(v, other.verdicts.iter().find(|o| o.path == v.path));
        (!fields.is_empty()).then(|| format!("{}: {}", v.name, fields.join(", ")))
    });
    let complaints = plan.complaints.iter().filter(|c| !other.complaints.contains(c));
    verdicts.chain(complaints.map(|c| format!("! {c}"))).collect()
}

/// What is said of one that is not said of the other, as in JSON.
fn own_fields(verdict: &Verdict, other: Option<&Verdict>) -> Vec<String> {
    let fields = |v: &Verdict| serde_json::to_value(v).unwrap_or_default();
    let (these, those) = (fields(verdict), other.map(fields).unwrap_or_default());
    let own = these.as_object().into_iter().flatten().filter(|(key, value)| those[*key] != **value);
    own.map(|(key, value)| format!("{key} {value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_differ_in_shares_alone_do_not_look_the_same() {
        let text = include_str!("../tests/what-if-plan.json");
        let plan: Plan = serde_json::from_str(text).expect("a plan");
        let mut other = plan.clone();
        other.verdicts[0].share = ctlmgr_model::Bytes::mib(7);
        assert_eq!(of_its_own(&plan, &plan), [""; 0]);
        let [line] = &*of_its_own(&other, &plan) else { panic!("one line") };
        assert!(line.ends_with(": share 7340032"), "{line}");
    }

    #[test]
    fn what_is_no_recording_is_refused_with_its_line() {
        let error = parse("{}\n").unwrap_err();
        assert!(format!("{error:#}").starts_with("line 1: "), "{error:#}");
        assert!(parse("").unwrap_err().to_string().contains("no recording"));
    }
}
