//! From a snapshot to shares: who takes part, what each asks for, what each may keep and why.

use ctlmgr_model::{
    Bound, Bytes, CapacityAccount, Controller, Group, Percent, Reason, Settings, SliceAccount,
    Snapshot, Source, Verdict, VerdictKind, Workload, WorkloadName,
};

use crate::demand::{Estimate, basis};
use crate::dividing::{Attempt, Table, is_stuck};
use crate::entitlement::{Entitlement, entitlement_with_reserved};
use crate::nested::{Nested, Place};
use crate::share::{Claim, Share};
use crate::state::State;
use crate::units::owed;

/// A participant in the division: a managed workload or a bystander.
pub(crate) struct Party<'a> {
    pub name: WorkloadName,
    pub kind: VerdictKind,
    pub group: &'a Group,
    /// Absent for bystanders.
    pub workload: Option<&'a Workload>,
    pub entitlement: Entitlement,
    pub estimate: Estimate,
    /// What it is owed beside its floor, whatever others weigh ([`crate::units`]).
    pub owed: Bytes,
}

impl Party<'_> {
    /// What it keeps in any case, with what it is owed beside that.
    pub fn floor(&self, owed: Bytes) -> Bytes {
        match self.entitlement.managed {
            true => self.entitlement.floor + owed,
            false => self.estimate.demand,
        }
    }

    pub fn place(&self) -> Place<'_> {
        let stuck = self.group.memory.unreclaimable();
        let unmanaged_stuck = (!self.entitlement.managed).then_some(stuck);
        Place { path: &self.group.path, unmanaged_stuck }
    }

    /// Whether it is a container of which dockerd has not told: what it was promised is not known.
    pub fn is_untold(&self) -> bool {
        let source = self.workload.map(|w| &w.source);
        matches!(source, Some(Source::Container(facts)) if facts.is_untold)
    }
}

/// Everybody who takes part, managed or not.
pub(crate) fn parties<'a>(
    settings: &Settings,
    state: &State,
    snapshot: &'a Snapshot,
) -> Vec<Party<'a>> {
    let managed = snapshot.workloads.iter().map(|w| Party {
        name: w.name.clone(),
        kind: VerdictKind::Workload,
        group: &w.group,
        workload: Some(w),
        entitlement: entitlement_with_reserved(settings, (state, snapshot), w)
            .within(snapshot.host.mem_total, w),
        estimate: state.estimates[&w.group.id],
        owed: Bytes::ZERO,
    });
    let bystanders = snapshot.bystanders.iter().map(|g| Party {
        name: WorkloadName(g.path.name().to_owned()),
        kind: VerdictKind::Bystander,
        group: g,
        workload: None,
        entitlement: of_bystander(settings, snapshot.host.mem_total, g, &state.estimates[&g.id]),
        estimate: state.estimates[&g.id],
        owed: Bytes::ZERO,
    });
    let mut all: Vec<_> = managed.chain(bystanders).collect();
    let owed = owed(state, snapshot, &all);
    all.iter_mut().zip(owed).for_each(|(party, owed)| party.owed = owed);
    all
}

/// Who is spared keeps this much of what it used of late; of the rest it gives as others do, the more the colder it is.
const SPARED: Percent = Percent(25);
/// But no more than one part in so many of the machine: what dockerd uses does not shrink with it.
const SPARED_OF: u64 = 128;

fn of_bystander(
    settings: &Settings,
    total: Bytes,
    group: &Group,
    estimate: &Estimate,
) -> Entitlement {
    let rules = &settings.memory.bystanders;
    let name = group.path.name();
    let is_spared = rules.spared.iter().any(|p| p.matches(name));
    let used = estimate.basis.max(estimate.demand);
    let most = Bytes(total.0 / SPARED_OF);
    let kept = if is_spared { used.scaled(SPARED).min(most) } else { Bytes::ZERO };
    let floor = rules.floor_on(total);
    Entitlement {
        managed: true,
        weight: rules.weight,
        class: None,
        weight_from: "bystanders.weight".to_owned(),
        promise: None,
        promise_from: String::new(),
        floor: floor.max(kept),
        floor_from: if kept > floor { "bystanders.spared" } else { "bystanders.floor" }.to_owned(),
        complaints: Vec::new(),
    }
}

