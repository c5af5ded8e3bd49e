//! Plans out of patterns where nobody repeats: every container covered once, within a budget.
//!
//! With prices for which no pattern costs less than it pays, the reduced costs of a plan's batches are not
//! negative, and add up to what it costs above the bound; a better plan's stay below the gap. So: who is in
//! fewest patterns is covered first, by each pattern that holds it and nobody covered before, cheapest
//! first, until the budget is used up. The last batch is what is left, and is looked up.

use std::collections::BTreeMap;

use super::master::Choice;
use super::order::arrange;
use super::problem::{Pattern, Problem};

/// Most kinds.
const MOST_KINDS: usize = 64;

/// Whether nobody repeats, and they are not too many.
pub(crate) fn applies(problem: &Problem) -> bool {
    let kinds = problem.kinds();
    kinds.len() <= MOST_KINDS && kinds.iter().all(|k| k.count <= 1)
}

struct Walk<'a> {
    /// Reduced cost and members of each pattern by its rarest member, cheapest first.
    buckets: Vec<Vec<(i64, u64)>>,
    /// Reduced cost by members.
    costs: BTreeMap<u64, i64>,
    /// Members of one batch at most.
    most: u32,
    /// Only what is cheaper than this counts.
    limit: i64,
    chosen: Vec<u64>,
    best: Option<Vec<u64>>,
    steps: u64,
    is_over: &'a dyn Fn() -> bool,
    /// Whether the batches can start one after the other.
    has_order: &'a dyn Fn(&[u64]) -> bool,
}

/// Steps between two looks at the clock.
const LOOK: u64 = 1 << 16;

/// The cheapest plan of exactly so many batches out of these patterns, given with their reduced costs, none
/// negative, that has an order and costs less than `limit`.
pub(crate) fn choose(
    problem: &Problem,
    patterns: &[(i64, Pattern)],
    (batches, limit): (i64, i64),
    (steps, is_over): (u64, &dyn Fn() -> bool),
) -> Choice {
    let kinds = problem.kinds();
    let order = by_rarity(patterns, kinds.len());
    let members = |pattern: &Pattern| {
        let bits = order.iter().enumerate().filter(|(_, a)| pattern[**a] > 0);
        bits.fold(0, |mask, (bit, _)| mask | 1 << bit)
    };
    let all = members(&kinds.iter().map(|k| k.count).collect());
    let mut buckets = vec![Vec::new(); kinds.len()];
    let mut costs = BTreeMap::new();
    for (cost, pattern) in patterns {
        let mask: u64 = members(pattern);
        buckets[mask.trailing_zeros() as usize].push((*cost, mask));
        costs.insert(mask, *cost);
    }
    buckets.iter_mut().for_each(|b| b.sort_unstable());
    let pattern = |mask: &u64| {
        let mut pattern = vec![0; kinds.len()];
        let bits = order.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 > 0);
        bits.for_each(|(_, a)| pattern[*a] = 1);
        pattern
    };
    let has_order = |masks: &[u64]| {
        !problem.is_ordered() || arrange(problem, masks.iter().map(pattern).collect()).is_some()
    };
    let mut walk = Walk {
        buckets,
        costs,
        most: problem.max_batch(),
        limit,
        chosen: Vec::new(),
        best: None,
        steps,
        is_over,
        has_order: &has_order,
    };
    if !walk.descend(all, u32::try_from(batches).unwrap_or(0), 0) {
        return Choice::Unknown;
    }
    let plan = walk.best.map(|masks| masks.iter().map(pattern).collect());
    plan.map_or(Choice::Impossible, Choice::Best)
}

/// Kinds, the one first that is in fewest patterns.
fn by_rarity(patterns: &[(i64, Pattern)], kinds: usize) -> Vec<usize> {
    let often = |a: &usize| patterns.iter().filter(|(_, p)| p[*a] > 0).count();
    let mut order: Vec<usize> = (0..kinds).collect();
    order.sort_by_cached_key(|a| (often(a), *a));
    order
}

