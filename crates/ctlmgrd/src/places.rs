//! Where things are; everything below one root.

use std::path::PathBuf;

use ctlmgr_host::Host;

/// Files and directories of a daemon.
#[derive(Debug, Clone)]
pub struct Places {
    /// The root that all of them are below.
    pub root: PathBuf,
}

impl Places {
    /// The host to sense and act on.
    pub fn host(&self) -> Host {
        match self.root.as_os_str() == "/" {
            true => Host::real(),
            false => Host::fake(&self.root),
        }
    }

    /// Run-time directory: the journal lives as long as what it describes, until reboot.
    pub fn run(&self) -> PathBuf {
        self.root.join("run/ctlmgr")
    }

    /// The undo journal.
    pub fn journal(&self) -> PathBuf {
        self.run().join("undo.db")
    }

    /// What was learned of starts, over reboots.
    pub fn profiles(&self) -> PathBuf {
        self.root.join("var/lib/ctlmgr/profiles.db")
    }

    /// The API socket, where systemd did not open it for us.
    pub fn socket(&self) -> PathBuf {
        self.run().join("api.sock")
    }

    /// Fragments written by the daemon on request, until reboot.
    pub fn overrides(&self) -> PathBuf {
        self.run().join("config.d")
    }

    /// dockerd's socket.
    pub fn docker(&self) -> PathBuf {
        self.root.join("run/docker.sock")
    }

    /// Identity of this boot.
    pub fn boot_id(&self) -> String {
        let text = self.host().read("proc/sys/kernel/random/boot_id").ok().flatten();
        text.unwrap_or_default().trim().to_owned()
    }
}
