//! Who talks to whom, and how much: counts of the kernel, made into a graph of containers.
//!
//! A task of its own that only reads. Sockets are known by their cgroup, peers by the addresses that
//! dockerd gave. What goes to addresses that nobody has, or through a port that the host publishes, is
//! outside.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctlmgr_api::{Graph, GraphEdge, GraphNode};
use ctlmgr_model::{CgroupId, CountTraffic, Mode, PlaceSettings, Settings};
use ctlmgr_sense::{Containers, Members, Sensor};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::processors::Processors;

/// Between two readings.
const EVERY: Duration = Duration::from_secs(5);
/// Between two looks at processors that leave no choice: more of them may come.
const WITHOUT_CHOICE: Duration = Duration::from_secs(60);
/// Readings for which what goes to an address that nobody has may be for one that dockerd has not told of yet.
const UNTOLD: u8 = 6;
/// After so long the past counts for half.
const HALF: f64 = 60.0;

/// What was sent by a cgroup to an address since counting began.
pub(crate) type Sent = (CgroupId, IpAddr, u64);

/// Where the kernel's counts come from.
type Source = Box<dyn Fn() -> Vec<Sent> + Send>;

/// What the task listens to and reads.
pub(crate) struct Parts {
    pub settings: watch::Receiver<Settings>,
    pub containers: watch::Receiver<Containers>,
    pub sensor: Arc<Sensor>,
    /// The directory of the topmost cgroup.
    pub cgroups: PathBuf,
    pub processors: Processors,
}

/// What one reading saw.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// When reading began; absent before the first one.
    pub at: Option<Instant>,
    pub graph: Graph,
    pub members: Members,
    /// Bytes per second between two containers, by their full ids.
    pub pairs: Vec<(String, String, u64)>,
    /// Processors that each keeps busy, in thousandths.
    pub cpu_milli: BTreeMap<String, u64>,
}

/// Starts the task; returns what it sees.
pub(crate) fn watch(parts: Parts) -> watch::Receiver<Seen> {
    let (publish, seen) = watch::channel(Seen::default());
    tokio::spawn(follow(parts, publish));
    seen
}

/// Whether bytes are counted, and whether processor use is read.
fn is_wanted(place: &PlaceSettings, has_choice: bool) -> (bool, bool) {
    let is_of_use = has_choice && place.mode != Mode::Off;
    let is_counted = match place.traffic {
        CountTraffic::Auto => is_of_use,
        CountTraffic::On => true,
        CountTraffic::Off => false,
    };
    (is_counted, is_counted || is_of_use)
}

async fn follow(mut parts: Parts, publish: watch::Sender<Seen>) {
    let mut counting = Counting::default();
    loop {
        let place = parts.settings.borrow_and_update().place.clone();
        let (cgroups, sensor) = (parts.cgroups.clone(), parts.sensor.clone());
        let containers = parts.containers.borrow_and_update().clone();
        // The kernel and its files are read off the runtime's own threads.
        let read = tokio::task::spawn_blocking(move || {
            parts.processors.look();
            let has_choice = parts.processors.have_choice();
            let (is_counted, is_read) = is_wanted(&place, has_choice);
            counting.want(is_counted, &cgroups);
            let seen = counting.read(is_read, &sensor, &containers);
            (parts, counting, seen, is_read)
        });
        let Ok(back) = read.await else { return };
        let (seen, is_read);
        (parts, counting, seen, is_read) = back;
        // What could not be read says nothing: what was seen last stays.
        seen.into_iter().for_each(|seen| drop(publish.send_replace(seen)));
        let pause = if is_read { EVERY } else { WITHOUT_CHOICE };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = parts.settings.changed() => match changed {
                Ok(()) => {}
                // The daemon is about to go.
                Err(_) => return,
            },
        }
    }
}

/// What is known of a cgroup and an address.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The kernel's count, as far as it was attributed.
    bytes: u64,
    /// Readings that have seen it.
    seen: u8,
}

