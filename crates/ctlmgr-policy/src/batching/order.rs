//! In which order batches start.
//!
//! What a plan costs does not depend on it, so of the orders that keep everybody after what it waits for and
//! within its deadline, one is chosen in which those of more weight start earlier. From the last batch to
//! the first: of those that nobody left waits for and that may be so late, the lightest (Smith's rule for
//! jobs of one length; exact where nobody waits for anybody).

use super::problem::{Pattern, Problem};

/// The same batches in order; `None` if they have none.
pub(crate) fn arrange(problem: &Problem, mut batches: Vec<Pattern>) -> Option<Vec<Pattern>> {
    let mut ordered = Vec::with_capacity(batches.len());
    while !batches.is_empty() {
        let may_be_last = |i: &usize| {
            let latest = latest(problem, &batches[*i]) as usize;
            let others = batches.iter().enumerate();
            latest >= batches.len()
                && others.into_iter().all(|(_, b)| !is_before(problem, &batches[*i], b))
        };
        // Of equals the last stays the last.
        let last = (0..batches.len())
            .rev()
            .filter(may_be_last)
            .min_by_key(|i| weight(problem, &batches[*i]))?;
        ordered.push(batches.remove(last));
    }
    ordered.reverse();
    Some(ordered)
}

/// Every container as early as those before it allow, the most urgent first, whatever that costs.
pub(crate) fn earliest(problem: &Problem) -> Vec<Pattern> {
    let kinds = problem.kinds();
    let mut left: Pattern = kinds.iter().map(|k| k.count).collect();
    let mut urgent: Vec<usize> = (0..kinds.len()).collect();
    urgent.sort_by_key(|a| (problem.latest(*a), *a));
    let mut batches = Vec::new();
    while left.iter().any(|n| *n > 0) {
        let mut batch = vec![0; kinds.len()];
        for a in &urgent {
            let is_free = kinds[*a].after.iter().all(|p| left[*p] == 0);
            while is_free && batch[*a] < left[*a] {
                batch[*a] += 1;
                if !problem.fits(&batch) {
                    batch[*a] -= 1;
                    break;
                }
            }
        }
        left.iter_mut().zip(&batch).for_each(|(left, n)| *left -= n);
        batches.push(batch);
    }
    batches
}

/// In which batch it starts at the latest.
fn latest(problem: &Problem, batch: &[u32]) -> u32 {
    let held = (0..batch.len()).filter(|a| batch[*a] > 0);
    held.map(|a| problem.latest(a)).min().unwrap_or(u32::MAX)
}

/// Whether somebody in `later` waits for somebody in `batch`; in itself, too.
fn is_before(problem: &Problem, batch: &[u32], later: &[u32]) -> bool {
    let held = (0..later.len()).filter(|a| later[*a] > 0);
    held.flat_map(|a| &problem.kinds()[a].after).any(|p| batch[*p] > 0)
}

fn weight(problem: &Problem, batch: &[u32]) -> u64 {
    batch.iter().zip(problem.kinds()).map(|(n, k)| u64::from(*n) * k.weight).sum()
}
