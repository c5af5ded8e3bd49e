//! Answers as text that fits 80 columns.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use ctlmgr_api::{Decision, Difference, Felt, Finding, Reverted, Severity, Status, Why};
use ctlmgr_model::{
    Bytes, CapacityAccount, Doing, Knob, Outcome, Plan, SliceAccount, Undone, Value, Verdict,
    VerdictKind,
};
use ctlmgr_policy::share::Division;
use serde::Serialize;

/// Prints a line; a closed pipe (`ctlmgr status | head`) is no error.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let head: String = text.chars().take(width - 1).collect();
    format!("{head}…")
}

pub(crate) fn status(status: &Status) {
    let docker = status.docker.as_deref().unwrap_or("not answering");
    line(&format!(
        "ctlmgr {}  memory: {}  starts: {}  place: {}  dockerd: {docker}",
        status.version, status.memory_mode, status.starts_mode, status.place_mode
    ));
    let Some(plan) = &status.plan else {
        line("No reading yet.");
        return status.troubles.iter().for_each(|t| line(&format!("! {t}")));
    };
    room(plan);
    line(&match status.stall_pct {
        Some(percent) => format!("Stalled for memory in the last 10 s: {percent} % of the time"),
        None => "Stalled for memory: unknown, the kernel counts no PSI".to_owned(),
    });
    line("");
    verdicts(&plan.verdicts);
    let c = &status.counters;
    line("");
    line(&format!(
        "{} writes, {} reclaimed, {} failures, {} overrides in {} s",
        c.writes,
        Bytes(c.reclaimed_bytes),
        c.failures,
        c.overrides,
        status.uptime_secs
    ));
    status.troubles.iter().for_each(|t| line(&format!("! {t}")));
    status.gaps.iter().for_each(|g| line(&format!("? {}: {}", g.what, g.why)));
}

/// What there is to share out, on the host and in slices that are full.
pub(crate) fn room(plan: &Plan) {
    account(&plan.account);
    for slice in plan.slices.iter().filter(|s| s.is_full()) {
        let SliceAccount { path, capacity, demand, .. } = slice;
        line(&format!("{demand} asked for in {path}, which may share out {capacity}: full"));
    }
}

fn account(account: &CapacityAccount) {
    line(&format!(
        "{} total - {} host - {} headroom = {} to share",
        account.total, account.host, account.headroom, account.capacity
    ));
    let state = if account.is_contended() { "contended" } else { "everything fits" };
    line(&format!("{} asked for: {state}", account.demand));
}

fn verdicts(list: &[Verdict]) {
    line(&format!(
        "{:<22} {:>6} {:>9} {:>9} {:>9} {:>9} {:<7}",
        "NAME", "WEIGHT", "HELD", "NEED", "SHARE", "SWAP", "BOUND"
    ));
    let mut sorted: Vec<&Verdict> = list.iter().collect();
    sorted
        .sort_by_key(|v| (v.kind == VerdictKind::Bystander, std::cmp::Reverse(v.weight), &v.name));
    for v in sorted {
        let name = match v.kind {
            VerdictKind::Workload => cut(&v.name.0, 22),
            VerdictKind::Bystander => format!("({})", cut(&v.name.0, 20)),
        };
        line(&format!(
            "{name:<22} {:>6} {:>9} {:>9} {:>9} {:>9} {:<7}",
            v.weight, v.held, v.demand, v.share, v.swapped, v.bound
        ));
    }
}

pub(crate) fn plan(plan: &Plan) {
    room(plan);
    if plan.steps.is_empty() {
        line("Nothing to do.");
    }
    for step in &plan.steps {
        line(&step.to_string());
        line(&format!("    {}", step.reason.0));
    }
    plan.complaints.iter().for_each(|c| line(&format!("! {c}")));
}

/// What is decided about a workload, and what else could be.
#[derive(Debug, Serialize)]
pub(crate) struct Explained {
    #[serde(flatten)]
    pub why: Why,
    pub alternative: Option<String>,
}

pub(crate) fn why(explained: &Explained) {
    let Explained { why, alternative } = explained;
    let v = &why.verdict;
    if let Some(since) = why.gone_unix_ms {
        line(&format!("{} is gone, since {}. What held for it last:", v.name, clock(since)));
    }
    line(&format!("{}: {}", v.name, v.reason.0));
    line("");
    let promise =
        v.promise.map_or("none".to_owned(), |p| with_origin(p.to_string(), &v.promise_from));
    let stall = v.stall_pct.map_or("unknown".to_owned(), |p| format!("{} %", p.0));
    for (what, value) in [
        ("cgroup", v.path.to_string()),
        ("weight", with_origin(v.weight.to_string(), &v.weight_from)),
        ("promise", promise),
        ("basis", basis(v)),
        ("need", v.demand.to_string()),
        ("floor", with_origin(v.floor.to_string(), &v.floor_from)),
        ("rung", v.rung.map_or("none".to_owned(), |r| r.to_string())),
        ("share", format!("{} (bound by {})", v.share, v.bound)),
        ("held", format!("{}, {} in swap", v.held, v.swapped)),
        ("feels", format!("{} refaults/s, stalled {stall}", v.refaults_per_sec)),
        ("does", doing(&v.doing)),
    ] {
        line(&format!("  {what:<8} {value}"));
    }
    if let Some(alternative) = alternative {
        line(&format!("  {:<8} {alternative}", "or else"));
    }
    if let Some(place) = &why.place {
        let cpus = place.cpus.as_ref().map_or("any CPU".to_owned(), |cpus| format!("CPUs {cpus}"));
        line(&format!("  {:<8} {cpus}: {}", "place", place.reason.0));
    }
    line("");
    line(if why.decisions.is_empty() { "No decisions so far." } else { "Last decisions:" });
    why.decisions.iter().for_each(decision);
}

