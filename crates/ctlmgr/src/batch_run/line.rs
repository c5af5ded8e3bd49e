//! Who may start now: batch after batch, each as early as it fights nobody more than was planned.
//!
//! A batch that waits for all of the one before wastes what the last of that leave idle. So those of the
//! next batch start, in turn, as soon as the batch size and the capacities hold with whoever still starts,
//! nobody, neither they nor those, fights with more, in all or with one, than in its own batch, and the disk
//! loses nothing by it: a random reader beside the last that read in sequence keeps the next batch waiting for
//! longer than it gains. A batch begins when everybody of the one before has started.

use std::collections::{BTreeMap, BTreeSet};

use crate::batch_plan::Company;

/// The containers of a plan that have not started, and those that start.
pub(super) struct Line<'a> {
    company: &'a Company,
    batches: &'a [Vec<String>],
    /// Who must be over before each.
    after: BTreeMap<String, BTreeSet<String>>,
    /// Each batch waits for all of the one before.
    is_strict: bool,
    /// The batch that is being started.
    current: usize,
    waiting: Vec<String>,
    starting: BTreeSet<String>,
}

impl<'a> Line<'a> {
    pub fn new(
        company: &'a Company,
        batches: &'a [Vec<String>],
        after: BTreeMap<String, BTreeSet<String>>,
        is_strict: bool,
    ) -> Line<'a> {
        let waiting = batches.first().cloned().unwrap_or_default();
        let (current, starting) = (0, BTreeSet::new());
        Line { company, batches, after, is_strict, current, waiting, starting }
    }

    /// Those that may start now, and the number of their batch; they count as starting from then on. Some of
    /// those may not have begun, because they wait for what others have to become first.
    pub fn next(&mut self, has_begun: impl Fn(&str) -> bool) -> (usize, Vec<String>) {
        if self.waiting.is_empty() && self.current + 1 < self.batches.len() {
            self.current += 1;
            self.waiting.clone_from(&self.batches[self.current]);
        }
        let mut may = Vec::new();
        for name in std::mem::take(&mut self.waiting) {
            if self.may_start(&name, &has_begun) {
                self.starting.insert(name.clone());
                may.push(name);
            } else {
                self.waiting.push(name);
            }
        }
        (self.current, may)
    }

    fn may_start(&self, name: &str, has_begun: impl Fn(&str) -> bool) -> bool {
        let own = &self.batches[self.current];
        let is_of_others = |s: &&String| !own.contains(s);
        if self.is_strict {
            return !self.starting.iter().any(|s| is_of_others(&s));
        }
        let is_awaited = |s: &String| self.after.get(name).is_some_and(|after| after.contains(s));
        let batch_of = |name: &str| {
            self.batches.iter().find(|b| b.iter().any(|n| n == name)).map_or(&[][..], Vec::as_slice)
        };
        let mut together: Vec<&str> = self.starting.iter().map(String::as_str).collect();
        together.push(name);
        let is_as_planned = |one: &&str| self.company.is_no_worse(one, &together, batch_of(one));
        let wastes_nothing = |s: &String| self.company.wastes_nothing(name, s) || !has_begun(s);
        !self.starting.iter().any(is_awaited)
            && (self.starting.iter().all(|s| own.contains(s))
                || self.company.fits(&together)
                    && together.iter().all(is_as_planned)
                    && self.starting.iter().filter(is_of_others).all(wastes_nothing))
    }

    /// Whose starts are not over yet.
    pub fn starting(&self) -> &BTreeSet<String> {
        &self.starting
    }

    /// Their starts are over, or failed.
    pub fn keep(&mut self, still_starting: impl Fn(&str) -> bool) {
        self.starting.retain(|name| still_starting(name));
    }

    /// Whether everybody has started.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.current + 1 >= self.batches.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch_plan;
    use serde_json::json;

    fn text() -> String {
        let container = |(i, bin): (usize, &&str)| json!({"name": format!("{bin}{i}"), "bin": bin});
        let bins = ["r", "r", "r", "r", "s", "s", "s", "s"];
        json!({
            "max_batch": 4, "bins": ["r", "s"], "penalty": [[1, 3], [3, 1]],
            "containers": bins.iter().enumerate().map(container).collect::<Vec<_>>(),
        })
        .to_string()
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn those_of_the_next_batch_start_as_room_comes_unless_they_fight_harder() {
        let company = batch_plan::company(&text()).unwrap();
        let batches =
            [names(&["r0", "r1"]), names(&["r2", "r3"]), names(&["s4", "s5", "s6", "s7"])];
        let mut line = Line::new(&company, &batches, BTreeMap::new(), false);
        assert_eq!(line.next(|_| true), (0, names(&["r0", "r1"])));
        assert_eq!(
            line.next(|_| true),
            (1, names(&[])),
            "two more would be more of a fight than planned"
        );
        line.keep(|n| n == "r0");
        assert_eq!(line.next(|_| true), (1, names(&["r2"])), "as r1 was");
        line.keep(|n| n == "r2");
        assert_eq!(line.next(|_| true), (1, names(&["r3"])));
        line.keep(|n| n == "r3");
        assert_eq!(line.next(|_| true), (2, names(&[])), "sequential and random fight harder");
        assert!(!line.is_done());
        line.keep(|_| false);
        assert_eq!(line.next(|_| true), (2, names(&["s4", "s5", "s6", "s7"])));
        assert!(line.is_done());
    }

    #[test]
    fn who_would_cost_the_last_of_a_batch_more_than_sharing_waits_for_them() {
        // Random readers `r`, and trees `t` that read a third in sequence and write two.
        let container = |name: &str| json!({"name": name, "bin": &name[..1]});
        let input = |between: f64| {
            let containers = ["r0", "t1", "r2", "t3"].map(container);
            let text = json!({
                "bins": ["r", "t"], "penalty": [[0.5, between], [between, 0.56]],
                "containers": containers,
            });
            batch_plan::company(&text.to_string()).unwrap()
        };
        let batches = [names(&["r0", "t1"]), names(&["r2", "t3"])];
        let second = |company: &Company| {
            let mut line = Line::new(company, &batches, BTreeMap::new(), false);
            line.next(|_| true);
            line.keep(|n| n == "t1");
            let may = line.next(|_| true).1;
            line.keep(|n| n != "t1");
            (may, line.next(|_| true).1)
        };
        // As hard as in its own batch, but harder than sharing: t1 would pay for it, and with it who waits for t1.
        assert_eq!(second(&input(0.66)), (names(&["t3"]), names(&["r2"])));
        assert_eq!(second(&input(0.52)), (names(&["r2"]), names(&["t3"])));
        assert_eq!(second(&input(0.0)), (names(&["r2"]), names(&["t3"])));

        let company = input(0.66);
        let mut line = Line::new(&company, &batches, BTreeMap::new(), false);
        line.next(|_| true);
        line.keep(|n| n == "t1");
        let waits_for_another = |name: &str| name != "t1";
        assert_eq!(line.next(waits_for_another).1, names(&["r2"]), "t1 has not begun");
    }

    #[test]
    fn where_likes_cost_each_other_nothing_only_the_plan_counts() {
        let container = |name: &str| json!({"name": name});
        let containers = ["a", "b", "c", "d"].map(container);
        let pairwise = [[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 0]];
        let text = json!({"pairwise": pairwise, "containers": containers});
        let company = batch_plan::company(&text.to_string()).unwrap();
        let batches = [names(&["a", "b"]), names(&["c", "d"])];
        let mut line = Line::new(&company, &batches, BTreeMap::new(), false);
        line.next(|_| true);
        line.keep(|n| n == "b");
        assert_eq!(line.next(|_| true).1, names(&["c"]));
        line.keep(|n| n == "b");
        assert_eq!(line.next(|_| true).1, names(&["d"]), "b fights with one as hard as with a");
    }

    #[test]
    fn a_strict_line_waits_for_all_and_who_is_awaited_is_waited_for() {
        let company = batch_plan::company(&text()).unwrap();
        let batches = [names(&["r0", "r1"]), names(&["r2", "r3"])];
        let mut line = Line::new(&company, &batches, BTreeMap::new(), true);
        line.next(|_| true);
        line.keep(|n| n == "r0");
        assert_eq!(line.next(|_| true), (1, names(&[])));
        line.keep(|_| false);
        assert_eq!(line.next(|_| true), (1, names(&["r2", "r3"])));

        let after = BTreeMap::from([("r2".to_owned(), BTreeSet::from(["r0".to_owned()]))]);
        let mut line = Line::new(&company, &batches, after, false);
        line.next(|_| true);
        line.keep(|n| n == "r0");
        assert_eq!(line.next(|_| true), (1, names(&["r3"])), "r2 waits for r0");
    }
}
