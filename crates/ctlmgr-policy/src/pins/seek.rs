//! The problem of [`crate::placement`] that a reading comes to.

use std::collections::BTreeMap;

use ctlmgr_model::{Cpus, Millis, Shared, Tenant};

use super::NOISE;
use super::aim::{Basis, Field, Room};
use super::standing::Standing;
use crate::placement::{self, Domain, Problem, Work, Workload};

/// More load than its part a domain may have, in per cent, where domains are fuller than `fill`.
const TOLERANCE: i64 = 10;
/// What a move costs where the kernel does not tell how large a cache is.
const CACHE: u64 = 16 << 20;
/// Bits of the sum of all edges: with distances, parts and ties of groups there are 63 at most.
const MOST_BITS: u32 = 40;

impl<'a> Field<'a> {
    /// Fills in the domains of everybody who is placed.
    pub fn choose(&self, basis: &mut Basis, known: Option<&Basis>) {
        if self.rooms.len() < 2 {
            return;
        }
        let placed: Vec<usize> = (0..self.reading.tenants.len())
            .filter(|i| match self.standings[*i] {
                Standing::Free => true,
                Standing::Own => self.is_somewhere(&self.reading.tenants[*i]),
                _ => false,
            })
            .collect();
        let problem = self.problem(&placed, &mut basis.again_at);
        let rounds = (placed.len() as u64).pow(2).saturating_mul(4).clamp(2000, 50_000);
        let found = placement::place(&problem, &mut Work::new(rounds, &|| None));
        let of = |index: usize| &self.reading.tenants[placed[index]];
        match found {
            Ok(placement) => {
                let chosen = placement.domains.into_iter().enumerate();
                basis.chosen = chosen.map(|(i, at)| (of(i).path.clone(), at)).collect();
                self.drop_what_gains_nothing(&mut basis.chosen);
            }
            Err(error) => {
                basis.trouble = Some(format!("{}: {error}", of(error.workload()).name));
                // Of other domains the old places mean nothing.
                let known = known.filter(|k| k.topology == basis.topology);
                basis.chosen = known.map(|k| k.chosen.clone()).unwrap_or_default();
            }
        }
    }

    /// Whether its own list, or its parent's, says more than everywhere.
    fn is_somewhere(&self, tenant: &Tenant) -> bool {
        let at = self.domains_of(self.list_of(tenant));
        !at.is_empty() && at.len() < self.rooms.len()
    }

    /// The narrower of its own list and its parent's.
    pub fn list_of(&self, tenant: &'a Tenant) -> &'a Cpus {
        if tenant.cpus.is_empty() { &tenant.allowed } else { &tenant.cpus }
    }

    fn problem(&self, placed: &[usize], again_at: &mut Option<Millis>) -> Problem {
        let workloads: Vec<Workload> = placed.iter().map(|i| self.workload(*i, again_at)).collect();
        let (edges, shift) = self.edges(placed);
        let limits = self.limits(placed, &workloads);
        let domains =
            self.rooms.iter().map(|r| Domain { cpus: thousandths(r.cpus.len()) }).collect();
        let move_price = as_i64((self.price() >> shift).max(1));
        Problem { domains, workloads, edges, distance: self.distance.clone(), limits, move_price }
    }

    fn workload(&self, index: usize, again_at: &mut Option<Millis>) -> Workload {
        let (tenant, standing) = (&self.reading.tenants[index], self.standings[index]);
        let load = as_i64(self.load(tenant, standing).max(1));
        let is_exclusive = tenant.wish.as_ref().is_some_and(|w| w.exclusive);
        if standing == Standing::Own {
            let current = self.domains_of(self.list_of(tenant));
            let widest = current.len();
            return Workload { load, current, is_pinned: true, widest, ..Workload::default() };
        }
        let current = self.state.pinned_to(tenant).map(|at| self.domains_of(at));
        let current = current.unwrap_or_default();
        let (at, long) = (self.reading.at, self.settings.cool_down);
        let cools = self.state.cools_until(tenant, at, long);
        let held = cools.filter(|_| !current.is_empty() && !self.is_saturated(tenant));
        if let Some(end) = held {
            *again_at = Some(again_at.map_or(end, |known| known.min(end)));
        }
        let widest = self.rooms.len();
        let is_pinned = held.is_some();
        Workload { load, current, is_pinned, is_exclusive, widest, ..Workload::default() }
    }

    /// Traffic over the horizon, and ties of groups that are stronger than all of it; in units of 2^shift
    /// bytes, so that cut, price and ties fit together.
    fn edges(&self, placed: &[usize]) -> (Vec<(usize, usize, i64)>, u32) {
        let at: BTreeMap<usize, usize> =
            placed.iter().enumerate().map(|(place, index)| (*index, place)).collect();
        let secs = (self.settings.horizon.0 / 1000).max(1);
        let bytes = |rate: u64| u128::from(rate) * u128::from(secs);
        let mut raw: Vec<(usize, usize, u128)> = Vec::new();
        for (a, b, rate) in self.reading.traffic.iter().filter(|(_, _, rate)| *rate >= NOISE) {
            if let (Some(a), Some(b)) = (at.get(a), at.get(b)) {
                raw.push((*a, *b, bytes(*rate)));
            }
        }
        let sum: u128 = raw.iter().map(|(_, _, bytes)| *bytes).sum();
        let shift = (u128::BITS - sum.leading_zeros()).saturating_sub(MOST_BITS);
        let fitting = |bytes: u128| as_i64(u64::try_from(bytes >> shift).unwrap_or(u64::MAX));
        let mut edges: Vec<_> =
            raw.into_iter().map(|(a, b, bytes)| (a, b, fitting(bytes))).collect();
        let all = fitting(sum) + 1;
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, index) in placed.iter().enumerate() {
            let wish = self.reading.tenants[*index].wish.as_ref();
            let Some(group) = wish.and_then(|w| w.group.as_ref()) else { continue };
            if let Some(before) = last.insert(group, place) {
                edges.push((before, place, all));
            }
        }
        (edges, shift)
    }

    /// What each domain may carry: its part of all load and a little more, or `fill` of its processors,
    /// less its part of what runs everywhere.
    fn limits(&self, placed: &[usize], workloads: &[Workload]) -> Vec<i64> {
        let everywhere: u64 = (0..self.reading.tenants.len())
            .filter(|i| placed.binary_search(i).is_err())
            .map(|i| self.reading.tenants[i].use_milli)
            .sum();
        let cpus: i64 = self.rooms.iter().map(|r| thousandths(r.cpus.len())).sum::<i64>().max(1);
        let total: i64 = workloads.iter().map(|w| w.load).sum();
        let limit = |room: &Room| {
            let own = thousandths(room.cpus.len());
            let others = as_i64(everywhere).saturating_mul(own) / cpus;
            let even = total.saturating_mul(own) / cpus * (100 + TOLERANCE) / 100;
            let fill = own * i64::from(self.settings.fill.0) / 100 - others;
            even.max(fill).min(own - others).max(1)
        };
        self.rooms.iter().map(limit).collect()
    }

    /// Bytes that are cold after a move: the contents of a last-level cache.
    pub fn price(&self) -> u64 {
        let size = |d: &ctlmgr_model::CacheDomain| match d.shared {
            Shared::Cache { size_kib: Some(kib), .. } => Some(u64::from(kib) << 10),
            _ => None,
        };
        self.reading.topology.domains.iter().filter_map(size).max().unwrap_or(CACHE)
    }
}

pub(super) fn as_i64(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn thousandths(cpus: usize) -> i64 {
    as_i64(cpus as u64 * 1000)
}
