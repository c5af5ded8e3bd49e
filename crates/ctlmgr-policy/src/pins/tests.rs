use ctlmgr_model::{
    CacheDomain, CgroupId, Millis, Mode, Outcome, PlaceWish, Shared, Topology, Value, WorkloadName,
};

use super::*;

mod random;

const MIB: u64 = 1 << 20;

/// Four domains of two processors, two to a node.
fn topology() -> Topology {
    let domain = |n: u32| CacheDomain {
        cpus: [2 * n, 2 * n + 1].into_iter().collect(),
        cores: Vec::new(),
        shared: Shared::Cache { level: 3, size_kib: Some(16 << 10) },
        numa: n / 2,
        socket: 0,
    };
    Topology {
        domains: (0..4).map(domain).collect(),
        online: (0..8).collect(),
        ..Topology::default()
    }
}

struct World {
    settings: PlaceSettings,
    state: PinState,
    reading: PlaceReading,
}

impl World {
    fn new(names: &[&str]) -> World {
        let tenant = |(n, name): (usize, &&str)| Tenant {
            name: WorkloadName((*name).to_owned()),
            path: CgroupPath::new(&format!("system.slice/docker-{name}.scope")),
            id: CgroupId(n as u64 + 10),
            use_milli: 400,
            peak_milli: 500,
            known_for: Millis(600_000),
            cpus: Cpus::default(),
            mems: Cpus::default(),
            allowed: (0..8).collect(),
            wish: Some(PlaceWish { managed: true, ..PlaceWish::default() }),
        };
        let tenants = names.iter().enumerate().map(tenant).collect();
        let at = Millis(1000);
        let reading = PlaceReading { at, topology: topology(), tenants, traffic: Vec::new() };
        let settings = PlaceSettings { mode: Mode::Act, ..PlaceSettings::default() };
        World { settings, state: PinState::default(), reading }
    }

    /// Decides and carries it out, five seconds after the last time.
    fn turn(&mut self) -> PlacePlan {
        let (plan, state) = decide(&self.settings, std::mem::take(&mut self.state), &self.reading);
        self.state = state;
        for step in &plan.steps {
            let (knob, list) = match &step.action {
                Action::Pin { knob, to, .. } => (*knob, to.clone()),
                // As undo does: no list cannot be written.
                Action::Unpin { knob, prior, .. } if prior.is_empty() => (*knob, (0..8).collect()),
                Action::Unpin { knob, prior, .. } => (*knob, prior.clone()),
                other => panic!("{other:?}"),
            };
            let tenant = self.reading.tenants.iter_mut().find(|t| t.id == step.id);
            let outcome = if tenant.is_some() { Outcome::Done } else { Outcome::Vanished };
            if let Some(tenant) = tenant {
                *(if knob == Knob::CpusetCpus { &mut tenant.cpus } else { &mut tenant.mems }) =
                    list;
            }
            self.state.learn(step, &outcome, self.reading.at);
        }
        self.reading.at.0 += 5000;
        plan
    }

    fn cpus(&self, name: &str) -> String {
        self.reading.tenants.iter().find(|t| t.name.0 == name).unwrap().cpus.to_string()
    }

    fn tenant(&mut self, name: &str) -> &mut Tenant {
        self.reading.tenants.iter_mut().find(|t| t.name.0 == name).unwrap()
    }

    fn wish(&mut self, name: &str) -> &mut PlaceWish {
        self.tenant(name).wish.as_mut().unwrap()
    }

    fn pass(&mut self, millis: u64) {
        self.reading.at.0 += millis;
    }
}

fn says(plan: &PlacePlan, name: &str) -> String {
    plan.verdicts.iter().find(|v| v.name.0 == name).unwrap().reason.0.clone()
}

#[test]
fn those_that_talk_share_a_domain_and_the_others_are_left_alone() {
    let mut w = World::new(&["a", "b", "c", "d", "alone"]);
    w.reading.traffic = vec![(0, 2, 9 * MIB), (1, 3, 5 * MIB), (0, 1, 20 * 1024)];
    let plan = w.turn();
    assert_eq!((w.cpus("a"), w.cpus("b")), (w.cpus("c"), w.cpus("d")));
    assert!(!w.cpus("a").is_empty() && !w.cpus("b").is_empty());
    assert_eq!(w.cpus("alone"), "");
    assert!(plan.cut_planned < plan.cut_now / 10, "{plan:?}");
    assert!(says(&plan, "alone").contains("talks to no other"), "{plan:?}");
    assert_eq!(says(&plan, "c"), "9 MiB/s of 9 MiB/s stay near, most with a; uses up to 0.5 CPUs");
    assert_eq!(w.turn().steps, [], "steady");
}

