//! Projects of compose, which asks for a service only when those that it depends on are as its file says.

use super::*;

/// A service, another that it needs, and whether that is to be healthy rather than to have started.
type Need = (usize, usize, bool);

/// A project that gets up, and a gate before it.
struct Project {
    /// Services that compose has not asked for yet.
    to_ask: Vec<Waiting>,
    needs: Vec<Need>,
    queue: Queue,
    /// Services that have started, and those that are healthy, by number.
    up: BTreeSet<usize>,
    well: BTreeSet<usize>,
}

fn number(name: &str) -> usize {
    name.strip_prefix('c').and_then(|n| n.parse().ok()).unwrap()
}

impl Project {
    fn may_ask(&self, service: &Waiting) -> bool {
        let own = self.needs.iter().filter(|need| need.0 == number(&service.name));
        own.into_iter().all(|(_, other, is_health)| match is_health {
            true => self.well.contains(other),
            false => self.up.contains(other),
        })
    }

    /// Asks for all that may start as far as the file is concerned, and starts those that the gate lets go; how
    /// many.
    fn step(&mut self) -> usize {
        let (asking, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.to_ask).into_iter().partition(|w| self.may_ask(w));
        self.to_ask = later;
        self.queue.waiting.extend(asking);
        let all = admit(&settings(), &self.queue, Millis(0));
        let go: BTreeSet<Ticket> = all.iter().filter(|a| a.may_start).map(|a| a.ticket).collect();
        let waiting = std::mem::take(&mut self.queue.waiting);
        let (started, left): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|w| go.contains(&w.ticket));
        self.queue.waiting = left;
        self.up.extend(started.iter().map(|w| number(&w.name)));
        let starting = |w: Waiting| Starting { name: w.name, traits: w.traits };
        self.queue.starting.extend(started.into_iter().map(starting));
        go.len()
    }
}

proptest! {
    /// Labels may name others to come first, whatever the file says, in circles too; and nobody's longest wait
    /// comes to help.
    #[test]
    fn it_gets_up_whatever_depends_on_whom(
        queue in any_queue(),
        edges in proptest::collection::vec(any::<(prop::sample::Index, prop::sample::Index, bool)>(), 0..30),
        ends in proptest::collection::vec(any::<prop::sample::Index>(), 20),
    ) {
        let to_ask: Vec<Waiting> =
            queue.waiting.into_iter().map(|w| Waiting { longest: Millis(u64::MAX), ..w }).collect();
        let count = to_ask.len();
        // A file cannot ask for circles.
        let needs = edges.iter().map(|(a, b, is_health)| (a.index(count), b.index(count), *is_health));
        let needs = needs.filter(|(service, other, _)| service > other).collect();
        let ground = Ground { io_full_pct: None, ..queue.ground };
        let queue = Queue { waiting: Vec::new(), ground, ..queue };
        let mut project = Project { to_ask, needs, queue, up: BTreeSet::new(), well: BTreeSet::new() };
        let mut ends = ends.iter();
        while project.up.len() < count {
            while project.step() > 0 {}
            prop_assert!(!project.queue.starting.is_empty(), "nobody starts, and some wait");
            let at = ends.next().unwrap().index(project.queue.starting.len());
            let over = project.queue.starting.remove(at);
            project.well.insert(number(&over.name));
        }
    }
}
