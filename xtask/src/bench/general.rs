//! Problems whose containers all differ, as random as one likes: how many are proven, and how long that takes.
//!
//! Penalties are of three kinds (solvers A.4): any of 0 to 5 for each pair, as in the paper's Fig. 13; ten times
//! that of one of six characters each, and a little noise; and from how alike two are in what they read and
//! how sequentially, the more so the busier they are.

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
