//! What batches may use up.

use anyhow::ensure;

use super::{Container, Input};
use crate::scale::{Scale, natural};

/// One capacity and what each entry uses of it, in the same integer unit.
pub(super) struct Capacity {
    pub have: u64,
    pub uses: Vec<u64>,
    /// Whether nothing was rounded: else batches are taken to use a little more than they do.
    pub is_exact: bool,
}

impl Capacity {
    pub fn new(input: &Input, name: &String, have: f64) -> Result<Capacity, anyhow::Error> {
        let of = |c: &Container| c.uses.get(name).copied().unwrap_or(0.0);
        ensure!(have.is_finite() && have >= 0.0, "capacity `{name}` is {have}: it is at least 0");
        for c in &input.containers {
            let each = of(c);
            ensure!(
                each.is_finite() && each >= 0.0,
                "container `{}`: use of `{name}` is {each}: it is at least 0",
                c.name
            );
        }
        let scale = Scale::of(input.containers.iter().map(of).chain([have]));
        let counted = input.containers.iter().map(|c| (of(c), c.count));
        // What is meant by decimals comes first: three tenths are three times a tenth.
        let scale = match scale.is_exact {
            true => scale,
            false => Scale::binary(counted.chain([(have, 1)])).unwrap_or(scale),
        };
        let round = |value: f64, up: bool| match (scale.is_exact, up) {
            (true, _) => natural((value * scale.factor).round()),
            (false, true) => natural((value * scale.factor).ceil()),
            (false, false) => natural((value * scale.factor).floor()),
        };
        let most = round(have, false);
        // Whoever uses as much as there is fits.
        let used = |each: f64| if each <= have { round(each, true).min(most) } else { most + 1 };
        let uses = input.containers.iter().map(|c| used(of(c))).collect();
        Ok(Capacity { have: most, uses, is_exact: scale.is_exact })
    }
}
