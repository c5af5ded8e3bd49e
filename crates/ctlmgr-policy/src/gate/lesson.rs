//! What a start teaches: its character, and a profile of those like it.

use ctlmgr_model::{
    Bytes, Character, DISKS, Io, MemorySample, Millis, Moved, Percent, Profile, Requests, Running,
};

use super::{Mix, Traits, Use};

/// Up to this a container is quiet that does not wait for a disk, whatever it does later, in bytes per second.
const QUIET_PER_SEC: Bytes = Bytes::mib(1);
/// Who waits for a disk for this part of the time is at work there, however little comes of it, in per cent:
/// a disk that moves its head makes no more of small requests at random.
const WAITING: u64 = 25;
/// With fewer requests in a second waiting says nothing: it is for a server elsewhere, or for events (io_uring), or
/// behind somebody else's requests.
const AT_WORK_PER_SEC: u64 = 10;
/// A request of at least this size in the mean is part of a sequence: readahead and writeback merge
/// what lies together (16 KiB is the least that readahead starts with).
const SEQUENTIAL: Bytes = Bytes(48 * 1024);
/// One direction prevails with this part of the bytes, in per cent.
const PREVAILS: u64 = 75;
/// A start that keeps this part of a processor busy and is quiet otherwise is one of processor time.
const BUSY_MILLI: u64 = 500;

/// Whether this is little in this time, for one that moves `steady` per second in normal running (zero if that
/// is not known).
pub fn is_quiet(io: &Io, passed: Millis, steady: Bytes) -> bool {
    let rate = per_sec(io.moved(), passed);
    let is_steady = steady > Bytes::ZERO && rate.0 <= steady.0.saturating_mul(2);
    // In thousandths times per cent.
    let is_waiting = io.waited_usec / passed.0.max(1) >= WAITING * 10;
    let requests = per_sec(Bytes(io.reads.saturating_add(io.writes)), passed).0;
    let is_at_work = is_waiting && requests >= AT_WORK_PER_SEC;
    is_steady || (rate <= QUIET_PER_SEC && !is_at_work)
}

/// An amount per second.
pub fn per_sec(amount: Bytes, passed: Millis) -> Bytes {
    let whole = u128::from(amount.0) * 1000 / u128::from(passed.0.max(1));
    Bytes(u64::try_from(whole).unwrap_or(u64::MAX))
}

/// Processors kept busy, in thousandths.
pub fn busy_milli(io: &Io, passed: Millis) -> u64 {
    io.cpu_usec / passed.0.max(1)
}

/// The character of a start: direction by bytes; sequential or random by runs of requests where they
/// are traced, else by the mean size of requests in io.stat, to which sequential requests that nothing
/// merges look random, and large random ones sequential.
pub fn classify(io: &Io, lasted: Millis) -> Character {
    if is_quiet(io, lasted, Bytes::ZERO) {
        return match busy_milli(io, lasted) >= BUSY_MILLI {
            true => Character::Cpu,
            false => Character::Quiet,
        };
    }
    let all = whole(io);
    match written(&all) {
        Percent(0) => how_it_reads(&all),
        Percent(100) => how_it_writes(&all),
        _ => Character::Mixed,
    }
}

/// All disks together.
fn whole(io: &Io) -> Moved {
    let Io { read, written, reads, writes, shape, .. } = *io;
    Moved { read, written, reads, writes, shape }
}

/// Part of the bytes that are written; none or all if one direction prevails.
fn written(moved: &Moved) -> Percent {
    let all = u128::from(moved.bytes().0.max(1));
    let of = |part: Bytes| u128::from(part.0) * 100;
    match () {
        () if of(moved.read) >= all * u128::from(PREVAILS) => Percent(0),
        () if of(moved.written) >= all * u128::from(PREVAILS) => Percent(100),
        () => Percent(u8::try_from(of(moved.written) / all).unwrap_or(100)),
    }
}

fn how_it_reads(io: &Moved) -> Character {
    match is_sequential(io.read, io.reads, io.shape.unwrap_or_default().read) {
        true => Character::SequentialRead,
        false => Character::RandomRead,
    }
}

fn how_it_writes(io: &Moved) -> Character {
    match is_sequential(io.written, io.writes, io.shape.unwrap_or_default().write) {
        true => Character::SequentialWrite,
        false => Character::RandomWrite,
    }
}