/// The state of counting.
#[derive(Default)]
struct Counting {
    source: Option<Source>,
    /// Why there is none although it is wanted.
    refused: Option<String>,
    /// The kernel's counts of the last reading, as far as they were attributed, and what they came to, each for whoever had
    /// the address when it was sent: addresses are used again.
    known: BTreeMap<(CgroupId, IpAddr), Known>,
    sums: Totals,
    rates: Rates,
    read_at: Option<Instant>,
}

impl Counting {
    fn want(&mut self, wanted: bool, cgroups: &std::path::Path) {
        match (wanted, &self.source, &self.refused) {
            (false, ..) => (self.source, self.refused) = (None, None),
            (true, None, None) => match attach(cgroups) {
                Ok(source) => {
                    info!("traffic between containers is counted");
                    self.source = Some(source);
                }
                Err(why) => {
                    warn!(why, "traffic between containers is not counted");
                    self.refused = Some(why);
                }
            },
            _ => {}
        }
    }

    /// `None` if the hierarchy could not be read.
    fn read(&mut self, is_read: bool, sensor: &Sensor, containers: &Containers) -> Option<Seen> {
        let said = match (&self.source, &self.refused) {
            (Some(_), _) => "on",
            (None, Some(why)) => why.as_str(),
            (None, None) => "off",
        };
        let traffic = said.to_owned();
        if !is_read {
            return Some(Seen { graph: Graph { traffic, ..Graph::default() }, ..Seen::default() });
        }
        let began = Instant::now();
        let members = sensor.members();
        let members = members.inspect_err(|e| warn!(error = ctlmgr_host::chain(e), "not read"));
        let members = members.ok()?;
        let now = Instant::now();
        let passed = self.read_at.replace(now).map(|before| now.duration_since(before));
        let sent = self.source.as_ref().map(|source| source()).unwrap_or_default();
        let more = Totals::new(self.grown(sent, containers), &members, containers);
        self.sums.add(more);
        self.rates.follow(&self.sums, passed);
        let graph = self.rates.graph(traffic, &self.sums, containers);
        Some(Seen { at: Some(began), ..self.rates.seen(graph, members) })
    }
}

impl Counting {
    /// What was sent since the last reading. What a new pair sends to an address that nobody has is left for later ones: a
    /// container may send a good part of all it ever does before dockerd has told of it.
    fn grown(&mut self, sent: Vec<Sent>, containers: &Containers) -> Vec<Sent> {
        let owners = owners(containers);
        let mut known = BTreeMap::new();
        let mut all = Vec::with_capacity(sent.len());
        for (cgroup, peer, bytes) in sent {
            // A count that began anew has grown from nothing.
            let before = self.known.get(&(cgroup, peer)).filter(|before| before.bytes <= bytes);
            let before = before.copied().unwrap_or_default();
            let seen = before.seen.saturating_add(1);
            let is_left = seen < UNTOLD && !owners.contains_key(&peer.to_canonical());
            let bytes = if is_left { before.bytes } else { bytes };
            all.push((cgroup, peer, bytes - before.bytes));
            known.insert((cgroup, peer), Known { bytes, seen });
        }
        self.known = known;
        all
    }
}

/// Who has which address, by full ids.
fn owners(containers: &Containers) -> BTreeMap<IpAddr, &String> {
    let facts = containers.by_id.values();
    facts.flat_map(|f| f.addresses.iter().map(|address| (*address, &f.id))).collect()
}

#[cfg(feature = "ebpf")]
fn attach(cgroups: &std::path::Path) -> Result<Source, String> {
    let trace = ctlmgr_trace::TrafficTrace::attach(cgroups).map_err(|e| ctlmgr_host::chain(&e))?;
    let sent = move || trace.sent().into_iter().map(|s| (s.cgroup, s.peer, s.bytes.0)).collect();
    Ok(Box::new(sent))
}

#[cfg(not(feature = "ebpf"))]
fn attach(_: &std::path::Path) -> Result<Source, String> {
    Err("ctlmgr was built without eBPF".to_owned())
}

