//! The result in the terms of the input, reckoned anew from the assignment.

use std::collections::BTreeMap;
use std::time::Duration;

use ctlmgr_policy::placement::Placement;
use serde::Serialize;

use super::input::Input;

#[derive(Debug, Serialize)]
pub(super) struct Output {
    /// Domains of each workload.
    pub assignment: BTreeMap<String, Vec<String>>,
    /// Bytes between domains.
    pub cut: f64,
    /// Σ bytes · distance; the mean distance where a workload has several domains.
    pub weighted_cut: f64,
    /// CPUs of the most loaded domain.
    pub max_load: f64,
    /// By how much the most loaded domain is above the mean, in parts of it.
    pub imbalance: f64,
    /// CPUs beyond the limits of domains.
    pub overload: f64,
    /// Workloads that are not where they were.
    pub moves: usize,
    /// By how much the weighted cut is less than now, between workloads that are somewhere now.
    pub gain_vs_current: f64,
    pub time_ms: u64,
    /// Whether no placement is better; absent unless a proof was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven: Option<bool>,
}

impl Output {
    pub fn new(input: &Input, placement: &Placement, took: Duration) -> Output {
        let now: Vec<Vec<usize>> = (0..input.workloads.len())
            .map(|w| {
                let mut domains = input.current(w);
                domains.sort_unstable();
                domains
            })
            .collect();
        let at = &placement.domains;
        let moved = |w: &usize| !now[*w].is_empty() && now[*w] != at[*w];
        let load = load(input, at);
        let parts = || load.iter().zip(&input.domains);
        let (all, cpus): (f64, f64) =
            (load.iter().sum(), input.domains.iter().map(|d| d.cpus).sum());
        let fullest = parts().map(|(load, d)| load / d.cpus).fold(0.0, f64::max);
        let over = |d: usize| (load[d] - input.limit(d)).max(0.0);
        let overload: f64 = (0..load.len()).map(over).sum();
        let ids =
            |domains: &Vec<usize>| domains.iter().map(|d| input.domains[*d].id.clone()).collect();
        let names = input.workloads.iter().map(|w| w.name.clone());
        let gain = traffic(input, &now, &now).1 - traffic(input, at, &now).1;
        let (cut, weighted_cut) = traffic(input, at, at);
        Output {
            assignment: names.zip(at.iter().map(ids)).collect(),
            cut,
            weighted_cut,
            max_load: load.iter().copied().fold(0.0, f64::max),
            imbalance: if all > 0.0 { fullest / (all / cpus) - 1.0 } else { 0.0 },
            // Sums of decimals are not quite what they look like.
            overload: if overload < 1e-9 { 0.0 } else { overload },
            moves: (0..now.len()).filter(moved).count(),
            gain_vs_current: gain,
            time_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            proven: None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "domains are few")]
fn load(input: &Input, at: &[Vec<usize>]) -> Vec<f64> {
    let mut load = vec![0.0; input.domains.len()];
    for (w, domains) in input.workloads.iter().zip(at) {
        domains.iter().for_each(|d| load[*d] += w.cpu / domains.len() as f64);
    }
    load
}

/// Bytes between domains, and bytes · distance, of those pairs of which both are `known` somewhere.
#[expect(clippy::cast_precision_loss, reason = "domains are few")]
fn traffic(input: &Input, at: &[Vec<usize>], known: &[Vec<usize>]) -> (f64, f64) {
    let (mut cut, mut weighted) = (0.0, 0.0);
    let index: BTreeMap<&str, usize> =
        input.workloads.iter().enumerate().map(|(i, w)| (w.name.as_str(), i)).collect();
    for (a, b, bytes) in &input.edges {
        let (Some(a), Some(b)) = (index.get(a.as_str()), index.get(b.as_str())) else { continue };
        if a == b || known[*a].is_empty() || known[*b].is_empty() {
            continue;
        }
        let pairs = at[*a].iter().flat_map(|x| at[*b].iter().map(move |y| (*x, *y)));
        let each = bytes / (at[*a].len() * at[*b].len()).max(1) as f64;
        for (x, y) in pairs {
            cut += if x == y { 0.0 } else { each };
            weighted += each * input.distance(x, y);
        }
    }
    (cut, weighted)
}
