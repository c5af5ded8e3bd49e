//! The exact solver beside trying all, and as the judge of the search.

use super::*;
use crate::placement::exact::{self, Answer};
use ctlmgr_model::Millis;

/// The best that the solver finds from one placement on; it must prove it.
fn solved(problem: &Problem, mut at: Vec<usize>) -> Vec<Vec<usize>> {
    let graph = problem.graph();
    loop {
        match exact::improve(&graph, &at, None) {
            Answer::Better(found) => {
                assert!(exact::score(&graph, &found) < exact::score(&graph, &at));
                at = found;
            }
            Answer::Best => return graph.domains_of_workloads(&at, problem.workloads.len()),
            Answer::Unknown => panic!("{problem:?} is small"),
        }
    }
}

fn proven(problem: &Problem, rounds: u64) -> Proven {
    prove(problem, &mut Work::new(rounds, &|| None), &|| None).unwrap()
}

#[test]
fn what_cannot_be_told_is_not_proven() {
    let small = problem(&[100, 100, 100], &[(0, 1, 50)], 2);
    assert!(proven(&small, 10).is_optimal);
    let mut far = problem(&[100, 100, 100], &[(0, 1, 50)], 3);
    // No tree: 0 is near to 1, and 1 to 2, but 0 not to 2.
    far.distance = vec![vec![0, 1, 5], vec![1, 0, 1], vec![5, 1, 0]];
    assert!(!proven(&far, 10).is_optimal);
    let many = problem(&[10; 400], &[(0, 1, 50)], 64);
    assert!(!proven(&many, 10).is_optimal, "too large");
    let edges: Vec<_> =
        (0..40).flat_map(|a| (0..a).map(move |b| (b, a, 1 + as_i64(a * b) % 7))).collect();
    let hard = problem(&[100; 40], &edges, 4);
    let found = prove(&hard, &mut Work::new(10, &|| None), &|| Some(Millis(50))).unwrap();
    assert!(!found.is_optimal, "there was no time");
}

#[test]
fn a_price_of_moves_beyond_all_that_they_save_hides_nothing() {
    let mut problem = problem(&[100; 4], &[(0, 2, 50), (1, 3, 50)], 2);
    problem.move_price = 1_000_000_000_000;
    assert_eq!(judge(&problem, &solved(&problem, vec![0, 0, 1, 1])), (0, 0), "nobody has to move");
    for (w, home) in problem.workloads.iter_mut().zip([0, 0, 1, 1]) {
        w.current = vec![home];
    }
    assert_eq!(solved(&problem, vec![0, 1, 0, 1]), [[0], [0], [1], [1]], "all are where they were");
}

#[test]
fn parts_and_exclusive_ones_are_counted_as_the_search_counts_them() {
    let mut problem = problem(&[900, 50, 50, 50, 10], &[(0, 1, 10), (0, 2, 10), (2, 4, 300)], 4);
    problem.limits = vec![600; 4];
    problem.workloads[0].widest = 3;
    problem.workloads[4].is_exclusive = true;
    let found = proven(&problem, 500);
    assert!(found.is_optimal);
    assert_eq!(found.placement.overload, 0);
    assert!((0..4).all(|w| found.placement.domains[w] != found.placement.domains[4]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_solver_agrees_with_trying_all(problem in any_problem(7), pinned in 0usize..3) {
        let mut problem = problem;
        for w in problem.workloads.iter_mut().take(pinned) {
            w.is_pinned = !w.current.is_empty();
        }
        let home = |w: &Workload| w.current.first().copied().filter(|_| w.is_pinned);
        let at = problem.workloads.iter().map(|w| home(w).unwrap_or(0)).collect();
        let is_kept = |at: &[Vec<usize>]| {
            let all = problem.workloads.iter().zip(at);
            all.filter(|(w, _)| w.is_pinned).all(|(w, at)| w.current == *at)
        };
        prop_assert_eq!(judge(&problem, &solved(&problem, at)), best_of_all(&problem, is_kept));
    }
}

// Search is no proof, so these are the same cases each time.
proptest! {
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn search_finds_what_the_solver_proves(problem in any_problem(13)) {
        let found = run(&problem, 4000);
        let at = found.domains.iter().map(|d| d[0]).collect();
        prop_assert_eq!(judge(&problem, &found.domains), judge(&problem, &solved(&problem, at)));
    }
}