/// Counts since the beginning, or since the last reading, by full ids of containers.
#[derive(Debug, Default)]
struct Totals {
    /// Ids in order, so that both directions are one pair.
    pairs: BTreeMap<(String, String), u64>,
    outside: BTreeMap<String, u64>,
    cpu_usec: BTreeMap<String, u64>,
}

impl Totals {
    /// With what came since; who is gone is left out.
    fn add(&mut self, more: Totals) {
        let Totals { pairs, outside, cpu_usec } = more;
        self.cpu_usec = cpu_usec;
        for (pair, bytes) in pairs {
            *self.pairs.entry(pair).or_default() += bytes;
        }
        for (id, bytes) in outside {
            *self.outside.entry(id).or_default() += bytes;
        }
        let here = &self.cpu_usec;
        self.pairs.retain(|(a, b), _| here.contains_key(a) && here.contains_key(b));
        self.outside.retain(|id, _| here.contains_key(id));
    }

    fn new(sent: Vec<Sent>, members: &Members, containers: &Containers) -> Totals {
        let owners = owners(containers);
        let mut totals = Totals { cpu_usec: members.cpu_usec.clone(), ..Totals::default() };
        for (cgroup, peer, bytes) in sent {
            let Some(from) = members.of_cgroup.get(&cgroup) else { continue };
            match owners.get(&peer.to_canonical()) {
                // To itself, by its own address.
                Some(to) if *to == from => {}
                // Of IPv4 the program leaves it out.
                None if peer.is_loopback() => {}
                Some(to) => {
                    let pair = (from.min(to).clone(), from.max(to).clone());
                    *totals.pairs.entry(pair).or_default() += bytes;
                }
                None => *totals.outside.entry(from.clone()).or_default() += bytes,
            }
        }
        totals
    }
}

/// Means over time of what totals grow by.
#[derive(Debug, Default)]
struct Rates {
    pairs: BTreeMap<(String, String), Rate>,
    outside: BTreeMap<String, Rate>,
    cpu_usec: BTreeMap<String, Rate>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    total: u64,
    per_sec: f64,
}

impl Rate {
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    fn follow(&mut self, total: u64, passed: Option<Duration>) {
        // A count that began anew has grown from nothing.
        let more = if total >= self.total { total - self.total } else { total };
        self.total = total;
        let Some(secs) = passed.map(|p| p.as_secs_f64()).filter(|secs| *secs > 0.0) else { return };
        let kept = 0.5_f64.powf(secs / HALF);
        self.per_sec = self.per_sec * kept + more as f64 / secs * (1.0 - kept);
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    fn rounded(self) -> u64 {
        self.per_sec.round() as u64
    }
}

fn follow_all<K: Ord + Clone>(
    rates: &mut BTreeMap<K, Rate>,
    totals: &BTreeMap<K, u64>,
    passed: Option<Duration>,
) {
    rates.retain(|key, _| totals.contains_key(key));
    for (key, total) in totals {
        match rates.get_mut(key) {
            Some(rate) => rate.follow(*total, passed),
            // It came since the last reading; before the first one nobody knows since when.
            None => {
                let mut rate =
                    Rate { total: if passed.is_some() { 0 } else { *total }, per_sec: 0.0 };
                rate.follow(*total, passed);
                rates.insert(key.clone(), rate);
            }
        }
    }
}

impl Rates {
    fn follow(&mut self, totals: &Totals, passed: Option<Duration>) {
        follow_all(&mut self.pairs, &totals.pairs, passed);
        follow_all(&mut self.outside, &totals.outside, passed);
        follow_all(&mut self.cpu_usec, &totals.cpu_usec, passed);
    }

    fn seen(&self, graph: Graph, members: Members) -> Seen {
        let pairs = self.pairs.iter().map(|((a, b), r)| (a.clone(), b.clone(), r.rounded()));
        let cpus = self.cpu_usec.iter().map(|(id, r)| (id.clone(), r.rounded() / 1000));
        let (pairs, cpu_milli) = (pairs.collect(), cpus.collect());
        Seen { at: None, graph, members, pairs, cpu_milli }
    }

