//! Weighted shares of a capacity.
//!
//! # Problem
//! Some claimants ask for more memory than there is. Who keeps how much? The answer must be the
//! same every time, follow weights, respect floors and limits, and waste nothing.
//!
//! # Approach
//! Weighted max-min ("water-filling"): one level λ for all; everybody gets λ times weight times
//! basis, but never less than the floor and never more than is needed or allowed.
//! It replaces the exceed-based rule of Prashanth, *Deterministic memory management*, §5.1.1,
//! under which the better provisioned lose first.
//!
//! # Terms
//! *basis*: the promise, or demand where nothing was promised. *f* = min(floor, demand): a floor
//! that is not needed now is lent out. *hi* = min(demand, max).
//!
//! # Algorithm
//! 1. Σ hi ≤ capacity: everybody gets hi; λ does not exist.
//! 2. Σ f > capacity: run with hi := f and f := 0, so floors shrink by weight · basis.
//! 3. Sort the points where a claimant leaves its floor (f/W) or is satisfied (hi/W), with
//!    W = weight · basis, sweep λ upwards over them while Σ share ≤ capacity, and solve the last,
//!    linear piece exactly in integers. O(n log n).
//! 4. Bytes lost to rounding go by largest remainder, then by name.
//!
//! # Properties (each a property test below)
//! sum exact = min(capacity, Σ hi); f ≤ share ≤ hi unless floors do not fit; independent of
//! order; more weight never gives less; one more byte of capacity takes from nobody more than
//! one byte; no justified complaint: nobody below hi sees another above its floor with a higher
//! share per weight · basis.

use std::cmp::Ordering;

use ctlmgr_model::{Bound, Bytes, Weight};
use serde::{Deserialize, Serialize};

/// Largest amount accepted, 256 TiB: keeps every product below within 128 bits.
pub const MAX_BYTES: Bytes = Bytes(1 << 48);
/// Most claimants accepted, for the same reason.
pub const MAX_CLAIMS: usize = 1 << 16;

/// What one workload brings to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Unique name; the last tie-break.
    pub name: String,
    /// Weight.
    pub weight: Weight,
    /// Size basis.
    pub basis: Bytes,
    /// Estimated need.
    pub demand: Bytes,
    /// Kept in any case, as far as needed.
    pub floor: Bytes,
    /// Hard limit.
    pub max: Option<Bytes>,
}

/// What one workload may keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Whose.
    pub name: String,
    /// How much, in bytes.
    pub share_bytes: Bytes,
    /// What decided it.
    pub bound: Bound,
}

/// The division of a capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Division {
    /// Bytes per weight and byte of basis; `None` when no level limits anybody.
    pub lambda: Option<f64>,
    /// One share per claim, by name.
    pub shares: Vec<Share>,
    /// How much of the floors could not be given.
    pub unmet_floor_bytes: Bytes,
}

/// Why a division was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// Two claims with one name.
    #[error("workload `{0}` is named twice")]
    Duplicate(String),
    /// The floor lies above the hard limit.
    #[error("workload `{name}`: floor {} B is above max {} B", floor.0, max.0)]
    FloorAboveMax {
        /// Whose.
        name: String,
        /// The floor.
        floor: Bytes,
        /// The limit.
        max: Bytes,
    },
    /// An amount that no machine has.
    #[error("workload `{name}`: {field} is above 256 TiB")]
    TooLarge {
        /// Whose.
        name: String,
        /// Which field.
        field: &'static str,
    },
    /// The capacity is out of range.
    #[error("capacity is above 256 TiB")]
    CapacityTooLarge,
    /// More claims than supported.
    #[error("{0} workloads: at most 65536 are supported")]
    TooMany(usize),
}

