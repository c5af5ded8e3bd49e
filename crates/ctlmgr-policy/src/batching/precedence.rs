//! Who starts before whom: circles, latest batches, and who cannot be in one batch.

use std::collections::BTreeSet;

use super::problem::{Infeasible, Kind};

/// A circle of dependencies leaves kinds that never become free.
pub(super) fn expect_order(kinds: &[Kind]) -> Result<(), Infeasible> {
    let mut done = vec![false; kinds.len()];
    while let Some(next) =
        (0..done.len()).find(|k| !done[*k] && kinds[*k].after.iter().all(|p| done[*p]))
    {
        done[next] = true;
    }
    done.iter().position(|d| !d).map_or(Ok(()), |kind| Err(Infeasible::Cycle { kind }))
}

/// In which batch each kind starts at the latest: whoever is waited for starts at least one batch before.
pub(super) fn latest(kinds: &[Kind]) -> Result<Vec<u32>, Infeasible> {
    let mut latest: Vec<u32> = kinds.iter().map(|k| k.deadline.unwrap_or(u32::MAX)).collect();
    for _ in 0..kinds.len() {
        for (a, kind) in kinds.iter().enumerate() {
            let before = latest[a].saturating_sub(u32::from(latest[a] < u32::MAX));
            for p in &kind.after {
                latest[*p] = latest[*p].min(before);
            }
        }
    }
    let late = latest.iter().zip(kinds).position(|(l, k)| *l == 0 && k.count > 0);
    late.map_or(Ok(latest), |kind| Err(Infeasible::TooLate { kind }))
}

/// Of each kind those that it waits for and that wait for it, through however many.
pub(super) fn apart(kinds: &[Kind]) -> Vec<BTreeSet<usize>> {
    let mut apart = vec![BTreeSet::new(); kinds.len()];
    for (a, kind) in kinds.iter().enumerate() {
        let mut open = kind.after.clone();
        while let Some(p) = open.pop() {
            if apart[a].insert(p) {
                apart[p].insert(a);
                open.extend(&kinds[p].after);
            }
        }
    }
    apart
}
