//! A linter for plans, independent of the planner: run in every test and before every act.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ctlmgr_model::{
    Action, Bytes, CgroupId, Group, Knob, PageAging, Plan, Rung, Settings, Snapshot, Step,
};

use crate::cache_probe::{ALL, is_cache_probe, probed};
use crate::entitlement::entitlement;
use crate::memory::read;
use crate::order;

/// A rule that a plan breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// The step's cgroup is not in the snapshot.
    UnknownTarget(Step),
    /// `from` is not what the snapshot says.
    StaleValue(Step),
    /// Two writes to one knob.
    WrittenTwice(Step),
    /// Steps are not in a safe order.
    Disorder(Step),
    /// More is protected than the machine has.
    Overcommitted {
        /// Which protection.
        knob: Knob,
        /// How much in all.
        sum: Bytes,
    },
    /// An ancestor would hold less than the workloads below it.
    Uncovered {
        /// Which ancestor.
        path: String,
        /// Which protection.
        knob: Knob,
    },
    /// Reclaim without contention, beyond the cycle's budget, or to probe page cache with contention.
    GratuitousReclaim(Bytes),
    /// Frozen or stopped although nobody allowed that for its class, or in a calm host; or a knob of
    /// the host that nobody asked for.
    Unallowed(Step),
    /// memory.high below a share, below present use less what is reclaimed before, or above what was there before.
    Overthrottled(Step),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::UnknownTarget(s) => write!(f, "step on an unknown cgroup: {s}"),
            Violation::StaleValue(s) => write!(f, "step from a value that was not read: {s}"),
            Violation::WrittenTwice(s) => write!(f, "second write to one knob: {s}"),
            Violation::Disorder(s) => write!(f, "step out of order: {s}"),
            Violation::Overcommitted { knob, sum } => write!(f, "{knob} sums up to {sum}"),
            Violation::Uncovered { path, knob } => write!(f, "{path} does not cover {knob}"),
            Violation::GratuitousReclaim(sum) => write!(f, "reclaim of {sum} without need"),
            Violation::Unallowed(s) => write!(f, "frozen or stopped without leave: {s}"),
            Violation::Overthrottled(s) => write!(f, "throttled too much or in vain: {s}"),
        }
    }
}

/// All rules that `plan` breaks on `snapshot`; empty for a sound plan.
pub fn check(settings: &Settings, plan: &Plan, snapshot: &Snapshot) -> Vec<Violation> {
    let groups: BTreeMap<CgroupId, &Group> = snapshot
        .workloads
        .iter()
        .map(|w| &w.group)
        .chain(&snapshot.bystanders)
        .chain(snapshot.slices())
        .map(|g| (g.id, g))
        .collect();
    let mut out = check_steps(plan, &groups);
    for knob in Knob::PROTECTION {
        out.extend(check_protection(knob, plan, snapshot));
    }
    out.extend(check_reclaim(settings, plan));
    out.extend(check_throttle(plan, &groups));
    out.extend(check_leave(settings, plan, snapshot));
    out.extend(check_host(settings, plan, snapshot));
    out
}

/// Freezing and stopping need the operator's leave, contention, and somebody managed.
fn check_leave(settings: &Settings, plan: &Plan, snapshot: &Snapshot) -> Vec<Violation> {
    let class_of = |step: &Step| {
        let workload = snapshot.workloads.iter().find(|w| w.group.id == step.id)?;
        let entitlement = entitlement(settings, workload);
        entitlement.class.filter(|_| entitlement.managed)
    };
    let has_leave = |step: &Step| {
        let classes = match (&step.action, step.rung) {
            (Action::Set { knob: Knob::CgroupFreeze, .. }, _) => &settings.memory.freeze,
            (Action::Stop { .. }, _) | (_, Rung::Kill) => &settings.memory.kill,
            _ => return true,
        };
        plan.account.is_contended() && class_of(step).is_some_and(|c| classes.contains(&c))
    };
    let without = plan.steps.iter().filter(|s| !has_leave(s));
    without.map(|s| Violation::Unallowed(s.clone())).collect()
}

fn check_throttle(plan: &Plan, groups: &BTreeMap<CgroupId, &Group>) -> Vec<Violation> {
    let is_sound = |step: &Step| match step.action {
        Action::Set { knob: Knob::MemoryHigh, to, prior, .. } => {
            let use_now = groups.get(&step.id).map(|g| g.memory.current - taken_before(plan, step));
            let share = plan.verdicts.iter().find(|v| v.path == step.path).map(|v| v.share);
            to <= prior && use_now.is_some_and(|n| to >= n) && share.is_some_and(|s| to >= s)
        }
        _ => true,
    };
    let unsound = plan.steps.iter().filter(|s| !is_sound(s));
    unsound.map(|s| Violation::Overthrottled(s.clone())).collect()
}

/// Page cache that is taken from the same cgroup before the step.
fn taken_before(plan: &Plan, step: &Step) -> Bytes {
    let before = plan.steps.iter().take_while(|s| *s != step).filter(|s| s.id == step.id);
    before.filter_map(|s| s.action.amount_to_reclaim()).sum()
}

