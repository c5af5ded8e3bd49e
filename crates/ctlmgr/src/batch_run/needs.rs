//! What must have come of others before a container may start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::docker_cli::docker;

/// Compose waits for ever; a batch that hangs helps nobody.
const PATIENCE: Duration = Duration::from_secs(600);
/// A dockerd that restarts is back within this time.
const AWAY: Duration = Duration::from_secs(120);
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

/// Those that may start as far as their batch is concerned, by name, and since when.
pub(super) type Ready = BTreeMap<String, Instant>;

/// Takes those that may start now out of `ready`, and those that never may, with the reason; the others stay
/// there.
pub(super) fn sort_out(
    ready: &mut Ready,
    needs: &Needs,
    failed: &BTreeSet<String>,
) -> (Vec<String>, Vec<(String, anyhow::Error)>) {
    sort_out_by(ready, needs, failed, &state)
}

type Look<'a> = dyn Fn(&str) -> Result<State, anyhow::Error> + 'a;

fn sort_out_by(
    ready: &mut Ready,
    needs: &Needs,
    failed: &BTreeSet<String>,
    look: &Look<'_>,
) -> (Vec<String>, Vec<(String, anyhow::Error)>) {
    let (mut may, mut may_not) = (Vec::new(), Vec::new());
    ready.retain(|name, since| {
        let needs = needs.get(name).map_or(&[][..], Vec::as_slice);
        let outlooks = needs.iter().map(|need| outlook(need, failed, look, since.elapsed()));
        let found: Result<Vec<bool>, anyhow::Error> = outlooks.collect();
        match found {
            Ok(met) if met.iter().all(|met| *met) => may.push(name.clone()),
            Ok(_) => return true,
            Err(error) => may_not.push((name.clone(), error)),
        }
        false
    });
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

/// Whether a need is met by now; an error says why it will not be.
fn outlook(
    need: &Need,
    failed: &BTreeSet<String>,
    look: &Look<'_>,
    waited: Duration,
) -> Result<bool, anyhow::Error> {
    match failed.contains(&need.name) {
        // Whether it comes to that is no matter to anybody.
        _ if !need.is_required => Ok(true),
        true => bail!("{} did not start", need.name),
        false => is_met(need, look, waited),
    }
}

fn is_met(need: &Need, look: &Look<'_>, waited: Duration) -> Result<bool, anyhow::Error> {
    let name = &need.name;
    let State { status, code, health } = match look(name) {
        Ok(state) => state,
        // A dockerd that restarts is back soon.
        Err(_) if waited < AWAY && docker(&["version"]).is_err() => return Ok(false),
        Err(error) => return Err(error),
    };
    let has_ended = status == "exited" || status == "dead";
    match (need.condition, health.as_deref()) {
        (Condition::Started, _) => Ok(true),
        (Condition::Completed, _) if has_ended && code == 0 => Ok(true),
        (Condition::Completed, _) if has_ended => bail!("{name} ended with status {code}"),
        (Condition::Healthy, Some("healthy")) => Ok(true),
        (Condition::Healthy, None) => bail!("{name} has no health check"),
        (Condition::Healthy, Some("unhealthy")) => bail!("{name} is unhealthy"),
        (Condition::Healthy, _) if has_ended => bail!("{name} ended with status {code}"),
        _ if waited > PATIENCE => {
            bail!("{name} was waited for in vain for {} s", PATIENCE.as_secs())
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(condition: Condition, is_required: bool) -> Need {
        Need { name: "db".to_owned(), condition, is_required }
    }

    /// Whether db in this state is what is needed, after so many seconds.
    fn met(condition: Condition, state: (&str, i32, &str), secs: u64) -> Result<bool, String> {
        let (status, code, health) = state;
        let health = (!health.is_empty()).then(|| health.to_owned());
        let look = |_: &str| Ok(State { status: status.to_owned(), code, health: health.clone() });
        let waited = Duration::from_secs(secs);
        let found = outlook(&need(condition, true), &BTreeSet::new(), &look, waited);
        found.map_err(|e| e.to_string())
    }

    #[test]
    fn conditions_are_met_or_waited_for_or_never_met() {
        use Condition::{Completed, Healthy, Started};
        assert_eq!(met(Started, ("running", 0, ""), 0), Ok(true));
        assert_eq!(met(Healthy, ("running", 0, "starting"), 0), Ok(false));
        assert_eq!(met(Healthy, ("running", 0, "healthy"), 9), Ok(true));
        assert_eq!(met(Healthy, ("running", 0, ""), 0), Err("db has no health check".to_owned()));
        let unhealthy = met(Healthy, ("running", 0, "unhealthy"), 0);
        assert_eq!(unhealthy, Err("db is unhealthy".to_owned()));
        assert_eq!(met(Completed, ("running", 0, ""), 0), Ok(false));
        assert_eq!(met(Completed, ("exited", 0, ""), 0), Ok(true));
        let failed = met(Completed, ("exited", 3, ""), 0);
        assert_eq!(failed, Err("db ended with status 3".to_owned()));
        let in_vain = met(Healthy, ("running", 0, "starting"), 601);
        assert_eq!(in_vain, Err("db was waited for in vain for 600 s".to_owned()));
    }

    #[test]
    fn what_did_not_start_holds_up_only_those_that_require_it() {
        let failed = BTreeSet::from(["db".to_owned()]);
        let look = |_: &str| bail!("not looked at");
        let waited = Duration::ZERO;
        let required = need(Condition::Healthy, true);
        let error = outlook(&required, &failed, &look, waited).unwrap_err();
        assert_eq!(error.to_string(), "db did not start");
        let optional = need(Condition::Healthy, false);
        assert!(outlook(&optional, &BTreeSet::new(), &look, waited).unwrap());
    }

    #[test]
    fn who_waits_for_another_holds_up_nobody_else() {
        let healthy = vec![need(Condition::Healthy, true)];
        let needs = Needs::from([("web".to_owned(), healthy)]);
        let mut ready: Ready = ["web", "cron"].map(|n| (n.to_owned(), Instant::now())).into();
        let state = |health: &str| State {
            status: "running".to_owned(),
            code: 0,
            health: Some(health.to_owned()),
        };
        let none = BTreeSet::new();
        let (may, not) = sort_out_by(&mut ready, &needs, &none, &|_| Ok(state("starting")));
        assert_eq!((may, not.len(), ready.len()), (vec!["cron".to_owned()], 0, 1));
        let (may, _) = sort_out_by(&mut ready, &needs, &none, &|_| Ok(state("healthy")));
        assert_eq!((may, ready.len()), (vec!["web".to_owned()], 0));
    }
}