#[test]
fn nobody_is_pinned_before_enough_is_known() {
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    w.tenant("a").known_for = Millis(30_000);
    let plan = w.turn();
    assert_eq!((plan.steps.len(), w.cpus("a"), w.cpus("b")), (0, String::new(), String::new()));
    assert!(says(&plan, "a").contains("not watched"), "{plan:?}");
    w.tenant("a").known_for = Millis(130_000);
    w.turn();
    assert!(!w.cpus("a").is_empty() && w.cpus("a") == w.cpus("b"));
}

#[test]
fn a_list_of_its_own_stays_and_others_come_to_it() {
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    w.tenant("a").cpus = "5".parse().unwrap();
    let plan = w.turn();
    assert_eq!((w.cpus("a"), w.cpus("b")), ("5".to_owned(), "4-5".to_owned()));
    assert!(says(&plan, "a").contains("of its own choice"), "{plan:?}");
    // A list that leaves nothing out is none; a slice with one is.
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    w.tenant("a").cpus = (0..8).collect();
    w.tenant("b").allowed = (2..4).collect();
    w.turn();
    assert_eq!((w.cpus("a"), w.cpus("b")), ("2-3".to_owned(), String::new()));
}

#[test]
fn another_writers_list_stays_for_good() {
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    w.turn();
    w.tenant("a").cpus = (0..8).collect();
    let plan = w.turn();
    let unpinned = |s: &Step| matches!(s.action, Action::Unpin { .. }) && s.id == CgroupId(10);
    assert!(plan.steps.iter().any(unpinned), "{plan:?}");
    assert!(says(&plan, "a").contains("another writer"));
    w.tenant("a").cpus = (0..8).collect();
    w.pass(3_600_000);
    w.turn();
    assert_eq!(w.cpus("a"), "0-7");
}

#[test]
fn memory_nodes_of_its_own_stay() {
    let mut w = World::new(&["a", "b"]);
    w.settings.memory = true;
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    w.tenant("a").mems = "1".parse().unwrap();
    let plan = w.turn();
    assert!(says(&plan, "a").contains("of its own choice"), "{plan:?}");
    assert_eq!((w.cpus("a"), w.tenant("a").mems.to_string()), (String::new(), "1".to_owned()));
}

#[test]
fn a_contradiction_on_other_domains_than_before_pins_nobody_to_the_old_ones() {
    let mut w = World::new(&["a", "b", "c", "d"]);
    for name in ["a", "b", "c"] {
        w.wish(name).exclusive = true;
    }
    w.reading.traffic = vec![(0, 3, 9 * MIB)];
    w.turn();
    w.reading.topology.domains.truncate(3);
    w.reading.topology.online = (0..6).collect();
    let plan = w.turn();
    assert!(plan.note.contains("as before, because of"), "{}", plan.note);
}

/// Rao et al., §8: sizes of what is sent change, and with them who should be near whom.
#[test]
fn a_shift_of_traffic_moves_whom_it_pays_for_but_not_within_the_cool_down() {
    let mut w = World::new(&["front", "cart", "ads"]);
    // Two fit on a domain, three do not.
    for name in ["front", "cart", "ads"] {
        (w.tenant(name).use_milli, w.tenant(name).peak_milli) = (700, 700);
    }
    w.reading.traffic = vec![(0, 1, 10 * MIB), (0, 2, 100 * 1024)];
    w.turn();
    assert_eq!(w.cpus("front"), w.cpus("cart"));
    assert_ne!(w.cpus("front"), w.cpus("ads"));
    w.reading.traffic = vec![(0, 1, 100 * 1024), (0, 2, 10 * MIB)];
    assert_eq!(w.turn().steps, [], "it was moved just now");
    w.pass(600_000);
    let plan = w.turn();
    assert!(!plan.steps.is_empty() && plan.cost >= 16 * MIB, "{plan:?}");
    assert_eq!(w.cpus("front"), w.cpus("ads"));
    assert_ne!(w.cpus("front"), w.cpus("cart"));
}

#[test]
fn a_move_that_does_not_pay_for_a_cache_within_the_horizon_is_not_made() {
    let mut w = World::new(&["front", "cart", "ads"]);
    for name in ["front", "cart", "ads"] {
        (w.tenant(name).use_milli, w.tenant(name).peak_milli) = (700, 700);
    }
    w.settings.horizon = Millis(60_000);
    w.reading.traffic = vec![(0, 1, 10 * MIB), (0, 2, 100 * 1024)];
    w.turn();
    let before = w.cpus("front");
    // Within a minute the difference comes to less than two caches.
    w.reading.traffic = vec![(0, 1, 100 * 1024), (0, 2, 300 * 1024)];
    w.pass(3_600_000);
    let plan = w.turn();
    assert_eq!((plan.steps, w.cpus("front")), (vec![], before));
    assert!(plan.note.contains("nothing is worth a move"), "{}", plan.note);
}