/// Divides `capacity` among `claims`.
///
/// # Errors
/// Duplicate names, a floor above its max, amounts above [`MAX_BYTES`], more than [`MAX_CLAIMS`].
pub fn divide(capacity: Bytes, claims: &[Claim]) -> Result<Division, ShareError> {
    validate(capacity, claims)?;
    let mut spans: Vec<Span<'_>> = claims.iter().map(Span::new).collect();
    spans.sort_by_key(|s| s.name);
    if spans.iter().map(|s| s.hi).sum::<Bytes>() <= capacity {
        let all = |s: &Span<'_>| Share::new(s, s.hi, s.full_bound);
        let shares = spans.iter().map(all).collect();
        return Ok(Division { lambda: None, shares, unmet_floor_bytes: Bytes::ZERO });
    }
    let floors: Bytes = spans.iter().map(|s| s.lo).sum();
    let are_floors_unmet = floors > capacity;
    if are_floors_unmet {
        spans.iter_mut().for_each(Span::shrink_to_floor);
    }
    let level = level(capacity.0, &spans);
    let shares = shares(capacity, &spans, level.as_ref());
    let given: Bytes = shares.iter().map(|s| s.share_bytes).sum();
    let unmet_floor_bytes = if are_floors_unmet { floors - given } else { Bytes::ZERO };
    Ok(Division { lambda: level.as_ref().map(Level::as_f64), shares, unmet_floor_bytes })
}

fn validate(capacity: Bytes, claims: &[Claim]) -> Result<(), ShareError> {
    if capacity > MAX_BYTES {
        return Err(ShareError::CapacityTooLarge);
    }
    if claims.len() > MAX_CLAIMS {
        return Err(ShareError::TooMany(claims.len()));
    }
    let mut names: Vec<&str> = claims.iter().map(|c| c.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ShareError::Duplicate(pair[0].to_owned()));
    }
    claims.iter().try_for_each(validate_claim)
}

fn validate_claim(claim: &Claim) -> Result<(), ShareError> {
    let amounts = [("promise", claim.basis), ("demand", claim.demand), ("floor", claim.floor)];
    if let Some((field, _)) = amounts.into_iter().find(|(_, amount)| *amount > MAX_BYTES) {
        return Err(ShareError::TooLarge { name: claim.name.clone(), field });
    }
    match claim.max {
        Some(max) if claim.floor > max => {
            Err(ShareError::FloorAboveMax { name: claim.name.clone(), floor: claim.floor, max })
        }
        _ => Ok(()),
    }
}

/// A claim reduced to what the sweep needs: share = clamp(λ·rate, lo, hi).
struct Span<'a> {
    name: &'a str,
    rate: u128,
    lo: Bytes,
    hi: Bytes,
    full_bound: Bound,
}

impl<'a> Span<'a> {
    fn new(claim: &'a Claim) -> Self {
        let (hi, full_bound) = match claim.max {
            Some(max) if max < claim.demand => (max, Bound::Max),
            _ => (claim.demand, Bound::Demand),
        };
        Span {
            name: &claim.name,
            rate: u128::from(claim.weight.get()) * u128::from(claim.basis.0),
            lo: claim.floor.min(claim.demand),
            hi,
            full_bound,
        }
    }
}

impl Span<'_> {
    /// Where floors do not fit, they are all there is to ask for.
    fn shrink_to_floor(&mut self) {
        if self.lo > Bytes::ZERO {
            self.full_bound = Bound::Floor;
        } else if self.hi > Bytes::ZERO {
            self.full_bound = Bound::Weight;
        }
        (self.hi, self.lo) = (self.lo, Bytes::ZERO);
    }
}

impl Share {
    fn new(span: &Span<'_>, share_bytes: Bytes, bound: Bound) -> Share {
        Share { name: span.name.to_owned(), share_bytes, bound }
    }
}

/// λ as the exact fraction left / rate.
struct Level {
    left: u128,
    rate: u128,
}

impl Level {
    #[expect(
        clippy::cast_precision_loss,
        reason = "shown to people; shares use the exact fraction"
    )]
    fn as_f64(&self) -> f64 {
        self.left as f64 / self.rate as f64
    }

    /// λ·rate compared with `bytes`.
    fn cmp(&self, rate: u128, bytes: Bytes) -> Ordering {
        (self.left * rate).cmp(&(u128::from(bytes.0) * self.rate))
    }
}

/// A point where the slope of Σ share changes: at λ = bytes / rate.
struct Bend {
    bytes: u128,
    rate: u128,
    leaves_floor: bool,
}

impl Bend {
    fn cmp(&self, other: &Bend) -> Ordering {
        (self.bytes * other.rate).cmp(&(other.bytes * self.rate))
    }
}

