//! In which order batches start.
//!
//! What a plan costs does not depend on it, so of the orders that keep everybody after what it waits for and
//! within its deadline, one is chosen in which those of more weight start earlier. From the last batch to
//! the first: of those that nobody left waits for and that may be so late, the lightest (Smith's rule for
//! jobs of one length; exact where nobody waits for anybody). O(batches · kinds) and a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::problem::{Pattern, Problem};

/// The same batches in order; `None` if they have none.
pub(crate) fn arrange(problem: &Problem, batches: Vec<Pattern>) -> Option<Vec<Pattern>> {
    let mut line = Line::new(problem, &batches);
    let mut last_first = Vec::with_capacity(batches.len());
    for position in (1..=batches.len()).rev() {
        line.admit(position);
        let (_, Reverse(batch)) = line.ready.pop()?.0;
        line.leave(batch);
        last_first.push(batch);
    }
    let mut batches: Vec<Option<Pattern>> = batches.into_iter().map(Some).collect();
    last_first.into_iter().rev().map(|i| batches[i].take()).collect()
}

/// Batches that are not in order yet.
struct Line<'a> {
    problem: &'a Problem,
    /// Kinds of each batch.
    held: Vec<Vec<usize>>,
    /// Batches that hold a kind.
    holders: Vec<Vec<usize>>,
    /// How many batches wait for a kind, each as often as it has kinds that do.
    awaited: Vec<usize>,
    weights: Vec<u64>,
    /// Those that may be this late, though somebody may wait for them.
    is_in_time: Vec<bool>,
    /// By the last position that they may have, the latest at the end.
    urgent: Vec<(usize, usize)>,
    /// The lightest first, and of equals the last.
    ready: BinaryHeap<Reverse<(u64, Reverse<usize>)>>,
}

impl<'a> Line<'a> {
    fn new(problem: &'a Problem, batches: &[Pattern]) -> Line<'a> {
        let kinds = problem.kinds();
        let holds = |b: &Pattern| (0..b.len()).filter(|a| b[*a] > 0).collect();
        let held: Vec<Vec<usize>> = batches.iter().map(holds).collect();
        let (mut holders, mut awaited) = (vec![Vec::new(); kinds.len()], vec![0; kinds.len()]);
        for (batch, held) in held.iter().enumerate() {
            for a in held {
                holders[*a].push(batch);
                kinds[*a].after.iter().for_each(|p| awaited[*p] += 1);
            }
        }
        let weight = |b: &Pattern| b.iter().zip(kinds).map(|(n, k)| u64::from(*n) * k.weight).sum();
        let latest = |held: &Vec<usize>| held.iter().map(|a| problem.latest(*a) as usize).min();
        let last = held.iter().map(|h| latest(h).unwrap_or(usize::MAX).min(batches.len()));
        let mut urgent: Vec<(usize, usize)> = last.zip(0..).collect();
        urgent.sort_unstable();
        Line {
            problem,
            holders,
            awaited,
            weights: batches.iter().map(weight).collect(),
            is_in_time: vec![false; batches.len()],
            urgent,
            ready: BinaryHeap::new(),
            held,
        }
    }

    /// Those that may be as late as this.
    fn admit(&mut self, position: usize) {
        while self.urgent.last().is_some_and(|(last, _)| *last >= position) {
            let Some((_, batch)) = self.urgent.pop() else { return };
            self.is_in_time[batch] = true;
            self.offer(batch);
        }
    }

    fn offer(&mut self, batch: usize) {
        let is_free = self.held[batch].iter().all(|a| self.awaited[*a] == 0);
        if is_free && self.is_in_time[batch] {
            self.ready.push(Reverse((self.weights[batch], Reverse(batch))));
        }
    }

    /// It has its place; nobody waits for others on its account any more.
    fn leave(&mut self, batch: usize) {
        for a in std::mem::take(&mut self.held[batch]) {
            for p in &self.problem.kinds()[a].after {
                self.awaited[*p] -= 1;
                if self.awaited[*p] == 0 {
                    let holders = self.holders[*p].clone();
                    holders.into_iter().for_each(|batch| self.offer(batch));
                }
            }
        }
    }
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
