//! What the upper rungs of the ladder look at: how tense the host is, and who suffers.
//!
//! # Terms
//! *Near*: contention is there or could come with one burst. *Tense*: contended, and tasks of the host stalled for at least [`ENTRY`] of the last 10 s.
//! *Short*: free memory is hardly above headroom. *Uneasy*: contended, short, and stalled for at
//! least [`EXIT`] or by an unknown part. *Dire*: contended,
//! and everything stood still for at least [`DIRE`] of the last 10 s, or memory is used up ([`crate::used_up`]). *Swept*: not contended, and yet the kernel takes memory by
//! itself: somebody fills it with page cache that nobody asked for, and global reclaim under MGLRU takes that of others, too,
//! protected or not, and somebody misses it; *being robbed* at a look that sees it happen. *Crowd*: page cache that one holds beyond what it needs and was promised.
//!
//! # Properties
//! Without PSI nothing is tense; without contention nothing is tense, uneasy or dire.

use ctlmgr_model::{
    Bytes, CapacityAccount, Group, HostSample, Knob, MemorySettings, Millis, SliceAccount,
    Snapshot, Source,
};
use serde::{Deserialize, Serialize};

use crate::crowding::crowd;
use crate::demand::{Estimate, per_sec};
use crate::keeping::Keeping;
use crate::oomd;
use crate::state::State;
use crate::swap::{has_swap, room};
use crate::used_up::{Due, is_used_up};
use crate::verdict::Party;

/// Host-wide stall (`some`, 10 s) at which the upper rungs begin, and end, in per cent.
const ENTRY: f32 = 10.0;
const EXIT: f32 = 2.0;
/// Host-wide standstill (`full`, 10 s) at which a stop is considered, in per cent.
const DIRE: f32 = 20.0;
/// Calm must last this long.
pub(crate) const REST: Millis = Millis(30_000);
/// So many pages that the kernel takes by itself in a second are more than a trifle (4 MiB).
const SWEPT: u64 = 1024;
/// What it took since the last look is taken to be of so long at most: nobody looks while all is calm, and it begins within.
const ONSET: Millis = Millis(2_000);
/// Who holds less than this part of the machine crowds out nobody.
pub(crate) const SMALL: u64 = 64;

/// Refaults per second (1 MiB), and part of the time in millionths, from which on a workload feels
/// what it misses.
const THRASHING: u64 = 256;
const STALLING: u32 = 50_000;

/// Since when the host is how tense.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tension {
    /// When contention was last there or near.
    pub near_at: Option<Millis>,
    /// When the host was last uneasy.
    pub uneasy_at: Option<Millis>,
    /// Since when it is tense without a break.
    pub tense_since: Option<Millis>,
    /// Since when it is dire without a break.
    pub dire_since: Option<Millis>,
    /// Since when memory is used up, without a break.
    #[serde(default)]
    pub used_up_since: Option<Millis>,
    /// When memory was last contended.
    #[serde(default)]
    pub contended_at: Option<Millis>,
    /// Pages that the kernel had taken by itself at the last look, and when that was.
    #[serde(default)]
    pub stolen: Option<(Millis, u64)>,
    /// When it was last swept.
    #[serde(default)]
    pub swept_at: Option<Millis>,
    /// When the kernel was last seen to take what somebody misses although all that is asked for is there.
    #[serde(default)]
    pub robbed_at: Option<Millis>,
}

impl Tension {
    /// Whether contention has been neither there nor near for a while.
    pub(crate) fn is_calm(&self, now: Millis) -> bool {
        self.near_at.is_none_or(|at| now.since(at) >= REST)
    }

    /// Whether it was swept within the last [`REST`].
    pub(crate) fn is_swept(&self, now: Millis) -> bool {
        self.swept_at.is_some_and(|at| now.since(at) < REST)
    }

    /// Whether the kernel takes from somebody by itself now although all that is asked for is there. How much is free just
    /// then says nothing: background reclaim takes more than is missing, and for pages in a row as well.
    fn is_being_robbed(&self, account: &CapacityAccount, now: Now<'_>) -> bool {
        let host = &now.snapshot.host;
        let since = self.stolen.zip(host.stolen);
        let passed = |at| now.snapshot.at.since(at).min(ONSET);
        let rate = since.map_or(0, |((at, was), is)| per_sec(was, is, passed(at)));
        !account.is_contended() && rate >= SWEPT && now.is_robbed
    }

    /// Whether it goes on being swept. Once somebody is kept from filling memory the kernel takes no more; so it is over
    /// when nobody who is held back so reads or writes any more, or enough is free.
    fn is_still_swept(&self, account: &CapacityAccount, now: Now<'_>) -> bool {
        let is_short = !account.is_contended() && is_short(account, &now.snapshot.host);
        is_short && now.is_filling && self.is_swept(now.snapshot.at)
    }