fn check_steps(plan: &Plan, groups: &BTreeMap<CgroupId, &Group>) -> Vec<Violation> {
    let mut out = Vec::new();
    let mut seen = BTreeSet::new();
    // What is given back may be gone from the snapshot, and its value is compared when it is.
    let is_checked = |s: &&Step| !matches!(s.action, Action::Release { .. }) && !is_of_host(s);
    for step in plan.steps.iter().filter(is_checked) {
        let Some(group) = groups.get(&step.id).filter(|g| g.path == step.path) else {
            out.push(Violation::UnknownTarget(step.clone()));
            continue;
        };
        if let Action::Set { knob, from, .. } = &step.action {
            if read(group, *knob) != *from {
                out.push(Violation::StaleValue(step.clone()));
            }
            if !seen.insert((step.id, *knob)) {
                out.push(Violation::WrittenTwice(step.clone()));
            }
        }
    }
    for pair in plan.steps.windows(2).filter(|p| order::key(&p[0]) > order::key(&p[1])) {
        out.push(Violation::Disorder(pair[1].clone()));
    }
    out
}

fn is_of_host(step: &Step) -> bool {
    matches!(step.action, Action::Set { knob, .. } if knob.host_file().is_some())
}

/// A knob of the host is written as the settings say, from what was read, and on no cgroup.
fn check_host(settings: &Settings, plan: &Plan, snapshot: &Snapshot) -> Vec<Violation> {
    let read = snapshot.host.lru_gen.map(|mask| Bytes(u64::from(mask)));
    let is_sound = |step: &Step| match step.action {
        Action::Set { knob: Knob::LruGen, from, to, .. } => {
            let is_wanted = settings.memory.lru == PageAging::Classic && to == Bytes::ZERO;
            is_wanted && read == Some(from) && step.path.is_root()
        }
        _ => false,
    };
    let unsound = plan.steps.iter().filter(|s| is_of_host(s) && !is_sound(s));
    unsound.map(|s| Violation::Unallowed(s.clone())).collect()
}

/// The value of a knob once the plan is carried out.
fn after(plan: &Plan, group: &Group, knob: Knob) -> Bytes {
    let set = plan.steps.iter().filter(|s| s.id == group.id).find_map(|s| match s.action {
        Action::Set { knob: k, to, .. } if k == knob => Some(to),
        _ => None,
    });
    set.unwrap_or_else(|| read(group, knob))
}

/// Whether the plan sets it to no more than what was there before ctlmgr.
fn is_put_back(plan: &Plan, group: &Group, knob: Knob) -> bool {
    let is_it = |s: &&Step| {
        let set = match s.action {
            Action::Set { knob: k, prior, to, .. } => (k == knob).then_some((prior, to)),
            _ => None,
        };
        s.id == group.id && set.is_some_and(|(prior, to)| to <= prior)
    };
    plan.steps.iter().any(|s| is_it(&s))
}

fn check_protection(knob: Knob, plan: &Plan, snapshot: &Snapshot) -> Vec<Violation> {
    // What the plan leaves alone may be somebody else's, and is theirs to answer for.
    let is_touched = |g: &Group| after(plan, g, knob) != read(g, knob);
    let all = || snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.bystanders);
    let mut out = Vec::new();
    // Nor is what others had set before us, and is put back; who only loses something overcommits nothing.
    let is_ours = |g: &Group| is_touched(g) && !is_put_back(plan, g, knob);
    let sum: Bytes = all().filter(|g| is_ours(g)).map(|g| after(plan, g, knob)).sum();
    let is_raised = all().any(|g| is_ours(g) && after(plan, g, knob) > read(g, knob));
    if is_raised && sum > snapshot.host.mem_total {
        out.push(Violation::Overcommitted { knob, sum });
    }
    for ancestor in snapshot.slices() {
        let below: Bytes = all()
            .filter(|g| g.path.is_within(&ancestor.path) && is_touched(g))
            .map(|g| after(plan, g, knob))
            .sum();
        // An ancestor written within the last second is left for the next cycle.
        if is_touched(ancestor) && after(plan, ancestor, knob) < below {
            let path = ancestor.path.to_string();
            out.push(Violation::Uncovered { path, knob });
        }
    }
    out
}

fn check_reclaim(settings: &Settings, plan: &Plan) -> Option<Violation> {
    let sum: Bytes = plan
        .steps
        .iter()
        .filter(|s| s.rung == Rung::Reclaim)
        .filter_map(|s| match s.action {
            Action::Reclaim { amount, .. } => Some(amount),
            _ => None,
        })
        .sum();
    let is_probed = plan.steps.iter().any(|s| s.rung == Rung::Probe && !is_cache_probe(s));
    let probed = probed(&plan.steps);
    let takes_cache = |s: &Step| matches!(s.action, Action::Reclaim { only_cache: true, .. });
    let takes_other = plan.steps.iter().any(|s| s.rung == Rung::Reclaim && !takes_cache(s));
    let takes_any = sum > Bytes::ZERO;
    let is_needless =
        !plan.account.is_contended() && (is_probed || takes_other || (takes_any && !plan.is_swept));
    let is_late = probed > Bytes::ZERO && (plan.account.is_contended() || plan.is_swept);
    let is_excessive = sum > settings.memory.reclaim_per_cycle || probed > ALL;
    let is_wrong = is_needless || is_late || is_excessive;
    is_wrong.then_some(Violation::GratuitousReclaim(sum + probed))
}
