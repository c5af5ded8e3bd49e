//! A bound for more kinds than can be priced: kinds that are alike are taken for one (solvers A.2).
//!
//! Between two classes stands the least penalty of any two of their members, so every plan is one of the
//! classes too, and costs there no more. With few classes column generation bounds that in little time,
//! and nearly tightly where penalties come from few characters and some noise.

use std::collections::BTreeSet;

use ctlmgr_model::Millis;

use super::problem::{Pattern, Problem};
use super::{Work, columns};

/// So many classes.
pub(crate) const CLASSES: usize = 8;
/// Part of the time that is left: the rest is for better plans.
const SHARE: u64 = 8;

/// No plan costs less; `plan` is one.
pub(crate) fn least(problem: &Problem, plan: &[Pattern], most: usize, work: &Work<'_>) -> i64 {
    let class = classes(problem, most);
    let merged = problem.merged(&class);
    let plan = plan.iter().map(|batch| merge(batch, &class)).collect();
    let others = work.left().map_or(0, |left| left.0 - left.0 / SHARE);
    let left = || work.left().map(|left| Millis(left.0.saturating_sub(others)));
    let bounded = columns::bounded(&merged, (plan, &BTreeSet::new()), 0, &Work::new(0, &left));
    bounded.map_or(0, |b| b.bound)
}

fn merge(batch: &[u32], class: &[usize]) -> Pattern {
    let mut merged = vec![0; class.iter().max().map_or(0, |last| last + 1)];
    batch.iter().zip(class).for_each(|(n, class)| merged[*class] += n);
    merged
}

/// The class of each kind: that of the nearest of some kinds that are as far apart as can be, each next one
/// the farthest from those before.
fn classes(problem: &Problem, most: usize) -> Vec<usize> {
    let kinds = problem.kinds().len();
    let (mut class, mut distance) = (vec![0; kinds], vec![i128::MAX; kinds]);
    let mut next = Some(0);
    for number in 0..most {
        let Some(middle) = next.filter(|a| distance[*a] > 0) else { break };
        for a in 0..kinds {
            let far = apart(problem, a, middle);
            if far < distance[a] {
                (class[a], distance[a]) = (number, far);
            }
        }
        next = (0..kinds).max_by_key(|a| (distance[*a], std::cmp::Reverse(*a)));
    }
    class
}

/// How differently two kinds treat the others.
fn apart(problem: &Problem, a: usize, b: usize) -> i128 {
    let others = problem.kinds().iter().enumerate().filter(|(c, _)| *c != a && *c != b);
    let differ = |(c, kind): (usize, &super::Kind)| {
        let difference = problem.between(a, c) - problem.between(b, c);
        i128::from(kind.count) * i128::from(difference.abs())
    };
    others.map(differ).sum()
}