/// What everybody may keep, and why.
pub(crate) fn verdicts(
    controller: Controller,
    (account, slices): (&CapacityAccount, &[SliceAccount]),
    parties: &[Party<'_>],
    complaints: &mut Vec<String>,
) -> Vec<Verdict> {
    let table = Table::new(controller, (account, slices), parties);
    let attempt = match table.divide() {
        Ok(attempt) => attempt,
        Err(error) => {
            complaints.push(format!("no shares: {error}"));
            return Vec::new();
        }
    };
    let due = table.due(&attempt);
    let Attempt { claims, lifts, division, .. } = attempt;
    let Nested { shares, held_by, unmet_in_slices, unmet_floor_bytes } = division;
    if unmet_floor_bytes > Bytes::ZERO {
        complaints.push(format!(
            "floors, and what cannot be taken, exceed the capacity by {unmet_floor_bytes}"
        ));
    }
    let unmet = slices.iter().zip(unmet_in_slices).filter(|(_, unmet)| *unmet > Bytes::ZERO);
    complaints.extend(unmet.map(|(slice, unmet)| {
        format!(
            "floors, and what cannot be taken, below {} exceed its {} by {unmet}",
            slice.path, slice.capacity
        )
    }));
    let all = claims.iter().zip(parties).zip(shares.iter().zip(due)).zip(lifts.iter().zip(held_by));
    all.map(|(((claim, party), (share, due)), (lift, held_by))| {
        let slice = held_by.map(|number| &slices[number]);
        let lift_pct = lift_pct(*lift);
        verdict(account, &Divided { party, claim, share, due, slice, lift_pct })
    })
    .collect()
}

/// What came of the division for one.
struct Divided<'a, 'b> {
    party: &'b Party<'a>,
    claim: &'b Claim,
    share: &'b Share,
    /// What it would be if all of it could be taken.
    due: Bytes,
    /// The full slice that holds it to its share.
    slice: Option<&'b SliceAccount>,
    lift_pct: u32,
}

fn verdict(account: &CapacityAccount, divided: &Divided<'_, '_>) -> Verdict {
    let Divided { party, claim, share, due, slice, lift_pct } = *divided;
    let memory = &party.group.memory;
    Verdict {
        name: party.name.clone(),
        kind: party.kind,
        path: party.group.path.clone(),
        weight: party.entitlement.weight,
        weight_from: party.entitlement.weight_from.clone(),
        promise: party.entitlement.promise,
        promise_from: party.entitlement.promise_from.clone(),
        basis: claim.basis,
        demand: claim.demand,
        held: memory.current,
        swapped: memory.swap,
        share: share.share_bytes,
        bound: share.bound,
        slice: slice.map(|slice| slice.path.clone()),
        floor: claim.floor.min(party.floor(party.owed)),
        floor_from: floor_from(party, claim),
        kept: claim.floor,
        due,
        unmanaged_stuck: party.place().unmanaged_stuck,
        max: claim.max,
        lift_pct,
        rung: None,
        refaults_per_sec: party.estimate.refaults_per_sec,
        doing: party.estimate.doing,
        stall_pct: memory.pressure.map(|p| percent(p.some.avg10_pct)),
        reason: Reason(explain(account, divided)),
    }
}

/// Who said so, if the floor is what somebody said.
fn floor_from(party: &Party<'_>, claim: &Claim) -> String {
    let said = &party.entitlement;
    let is_said = said.managed && claim.floor.min(party.floor(party.owed)) == said.floor;
    if is_said { said.floor_from.clone() } else { String::new() }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small factor times 100; a cast saturates"
)]
pub(crate) fn lift_pct(lift: f64) -> u32 {
    (lift * 100.0).round() as u32
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0–100 before the cast"
)]
fn percent(value: f32) -> Percent {
    Percent(value.clamp(0.0, 100.0).round() as u8)
}

