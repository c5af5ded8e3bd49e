//! Processors and what they share, from sysfs (kernel: admin-guide/cputopology.rst,
//! ABI/testing/sysfs-devices-system-cpu).

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_host::{Host, HostError, Result};
use ctlmgr_model::{CacheDomain, Cpus, Shared, Topology};

const CPU: &str = "sys/devices/system/cpu";
/// More cache levels than any machine has.
const CACHES: usize = 10;
/// Below this level a cache is not what others call the last one.
const LEAST_LEVEL: u8 = 2;
/// A processor with less than this part of the capacity of the best one is slow, in per cent.
const SLOW_PCT: u32 = 90;

/// Reads the processors of a host.
///
/// # Errors
/// The host does not say which processors run, or a list is malformed.
pub fn read_topology(host: &Host) -> Result<Topology> {
    let sys = Sys { host };
    let online = sys.cpus("online")?.filter(|cpus| !cpus.is_empty());
    let online =
        online.ok_or_else(|| HostError::malformed(host.path(&format!("{CPU}/online")), ""))?;
    let present = sys.cpus("present")?.unwrap_or_else(|| online.clone());
    let nodes = sys.nodes(&online)?;
    let mut domains: BTreeMap<u32, CacheDomain> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for cpu in online.iter() {
        if seen.contains(&cpu) {
            continue;
        }
        let socket = sys.number(cpu, "physical_package_id")?.unwrap_or(0);
        let (numa, node) = nodes
            .iter()
            .find(|(_, cpus)| cpus.contains(cpu))
            .map_or_else(|| (0, online.clone()), |(numa, cpus)| (*numa, cpus.clone()));
        let (shared, cpus) = sys.neighbours(cpu, &node)?;
        // Caches that span nodes are cut there: memory is on one side. Whatever a list says, a processor
        // is in its own domain, and in no other.
        let open = |other: &u32| *other == cpu || (cpus.contains(*other) && !seen.contains(other));
        let cpus: Cpus = node.and(&online).iter().chain([cpu]).filter(open).collect();
        let cores = sys.cores(&cpus)?;
        seen.extend(cpus.iter());
        domains.insert(cpu, CacheDomain { cpus, cores, shared, numa, socket });
    }
    Ok(Topology {
        domains: domains.into_values().collect(),
        offline: present.without(&online),
        isolated: sys.cpus("isolated")?.unwrap_or_default(),
        slow: sys.slow(&online)?,
        online,
    })
}

struct Sys<'a> {
    host: &'a Host,
}

impl Sys<'_> {
    fn text(&self, path: &str) -> Result<Option<String>> {
        // Files of a processor that went offline answer with an error; it is as good as not there.
        let found = self.host.read(path).unwrap_or_default();
        Ok(found.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    /// A list below the directory of processors.
    fn cpus(&self, name: &str) -> Result<Option<Cpus>> {
        self.list(&format!("{CPU}/{name}"))
    }

    fn list(&self, path: &str) -> Result<Option<Cpus>> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let malformed = |_| HostError::malformed(self.host.path(path), &text);
        text.parse().map(Some).map_err(malformed)
    }

    fn number(&self, cpu: u32, name: &str) -> Result<Option<u32>> {
        let path = format!("{CPU}/cpu{cpu}/topology/{name}");
        // -1 is a kernel that does not know.
        Ok(self.text(&path)?.and_then(|text| text.parse().ok()))
    }

    /// NUMA nodes with processors; none on a kernel without NUMA.
    fn nodes(&self, online: &Cpus) -> Result<BTreeMap<u32, Cpus>> {
        let mut nodes = BTreeMap::new();
        let all = self.list("sys/devices/system/node/online")?.unwrap_or_default();
        for node in all.iter() {
            let cpus = self.list(&format!("sys/devices/system/node/node{node}/cpulist"))?;
            let cpus = cpus.unwrap_or_default().and(online);
            if !cpus.is_empty() {
                nodes.insert(node, cpus);
            }
        }
        Ok(nodes)
    }

    /// Those that share the most with a processor: the last cache that several cores share, else the
    /// cluster, else the node.
    fn neighbours(&self, cpu: u32, node: &Cpus) -> Result<(Shared, Cpus)> {
        let threads = self.threads(cpu)?;
        let mut last: Option<(u8, Option<u32>, Cpus)> = None;
        for index in 0..CACHES {
            let dir = format!("{CPU}/cpu{cpu}/cache/index{index}");
            let Some(level) = self.text(&format!("{dir}/level"))? else { break };
            let level: u8 = level.parse().unwrap_or(0);
            let is_unified = self.text(&format!("{dir}/type"))?.as_deref() == Some("Unified");
            let cpus = self.list(&format!("{dir}/shared_cpu_list"))?;
            if let Some(cpus) = cpus.filter(|_| is_unified && level >= LEAST_LEVEL)
                && last.as_ref().is_none_or(|(least, ..)| level > *least)
            {
                let size = self.text(&format!("{dir}/size"))?;
                let kib = size.and_then(|text| text.strip_suffix('K')?.parse().ok());
                last = Some((level, kib, cpus));
            }
        }
        let is_wide = |cpus: &Cpus| !cpus.without(&threads).is_empty();
        if let Some((level, size_kib, cpus)) =
            last.filter(|(level, _, cpus)| is_wide(cpus) || *level > 2)
        {
            return Ok((Shared::Cache { level, size_kib }, cpus));
        }
        let cluster = self.list(&format!("{CPU}/cpu{cpu}/topology/cluster_cpus_list"))?;
        match cluster.filter(|cpus| is_wide(cpus)) {
            Some(cpus) => Ok((Shared::Cluster, cpus)),
            None => Ok((Shared::Node, node.clone())),
        }
    }

    /// The threads of a processor's core.
    fn threads(&self, cpu: u32) -> Result<Cpus> {
        let list = |name| self.list(&format!("{CPU}/cpu{cpu}/topology/{name}"));
        let named = match list("core_cpus_list")? {
            Some(cpus) => Some(cpus),
            // Its name until 5.3.
            None => list("thread_siblings_list")?,
        };
        Ok(named.unwrap_or_else(|| [cpu].into_iter().collect()))
    }

    fn cores(&self, cpus: &Cpus) -> Result<Vec<Cpus>> {
        let mut cores = BTreeSet::new();
        for cpu in cpus.iter() {
            cores.insert(self.threads(cpu)?.and(cpus));
        }
        Ok(cores.into_iter().collect())
    }

    /// The slower ones of two kinds of processors, as the kernel tells them apart on x86 and on ARM.
    fn slow(&self, online: &Cpus) -> Result<Cpus> {
        if let Some(atoms) = self.list("sys/devices/cpu_atom/cpus")? {
            return Ok(atoms.and(online));
        }
        let mut capacities = BTreeMap::new();
        for cpu in online.iter() {
            let text = self.text(&format!("{CPU}/cpu{cpu}/cpu_capacity"))?;
            if let Some(capacity) = text.and_then(|text| text.parse::<u32>().ok()) {
                capacities.insert(cpu, capacity);
            }
        }
        let best = capacities.values().copied().max().unwrap_or(0);
        let is_slow =
            |capacity: u32| u64::from(capacity) * 100 < u64::from(best) * u64::from(SLOW_PCT);
        Ok(capacities.into_iter().filter(|(_, c)| is_slow(*c)).map(|(cpu, _)| cpu).collect())
    }
}

#[cfg(test)]
mod tests;
