//! Hardening: a part of the shares as memory.min.
//!
//! # Problem
//! Shares are kept by memory.low, and where MGLRU ages pages global reclaim hardly heeds that (`shrink_one()` in
//! mm/vmscan.c of 6.12). Early reclaim keeps global reclaim asleep; but a burst, or a machine that shrinks, is
//! faster than a reading a second. Then the kernel takes whose pages are oldest, whatever they weigh, and one that touches its pages
//! seldom has them back one by one. Seen of two redis promised alike (benches/results/memory-under-pressure.md, "Table 5.1"): one kept 0.57
//! of its set and the other all of it in one run, 0.59 and 0.44 in another, to the end of a step of 30 s and beyond.
//!
//! # Approach
//! memory.min holds in any case. Of each share most is made hard, so that nobody can lose more than the rest; and of who weighs more the
//! more, as it is to lose less. A quarter of what there is stays soft, so that the kernel finds something to take until the next look.
//!
//! # Terms
//! *Soft*: the part of a share that is not hard. *Level* k: the weight at which all of a share would be soft.
//!
//! # Algorithm
//! While contention is or was near, where memory.low is ignored ([`crate::heed`]) and with room in swap: of each share the part
//! (k / weight)² is soft, and no less than [`LEAST_SOFT`], or that of units ([`SOFT`]) by its weight, of who has missed nothing of late (by k / weight the heavier of two at 4:1 lost an eighth of its set at once, where half of the lighter one's was there to take); k is the least at which no more is hard than [`PART`] of the capacity, nor than swap has room for.
//! By [`SOFT`] nothing is hard of who weighs much less than units, which have nothing hard. Who weighs more than they may lose half as much
//! at once as who weighs what they do: where it was a twentieth for both, the heavier of two was slowed down as much as the lighter one. Of who has missed
//! some of late ([`crate::lent`]) that much less is soft, once it is seen how the kernel takes memory: it uses what it has, and where each touches all of its set, and a fault takes milliseconds, that a twentieth
//! comes and goes costs half of the work. Once it has missed nothing for a while, while memory is contended, that is soft again, and after twice as long each time it was too early. What cannot be
//! taken anyway does not count on either side; nor does what it neither holds nor needs, which its neighbours would have of it
//! (memory_recursiveprot), but what it is having back is hard before it is there, by two dead bands of a write: what comes back above
//! memory.min may be taken again until that is written anew. Floors, and what others have set, count where they are more. It is found by
//! bisection, because less is hard the higher it is. Who stands still, frozen or paused, has nothing of its share hard.
//!
//! # Properties
//! Nothing is soft of who has just missed some and weighs what units do or more, but for what [`PART`] asks for. Nobody's is to be above its share, nor above its use, but for two dead bands of one whose pages come back; of those that are as large, have
//! as much back, and have missed some as lately, more weight never has less, and as much weight as much; a little more weight
//! makes little difference; but for floors, which may be more by themselves, no more than [`PART`] of the capacity is meant to be.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_model::{Bytes, CgroupId, Group, Knob, Percent, VerdictKind};

use crate::demand::{Estimate, MISSED, lifted};
use crate::keeping::Keeping;
use crate::memory::read;
use crate::scene::Scene;
use crate::turns::dead_band;

/// With the floors no more of the capacity than this is to be hard. What slices hold beyond their members' comes on top
/// ([`crate::cover`], up to 6 per cent of it): together that is what floors alone may be.
const PART: Percent = Percent(75);
/// Of the share of one that weighs what units do, and misses nothing, at least this part is soft: that is what it may lose at once, if it is promised all it needs. An
/// eighth was a third of the work of two that touched their sets all the time.
const SOFT: f64 = 0.05;
/// And of anybody's who misses nothing at least this, so that what nobody uses of it goes little by little, as it does of who was promised more than it needs: less
/// than memory.min's dead band ([`crate::memory`]) would never be taken.
const LEAST_SOFT: f64 = SOFT / 2.0;
/// Halvings of the interval in which the level lies: more than a double can tell apart.
const HALVINGS: u32 = 60;
/// What is in force may be more than is to be by one part in so many before it is brought down at once.
const LAG: u64 = 16;

/// What is to be hard.
#[derive(Debug, Default)]
pub(crate) struct Hard {
    /// Of each one's share.
    pub amounts: BTreeMap<CgroupId, Bytes>,
    /// Whether too much is hard now.
    pub is_too_much: bool,
}

