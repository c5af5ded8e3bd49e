//! Whether what is moved lies side by side: the same rules as in `bpf/disk.bpf.c`, for where that
//! cannot be loaded.

use ctlmgr_model::{Bytes, Requests, SIZES};

/// Ends of runs that are remembered: several jobs that each read in sequence are not taken for one that jumps.
const STREAMS: usize = 16;
/// What begins this near to the end of a run goes on with it: queues reorder. In sectors.
const NEAR: u64 = 256;
/// A run of this span is sequential if hardly anything in it was left out. In sectors.
const LONG_RUN: u64 = 4096;

/// Sectors that lie side by side.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    begin: u64,
    end: u64,
    /// What was moved since it began.
    moved: u64,
    /// When it went on last, in requests; zero if never.
    used: u64,
    is_long: bool,
}

impl Run {
    /// Goes on to here; how many sectors that adds to those in long runs.
    fn go_on(&mut self, to: u64, sectors: u64) -> u64 {
        self.end = self.end.max(to);
        self.moved = self.moved.saturating_add(sectors);
        let span = self.end - self.begin;
        // Whoever writes a few blocks again and again does not advance.
        if span < LONG_RUN {
            return 0;
        }
        if self.moved < span - span / 4 {
            *self = Run {
                begin: self.end - sectors.min(self.end),
                moved: sectors,
                is_long: false,
                ..*self
            };
            return 0;
        }
        if std::mem::replace(&mut self.is_long, true) { sectors } else { self.moved.min(span) }
    }
}

/// What was moved in one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moved {
    /// As it is told.
    pub requests: Requests,
    runs: [Run; STREAMS],
}

impl Moved {
    /// Counts one more, from this sector on.
    pub(crate) fn count(&mut self, from: u64, sectors: u64) {
        let bytes = Bytes(sectors << 9);
        self.requests.count += 1;
        self.requests.bytes = self.requests.bytes + bytes;
        if let Some(size) = self.requests.sizes.get_mut(size_class(bytes)) {
            *size += 1;
        }
        let long = self.follow(from, sectors);
        self.requests.sequential = self.requests.sequential + Bytes(long << 9);
    }

    fn follow(&mut self, from: u64, sectors: u64) -> u64 {
        let (to, now) = (from.saturating_add(sectors), self.requests.count);
        let goes_on = |r: &&mut Run| {
            r.used > 0 && from.saturating_add(NEAR) >= r.end && from <= r.end.saturating_add(NEAR)
        };
        if let Some(run) = self.runs.iter_mut().find(goes_on) {
            run.used = now;
            return run.go_on(to, sectors);
        }
        if let Some(oldest) = self.runs.iter_mut().min_by_key(|r| r.used) {
            *oldest = Run { begin: from, end: to, moved: sectors, used: now, is_long: false };
        }
        0
    }
}

/// Up to 4 KiB, 8 KiB, … 1 MiB, and more.
fn size_class(bytes: Bytes) -> usize {
    (0..SIZES - 1).find(|class| bytes.0 <= 4096 << class).unwrap_or(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of what was moved in long runs.
    fn sequential(requests: impl IntoIterator<Item = (u64, u64)>) -> f64 {
        let mut moved = Moved::default();
        for (from, sectors) in requests {
            moved.count(from, sectors);
        }
        moved.requests.sequential.0 as f64 / moved.requests.bytes.0 as f64
    }

    /// Addresses without order.
    fn anywhere(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 30)
    }

    #[test]
    fn small_requests_side_by_side_are_sequential_and_large_ones_anywhere_are_not() {
        assert!(sequential((0..4096).map(|n| (n * 8, 8))) > 0.99);
        assert!(sequential((0..4096).map(|n| (anywhere(n), 2048))) < 0.01);
    }

    #[test]
    fn eight_that_read_in_turn_are_sequential_and_one_block_again_and_again_is_not() {
        let eight = (0..8 * 1024).map(|n| ((n % 8) * (1 << 20) + n / 8 * 8, 8));
        assert!(sequential(eight) > 0.99);
        assert!(sequential((0..4096).map(|_| (77, 8))) < 0.01);
    }

    #[test]
    fn sorted_writes_with_gaps_are_random() {
        assert!(sequential((0..4096).map(|n| (n * 32, 8))) < 0.01);
    }

    #[test]
    fn sizes_are_counted_by_powers_of_two() {
        let classes = [512, 4096, 4097, 1 << 20, 2 << 20].map(|b| size_class(Bytes(b)));
        assert_eq!(classes, [0, 0, 1, 8, 9]);
    }

    #[test]
    fn nothing_overflows_at_the_end_of_the_device() {
        assert!(sequential([(u64::MAX, 8), (u64::MAX, 1 << 20), (0, 8)]) <= 1.0);
    }
}
