//! A plan that is being changed: who sits in which batch, what a change would cost, and undo.

use super::problem::{Pattern, Problem};

/// One batch, or an empty place for one. Places are in the order in which batches start.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub count: Pattern,
    /// Kinds of which it holds any.
    pub kinds: Vec<usize>,
    pub size: u32,
    /// What one more of each kind would add to the penalty.
    pub touch: Vec<i64>,
    used: Vec<u64>,
}

/// Where a container goes: its kind, and the places it leaves and enters.
#[derive(Debug, Clone, Copy)]
struct Move {
    kind: usize,
    from: Option<usize>,
    to: Option<usize>,
}

/// A plan, its cost, and how it came from the last one that was kept.
#[derive(Debug)]
pub(crate) struct Seating<'a> {
    pub problem: &'a Problem,
    pub tables: Vec<Table>,
    /// Places where somebody sits, in order.
    pub occupied: Vec<usize>,
    pub cost: i64,
    /// Kinds that wait for each kind.
    behind: Vec<Vec<usize>>,
    journal: Vec<Move>,
}

impl<'a> Seating<'a> {
    /// Nobody sits anywhere yet.
    pub(crate) fn new(problem: &'a Problem) -> Seating<'a> {
        let kinds = problem.kinds().len();
        let table = Table {
            count: vec![0; kinds],
            kinds: Vec::new(),
            size: 0,
            touch: vec![0; kinds],
            used: vec![0; problem.capacities().len()],
        };
        // With an order to keep, there is room for a batch between any two.
        let places = problem.total() as usize * if problem.is_ordered() { 2 } else { 1 };
        let mut behind = vec![Vec::new(); kinds];
        for (a, kind) in problem.kinds().iter().enumerate() {
            kind.after.iter().for_each(|p| behind[*p].push(a));
        }
        Seating {
            problem,
            tables: vec![table; places],
            occupied: Vec::new(),
            cost: 0,
            behind,
            journal: Vec::new(),
        }
    }

    /// Everybody sits as in a plan.
    pub(crate) fn of(problem: &'a Problem, plan: &[Pattern]) -> Seating<'a> {
        let mut seating = Seating::new(problem);
        let apart = if problem.is_ordered() { 2 } else { 1 };
        for (place, batch) in plan.iter().enumerate().map(|(i, b)| (i * apart, b)) {
            for (kind, count) in batch.iter().enumerate() {
                (0..*count).for_each(|_| seating.enter(kind, place));
            }
        }
        seating.keep();
        seating
    }

    /// What one more of a kind costs at a place; `None` if it may not sit there.
    pub(crate) fn price(&self, kind: usize, place: usize) -> Option<i64> {
        let table = &self.tables[place];
        let has_room = self.problem.room(kind, table.size, &table.used) > 0;
        if !has_room || !self.is_in_order(kind, place) {
            return None;
        }
        let (alpha, beta) = self.problem.prices();
        Some(alpha * table.touch[kind] + if table.size == 0 { beta } else { 0 })
    }

    /// What is saved when one of a kind leaves a place.
    pub(crate) fn saving(&self, kind: usize, place: usize) -> i64 {
        let table = &self.tables[place];
        let (alpha, beta) = self.problem.prices();
        let own = self.problem.between(kind, kind);
        alpha * (table.touch[kind] - own) + if table.size == 1 { beta } else { 0 }
    }

    fn is_in_order(&self, kind: usize, place: usize) -> bool {
        if !self.problem.is_ordered() {
            return true;
        }
        let sits = |k: &usize, at: usize| self.tables[at].count[*k] > 0;
        let after = &self.problem.kinds()[kind].after;
        let is_early = after.iter().any(|p| (place..self.tables.len()).any(|at| sits(p, at)));
        let is_late = self.behind[kind].iter().any(|s| (0..=place).any(|at| sits(s, at)));
        !is_early && !is_late && self.is_in_time(kind, place)
    }

    /// Whether it starts in time there, and so do those whom a new batch puts off.
    fn is_in_time(&self, kind: usize, place: usize) -> bool {
        let before = self.occupied.partition_point(|p| *p < place);
        let latest = |kind: &usize| self.problem.latest(*kind) as usize;
        let mut later = self.occupied[before..].iter().enumerate();
        let is_in_time = |(i, p): (usize, &usize)| {
            let number = before + i + 2;
            self.tables[*p].kinds.iter().all(|k| number <= latest(k))
        };
        before < latest(&kind) && (self.tables[place].size > 0 || later.all(is_in_time))
    }

    /// Whether everybody sits.
    pub(crate) fn is_whole(&self) -> bool {
        let seated: u32 = self.occupied.iter().map(|p| self.tables[*p].size).sum();
        seated == self.problem.total()
    }

    /// The empty place where one of a kind may open a batch.
    pub(crate) fn opening(&self, kind: usize) -> Option<usize> {
        let is_open =
            |place: &usize| self.tables[*place].size == 0 && self.price(kind, *place).is_some();
        (0..self.tables.len()).find(is_open)
    }

    pub(crate) fn enter(&mut self, kind: usize, place: usize) {
        self.change(Move { kind, from: None, to: Some(place) });
    }

    pub(crate) fn leave(&mut self, kind: usize, place: usize) {
        self.change(Move { kind, from: Some(place), to: None });
    }

    fn change(&mut self, step: Move) {
        self.carry_out(step);
        self.journal.push(step);
    }

    fn carry_out(&mut self, Move { kind, from, to }: Move) {
        let (alpha, beta) = self.problem.prices();
        let problem = self.problem;
        if let Some(place) = from {
            self.cost -= self.saving(kind, place);
            self.tables[place].add(problem, kind, -1);
            if self.tables[place].size == 0 {
                self.occupied.retain(|p| *p != place);
            }
        }
        if let Some(place) = to {
            let table = &mut self.tables[place];
            self.cost += alpha * table.touch[kind] + if table.size == 0 { beta } else { 0 };
            table.add(problem, kind, 1);
            if let Err(at) = self.occupied.binary_search(&place) {
                self.occupied.insert(at, place);
            }
        }
    }

    /// What a swap of two containers adds to the penalty.
    pub(crate) fn swap_change(&self, (a, here): (usize, usize), (b, there): (usize, usize)) -> i64 {
        let (row_a, row_b) = (self.problem.row(a), self.problem.row(b));
        let (here, there) = (&self.tables[here].touch, &self.tables[there].touch);
        there[a] - (here[a] - row_a[a]) + here[b] - (there[b] - row_b[b]) - 2 * row_a[b]
    }

    /// Swaps two containers if both may sit there.
    pub(crate) fn try_swap(
        &mut self,
        (a, here): (usize, usize),
        (b, there): (usize, usize),
    ) -> bool {
        let mark = self.mark();
        self.leave(a, here);
        self.leave(b, there);
        let is_seated = self.enter_all([(a, there), (b, here)]);
        if !is_seated {
            self.back_to(mark);
        }
        is_seated
    }

    /// Seats each at its place; `false` as soon as one may not sit there.
    pub(crate) fn enter_all(&mut self, all: impl IntoIterator<Item = (usize, usize)>) -> bool {
        all.into_iter().all(|(kind, place)| {
            let may = self.price(kind, place).is_some();
            if may {
                self.enter(kind, place);
            }
            may
        })
    }

    /// Keeps everything since the last time.
    pub(crate) fn keep(&mut self) {
        self.journal.clear();
    }

    /// Takes back everything since the last time.
    pub(crate) fn undo(&mut self) {
        self.back_to(0);
    }

    /// How much was changed since the last time, for [`Seating::back_to`].
    pub(crate) fn mark(&self) -> usize {
        self.journal.len()
    }

    /// Takes back everything since a mark.
    pub(crate) fn back_to(&mut self, mark: usize) {
        for Move { kind, from, to } in self.journal.split_off(mark).into_iter().rev() {
            self.carry_out(Move { kind, from: to, to: from });
        }
    }

    /// The batches, in order.
    pub(crate) fn batches(&self) -> Vec<Pattern> {
        self.occupied.iter().map(|t| self.tables[*t].count.clone()).collect()
    }
}

impl Table {
    fn add(&mut self, problem: &Problem, kind: usize, sign: i64) {
        let row = problem.row(kind);
        if sign > 0 {
            self.touch.iter_mut().zip(row).for_each(|(touch, s)| *touch += s);
        } else {
            self.touch.iter_mut().zip(row).for_each(|(touch, s)| *touch -= s);
        }
        let uses = &problem.kinds()[kind].uses;
        for (used, each) in self.used.iter_mut().zip(uses) {
            *used = if sign > 0 { *used + each } else { *used - each };
        }
        if sign > 0 {
            if self.count[kind] == 0 {
                self.kinds.push(kind);
            }
            self.count[kind] += 1;
            self.size += 1;
        } else {
            self.count[kind] -= 1;
            self.size -= 1;
            if self.count[kind] == 0 {
                self.kinds.retain(|k| *k != kind);
            }
        }
    }
}
