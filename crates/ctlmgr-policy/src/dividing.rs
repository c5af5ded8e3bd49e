//! What each party brings to the division, and what is kept in any case.
//!
//! # Terms
//! *Unasked*: what one keeps though nobody promised it. *Stuck*: what nobody can take, because it is locked or the kernel's. *Due*: what a share would be
//! if all of it could be taken.
//!
//! # Algorithm
//! A claim's floor is what was promised and what units are owed, or what is stuck and a little to live by, whichever is more. Where floors do not
//! fit, first the little counts no more, then what units are owed; what is stuck and floors that were promised shrink by weight and size. Where some share is
//! hardly more than what is stuck, a second division without that says what is due.
//!
//! # Properties
//! Who has nothing stuck is due its share; nobody is due more than it.

use ctlmgr_model::{Bound, Bytes, CapacityAccount, Controller, SliceAccount, VerdictKind, Weight};

use crate::demand::{LIVING, basis, lifted};
use crate::feedback::lifts;
use crate::nested::{Nested, Place, divide_nested};
use crate::share::{Claim, MAX_BYTES, Share, ShareError};
use crate::verdict::{Party, lift_pct};

/// However little it weighs, a workload is not left with less than this beyond what cannot be taken, because it would get nothing done.
pub(crate) const ALIVE: Bytes = Bytes::mib(2);
/// But all together no more than one part in so many of what there is, on the host or in a slice.
const ALIVE_OF: u64 = 4;

/// Whether this share is more than is `due` only because it cannot be taken, and not by a little.
pub(crate) fn is_stuck((share, due): (Bytes, Bytes)) -> bool {
    share > due + ALIVE
}

/// Whether so much may be a party's share because it cannot be taken.
fn may_be_stuck(party: &Party<'_>, share: Bytes) -> bool {
    let stuck = party.group.memory.unreclaimable();
    let is_much = stuck > party.entitlement.floor.max(ALIVE);
    party.entitlement.managed && is_much && share <= stuck + ALIVE
}

/// What a workload keeps without any floor, beyond what cannot be taken.
fn alive(
    (account, slices): (&CapacityAccount, &[SliceAccount]),
    parties: &[Party<'_>],
    party: &Party<'_>,
) -> Bytes {
    if party.kind != VerdictKind::Workload {
        return Bytes::ZERO;
    }
    let part = |capacity: Bytes, count: usize| {
        Bytes(capacity.0 / ALIVE_OF / u64::try_from(count).unwrap_or(u64::MAX).max(1))
    };
    let above = slices.iter().filter(|slice| slice.holds(&party.group.path));
    let in_slice = above.map(|slice| {
        let inside = parties.iter().filter(|p| slice.holds(&p.group.path));
        part(slice.capacity, inside.count())
    });
    in_slice.fold(ALIVE.min(part(account.capacity, parties.len())), Bytes::min)
}

/// Which of what is kept unasked counts beside floors that were promised.
#[derive(Clone, Copy)]
struct Unasked {
    /// What units are owed.
    owed: bool,
    /// A little for each workload.
    alive: bool,
    /// What cannot be taken.
    stuck: bool,
}

/// One way to divide: what each brings to it, what feedback multiplied that with, and what came of it.
pub(crate) struct Attempt {
    unasked: Unasked,
    pub(crate) claims: Vec<Claim>,
    pub(crate) lifts: Vec<f64>,
    pub(crate) division: Nested,
}

/// Unmanaged parties keep what they hold; their demand is not up for division.
fn claim(
    controller: Controller,
    party: &Party<'_>,
    (unasked, alive): (Unasked, Bytes),
    index: usize,
) -> Claim {
    let only = |is: bool, amount: Bytes| if is { amount } else { Bytes::ZERO };
    let (e, estimate) = (&party.entitlement, &party.estimate);
    let (weight, basis) = match controller {
        Controller::Stall => (Weight::DEFAULT, estimate.demand.max(LIVING)),
        Controller::Shares | Controller::Both => (e.weight, basis(e.promise, estimate)),
    };
    let max = party.group.memory.max.bytes();
    let stuck = only(unasked.stuck, party.group.memory.unreclaimable());
    let kept = stuck + only(unasked.alive, alive);
    let floor = party.floor(only(unasked.owed, party.owed)).max(kept);
    Claim {
        // Two containers may share a name for a moment while one is replaced.
        name: format!("{}\0{index:06}", party.name),
        weight,
        // One label with an absurd size must not cost everybody their shares.
        basis: basis.min(MAX_BYTES),
        demand: party.estimate.demand.min(MAX_BYTES),
        floor: max.map_or(floor, |m| floor.min(m)).min(MAX_BYTES),
        max,
    }
}

/// Who shares what.
pub(crate) struct Table<'a, 'b> {
    controller: Controller,
    account: &'b CapacityAccount,
    slices: &'b [SliceAccount],
    parties: &'b [Party<'a>],
    /// What each keeps without any floor.
    alive: Vec<Bytes>,
}

