//! memory.low of units that nobody manages.
//!
//! # Problem
//! Where the kernel heeds memory.low (classic page aging, MGLRU of newer kernels) global reclaim takes first from whom
//! nothing protects. Workloads are protected up to all that there is to share, so what they are spared would be the loss
//! of dockerd, sshd and whatever else keeps the host alive. Seen with classic lists and two hogs that need 1.2 of 1.15 GiB:
//! dockerd and containerd were left 2 MiB, and the guest's agent answered no more.
//!
//! # Approach
//! Their floor (`bystanders.floor`, and of spared ones a quarter of what they used of late; both less on a small machine), as far as they need it, is
//! memory.low of theirs, covered on the slices above as that of workloads is; of who makes no use of it less and less, and of who is called
//! what came back to it beside it, up to its share ([`crate::lent`]). Some of that is owed to it whatever others weigh, as long as no floor is
//! short for it: who gives a container weight 400 does not mean that dockerd and whoever calls it fault each other's pages for ten seconds.
//!
//! While workloads lack something and wait for it a floor is kept only as far as its owner suffers for each byte that it misses
//! as they do ([`crate::heat`]), or waits as long as they do now: containerd reads its snapshots' statistics again every ten seconds, hardly waits for that, and kept 25 MiB of 1.3 GiB where the
//! kernel leaves it 8, beside two hogs that waited for a fifth of their time.
//!
//! What is too small to be looked at has a
//! part of what its slice has beyond that: the kernel divides it among those below by use (`memory_recursiveprot`,
//! which systemd mounts with). Where memory.low is ignored ([`crate::heed`]) all that would change nothing, and is
//! not written.
//!
//! # Properties
//! Nothing where memory.low is ignored, for what a user's manager runs (it sets its slices back), or for who has a
//! memory.low of somebody else; no more than twice what is left of the floor with what came back, and [`ROUND`], nor than the share, a part in [`BEYOND`]
//! of that, and [`ROUND`]; all of a floor that is not lent while nothing is missing is kept where no workload waits that lacks something, weighs no less than units and is not held by a full slice of its own, where shares are by size
//! alone (`controller = "shares"`), where nothing is known of its owner, and while that waits as long as they; what moves by less is not written; at least the smaller of share, floor and [`LEAST`].

use ctlmgr_model::{Bytes, Controller, Group, Knob, Snapshot, VerdictKind};

use crate::demand::{Estimate, lifted};
use crate::feedback::amount;
use crate::hard::Wanted;
use crate::heat::{Common, Heat, LEAST_MISSING};
use crate::keeping::Keeping;
use crate::scene::Scene;
use crate::state::State;
use crate::verdict::Party;

/// What came back to one is owed to it up to this, or one part in so many of the machine; and to all of them twice that.
const MOST: Bytes = Bytes::mib(64);
const OWED: u64 = 32;
/// Amounts are multiples of this.
const ROUND: Bytes = Bytes::mib(1);
/// What stays as it is exceeds its share by no more than one part in so many of that, and [`ROUND`].
const BEYOND: u64 = 8;
/// So much of a floor is kept even of who makes no use of it: the kernel left units 2 MiB, and nothing answered.
const LEAST: Bytes = Bytes::mib(4);
/// What is too small to be looked at is taken for no more than this, or one part in so many of the machine.
const UNLISTED: Bytes = Bytes::mib(64);
const SMALL: u64 = 64;

/// What each is owed beside its floor, whatever others weigh: what came back to it.
pub(crate) fn owed(state: &State, snapshot: &Snapshot, parties: &[Party<'_>]) -> Vec<Bytes> {
    let each = Bytes(snapshot.host.mem_total.0 / OWED).min(MOST);
    let is_heeded = !state.heed.is_ignored(&snapshot.host);
    let own = |party: &Party<'_>| match is_heeded && is_kept(state, party) {
        true => party.estimate.lent.back().min(each),
        false => Bytes::ZERO,
    };
    let all: Vec<Bytes> = parties.iter().map(own).collect();
    let (most, sum) = (each + each, all.iter().copied().sum());
    all.iter().map(|own| own.rationed(most, sum)).collect()
}

