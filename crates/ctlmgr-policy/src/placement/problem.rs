//! What is to be placed where.

use std::collections::BTreeMap;

/// Processors that share a last-level cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// How many, in the unit of the workloads' load.
    pub cpus: i64,
}

/// A workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    /// Processors that it keeps busy, in any unit.
    pub load: i64,
    /// The domains where it is now; none if it is new.
    pub current: Vec<usize>,
    /// It stays where it is.
    pub is_pinned: bool,
    /// Nobody else on its domains.
    pub is_exclusive: bool,
    /// On how many domains it may be, at most.
    pub widest: usize,
    /// Of equals those of less weight are where the load exceeds the limit; any unit.
    pub weight: i64,
}

/// A problem; indices are those of its lists.
#[derive(Debug, Clone, Default)]
pub struct Problem {
    /// At least one.
    pub domains: Vec<Domain>,
    /// Who is to be placed.
    pub workloads: Vec<Workload>,
    /// Bytes between two workloads.
    pub edges: Vec<(usize, usize, i64)>,
    /// Distance of two domains, symmetric and at least 0.
    pub distance: Vec<Vec<i64>>,
    /// Limits of the domains' load.
    pub limits: Vec<i64>,
    /// What a move away from the present domain costs, in bytes · distance.
    pub move_price: i64,
}

/// What was asked for cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// A pinned workload is nowhere.
    #[error("it is pinned, and nowhere now")]
    PinnedNowhere {
        /// Which one.
        workload: usize,
    },
    /// It is on more domains than it may be.
    #[error("it is pinned to {places} domains, and may be on {widest}")]
    PinnedTooWide {
        /// Which one.
        workload: usize,
        /// On how many it is.
        places: usize,
        /// On how many it may be.
        widest: usize,
    },
    /// Two pinned workloads of which one is exclusive share a domain.
    #[error("it is exclusive, and pinned to a domain where another one is pinned")]
    SharedExclusive {
        /// Which one.
        workload: usize,
        /// The other.
        other: usize,
    },
    /// More exclusive workloads than domains, or no domain is left for the rest.
    #[error("exclusive workloads need {needed} of {domains} domains, and others need one too")]
    TooExclusive {
        /// A workload that no domain is left for.
        workload: usize,
        /// Domains that exclusive workloads need.
        needed: usize,
        /// Domains that there are.
        domains: usize,
    },
}

impl Contradiction {
    /// Whom it is about.
    pub fn workload(&self) -> usize {
        match self {
            Contradiction::PinnedNowhere { workload }
            | Contradiction::PinnedTooWide { workload, .. }
            | Contradiction::SharedExclusive { workload, .. }
            | Contradiction::TooExclusive { workload, .. } => *workload,
        }
    }
}

/// Units and their edges, as the search sees them.
#[derive(Debug, Clone)]
pub(super) struct Graph {
    pub units: Vec<Unit>,
    /// Neighbours and weights of each unit.
    pub edges: Vec<Vec<(usize, i64)>>,
    pub distance: Vec<Vec<i64>>,
    pub limits: Vec<i64>,
    /// What a unit pays on a domain that is not its present one.
    pub move_price: i64,
}

/// A workload, or a part of one.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    pub workload: usize,
    pub load: i64,
    pub weight: i64,
    pub current: Option<usize>,
    pub is_pinned: bool,
    pub is_exclusive: bool,
    /// The first and last unit of its workload, where it has several.
    pub siblings: (usize, usize),
}

/// Weights are multiplied by this where workloads have parts, so that their halves are integers.
const PARTS: i64 = 720;

impl Problem {
    /// Refuses what contradicts itself.
    pub(super) fn check(&self) -> Result<(), Contradiction> {
        for (index, w) in self.workloads.iter().enumerate().filter(|(_, w)| w.is_pinned) {
            let places = w.current.len();
            match places {
                0 => return Err(Contradiction::PinnedNowhere { workload: index }),
                _ if places > w.widest => {
                    let widest = w.widest;
                    return Err(Contradiction::PinnedTooWide { workload: index, places, widest });
                }
                _ => {}
            }
            let is_shared =
                |o: &Workload| o.is_pinned && o.current.iter().any(|d| w.current.contains(d));
            let mut others = self.workloads.iter().enumerate().filter(|(i, _)| *i != index);
            if let Some((other, _)) = others.find(|(_, o)| is_shared(o)).filter(|_| w.is_exclusive)
            {
                return Err(Contradiction::SharedExclusive { workload: index, other });
            }
        }
        Ok(())
    }

