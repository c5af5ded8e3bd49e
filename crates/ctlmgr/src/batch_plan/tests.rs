use serde_json::json;

use super::*;

/// All ways to divide `n` things: which batch each is in, batches numbered by their first.
fn divisions(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..n {
        let longer = |d: Vec<usize>| {
            let next = d.iter().max().map_or(0, |m| m + 1);
            (0..=next).map(move |b| [d.clone(), vec![b]].concat())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

/// Eq. 3 with both weights 1, over bins of single containers.
fn best_of_all(bins: &[usize], penalty: &[[u32; 3]; 3]) -> f64 {
    let n = bins.len();
    let pairs = || (0..n).flat_map(move |a| (a + 1..n).map(move |b| (a, b)));
    let s = |(a, b): (usize, usize)| f64::from(penalty[bins[a]][bins[b]]);
    let most: f64 = pairs().map(s).sum();
    let value = |d: &Vec<usize>| {
        let total: f64 = pairs().filter(|(a, b)| d[*a] == d[*b]).map(s).sum();
        let batches = d.iter().max().map_or(0, |m| *m);
        let part = |value: f64, most: f64| if most > 0.0 { 1.0 - value / most } else { 1.0 };
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let by_count = part(batches as f64, (n - 1) as f64);
        part(total, most) + by_count
    };
    divisions(n).iter().map(value).fold(0.0, f64::max)
}

#[test]
fn entries_of_the_same_bins_in_any_order_are_planned_as_well_as_can_be() {
    let tables = [
        [[0, 2, 1], [2, 0, 1], [1, 1, 0]],
        [[1, 2, 0], [2, 3, 0], [0, 0, 1]],
        [[0, 1, 2], [1, 1, 1], [2, 1, 0]],
        [[2, 2, 1], [2, 2, 1], [1, 1, 3]],
        [[3, 1, 1], [1, 0, 1], [1, 1, 2]],
    ];
    for penalty in tables {
        for code in 0..3_usize.pow(5) {
            let bins: Vec<usize> = (0..5).map(|i| code / 3_usize.pow(i) % 3).collect();
            let name = |(i, bin): (usize, &usize)| json!({"name": format!("c{i}"), "bin": format!("b{bin}")});
            let containers: Vec<_> = bins.iter().enumerate().map(name).collect();
            let input = json!({
                "bins": ["b0", "b1", "b2"], "penalty": penalty, "containers": containers,
            });
            let found = solve(&input.to_string(), Some(200)).unwrap();
            let best = best_of_all(&bins, &penalty);
            assert!(
                (found.objective - best).abs() < 1e-9,
                "{input}: {found:?}, {best} is possible"
            );
        }
    }
}

#[test]
fn entries_with_counts_are_the_same_as_single_ones() {
    let penalty = [[0, 2], [2, 1]];
    let input =
        |containers| json!({"bins": ["b0", "b1"], "penalty": penalty, "containers": containers});
    let single = [0, 1, 0, 1, 1].iter().enumerate();
    let single: Vec<_> =
        single.map(|(i, b)| json!({"name": format!("c{i}"), "bin": format!("b{b}")})).collect();
    let counted = json!([{"name": "x", "bin": "b0", "count": 2}, {"name": "y", "bin": "b1"},
        {"name": "z", "bin": "b1", "count": 2}]);
    let objective = |containers| solve(&input(containers).to_string(), None).unwrap().objective;
    assert!((objective(json!(single)) - objective(counted)).abs() < 1e-9);
}

fn four(change: impl Fn(&mut Vec<serde_json::Value>)) -> serde_json::Value {
    let mut containers: Vec<_> = (0..4).map(|i| json!({"name": format!("c{i}")})).collect();
    change(&mut containers);
    let fights = [[0, 9, 1, 1], [9, 0, 1, 1], [1, 1, 0, 9], [1, 1, 9, 0]];
    json!({"max_batch": 2, "pairwise": fights, "containers": containers})
}

fn planned(input: &serde_json::Value) -> Vec<Vec<String>> {
    solve(&input.to_string(), Some(100)).unwrap().batches
}

#[test]
fn deadlines_are_kept_and_what_cannot_be_is_named() {
    let input = four(|c| c[3]["deadline"] = json!(1));
    assert!(planned(&input)[0].contains(&"c3".to_owned()));
    let input = four(|c| (0..3).for_each(|i| c[i]["deadline"] = json!(1)));
    let error = solve(&input.to_string(), None).unwrap_err().to_string();
    assert!(error.starts_with("container `c") && error.contains("`deadline`"), "{error}");
    let error = solve(&four(|c| c[1]["deadline"] = json!(0)).to_string(), None).unwrap_err();
    assert!(error.to_string().contains("the first is 1"), "{error}");
    let error = solve(&four(|c| c[1]["weight"] = json!(-1)).to_string(), None).unwrap_err();
    assert!(error.to_string().contains("`weight` is -1"), "{error}");
}

#[test]
fn those_of_more_weight_start_first_where_that_costs_nothing() {
    for heavy in 0..4 {
        let input = four(|c| c[heavy]["weight"] = json!(400));
        assert!(planned(&input)[0].contains(&format!("c{heavy}")));
    }
}

#[test]
fn what_runs_is_in_the_first_batch_and_is_not_waited_for() {
    let runs = |c: &mut Vec<serde_json::Value>| {
        c[0]["running"] = json!(true);
        c[2]["after"] = json!(["c0"]);
    };
    let found = planned(&four(runs));
    assert!(found[0].contains(&"c0".to_owned()) && !found[0].contains(&"c1".to_owned()));
    assert_eq!(found.len(), 2, "c2 need not wait: {found:?}");
    let run = batches(&four(runs).to_string()).unwrap();
    assert!(run.iter().flatten().all(|name| name != "c0"), "it runs already: {run:?}");
    // More than a batch holds: nobody joins them.
    let found = planned(&four(|c| (0..3).for_each(|i| c[i]["running"] = json!(true))));
    assert_eq!(found, [vec!["c0", "c1", "c2"], vec!["c3"]]);
    let late = four(|c| {
        (0..3).for_each(|i| c[i]["running"] = json!(true));
        c[3]["deadline"] = json!(1);
    });
    let error = solve(&late.to_string(), None).unwrap_err().to_string();
    assert!(error.contains("fill the first batch"), "{error}");
    assert!(company(&late.to_string()).is_ok(), "who is not to be started need not fit");
    // Three tenths are three tenths.
    let mut full = four(|c| (0..3).for_each(|i| c[i]["running"] = json!(true)));
    full["max_batch"] = json!(3);
    full["capacity"] = json!({"cpu": 0.3});
    (0..3).for_each(|i| full["containers"][i]["use"] = json!({"cpu": 0.1}));
    assert_eq!(planned(&full)[0].len(), 3);
}

#[test]
fn those_that_run_and_fill_the_first_batch_count_in_what_is_said_of_the_plan() {
    let found =
        solve(&four(|c| (0..3).for_each(|i| c[i]["running"] = json!(true))).to_string(), Some(100))
            .unwrap();
    // 9 + 1 + 1 of 22 in the first of two batches.
    assert!((found.penalty_total - 11.0).abs() < 1e-9, "{found:?}");
    let expected = (1.0 - 11.0 / 22.0) + (1.0 - 1.0 / 3.0);
    assert!((found.objective - expected).abs() < 1e-9 && found.proven, "{found:?}");
    assert!((found.bound - expected).abs() < 1e-9);
}

/// Uses that are no decimals: what fits fits, and whoever uses all there is, too.
#[test]
fn capacities_are_exact_to_the_last_digit() {
    let of = |uses: f64, count: u32, have: f64| {
        let input = json!({"bins": ["x"], "penalty": [[0]], "capacity": {"cpu": have},
            "containers": [{"name": "a", "bin": "x", "count": count, "use": {"cpu": uses}}]});
        solve(&input.to_string(), Some(100)).unwrap()
    };
    let third = of(1.0 / 3.0, 3, 1.0);
    assert!(third.batches.len() == 1 && third.proven, "{third:?}");
    for n in 1..200 {
        let amount = f64::from(n) / 97.0;
        let alone = of(amount, 1, amount);
        assert!(alone.proven && alone.batches.len() == 1, "{amount}");
        let two = of(amount, 2, amount * 2.0);
        assert!(two.proven && two.batches.len() == 1, "{amount}");
        assert_eq!(of(amount, 2, amount * 1.999_999_999).batches.len(), 2, "{amount}");
    }
    let apart = json!({"bins": ["x"], "penalty": [[0]], "capacity": {"b": 1e15},
        "containers": [{"name": "a", "bin": "x", "use": {"b": 1.234_567_890_123e-9}}, {"name": "c", "bin": "x",
        "use": {"b": 1e15}}]});
    let found = solve(&apart.to_string(), Some(100)).unwrap();
    assert!(!found.proven && found.bound >= 2.0, "what was rounded proves nothing: {found:?}");
}

/// The best of Eq. 3 over all divisions of as many as there are rows.
fn best_by_pairs(table: &[Vec<f64>]) -> f64 {
    let n = table.len();
    let pairs = || (0..n).flat_map(move |a| (a + 1..n).map(move |b| (a, b)));
    let most: f64 = pairs().map(|(a, b)| table[a][b]).sum();
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let value = |d: &Vec<usize>| {
        let total: f64 = pairs().filter(|(a, b)| d[*a] == d[*b]).map(|(a, b)| table[a][b]).sum();
        let batches = d.iter().max().map_or(0, |m| *m);
        2.0 - total / most - batches as f64 / (n - 1) as f64
    };
    divisions(n).iter().map(value).fold(0.0, f64::max)
}

#[test]
fn penalties_that_are_no_decimals_are_planned_and_proven_like_others() {
    let mut seed = 7_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(seed >> 40).unwrap()) / 3_000_017.0
    };
    for n in [3, 5, 7] {
        for _ in 0..8 {
            let mut table = vec![vec![0.0; n]; n];
            for (a, b) in (0..n).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let s = next();
                (table[a][b], table[b][a]) = (s, s);
            }
            let containers: Vec<_> = (0..n).map(|i| json!({"name": format!("c{i}")})).collect();
            let input = json!({"pairwise": table, "containers": containers});
            let found = solve(&input.to_string(), Some(2000)).unwrap();
            let best = best_by_pairs(&table);
            assert!((found.objective - best).abs() < 1e-6, "{found:?}, {best} is possible");
            assert!(
                found.proven && found.bound >= best - 1e-12 && found.bound <= best + 1e-6,
                "{found:?}"
            );
        }
    }
}

/// Eight that all differ, some after others, with a size: against all divisions that have an order.
#[test]
fn plans_with_an_order_are_proven() {
    let fights = |a: usize, b: usize| if a == b { 0 } else { (a * 7 + b * 7 + a * b * 5) % 6 };
    let table: Vec<Vec<usize>> = (0..18).map(|a| (0..18).map(|b| fights(a, b)).collect()).collect();
    let containers: Vec<_> = (0..18)
        .map(|i| {
            let after: Vec<_> = if i % 3 == 2 {
                vec![format!("c{}", i - 1), format!("c{}", i - 2)]
            } else {
                vec![]
            };
            json!({"name": format!("c{i}"), "after": after})
        })
        .collect();
    let input = json!({"pairwise": table, "containers": containers, "max_batch": 6, "time_limit_ms": 600_000});
    let found = solve(&input.to_string(), None).unwrap();
    assert!(found.proven, "{found:?}");
    let batch_of = |name: String| found.batches.iter().position(|b| b.contains(&name)).unwrap();
    for i in (2..18).step_by(3) {
        let own = batch_of(format!("c{i}"));
        assert!([1, 2].iter().all(|d| batch_of(format!("c{}", i - d)) < own), "{found:?}");
    }
}
