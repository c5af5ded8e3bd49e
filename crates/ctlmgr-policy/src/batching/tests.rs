use super::*;
use proptest::prelude::*;

/// Least cost over all divisions into batches, by trying them.
fn brute_force(problem: &Problem) -> Option<i64> {
    let units: Vec<usize> = (0..problem.kinds().len())
        .flat_map(|a| std::iter::repeat_n(a, problem.kinds()[a].count as usize))
        .collect();
    let mut best = None;
    divide(problem, &units, &mut Vec::new(), &mut best);
    best
}

fn divide(problem: &Problem, left: &[usize], open: &mut Vec<Pattern>, best: &mut Option<i64>) {
    let Some((kind, left)) = left.split_first() else {
        let cost: i64 = open.iter().map(|b| problem.cost(b)).sum();
        if best.is_none_or(|b| cost < b) && has_order(problem, open) {
            *best = Some(cost);
        }
        return;
    };
    for i in 0..=open.len() {
        if i == open.len() {
            open.push(vec![0; problem.kinds().len()]);
        }
        open[i][*kind] += 1;
        if problem.fits(&open[i]) {
            divide(problem, left, open, best);
        }
        open[i][*kind] -= 1;
        open.retain(|b| b.iter().any(|x| *x > 0));
    }
}

/// Whether batches can be put in an order that lets nobody start before what it waits for, and all in
/// time; by trying.
fn has_order(problem: &Problem, batches: &[Pattern]) -> bool {
    has_order_from(problem, &mut batches.to_vec(), 1)
}

fn has_order_from(problem: &Problem, left: &mut Vec<Pattern>, number: u32) -> bool {
    if left.is_empty() {
        return true;
    }
    for i in 0..left.len() {
        let held: Vec<&Kind> =
            (0..left[i].len()).filter(|a| left[i][*a] > 0).map(|a| &problem.kinds()[a]).collect();
        let is_free = |kind: &&Kind| kind.after.iter().all(|p| left.iter().all(|b| b[*p] == 0));
        let is_in_time = |kind: &&Kind| kind.deadline.is_none_or(|d| number <= d);
        if held.iter().all(|k| is_free(k) && is_in_time(k)) {
            let batch = left.remove(i);
            let is_found = has_order_from(problem, left, number + 1);
            left.insert(i, batch);
            if is_found {
                return true;
            }
        }
    }
    false
}

/// Small problems: up to seven containers of up to four kinds, with capacities, an order and deadlines.
pub(crate) fn problems() -> impl Strategy<Value = Problem> {
    let kinds = proptest::collection::vec(
        (1u32..4, 0u64..5, any::<u8>(), proptest::option::weighted(0.2, 1u32..4)),
        1..5,
    );
    let all =
        (kinds, proptest::collection::vec(0i64..4, 16), 1u32..8, 4u64..12, (1i64..4, 1i64..4));
    all.prop_filter_map("at most seven containers", |(kinds, s, phi, capacity, weights)| {
        if kinds.iter().map(|k| k.0).sum::<u32>() > 7 {
            return None;
        }
        let after =
            |a: usize, bits: u8| (0..a).filter(|p| bits & (0x11 << p) == (0x11 << p)).collect();
        let n = kinds.len();
        let penalty =
            (0..n).map(|a| (0..n).map(|b| s[a.min(b) * 4 + a.max(b)]).collect()).collect();
        let kinds = kinds
            .iter()
            .enumerate()
            .map(|(a, k)| Kind {
                count: k.0,
                uses: vec![k.1],
                after: after(a, k.2),
                deadline: k.3,
                weight: u64::from(k.2 % 3),
            })
            .collect();
        Problem::new(kinds, penalty, Some(phi), vec![capacity], weights).ok()
    })
}