    /// Units that the workloads are divided into.
    pub fn units(&self) -> usize {
        self.workloads.iter().map(|w| self.width(w)).sum()
    }

    /// On how many domains a workload lies: as few as hold it within their limits.
    fn width(&self, w: &Workload) -> usize {
        if w.is_pinned {
            return w.current.len();
        }
        let others =
            self.workloads.iter().filter(|o| o.is_exclusive && !std::ptr::eq(*o, w)).count();
        let open = self.domains.len().saturating_sub(others).max(1);
        let widest = w.widest.clamp(1, open);
        let mut limits = self.limits.clone();
        limits.sort_unstable_by(|a, b| b.cmp(a));
        let holds =
            |width: usize| w.load <= limits[..width].iter().min().unwrap_or(&0) * as_i64(width);
        (1..widest).find(|width| holds(*width)).unwrap_or(widest)
    }

    pub(super) fn graph(&self) -> Graph {
        let widths: Vec<usize> = self.workloads.iter().map(|w| self.width(w)).collect();
        let scale = if widths.iter().any(|w| *w > 1) { PARTS } else { 1 };
        let (mut units, mut first) = (Vec::new(), Vec::new());
        for (index, (w, width)) in self.workloads.iter().zip(&widths).enumerate() {
            first.push(units.len());
            let siblings = (units.len(), units.len() + width - 1);
            for part in 0..*width {
                let more = i64::from(as_i64(part) < w.load % as_i64(*width));
                units.push(Unit {
                    workload: index,
                    load: w.load / as_i64(*width) + more,
                    weight: w.weight,
                    current: w.current.get(part).or(w.current.first()).copied(),
                    is_pinned: w.is_pinned,
                    is_exclusive: w.is_exclusive,
                    siblings,
                });
            }
        }
        let mut weights: BTreeMap<(usize, usize), i64> = BTreeMap::new();
        for (a, b, bytes) in self.edges.iter().filter(|(a, b, bytes)| a != b && *bytes > 0) {
            let each = bytes * scale / (as_i64(widths[*a]) * as_i64(widths[*b]));
            for i in first[*a]..first[*a] + widths[*a] {
                for k in first[*b]..first[*b] + widths[*b] {
                    *weights.entry((i.min(k), i.max(k))).or_default() += each;
                }
            }
        }
        let mut edges = vec![Vec::new(); units.len()];
        for ((a, b), weight) in weights {
            edges[a].push((b, weight));
            edges[b].push((a, weight));
        }
        Problem::tie_parts(&units, &mut edges);
        // All of them together fit.
        let most = i64::MAX / 8 / as_i64(units.len()).max(1);
        let move_price = self.move_price.saturating_mul(scale).min(most);
        let (distance, limits) = (self.distance.clone(), self.limits.clone());
        Graph { units, edges, distance, limits, move_price }
    }

    /// Parts of one workload are nearer to each other than to anybody else.
    fn tie_parts(units: &[Unit], edges: &mut [Vec<(usize, i64)>]) {
        let all: Vec<i64> = edges.iter().map(|e| e.iter().map(|(_, w)| *w).sum()).collect();
        for unit in 0..units.len() {
            let (_, last) = units[unit].siblings;
            for other in unit + 1..=last {
                edges[unit].push((other, all[unit] + 1));
                edges[other].push((unit, all[unit] + 1));
            }
        }
    }
}

fn as_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Graph {
    pub fn domains_of_workloads(&self, at: &[usize], workloads: usize) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new(); workloads];
        for (unit, domain) in self.units.iter().zip(at) {
            all[unit.workload].push(*domain);
        }
        for domains in &mut all {
            domains.sort_unstable();
            domains.dedup();
        }
        all
    }
}
