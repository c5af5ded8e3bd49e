//! Decimals as exact integers.

/// What decimals are multiplied by to become integers.
pub(crate) struct Scale {
    pub factor: f64,
    /// Whether they are integers then, or only near.
    pub is_exact: bool,
}

/// Where no power of ten makes them integers, the largest of them becomes this.
const LARGEST: f64 = 1e6;

impl Scale {
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Scale {
        Scale::up_to(values, LARGEST)
    }

    /// The same, the largest becoming `most` where they cannot all be integers.
    pub fn up_to(values: impl Iterator<Item = f64> + Clone, most: f64) -> Scale {
        // Decimals are not quite what they look like in binary.
        let is_whole = |v: f64| (v - v.round()).abs() <= v.abs() * 1e-12 && v.abs() < 1e12;
        let tens = (0..10).map(|n| 10_f64.powi(n));
        let exact = tens.into_iter().find(|s| values.clone().all(|v| is_whole(v * s)));
        let largest = values.fold(0.0_f64, |most, v| most.max(v.abs()));
        let factor = exact.unwrap_or(if largest > 0.0 { most / largest } else { 1.0 });
        Scale { factor, is_exact: exact.is_some() }
    }

    /// By a power of two, by which all that a computer can hold are integers, if they are not too far apart; as long as
    /// their sum, each as often as is said, stays below 2^62.
    pub fn binary(values: impl Iterator<Item = (f64, u32)> + Clone) -> Option<Scale> {
        let is_whole = |v: f64| v.fract() == 0.0;
        let twos = (0..=1074).map(|n| 2_f64.powi(n)).take_while(|factor| factor.is_finite());
        let factor = twos.into_iter().find(|s| values.clone().all(|(v, _)| is_whole(v * s)))?;
        let sum: f64 = values.map(|(v, times)| v * factor * f64::from(times)).sum();
        (sum < 2_f64.powi(62)).then_some(Scale { factor, is_exact: true })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirds_are_exact_by_a_power_of_two_and_what_is_too_far_apart_is_not() {
        let third = 1.0 / 3.0;
        let scale = Scale::binary([(third, 3), (1.0, 1)].into_iter()).unwrap();
        let [one, whole] = [third, 1.0].map(|v| natural(v * scale.factor));
        assert!(3 * one <= whole && 3 * one + 3 > whole);
        assert!(Scale::binary([(1e-9, 1), (1e15, 1)].into_iter()).is_none());
        assert!(!Scale::of([third].into_iter()).is_exact && Scale::of([0.3].into_iter()).is_exact);
    }
}
