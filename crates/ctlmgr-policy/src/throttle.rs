//! Throttling: memory.high on those above their share, where early reclaim does not suffice.
//!
//! # Problem
//! Who allocates faster than one reclaim per second can take back drives the host into global
//! reclaim, and that hits everybody.
//!
//! # Approach
//! Two reasons for a memory.high: a *ramp* while contention is near: nobody without a promise may take all that is free between
//! two looks; and a *brake* while the host stalls and somebody suffers: whoever is far above its
//! share is held where it is, then stepped down as it shrinks. It is never set below present use:
//! the kernel would reclaim the difference within the write, in PID 1 (`memory_high_write()` in mm/memcontrol.c).
//!
//! # Terms
//! *Ceiling*: share + the larger of 32 MiB and 10 %. *Free*: what is free above the kernel's
//! watermark, or what nobody asks for if that is more. *Room*: half of it. *Near*, *tense*, *suffering*: [`crate::scene`].
//!
//! # Algorithm
//! Ramp: for whoever holds at least 1/64 of the machine: use + room, at least the share and the
//! promise, while contention was near lately. It is written again only when less than half of the
//! room is left, or more than half as much again. Who gives way by weight and is a step (or what is left to background
//! reclaim, [`crate::room`]) above its share while memory is short in fact, and some other workload (of at least 1/64 of the machine) keeps all it needs or lacks some of its share, has a step of room, and its limit goes down with it but not up;
//! if it stands still, up to its ceiling. The same holds for whose page cache crowds out that of others while the host is
//! swept ([`crate::scene`]): it goes round within what it has, and where page cache is taken from it ([`crate::reclaim`]) the limit
//! goes down by half of that ([`tighten`]), because it would be full again before the next look, but not to where it would be let go.
//!
//! Brake: enter when tense, above the ceiling, and somebody suffers; stay, unless it holds clearly
//! less than its share, until the host has been calm for a while. The value is the lower of the
//! present one and use + slack, at least the ceiling; if everything in the one braked stands still
//! (PSI `full` ≥ [`GUARD`]), it is raised a step instead, as far as that can be our doing.
//! What one was let off is not taken again within [`LET_OFF`] but for more than the most that is let off, or its limit would go up and down with the guard.
//!
//! # Properties
//! Never below the share, a unit's never below that by weight, nor written below present use less what is reclaimed before, a ramp never below the promise; never above what was
//! there before; no new brake without PSI or with nobody suffering; nothing on who is spared; after a
//! rest nothing is left; nothing where systemd-oomd could kill soon ([`crate::oomd`]).

use ctlmgr_model::{Bytes, Group, Knob, Millis, Percent, Step};

use crate::crowding::crowd;
use crate::keeping::Keeping;
use crate::oomd;
use crate::scene::{SMALL, Scene};

/// Standstill (`full`, 10 s) of the throttled one at which it is let off a little, in per cent.
const GUARD: f32 = 20.0;
/// Least room above the share, and least step.
const ROOM: Bytes = Bytes::mib(32);
const STEP: Bytes = Bytes::mib(16);
const ROOM_PART: Percent = Percent(10);
/// For so long one that was let off keeps that.
const LET_OFF: Millis = Millis(60_000);

/// A group and the memory.high that it should have.
pub(crate) struct Throttled<'a> {
    pub group: &'a Group,
    pub high: Bytes,
    /// Held where it is, not only kept from jumping.
    pub is_braked: bool,
    /// Its page cache crowds out that of others.
    pub is_crowding: bool,
    pub why: String,
}

/// Everybody who should have a memory.high from us now.
pub(crate) fn throttle<'a>(scene: &Scene<'a, '_>) -> Vec<Throttled<'a>> {
    let throttled = |own: &Keeping<'a, '_>| {
        let keeping = &own.for_limits();
        let (high, is_braked, why) = ask(scene, keeping)
            .map(|(high, why)| (high, true, why))
            .or_else(|| match freedom(scene, keeping) {
                Freedom::Full => {
                    let braked = brake(scene, keeping).map(|(high, why)| (high, true, why));
                    braked.or_else(|| ramp(scene, keeping).map(|(high, why)| (high, false, why)))
                }
                Freedom::ToKeep => keep(scene, keeping),
                Freedom::None => None,
            })?;
        let (group, is_crowding) = (keeping.party.group, scene.crowds(keeping));
        // What cannot be taken is not held back either.
        let high = high.max(own.share).page_ceil();
        Some(Throttled { group, high, is_braked, is_crowding, why })
    };
    let may_be = scene.all.iter().filter(|k| !scene.is_spared(k.party));
    may_be.filter_map(throttled).collect()
}

