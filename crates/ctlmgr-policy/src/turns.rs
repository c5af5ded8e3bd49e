//! Turns: how often a protection went up and down of late.
//!
//! # Problem
//! While a host settles after a change, shares move with what the workloads feel, and what they feel moves
//! with their shares. A dead band keeps small changes from being written, but not a share that swings by a
//! little more than that.
//!
//! # Algorithm
//! A value that goes on the way it went needs the dead band. To turn round it needs twice as much for
//! each turn before, up to [`MOST`], of a row in which each came within [`SETTLING`] of the one before: a small swing dies out, and a true
//! change, which is larger, or goes on for longer, gets through.
//!
//! # Properties
//! The first turn after a calm while needs no more than the dead band; of a swing by less than 2^[`MOST`] dead bands two
//! turns are written at most in any [`SETTLING`]; a change of 2^[`MOST`] dead bands is always written.

use ctlmgr_model::{Bytes, MemorySettings, Millis};
use serde::{Deserialize, Serialize};

/// A turn is forgotten after this time without another.
const SETTLING: Millis = Millis(60_000);
/// More turns than this do not count.
const MOST: u32 = 2;

/// The way that a value went last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turns {
    rises: Option<bool>,
    count: u32,
    /// When it last turned.
    at: Millis,
}

impl Turns {
    /// After a write.
    pub(crate) fn after(self, from: Bytes, to: Bytes, now: Millis) -> Turns {
        let rises = Some(to > from);
        match self.rises {
            _ if to == from => self,
            last if last == rises => self,
            None => Turns { rises, ..self },
            Some(_) => Turns { rises, count: self.recent(now) + 1, at: now },
        }
    }

    /// What `band` becomes for a write of `to` in place of `from`.
    pub(crate) fn widened(self, band: Bytes, from: Bytes, to: Bytes, now: Millis) -> Bytes {
        let is_turn = self.rises.is_some_and(|rises| rises != (to > from));
        if is_turn { Bytes(band.0.saturating_mul(1 << self.recent(now))) } else { band }
    }

    /// Whether the last write raised it.
    pub(crate) fn rises(self) -> bool {
        self.rises == Some(true)
    }

    fn recent(self, now: Millis) -> u32 {
        if now.since(self.at) < SETTLING { self.count.min(MOST) } else { 0 }
    }
}

/// A change smaller than this is not worth a write.
pub(crate) fn dead_band(memory: &MemorySettings, from: Bytes, to: Bytes) -> Bytes {
    // To who is small half is much, but to nobody a mebibyte.
    let half = Bytes(from.max(to).0 / 2).max(Bytes::mib(1));
    from.scaled(memory.hysteresis).max(memory.hysteresis_bytes).min(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BAND: Bytes = Bytes::mib(8);

    /// Follows `wanted`, one a second, and returns the seconds at which a write turned round.
    fn follow(wanted: &[u64]) -> Vec<u64> {
        let (mut turns, mut value) = (Turns::default(), Bytes::mib(wanted[0]));
        let mut turned = Vec::new();
        for (second, to) in (0..).zip(wanted) {
            let (to, now) = (Bytes::mib(*to), Millis(second * 1000));
            if value.abs_diff(to) < turns.widened(BAND, value, to, now) {
                continue;
            }
            let next = turns.after(value, to, now);
            turned.extend((next.at != turns.at).then_some(second));
            (turns, value) = (next, to);
        }
        turned
    }

    #[test]
    fn a_swing_dies_out() {
        let swing: Vec<u64> = (0..60).map(|s| if s % 2 == 0 { 100 } else { 112 }).collect();
        assert_eq!(follow(&swing).len(), 1);
        let wide: Vec<u64> = (0..60).map(|s| if s % 2 == 0 { 100 } else { 120 }).collect();
        assert_eq!(follow(&wide).len(), 2);
    }

    #[test]
    fn what_truly_changed_is_written_and_a_turn_is_forgotten() {
        let at = |second: u64| Millis(second * 1000);
        let (low, high) = (Bytes::mib(100), Bytes::mib(112));
        let turned = Turns::default().after(low, high, at(0)).after(high, low, at(1));
        assert_eq!(turned.widened(BAND, low, high, at(2)), Bytes::mib(16));
        assert_eq!(turned.widened(BAND, low, Bytes::mib(90), at(2)), BAND, "it goes on");
        assert_eq!(turned.widened(BAND, low, high, at(61)), BAND, "long ago");
        assert_eq!(turned.after(low, low, at(3)), turned, "its keeper was told, and nothing moved");
    }

    proptest! {
        /// However a share swings by less than four dead bands: within a minute it turns twice.
        #[test]
        fn two_turns_a_minute(wanted in proptest::collection::vec(100u64..100 + 4 * 8, 2..200)) {
            let turned = follow(&wanted);
            for three in turned.windows(3) {
                prop_assert!(three[2] - three[0] >= 60, "{turned:?}");
            }
        }

        #[test]
        fn a_large_change_is_never_held_back(wanted in proptest::collection::vec(100u64..1000, 2..50)) {
            let mut turns = Turns::default();
            for (second, pair) in (0..).zip(wanted.windows(2)) {
                let (from, to) = (Bytes::mib(pair[0]), Bytes::mib(pair[1]));
                let band = turns.widened(BAND, from, to, Millis(second * 1000));
                prop_assert!(BAND <= band && band <= Bytes::mib(8 << MOST));
                turns = turns.after(from, to, Millis(second * 1000));
            }
        }
    }
}