impl Walk<'_> {
    /// Covers who is `free` with so many batches; whether all ways were tried.
    fn descend(&mut self, free: u64, batches: u32, cost: i64) -> bool {
        if batches == 0 || free.count_ones() > batches * self.most {
            return true;
        }
        if batches == 1 {
            if let Some(last) = self.costs.get(&free).filter(|last| cost + **last < self.limit) {
                let plan: Vec<u64> = self.chosen.iter().copied().chain([free]).collect();
                if (self.has_order)(&plan) {
                    (self.limit, self.best) = (cost + last, Some(plan));
                }
            }
            return true;
        }
        let first = free.trailing_zeros() as usize;
        for i in 0..self.buckets.get(first).map_or(0, Vec::len) {
            let (more, mask) = self.buckets[first][i];
            if cost.saturating_add(more) >= self.limit {
                break;
            }
            self.steps = self.steps.saturating_sub(1);
            if self.steps == 0 || self.steps.is_multiple_of(LOOK) && (self.is_over)() {
                return false;
            }
            if mask & !free != 0 {
                continue;
            }
            self.chosen.push(mask);
            let is_whole = self.descend(free & !mask, batches - 1, cost + more);
            self.chosen.pop();
            if !is_whole {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Kind;
    use super::*;

    const MOST: usize = 7;

    /// Up to seven that each differ, in batches of up to some size.
    fn problems() -> impl Strategy<Value = Problem> {
        let penalties = proptest::collection::vec(0i64..6, MOST * MOST);
        (2..=MOST, 1u32..=7, penalties).prop_map(|(kinds, most, s)| {
            let between = |a: usize, b: usize| s[a.min(b) * MOST + a.max(b)];
            let row =
                |a: usize| (0..kinds).map(|b| if a == b { 0 } else { between(a, b) }).collect();
            let single = |_| Kind { count: 1, ..Kind::default() };
            let (all, penalty) = ((0..kinds).map(single).collect(), (0..kinds).map(row).collect());
            Problem::new(all, penalty, Some(most), Vec::new(), (1, 1)).unwrap()
        })
    }

    /// Every batch of theirs, with what it costs.
    fn patterns(problem: &Problem) -> Vec<(i64, Pattern)> {
        let kinds = problem.kinds().len();
        let members = |mask: u32| (0..kinds).map(|a| mask >> a & 1).collect::<Pattern>();
        let all = (1..1u32 << kinds).map(members).filter(|p| problem.fits(p));
        all.map(|p| (problem.cost(&p), p)).collect()
    }

    /// Least cost of so many batches, by trying all ways to divide them.
    fn least(
        problem: &Problem,
        open: &mut Vec<Pattern>,
        next: usize,
        batches: usize,
    ) -> Option<i64> {
        if next == problem.kinds().len() {
            return (open.len() == batches).then(|| open.iter().map(|b| problem.cost(b)).sum());
        }
        let mut best: Option<i64> = None;
        for i in 0..=open.len() {
            if i == open.len() {
                open.push(vec![0; problem.kinds().len()]);
            }
            open[i][next] = 1;
            if problem.fits(&open[i]) {
                best = best.into_iter().chain(least(problem, open, next + 1, batches)).min();
            }
            open[i][next] = 0;
            open.retain(|b| b.contains(&1));
        }
        best
    }

    fn cost_of(problem: &Problem, choice: &Choice) -> Option<i64> {
        match choice {
            Choice::Best(plan) => Some(plan.iter().map(|b| problem.cost(b)).sum()),
            Choice::Impossible | Choice::Unknown => None,
        }
    }

    proptest! {
        #[test]
        fn the_cheapest_is_chosen_below_a_limit_and_nothing_at_it(
            (problem, batches) in problems().prop_flat_map(|p| (Just(p), 1..=MOST)),
        ) {
            let all = patterns(&problem);
            let number = i64::try_from(batches).unwrap();
            let chosen = |limit: i64| choose(&problem, &all, (number, limit), (u64::MAX, &|| false));
            let best = least(&problem, &mut Vec::new(), 0, batches);
            let found = chosen(i64::MAX);
            prop_assert_eq!(cost_of(&problem, &found), best);
            if let Choice::Best(plan) = &found {
                prop_assert!(plan.len() == batches && problem.is_plan(plan));
            }
            prop_assert!(!matches!(found, Choice::Unknown));
            if let Some(best) = best {
                prop_assert!(matches!(chosen(best), Choice::Impossible));
            }
        }

        #[test]
        fn who_runs_out_of_steps_or_time_claims_nothing(problem in problems(), steps in 1u64..40) {
            let all = patterns(&problem);
            let few = choose(&problem, &all, (2, i64::MAX), (steps, &|| false));
            let best = least(&problem, &mut Vec::new(), 0, 2);
            prop_assert!(matches!(few, Choice::Unknown) || cost_of(&problem, &few) == best);
        }
    }
}
