//! What containers of a plan do to each other, by name.

use std::collections::BTreeMap;

use super::penalties::Penalties;
use super::{Case, Input, running};
use crate::input::parse;

/// Penalties and limits of an input.
pub(crate) struct Company {
    case: Case,
    /// Between kinds; and between two of a kind, even where there is one only, which the problem leaves out.
    penalty: Vec<Vec<i64>>,
    kind: BTreeMap<String, usize>,
}

/// So much more than what is equal counts as equal, in per cent: penalties are rounded.
const ROUNDING: i128 = 5;

/// Reads the penalties and limits of an input.
pub(crate) fn company(text: &str) -> Result<Company, anyhow::Error> {
    let mut input: Input = running::settle(parse(text)?);
    // They are not to be started, and may be more than a batch holds.
    running::take_out(&mut input)?;
    let case = Case::new(&input)?;
    let (penalty, _) = Penalties::new(&input)?.between(&input, &case.groups);
    let all = case.names.iter().enumerate();
    let kind = all.flat_map(|(kind, names)| names.iter().map(move |n| (n.clone(), kind))).collect();
    Ok(Company { case, penalty, kind })
}

impl Company {
    /// Whether so many may start at once. Who is not known takes nothing.
    pub fn fits(&self, together: &[&str]) -> bool {
        let mut batch = vec![0; self.case.problem.kinds().len()];
        together.iter().filter_map(|n| self.kind.get(*n)).for_each(|kind| batch[*kind] += 1);
        self.case.problem.fits(&batch)
    }

    /// Whether `one` fights with these no more than with its own batch: in all, and with any.
    pub fn is_no_worse(&self, one: &str, together: &[&str], own: &[String]) -> bool {
        let (sum, worst) = self.fights(one, together.iter().copied());
        let (planned, planned_worst) = self.fights(one, own.iter().map(String::as_str));
        sum <= planned && worst <= planned_worst
    }

    /// Whether two share what they use without wasting it: they fight no harder than each does with its like, in
    /// the geometric mean. Two that take from each other only what each then has cost no more than that (a sum
    /// of products of parts, by Cauchy and Schwarz); what a disk loses between sequential and random is on top.
    /// Where likes cost each other nothing, or nobody says what they do, there is nothing to compare with.
    pub fn wastes_nothing(&self, one: &str, other: &str) -> bool {
        let (Some(a), Some(b)) = (self.kind.get(one), self.kind.get(other)) else { return true };
        let of = |a: &usize, b: &usize| i128::from(self.penalty[*a][*b]);
        let alike = of(a, a) * of(b, b);
        alike == 0 || 100 * of(a, b) * of(a, b) <= (100 + ROUNDING) * alike
    }

    /// The sum of the penalties of one with others, and the largest.
    fn fights<'a>(&self, one: &str, others: impl Iterator<Item = &'a str>) -> (i64, i64) {
        let Some(kind) = self.kind.get(one) else { return (0, 0) };
        let others = others.filter(|other| *other != one);
        let all = others.filter_map(|other| self.kind.get(other));
        let each = all.map(|other| self.penalty[*kind][*other]);
        each.fold((0, 0), |(sum, most), s| (sum + s, most.max(s)))
    }
}
