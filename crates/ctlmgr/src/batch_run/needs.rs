//! What must have come of others before a container may start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::docker_cli::docker;

/// Compose waits for ever; a batch that hangs helps nobody.
const PATIENCE: Duration = Duration::from_secs(600);
/// A dockerd that restarts is back within this time.
const AWAY: Duration = Duration::from_secs(120);
/// Between two looks at a container.
const EVERY: Duration = Duration::from_secs(1);

/// What is waited for (compose, `depends_on: condition`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Condition {
    Started,
    Healthy,
    Completed,
}

/// One that must come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    pub name: String,
    pub condition: Condition,
    /// Otherwise its failure is no matter.
    pub is_required: bool,
}

/// Needs by the name of the container.
pub(super) type Needs = BTreeMap<String, Vec<Need>>;

/// Divides a batch into those that may start now and those that may not, with the reason. Waits until it is
/// known.
pub(super) fn sort_out(
    batch: &[String],
    needs: &Needs,
    failed: &BTreeSet<String>,
) -> (Vec<String>, Vec<(String, anyhow::Error)>) {
    let (mut may, mut may_not) = (Vec::new(), Vec::new());
    // Each is waited for once, however many need it.
    let mut known: BTreeMap<(&str, Condition, bool), Result<(), String>> = BTreeMap::new();
    for name in batch {
        let mut unmet = None;
        for need in needs.get(name).map_or(&[][..], Vec::as_slice) {
            let key = (need.name.as_str(), need.condition, need.is_required);
            let met = || meet(need, failed, &state, EVERY).map_err(|e| e.to_string());
            match known.entry(key).or_insert_with(met) {
                Err(why) if need.is_required => unmet = Some(anyhow::anyhow!("{why}")),
                _ => {}
            }
        }
        match unmet {
            None => may.push(name.clone()),
            Some(error) => may_not.push((name.clone(), error)),
        }
    }
    (may, may_not)
}

/// How a container is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    status: String,
    code: i32,
    /// Absent without a health check.
    health: Option<String>,
}

fn state(name: &str) -> Result<State, anyhow::Error> {
    let format =
        "{{.State.Status}} {{.State.ExitCode}} {{if .State.Health}}{{.State.Health.Status}}{{end}}";
    let text = docker(&["container", "inspect", "--format", format, name])?;
    let mut words = text.split_whitespace();
    Ok(State {
        status: words.next().unwrap_or_default().to_owned(),
        code: words.next().and_then(|code| code.parse().ok()).unwrap_or(-1),
        health: words.next().map(str::to_owned),
    })
}

/// Waits until a need is met; an error says why it will not be.
fn meet(
    need: &Need,
    failed: &BTreeSet<String>,
    look: &dyn Fn(&str) -> Result<State, anyhow::Error>,
    every: Duration,
) -> Result<(), anyhow::Error> {
    match failed.contains(&need.name) {
        true => bail!("{} did not start", need.name),
        // Whether it comes to that is no matter to anybody.
        false if !need.is_required => Ok(()),
        false => wait(need, look, every),
    }
}

fn wait(
    need: &Need,
    look: &dyn Fn(&str) -> Result<State, anyhow::Error>,
    every: Duration,
) -> Result<(), anyhow::Error> {
    let (name, began) = (&need.name, Instant::now());
    loop {
        let State { status, code, health } = match look(name) {
            Ok(state) => state,
            // A dockerd that restarts is back soon.
            Err(_) if began.elapsed() < AWAY && docker(&["version"]).is_err() => {
                std::thread::park_timeout(every);
                continue;
            }
            Err(error) => return Err(error),
        };
        let has_ended = status == "exited" || status == "dead";
        match (need.condition, health.as_deref()) {
            (Condition::Started, _) => return Ok(()),
            (Condition::Completed, _) if has_ended && code == 0 => return Ok(()),
            (Condition::Completed, _) if has_ended => bail!("{name} ended with status {code}"),
            (Condition::Healthy, Some("healthy")) => return Ok(()),
            (Condition::Healthy, None) => bail!("{name} has no health check"),
            (Condition::Healthy, Some("unhealthy")) => bail!("{name} is unhealthy"),
            (Condition::Healthy, _) if has_ended => bail!("{name} ended with status {code}"),
            _ if began.elapsed() > PATIENCE => {
                bail!("{name} was waited for in vain for {} s", PATIENCE.as_secs())
            }
            _ => std::thread::park_timeout(every),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Looks at states one after the other.
    fn met(condition: Condition, states: &[(&str, i32, &str)]) -> Result<(), String> {
        let need = Need { name: "db".to_owned(), condition, is_required: true };
        let states = RefCell::new(states.iter());
        let look = |_: &str| {
            let (status, code, health) = states.borrow_mut().next().expect("looked too often");
            let health = (!health.is_empty()).then(|| (*health).to_owned());
            Ok(State { status: (*status).to_owned(), code: *code, health })
        };
        let done = meet(&need, &BTreeSet::new(), &look, Duration::ZERO);
        assert!(states.borrow_mut().next().is_none(), "not waited for long enough");
        done.map_err(|e| e.to_string())
    }

    #[test]
    fn conditions_are_waited_for() {
        use Condition::{Completed, Healthy, Started};
        assert_eq!(met(Started, &[("running", 0, "")]), Ok(()));
        let slowly = [("running", 0, "starting"), ("running", 0, "healthy")];
        assert_eq!(met(Healthy, &slowly), Ok(()));
        assert_eq!(met(Healthy, &[("running", 0, "")]), Err("db has no health check".to_owned()));
        let badly = [("running", 0, "starting"), ("running", 0, "unhealthy")];
        assert_eq!(met(Healthy, &badly), Err("db is unhealthy".to_owned()));
        assert_eq!(met(Completed, &[("running", 0, ""), ("exited", 0, "")]), Ok(()));
        let failing = [("running", 0, ""), ("exited", 3, "")];
        assert_eq!(met(Completed, &failing), Err("db ended with status 3".to_owned()));
    }

    #[test]
    fn what_did_not_start_holds_up_only_those_that_require_it() {
        let failed = BTreeSet::from(["db".to_owned()]);
        let need = |is_required| Need {
            name: "db".to_owned(),
            condition: Condition::Healthy,
            is_required,
        };
        let look = |_: &str| bail!("not looked at");
        let error = meet(&need(true), &failed, &look, Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "db did not start");
        let nobody = BTreeSet::new();
        assert!(meet(&need(false), &nobody, &look, Duration::ZERO).is_ok());
    }
}
