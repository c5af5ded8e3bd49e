//! `ctlmgr what-if`: shares before and after a change, without acting.
//!
//! The last plan of the daemon holds all that the division needs, so it is done here again: the
//! same function, other numbers. What the workloads feel is taken as it is now: how they would feel
//! after the change is not known.

use std::str::FromStr;

use anyhow::anyhow;
use ctlmgr_model::{Bound, Bytes, CgroupPath, Plan, Verdict, VerdictKind, Weight, WorkloadName};
use ctlmgr_policy::nested::{Place, divide_nested};
use ctlmgr_policy::share::{Claim, Share};
use serde::Serialize;

use crate::cli::WhatIf;
use crate::{Failure, show};

/// Shares before and after.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    /// Capacity now and then, in bytes.
    pub capacity_bytes: (Bytes, Bytes),
    /// What floors lack, then.
    pub unmet_floor_bytes: Bytes,
    /// Everybody who takes part now or then.
    pub shares: Vec<Change>,
}

/// One workload before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    /// Whose.
    pub name: WorkloadName,
    /// Weight then.
    pub weight: Weight,
    /// Estimated need.
    pub demand_bytes: Bytes,
    /// Share now; absent for a newcomer.
    pub before_bytes: Option<Bytes>,
    /// Share then.
    pub after_bytes: Bytes,
    /// What decides it then.
    pub bound: Bound,
}

/// Compares the division of `plan` with the one after `asked`.
///
/// `weight_of` knows the words for weights: numbers and classes.
pub(crate) fn compare(
    plan: &Plan,
    asked: &WhatIf,
    weight_of: impl Fn(&str) -> Result<Weight, Failure>,
) -> Result<Comparison, Failure> {
    let mut parties: Vec<(Claim, Option<&Verdict>)> =
        plan.verdicts.iter().enumerate().map(|(i, v)| (claim(v, i), Some(v))).collect();
    for text in &asked.weight {
        let (name, weight) = split(text, '=', "NAME=WEIGHT")?;
        let weight = weight_of(weight)?;
        let mut found = parties.iter_mut().filter(|(_, v)| v.is_some_and(|v| v.name.0 == name));
        let (claim, verdict) = found.next().ok_or_else(|| unknown(plan, name))?;
        if verdict.is_some_and(|v| !may_weigh(v)) {
            let message = anyhow!("`{name}` is not managed, so no weight of its own counts");
            return Err(Failure::bad_input(message));
        }
        claim.weight = weight;
    }
    for (i, text) in asked.add.iter().enumerate() {
        let (size, weight) = split(text, '@', "SIZE@WEIGHT")?;
        let size = Bytes::from_str(size).map_err(Failure::bad_input)?;
        let name = format!("{text}\0new{i:06}");
        let (weight, floor, max) = (weight_of(weight)?, Bytes::ZERO, None);
        parties.push((Claim { name, weight, basis: size, demand: size, floor, max }, None));
    }
    let capacity = capacity(plan.account.capacity, asked.capacity.as_deref())?;
    let claims: Vec<Claim> = parties.iter().map(|(claim, _)| claim.clone()).collect();
    // A newcomer is in no slice.
    let root = CgroupPath::new("");
    let newcomer = Place { path: &root, unmanaged_stuck: None };
    let places: Vec<Place<'_>> =
        parties.iter().map(|(_, verdict)| verdict.map_or(newcomer, place)).collect();
    let division =
        divide_nested(capacity, &claims, &places, &plan.slices).map_err(Failure::bad_input)?;
    let change = |((claim, verdict), share): (&(Claim, Option<&Verdict>), &Share)| {
        let shown = claim.name.split('\0').next().unwrap_or_default().to_owned();
        Change {
            name: verdict.map_or(WorkloadName(shown), |v| v.name.clone()),
            weight: claim.weight,
            demand_bytes: claim.demand,
            before_bytes: verdict.map(|v| v.share),
            after_bytes: share.share_bytes,
            bound: share.bound,
        }
    };
    Ok(Comparison {
        capacity_bytes: (plan.account.capacity, capacity),
        unmet_floor_bytes: division.unmet_floor_bytes,
        shares: parties.iter().zip(&division.shares).map(change).collect(),
    })
}