/// Of much traffic the larger still counts for more.
#[test]
fn heavy_traffic_is_told_from_heavier() {
    let mut w = World::new(&["front", "cart", "ads"]);
    for name in ["front", "cart", "ads"] {
        (w.tenant(name).use_milli, w.tenant(name).peak_milli) = (700, 700);
    }
    w.settings.horizon = Millis(86_400_000);
    w.reading.traffic = vec![(0, 1, 20_000 * MIB), (0, 2, 5_000 * MIB)];
    w.turn();
    assert_eq!(w.cpus("front"), w.cpus("cart"));
    assert_ne!(w.cpus("front"), w.cpus("ads"));
}

#[test]
fn whoever_lacks_processors_gets_more_even_within_its_cool_down() {
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    w.turn();
    let before = w.tenant("a").cpus.len();
    w.tenant("a").use_milli = 1950;
    w.turn();
    assert!(w.tenant("a").cpus.len() > before, "{}", w.cpus("a"));
}

#[test]
fn groups_are_together_and_the_exclusive_alone() {
    let mut w = World::new(&["a", "b", "db", "quiet"]);
    w.wish("a").group = Some("g".to_owned());
    w.wish("b").group = Some("g".to_owned());
    w.wish("db").exclusive = true;
    w.reading.traffic = vec![(0, 2, 9 * MIB)];
    w.turn();
    assert_eq!(w.cpus("a"), w.cpus("b"));
    assert_eq!(w.tenant("db").cpus.len(), 2);
    let db = w.tenant("db").cpus.clone();
    for name in ["a", "b", "quiet"] {
        let other = w.tenant(name).cpus.clone();
        assert!(!other.is_empty() && other.and(&db).is_empty(), "{name}: {other}");
    }
    w.wish("db").exclusive = false;
    w.turn();
    assert_eq!(w.cpus("quiet"), "0-7", "given back");
}

#[test]
fn who_falls_silent_is_given_back_after_a_while() {
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    w.turn();
    w.reading.traffic = Vec::new();
    w.turn();
    assert_ne!(w.cpus("a"), "0-7");
    w.pass(300_000);
    w.turn();
    assert_eq!((w.cpus("a"), w.cpus("b")), ("0-7".to_owned(), "0-7".to_owned()));
    assert!(w.state.is_empty());
}

#[test]
fn memory_follows_only_if_asked() {
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    w.turn();
    assert_eq!(w.tenant("a").mems, Cpus::default());
    w.settings.memory = true;
    w.turn();
    let first = w.tenant("a").cpus.first().unwrap();
    assert_eq!(w.tenant("a").mems.first(), Some(first / 4));
    w.settings.memory = false;
    w.turn();
    assert_eq!(w.tenant("a").mems, (0..8).collect(), "given back");
}

#[test]
fn after_a_restart_what_is_in_the_journal_is_ours() {
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    let steps = w.turn().steps;
    w.state = PinState::default();
    for step in &steps {
        w.state.adopt(&step.to_save().unwrap(), Millis(1));
    }
    // Nothing is known of traffic yet, and of one container not even what dockerd says.
    let traffic = std::mem::take(&mut w.reading.traffic);
    let wish = w.tenant("a").wish.take();
    assert_eq!(w.turn().steps, []);
    (w.reading.traffic, w.tenant("a").wish) = (traffic, wish);
    assert_eq!(w.turn().steps, []);
    // The containers are gone, and another job's knob is none of ours.
    w.reading.tenants.clear();
    w.reading.traffic.clear();
    let number = Value::from(Bytes(5));
    let low = Saved2 { knob: Knob::MemoryLow, value: number };
    w.state.adopt(&low.saved(), Millis(1));
    let plan = w.turn();
    assert_eq!(plan.steps.len(), 2);
    assert!(w.state.is_empty());
}

/// A line of another job in the journal.
struct Saved2 {
    knob: Knob,
    value: Value,
}

impl Saved2 {
    fn saved(&self) -> ctlmgr_model::Saved {
        ctlmgr_model::Saved {
            path: CgroupPath::new("x"),
            id: CgroupId(1),
            knob: self.knob,
            prior: self.value.clone(),
            ours: self.value.clone(),
            before: self.value.clone(),
            told: None,
            asked: None,
            had_setting: false,
        }
    }
}

#[test]
fn what_failed_is_not_tried_every_time() {
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    let (plan, mut state) = decide(&w.settings, PinState::default(), &w.reading);
    for step in &plan.steps {
        state.learn(step, &Outcome::Failed("no".to_owned()), w.reading.at);
    }
    w.pass(5000);
    let (again, state) = decide(&w.settings, state, &w.reading);
    assert_eq!((plan.steps.len(), again.steps.len()), (2, 0));
    w.pass(60_000);
    let (later, _) = decide(&w.settings, state, &w.reading);
    assert_eq!(later.steps.len(), 2);
}

#[test]
fn with_one_domain_there_is_nothing_to_choose() {
    let mut w = World::new(&["a", "b"]);
    w.reading.traffic = vec![(0, 1, 9 * MIB)];
    w.reading.topology.domains.truncate(1);
    let plan = w.turn();
    assert_eq!(plan.steps, []);
    assert!(plan.note.contains("nothing to choose"));
}
