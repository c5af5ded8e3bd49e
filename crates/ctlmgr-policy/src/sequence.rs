//! A fixed sequence of numbers without pattern (splitmix64): the same search every time.

#[derive(Debug, Clone)]
pub(crate) struct Sequence(u64);

impl Sequence {
    pub(crate) fn new() -> Sequence {
        Sequence(1)
    }

    /// A number from 0 to `end` − 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let end = u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from((z ^ (z >> 31)) % end).unwrap_or(0)
    }
}
