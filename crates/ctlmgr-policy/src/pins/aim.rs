//! The domains that each container is to be on.

use std::collections::BTreeMap;

use ctlmgr_model::{CgroupPath, Cpus, Millis, PlaceReading, PlaceSettings, Tenant, Topology};

use super::NOISE;
use super::seek::as_i64;
use super::standing::Standing;
use super::state::PinState;

/// Whoever uses this part of its processors, in thousandths, wants more.
const SATURATED: u64 = 850;
/// A saturated one counts as if it used this part.
const WANTS: u64 = 1250;
/// Loads that differ by less than a fourth, or by this much, are the same.
const SAME_LOAD: u64 = 250;

/// Where a container is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Where the kernel likes, or others say.
    Anywhere,
    /// On these domains.
    On { domains: Vec<usize>, cpus: Cpus, mems: Option<Cpus> },
}

impl Place {
    /// Whether both are on the same domains.
    pub fn is_with(&self, other: &Place) -> bool {
        matches!((self, other), (Place::On { domains: a, .. }, Place::On { domains: b, .. }) if a == b)
    }
}

/// What is to be, and what that is worth.
pub(super) struct Aim {
    pub places: Vec<Place>,
    pub cut_now: u64,
    pub cut_planned: u64,
    pub cost: u64,
    pub note: String,
}

/// What an aim was made from, and what it is. By path, because the order of a reading is its own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Basis {
    pub topology: Topology,
    settings: PlaceSettings,
    standings: BTreeMap<CgroupPath, Standing>,
    loads: BTreeMap<CgroupPath, u64>,
    edges: BTreeMap<(CgroupPath, CgroupPath), u64>,
    /// When somebody's cool-down ends who was held by it.
    pub again_at: Option<Millis>,
    pub chosen: BTreeMap<CgroupPath, Vec<usize>>,
    pub trouble: Option<String>,
}

/// A domain whose processors may be used.
pub(super) struct Room {
    pub cpus: Cpus,
    pub numa: u32,
    pub socket: u32,
}

/// What one aim is made from.
pub(super) struct Field<'a> {
    pub settings: &'a PlaceSettings,
    pub state: &'a PinState,
    pub reading: &'a PlaceReading,
    pub standings: &'a [Standing],
    pub rooms: Vec<Room>,
    pub distance: Vec<Vec<i64>>,
}

/// The aim: that of last time, or a new one if more has changed than noise.
pub(super) fn follow(
    settings: &PlaceSettings,
    state: &mut PinState,
    reading: &PlaceReading,
    standings: &[Standing],
) -> Aim {
    let field = Field::new(settings, state, reading, standings);
    let mut basis = field.basis();
    match &state.basis {
        Some(known) if !known.is_outdated(&basis, reading.at) => basis = known.clone(),
        known => field.choose(&mut basis, known.as_ref()),
    }
    let aim = field.aim(&basis);
    state.basis = Some(basis);
    aim
}

impl Basis {
    /// Whether `now` differs from it by more than noise, or a cool-down is over.
    fn is_outdated(&self, now: &Basis, at: Millis) -> bool {
        let is_other = self.topology != now.topology
            || self.settings != now.settings
            || self.standings != now.standings;
        is_other
            || self.again_at.is_some_and(|end| at >= end)
            || self.loads.iter().any(|(path, load)| {
                now.loads.get(path).is_none_or(|new| new.abs_diff(*load) > SAME_LOAD.max(load / 4))
            })
            || self.has_other_traffic(now)
    }

    /// A fifth of all traffic between other pairs, or more or less of it.
    fn has_other_traffic(&self, now: &Basis) -> bool {
        let rate = |of: &Basis, pair| of.edges.get(pair).copied().unwrap_or(0);
        let gone = self.edges.keys().filter(|pair| !now.edges.contains_key(pair));
        let pairs = gone.chain(now.edges.keys());
        let difference: u64 = pairs.map(|pair| rate(self, pair).abs_diff(rate(now, pair))).sum();
        difference > (self.edges.values().sum::<u64>() / 5).max(4 * NOISE)
    }
}