/// A value, and who said so.
fn with_origin(value: String, origin: &str) -> String {
    if origin.is_empty() { value } else { format!("{value} ({origin})") }
}

fn basis(v: &Verdict) -> String {
    match v.lift_pct {
        100 => v.basis.to_string(),
        lift => format!("{}, {lift} % of its size by what it and others feel", v.basis),
    }
}

fn doing(doing: &Doing) -> String {
    if doing.is_frozen {
        return "nothing: it is paused".to_owned();
    }
    format!(
        "{} % of a CPU, reads {}/s, writes {}/s",
        doing.cpu_usec_per_sec / 10_000,
        doing.read_per_sec,
        doing.written_per_sec
    )
}

const DAY_SECS: u64 = 86_400;

/// The time of day, and how long ago if that is more than a day.
fn clock(unix_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    clock_at(unix_ms / 1000, now)
}

fn clock_at(secs: u64, now: u64) -> String {
    let clock = secs % DAY_SECS;
    let time = format!("{:02}:{:02}:{:02} UTC", clock / 3600, clock / 60 % 60, clock % 60);
    match now.saturating_sub(secs) / DAY_SECS {
        0 => time,
        1 => format!("{time}, a day ago"),
        days => format!("{time}, {days} days ago"),
    }
}

fn decision(decision: &Decision) {
    let time = clock(decision.unix_ms);
    let outcome = match &decision.outcome {
        None => "only observed".to_owned(),
        // That its keeper has to be told still makes no difference to anybody.
        Some(Outcome::Done | Outcome::Untold) => "done".to_owned(),
        Some(Outcome::Reclaimed(bytes)) => format!("got {bytes}"),
        Some(Outcome::Vanished) => "the cgroup was gone".to_owned(),
        Some(Outcome::Overtaken) => "not done: the host had changed meanwhile".to_owned(),
        Some(Outcome::Overridden(value)) => format!("another writer set {value}"),
        Some(Outcome::Failed(error)) => format!("failed: {error}"),
    };
    line(&format!("  {time}  {} ({outcome})", decision.step));
    line(&format!("      {}", decision.step.reason.0));
    match (&decision.before, &decision.after) {
        (Some(before), Some(after)) => {
            line(&format!("      30 s later: {}", effect(before, after)));
        }
        (Some(before), None) => line(&format!("      then: {}", felt(before))),
        (None, _) => {}
    }
}

fn stall(felt: &Felt) -> String {
    felt.stall_pct.map_or("?".to_owned(), |p| p.0.to_string())
}

fn felt(felt: &Felt) -> String {
    let Felt { held, refaults_per_sec, .. } = felt;
    format!("held {held}, refaults/s {refaults_per_sec}, stalled {} %", stall(felt))
}

fn effect(before: &Felt, after: &Felt) -> String {
    format!(
        "held {} -> {}, refaults/s {} -> {}, stalled {} -> {} %",
        before.held,
        after.held,
        before.refaults_per_sec,
        after.refaults_per_sec,
        stall(before),
        stall(after)
    )
}

pub(crate) fn differences(list: &[Difference]) {
    if list.is_empty() {
        line("Nothing differs from before ctlmgr.");
    }
    for d in list {
        let words = |value: &Value| match Knob::from_file(&d.knob) {
            Some(knob) => knob.words(value.clone()),
            None => value.to_string(),
        };
        let present = d.present.as_ref().map_or("gone".to_owned(), words);
        let is_ours = d.present.as_ref() == Some(&d.ours);
        let foreign = if is_ours { "" } else { "  (another writer)" };
        line(&format!("{} {}: {} -> {present}{foreign}", d.path, d.knob, words(&d.prior)));
    }
}

pub(crate) fn reverted(list: &[Reverted]) {
    if list.is_empty() {
        line("Nothing to put back.");
    }
    for r in list {
        let outcome = match &r.undone {
            Undone::PutBack => "put back".to_owned(),
            Undone::Vanished => "gone".to_owned(),
            Undone::LeftToOthers(value) => format!("left at {value}, which another writer set"),
            Undone::Failed(error) => format!("failed: {error}"),
        };
        line(&format!("{} {}: {outcome}", r.path, r.knob));
    }
}

pub(crate) fn findings(list: &[Finding]) {
    for f in list {
        let mark = match f.severity {
            Severity::Ok => "ok  ",
            Severity::Warning => "warn",
            Severity::Fatal => "FAIL",
        };
        line(&format!("{mark}  {}: {}", f.check, f.message));
    }
}

pub(crate) fn division(division: &Division) {
    let lambda = division.lambda.map_or("none: everything fits".to_owned(), |l| l.to_string());
    line(&format!("lambda: {lambda}"));
    for s in &division.shares {
        line(&format!("{:<30} {:>16} B  {}", cut(&s.name, 30), s.share_bytes.0, s.bound));
    }
    if division.unmet_floor_bytes > Bytes::ZERO {
        line(&format!("unmet floors: {}", division.unmet_floor_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_a_day_says_so() {
        let at = |secs| clock_at(secs, 10 * DAY_SECS);
        assert_eq!(at(9 * DAY_SECS + 3723), "01:02:03 UTC");
        assert_eq!(at(8 * DAY_SECS + 1), "00:00:01 UTC, a day ago");
        assert_eq!(at(59), "00:00:59 UTC, 9 days ago");
        // A clock that was set back.
        assert_eq!(at(11 * DAY_SECS), "00:00:00 UTC");
    }
}