fn is_sequential(bytes: Bytes, requests: u64, traced: Requests) -> bool {
    // What was seen of a small part of it says nothing of the rest. Stacked devices count twice.
    match traced.bytes.0 > bytes.0 / 4 {
        false => bytes.0 / requests.max(1) >= SEQUENTIAL.0,
        true => traced.sequential.0 >= traced.bytes.0 / 2,
    }
}

/// What it is made of.
fn mix(moved: &Moved) -> Mix {
    match written(moved) {
        Percent(0) => of_one(how_it_reads(moved)),
        Percent(100) => of_one(how_it_writes(moved)),
        written => Mix { read: how_it_reads(moved), write: how_it_writes(moved), written },
    }
}

/// Whatever the direction: so that those that cost others the same are the same.
fn of_one(character: Character) -> Mix {
    Mix { read: character, write: character, written: Percent(0) }
}

/// What it does to each disk; a character that somebody stated is what it does to all of them.
fn uses(io: &Io, stated: Option<Character>) -> [Option<Use>; DISKS] {
    let all: u128 = io.disks.iter().map(|(_, moved)| u128::from(moved.bytes().0)).sum();
    // What a mixed one is made of is known better than that.
    let stated = stated.filter(|c| *c != Character::Mixed);
    let mut uses = [None; DISKS];
    for (place, (disk, moved)) in uses.iter_mut().zip(io.disks.iter()) {
        let part = u128::from(moved.bytes().0) * 100 / all.max(1);
        let part = Percent(u8::try_from(part).unwrap_or(100));
        *place = Some(Use { disk, part, mix: stated.map_or_else(|| mix(&moved), of_one) });
    }
    uses
}

/// A mean follows the last starts: each new one counts for at least this part, one in …
const MEMORY: u32 = 4;

/// One start says no more than this about the next.
const FIRST: Percent = Percent(50);

/// What is known after one more start. `steady` is what it moves per second in normal running; one that
/// has ended says nothing of that: it was at work until its end.
pub fn learn(known: Option<&Profile>, io: Io, lasts: Millis, steady: Option<Bytes>) -> Profile {
    let Some(known) = known.filter(|k| k.starts > 0) else {
        let character = classify(&io, lasts);
        return Profile {
            running: known.and_then(|k| k.running),
            character,
            starts: 1,
            io,
            lasts,
            alone: None,
            steady_per_sec: steady.unwrap_or_default(),
            confidence: FIRST,
            learned_unix: 0,
        };
    };
    let starts = known.starts.saturating_add(1);
    let mean = |old: u64, new: u64| mean_of(starts.min(MEMORY), old, new);
    let mixed = mixed(known.io, io, mean);
    let character = classify(&mixed, Millis(mean(known.lasts.0, lasts.0)));
    let is_like_that = if classify(&io, lasts) == character { 100 } else { 0 };
    Profile {
        character,
        starts,
        io: mixed,
        lasts: Millis(mean(known.lasts.0, lasts.0)),
        alone: known.alone,
        // What was learned wrongly fades.
        steady_per_sec: Bytes(mean(known.steady_per_sec.0, steady.unwrap_or_default().0)),
        confidence: Percent(
            u8::try_from(mean(known.confidence.0.into(), is_like_that)).unwrap_or(100),
        ),
        learned_unix: 0,
        running: known.running,
    }
}

/// The mean of the last `n`, of which `new` is the last and `old` the mean of those before.
fn mean_of(n: u32, old: u64, new: u64) -> u64 {
    let n = u128::from(n.max(1));
    u64::try_from((u128::from(old) * (n - 1) + u128::from(new)) / n).unwrap_or(u64::MAX)
}

fn mixed(known: Io, new: Io, mean: impl Fn(u64, u64) -> u64) -> Io {
    Io {
        read: Bytes(mean(known.read.0, new.read.0)),
        written: Bytes(mean(known.written.0, new.written.0)),
        reads: mean(known.reads, new.reads),
        writes: mean(known.writes, new.writes),
        cpu_usec: mean(known.cpu_usec, new.cpu_usec),
        waited_usec: mean(known.waited_usec, new.waited_usec),
        disks: match (known.disks.is_empty(), new.disks.is_empty()) {
            (true, _) => new.disks,
            (false, true) => known.disks,
            (false, false) => known.disks.with(new.disks, &mean),
        },
        // What was not traced says nothing of the shape.
        shape: match (known.shape, new.shape) {
            (Some(known), Some(new)) => Some(known.with(new, mean)),
            (known, new) => new.or(known),
        },
    }
}