/// What of a slice is held by units that are too small to be looked at.
pub(crate) fn unlisted(state: &State, snapshot: &Snapshot, slice: &Group) -> Bytes {
    let is_below = |g: &&Group| g.path.is_within(&slice.path);
    if state.heed.is_ignored(&snapshot.host) || !snapshot.bystanders.iter().any(|g| is_below(&g)) {
        return Bytes::ZERO;
    }
    let listed = snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.bystanders);
    let listed: Bytes = listed.filter(is_below).map(|g| g.memory.current).sum();
    let dead = snapshot.dead.get(&slice.path).copied().unwrap_or_default();
    let most = Bytes(snapshot.host.mem_total.0 / SMALL).min(UNLISTED);
    (slice.memory.current - listed - dead).min(most)
}

/// What memory.low of units is to be.
pub(crate) fn kept<'a>(scene: &Scene<'a, '_>) -> Vec<Wanted<'a>> {
    let Scene { state, snapshot, all, .. } = *scene;
    if state.heed.is_ignored(&snapshot.host) {
        return Vec::new();
    }
    let is_meant = |k: &&Keeping<'a, '_>| is_kept(state, k.party);
    let workloads = Suffering::of(scene);
    let wanted = |k: &Keeping<'a, '_>| {
        let lent = k.party.estimate.lent;
        let floor = k.share.min(k.party.entitlement.floor);
        let worth = workloads.map_or(1.0, |all| all.beside(&k.party.estimate));
        let kept = lifted(floor, lent.kept().min(worth)).max(floor.min(LEAST));
        let most = (k.share - k.room).max(kept);
        let least = (kept + lent.back()).min(most);
        Wanted {
            group: k.party.group,
            amount: steady(k.party.group.memory.low, least, most),
            is_said: true,
            is_too_much: false,
            why: why(floor - kept, least - kept, worth < lent.kept()),
        }
    };
    all.iter().filter(is_meant).map(wanted).collect()
}

/// What those workloads suffer that have less than they need.
#[derive(Clone, Copy)]
struct Suffering {
    heat: Common,
    /// Of whose set one byte was missing as that was learned, in the mean, in bytes.
    set: f64,
    /// Part of its time, 0–1, that waits of late who waits most.
    waited: f64,
}

impl Suffering {
    /// `None` if none does, or nobody is to have less for what it feels.
    fn of(scene: &Scene<'_, '_>) -> Option<Suffering> {
        let is_asked = scene.settings.controller != Controller::Shares;
        let is_meant = |k: &&Keeping<'_, '_>| is_asked && is_lacking(scene, k);
        let all = || scene.all.iter().filter(is_meant).map(|k| &k.party.estimate);
        let heat = Heat::of_all(all().map(|e| e.heat))?;
        let waited = all().map(|e| e.progress.waited()).fold(0.0, f64::max);
        let exposed: f64 = all().map(|e| e.heat.exposed_secs()).sum();
        let bytes: f64 = all().map(|e| e.heat.exposed_secs() * amount(e.demand)).sum();
        Some(Suffering { heat: heat.of_late(waited), set: bytes / exposed, waited })
    }

    /// What a unit suffers for a byte that it misses, beside what they do, 0–1. Who waits as long as they do has been called just
    /// now, and what was learned of it before says nothing.
    fn beside(self, unit: &Estimate) -> f64 {
        let usual = amount(unit.demand.max(Bytes::PAGE)) / self.set;
        let by_byte = unit.heat.beside(self.heat, usual);
        by_byte.max(unit.progress.waited() / self.waited.max(f64::MIN_POSITIVE)).min(1.0)
    }
}