fn explain(account: &CapacityAccount, divided: &Divided<'_, '_>) -> String {
    let Divided { party, claim, share, due, slice, lift_pct } = *divided;
    let (share, bound) = (share.share_bytes, share.bound);
    if !party.entitlement.managed {
        return "not managed: left alone".to_owned();
    }
    if is_stuck((share, due)) {
        let stuck = party.group.memory.unreclaimable();
        return format!(
            "keeps {share}, because {stuck} that it holds are locked, or the kernel's, and cannot be taken; it would keep {due} by weight"
        );
    }
    match bound {
        Bound::Demand => format!("keeps all of the {} it needs", claim.demand),
        Bound::Max => format!("keeps up to its hard limit of {share}"),
        Bound::Floor if share > party.floor(party.owed) => {
            format!("gives way down to {share}, which nobody is denied")
        }
        Bound::Floor => format!("gives way down to its floor of {share}"),
        Bound::Weight => {
            let kept = u128::from(share.0) * 100 / u128::from(claim.demand.0.max(1));
            let size = match party.entitlement.promise {
                Some(promise) => format!("a promise of {promise}"),
                None => {
                    let used = basis(None, &party.estimate);
                    format!("{used} used over time (nothing promised)")
                }
            };
            let felt = match lift_pct {
                100 => String::new(),
                lift @ 101.. => {
                    format!(
                        ", corrected to {lift} % because what it lacks costs more than what others lack"
                    )
                }
                lift => {
                    format!(
                        ", corrected to {lift} % because what it lacks costs less than what others lack"
                    )
                }
            };
            let (demand, capacity, there) = match slice {
                Some(slice) => (slice.demand, slice.capacity, format!("there in {}", slice.path)),
                None => (account.demand, account.capacity, "there".to_owned()),
            };
            format!(
                "{demand} is asked for and {capacity} is {there}: weight {} and {size}{felt} keep {share}, {kept} % of its need",
                party.entitlement.weight
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dividing::ALIVE;
    use crate::testing;

    #[test]
    fn however_light_a_workload_is_left_with_a_little() {
        let of = |weight, id: u64| {
            let mut one = testing::container(&format!("w{id}"), id, Bytes::mib(500), None);
            if let Source::Container(facts) = &mut one.source {
                facts.labels.insert("ctlmgr.weight".into(), weight);
            }
            one
        };
        let mut snapshot = testing::host(
            Bytes::mib(500),
            vec![of("1".into(), 11), of("10000".into(), 12)],
            Vec::new(),
        );
        let light = |snapshot: &Snapshot| {
            let (plan, _) = crate::decide(&testing::settings(), State::default(), snapshot);
            plan.verdicts.into_iter().find(|v| v.weight.get() == 1).unwrap()
        };
        let kept = light(&snapshot);
        assert_eq!((kept.share, kept.floor, kept.bound), (ALIVE, Bytes::ZERO, Bound::Floor));
        assert!(kept.reason.0.ends_with("which nobody is denied"), "{}", kept.reason.0);
        // In a slice of 6 MiB two share a quarter.
        snapshot.ancestors[0].memory.max = ctlmgr_model::Limit::Bytes(Bytes::mib(6));
        assert!(light(&snapshot).share < Bytes::mib(1), "{:?}", light(&snapshot));
    }

    #[test]
    fn what_cannot_be_taken_is_kept_and_others_share_the_rest() {
        let mib = Bytes::mib;
        let of = |locked: u64, weight: &str, floor: u64| {
            let mut light = testing::container("light", 11, mib(500), None);
            light.group.memory.locked = mib(locked);
            if let Source::Container(facts) = &mut light.source {
                facts.labels.insert("ctlmgr.weight".into(), weight.into());
            }
            let others =
                [12, 13].map(|id| testing::container(&format!("w{id}"), id, mib(400), None));
            let workloads = std::iter::once(light).chain(others).collect();
            let snapshot = testing::host(mib(900), workloads, Vec::new());
            let mut settings = testing::settings();
            settings.rules.push(testing::floor_of("w12", mib(floor)));
            let (plan, _) = crate::decide(&settings, State::default(), &snapshot);
            assert_eq!(crate::check(&settings, &plan, &snapshot), []);
            let sum: Bytes = plan.verdicts.iter().map(|v| v.share).sum();
            assert!(sum <= plan.account.capacity, "{sum}");
            plan.verdicts.into_iter().find(|v| v.name.0 == "light").unwrap()
        };
        let due = of(0, "5", 0).share;
        assert!(due < mib(300));
        let kept = of(450, "5", 0);
        assert_eq!((kept.share, kept.floor, kept.due), (mib(452), Bytes::ZERO, due));
        assert!(kept.reason.0.contains("450 MiB that it holds are locked"), "{}", kept.reason.0);
        // All of it, so that it keeps all that it needs; but not by weight.
        let all = of(500, "5", 0);
        assert_eq!((all.share, all.due), (mib(500), due));
        assert!(all.reason.0.contains("500 MiB that it holds are locked"), "{}", all.reason.0);
        assert!(of(450, "5", 350).share >= mib(450), "with a floor beside it");
        // Who is due more has that.
        let [none, some] = [0, 100].map(|locked| of(locked, "1000", 0));
        assert_eq!((some.share, some.due), (none.share, some.share));
    }

    #[test]
    fn what_an_unmanaged_one_of_a_full_slice_has_locked_is_promised_to_no_other() {
        let mib = Bytes::mib;
        let of = |locked: u64| {
            let mut own = testing::container("own", 11, mib(300), None);
            own.group.memory.locked = mib(locked);
            if let Source::Container(facts) = &mut own.source {
                facts.labels.insert("ctlmgr.managed".into(), "false".into());
            }
            let web = testing::container("web", 12, mib(400), None);
            let mut snapshot = testing::host(mib(4000), vec![own, web], Vec::new());
            snapshot.ancestors[0].memory.max = ctlmgr_model::Limit::Bytes(mib(496));
            let (plan, _) = crate::decide(&testing::settings(), State::default(), &snapshot);
            let of = |name| plan.verdicts.iter().find(|v| v.name.0 == name).unwrap().share;
            assert_eq!(plan.slices[0].capacity, of("own") + of("web"));
            of("own")
        };
        assert!(of(0) < mib(220));
        assert_eq!(of(290), mib(290));
    }

    #[test]
    fn who_is_spared_keeps_a_quarter_of_what_it_used_and_other_units_the_floor_of_the_settings() {
        let mut settings = Settings::default();
        let floor_of = |settings: &Settings, total, name: &str, held| {
            let group = testing::group(name, 7, Bytes::mib(held));
            let workload = testing::container("w", 7, Bytes::mib(held), None);
            let estimate = testing::party(&workload, None, 100).estimate;
            of_bystander(settings, Bytes::mib(total), &group, &estimate).floor
        };
        let (docker, backup) = ("system.slice/docker.service", "system.slice/backup.service");
        assert_eq!(floor_of(&settings, 65_536, docker, 400), Bytes::mib(100));
        assert_eq!(floor_of(&settings, 65_536, backup, 400), Bytes::mib(16));
        // A small machine has as many of them.
        assert_eq!(floor_of(&settings, 2048, docker, 400), Bytes::mib(16));
        assert_eq!(floor_of(&settings, 2048, backup, 400), Bytes::mib(8));
        settings.memory.bystanders.floor = Some(Bytes::mib(20));
        assert_eq!(
            [docker, backup].map(|n| floor_of(&settings, 2048, n, 400)),
            [Bytes::mib(20); 2]
        );
    }
}