    /// With one more look at the host.
    pub(crate) fn next(self, account: &CapacityAccount, now: Now<'_>) -> Tension {
        let snapshot = now.snapshot;
        let is_robbed = self.is_being_robbed(account, now);
        let is_swept = is_robbed || self.is_still_swept(account, now);
        let (at, host) = (snapshot.at, &snapshot.host);
        let since = |before: Option<Millis>, is_so: bool| is_so.then(|| before.unwrap_or(at));
        let is_used_up = is_used_up(account, host, now.due, self.used_up_since);
        let used_up_since = since(self.used_up_since, is_used_up);
        let is_dire =
            used_up_since.is_some() || (account.is_contended() && standstill(host).is_some());
        Tension {
            near_at: if account.is_near_contention() || is_swept { Some(at) } else { self.near_at },
            uneasy_at: if is_uneasy(account, host) { Some(at) } else { self.uneasy_at },
            tense_since: since(self.tense_since, is_tense(account, host)),
            dire_since: since(self.dire_since, is_dire),
            used_up_since,
            contended_at: if account.is_contended() { Some(at) } else { self.contended_at },
            stolen: host.stolen.map(|pages| (at, pages)),
            swept_at: if is_swept { Some(at) } else { self.swept_at },
            robbed_at: if is_robbed { Some(at) } else { self.robbed_at },
        }
    }
}

/// So much a second is more than a service reads or writes by the way.
const FILLING: Bytes = Bytes::mib(4);

/// Whether it reads from disks, or writes to them, as one does that fills memory with page cache.
pub(crate) fn is_at_work(estimate: &Estimate) -> bool {
    estimate.doing.read_per_sec + estimate.doing.written_per_sec >= FILLING
}

/// One more look at the host.
#[derive(Clone, Copy)]
pub(crate) struct Now<'a> {
    pub snapshot: &'a Snapshot,
    /// Whether somebody whom we keep from crowding out others reads from disks, or writes to them.
    pub is_filling: bool,
    /// Whether somebody misses what was taken from it.
    pub is_robbed: bool,
    /// Page cache that is due.
    pub due: Due,
}

/// Whether it feels that something is missing.
pub(crate) fn feels_it(estimate: &Estimate) -> bool {
    estimate.refaults_per_sec >= THRASHING || estimate.stall.ppm.is_some_and(|s| s > STALLING)
}

fn is_tense(account: &CapacityAccount, host: &HostSample) -> bool {
    account.is_contended() && host.pressure.is_some_and(|p| p.some.avg10_pct >= ENTRY)
}

/// Unknown is uneasy: who is held back already stays so only as long as memory is contended.
fn is_uneasy(account: &CapacityAccount, host: &HostSample) -> bool {
    // By estimate and in fact: who is held back must not keep the host uneasy by its own waiting.
    let is_stalling = host.pressure.is_none_or(|p| p.some.avg10_pct >= EXIT);
    account.is_contended() && is_short(account, host) && is_stalling
}

/// Whether free memory is about where early reclaim keeps it, or below: estimates fade slowly.
fn is_short(account: &CapacityAccount, host: &HostSample) -> bool {
    host.mem_free < account.headroom + Bytes(account.headroom.0 / 4)
}

/// Part of the last 10 s in which everything stood still, in per cent, if that is as much as it takes to be dire.
fn standstill(host: &HostSample) -> Option<f32> {
    host.pressure.map(|p| p.full.avg10_pct).filter(|full| *full >= DIRE)
}

/// What the whole host looks like to the upper rungs.
pub(crate) struct Scene<'a, 's> {
    pub settings: &'s MemorySettings,
    pub account: &'s CapacityAccount,
    pub state: &'s State,
    pub snapshot: &'s Snapshot,
    /// Every managed party, bystanders included.
    pub all: &'s [Keeping<'a, 's>],
    pub slices: &'s [SliceAccount],
}

impl<'a, 's> Scene<'a, 's> {
    /// Whether memory is short, by estimate and in fact.
    pub(crate) fn is_short(&self) -> bool {
        self.account.is_contended() && self.is_scarce()
    }

    /// Whether it is swept, or was of late.
    pub(crate) fn is_swept(&self) -> bool {
        !self.account.is_contended() && self.state.tension.is_swept(self.snapshot.at)
    }

    /// Whether the kernel takes what somebody misses at this look, however much is free.
    pub(crate) fn is_being_robbed(&self) -> bool {
        self.state.tension.robbed_at == Some(self.snapshot.at)
    }

    /// Whether it is one of those whose page cache crowds out that of others: no less of it than most have, and more to come. Who
    /// was one stays one down to half of that: of two alike each would be let go whenever the other has a little more.
    pub(crate) fn crowds(&self, keeping: &Keeping<'_, '_>) -> bool {
        let group = keeping.party.group;
        let is_held = self.state.ours(group, Knob::MemoryHigh).is_some();
        if !self.is_swept() || !(is_held || is_at_work(&keeping.party.estimate)) {
            return false;
        }
        let did = is_held && self.state.crowding.contains(&group.path);
        let most = self.most_crowd();
        crowd(keeping.party) >= if did { Bytes(most.0 / 2) } else { most }
    }