fn searched(problem: &Problem, rounds: u64) -> Batches {
    let mut search = search::Search::new(problem);
    search.run(0, &mut Work::new(rounds, &|| None));
    Batches::new(problem, search.best(), bound::company(problem), Solver::Local)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn dynamic_programming_finds_the_best_plan(problem in problems()) {
        let found = plan(&problem, &mut Work::new(0, &|| None));
        let Ok(found) = found else {
            prop_assert_eq!(brute_force(&problem), None);
            return Ok(());
        };
        prop_assert!(problem.is_plan(&found.batches));
        prop_assert!(found.is_proven());
        prop_assert_eq!(Some(found.cost), brute_force(&problem));
    }

    #[test]
    fn column_generation_bounds_what_it_cannot_solve(problem in problems()) {
        // Search begins where the earliest plan is one.
        prop_assume!(problem.is_plan(&order::earliest(&problem)));
        let best = plan(&problem, &mut Work::new(0, &|| None)).unwrap().cost;
        let start = searched(&problem, 0);
        let (work, pool) = (Work::new(0, &|| None), std::collections::BTreeSet::new());
        let found = columns::bounded(&problem, (start.batches, &pool), bound::company(&problem), &work);
        let found = found.expect("few kinds");
        let cost: i64 = found.plan.iter().map(|b| problem.cost(b)).sum();
        prop_assert!(problem.is_plan(&found.plan));
        prop_assert!(found.bound <= best, "bound {} of {best}", found.bound);
        prop_assert!(best <= cost && cost <= start.cost);
    }

    #[test]
    fn kinds_taken_for_one_bound_every_plan(problem in problems()) {
        prop_assume!(problem.is_plan(&order::earliest(&problem)));
        let work = Work::new(0, &|| None);
        let best = plan(&problem, &mut Work::new(0, &|| None)).unwrap().cost;
        let start = searched(&problem, 0).batches;
        for classes in 1..=3 {
            let bound = envelope::least(&problem, &start, classes, &work);
            prop_assert!(bound <= best, "{bound} of {best} with {classes}");
        }
    }

    #[test]
    fn search_finds_a_plan_between_bound_and_optimum(problem in problems()) {
        // Search begins where the earliest plan is one.
        prop_assume!(problem.is_plan(&order::earliest(&problem)));
        let best = plan(&problem, &mut Work::new(0, &|| None)).unwrap().cost;
        let few = searched(&problem, 0);
        let more = searched(&problem, 60);
        prop_assert!(problem.is_plan(&few.batches) && problem.is_plan(&more.batches));
        prop_assert!(few.bound <= best, "bound {} of {best}", few.bound);
        prop_assert!(best <= more.cost && more.cost <= few.cost);
        prop_assert_eq!(&more, &searched(&problem, 60));
    }

    #[test]
    fn who_weighs_more_starts_earlier_where_that_costs_nothing(
        batches in proptest::collection::vec((0u64..9, proptest::option::of(1u32..7)), 1..7),
    ) {
        let n = batches.len();
        let kinds = batches.iter().map(|(weight, deadline)| Kind {
            count: 1,
            weight: *weight,
            deadline: *deadline,
            ..Kind::default()
        });
        let problem = Problem::new(kinds.collect(), vec![vec![0; n]; n], None, Vec::new(), (1, 1));
        let problem = problem.unwrap();
        let alone = |a: usize| (0..n).map(|b| u32::from(a == b)).collect::<Pattern>();
        let arranged = order::arrange(&problem, (0..n).map(alone).collect());
        let late = |order: &[usize]| -> Option<u64> {
            let start = |(number, a): (usize, &usize)| {
                let number = u32::try_from(number).unwrap() + 1;
                let is_in_time = batches[*a].1.is_none_or(|d| number <= d);
                is_in_time.then_some(u64::from(number) * batches[*a].0)
            };
            order.iter().enumerate().map(start).sum()
        };
        let best = orders(n).iter().filter_map(|order| late(order)).min();
        let found = arranged.map(|b| {
            let order: Vec<usize> = b.iter().map(|b| b.iter().position(|x| *x > 0).unwrap()).collect();
            late(&order).unwrap()
        });
        prop_assert_eq!(found, best);
    }
}

/// All orders of so many.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for next in 0..n {
        let longer = |order: Vec<usize>| {
            (0..=order.len()).map(move |at| [&order[..at], &[next], &order[at..]].concat())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

fn chain(deadline: u32) -> Result<Problem, Infeasible> {
    let link = |a: usize| Kind {
        count: 1,
        after: (a > 0).then(|| a - 1).into_iter().collect(),
        deadline: (a == 3).then_some(deadline),
        ..Kind::default()
    };
    let kinds = (0..4).map(link).collect();
    Problem::new(kinds, vec![vec![0; 4]; 4], None, Vec::new(), (1, 1))
}

#[test]
fn what_cannot_start_in_time_is_named() {
    let found = plan(&chain(4).unwrap(), &mut Work::new(0, &|| None)).unwrap();
    assert_eq!(found.batches.len(), 4);
    assert_eq!(chain(3), Err(Infeasible::TooLate { kind: 0 }));
    // Three by the first batch, of which it holds two.
    let kinds = vec![Kind { count: 3, deadline: Some(1), ..Kind::default() }];
    let problem = Problem::new(kinds, vec![vec![0]], Some(2), Vec::new(), (1, 1)).unwrap();
    let found = plan(&problem, &mut Work::new(0, &|| None));
    assert_eq!(found, Err(Infeasible::TooLate { kind: 0 }));
}

#[test]
fn many_with_deadlines_are_searched_and_in_time() {
    let kind = |a: usize| Kind {
        count: 1,
        deadline: a.is_multiple_of(5).then_some(u32::try_from(a / 10 + 2).unwrap()),
        after: (a % 7 == 6).then(|| a - 1).into_iter().collect(),
        ..Kind::default()
    };
    let kinds: Vec<Kind> = (0..60).map(kind).collect();
    let between = |a: usize| {
        (0..60)
            .map(|b| i64::try_from(((a + 1) * (b + 1) * 37 + (a + b) * 11) % 13).unwrap())
            .collect()
    };
    let problem =
        Problem::new(kinds, (0..60).map(between).collect(), Some(8), Vec::new(), (1, 1)).unwrap();
    let few = plan(&problem, &mut Work::new(0, &|| None)).unwrap();
    let more = plan(&problem, &mut Work::new(400, &|| None)).unwrap();
    assert!(problem.is_plan(&few.batches) && problem.is_plan(&more.batches));
    assert!(more.bound <= more.cost && more.cost < few.cost, "{} {}", more.cost, few.cost);
}

#[test]
fn so_many_batches_are_put_in_order_at_once() {
    let kind = Kind { count: 100_000, weight: 3, ..Kind::default() };
    let light = Kind { count: 1, weight: 1, ..Kind::default() };
    let problem =
        Problem::new(vec![kind, light], vec![vec![0; 2]; 2], Some(1), Vec::new(), (1, 1)).unwrap();
    let batches = [vec![vec![0, 1]], vec![vec![1, 0]; 100_000]].concat();
    let arranged = order::arrange(&problem, batches).unwrap();
    assert_eq!(arranged.last(), Some(&vec![0, 1]));
}
