//! What batches may use up.

use anyhow::ensure;

use super::{Container, Input};
use crate::scale::{Scale, natural};

/// One capacity and what each entry uses of it, in the same integer unit.
pub(super) struct Capacity {
    pub have: u64,
    pub uses: Vec<u64>,
}

impl Capacity {
    pub fn new(input: &Input, name: &String, have: f64) -> Result<Capacity, anyhow::Error> {
        let of = |c: &Container| c.uses.get(name).copied().unwrap_or(0.0);
        let scale = Scale::of(input.containers.iter().map(of).chain([have]));
        ensure!(have.is_finite() && have >= 0.0, "capacity `{name}` is {have}: it is at least 0");
        let mut uses = Vec::new();
        for c in &input.containers {
            let each = of(c);
            ensure!(
                each.is_finite() && each >= 0.0,
                "container `{}`: use of `{name}` is {each}: it is at least 0",
                c.name
            );
            // Where it does not come out even, never more than there is.
            uses.push(natural(if scale.is_exact {
                (each * scale.factor).round()
            } else {
                (each * scale.factor).ceil()
            }));
        }
        let have = have * scale.factor;
        let have = natural(if scale.is_exact { have.round() } else { have.floor() });
        Ok(Capacity { have, uses })
    }
}