/// Lets the limits of those who crowd out others go down with what is reclaimed from them right before. Half of it: the
/// rest may be full again by then, and a limit below use would be reclaim in the writer. Who has none yet gets one first,
/// because one that use overtakes is not written.
pub(crate) fn tighten(throttled: &mut [Throttled<'_>], scene: &Scene<'_, '_>, taking: &[Step]) {
    let may_be = |t: &&mut Throttled<'_>| {
        let has_one = scene.state.ours(t.group, Knob::MemoryHigh).is_some();
        let is_free =
            !stands_still(scene, t.group) && !oomd::is_close(&scene.snapshot.oomd, &t.group.path);
        t.is_crowding && has_one && is_free
    };
    for one in throttled.iter_mut().filter(may_be) {
        let is_it = |s: &&Step| s.id == one.group.id;
        let taken = taking.iter().filter(is_it).filter_map(|s| s.action.amount_to_reclaim());
        let Some(own) = scene.all.iter().find(|k| k.id() == one.group.id) else { continue };
        let promise = own.party.entitlement.promise.unwrap_or_default();
        // With less page cache than this it would be let go, and held again ([`Scene::crowds`]).
        let kept = scene.most_crowd().scaled(Percent(75));
        let least = own.for_limits().share.max(own.share).max(promise) + kept;
        let half = Bytes(taken.sum::<Bytes>().0 / 2);
        let lower = (one.group.memory.current - half).max(least).page_ceil();
        if half > Bytes::ZERO {
            one.high = one.high.min(lower);
        }
    }
}

/// What systemd-oomd leaves us to do with a memory.high ([`crate::oomd`]).
enum Freedom {
    Full,
    ToKeep,
    None,
}

