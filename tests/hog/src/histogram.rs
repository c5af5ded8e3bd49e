//! Latencies in buckets of a quarter power of two.
#![expect(clippy::cast_sign_loss, reason = "logarithms and parts here are never negative")]

const BUCKETS: usize = 160;

/// A histogram of durations.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: [0; BUCKETS] }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn add(&mut self, nanos: u64) {
        let bucket = (nanos.max(1) as f64).log2() * 4.0;
        self.counts[(bucket as usize).min(BUCKETS - 1)] += 1;
    }

    /// Adds another histogram to this one.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Upper end of the bucket below which `part` of all durations lie, in microseconds.
    pub fn quantile_us(&self, part: f64) -> f64 {
        let wanted = (self.count() as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (i, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return ((i + 1) as f64 / 4.0).exp2() / 1000.0;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_a_bucket() {
        let mut histogram = Histogram::default();
        for micros in 1..=1000u64 {
            histogram.add(micros * 1000);
        }
        let median = histogram.quantile_us(0.5);
        assert!((500.0..650.0).contains(&median), "{median}");
        assert_eq!(histogram.count(), 1000);
        assert_eq!(Histogram::default().quantile_us(0.99), 0.0);
    }
}