/// What else could be decided about one that gives way: what it would keep with twice the weight, and who would pay.
pub(crate) fn alternative(plan: &Plan, verdict: &Verdict) -> Option<String> {
    let is_it = |v: &&Verdict| v.path == verdict.path;
    let now = plan.verdicts.iter().find(is_it)?;
    let doubled = Weight::new(i64::from(now.weight.get()) * 2).ok()?;
    if now.bound != Bound::Weight || !may_weigh(now) {
        return None;
    }
    let claims: Vec<Claim> = plan
        .verdicts
        .iter()
        .enumerate()
        .map(|(i, v)| Claim { weight: if is_it(&v) { doubled } else { v.weight }, ..claim(v, i) })
        .collect();
    let places: Vec<Place<'_>> = plan.verdicts.iter().map(place).collect();
    let division = divide_nested(plan.account.capacity, &claims, &places, &plan.slices).ok()?;
    let share = |index: usize| division.shares[index].share_bytes;
    let all = || plan.verdicts.iter().enumerate();
    let own = all().find(|(_, v)| is_it(v)).map(|(i, _)| share(i))?;
    let (lost, who) =
        all().map(|(i, v)| (v.share - share(i), &v.name)).max_by_key(|(lost, _)| *lost)?;
    (own > now.share && lost > Bytes::ZERO)
        .then(|| format!("with weight {doubled} it would keep {own}, and {who} {lost} less"))
}

/// Whether a weight of its own counts.
fn may_weigh(verdict: &Verdict) -> bool {
    verdict.kind == VerdictKind::Workload && verdict.unmanaged_stuck.is_none()
}

fn place(verdict: &Verdict) -> Place<'_> {
    Place { path: &verdict.path, unmanaged_stuck: verdict.unmanaged_stuck }
}

/// What a workload brings to the division, as the daemon saw it.
fn claim(verdict: &Verdict, index: usize) -> Claim {
    Claim {
        // Two containers may share a name for a moment.
        name: format!("{}\0{index:06}", verdict.name),
        weight: verdict.weight,
        basis: verdict.basis,
        demand: verdict.demand,
        floor: verdict.floor.max(verdict.kept),
        max: verdict.max,
    }
}

fn split<'a>(text: &'a str, at: char, form: &str) -> Result<(&'a str, &'a str), Failure> {
    let wrong = || Failure::bad_input(anyhow!("`{text}` is not of the form {form}"));
    text.rsplit_once(at).ok_or_else(wrong)
}

fn unknown(plan: &Plan, name: &str) -> Failure {
    let mut known: Vec<&str> = plan.verdicts.iter().map(|v| v.name.0.as_str()).collect();
    known.sort_unstable();
    known.truncate(20);
    Failure::bad_input(anyhow!("no workload `{name}`; there are: {}", known.join(", ")))
}

/// `2G` is that much, `-2G` and `+2G` are that much less or more than now.
fn capacity(now: Bytes, asked: Option<&str>) -> Result<Bytes, Failure> {
    let Some(text) = asked else { return Ok(now) };
    let size = |text: &str| Bytes::from_str(text).map_err(Failure::bad_input);
    match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(less), _) => Ok(now - size(less)?),
        (_, Some(more)) => Ok(now + size(more)?),
        _ => size(text),
    }
}

