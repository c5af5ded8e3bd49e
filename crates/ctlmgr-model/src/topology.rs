//! Processors and the caches that they share.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A set of processors, written as the kernel does: `0-3,8`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(BTreeSet<u32>);

/// No kernel has more processors (`NR_CPUS`).
const MOST: u32 = 8192;

/// A text that is no list of processors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no list of processors, as 0-3,8")]
pub struct CpusError(String);

impl Cpus {
    /// The processors, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this one is among them.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The first.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.intersection(&other.0).copied().collect())
    }

    /// Those that are not in the other.
    #[must_use]
    pub fn without(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.difference(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Cpus {
        Cpus(cpus.into_iter().collect())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut ranges = Vec::new();
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            ranges.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
        }
        f.pad(&ranges.join(","))
    }
}

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Cpus, CpusError> {
        let fail = || CpusError(text.chars().take(40).collect());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| fail())?;
            let last: u32 = last.parse().map_err(|_| fail())?;
            if first > last || last >= MOST {
                return Err(fail());
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }
}

impl Serialize for Cpus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Cpus, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What the processors of a domain share, the nearest thing that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// A last-level cache.
    Cache {
        /// Its level.
        level: u8,
        /// Its size in KiB, if the kernel tells.
        size_kib: Option<u32>,
    },
    /// A cluster of cores, where each core has its last cache to itself.
    Cluster,
    /// Memory of their own.
    Node,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shared::Cache { level, size_kib: Some(kib) } if *kib >= 1024 => {
                write!(f, "L{level} {} MiB", kib / 1024)
            }
            Shared::Cache { level, size_kib: Some(kib) } => write!(f, "L{level} {kib} KiB"),
            Shared::Cache { level, .. } => write!(f, "L{level}"),
            Shared::Cluster => write!(f, "cluster"),
            Shared::Node => write!(f, "memory"),
        }
    }
}

/// Processors between which data moves at the least cost: an L3 domain on most machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDomain {
    /// Those that run.
    pub cpus: Cpus,
    /// The same, threads of one core together.
    pub cores: Vec<Cpus>,
    /// What they share.
    pub shared: Shared,
    /// NUMA node.
    pub numa: u32,
    /// Socket.
    pub socket: u32,
}

/// The processors of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Domains, by their first processor.
    pub domains: Vec<CacheDomain>,
    /// Processors that run.
    pub online: Cpus,
    /// Processors that are there and do not.
    pub offline: Cpus,
    /// Processors that the scheduler leaves alone (`isolcpus`).
    pub isolated: Cpus,
    /// Slower processors, where there are two kinds.
    pub slow: Cpus,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_as_the_kernel_does() {
        for text in ["0-3,8", "0", "0,2,4-5", ""] {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), text);
        }
        assert_eq!(" 0-1,2\n".parse::<Cpus>().unwrap().to_string(), "0-2");
        for text in ["3-1", "a", "1-", "-1", "0-99999999"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }
}