/// Whether a workload is to have less than it needs although it weighs no less than units, and could have what they leave.
fn is_lacking(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> bool {
    let Keeping { party, share, .. } = *keeping;
    let (demand, path) = (party.estimate.demand, &party.group.path);
    let lacks = amount(demand - share) >= LEAST_MISSING * amount(demand.max(Bytes::PAGE));
    let is_held = scene.slices.iter().any(|slice| slice.holds_back(path));
    let is_light = party.entitlement.weight < scene.settings.bystanders.weight;
    party.kind == VerdictKind::Workload && lacks && !party.is_untold() && !is_held && !is_light
}

/// Whether it is a unit that has a memory.low of ours.
fn is_kept(state: &State, party: &Party<'_>) -> bool {
    let group = party.group;
    // What is no unit of the host's manager has a keeper of its own.
    let is_unit = group.path.unit().is_some();
    let is_bare = || state.prior(group, Knob::MemoryLow, group.memory.low) == Bytes::ZERO;
    let is_reached = !group.path.is_of_user();
    party.kind == VerdictKind::Bystander && is_unit && is_reached && is_bare()
}

fn why(lent: Bytes, back: Bytes, is_worth_less: bool) -> String {
    let lent = match (lent, is_worth_less) {
        (Bytes::ZERO, _) => String::new(),
        (lent, false) => format!(", but for {lent} that are lent out while it misses nothing"),
        (lent, true) => {
            format!(", but for {lent} that are lent out to workloads that suffer more")
        }
    };
    let back = match back {
        Bytes::ZERO => String::new(),
        back => format!(", and {back} that it missed of late"),
    };
    format!("nobody manages it: its floor, as far as it needs that{lent}{back}")
}

/// The amount to have where there is `now`, `least` is needed and its share lets it have `most`.
fn steady(now: Bytes, least: Bytes, most: Bytes) -> Bytes {
    // Twice, because the floor of a spared unit rises with a burst and falls soon after. A share moves by little each second.
    let base = least.max(ROUND);
    let enough = (base + base).min(most + Bytes(most.0 / BEYOND) + ROUND);
    let is_well = now >= least && now <= enough;
    if is_well { now } else { Bytes(least.0.next_multiple_of(ROUND.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lent::Lent;
    use crate::testing::{container, floor_of, group, host, party, settings};
    use crate::{check, decide};
    use ctlmgr_model::{
        Action, CgroupPath, Gap, LruFlavour, MemorySettings, Millis, Outcome, Pressure,
        PressureLine, Settings, Weight,
    };
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const MIB: fn(u64) -> Bytes = Bytes::mib;

    /// A host that is short of memory, with dockerd and a session.
    fn pressed(lru: LruFlavour) -> Snapshot {
        let web = container("web", 11, MIB(17_700), Some(MIB(17_700)));
        let session = "user.slice/user-0.slice/user@0.service/app.slice/a.service";
        let units = [("system.slice/docker.service", 21, 200), (session, 22, 60)];
        let units = units.map(|(path, id, mib)| group(path, id, MIB(mib)));
        let mut snapshot = host(MIB(18_000), vec![web], units.into());
        snapshot.host.lru = Some(lru);
        snapshot.above_bystanders = vec![group("system.slice", 2, MIB(240))];
        snapshot
    }

    /// What memory.low is set or put back to.
    fn low(snapshot: &Snapshot, state: State) -> (BTreeMap<String, Bytes>, State) {
        low_with(&settings(), snapshot, state)
    }

    fn low_with(
        settings: &Settings,
        snapshot: &Snapshot,
        state: State,
    ) -> (BTreeMap<String, Bytes>, State) {
        let (plan, mut state) = decide(settings, state, snapshot);
        assert_eq!(check(settings, &plan, snapshot), []);
        plan.steps.iter().for_each(|s| state.learn(s, &Outcome::Done, snapshot.at));
        let written = plan.steps.iter().filter_map(|s| match s.action {
            Action::Set { knob: Knob::MemoryLow, to, .. } => Some((s.path.as_str().to_owned(), to)),
            Action::Release { knob: Knob::MemoryLow, prior, .. } => {
                Some((s.path.as_str().to_owned(), prior))
            }
            _ => None,
        });
        (written.collect(), state)
    }

    fn keep(snapshot: &mut Snapshot, written: &BTreeMap<String, Bytes>) {
        let groups = snapshot.bystanders.iter_mut().chain(&mut snapshot.above_bystanders);
        let groups = groups.chain(&mut snapshot.ancestors);
        for group in groups.chain(snapshot.workloads.iter_mut().map(|w| &mut w.group)) {
            let to = written.get(group.path.as_str()).copied();
            group.memory.low = to.unwrap_or(group.memory.low);
        }
    }

    /// Seconds and MiB of what dockerd's memory.low is written to while memory is short; it misses 2 MiB in these seconds.
    /// A look that could not read all changes nothing.
    fn lows_of_dockerd(secs: u64, misses: &[u64], gap: Option<u64>) -> Vec<(u64, u64)> {
        let misses: Vec<_> = misses.iter().map(|second| (*second, 500)).collect();
        lows_of_called(secs, &misses, gap)
    }

    /// With so many pages missed in each of these seconds.
    fn lows_of_called(secs: u64, misses: &[(u64, u64)], gap: Option<u64>) -> Vec<(u64, u64)> {
        let mut snapshot = pressed(LruFlavour::Classic);
        let (mut state, mut writes) = (State::default(), Vec::new());
        for second in 0..secs {
            snapshot.at = Millis(second * 1000);
            let missed: u64 = misses.iter().filter(|(at, _)| *at == second).map(|(_, n)| n).sum();
            snapshot.bystanders[0].memory.refault_anon += missed;
            snapshot.gaps.clear();
            let what = "/somebody".to_owned();
            snapshot.gaps.extend((gap == Some(second)).then(|| Gap { what, why: "test".into() }));
            let (written, next) = low(&snapshot, state);
            let own = written.get("system.slice/docker.service");
            writes.extend(own.map(|to| (second, to.0 >> 20)));
            keep(&mut snapshot, &written);
            state = next;
        }
        writes
    }

    #[test]
    fn a_unit_that_misses_nothing_lends_its_floor_until_it_does() {
        let writes = lows_of_dockerd(40, &[30], None);
        assert!(writes[0].1 >= 48, "{writes:?}");
        let (lent, back) = writes.split_at(writes.iter().position(|(s, _)| *s >= 30).unwrap());
        assert!(lent.is_sorted_by(|a, b| a.1 > b.1) && lent.last().unwrap().1 <= 8, "{writes:?}");
        assert!(lent.len() <= 5 && lent.iter().all(|(_, mib)| *mib >= 4), "{writes:?}");
        assert_eq!(lows_of_dockerd(30, &[], Some(20)), lent, "a gap is no end of contention");
        assert!(back[0].0 == 30 && back[0].1 >= 40, "{writes:?}");
        let busy: Vec<u64> = (0..40).step_by(2).collect();
        let lows = lows_of_dockerd(40, &busy, None);
        assert!(
            lows.len() <= 3 && lows.is_sorted_by(|a, b| a.1 <= b.1),
            "it is called every two seconds: {lows:?}"
        );
    }

    /// memory.low of dockerd, of which 60 MiB are missing and that waits for so many microseconds of each second, beside a container
    /// that waits for a third of its time for what it misses.
    fn low_beside_one_that_suffers(
        with: &Settings,
        secs: u64,
        waits_usec: impl Fn(u64) -> u64,
    ) -> Bytes {
        let mut snapshot = pressed(LruFlavour::Classic);
        let (mut state, mut waited) = (State::default(), 0);
        for second in 0..secs {
            snapshot.at = Millis(second * 1000);
            waited += waits_usec(second);
            let web = &mut snapshot.workloads[0].group.memory;
            let unit = &mut snapshot.bystanders[0].memory;
            let both = [(web, second * 333_000, 3_000, 700), (unit, waited, 256, 60)];
            for (memory, total_usec, pages, away) in both {
                let line = PressureLine { avg10_pct: 0.0, total_usec };
                memory.pressure = Some(Pressure { some: line, full: line });
                memory.refault_anon = second * pages;
                memory.swap = MIB(away);
            }
            let (written, next) = low_with(with, &snapshot, state);
            keep(&mut snapshot, &written);
            state = next;
        }
        snapshot.bystanders[0].memory.low
    }

    #[test]
    fn a_unit_that_hardly_waits_for_what_it_misses_lends_its_floor_to_who_suffers() {
        let hardly = |_| 1_000;
        let cold = low_beside_one_that_suffers(&settings(), 60, hardly);
        assert!(cold >= LEAST && cold <= MIB(24), "{cold}");
        let hot = low_beside_one_that_suffers(&settings(), 60, |_| 333_000);
        assert!(hot >= MIB(48), "{hot}");
        let by_byte = low_beside_one_that_suffers(&settings(), 60, |_| 50_000);
        assert!(by_byte >= MIB(48), "it waits less, but for much less: {by_byte}");
        let mut light = settings();
        light.memory.bystanders.weight = Weight::new(101).unwrap();
        let beside_light = low_beside_one_that_suffers(&light, 60, hardly);
        assert!(beside_light >= MIB(48), "who weighs less has no claim to it: {beside_light}");
        let by_size = MemorySettings { controller: Controller::Shares, ..settings().memory };
        let by_size = Settings { memory: by_size, ..settings() };
        let all = low_beside_one_that_suffers(&by_size, 60, hardly);
        assert!(all >= MIB(48), "what it feels does not count: {all}");
    }

    #[test]
    fn a_unit_that_was_cold_has_its_floor_soon_after_it_is_called() {
        let called = |second| if second < 60 { 1_000 } else { 600_000 };
        let low = |secs| low_beside_one_that_suffers(&settings(), secs, called);
        assert!(low(60) <= MIB(24) && low(65) >= MIB(48), "{} {}", low(60), low(65));
    }

    #[test]
    fn a_unit_that_is_called_keeps_what_it_reads_beside_its_floor() {
        let quiet = lows_of_dockerd(60, &[], None);
        let lows = lows_of_called(60, &[(20, 5_000), (21, 5_000)], None);
        let called = lows.iter().filter(|(at, _)| (20..=22).contains(at)).map(|(_, mib)| *mib);
        let most = called.max().unwrap();
        assert!(most >= 80, "a quarter and 39 MiB: {lows:?}");
        assert_eq!(lows.last().unwrap().1, quiet.last().unwrap().1, "{lows:?}");
        let lows = lows_of_called(60, &[(20, 500_000)], None);
        assert!(lows.iter().all(|(_, mib)| *mib <= 200), "no more than its share: {lows:?}");
    }

    #[test]
    fn who_is_called_every_ten_seconds_is_written_to_twice_for_each() {
        let calls: Vec<_> = (10..100).step_by(10).map(|second| (second, 15_000)).collect();
        let lows = lows_of_called(100, &calls, None);
        let within = |from: u64| lows.iter().filter(move |(at, _)| (from..from + 10).contains(at));
        assert!((30..90).step_by(10).all(|from| within(from).count() <= 2), "{lows:?}");
    }

    #[test]
    fn what_came_back_is_protected_no_further_than_the_share_when_that_falls() {
        let mut snapshot = pressed(LruFlavour::Classic);
        let mut state = State::default();
        for second in 0..40 {
            snapshot.at = Millis(second * 1000);
            snapshot.bystanders[0].memory.refault_anon += 20_000;
            if second == 20 {
                // One comes that was promised much, and the share falls by less than half.
                let db = container("db", 13, MIB(12_000), Some(MIB(12_000)));
                snapshot.workloads.push(db);
            }
            let (plan, _) = decide(&settings(), state.clone(), &snapshot);
            let (written, next) = low(&snapshot, state);
            keep(&mut snapshot, &written);
            state = next;
            let docker = plan.verdicts.iter().find(|v| v.name.0 == "docker.service");
            let share = docker.unwrap().share;
            assert!(second < 20 || share < MIB(150), "{second}: {share}");
            let kept = snapshot.bystanders[0].memory.low;
            assert!(kept <= share + Bytes(share.0 / BEYOND) + ROUND, "{second}: {kept} of {share}");
        }
    }

    /// Its share after so many pages came back, on a host with a container of this weight that could use twice what there is.
    fn share_of_called(weight: u16, floor: Bytes, pages: u64) -> (Bytes, Bytes) {
        let web = container("web", 11, MIB(15_000), Some(MIB(30_000)));
        let docker = group("system.slice/docker.service", 21, MIB(200));
        let mut snapshot = host(MIB(15_500), vec![web], vec![docker]);
        snapshot.workloads[0].group.memory.swap = MIB(15_000);
        snapshot.host.lru = Some(LruFlavour::Classic);
        let mut settings = settings();
        settings.rules.push(floor_of("web", floor));
        settings.rules[0].effect.weight = Weight::new(weight.into()).ok();
        let (mut state, mut verdicts) = (State::default(), Vec::new());
        for missed in [0, 0, pages] {
            snapshot.at.0 += 1000;
            snapshot.bystanders[0].memory.refault_anon += missed;
            let (plan, next) = decide(&settings, state, &snapshot);
            (state, verdicts) = (next, plan.verdicts);
        }
        let share = |name| verdicts.iter().find(|v| v.name.0 == name).unwrap().share;
        (share("web"), share("docker.service"))
    }

    #[test]
    fn who_is_called_has_what_it_reads_whatever_others_weigh() {
        let (_, quiet) = share_of_called(10_000, Bytes::ZERO, 0);
        let (_, called) = share_of_called(10_000, Bytes::ZERO, 10_000);
        assert!(called >= quiet + MIB(38), "{called}, {quiet} while nobody calls it");
        let (_, greedy) = share_of_called(10_000, Bytes::ZERO, 50_000);
        assert!(greedy <= quiet + MOST, "{greedy}, {quiet} while nobody calls it");
        let (web, _) = share_of_called(10_000, MIB(15_400), 0);
        assert_eq!(share_of_called(10_000, MIB(15_400), 10_000).0, web, "its floor comes first");
    }

    proptest! {
        #[test]
        fn a_unit_is_owed_no_more_than_came_back_and_all_no_more_than_a_sixteenth(
            total in 1u64..100_000, backs in proptest::collection::vec(0u64..1_000, 0..20)
        ) {
            let mut web = container("web", 11, MIB(100), None);
            let workload = party(&web, None, 100);
            let mut snapshot = host(MIB(total), Vec::new(), Vec::new());
            snapshot.host.lru = Some(LruFlavour::Classic);
            let owed = |units: &[Party<'_>]| owed(&State::default(), &snapshot, units);
            prop_assert_eq!(owed(&[workload]), [Bytes::ZERO]);
            web.group.path = CgroupPath::new("system.slice/web.service");
            let unit = |back: &u64| {
                let missed = Lent::default().next(Millis(1000), MIB(*back), Some(Millis(0)));
                let mut party = party(&web, None, 100);
                (party.kind, party.estimate.lent) = (VerdictKind::Bystander, missed);
                party
            };
            let units: Vec<_> = backs.iter().map(unit).collect();
            let owed = owed(&units);
            let each = Bytes(MIB(total).0 / OWED).min(MOST);
            for (owed, back) in owed.iter().zip(&backs) {
                prop_assert!(*owed <= MIB(*back).min(each), "{owed} of {back} MiB");
            }
            let sum: Bytes = owed.iter().copied().sum();
            prop_assert!(sum <= each + each);
            let all: Bytes = backs.iter().map(|back| MIB(*back)).sum();
            prop_assert!(sum + Bytes(backs.len() as u64) >= all.min(each), "{sum} of {all}");
        }
    }

    #[test]
    fn where_memory_low_is_heeded_units_keep_their_floor() {
        let (ignored, _) = low(&pressed(LruFlavour::Mglru), State::default());
        assert!(ignored.keys().all(|path| path.starts_with("a.slice")), "{ignored:?}");
        let (heeded, _) = low(&pressed(LruFlavour::Classic), State::default());
        let dockerd = heeded["system.slice/docker.service"];
        assert_eq!(dockerd, MIB(50), "a quarter");
        // And what is too small to be seen.
        assert!(heeded["system.slice"] >= dockerd + MIB(40), "{heeded:?}");
        assert!(heeded.keys().all(|path| !path.starts_with("user.slice")), "{heeded:?}");
    }

    proptest! {
        /// What is written is enough and not twice too much, and a need that moves by little moves nothing.
        #[test]
        fn a_floor_is_covered_closely_and_stands_still(
            now in 0u64..200_000, least in 0u64..100_000, more in 0u64..20, left in 0u64..100_000
        ) {
            let [now, least, left] = [now, least, left].map(|kib| Bytes(kib << 10));
            let most = least + left;
            let kept = steady(now, least, most);
            prop_assert!(kept >= least && kept <= least.max(ROUND) + least.max(ROUND));
            prop_assert!(kept <= most + Bytes(most.0 / BEYOND) + ROUND, "{kept} of {most}");
            let little_more = Bytes(least.0 + least.0 * more / 100).min(most);
            let after = steady(kept, little_more, most);
            prop_assert_eq!(steady(after, least, most), after, "it does not swing");
        }
    }

    #[test]
    fn what_an_administrator_protects_stays_as_it_is() {
        let mut snapshot = pressed(LruFlavour::Classic);
        snapshot.bystanders[0].memory.low = MIB(20);
        let (written, _) = low(&snapshot, State::default());
        assert!(!written.contains_key("system.slice/docker.service"), "{written:?}");
    }

    #[test]
    fn it_is_put_back_where_memory_low_is_ignored_again() {
        let mut snapshot = pressed(LruFlavour::Classic);
        let (written, state) = low(&snapshot, State::default());
        snapshot.at = Millis(2_000);
        keep(&mut snapshot, &written);
        let (again, state) = low(&snapshot, state);
        assert_eq!(again, BTreeMap::new(), "a steady world");
        (snapshot.host.lru, snapshot.at) = (Some(LruFlavour::Mglru), Millis(30_000));
        let (back, _) = low(&snapshot, state);
        for path in ["system.slice/docker.service", "system.slice"] {
            assert_eq!(back.get(path), Some(&Bytes::ZERO), "{path} {back:?}");
        }
    }
}
