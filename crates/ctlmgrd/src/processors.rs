//! The processors of the host as they come and go.

use ctlmgr_host::Host;
use ctlmgr_model::Topology;
use ctlmgr_sense::read_topology;
use tracing::warn;

/// What was read of the processors, and again whenever others run.
#[derive(Debug)]
pub(crate) struct Processors {
    host: Host,
    topology: Topology,
    /// Which processors ran when the topology was read.
    online: String,
    /// Whether it was said already that they cannot be read.
    has_failed: bool,
}

impl Processors {
    pub fn new(host: Host) -> Processors {
        Processors { host, topology: Topology::default(), online: String::new(), has_failed: false }
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether there are several domains to choose from; none on a host whose processors cannot be told.
    pub fn have_choice(&self) -> bool {
        self.topology.domains.len() > 1
    }

    /// Reads them again when others run than before; whether they are the same as the last time.
    pub fn look(&mut self) -> bool {
        let online = self.host.read("sys/devices/system/cpu/online").ok().flatten();
        let online = online.unwrap_or_default();
        if online == self.online && !online.is_empty() {
            return true;
        }
        match read_topology(&self.host) {
            Ok(topology) => {
                // What came just now may not show its caches yet: once more the next time.
                let is_settled = topology == self.topology;
                self.online = if is_settled { online } else { String::new() };
                self.topology = topology;
                self.has_failed = false;
                is_settled && !self.topology.domains.is_empty()
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!(error = ctlmgr_host::chain(&error), "the processors cannot be read");
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &std::path::Path, cpus: u32) {
        for cpu in 0..cpus {
            let cache = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache/index0"));
            std::fs::create_dir_all(&cache).unwrap();
            let first = cpu / 2 * 2;
            let files = [
                ("level", "3".to_owned()),
                ("type", "Unified".to_owned()),
                ("shared_cpu_list", format!("{first}-{}", first + 1)),
            ];
            files.iter().for_each(|(name, text)| std::fs::write(cache.join(name), text).unwrap());
        }
        let online = root.join("sys/devices/system/cpu/online");
        std::fs::write(online, format!("0-{}\n", cpus - 1)).unwrap();
    }

    #[test]
    fn a_host_that_grows_gets_a_choice_without_a_restart() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), 2);
        let mut processors = Processors::new(Host::fake(root.path()));
        assert!(!processors.look(), "seen once");
        assert!(processors.look());
        assert!(!processors.have_choice());
        write(root.path(), 4);
        assert!(!processors.look());
        assert!(processors.have_choice());
        assert!(processors.look());
    }
}