/// The comparison as text.
pub(crate) fn show(comparison: &Comparison) {
    let (before, after) = comparison.capacity_bytes;
    show::line(&match before == after {
        true => format!("{after} to share"),
        false => format!("{after} to share in place of {before}"),
    });
    let (name, weight, need) = ("NAME", "WEIGHT", "NEED");
    show::line(&format!("{name:<26} {weight:>6} {need:>9} {:>9} {:>9} BOUND", "NOW", "THEN"));
    for c in &comparison.shares {
        let now = c.before_bytes.map_or("-".to_owned(), |b| b.to_string());
        let name = show::cut(&c.name.0, 26);
        show::line(&format!(
            "{name:<26} {:>6} {:>9} {now:>9} {:>9} {}",
            c.weight, c.demand_bytes, c.after_bytes, c.bound
        ));
    }
    if comparison.unmet_floor_bytes > Bytes::ZERO {
        show::line(&format!("! floors lack {}", comparison.unmet_floor_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(text: &str) -> Result<Weight, Failure> {
        Weight::new(text.parse().map_err(Failure::bad_input)?).map_err(Failure::bad_input)
    }

    fn plan() -> Plan {
        let text = include_str!("../tests/what-if-plan.json");
        serde_json::from_str(text).unwrap()
    }

    fn after(asked: &WhatIf) -> Vec<(String, u64)> {
        let comparison = compare(&plan(), asked, weight).unwrap();
        comparison.shares.iter().map(|c| (c.name.0.clone(), c.after_bytes.0 >> 20)).collect()
    }

    #[test]
    fn nothing_asked_changes_nothing() {
        let comparison = compare(&plan(), &WhatIf::default(), weight).unwrap();
        assert!(comparison.shares.iter().all(|c| c.before_bytes == Some(c.after_bytes)));
    }

    #[test]
    fn weight_capacity_and_newcomers_count() {
        let asked = WhatIf { weight: vec!["a=300".into()], ..WhatIf::default() };
        assert_eq!(after(&asked), [("a".into(), 400), ("b".into(), 200)]);
        let asked = WhatIf { capacity: Some("-200M".into()), ..WhatIf::default() };
        assert_eq!(after(&asked), [("a".into(), 200), ("b".into(), 200)]);
        let asked = WhatIf { add: vec!["400M@100".into()], ..WhatIf::default() };
        let shares = after(&asked);
        assert_eq!(shares[2], ("400M@100".into(), 200));
    }

    #[test]
    fn an_alternative_is_named_for_who_gives_way_only() {
        let plan = plan();
        let of = |name: &str| {
            let verdict = plan.verdicts.iter().find(|v| v.name.0 == name).unwrap();
            alternative(&plan, verdict)
        };
        let told: Vec<_> = ["a", "b"].into_iter().filter_map(of).collect();
        assert_eq!(told.len(), plan.verdicts.iter().filter(|v| v.bound == Bound::Weight).count());
        assert!(
            told[0].starts_with("with weight 200 it would keep ") && told[0].ends_with(" less"),
            "{told:?}"
        );
    }

    #[test]
    fn bad_input_is_named() {
        let fail = |asked: WhatIf| compare(&plan(), &asked, weight).unwrap_err();
        let failure = fail(WhatIf { weight: vec!["c=1".into()], ..WhatIf::default() });
        assert_eq!(
            (failure.status, failure.to_string()),
            (2, "no workload `c`; there are: a, b".into())
        );
        let [mut unit, mut unmanaged] = [plan(), plan()];
        unit.verdicts[0].kind = VerdictKind::Bystander;
        unmanaged.verdicts[0].unmanaged_stuck = Some(Bytes::ZERO);
        for spared in [unit, unmanaged] {
            let asked = WhatIf { weight: vec!["a=300".into()], ..WhatIf::default() };
            let failure = compare(&spared, &asked, weight).unwrap_err();
            assert!(failure.to_string().contains("`a` is not managed"), "{failure}");
        }
        let failure = fail(WhatIf { add: vec!["1G".into()], ..WhatIf::default() });
        assert_eq!(failure.to_string(), "`1G` is not of the form SIZE@WEIGHT");
        assert_eq!(fail(WhatIf { capacity: Some("lots".into()), ..WhatIf::default() }).status, 2);
    }
}
