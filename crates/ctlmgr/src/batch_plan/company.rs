//! What containers of a plan do to each other, by name.

use std::collections::BTreeMap;

use super::{Case, Input, running};
use crate::input::parse;

/// Penalties and limits of an input.
pub(crate) struct Company {
    case: Case,
    kind: BTreeMap<String, usize>,
}

/// Reads the penalties and limits of an input.
pub(crate) fn company(text: &str) -> Result<Company, anyhow::Error> {
    let mut input: Input = running::settle(parse(text)?);
    // They are not to be started, and may be more than a batch holds.
    running::take_out(&mut input)?;
    let case = Case::new(&input)?;
    let all = case.names.iter().enumerate();
    let kind = all.flat_map(|(kind, names)| names.iter().map(move |n| (n.clone(), kind))).collect();
    Ok(Company { case, kind })
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

    /// The sum of the penalties of one with others, and the largest.
    fn fights<'a>(&self, one: &str, others: impl Iterator<Item = &'a str>) -> (i64, i64) {
        let Some(kind) = self.kind.get(one) else { return (0, 0) };
        let others = others.filter(|other| *other != one);
        let all = others.filter_map(|other| self.kind.get(other));
        let each = all.map(|other| self.case.problem.between(*kind, *other));
        each.fold((0, 0), |(sum, most), s| (sum + s, most.max(s)))
    }
}
