//! Annealing: for many containers that all differ.
//!
//! Containers move to, or swap with, others at random. What makes the plan dearer by δ is done with
//! probability e^(−δ / T), and T falls in plateaus from where almost everything goes to where almost
//! nothing does. The number of batches changes little on the way, so plans are annealed from several.

use super::problem::Problem;
use super::seating::Seating;
use crate::sequence::Sequence;

/// Plateaus of one run; T falls by this part from one to the next, to 1/40 in all.
pub(crate) const PLATEAUS: u64 = 48;
const FALL: (i64, i64) = (37, 40);
/// Fixed-point one, and entries of the table of logarithms.
const ONE: i64 = 1024;
const ENTRIES: usize = 512;

/// One run of annealing.
pub(crate) struct Annealing<'a> {
    pub seating: Seating<'a>,
    /// Who sits where, one entry for each container: kind and place.
    who: Vec<(usize, usize)>,
    temperature: i64,
    /// −ln u for u spread evenly over 0–1, in units of 1 / [`ONE`].
    logarithms: Vec<i64>,
}

impl<'a> Annealing<'a> {
    /// From a plan, at a temperature at which it melts.
    pub(crate) fn new(problem: &Problem, seating: Seating<'a>) -> Annealing<'a> {
        let who = seating
            .occupied
            .iter()
            .flat_map(|place| {
                let table = &seating.tables[*place];
                let of = |kind: &usize| (*kind, table.count[*kind] as usize);
                table
                    .kinds
                    .iter()
                    .map(of)
                    .flat_map(|(kind, n)| std::iter::repeat_n((kind, *place), n))
            })
            .collect();
        let penalty: i64 = seating.batches().iter().map(|b| problem.penalty(b)).sum();
        // A sixth of what a container pays for its peers.
        let own = 2 * penalty / i64::from(problem.total().max(1));
        let temperature = (problem.prices().0 * own.max(1) / 6).max(1);
        Annealing { seating, who, temperature, logarithms: logarithms() }
    }

    /// Cooler by one plateau.
    pub(crate) fn cool(&mut self) {
        self.temperature = (self.temperature * FALL.0 / FALL.1).max(1);
    }

    /// As many proposals as there are containers.
    pub(crate) fn sweep(&mut self, random: &mut Sequence) {
        for _ in 0..self.who.len() {
            let i = random.below(self.who.len());
            if random.below(3) == 0 {
                self.propose_swap(i, random);
            } else {
                self.propose_move(i, random);
            }
        }
        self.seating.keep();
    }

    fn accepts(&self, change: i64, random: &mut Sequence) -> bool {
        let log = self.logarithms[random.below(ENTRIES)];
        change <= 0
            || i128::from(change) * i128::from(ONE)
                <= i128::from(self.temperature) * i128::from(log)
    }

    fn propose_move(&mut self, i: usize, random: &mut Sequence) {
        let (kind, from) = self.who[i];
        let to = self.seating.occupied[random.below(self.seating.occupied.len())];
        if to == from {
            return;
        }
        let Some(price) = self.seating.price(kind, to) else {
            // Full: then somebody there has to change places.
            return self.propose_swap(i, random);
        };
        if self.accepts(price - self.seating.saving(kind, from), random) {
            self.seating.leave(kind, from);
            self.seating.enter(kind, to);
            self.who[i].1 = to;
        }
    }

    fn propose_swap(&mut self, i: usize, random: &mut Sequence) {
        let j = random.below(self.who.len());
        let ((a, here), (b, there)) = (self.who[i], self.who[j]);
        if here == there || a == b {
            return;
        }
        let change =
            self.seating.problem.prices().0 * self.seating.swap_change((a, here), (b, there));
        if self.accepts(change, random) && self.seating.try_swap((a, here), (b, there)) {
            (self.who[i].1, self.who[j].1) = (there, here);
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
fn logarithms() -> Vec<i64> {
    let at = |j: usize| ((j as f64 + 0.5) / ENTRIES as f64).ln();
    (0..ENTRIES).map(|j| (-at(j) * ONE as f64).round() as i64).collect()
}