impl<'a, 'b> Table<'a, 'b> {
    pub(crate) fn new(
        controller: Controller,
        (account, slices): (&'b CapacityAccount, &'b [SliceAccount]),
        parties: &'b [Party<'a>],
    ) -> Self {
        let alive = parties.iter().map(|p| alive((account, slices), parties, p)).collect();
        Table { controller, account, slices, parties, alive }
    }

    /// That a little is kept unasked, and units are owed some, is no reason to fall short of a floor that was promised; that
    /// something cannot be taken is one.
    pub(crate) fn divide(&self) -> Result<Attempt, ShareError> {
        let all = Unasked { owed: true, alive: true, stuck: true };
        let mut best = self.attempt(all)?;
        for less in [Unasked { alive: false, ..all }, Unasked { alive: false, owed: false, ..all }]
        {
            if best.division.is_short_of_floors() {
                let without = self.attempt(less)?;
                let helps = best.division.is_shorter_than(&without.division);
                best = if helps { without } else { best };
            }
        }
        Ok(best)
    }

    fn attempt(&self, unasked: Unasked) -> Result<Attempt, ShareError> {
        let places = (self.account, self.slices);
        let all = self.parties.iter().zip(&self.alive).enumerate();
        let claim =
            |(i, (p, alive)): (_, (_, &Bytes))| claim(self.controller, p, (unasked, *alive), i);
        let mut claims: Vec<_> = all.map(claim).collect();
        let (lifts, division) = corrected(self.controller, places, self.parties, &mut claims)?;
        Ok(Attempt { unasked, claims, lifts, division })
    }

    /// What each share would be if all of it could be taken.
    pub(crate) fn due(&self, attempt: &Attempt) -> Vec<Bytes> {
        let shares = &attempt.division.shares;
        let all = || self.parties.iter().zip(shares);
        let as_it_is = || shares.iter().map(|share| share.share_bytes).collect();
        let gives_way = |share: &Share| !matches!(share.bound, Bound::Demand | Bound::Max);
        let is_stuck = all().any(|(p, share)| may_be_stuck(p, share.share_bytes));
        if !is_stuck || !shares.iter().any(gives_way) {
            return as_it_is();
        }
        let by_weight = self.attempt(Unasked { stuck: false, ..attempt.unasked });
        let Ok(Attempt { division: Nested { shares: by_weight, .. }, .. }) = by_weight else {
            return as_it_is();
        };
        // Where one more gives way others are corrected otherwise; that is not what they are due.
        let due = |((p, share), by_weight): ((&Party<'_>, &Share), Share)| {
            let share = share.share_bytes;
            if may_be_stuck(p, share) { by_weight.share_bytes.min(share) } else { share }
        };
        all().zip(by_weight).map(due).collect()
    }
}

/// Shares by weight and size, corrected by feedback; and what it multiplied each with.
fn corrected(
    controller: Controller,
    (account, slices): (&CapacityAccount, &[SliceAccount]),
    parties: &[Party<'_>],
    claims: &mut [Claim],
) -> Result<(Vec<f64>, Nested), ShareError> {
    let places: Vec<Place<'_>> = parties.iter().map(Party::place).collect();
    let divide = |claims: &[Claim]| divide_nested(account.capacity, claims, &places, slices);
    let division = divide(claims)?;
    let lifts = lifts(controller, parties, claims, &division);
    if lifts.iter().all(|l| lift_pct(*l) == 100) {
        return Ok((lifts, division));
    }
    for (claim, lift) in claims.iter_mut().zip(&lifts) {
        claim.basis = lifted(claim.basis, *lift).min(MAX_BYTES);
    }
    Ok((lifts, divide(claims)?))
}
