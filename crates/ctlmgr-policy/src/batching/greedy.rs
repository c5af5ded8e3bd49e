//! Greedy plans, and how many batches to begin with.

use super::problem::{Pattern, Problem};
use super::seating::Seating;

/// Up to so many containers every sensible number of batches is started from.
pub(crate) const FEW: u32 = 60;

/// Numbers of batches to start from; not empty.
pub(crate) fn starts(problem: &Problem) -> Vec<u32> {
    let (fewest, law, total) = law(problem);
    if total <= FEW {
        return (fewest..=(2 * law + 2).clamp(fewest, total)).collect();
    }
    let mut numbers: Vec<u32> =
        [7, 10, 14].map(|tenths| (law * tenths / 10).clamp(fewest, total)).to_vec();
    numbers.push(fewest);
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Up to eight numbers of batches around the one that the square-root law names.
pub(crate) fn around(problem: &Problem) -> Vec<u32> {
    let (fewest, law, total) = law(problem);
    let (low, high) = ((law * 7 / 10).clamp(fewest, total), (law * 11 / 10).clamp(fewest, total));
    let apart = usize::try_from((high - low) / 7 + 1).unwrap_or(1);
    (low..=high).step_by(apart).collect()
}

/// The fewest batches that there can be, the number that the square-root law names, and the most.
///
/// K batches of even mixture cost α · Σs / K + β · K: least at K = √(α · Σs / β).
fn law(problem: &Problem) -> (u32, u32, u32) {
    let total = problem.total().max(1);
    let (alpha, beta) = problem.prices();
    let everyone: Pattern = problem.kinds().iter().map(|k| k.count).collect();
    let ratio =
        i128::from(alpha) * i128::from(problem.penalty(&everyone)) / i128::from(beta.max(1));
    let law = u32::try_from(ratio.max(1).isqrt()).unwrap_or(u32::MAX).min(total);
    (problem.fewest_batches().clamp(1, total), law, total)
}

/// Seats everybody, where it is cheapest among the first so many places that hold or may hold a
/// batch; the smaller batch where it costs the same.
pub(crate) fn start(problem: &Problem, batches: u32) -> Seating<'_> {
    let mut seating = Seating::new(problem);
    let mut open: Vec<usize> = Vec::new();
    for kind in in_order(problem) {
        for _ in 0..problem.kinds()[kind].count {
            let may_open = open.len() < batches as usize;
            let seat = open
                .iter()
                .filter_map(|p| Some((seating.price(kind, *p)?, seating.tables[*p].size, *p)))
                .min();
            let place = match seat {
                Some((0, _, place)) => Some(place),
                Some(_) if may_open => seating.opening(kind).or(seat.map(|s| s.2)),
                Some((_, _, place)) => Some(place),
                None => seating.opening(kind),
            };
            // Alone it fits: the problem was checked. An ordered one may have no place left.
            let Some(place) = place else { continue };
            if !open.contains(&place) {
                open.push(place);
            }
            seating.enter(kind, place);
        }
    }
    seating
}

/// Kinds, predecessors first, and otherwise those that conflict most first.
fn in_order(problem: &Problem) -> Vec<usize> {
    let kinds = problem.kinds();
    let conflict = |a: usize| -> i64 {
        (0..kinds.len()).map(|b| problem.between(a, b) * i64::from(kinds[b].count)).sum()
    };
    let mut left: Vec<usize> = (0..kinds.len()).collect();
    left.sort_by_key(|a| (std::cmp::Reverse(conflict(*a)), *a));
    let mut order = Vec::new();
    while let Some(i) = left.iter().position(|a| kinds[*a].after.iter().all(|p| order.contains(p)))
    {
        order.push(left.remove(i));
    }
    order
}
