//! Quantities with their units in the type.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of memory in bytes. Subtraction saturates at zero.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No memory.
    pub const ZERO: Bytes = Bytes(0);
    /// The page size that the kernel rounds memory knobs down to, on every supported machine.
    pub const PAGE: Bytes = Bytes(4096);

    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// The value rounded down to whole pages, as the kernel stores it.
    #[must_use]
    pub fn page_floor(self) -> Bytes {
        Bytes(self.0 / Self::PAGE.0 * Self::PAGE.0)
    }

    /// The value rounded up to whole pages.
    #[must_use]
    pub fn page_ceil(self) -> Bytes {
        Bytes(self.0.div_ceil(Self::PAGE.0).saturating_mul(Self::PAGE.0))
    }

    /// Distance between two amounts.
    #[must_use]
    pub fn abs_diff(self, other: Bytes) -> Bytes {
        Bytes(self.0.abs_diff(other.0))
    }

    /// `percent` of this amount, rounded down.
    #[must_use]
    pub fn scaled(self, percent: Percent) -> Bytes {
        let whole = u128::from(self.0) * u128::from(percent.0) / 100;
        Bytes(u64::try_from(whole).unwrap_or(u64::MAX))
    }

    /// What is left of this amount if those it is one of, `sum` together, may be no more than `most`; rounded down.
    #[must_use]
    pub fn rationed(self, most: Bytes, sum: Bytes) -> Bytes {
        if sum <= most {
            return self;
        }
        let whole = u128::from(self.0) * u128::from(most.0) / u128::from(sum.0);
        Bytes(u64::try_from(whole).unwrap_or(u64::MAX))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The kernel's "max": no limit, or everything.
        if self.0 == u64::MAX {
            return f.pad("max");
        }
        const UNITS: [(u64, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let (shift, unit) =
            UNITS.into_iter().find(|(shift, _)| self.0 >> shift > 0).unwrap_or((0, "B"));
        if shift == 0 {
            return f.pad(&format!("{} B", self.0));
        }
        let tenths = (u128::from(self.0) * 10) >> shift;
        let text = match (tenths / 10, tenths % 10) {
            (whole, 0) => format!("{whole} {unit}"),
            (whole, _) if whole >= 100 => format!("{whole} {unit}"),
            (whole, tenth) => format!("{whole}.{tenth} {unit}"),
        };
        f.pad(&text)
    }
}

/// Why a text is no amount of memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no amount of memory: expected a whole number with an optional K, M, G or T")]
pub struct BytesError(String);

impl FromStr for Bytes {
    type Err = BytesError;

    /// Reads `512M`, `2G`, `64KiB`, `1048576`; the multiples are powers of 1024, as in systemd.
    fn from_str(text: &str) -> Result<Bytes, BytesError> {
        let fail = || BytesError(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = trimmed[digits.len()..].to_ascii_uppercase();
        let shift = match unit.trim_end_matches("IB").trim_end_matches('B') {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(fail()),
        };
        let number: u64 = digits.trim().parse().map_err(|_| fail())?;
        number.checked_mul(1 << shift).map(Bytes).ok_or_else(fail)
    }
}

/// A whole percentage, 0–100.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub u8);

/// A span of time, or a point on the monotonic clock, in milliseconds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// Time from `earlier` to here; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Millis) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// How much a workload counts when memory is short: 1–10000, default 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

/// Why a number is no weight.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("weight {0} is outside 1–10000")]
pub struct WeightError(pub i64);

impl Weight {
    /// The cgroup convention for "like everybody else".
    pub const DEFAULT: Weight = Weight(100);

    /// A checked weight.
    ///
    /// # Errors
    /// `value` outside 1–10000.
    pub fn new(value: i64) -> Result<Weight, WeightError> {
        match u16::try_from(value) {
            Ok(v @ 1..=10_000) => Ok(Weight(v)),
            _ => Err(WeightError(value)),
        }
    }

    /// The number, 1–10000.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The weight that a built-in class names, if there is such a class.
    pub fn of_class(class: &str) -> Option<Weight> {
        let value = match class {
            "critical" => 1000,
            "high" => 400,
            "normal" => 100,
            "low" => 25,
            "idle" => 5,
            _ => return None,
        };
        Some(Weight(value))
    }
}

impl Default for Weight {
    fn default() -> Self {
        Weight::DEFAULT
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Weight {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(self.0)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = i64::deserialize(deserializer)?;
        Weight::new(value).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_amounts_with_units() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("512M", 512 << 20), ("2GiB", 2 << 30), (" 1k ", 1024)]
        {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_amount() {
        for text in ["", "M", "-1", "1.5G", "12X", "99999999999999999999", "17000000T", "1 0"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn shows_three_digits() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes::mib(400).to_string(), "400 MiB");
        assert_eq!(Bytes(1_610_612_736).to_string(), "1.5 GiB");
    }

    #[test]
    fn weight_has_its_range() {
        assert!(Weight::new(0).is_err());
        assert!(Weight::new(10_001).is_err());
        assert_eq!(Weight::new(10_000).map(Weight::get), Ok(10_000));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_errs(text in ".*") {
            let _ = text.parse::<Bytes>();
        }

        #[test]
        fn rounding_to_pages_stays_within_a_page(n in 0..u64::MAX / 2) {
            let value = Bytes(n);
            prop_assert!(value.page_floor() <= value && value <= value.page_ceil());
            prop_assert!(value.page_ceil() - value.page_floor() <= Bytes::PAGE);
        }
    }
}