/// Looks at one that runs of which the mean is made.
const LOOKS: u32 = 8;
const MINUTE: Millis = Millis(60_000);

/// What is known after one more look at one that runs: in the time that passed since the last look it did
/// `io`, and now it has `memory`.
pub fn learn_running(
    known: Option<&Profile>,
    io: Io,
    passed: Millis,
    memory: &MemorySample,
) -> Profile {
    let minute = in_a_minute(io, passed);
    let before = known.and_then(|k| k.running);
    let looks = before.map_or(0, |r| r.looks).saturating_add(1);
    let mean = |old: u64, new: u64| mean_of(looks.min(LOOKS), old, new);
    let last = |of: fn(&Running) -> Bytes, new: Bytes| {
        Bytes(before.as_ref().map_or(new.0, |r| mean(of(r).0, new.0)))
    };
    let per_minute = before.map_or(minute, |r| mixed(r.per_minute, minute, mean));
    let character = classify(&per_minute, MINUTE);
    let is_like_that = if classify(&minute, MINUTE) == character { 100 } else { 0 };
    let confidence = before.map_or(FIRST.0.into(), |r| mean(r.confidence.0.into(), is_like_that));
    let running = Running {
        character,
        confidence: Percent(u8::try_from(confidence).unwrap_or(100)),
        per_minute,
        working_set: last(|r| r.working_set, memory.working_set()),
        page_cache: last(|r| r.page_cache, memory.page_cache()),
        held: last(|r| r.held, memory.current),
        looks,
    };
    match known.filter(|k| k.starts > 0) {
        Some(known) => Profile { running: Some(running), ..known.clone() },
        None => Profile {
            character,
            starts: 0,
            io: per_minute,
            lasts: MINUTE,
            alone: None,
            // Or its start would count for over as soon as it does no more than that.
            steady_per_sec: Bytes::ZERO,
            confidence: running.confidence,
            learned_unix: 0,
            running: Some(running),
        },
    }
}

/// What is done in a minute where this is done in `passed`.
fn in_a_minute(io: Io, passed: Millis) -> Io {
    let part = |amount: u64, _| {
        let part = u128::from(amount) * u128::from(MINUTE.0) / u128::from(passed.0.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    mixed(io, io, part)
}

/// Takes the length of a start beside which nobody used the disk into the profile.
pub fn learn_alone(profile: &mut Profile, lasted: Millis) {
    let mean = |old: Millis| Millis((old.0 * u64::from(MEMORY - 1) + lasted.0) / u64::from(MEMORY));
    profile.alone = Some(profile.alone.map_or(lasted, mean));
}

/// Page cache that it fills: what it reads, but no more than it was seen to hold if that is known. Who reads the same again
/// and again, or past the page cache, fills less of it.
fn cached(profile: &Profile) -> Bytes {
    let held = profile.running.filter(|r| r.looks > 0).map(|r| r.page_cache.max(r.working_set));
    held.map_or(profile.io.read, |held| profile.io.read.min(held))
}

/// What a profile says about a start to come; `stated` is what a label says of its character.
pub fn traits(profile: Option<&Profile>, stated: Option<Character>) -> Traits {
    // One that is quiet while it runs may still do much to get there.
    let is_quiet = |c| matches!(c, Character::Quiet | Character::Cpu);
    let profile = profile.filter(|p| p.starts > 0 || !is_quiet(p.character));
    let character = stated.or(profile.map(|p| p.character));
    let reads =
        |c| matches!(c, Character::RandomRead | Character::SequentialRead | Character::Mixed);
    Traits {
        character,
        mix: profile
            .filter(|p| p.character == Character::Mixed && p.io.moved() > Bytes::ZERO)
            .map(|p| mix(&whole(&p.io))),
        cpu_milli: profile.map_or(0, |p| busy_milli(&p.io, p.lasts)),
        disks: profile.map_or([None; DISKS], |p| uses(&p.io, stated)),
        // What one reads in a minute of normal running says nothing of how much it reads to start.
        cache: profile.filter(|p| p.starts > 0 && reads(p.character)).map_or(Bytes::ZERO, cached),
    }
}
