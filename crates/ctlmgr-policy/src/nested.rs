//! Shares where slices have limits of their own.
//!
//! # Problem
//! Containers in a slice with a MemoryMax compete for that, however much the host has left. Divided over the host only,
//! each of them may keep all that it needs, all of it is protected, and when the slice is full the kernel takes from
//! whom it likes.
//!
//! # Approach
//! What one may keep of a full slice is a limit of its own for the division of what lies around the slice.
//!
//! # Terms
//! *Full*: those below it ask for more than a slice may hold.
//!
//! # Algorithm
//! From the innermost slice outwards, and the host last: [`divide`] its capacity among those below it, with what full
//! slices further in left to each as their hard limits. One level λ for each of them decides, so whoever is held by
//! the slice is held at least as far there as by the host, and the result is that of the tightest.
//!
//! # Properties
//! Those below a slice keep no more than its capacity together; where no slice is full the shares are those of
//! [`divide`]; slices that are full change nothing for others but what they leave; the order of claims is of no matter.

use ctlmgr_model::{Bound, Bytes, CgroupPath, SliceAccount};

use crate::share::{Claim, Division, MAX_BYTES, Share, ShareError, divide};

/// Shares in the order of the claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nested {
    /// What each may keep. Who is held by a full slice has the bound by which it is held there.
    pub shares: Vec<Share>,
    /// Which slice holds each, by its place in the list.
    pub held_by: Vec<Option<usize>>,
    /// Floors that could not be given: by each slice, and by the host.
    pub unmet_in_slices: Vec<Bytes>,
    /// The same for the host.
    pub unmet_floor_bytes: Bytes,
}

impl Nested {
    /// Whether some floor could not be given.
    pub fn is_short_of_floors(&self) -> bool {
        let in_slices = self.unmet_in_slices.iter().copied();
        in_slices.chain([self.unmet_floor_bytes]).any(|unmet| unmet > Bytes::ZERO)
    }

    /// Whether more of the floors could not be given than in `other`, of the same slices.
    pub fn is_shorter_than(&self, other: &Nested) -> bool {
        let mut pairs = self.unmet_in_slices.iter().zip(&other.unmet_in_slices);
        self.unmet_floor_bytes > other.unmet_floor_bytes || pairs.any(|(own, other)| own > other)
    }
}

/// Where a claim is from.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its cgroup.
    pub path: &'a CgroupPath,
    /// What is not managed keeps on the host what it holds; below a slice with a limit it has no protection, so others need not
    /// give way to it there, but for this, which nobody can take. `None` if it is managed, and keeps its floor there, too.
    pub unmanaged_stuck: Option<Bytes>,
}

