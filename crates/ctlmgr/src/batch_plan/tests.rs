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