/// One that may have a part of its share hard.
struct Candidate {
    id: CgroupId,
    weight: f64,
    /// The part of its share that is soft in any case.
    soft: f64,
    share: Bytes,
    /// What it holds and is having back.
    reach: Bytes,
    /// What is hard of it now.
    now: Bytes,
    /// What is hard of it anyway.
    given: Bytes,
    /// What of it cannot be taken.
    stuck: Bytes,
}

impl Candidate {
    /// What is out of its reach would be its neighbours' (memory_recursiveprot).
    fn hard(&self, level: f64) -> Bytes {
        let soft = (level / self.weight).powi(2).max(self.soft).min(1.0);
        lifted(self.share, 1.0 - soft).min(self.reach)
    }

    /// What others have to give in its place, if so much is hard.
    fn counts(&self, hard: Bytes) -> Bytes {
        hard.max(self.given) - self.stuck
    }
}

/// What is to be hard; so much is `given` already.
pub(crate) fn harden(scene: &Scene<'_, '_>, given: &BTreeMap<CgroupId, Bytes>) -> Hard {
    if !is_due(scene) {
        return Hard::default();
    }
    let all = scene.all.iter().filter(|k| may_be_hard(scene, k));
    let candidates: Vec<_> = all.map(|k| candidate(scene, k, given)).collect();
    let ids: BTreeSet<_> = candidates.iter().map(|c| c.id).collect();
    let beside = scene.snapshot.sharers().filter(|g| !ids.contains(&g.id));
    let given = |g: &Group| given.get(&g.id).copied().unwrap_or_default();
    let beside: Bytes = beside.map(|g| given(g) - stuck(scene, g)).sum();
    let most = most(scene) - beside;
    let level = level(&candidates, most);
    let now: Bytes = candidates.iter().map(|c| c.counts(c.now)).sum();
    Hard {
        // Those with nothing, too: who has had some is brought down as others are.
        amounts: candidates.iter().map(|c| (c.id, c.hard(level))).collect(),
        is_too_much: now > most + Bytes(most.0 / LAG),
    }
}

fn is_due(scene: &Scene<'_, '_>) -> bool {
    scene.settings.harden
        && scene.is_recently_near()
        // Page cache that crowds out others is no need; but that it does must not cost those who need nearly all there is.
        && (!scene.is_swept() || scene.was_contended() || scene.account.is_near_contention())
        && scene.state.heed.is_ignored(&scene.snapshot.host)
        && scene.may_swap()
}

