//! What `ctlmgr doctor` looks at: raw facts, no judgement.

use ctlmgr_host::Host;
use ctlmgr_model::{CgroupPath, LruFlavour};

use crate::machine::{read_lru, read_pressure};

/// Facts about a host that decide whether ctlmgr can work on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// A cgroup v2 hierarchy is mounted.
    pub has_cgroup2: bool,
    /// Controllers of the root; empty without cgroup v2.
    pub controllers: Vec<String>,
    /// Slices that hold containers but do not pass the memory controller on.
    pub slices_without_memory: Vec<CgroupPath>,
    /// `memory.reclaim` exists (5.19).
    pub has_reclaim: bool,
    /// PSI is on.
    pub has_psi: bool,
    /// Page aging.
    pub lru: Option<LruFlavour>,
    /// Kernel release.
    pub kernel: String,
    /// Swap is configured.
    pub has_swap: bool,
    /// systemd is the system manager.
    pub has_systemd: bool,
    /// dockerd's configuration names ctlmgr as authorization plugin.
    pub is_asked: bool,
    /// The socket where it asks is there.
    pub has_plugin_socket: bool,
}

/// Reads the facts; what cannot be read counts as absent.
pub fn facts(host: &Host) -> HostFacts {
    let text = |path: &str| host.read(path).ok().flatten().unwrap_or_default();
    let cgroups = host.cgroups().ok();
    let controllers = match cgroups {
        Some(_) => text("sys/fs/cgroup/cgroup.controllers"),
        None => String::new(),
    };
    let containers = cgroups.as_ref().map(container_slices).unwrap_or_default();
    HostFacts {
        has_cgroup2: cgroups.is_some(),
        controllers: controllers.split_whitespace().map(str::to_owned).collect(),
        slices_without_memory: containers
            .into_iter()
            .filter(|slice| {
                let file = format!("sys/fs/cgroup/{}/cgroup.subtree_control", slice.as_str());
                !text(&file).split_whitespace().any(|c| c == "memory")
            })
            .collect(),
        has_reclaim: cgroups.as_ref().is_some_and(|c| c.offers("memory.reclaim")),
        has_psi: read_pressure(host, "memory").is_some(),
        lru: read_lru(host).0,
        kernel: text("proc/sys/kernel/osrelease").trim().to_owned(),
        has_swap: text("proc/swaps").lines().count() > 1,
        has_systemd: host.path("run/systemd/system").is_dir(),
        is_asked: names_plugin(&text("etc/docker/daemon.json")),
        has_plugin_socket: host.path("run/ctlmgr/docker.sock").exists(),
    }
}

/// Whether the list of authorization plugins in dockerd's configuration has ctlmgr in it.
fn names_plugin(config: &str) -> bool {
    let Some((_, rest)) = config.split_once("\"authorization-plugins\"") else { return false };
    let list = rest.split_once(']').map_or(rest, |(list, _)| list);
    list.contains("\"ctlmgr\"")
}

fn container_slices(cgroups: &ctlmgr_host::Hierarchy) -> Vec<CgroupPath> {
    let found = crate::tree::walk(cgroups, &[]).unwrap_or_default();
    let mut slices: Vec<CgroupPath> = found
        .into_iter()
        .filter(|(_, kind)| matches!(kind, crate::tree::Kind::Container(_)))
        .filter_map(|(path, _)| path.parent())
        .collect();
    slices.dedup();
    slices
}

#[cfg(test)]
mod tests {
    use super::names_plugin;

    #[test]
    fn the_plugin_is_found_in_its_own_list_only() {
        assert!(names_plugin(r#"{"authorization-plugins": ["opa", "ctlmgr"], "x": []}"#));
        assert!(!names_plugin(r#"{"authorization-plugins": ["opa"], "labels": ["ctlmgr"]}"#));
        assert!(!names_plugin(r#"{"cgroup-parent": "ctlmgr"}"#) && !names_plugin(""));
    }
}
