//! What made a prototype claim proofs that were none (solvers A.5, by its numbers).

use proptest::prelude::*;

use super::*;
use crate::batching::tests::problems;

/// Every pattern that fits.
fn patterns(problem: &Problem) -> Vec<Pattern> {
    let longer = |all: Vec<Pattern>, kind: &crate::batching::Kind| -> Vec<Pattern> {
        let next = |p: Pattern| (0..=kind.count).map(move |n| [p.as_slice(), &[n]].concat());
        all.into_iter().flat_map(next).collect()
    };
    let all = problem.kinds().iter().fold(vec![Vec::new()], longer);
    let in_order = |p: &Pattern| {
        let held: Vec<usize> = (0..p.len()).filter(|a| p[*a] > 0).collect();
        held.iter().all(|a| held.iter().all(|b| !problem.are_apart(*a, *b)))
    };
    let may_be = |p: &Pattern| p.iter().any(|n| *n > 0) && problem.fits(p) && in_order(p);
    all.into_iter().filter(may_be).collect()
}

fn reduced(problem: &Problem, prices: &Prices, pattern: &Pattern) -> i64 {
    let paid: i64 = prices.kinds.iter().zip(pattern).map(|(p, n)| p * i64::from(*n)).sum();
    problem.cost(pattern) - paid - prices.batch
}

fn effort() -> Effort<'static> {
    Effort { nodes: u64::MAX, is_over: &|| false }
}

/// Prices of any sign for the batch: the range of batch numbers may have no end.
fn priced() -> impl Strategy<Value = (Problem, Prices)> {
    (problems(), proptest::collection::vec(0i64..12, 4), -9i64..9).prop_map(
        |(problem, pay, batch)| {
            let kinds = pay[..problem.kinds().len()].to_vec();
            (problem, Prices { kinds, batch })
        },
    )
}

proptest! {
    /// Trap 3: what adds to the cost may belong to a better plan all the same.
    #[test]
    fn all_below_a_limit_are_found_and_the_cheapest_is_cheapest(
        (problem, prices) in priced(), limit in -5i64..20,
    ) {
        let all = patterns(&problem);
        let mut expected: Vec<Pattern> =
            all.iter().filter(|p| reduced(&problem, &prices, p) < limit).cloned().collect();
        let found = all_below(&problem, &prices, (limit, usize::MAX), effort());
        prop_assert!(found.is_complete);
        let mut listed: Vec<Pattern> = found.patterns.into_iter().map(|(_, p)| p).collect();
        listed.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(listed, expected);
        let least = all.iter().map(|p| reduced(&problem, &prices, p)).min();
        let cheapest = cheapest(&problem, &prices, effort());
        prop_assert_eq!(cheapest.patterns.last().map(|(r, _)| *r), least);
    }

    /// Trap 2: a price of a batch below zero counts in the bound, too.
    #[test]
    fn prices_of_either_sign_prove_no_more_than_is_true((problem, prices) in priced()) {
        let all = patterns(&problem);
        let least = all.iter().map(|p| reduced(&problem, &prices, p)).min().unwrap();
        let work = Work::new(0, &|| None);
        let alone: Vec<Pattern> = all.iter().filter(|p| p.iter().sum::<u32>() == 1).cloned().collect();
        let plan: Vec<Pattern> = alone
            .iter()
            .flat_map(|p| {
                let kind = p.iter().position(|n| *n > 0).unwrap();
                std::iter::repeat_n(p.clone(), problem.kinds()[kind].count as usize)
            })
            .collect();
        let mut generation = Generation::new(&problem, plan.clone(), (&work, &|| false));
        let batches = i64::try_from(plan.len()).unwrap();
        generation.bounds = [(batches, nothing_known())].into();
        generation.certify(&prices, least);
        prop_assert!(generation.bounds[&batches].least <= generation.cost);
    }
}

fn nothing_known() -> Bound {
    Bound { least: 0, certificate: None }
}

/// Four that each cost the next one something; twice the first one where it is an integer program that chooses.
fn four(first: u32) -> Problem {
    let count = |a| if a == 0 { first } else { 1 };
    let kind = |a| crate::batching::Kind { count: count(a), ..crate::batching::Kind::default() };
    let penalty = vec![vec![0, 3, 1, 2], vec![3, 0, 2, 1], vec![1, 2, 0, 3], vec![2, 1, 3, 0]];
    Problem::new((0..4).map(kind).collect(), penalty, None, Vec::new(), (1, 2)).unwrap()
}

fn singles(problem: &Problem) -> Vec<Pattern> {
    let alone = |a: usize| (0..4).map(|b| u32::from(a == b)).collect::<Pattern>();
    let of = |a: usize| std::iter::repeat_n(alone(a), problem.kinds()[a].count as usize);
    (0..4).flat_map(of).collect()
}

/// Trap 1: the bound is convex in the number of batches, and one that is closed says nothing of those beyond.
#[test]
fn a_number_that_is_closed_does_not_close_those_beyond() {
    let (problem, work) = (four(1), Work::new(0, &|| None));
    let mut generation = Generation::new(&problem, singles(&problem), (&work, &|| false));
    let bound = |least| Bound { least, certificate: None };
    let cost = generation.cost;
    generation.bounds = [(1, bound(cost)), (2, bound(cost + 5)), (3, bound(0))].into();
    assert_eq!(generation.open_numbers(), [3]);
}

/// Trap 4: without prices nothing is enumerated, and no plan is no proof.
#[test]
fn a_number_without_a_certificate_stays_open() {
    let (problem, work) = (four(1), Work::new(0, &|| Some(Millis(60_000))));
    let mut generation = Generation::new(&problem, singles(&problem), (&work, &|| false));
    generation.bounds = [(2, nothing_known())].into();
    generation.decide(2, NODES);
    assert_eq!(generation.bounds[&2].least, 0);
}

/// Trap 5: the best of some patterns is not the best, whoever chooses.
#[test]
fn an_enumeration_that_was_cut_short_proves_nothing() {
    for first in [1, 2] {
        let (problem, work) = (four(first), Work::new(0, &|| Some(Millis(60_000))));
        let with = |nodes: u64| {
            let mut generation = Generation::new(&problem, singles(&problem), (&work, &|| false));
            let prices = Prices { kinds: vec![0; 4], batch: 0 };
            generation.bounds = [(2, Bound { least: 0, certificate: Some((0, prices)) })].into();
            generation.nodes = nodes;
            generation.decide(2, NODES);
            generation.bounds[&2].least
        };
        assert_eq!(with(3), 0);
        let all = patterns(&problem);
        let counts: Vec<u32> = problem.kinds().iter().map(|k| k.count).collect();
        let is_rest =
            |p: &Pattern, q: &Pattern| p.iter().zip(q).zip(&counts).all(|((a, b), n)| a + b == *n);
        let pairs = all.iter().flat_map(|p| all.iter().map(move |q| (p, q)));
        let of_two =
            pairs.filter(|(p, q)| is_rest(p, q)).map(|(p, q)| problem.cost(p) + problem.cost(q));
        assert_eq!(Some(with(u64::MAX)), of_two.min());
    }
}