/// Divides `capacity` among claims, each from its place, where `slices`, the innermost first, hold no more than they may.
///
/// # Errors
/// See [`divide`].
pub fn divide_nested(
    capacity: Bytes,
    claims: &[Claim],
    places: &[Place<'_>],
    slices: &[SliceAccount],
) -> Result<Nested, ShareError> {
    let mut claims = claims.to_vec();
    let mut held: Vec<Option<(usize, Bound)>> = vec![None; claims.len()];
    let mut unmet_in_slices = Vec::with_capacity(slices.len());
    for (number, slice) in slices.iter().enumerate() {
        let members: Vec<usize> =
            (0..places.len()).filter(|i| slice.holds(places[*i].path)).collect();
        // A slice further in may have left it less than cannot be taken from it.
        let stuck = |i: usize| places[i].unmanaged_stuck.unwrap_or(MAX_BYTES);
        let floor = |i: usize| stuck(i).min(claims[i].floor);
        let own = |i: &usize| Claim { floor: floor(*i), ..claims[*i].clone() };
        let below: Vec<Claim> = members.iter().map(own).collect();
        let division = divide(slice.capacity, &below)?;
        unmet_in_slices.push(division.unmet_floor_bytes);
        for (index, share) in members.into_iter().zip(in_order(division, &below)) {
            let claim = &mut claims[index];
            let asked = claim.max.map_or(claim.demand, |max| max.min(claim.demand));
            if share.share_bytes < asked {
                claim.max = Some(share.share_bytes);
                claim.floor = claim.floor.min(share.share_bytes);
                held[index] = Some((number, share.bound));
            }
        }
    }
    let division = divide(capacity, &claims)?;
    let unmet_floor_bytes = division.unmet_floor_bytes;
    let mut shares = in_order(division, &claims);
    let held_by = shares.iter_mut().zip(held).map(|(share, held)| {
        let (slice, bound) = held.filter(|_| share.bound == Bound::Max)?;
        share.bound = bound;
        Some(slice)
    });
    let held_by = held_by.collect();
    Ok(Nested { shares, held_by, unmet_in_slices, unmet_floor_bytes })
}

/// Shares come back sorted by the unique name of the claim.
fn in_order(division: Division, claims: &[Claim]) -> Vec<Share> {
    let mut places: Vec<usize> = (0..claims.len()).collect();
    places.sort_by_key(|i| &claims[*i].name);
    let mut placed: Vec<(usize, Share)> = places.into_iter().zip(division.shares).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, share)| share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::Weight;
    use proptest::prelude::*;

    /// A path, a weight and a need; who is promised nothing has that for its size.
    fn claim(index: usize, weight: u16, need: u64) -> Claim {
        let weight = Weight::new(i64::from(weight)).unwrap();
        let name = format!("{index:04}");
        let need = Bytes(need);
        Claim { name, weight, basis: need, demand: need, floor: Bytes::ZERO, max: None }
    }

    fn slice(path: &str, capacity: u64) -> SliceAccount {
        let path = CgroupPath::new(path);
        let capacity = Bytes(capacity);
        SliceAccount { path, most: capacity, capacity, demand: Bytes::ZERO }
    }

    fn nested(capacity: u64, list: &[(&str, u16, u64)], slices: &[SliceAccount]) -> Nested {
        let claims: Vec<Claim> =
            list.iter().enumerate().map(|(i, (_, w, need))| claim(i, *w, *need)).collect();
        let paths: Vec<CgroupPath> = list.iter().map(|(path, ..)| CgroupPath::new(path)).collect();
        let places: Vec<Place<'_>> =
            paths.iter().map(|path| Place { path, unmanaged_stuck: None }).collect();
        divide_nested(Bytes(capacity), &claims, &places, slices).unwrap()
    }

    fn amounts(nested: &Nested) -> Vec<u64> {
        nested.shares.iter().map(|s| s.share_bytes.0).collect()
    }

    #[test]
    fn a_full_slice_divides_what_it_may_hold_by_weight_on_a_host_that_has_plenty() {
        let list = [("shop.slice/a", 400, 800), ("shop.slice/b", 100, 800), ("c", 100, 900)];
        let found = nested(8000, &list, &[slice("shop.slice", 1000)]);
        assert_eq!(amounts(&found), [800, 200, 900]);
        assert_eq!(found.held_by, [None, Some(0), None]);
        let bounds: Vec<Bound> = found.shares.iter().map(|s| s.bound).collect();
        assert_eq!(bounds, [Bound::Demand, Bound::Weight, Bound::Demand]);
        // Where the host is tighter than the slice, the host decides.
        let found = nested(1000, &list, &[slice("shop.slice", 1000)]);
        assert_eq!(found.held_by, [None; 3]);
        // Neither is a slice of itself, nor one that only begins with the same letters.
        let list = [("shop.slice", 100, 800), ("shop.slice2/b", 100, 800)];
        assert_eq!(amounts(&nested(8000, &list, &[slice("shop.slice", 10)])), [800, 800]);
    }

    #[test]
    fn who_is_not_managed_leaves_others_their_part_of_a_full_slice() {
        let mut claims = [claim(0, 100, 800), claim(1, 100, 800)];
        claims[0].floor = claims[0].demand;
        let paths = ["s/own", "s/managed"].map(CgroupPath::new);
        // What nobody can take from it is promised to no other.
        for (stuck, shares) in [(0, [400, 400]), (300, [400, 400]), (600, [600, 200])] {
            let places = [(&paths[0], Some(Bytes(stuck))), (&paths[1], None)];
            let places = places.map(|(path, unmanaged_stuck)| Place { path, unmanaged_stuck });
            let found = divide_nested(Bytes(8000), &claims, &places, &[slice("s", 800)]).unwrap();
            assert_eq!(amounts(&found), shares);
            assert_eq!(found.unmet_in_slices, [Bytes::ZERO]);
        }
    }

    const PATHS: [&str; 4] = ["o/i/", "o/", "p/", ""];

    /// One that is not managed, of whom so much cannot be taken, in `o/i`, which may hold less, in `o`.
    #[test]
    fn what_does_not_fit_further_in_is_no_reason_to_divide_nothing() {
        let mut claims = [claim(0, 100, 300), claim(1, 100, 200)];
        (claims[0].floor, claims[1].floor) = (Bytes(300), Bytes(200));
        let paths = ["o/i/managed", "o/i/own"].map(CgroupPath::new);
        let places = [(&paths[0], None), (&paths[1], Some(Bytes(200)))];
        let places = places.map(|(path, unmanaged_stuck)| Place { path, unmanaged_stuck });
        let slices = [slice("o/i", 390), slice("o", 1000)];
        let found = divide_nested(Bytes(8000), &claims, &places, &slices).unwrap();
        let amounts = amounts(&found);
        assert!(amounts[0] + amounts[1] <= 390 && amounts[1] > 100, "{amounts:?}");
        assert_eq!(found.unmet_in_slices, [Bytes(110), Bytes::ZERO]);
    }

    proptest! {
        #[test]
        fn whatever_is_promised_or_stuck_slices_hold_no_more_than_they_may(
            list in proptest::collection::vec(
                (0usize..4, 1u64..1000, 0u64..1200, proptest::option::of(0u64..1200)), 1..10
            ),
            limits in [1u64..2000, 1u64..2000, 1u64..2000], capacity in 1u64..6000,
        ) {
            let one = |(i, (_, need, floor, stuck)): (usize, &(usize, u64, u64, Option<u64>))| {
                let floor = if stuck.is_some() { *need } else { *floor };
                Claim { floor: Bytes(floor), ..claim(i, 100, *need) }
            };
            let claims: Vec<Claim> = list.iter().enumerate().map(one).collect();
            let path = |(i, one): (usize, &(usize, u64, u64, Option<u64>))| {
                CgroupPath::new(format!("{}{i}", PATHS[one.0]).as_str())
            };
            let paths: Vec<CgroupPath> = list.iter().enumerate().map(path).collect();
            let place = |(path, one)| {
                let (.., stuck): &(usize, u64, u64, Option<u64>) = one;
                Place { path, unmanaged_stuck: stuck.map(Bytes) }
            };
            let places: Vec<Place<'_>> = paths.iter().zip(&list).map(place).collect();
            let names = ["o/i", "o", "p"];
            let slices: Vec<SliceAccount> =
                names.iter().zip(limits).map(|(name, limit)| slice(name, limit)).collect();
            let found = divide_nested(Bytes(capacity), &claims, &places, &slices);
            let found = found.map_err(|error| TestCaseError::fail(error.to_string()))?;
            for slice in &slices {
                let shares = paths.iter().zip(&found.shares);
                let below = shares.filter(|(path, _)| slice.holds(path));
                prop_assert!(below.map(|(_, share)| share.share_bytes).sum::<Bytes>() <= slice.capacity);
            }
        }

        #[test]
        fn slices_hold_no_more_than_they_may_and_where_none_is_full_nothing_changes(
            list in proptest::collection::vec((0usize..4, 1u16..1000, 1u64..1000), 1..10),
            limits in [1u64..4000, 1u64..4000, 1u64..4000], capacity in 1u64..6000,
        ) {
            let paths: Vec<String> =
                list.iter().enumerate().map(|(i, (at, ..))| format!("{}{i}", PATHS[*at])).collect();
            let claims: Vec<(&str, u16, u64)> =
                list.iter().zip(&paths).map(|((_, w, need), path)| (path.as_str(), *w, *need)).collect();
            let names = ["o/i", "o", "p"];
            let slices: Vec<SliceAccount> =
                names.iter().zip(limits).map(|(name, limit)| slice(name, limit)).collect();
            let found = nested(capacity, &claims, &slices);
            let plain = amounts(&nested(capacity, &claims, &[]));
            let mut is_full = false;
            for (name, limit) in names.iter().zip(limits) {
                let below = |amounts: &[u64]| -> u64 {
                    let all = claims.iter().zip(amounts);
                    all.filter(|((path, ..), _)| path.starts_with(&format!("{name}/"))).map(|(_, n)| n).sum()
                };
                let needs: Vec<u64> = claims.iter().map(|c| c.2).collect();
                prop_assert!(below(&amounts(&found)) <= limit);
                is_full |= below(&needs) > limit;
            }
            if !is_full {
                prop_assert_eq!(amounts(&found), plain);
            }
            prop_assert!(amounts(&found).iter().sum::<u64>() <= capacity);
            // Last first: each has the same.
            let mut turned = claims.clone();
            turned.reverse();
            let mut again = amounts(&nested(capacity, &turned, &slices));
            again.reverse();
            let differ = amounts(&found).iter().zip(&again).filter(|(a, b)| a.abs_diff(**b) > 3).count();
            prop_assert_eq!(differ, 0, "but for bytes lost to rounding, which go by name");
        }
    }
}