fn bends(spans: &[Span<'_>]) -> Vec<Bend> {
    let mut bends: Vec<Bend> = spans
        .iter()
        .filter(|s| s.rate > 0 && s.hi > s.lo)
        .flat_map(|s| {
            let at = |bytes: Bytes, leaves_floor| Bend {
                bytes: u128::from(bytes.0),
                rate: s.rate,
                leaves_floor,
            };
            [at(s.lo, true), at(s.hi, false)]
        })
        .collect();
    bends.sort_by(Bend::cmp);
    bends
}

/// The largest level whose shares fit, or `None` if no level is too large.
fn level(capacity: u64, spans: &[Span<'_>]) -> Option<Level> {
    // Σ share = fixed + λ·slope on each piece; `fixed` may dip below zero only in between.
    let mut fixed: i128 = spans.iter().map(|s| i128::from(s.lo.0)).sum();
    let mut slope: u128 = 0;
    for bend in bends(spans) {
        let left = u128::try_from(i128::from(capacity) - fixed).unwrap_or(0);
        if slope > 0 && bend.bytes * slope > left * bend.rate {
            return Some(Level { left, rate: slope });
        }
        let bytes = i128::try_from(bend.bytes).unwrap_or(i128::MAX);
        if bend.leaves_floor {
            (fixed, slope) = (fixed - bytes, slope + bend.rate);
        } else {
            (fixed, slope) = (fixed + bytes, slope - bend.rate);
        }
    }
    None
}

fn shares(capacity: Bytes, spans: &[Span<'_>], level: Option<&Level>) -> Vec<Share> {
    let mut remainders = Vec::new();
    let mut out = Vec::with_capacity(spans.len());
    for (i, span) in spans.iter().enumerate() {
        let (share, bound) = match level {
            _ if span.hi == span.lo => (span.hi, span.full_bound),
            None if span.rate > 0 => (span.hi, span.full_bound),
            Some(l) if l.cmp(span.rate, span.hi) != Ordering::Less => (span.hi, span.full_bound),
            Some(l) if l.cmp(span.rate, span.lo) == Ordering::Greater => {
                let product = l.left * span.rate;
                remainders.push((product % l.rate, i));
                (Bytes(u64::try_from(product / l.rate).unwrap_or(u64::MAX)), Bound::Weight)
            }
            // At the floor; or a promise of nothing, which no level lifts.
            _ => (span.lo, if span.lo > Bytes::ZERO { Bound::Floor } else { Bound::Weight }),
        };
        out.push(Share::new(span, share, bound));
    }
    if level.is_some() {
        // A level exists only where the real-valued shares add up to the capacity exactly.
        let given: Bytes = out.iter().map(|s| s.share_bytes).sum();
        hand_out(capacity - given, remainders, &mut out);
    }
    out
}

fn hand_out(count: Bytes, mut remainders: Vec<(u128, usize)>, out: &mut [Share]) {
    // Spans are sorted by name, so a stable sort by remainder breaks ties by name.
    remainders.sort_by_key(|&(remainder, _)| std::cmp::Reverse(remainder));
    let count = usize::try_from(count.0).unwrap_or(usize::MAX);
    for (_, i) in remainders.into_iter().take(count) {
        out[i].share_bytes = out[i].share_bytes + Bytes(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(name: &str, weight: i64, basis: u64, demand: u64) -> Claim {
        Claim {
            name: name.into(),
            weight: Weight::new(weight).unwrap(),
            basis: Bytes(basis),
            demand: Bytes(demand),
            floor: Bytes::ZERO,
            max: None,
        }
    }

    fn of(division: &Division) -> Vec<(u64, Bound)> {
        division.shares.iter().map(|s| (s.share_bytes.0, s.bound)).collect()
    }

    #[test]
    fn everything_fits_without_a_level() {
        let d =
            divide(Bytes(300), &[claim("a", 100, 100, 100), claim("b", 100, 200, 200)]).unwrap();
        assert_eq!(d.lambda, None);
        assert_eq!(of(&d), [(100, Bound::Demand), (200, Bound::Demand)]);
    }

    #[test]
    fn equal_weights_keep_equal_fractions_of_the_promise() {
        // 600 for promises 400 + 800: half each.
        let d =
            divide(Bytes(600), &[claim("a", 100, 400, 400), claim("b", 100, 800, 800)]).unwrap();
        assert_eq!(of(&d), [(200, Bound::Weight), (400, Bound::Weight)]);
        assert_eq!(d.lambda, Some(0.005));
    }

    #[test]
    fn four_times_the_weight_is_satisfied_first() {
        // b: 4·800 against a: 400; b is full at λ = 1/400, where a would have 100 of 200 left.
        let d =
            divide(Bytes(1000), &[claim("a", 100, 400, 400), claim("b", 400, 800, 800)]).unwrap();
        assert_eq!(of(&d), [(200, Bound::Weight), (800, Bound::Demand)]);
    }

    #[test]
    fn an_unneeded_floor_is_lent_out() {
        let mut a = claim("a", 1, 100, 10);
        a.floor = Bytes(80);
        let d = divide(Bytes(100), &[a, claim("b", 100, 100, 100)]).unwrap();
        assert_eq!(of(&d), [(10, Bound::Demand), (90, Bound::Weight)]);
    }

    #[test]
    fn floors_that_do_not_fit_shrink_by_weight() {
        let (mut a, mut b) = (claim("a", 100, 100, 100), claim("b", 300, 100, 100));
        (a.floor, b.floor) = (Bytes(60), Bytes(60));
        let d = divide(Bytes(80), &[a, b]).unwrap();
        assert_eq!(d.unmet_floor_bytes, Bytes(40));
        assert_eq!(of(&d), [(20, Bound::Weight), (60, Bound::Floor)]);
    }

    #[test]
    fn rounding_goes_by_remainder_then_name() {
        let three = [claim("c", 1, 1, 9), claim("a", 1, 1, 9), claim("b", 1, 1, 9)];
        let d = divide(Bytes(10), &three).unwrap();
        assert_eq!(of(&d).iter().map(|s| s.0).collect::<Vec<_>>(), [4, 3, 3]);
        assert_eq!(d.shares[0].name, "a");
    }

    #[test]
    fn degenerate_cases() {
        assert_eq!(divide(Bytes(5), &[]).unwrap().shares, []);
        let d = divide(Bytes(0), &[claim("a", 1, 5, 5)]).unwrap();
        assert_eq!(of(&d), [(0, Bound::Weight)]);
        // A promise of nothing earns nothing, but nothing is refused while everything fits.
        let zero = [claim("a", 1, 0, 5), claim("b", 1, 9, 9)];
        assert_eq!(
            of(&divide(Bytes(50), &zero).unwrap()),
            [(5, Bound::Demand), (9, Bound::Demand)]
        );
        assert_eq!(
            of(&divide(Bytes(12), &zero).unwrap()),
            [(0, Bound::Weight), (9, Bound::Demand)]
        );
        // Its floor counts as missing where floors do not fit.
        let (mut a, mut b) = (claim("a", 1, 0, 100), claim("b", 1, 100, 100));
        (a.floor, b.floor) = (Bytes(60), Bytes(60));
        let d = divide(Bytes(80), &[a, b]).unwrap();
        assert_eq!(d.unmet_floor_bytes, Bytes(60));
        // The kernel's "no limit" of old is a limit like any other.
        let mut c = claim("c", 1, 5, 5);
        c.max = Some(Bytes(u64::MAX));
        assert_eq!(of(&divide(Bytes(9), &[c]).unwrap()), [(5, Bound::Demand)]);
    }

    #[test]
    fn refusals_name_the_workload() {
        let two = [claim("a", 1, 1, 1), claim("a", 1, 1, 1)];
        assert_eq!(divide(Bytes(1), &two), Err(ShareError::Duplicate("a".into())));
        let mut a = claim("a", 1, 1, 1);
        (a.floor, a.max) = (Bytes(2), Some(Bytes(1)));
        assert!(matches!(divide(Bytes(1), &[a]), Err(ShareError::FloorAboveMax { .. })));
        let huge = claim("h", 1, 1, MAX_BYTES.0 + 1);
        assert!(matches!(divide(Bytes(1), &[huge]), Err(ShareError::TooLarge { .. })));
    }

    prop_compose! {
        fn any_claim()(w in 1i64..=10_000, basis in 1u64..1 << 40, demand in 0u64..1 << 40,
                       floor in 0u64..1 << 38, max in proptest::option::of(1u64 << 38..1 << 41)) -> Claim {
            Claim { floor: Bytes(floor), max: max.map(Bytes), ..claim("", w, basis, demand) }
        }
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let small = (1i64..5, 1u64..8, 0u64..12, 0u64..6, proptest::option::of(6u64..9)).prop_map(
            |(w, basis, demand, floor, max)| Claim {
                floor: Bytes(floor),
                max: max.map(Bytes),
                ..claim("", w, basis, demand)
            },
        );
        proptest::collection::vec(prop_oneof![any_claim(), small], 0..12).prop_map(|mut list| {
            for (i, c) in list.iter_mut().enumerate() {
                c.name = format!("w{i:02}");
            }
            list
        })
    }

    fn hi(c: &Claim) -> u64 {
        c.max.map_or(c.demand, |m| m.min(c.demand)).0
    }

    fn lo(c: &Claim) -> u64 {
        c.floor.min(c.demand).0
    }

    proptest! {
        #[test]
        fn sum_is_exact_and_bounds_hold(list in claims(), part in 0u64..=120) {
            let wanted: u64 = list.iter().map(hi).sum();
            let capacity = u64::try_from(u128::from(wanted) * u128::from(part) / 100).unwrap();
            let d = divide(Bytes(capacity), &list).unwrap();
            let sum: u64 = d.shares.iter().map(|s| s.share_bytes.0).sum();
            prop_assert_eq!(sum, capacity.min(wanted));
            prop_assert_eq!(d.lambda.is_none(), capacity >= wanted);
            for (c, s) in list.iter().zip(&d.shares) {
                prop_assert!(s.share_bytes.0 <= hi(c));
                prop_assert!(d.unmet_floor_bytes.0 > 0 || s.share_bytes.0 >= lo(c));
            }
        }

        #[test]
        fn order_does_not_matter(list in claims(), capacity in 0u64..1 << 42) {
            let mut turned = list.clone();
            turned.reverse();
            prop_assert_eq!(divide(Bytes(capacity), &list), divide(Bytes(capacity), &turned));
        }

        #[test]
        fn more_capacity_takes_from_nobody(list in claims(), capacity in 0u64..1 << 42) {
            let before = divide(Bytes(capacity), &list).unwrap();
            let after = divide(Bytes(capacity + 1), &list).unwrap();
            for (b, a) in before.shares.iter().zip(&after.shares) {
                prop_assert!(a.share_bytes.0 + 1 >= b.share_bytes.0);
            }
        }

        #[test]
        fn more_weight_never_gives_less(list in claims(), capacity in 0u64..1 << 42, add in 1i64..5000) {
            prop_assume!(!list.is_empty());
            let before = divide(Bytes(capacity), &list).unwrap();
            let mut heavier = list.clone();
            let weight = (i64::from(heavier[0].weight.get()) + add).min(10_000);
            heavier[0].weight = Weight::new(weight).unwrap();
            let after = divide(Bytes(capacity), &heavier).unwrap();
            prop_assert!(after.shares[0].share_bytes >= before.shares[0].share_bytes);
        }

        #[test]
        fn nobody_has_a_justified_complaint(list in claims(), capacity in 0u64..1 << 42) {
            let d = divide(Bytes(capacity), &list).unwrap();
            prop_assume!(d.unmet_floor_bytes == Bytes::ZERO);
            let rate = |c: &Claim| u128::from(c.weight.get()) * u128::from(c.basis.0);
            for (i, a) in list.iter().enumerate().filter(|(i, a)| d.shares[*i].share_bytes.0 < hi(a)) {
                for (j, b) in list.iter().enumerate().filter(|(j, b)| d.shares[*j].share_bytes.0 > lo(b)) {
                    let mine = u128::from(d.shares[i].share_bytes.0 + 1) * rate(b);
                    let other = u128::from(d.shares[j].share_bytes.0 - 1) * rate(a);
                    prop_assert!(other <= mine, "{} against {}", a.name, b.name);
                }
            }
        }
    }
}
