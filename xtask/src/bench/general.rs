//! Problems whose containers all differ, as random as one likes: how many are proven, and how long that takes.
//!
//! Penalties are of three kinds (solvers A.4): any of 0 to 5 for each pair, as in the paper's Fig. 13; ten times
//! that of one of six characters each, and a little noise; and from how alike two are in what they read and
//! how sequentially, the more so the busier they are. Of the first kind there are some with an order, with capacities, with deadlines
//! and with volumes, too.

use std::fmt::Write;

use anyhow::Result;
use serde_json::{Value, json};

use super::place::{Sequence, planned};

/// Problems of each line of the table.
const EACH: usize = 12;
/// Containers, and most in a batch.
const SIZES: [(usize, usize); 4] = [(25, 8), (25, 25), (30, 8), (30, 30)];
const KINDS: [(&str, Draw); 3] =
    [("random", random), ("six characters and noise", noisy), ("features", features)];

type Table = Vec<Vec<usize>>;
type Draw = fn(usize, &mut Sequence) -> Table;

/// One line for each kind and size.
pub fn table() -> Result<String> {
    let mut out = "| penalties | containers | φ | proven | time, ms: median / most |\n|---|---|---|---|---|\n".to_owned();
    for (name, penalties) in KINDS {
        for (containers, most) in SIZES {
            let mut sequence = Sequence(7);
            let (mut proven, mut times) = (0, Vec::new());
            for _ in 0..EACH {
                let found = plan(&penalties(containers, &mut sequence), most)?;
                proven += usize::from(found["proven"] == true);
                times.push(found["time_ms"].as_u64().unwrap_or(u64::MAX));
            }
            times.sort_unstable();
            let (median, longest) = (times[EACH / 2], times[EACH - 1]);
            writeln!(
                out,
                "| {name} | {containers} | {most} | {proven} of {EACH} | {median} / {longest} |"
            )?;
        }
    }
    Ok(out)
}

fn plan(penalties: &Table, most: usize) -> Result<Value> {
    let containers: Vec<Value> =
        (0..penalties.len()).map(|a| json!({"name": format!("c{a}"), "count": 1})).collect();
    let input = json!({"max_batch": most, "pairwise": penalties, "containers": containers, "time_limit_ms": 3000});
    planned(&["batch", "plan", "-", "--json"], &input)
}

/// What is asked of plans beside penalties.
type Demand = fn(&mut Value, &mut Sequence);
const DEMANDS: [(&str, Demand); 4] = [
    ("an order", order),
    ("capacities", capacities),
    ("deadlines", deadlines),
    ("volumes", volumes),
];

/// One line for each demand, with penalties at random.
pub fn constrained() -> Result<String> {
    let mut out =
        "| with | containers | proven | time, ms: median / most |\n|---|---|---|---|\n".to_owned();
    for (name, demand) in DEMANDS {
        for count in [20, 30] {
            let mut sequence = Sequence(11);
            let (mut proven, mut times) = (0, Vec::new());
            for _ in 0..EACH {
                let containers: Vec<Value> =
                    (0..count).map(|a| json!({"name": format!("c{a}")})).collect();
                let mut input = json!({"max_batch": 8, "pairwise": random(count, &mut sequence),
                    "containers": containers, "time_limit_ms": 3000});
                demand(&mut input, &mut sequence);
                let found = planned(&["batch", "plan", "-", "--json"], &input)?;
                proven += usize::from(found["proven"] == true);
                times.push(found["time_ms"].as_u64().unwrap_or(u64::MAX));
            }
            times.sort_unstable();
            let (median, longest) = (times[EACH / 2], times[EACH - 1]);
            writeln!(out, "| {name} | {count} | {proven} of {EACH} | {median} / {longest} |")?;
        }
    }
    Ok(out)
}

fn each(input: &mut Value, mut change: impl FnMut(usize, &mut Value)) {
    if let Some(containers) = input["containers"].as_array_mut() {
        containers.iter_mut().enumerate().for_each(|(a, container)| change(a, container));
    }
}

/// A third comes after one or two of those before it.
fn order(input: &mut Value, sequence: &mut Sequence) {
    each(input, |a, container| {
        if a > 1 && sequence.below(3) == 0 {
            let before = [sequence.below(a), sequence.below(a)].map(|b| format!("c{b}"));
            container["after"] = json!(before);
        }
    });
}

fn capacities(input: &mut Value, sequence: &mut Sequence) {
    input["capacity"] = json!({"cpu": 8, "page_cache_gb": 20});
    each(input, |_, container| {
        let (cpu, cache) = (1 + sequence.below(3), sequence.below(7));
        container["use"] = json!({"cpu": cpu, "page_cache_gb": cache});
    });
}

/// A fifth is wanted in one of the first three batches.
fn deadlines(input: &mut Value, sequence: &mut Sequence) {
    each(input, |_, container| {
        if sequence.below(5) == 0 {
            container["deadline"] = json!(1 + sequence.below(3));
        }
    });
}

fn volumes(input: &mut Value, sequence: &mut Sequence) {
    each(input, |_, container| container["volume"] = json!(format!("v{}", sequence.below(3))));
}

fn pairs(containers: usize, mut between: impl FnMut(usize, usize) -> usize) -> Table {
    let mut table: Table = Vec::new();
    for a in 0..containers {
        let before: Vec<usize> = (0..a).map(|b| between(a, b)).collect();
        table.iter_mut().zip(&before).for_each(|(row, penalty)| row.push(*penalty));
        table.push([before, vec![0]].concat());
    }
    table
}

fn random(containers: usize, sequence: &mut Sequence) -> Table {
    pairs(containers, |_, _| sequence.below(6))
}

fn noisy(containers: usize, sequence: &mut Sequence) -> Table {
    let mut characters = pairs(6, |_, _| sequence.below(6));
    (0..6).for_each(|c| characters[c][c] = sequence.below(6));
    let of: Vec<usize> = (0..containers).map(|_| sequence.below(6)).collect();
    pairs(containers, |a, b| 10 * characters[of[a]][of[b]] + sequence.below(7))
}

fn features(containers: usize, sequence: &mut Sequence) -> Table {
    let of: Vec<[usize; 3]> =
        (0..containers).map(|_| [101; 3].map(|end| sequence.below(end))).collect();
    pairs(containers, |a, b| {
        let [reads, sequential] = [0, 1].map(|i| of[a][i].abs_diff(of[b][i]));
        (100 - reads) * (20 + sequential) * (2 + of[a][2] + of[b][2]) / 100_000
    })
}