fn freedom(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> Freedom {
    let (oomd, group) = (&scene.snapshot.oomd, keeping.party.group);
    let has_one = scene.state.ours(group, Knob::MemoryHigh).is_some();
    let waits = stands_still(scene, group) || group.memory.pressure.is_none();
    match (oomd::is_close(oomd, &group.path), oomd::is_near(oomd, &group.path)) {
        (true, _) if waits => Freedom::None,
        (true, _) => Freedom::ToKeep,
        (false, true) if !has_one => Freedom::None,
        _ => Freedom::Full,
    }
}

/// The limit that it has, as it is.
fn keep(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> Option<(Bytes, bool, String)> {
    let group = keeping.party.group;
    let present = scene.state.ours(group, Knob::MemoryHigh).filter(|_| scene.settings.throttle)?;
    let why = "systemd-oomd could kill soon: its limit stays as it is".to_owned();
    let high = present.max(keeping.share).max(group.memory.current);
    Some((high, scene.state.braked.contains(&group.path), why))
}

/// Makes felt, in its own memory pressure, that a workload is about to be stopped
/// ([`crate::kill`]).
fn ask(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> Option<(Bytes, String)> {
    scene.state.asked.filter(|(id, _)| *id == keeping.id())?;
    let class = keeping.party.entitlement.class.as_ref();
    class.filter(|c| scene.settings.kill.contains(*c))?;
    let group = keeping.party.group;
    let fresh = group.memory.current + Bytes::mib(1);
    // One that followed its use up would hardly be felt.
    let present = scene.state.ours(group, Knob::MemoryHigh).unwrap_or(fresh);
    let high = present.min(fresh).max(keeping.share);
    Some((high, "asked to give up memory before it is stopped".to_owned()))
}

/// Holds back who is far above its share while others go short.
fn brake(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> Option<(Bytes, String)> {
    if !scene.settings.throttle {
        return None;
    }
    let group = keeping.party.group;
    let was_braked = scene.state.braked.contains(&group.path);
    let present = scene.state.ours(group, Knob::MemoryHigh).filter(|_| was_braked);
    let victim = scene.victim();
    let is_above_ceiling = group.memory.current > ceiling(keeping.share);
    let high = match (present, victim) {
        (Some(present), _) if scene.is_recently_uneasy() && is_above(keeping) => {
            next(scene, keeping, present)
        }
        (None, Some(_)) if scene.tense_for().is_some() && is_above_ceiling => fresh(keeping),
        _ => return None,
    };
    let who = victim.map_or("somebody".to_owned(), |v| v.party.name.0.clone());
    let why = format!(
        "holds {} of a share of {} while {who} goes short: growth is slowed down",
        group.memory.current, keeping.share
    );
    Some((high, why))
}

/// Lets nobody take all that is free before the next look.
fn ramp(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> Option<(Bytes, String)> {
    let (group, host) = (keeping.party.group, &scene.snapshot.host);
    let present = scene.state.ours(group, Knob::MemoryHigh);
    // Who has one keeps it down to half of that, or it would come and go.
    let small = host.mem_total.0 / if present.is_some() { SMALL * 2 } else { SMALL };
    let is_due = scene.settings.throttle && scene.is_recently_near();
    if !is_due || group.memory.current < Bytes(small) {
        return None;
    }
    // What nobody asks for counts as free: page cache may fill all the rest, but not crowd out that of others.
    let crowds = scene.crowds(keeping);
    let unasked = match crowds {
        true => Bytes::ZERO,
        false => scene.account.capacity - scene.account.demand,
    };
    let free = (host.mem_free - host.watermark).max(unasked);
    let entitled = keeping.share.max(keeping.party.entitlement.promise.unwrap_or_default());
    let is_taken_for = crowds && (scene.is_scarce() || scene.is_being_robbed());
    let is_over = is_over(scene, keeping) || (is_taken_for && !stands_still(scene, group));
    let room = if is_over { STEP } else { Bytes(free.0 / 2).max(STEP) };
    let fresh = (group.memory.current + room).max(entitled);
    let is_fit = |high: &Bytes| {
        let left = *high - group.memory.current;
        *high >= entitled && left.0 >= room.0 / 2 && left.0 <= room.0 / 2 * 3
    };
    let high = match present {
        Some(present) if is_over => {
            let least = if stands_still(scene, group) { ceiling(keeping.share) } else { entitled };
            let lower =
                if crowds { present.min(fresh) } else { lower(scene, group, present, fresh) };
            lower.max(least.min(present + STEP)).max(entitled).max(group.memory.current)
        }
        Some(present) if is_fit(&present) => present,
        // That background reclaim took more than was missing leaves no room for more of it.
        Some(present) if crowds && !stands_still(scene, group) => {
            present.max(entitled).max(group.memory.current)
        }
        _ => fresh,
    };
    let why = match is_over {
        true if crowds => format!(
            "{} of its page cache are beyond what it needs and was promised, and the kernel takes from everybody for it",
            crowd(keeping.party)
        ),
        true => format!("memory is short, and it holds more than its share of {}", keeping.share),
        false => format!("{free} are free: not all of it for one before the next look"),
    };
    Some((high, why))
}

/// Who gives way by weight and holds more than it may, while memory is short in fact and somebody else has to be kept from
/// harm: what it takes beyond is taken from it again, so its limit does not follow it up. What others hold beyond their
/// need is cache, and no excess. Where all give way and none lacks its share a limit would make each wait for itself.
fn is_over(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>) -> bool {
    // What background reclaim takes back by itself is no excess either.
    let most = keeping.open().max(STEP);
    let is_over = scene.is_short() && keeping.gives_way() && keeping.excess() > most;
    let least = Bytes(scene.snapshot.host.mem_total.0 / SMALL);
    is_over && scene.all.iter().any(|other| other.id() != keeping.id() && other.is_ward(least))
}

/// Whether everything in it waits for memory.
pub(crate) fn stands_still(scene: &Scene<'_, '_>, group: &Group) -> bool {
    let guard = oomd::guard_pct(&scene.snapshot.oomd, &group.path, GUARD);
    group.memory.pressure.is_some_and(|p| p.full.avg10_pct >= guard)
}

fn ceiling(share: Bytes) -> Bytes {
    share + share.scaled(ROOM_PART).max(ROOM)
}

/// Just above what it holds: it may breathe, not grow.
fn above_use(group: &Group) -> Bytes {
    group.memory.current + group.memory.current.scaled(Percent(2)).max(STEP)
}

fn fresh(keeping: &Keeping<'_, '_>) -> Bytes {
    above_use(keeping.party.group).max(ceiling(keeping.share))
}

/// Reclaim aims at the share itself, so letting go takes a step below it.
fn is_above(keeping: &Keeping<'_, '_>) -> bool {
    keeping.party.group.memory.current + STEP > keeping.share
}

/// The lower of both, unless it was let off lately and this is no more than that.
fn lower(scene: &Scene<'_, '_>, group: &Group, present: Bytes, to: Bytes) -> Bytes {
    let is_raised = |at: Millis| scene.snapshot.at.since(at) < LET_OFF;
    let was_let_off = scene.state.raised_at(group, Knob::MemoryHigh).is_some_and(is_raised);
    // The most that is let off, and what use may have moved meanwhile.
    let little = ROOM + present.scaled(Percent(2)).max(STEP);
    if was_let_off && present - to < little { present } else { present.min(to) }
}

fn next(scene: &Scene<'_, '_>, keeping: &Keeping<'_, '_>, present: Bytes) -> Bytes {
    let group = keeping.party.group;
    let near = above_use(group).max(ceiling(keeping.share));
    let next = match stands_still(scene, group) {
        // Further away than this it is not ours that it runs into.
        true => (present + present.scaled(Percent(5)).max(STEP)).min(near + ROOM),
        false => lower(scene, group, present, near),
    };
    next.max(ceiling(keeping.share)).max(group.memory.current)
}