impl<'a> Field<'a> {
    fn new(
        settings: &'a PlaceSettings,
        state: &'a PinState,
        reading: &'a PlaceReading,
        standings: &'a [Standing],
    ) -> Field<'a> {
        let topology = &reading.topology;
        let room = |d: &ctlmgr_model::CacheDomain| Room {
            cpus: d.cpus.without(&topology.isolated),
            numa: d.numa,
            socket: d.socket,
        };
        let rooms: Vec<Room> =
            topology.domains.iter().map(room).filter(|r| !r.cpus.is_empty()).collect();
        let apart = |a: &Room, b: &Room| match () {
            () if a.cpus == b.cpus => 0,
            () if a.numa == b.numa => 1,
            () if a.socket == b.socket => 2,
            () => 4,
        };
        let distance = rooms.iter().map(|a| rooms.iter().map(|b| apart(a, b)).collect()).collect();
        Field { settings, state, reading, standings, rooms, distance }
    }

    fn tenants(&self) -> impl Iterator<Item = (&'a Tenant, Standing)> + '_ {
        self.reading.tenants.iter().zip(self.standings.iter().copied())
    }

    /// What there is to decide from, without an aim yet.
    fn basis(&self) -> Basis {
        let standings = self.tenants().map(|(t, s)| (t.path.clone(), s)).collect();
        let loads = self.tenants().map(|(t, s)| (t.path.clone(), self.load(t, s))).collect();
        let mut edges = BTreeMap::new();
        for &(a, b, rate) in self.reading.traffic.iter().filter(|(_, _, rate)| *rate >= NOISE) {
            let (a, b) = (&self.reading.tenants[a].path, &self.reading.tenants[b].path);
            *edges.entry((a.min(b).clone(), a.max(b).clone())).or_default() += rate;
        }
        Basis {
            topology: self.reading.topology.clone(),
            settings: self.settings.clone(),
            standings,
            loads,
            edges,
            again_at: None,
            chosen: BTreeMap::new(),
            trouble: None,
        }
    }

    /// Domains that a list has processors of.
    pub fn domains_of(&self, list: &Cpus) -> Vec<usize> {
        let is_in = |(_, room): &(usize, &Room)| !room.cpus.and(list).is_empty();
        self.rooms.iter().enumerate().filter(is_in).map(|(index, _)| index).collect()
    }

    pub fn is_saturated(&self, tenant: &Tenant) -> bool {
        let has = self.state.pinned_to(tenant).map(|cpus| cpus.len() as u64 * SATURATED);
        has.is_some_and(|most| tenant.use_milli >= most)
    }

    /// Processors that it needs, in thousandths.
    pub fn load(&self, tenant: &Tenant, standing: Standing) -> u64 {
        if standing != Standing::Free {
            return tenant.use_milli;
        }
        let seen = tenant.peak_milli.max(tenant.use_milli);
        match self.state.pinned_to(tenant).filter(|_| self.is_saturated(tenant)) {
            Some(cpus) => seen.max(cpus.len() as u64 * WANTS),
            None => seen,
        }
    }

    fn aim(&self, basis: &Basis) -> Aim {
        let mut places: Vec<Place> =
            self.reading.tenants.iter().map(|t| self.place(basis, t)).collect();
        self.keep_out(basis, &mut places);
        let now: Vec<Vec<usize>> =
            self.reading.tenants.iter().map(|t| self.domains_of(self.list_of(t))).collect();
        let planned: Vec<Vec<usize>> = places
            .iter()
            .zip(&now)
            .zip(self.standings)
            .map(|((place, now), standing)| match place {
                Place::On { domains, .. } => domains.clone(),
                Place::Anywhere if *standing == Standing::Own => now.clone(),
                Place::Anywhere => self.everywhere(),
            })
            .collect();
        let moves = self.moves(&places);
        let (cut_now, cut_planned) = (self.cut(&now), self.cut(&planned));
        let cost = self.price() * moves as u64;
        let note = self.note(basis, &places, moves);
        Aim { places, cut_now, cut_planned, cost, note }
    }

    fn everywhere(&self) -> Vec<usize> {
        (0..self.rooms.len()).collect()
    }

    fn place(&self, basis: &Basis, tenant: &Tenant) -> Place {
        let is_free = basis.standings.get(&tenant.path) == Some(&Standing::Free);
        match basis.chosen.get(&tenant.path).filter(|at| is_free && at.len() < self.rooms.len()) {
            Some(domains) => self.on(domains),
            None => Place::Anywhere,
        }
    }

    fn on(&self, domains: &[usize]) -> Place {
        let rooms = || domains.iter().filter_map(|d| self.rooms.get(*d));
        let cpus: Cpus = rooms().flat_map(|r| r.cpus.iter()).collect();
        let nodes: Cpus = rooms().map(|r| r.numa).collect();
        let all: Cpus = self.rooms.iter().map(|r| r.numa).collect();
        let mems = (self.settings.memory && all.len() > 1).then_some(nodes);
        Place::On { domains: domains.to_vec(), cpus, mems }
    }

    /// Whoever is no nearer to anybody there than anywhere is not pinned for nothing.
    pub fn drop_what_gains_nothing(&self, chosen: &mut BTreeMap<CgroupPath, Vec<usize>>) {
        let all = self.everywhere();
        let at = |i: usize| chosen.get(&self.reading.tenants[i].path).unwrap_or(&all);
        let mut gain = vec![0_i128; self.reading.tenants.len()];
        for &(a, b, rate) in self.reading.traffic.iter().filter(|(_, _, rate)| *rate >= NOISE) {
            for (one, other) in [(a, b), (b, a)] {
                let saved = self.between(&all, at(other)) - self.between(at(one), at(other));
                gain[one] += i128::from(saved) * i128::from(rate);
            }
        }
        for (tenant, gain) in self.reading.tenants.iter().zip(gain) {
            let wish = tenant.wish.as_ref();
            let is_asked = wish.is_some_and(|w| w.group.is_some() || w.exclusive);
            // Who has fallen silent stays for a while.
            let is_kept = gain > 0 || gain == 0 && self.state.is_pinned(tenant);
            if !is_asked && !is_kept {
                chosen.remove(&tenant.path);
            }
        }
    }

    /// Domains that somebody has for himself are closed to all others whom ctlmgr may place.
    fn keep_out(&self, basis: &Basis, places: &mut [Place]) {
        let is_alone = |i: &usize| {
            let wish = self.reading.tenants[*i].wish.as_ref();
            wish.is_some_and(|w| w.exclusive) && self.standings[*i] == Standing::Free
        };
        let closed: Vec<usize> = (0..places.len())
            .filter(is_alone)
            .filter_map(|i| basis.chosen.get(&self.reading.tenants[i].path))
            .flatten()
            .copied()
            .collect();
        let open: Vec<usize> =
            self.everywhere().into_iter().filter(|d| !closed.contains(d)).collect();
        if closed.is_empty() || open.is_empty() {
            return;
        }
        for (place, standing) in places.iter_mut().zip(self.standings) {
            let is_ours = matches!(standing, Standing::Free | Standing::Quiet);
            if is_ours && *place == Place::Anywhere {
                *place = self.on(&open);
            }
        }
    }

    /// Distance between two sets of domains, in thousandths: the mean of all pairs.
    fn between(&self, a: &[usize], b: &[usize]) -> i64 {
        let pairs = as_i64((a.len() * b.len()).max(1) as u64);
        let sum: i64 = a
            .iter()
            .flat_map(|x| b.iter().map(move |y| (x, y)))
            .map(|(x, y)| self.distance[*x][*y])
            .sum();
        sum * 1000 / pairs
    }

    /// Bytes · distance per second.
    fn cut(&self, at: &[Vec<usize>]) -> u64 {
        let cost = |&(a, b, rate): &(usize, usize, u64)| {
            u128::from(rate) * u128::from(self.between(&at[a], &at[b]).unsigned_abs()) / 1000
        };
        u64::try_from(self.reading.traffic.iter().map(cost).sum::<u128>()).unwrap_or(u64::MAX)
    }

    /// How many change from one list of ours to another.
    fn moves(&self, places: &[Place]) -> usize {
        let is_moved = |(tenant, place): &(&Tenant, &Place)| match place {
            Place::On { cpus, .. } => self.state.pinned_to(tenant).is_some_and(|at| at != cpus),
            Place::Anywhere => false,
        };
        self.reading.tenants.iter().zip(places).filter(is_moved).count()
    }

    fn note(&self, basis: &Basis, places: &[Place], moves: usize) -> String {
        let pinned = places.iter().filter(|p| **p != Place::Anywhere).count();
        match &basis.trouble {
            Some(trouble) => format!("as before, because of {trouble}"),
            None if self.rooms.len() < 2 => {
                "all processors share one last-level cache: there is nothing to choose".to_owned()
            }
            None if pinned == 0 => "nobody would gain by being pinned".to_owned(),
            None if moves == 0 => format!("{pinned} pinned; nothing is worth a move"),
            None => format!("{pinned} pinned, {moves} of them moved"),
        }
    }
}
