//! Decimals as exact integers.

/// What decimals are multiplied by to become integers.
pub(crate) struct Scale {
    pub factor: f64,
    /// Whether they are integers then, or only near.
    pub is_exact: bool,
}

impl Scale {
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Scale {
        // Decimals are not quite what they look like in binary.
        let is_whole = |v: f64| (v - v.round()).abs() <= v.abs() * 1e-12 && v.abs() < 1e12;
        let tens = (0..10).map(|n| 10_f64.powi(n));
        let exact = tens.into_iter().find(|s| values.clone().all(|v| is_whole(v * s)));
        let largest = values.fold(0.0_f64, |most, v| most.max(v.abs()));
        let factor = exact.unwrap_or(if largest > 0.0 { 1e6 / largest } else { 1.0 });
        Scale { factor, is_exact: exact.is_some() }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a cast saturates, and sums are checked")]
pub(crate) fn integer(value: f64) -> i64 {
    value.round() as i64
}

/// An amount that is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
pub(crate) fn natural(value: f64) -> u64 {
    value as u64
}
