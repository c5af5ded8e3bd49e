//! Penalties between containers, by bin or by pair.

use anyhow::{Context, anyhow, ensure};

use super::{Container, Input};
use crate::scale::{Scale, integer};

/// Penalties as they were given: by bin, or by entry.
pub(super) struct Penalties<'a> {
    rows: &'a [Vec<f64>],
    /// Row of each entry.
    row: Vec<usize>,
}

impl<'a> Penalties<'a> {
    pub fn new(input: &'a Input) -> Result<Penalties<'a>, anyhow::Error> {
        let (rows, field, row) = match (&input.penalty, &input.pairwise) {
            (Some(rows), None) => (rows, "penalty", by_bin(input)?),
            (None, Some(rows)) => (rows, "pairwise", (0..input.containers.len()).collect()),
            (Some(_), Some(_)) => {
                return Err(anyhow!("`penalty` and `pairwise` exclude each other"));
            }
            (None, None) => return Err(anyhow!("missing field `penalty` or `pairwise`")),
        };
        let twice = input.bins.iter().enumerate().find(|(i, b)| input.bins[..*i].contains(b));
        ensure!(twice.is_none(), "`bins` has `{}` twice", twice.map_or("", |(_, b)| b));
        ensure!(
            field == "penalty" || input.bins.is_empty(),
            "`bins` go with `penalty`, not `pairwise`"
        );
        let size = if field == "penalty" { input.bins.len() } else { input.containers.len() };
        ensure!(
            rows.len() == size && rows.iter().all(|r| r.len() == size),
            "`{field}` must have {size} rows of {size}"
        );
        for (a, values) in rows.iter().enumerate() {
            for (b, value) in values.iter().enumerate() {
                ensure!(
                    value.is_finite() && *value >= 0.0,
                    "`{field}[{a}][{b}]` is {value}: a penalty is at least 0"
                );
                ensure!(*value == rows[b][a], "`{field}[{a}][{b}]` and `{field}[{b}][{a}]` differ");
            }
        }
        Ok(Penalties { rows, row })
    }

    /// Between kinds, as integers. Different volumes do not conflict.
    pub fn between(&self, input: &Input, groups: &[Vec<usize>]) -> (Vec<Vec<i64>>, Scale) {
        let given = self.rows.iter().flatten().chain(&input.taken).copied();
        let scale = Scale::up_to(given, finest(input));
        let one = |a: usize, b: usize| {
            let is_apart = input.containers[a].volume != input.containers[b].volume;
            let penalty = self.rows[self.row[a]][self.row[b]];
            if is_apart { 0 } else { integer(penalty * scale.factor) }
        };
        // Twins by pairwise penalties have their own between them, not on the diagonal.
        let within = |g: &Vec<usize>| one(g[0], if g.len() > 1 { g[1] } else { g[0] });
        let row = |a: &Vec<usize>| {
            groups.iter().map(|b| if a == b { within(a) } else { one(a[0], b[0]) }).collect()
        };
        (groups.iter().map(row).collect(), scale)
    }

    /// Whether entries `a` and `b` conflict alike with everybody, and with each other as each with
    /// its own.
    pub fn are_twins(&self, containers: &[Container], a: usize, b: usize) -> bool {
        let (row_a, row_b) = (self.row[a], self.row[b]);
        if row_a == row_b {
            return true;
        }
        let (of_a, of_b) = (&self.rows[row_a], &self.rows[row_b]);
        let own = of_a[row_b];
        let is_alike = |k: usize| k == row_a || k == row_b || of_a[k] == of_b[k];
        // Only one that is the sole container of its row has no other of its own to conflict with.
        let is_sole = |entry: usize| {
            containers[entry].count == 1
                && self.row.iter().filter(|row| **row == self.row[entry]).count() == 1
        };
        let is_own = |entry: usize, row: usize| is_sole(entry) || self.rows[row][row] == own;
        (0..of_a.len()).all(is_alike) && is_own(a, row_a) && is_own(b, row_b)
    }
}

/// What the largest penalty becomes where they are no decimals: as large as costs allow, which go with the third power of the
/// number of containers.
fn finest(input: &Input) -> f64 {
    let left: f64 = input.containers.iter().map(|c| f64::from(c.count)).sum();
    let n = left + f64::from(input.taken_count);
    let weights = Scale::of([input.objective.penalty, input.objective.batches].into_iter());
    let weight = input.objective.penalty.max(input.objective.batches) * weights.factor;
    (1e17 / (n.powi(3) * weight.max(1.0))).clamp(1e3, 1e9).floor()
}

fn by_bin(input: &Input) -> Result<Vec<usize>, anyhow::Error> {
    let row = |c: &Container| {
        let bin = c.bin.as_ref().with_context(|| format!("container `{}` has no `bin`", c.name))?;
        input
            .bins
            .iter()
            .position(|b| b == bin)
            .with_context(|| format!("container `{}`: `bins` has no `{bin}`", c.name))
    };
    input.containers.iter().map(row).collect()
}
