//! A lower bound on the cost from each container's cheapest company (solvers A.2).
//!
//! Whoever starts in a batch of t containers pays for at least its t − 1 mildest peers, half of each
//! pair, and for a t-th of the batch: cost ≥ Σ_i min over t ≤ φ of α/2 · σ_i(t − 1) + β/t, where
//! σ_i(k) is the sum of its k smallest penalties.

use super::problem::Problem;

/// No plan costs less.
pub(crate) fn company(problem: &Problem) -> i64 {
    let kinds = problem.kinds();
    let sum: i64 = (0..kinds.len()).map(|a| i64::from(kinds[a].count) * cheapest(problem, a)).sum();
    round_up(problem, sum)
}

/// Least that one container of kind `a` adds, rounded down.
fn cheapest(problem: &Problem, a: usize) -> i64 {
    let (alpha, beta) = problem.prices();
    let mut peers: Vec<(i64, u32)> = problem
        .kinds()
        .iter()
        .enumerate()
        .map(|(b, kind)| (problem.between(a, b), kind.count - u32::from(a == b).min(kind.count)))
        .collect();
    peers.sort_unstable();
    let others = peers.iter().flat_map(|(s, n)| std::iter::repeat_n(*s, *n as usize));
    let mut least = beta;
    let mut paid = 0_i128;
    for (t, s) in (2..=i128::from(problem.max_batch())).zip(others) {
        paid += i128::from(s);
        let cost = (i128::from(alpha) * paid * t + 2 * i128::from(beta)) / (2 * t);
        least = least.min(i64::try_from(cost).unwrap_or(i64::MAX));
    }
    least
}

/// Costs of plans differ by multiples of this.
pub(crate) fn step(problem: &Problem) -> i64 {
    let (mut a, mut b) = problem.prices();
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// The least cost that a plan can have which costs no less than this.
pub(crate) fn round_up(problem: &Problem, cost: i64) -> i64 {
    let step = step(problem);
    (cost.max(0) + step - 1) / step * step
}
