//! A budget for searches.

use ctlmgr_model::Millis;

/// How much may be done.
pub struct Work<'a> {
    /// Rounds of local search; the result depends on nothing else unless time runs out.
    pub(crate) rounds: u64,
    /// Time that is left; `None` if there is no clock.
    pub(crate) left: &'a dyn Fn() -> Option<Millis>,
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("rounds", &self.rounds).finish_non_exhaustive()
    }
}

impl<'a> Work<'a> {
    /// At most so many rounds, and none once no time is left.
    pub fn new(rounds: u64, left: &'a dyn Fn() -> Option<Millis>) -> Work<'a> {
        Work { rounds, left }
    }

    /// Whether one more round may be done; it counts as done.
    pub(crate) fn step(&mut self) -> bool {
        let may = self.rounds > 0 && !self.is_over();
        self.rounds = self.rounds.saturating_sub(1);
        may
    }

    pub(crate) fn left(&self) -> Option<Millis> {
        (self.left)()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left == Millis(0))
    }
}