fn may_be_hard(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> bool {
    let (party, group) = (keeping.party, keeping.party.group);
    let stands_still = group.activity.is_frozen || group.activity.is_to_freeze;
    party.kind == VerdictKind::Workload
        && !party.is_untold()
        && !stands_still
        // In a slice that is full the kernel heeds memory.low, and would have to kill where all is hard; it is full in no time.
        && !scene.is_in_limited_slice(group)
}

fn candidate(
    scene: &Scene<'_, '_>,
    keeping: &Keeping<'_, '_>,
    given: &BTreeMap<CgroupId, Bytes>,
) -> Candidate {
    let group = keeping.party.group;
    let reach = reach(scene, keeping);
    let weight = f64::from(keeping.party.entitlement.weight.get());
    Candidate {
        id: group.id,
        weight,
        soft: soft(scene, weight, &keeping.party.estimate),
        share: keeping.share,
        reach,
        now: group.memory.min.min(reach),
        given: given.get(&group.id).copied().unwrap_or_default(),
        stuck: stuck(scene, group),
    }
}

/// The part of its share that is soft in any case.
fn soft(scene: &Scene<'_, '_>, weight: f64, estimate: &Estimate) -> f64 {
    let of_units = f64::from(scene.settings.bystanders.weight.get());
    let soft = SOFT * (of_units / weight).powi(2);
    // Where nothing is soft nothing is taken that tells whether the kernel heeds that.
    let is_seen = scene.state.heed.seen().is_some_and(|seen| seen.is_heeded.is_some());
    let missed = if is_seen { estimate.lent.missed() } else { 0.0 };
    (soft.max(LEAST_SOFT) - SOFT * missed).clamp(0.0, 1.0)
}

/// What it holds and, of one whose pages come back, what it will hold until memory.min is written again. A write that came only
/// when all of that is there would leave the last of it to be taken.
fn reach(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> Bytes {
    let (estimate, group) = (&keeping.party.estimate, keeping.party.group);
    let memory = &group.memory;
    let band = dead_band(scene.settings, memory.current, memory.current);
    let most = memory.current + band + band;
    let ahead = match estimate.refaults_per_sec >= MISSED {
        true => most,
        // What is ahead stays while it is needed, or it would turn round whenever pages pause.
        false => memory.min.min(most).min(estimate.demand),
    };
    let own = scene.state.prior(group, Knob::MemoryHigh, read(group, Knob::MemoryHigh));
    memory.current.max(ahead.min(own))
}

fn stuck(scene: &Scene<'_, '_>, group: &Group) -> Bytes {
    group.memory.current - scene.takeable(group)
}

/// What is hard others must be able to give in its place, and where they have nothing but anonymous memory that takes swap.
fn most(scene: &Scene<'_, '_>) -> Bytes {
    let stuck: Bytes = scene.snapshot.sharers().map(|g| stuck(scene, g)).sum();
    (scene.account.capacity - stuck).scaled(PART).min(scene.swap_left())
}

/// The least level at which no more counts than `most`, or one at which nothing is hard that need not be.
fn level(candidates: &[Candidate], most: Bytes) -> f64 {
    let heaviest = candidates.iter().map(|c| c.weight).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, heaviest);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        let hard: Bytes = candidates.iter().map(|c| c.counts(c.hard(middle))).sum();
        if hard > most { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heed::Heed;
    use crate::testing::{container, floor_of, group, host, settings};
    use crate::{State, decide};
    use ctlmgr_model::{
        Action, Limit, LruFlavour, Millis, Outcome, Plan, Settings, Snapshot, Source,
    };
    use proptest::prelude::*;

    /// Workloads of these sizes and weights on a machine of so much.
    fn machine(list: &[(u64, u16)], total: u64) -> Snapshot {
        let one = |(id, (mib, weight)): (u64, &(u64, u16))| {
            let mut workload =
                container(&format!("w{id}"), id, Bytes::mib(*mib), Some(Bytes::mib(*mib)));
            if let Source::Container(facts) = &mut workload.source {
                facts.labels.insert("ctlmgr.weight".into(), weight.to_string());
            }
            workload
        };
        host(Bytes::mib(total), (11u64..).zip(list).map(one).collect(), Vec::new())
    }

    fn planned(settings: &Settings, snapshot: &Snapshot) -> Plan {
        let (plan, _) = decide(settings, State::default(), snapshot);
        assert_eq!(crate::check(settings, &plan, snapshot), []);
        plan
    }

    /// memory.min that is set for each, in MiB.
    fn hard(plan: &Plan, snapshot: &Snapshot) -> Vec<u64> {
        let of = |id| {
            let set = plan.steps.iter().filter(|s| s.id == id).find_map(|s| match s.action {
                Action::Set { knob: Knob::MemoryMin, to, .. } => Some(to.0 >> 20),
                _ => None,
            });
            set.unwrap_or(0)
        };
        snapshot.workloads.iter().map(|w| of(w.group.id)).collect()
    }

    /// The kernel takes from one for the page cache of a unit that reads without end, while less is asked for than there is.
    #[test]
    fn page_cache_that_crowds_out_others_makes_nothing_hard_nor_takes_it_from_who_needs_nearly_all()
    {
        let hard_of = |need: u64| {
            let mut snapshot = machine(&[(need, 100), (100, 100)], 2000);
            let mut scan = group("system.slice/scan.service", 21, Bytes::mib(10));
            let cache = Bytes::mib(1780 - need);
            (scan.memory.current, scan.memory.inactive_file) = (cache + Bytes::mib(10), cache);
            snapshot.bystanders.push(scan);
            snapshot.host.reclaimable_cache = cache;
            (snapshot.host.mem_free, snapshot.host.stolen) = (Bytes::mib(10), Some(7));
            let (_, state) = decide(&settings(), State::default(), &snapshot);
            snapshot.at = Millis(snapshot.at.0 + 1000);
            snapshot.host.stolen = Some(100_000);
            snapshot.workloads[1].group.memory.events.low += 3;
            snapshot.bystanders[0].activity.io.read = Bytes::mib(200);
            let (plan, _) = decide(&settings(), state, &snapshot);
            assert!(plan.is_swept && !plan.account.is_contended());
            hard(&plan, &snapshot)[0]
        };
        assert_eq!(hard_of(600), 0);
        assert!(hard_of(1600) > 1000, "{}", hard_of(1600));
    }

    #[test]
    fn most_of_a_share_is_hard_the_heavier_the_more_and_no_more_than_three_quarters_in_all() {
        let of = |list: &[(u64, u16)], total| {
            let snapshot = machine(list, total);
            hard(&planned(&settings(), &snapshot), &snapshot)
        };
        // 1400 of 1400 + 100 are to be had, near contention: three quarters of it are some 944 MiB.
        assert_eq!(of(&[(800, 100), (400, 100)], 1400), [629, 314]);
        assert_eq!(of(&[(800, 100), (400, 400)], 1400), [553, 390]);
        let near = of(&[(700, 100), (700, 101)], 1400);
        assert!(near[0].abs_diff(near[1]) < 10, "a little more weight, a little more: {near:?}");
        assert_eq!(of(&[(8, 5), (800, 100), (400, 100)], 1400)[0], 0, "much less than others");
        let idle = of(&[(1000, 5), (300, 400)], 1400);
        assert!(idle[0] == 0 && idle[1] > 250, "less than units weigh is not preferred to them");
        assert_eq!(of(&[(300, 100), (300, 400)], 4000), [0, 0], "all is calm");
    }

    /// Shares and what is hard of them, in MiB, of ones beside a unit that has the rest, after a minute in which the second
    /// has so many pages back in each second.
    fn after(list: &[(u64, u16)], pages: u64, is_seen: bool) -> Vec<(u64, u64)> {
        let sum: u64 = list.iter().map(|(mib, _)| mib).sum();
        let mut snapshot = machine(list, sum + 1800);
        snapshot.bystanders.push(group("system.slice/greedy.service", 99, Bytes::mib(1800)));
        let (mut state, mut shares) = (State::default(), Vec::new());
        state.heed = if is_seen { Heed::ignored(&snapshot.host) } else { state.heed };
        for second in 0..60 {
            snapshot.at = Millis(10_000 + second * 1000);
            snapshot.workloads[1].group.memory.refault_anon = second * pages;
            let (plan, next) = decide(&settings(), std::mem::take(&mut state), &snapshot);
            assert_eq!(crate::check(&settings(), &plan, &snapshot), []);
            state = next;
            harden(&plan, &mut state, &mut snapshot);
            let workloads = plan.verdicts.iter().filter(|v| v.kind == VerdictKind::Workload);
            let of = |v: &ctlmgr_model::Verdict| (v.path.clone(), v.share.0 >> 20);
            shares = workloads.map(of).collect();
        }
        let of = |w: &ctlmgr_model::Workload| {
            let share = shares.iter().find(|(path, _)| *path == w.group.path);
            (share.map_or(0, |(_, mib)| *mib), w.group.memory.min.0 >> 20)
        };
        snapshot.workloads.iter().map(of).collect()
    }

    #[test]
    fn a_twentieth_of_a_share_is_soft_of_who_misses_nothing_of_it() {
        // Of the heavier one half as much.
        let list = [(800, 100), (800, 100), (800, 400), (200, 5)];
        let least = |after: &[(u64, u64)]| {
            let part = |((share, _), forty): (&(u64, u64), u64)| share * forty / 40;
            after.iter().zip([38, 38, 39]).map(part).collect::<Vec<_>>()
        };
        let idle = after(&list, 0, true);
        let soft = idle.iter().zip(least(&idle)).all(|((share, hard), least)| {
            // What is in force may be off by a dead band.
            hard < share && *hard >= least && *hard <= least + share / 50
        });
        assert!(soft, "{idle:?}");
        assert_eq!(idle[3].1, 0, "much less than units weigh");
        let one = after(&list, MISSED, true);
        assert!(one[1].0 == one[1].1 && one[0] == idle[0] && one[2] == idle[2], "{one:?}");
        assert_eq!(after(&list, MISSED, false), idle, "it is not seen what that is worth");
    }

    #[test]
    fn nothing_is_hard_where_soft_protection_holds_or_nothing_can_be_swapped_or_nobody_wants_it() {
        let wanted = |change: fn(&mut Snapshot, &mut Settings)| {
            let (mut snapshot, mut settings) =
                (machine(&[(800, 100), (400, 400)], 1400), settings());
            change(&mut snapshot, &mut settings);
            hard(&planned(&settings, &snapshot), &snapshot)
        };
        assert!(wanted(|_, _| ()).iter().all(|mib| *mib > 0));
        assert_eq!(wanted(|s, _| s.host.lru = Some(LruFlavour::Classic)), [0, 0]);
        assert_eq!(wanted(|s, _| s.host.lru = None), [0, 0]);
        assert_eq!(wanted(|s, _| s.host.swap_free = Bytes::ZERO), [0, 0]);
        assert_eq!(wanted(|_, settings| settings.memory.harden = false), [0, 0]);
        let little_swap = wanted(|s, _| s.host.swap_free = Bytes::mib(300));
        assert!((1..=300u64).contains(&little_swap.iter().sum::<u64>()), "{little_swap:?}");
        let frozen = wanted(|s, _| s.workloads[0].group.activity.is_to_freeze = true);
        assert!(frozen[0] == 0 && frozen[1] > 0, "{frozen:?}");
        // Of one that stands still what is hard of what it has locked is not there twice.
        let still = |min: u64| {
            let mut snapshot = machine(&[(800, 100), (400, 400)], 1400);
            snapshot.workloads[0].group.activity.is_to_freeze = true;
            let memory = &mut snapshot.workloads[0].group.memory;
            (memory.locked, memory.min) = (Bytes::mib(700), Bytes::mib(min));
            snapshot.ancestors[0].memory.min = Bytes::mib(min);
            hard(&planned(&settings(), &snapshot), &snapshot)[1]
        };
        assert!(still(0) > 0 && still(600) == still(0), "{} {}", still(600), still(0));
        // What has no swap of its own cannot be taken, so as much less of the rest is hard.
        let stuck = wanted(|s, _| {
            s.workloads[0].group.memory.swap_max = Limit::Bytes(Bytes::ZERO);
        });
        // Three quarters of the other 460 MiB that can be taken.
        assert!(stuck[1] > 320 && stuck[1] < 350, "{stuck:?}");
        // Nor can what the kernel holds for a unit, so as much less is left to give in place of what is hard.
        let beside = |kernel| {
            let (mut snapshot, settings) = (machine(&[(800, 100), (400, 400)], 1400), settings());
            let mut unit = group("system.slice/unit.service", 99, Bytes::mib(300));
            unit.memory.kernel = Bytes::mib(kernel);
            snapshot.bystanders.push(unit);
            hard(&planned(&settings, &snapshot), &snapshot).iter().sum::<u64>()
        };
        assert!(beside(200) + 140 < beside(0), "three quarters of 200 MiB");
    }

    /// Does what is planned for memory.min.
    fn harden(plan: &Plan, state: &mut State, snapshot: &mut Snapshot) {
        for step in &plan.steps {
            let to = match step.action {
                Action::Set { knob: Knob::MemoryMin, to, .. } => to,
                Action::Release { knob: Knob::MemoryMin, prior, .. } => prior,
                _ => continue,
            };
            state.learn(step, &Outcome::Done, snapshot.at);
            let groups = snapshot.workloads.iter_mut().map(|w| &mut w.group);
            groups
                .chain(&mut snapshot.ancestors)
                .filter(|g| g.id == step.id)
                .for_each(|g| g.memory.min = to);
        }
    }

    /// One that holds 400 MiB beside so many in swap, with a limit of its own: what is hard of it after each second, if
    /// by then so many pages have come back.
    fn hard_of_one_that_has_back(away: u64, pages: &[u64], own: Limit) -> Vec<u64> {
        let mut snapshot = machine(&[(400, 100), (200, 100)], 1650);
        snapshot.bystanders.push(group("system.slice/greedy.service", 99, Bytes::mib(900)));
        if let Source::Container(facts) = &mut snapshot.workloads[0].source {
            facts.reservation = Some(Bytes::mib(500));
        }
        let memory = &mut snapshot.workloads[0].group.memory;
        (memory.swap, memory.high) = (Bytes::mib(away), own);
        let (_, mut state) = decide(&settings(), State::default(), &snapshot);
        let mut second = |back: &u64| {
            snapshot.at = Millis(snapshot.at.0 + 1000);
            snapshot.workloads[0].group.memory.refault_anon = *back;
            let (plan, next) = decide(&settings(), std::mem::take(&mut state), &snapshot);
            state = next;
            harden(&plan, &mut state, &mut snapshot);
            snapshot.workloads[0].group.memory.min.0 >> 20
        };
        pages.iter().map(&mut second).collect()
    }

    #[test]
    fn what_one_has_back_is_hard_before_it_is_there_and_stays_so_while_it_pauses() {
        let after =
            |away: u64, pages, own| hard_of_one_that_has_back(away, &[pages], own).first().copied();
        // Nineteen twentieths of what it needs, and no more than twice a fiftieth, or 8 MiB, beyond what it holds.
        let [none, some, more] = [0, 5, 60].map(|away| after(away, away * 256, Limit::Max));
        assert_eq!([none, some, more], [Some(380), Some(384), Some(416)]);
        assert_eq!(after(60, 0, Limit::Max), Some(400), "what is in swap may be needed by nobody");
        let limit = Limit::Bytes(Bytes::mib(405));
        assert_eq!(after(60, 60 * 256, limit), Some(405), "no further than it may grow");
        let back = 60 * 256;
        let paused = hard_of_one_that_has_back(60, &[back; 8], Limit::Max);
        assert_eq!(paused, [416; 8], "a pause");
    }

    proptest! {
        #[test]
        fn no_more_than_most_is_hard_and_more_weight_never_has_less(
            list in proptest::collection::vec((1u64..60, 1u16..2000), 1..9), part in 50u64..120,
            floor in 1u64..400, less in 0u64..40, away in 0u64..60,
        ) {
            // Of sizes that come in tens, so that some are as large as others.
            let list: Vec<_> = list.iter().map(|(mib, w)| (mib / 10 * 100 + 50, *w)).collect();
            let sum: u64 = list.iter().map(|(mib, _)| mib).sum();
            let mut snapshot = machine(&list, sum * part / 100 + 100);
            let mut settings = settings();
            settings.rules.push(floor_of("w11", Bytes::mib(floor)));
            let (plan, state) = decide(&settings, State::default(), &snapshot);
            prop_assert_eq!(crate::check(&settings, &plan, &snapshot), []);
            let most = |plan: &Plan, floor: u64| ((plan.account.capacity.0 >> 20) * 75 / 100).max(floor) + 1;
            let first = hard(&plan, &snapshot);
            let granted = first[0].min(floor);
            prop_assert!(first.iter().sum::<u64>() <= most(&plan, granted));
            for (i, a) in list.iter().enumerate().skip(1) {
                let path = &snapshot.workloads[i].group.path;
                let share = plan.verdicts.iter().find(|v| v.path == *path).map_or(0, |v| v.share.0 >> 20);
                prop_assert!(first[i] <= share.min(a.0));
                for (j, b) in list.iter().enumerate().skip(1) {
                    prop_assert!(a.0 != b.0 || a.1 < b.1 || first[i] + 1 >= first[j], "{list:?} {first:?}");
                }
            }
            // The machine shrinks a little, and what is hard follows.
            let mut state = state;
            harden(&plan, &mut state, &mut snapshot);
            snapshot.at = Millis(snapshot.at.0 + 1000);
            snapshot.host.mem_total = Bytes(snapshot.host.mem_total.0 * (100 - less) / 100);
            for workload in snapshot.workloads.iter_mut().step_by(2) {
                (workload.group.memory.swap, workload.group.memory.refault_anon) = (Bytes::mib(away), away * 256);
            }
            let (plan, next) = decide(&settings, state, &snapshot);
            state = next;
            harden(&plan, &mut state, &mut snapshot);
            let after: Vec<u64> = snapshot.workloads.iter().map(|w| w.group.memory.min.0 >> 20).collect();
            // Of those that have as much back; each may be behind by its dead band.
            for (i, a) in list.iter().enumerate().skip(1) {
                for (j, b) in list.iter().enumerate().skip(1).filter(|(j, _)| j % 2 == i % 2) {
                    prop_assert!(a.0 != b.0 || a.1 < b.1 || after[i] + 13 >= after[j], "{list:?} {after:?}");
                }
            }
            // A floor may fit now that did not before.
            let most = most(&plan, after[0].min(floor));
            prop_assert!(after.iter().sum::<u64>() <= most * 103 / 100 + 9, "{after:?} {most}");
        }
    }
}