    fn graph(&self, traffic: String, totals: &Totals, containers: &Containers) -> Graph {
        let name = |id: &String| {
            let named = containers.by_id.get(id).and_then(|facts| facts.name.clone());
            named.unwrap_or_else(|| id.chars().take(12).collect())
        };
        let rounded = |rate: Option<&Rate>| rate.map_or(0, |rate| rate.rounded());
        let ids: BTreeSet<&String> = totals.cpu_usec.keys().collect();
        let node = |id: &&String| GraphNode {
            name: name(id),
            cpu_milli: rounded(self.cpu_usec.get(*id)) / 1000,
            outside_per_sec: rounded(self.outside.get(*id)),
        };
        let mut nodes: Vec<GraphNode> = ids.iter().map(node).collect();
        nodes.sort_by(|x, y| x.name.cmp(&y.name));
        let is_here = |(a, b): &(String, String)| ids.contains(a) && ids.contains(b);
        let edge = |(pair, rate): (&(String, String), &Rate)| {
            let (x, y) = (name(&pair.0), name(&pair.1));
            let (bytes_per_sec, bytes) = (rate.rounded(), rate.total);
            GraphEdge { a: x.clone().min(y.clone()), b: x.max(y), bytes_per_sec, bytes }
        };
        let mut edges: Vec<GraphEdge> =
            self.pairs.iter().filter(|(pair, _)| is_here(pair)).map(edge).collect();
        edges.sort_by(|x, y| {
            y.bytes_per_sec.cmp(&x.bytes_per_sec).then((&x.a, &x.b).cmp(&(&y.a, &y.b)))
        });
        Graph { traffic, nodes, edges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::ContainerFacts;

    #[test]
    fn where_placement_is_off_nothing_is_counted_unless_asked_for() {
        let wanted = |mode, traffic, has_choice| {
            is_wanted(&PlaceSettings { mode, traffic, ..PlaceSettings::default() }, has_choice)
        };
        use CountTraffic::{Auto, On};
        assert_eq!(wanted(Mode::Observe, Auto, true), (true, true));
        assert_eq!(wanted(Mode::Off, Auto, true), (false, false));
        assert_eq!(wanted(Mode::Off, On, true), (true, true));
        assert_eq!(wanted(Mode::Act, Auto, false), (false, false));
        assert_eq!(wanted(Mode::Act, CountTraffic::Off, true), (false, true));
    }

    fn world() -> (Members, Containers) {
        let mut containers = Containers::default();
        let mut members = Members::default();
        for (number, name) in ["web", "db", "cache"].iter().enumerate() {
            let id = format!("{number}{number}");
            let last = u8::try_from(number).unwrap() + 2;
            containers.by_id.insert(
                id.clone(),
                ContainerFacts {
                    id: id.clone(),
                    name: Some((*name).to_owned()),
                    addresses: vec![IpAddr::from([172, 17, 0, last])],
                    ..ContainerFacts::default()
                },
            );
            members.of_cgroup.insert(CgroupId(number as u64 + 10), id.clone());
            members.cpu_usec.insert(id, 0);
        }
        (members, containers)
    }

    fn to(last: u8) -> IpAddr {
        IpAddr::from([172, 17, 0, last])
    }

    #[test]
    fn both_directions_are_one_edge_and_the_rest_is_outside() {
        let (members, containers) = world();
        let sent = vec![
            (CgroupId(10), to(3), 1000),
            (CgroupId(11), to(2), 500),
            (CgroupId(10), to(2), 9999),
            (CgroupId(10), IpAddr::from([8, 8, 8, 8]), 70),
            (CgroupId(99), to(2), 5),
            (CgroupId(10), "::1".parse().unwrap(), 33),
        ];
        let totals = Totals::new(sent, &members, &containers);
        let mut rates = Rates::default();
        rates.follow(&totals, None);
        let graph = rates.graph("on".to_owned(), &totals, &containers);
        let names: Vec<&str> = graph.nodes.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["cache", "db", "web"]);
        let edge = &graph.edges[0];
        assert_eq!((graph.edges.len(), edge.a.as_str(), edge.b.as_str()), (1, "db", "web"));
        assert_eq!((edge.bytes, edge.bytes_per_sec), (1500, 0), "nobody knows since when");
        assert_eq!(totals.outside.values().sum::<u64>(), 70);
    }

    #[test]
    fn an_address_that_is_used_again_brings_no_old_bytes() {
        let (mut members, mut containers) = world();
        let mut counting = Counting::default();
        let mut look = |members: &Members, containers: &Containers, bytes| {
            let grown = counting.grown(vec![(CgroupId(10), to(3), bytes)], containers);
            let more = Totals::new(grown, members, containers);
            counting.sums.add(more);
            counting.sums.pairs.clone()
        };
        let before = look(&members, &containers, 1_000_000);
        assert_eq!(before.values().copied().collect::<Vec<_>>(), [1_000_000]);
        // Another one with the address of the first.
        let mut facts = containers.by_id.remove("11").unwrap();
        facts.id = "33".to_owned();
        containers.by_id.insert("33".to_owned(), facts);
        members.cpu_usec.remove("11");
        members.cpu_usec.insert("33".to_owned(), 0);
        let after = look(&members, &containers, 1_000_500);
        assert_eq!(after, BTreeMap::from([(("00".to_owned(), "33".to_owned()), 500)]));
    }

    /// Seen where processors are short: two files were fetched before dockerd had told of who has them, and were nobody's.
    #[test]
    fn what_is_sent_before_dockerd_tells_of_the_peer_is_its_own_and_after_a_while_outside() {
        let (members, told) = world();
        let mut untold = told.clone();
        untold.by_id.remove("11");
        let elsewhere = IpAddr::from([8, 8, 8, 8]);
        let after = |readings: u8| {
            let mut counting = Counting::default();
            for reading in 1..=readings + 3 {
                let containers = if reading > readings { &told } else { &untold };
                let bytes = 1000 * u64::from(reading.min(readings));
                let sent = vec![(CgroupId(10), to(3), bytes), (CgroupId(10), elsewhere, bytes)];
                let grown = counting.grown(sent, containers);
                counting.sums.add(Totals::new(grown, &members, containers));
            }
            let sum = |all: Vec<u64>| all.iter().sum::<u64>();
            let Totals { pairs, outside, .. } = counting.sums;
            (sum(pairs.into_values().collect()), sum(outside.into_values().collect()))
        };
        assert_eq!(after(UNTOLD - 1), (5000, 5000));
        assert_eq!(after(UNTOLD + 1), (0, 14_000), "it is nobody's for too long");
    }

    #[test]
    fn rates_come_to_what_is_steady_and_forget_who_is_gone() {
        let (mut members, containers) = world();
        let mut rates = Rates::default();
        for second in 0..100_u64 {
            let sent = vec![(CgroupId(10), to(3), second * 5000)];
            members.cpu_usec.insert("00".to_owned(), second * 1_250_000);
            let totals = Totals::new(sent, &members, &containers);
            rates.follow(&totals, (second > 0).then_some(Duration::from_secs(5)));
        }
        let last = Totals::new(vec![(CgroupId(10), to(3), 99 * 5000)], &members, &containers);
        let graph = rates.graph("on".to_owned(), &last, &containers);
        assert!((995..=1000).contains(&graph.edges[0].bytes_per_sec), "{graph:?}");
        let web = graph.nodes.iter().find(|n| n.name == "web").unwrap();
        assert!((248..=250).contains(&web.cpu_milli), "{web:?}");
        let without = Totals::new(Vec::new(), &members, &containers);
        rates.follow(&without, Some(Duration::from_secs(5)));
        assert!(rates.graph("on".to_owned(), &without, &containers).edges.is_empty());
    }

    #[test]
    fn a_count_that_begins_anew_has_not_gone_backwards() {
        let mut rate = Rate::default();
        rate.follow(1_000_000, None);
        rate.follow(500, Some(Duration::from_secs(5)));
        assert!(rate.per_sec > 0.0 && rate.per_sec < 100.0);
    }
}