    /// Page cache beyond need that is as much as most have who have some, and not little.
    pub(crate) fn most_crowd(&self) -> Bytes {
        let crowds =
            || self.all.iter().map(|k| crowd(k.party)).filter(|crowd| *crowd > Bytes::ZERO);
        let count = u64::try_from(crowds().count()).unwrap_or(u64::MAX).max(1);
        let mean = Bytes(crowds().sum::<Bytes>().0 / count);
        mean.max(Bytes(self.snapshot.host.mem_total.0 / SMALL))
    }

    /// Whether it lies below a slice that has a limit of its own.
    pub(crate) fn is_in_limited_slice(&self, group: &Group) -> bool {
        self.slices.iter().any(|slice| slice.holds(&group.path))
    }

    /// Whether memory was contended of late.
    pub(crate) fn was_contended(&self) -> bool {
        self.is_recent(self.state.tension.contended_at)
    }

    /// Whether free memory is where early reclaim keeps it, or below.
    pub(crate) fn is_scarce(&self) -> bool {
        is_short(self.account, &self.snapshot.host)
    }

    /// Whether there is swap that may be filled on our account.
    pub(crate) fn may_swap(&self) -> bool {
        let host = &self.snapshot.host;
        has_swap(host) && host.swap_free > oomd::swap_to_leave(&self.snapshot.oomd, host)
    }

    /// Memory that may still be won on our account by swap.
    pub(crate) fn swap_left(&self) -> Bytes {
        let host = &self.snapshot.host;
        room(host, oomd::swap_to_leave(&self.snapshot.oomd, host))
    }

    /// What can be taken from a group: page cache that is on no other's account, and what there is room for in swap,
    /// on the host and by its own limit; never what the kernel holds for it, or it has locked.
    pub(crate) fn takeable(&self, group: &Group) -> Bytes {
        let memory = &group.memory;
        let (cache, all) = (memory.page_cache(), memory.current - memory.unreclaimable());
        match (self.may_swap(), memory.swap_left()) {
            (true, None) => all,
            (true, Some(left)) => all.min(cache + left),
            (false, _) => cache,
        }
    }

    /// Part of the last 10 s in which everything stood still, in per cent, if that is dire.
    pub(crate) fn standstill(&self) -> Option<f32> {
        standstill(&self.snapshot.host)
    }

    /// How long the host has been tense.
    pub(crate) fn tense_for(&self) -> Option<Millis> {
        self.state.tension.tense_since.map(|since| self.snapshot.at.since(since))
    }

    /// How long it has been dire.
    pub(crate) fn dire_for(&self) -> Option<Millis> {
        self.state.tension.dire_since.map(|since| self.snapshot.at.since(since))
    }

    /// Whether it was uneasy within the last [`REST`].
    pub(crate) fn is_recently_uneasy(&self) -> bool {
        self.is_recent(self.state.tension.uneasy_at)
    }

    /// Whether contention was there or near within the last [`REST`].
    pub(crate) fn is_recently_near(&self) -> bool {
        self.is_recent(self.state.tension.near_at)
    }

    fn is_recent(&self, last: Option<Millis>) -> bool {
        last.is_some_and(|at| self.snapshot.at.since(at) < REST)
    }

    /// Whether the operator wants it left alone, chosen as a workload or not; or nobody can tell.
    pub(crate) fn is_spared(&self, party: &Party<'_>) -> bool {
        let name = party.group.path.name();
        match party.workload.map(|w| &w.source) {
            Some(Source::Container(_)) => party.is_untold(),
            _ => self.settings.bystanders.spared.iter().any(|p| p.matches(name)),
        }
    }

    /// The heaviest one that suffers.
    pub(crate) fn victim(&self) -> Option<&'s Keeping<'a, 's>> {
        self.heaviest(Keeping::is_suffering)
    }

    /// All that suffer, the heaviest first.
    pub(crate) fn suffering(&self) -> Vec<&'s Keeping<'a, 's>> {
        let mut all: Vec<_> = self.all.iter().filter(|k| k.is_suffering()).collect();
        all.sort_by_key(|k| (std::cmp::Reverse(k.party.entitlement.weight), &k.party.name));
        all
    }

    /// The heaviest one that misses something, whether it shows or not: who has lost nearly everything does
    /// little and refaults little.
    pub(crate) fn bereft(&self) -> Option<&'s Keeping<'a, 's>> {
        self.heaviest(Keeping::is_missing_some)
    }

    fn heaviest(&self, is_it: impl Fn(&Keeping<'a, 's>) -> bool) -> Option<&'s Keeping<'a, 's>> {
        let all = self.all.iter().filter(|k| is_it(k));
        all.max_by_key(|k| (k.party.entitlement.weight, std::cmp::Reverse(&k.party.name)))
    }
}
