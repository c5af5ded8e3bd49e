//! A directory that looks like a host.

use std::path::{Path, PathBuf};

/// Writes files below a directory that stands for `/`.
#[derive(Debug, Clone)]
pub struct FakeHost {
    root: PathBuf,
}

impl FakeHost {
    /// A host with cgroup v2 and 2 GiB of memory, half of it free.
    pub fn new(root: impl Into<PathBuf>) -> FakeHost {
        let host = FakeHost { root: root.into() };
        host.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
        host.write("proc/meminfo", &meminfo(2_097_152, 1_048_576));
        host
    }

    /// The root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a file.
    ///
    /// # Panics
    /// The file system of the test does not allow it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        let parent = path.parent().expect("a file has a directory");
        std::fs::create_dir_all(parent).expect("the test may write its own directory");
        std::fs::write(path, text).expect("the test may write its own directory");
    }

    /// Reads a file; empty if it is not there.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_default().trim().to_owned()
    }

    /// A cgroup that holds this much anonymous memory, in bytes.
    pub fn cgroup(&self, path: &str, anon: u64, low: u64) {
        let file = |name: &str| format!("sys/fs/cgroup/{path}/{name}");
        self.write(&file("memory.current"), &format!("{anon}\n"));
        self.write(&file("memory.stat"), &format!("anon {anon}\nfile 0\nkernel 0\n"));
        self.write(&file("memory.low"), &format!("{low}\n"));
        self.write(&file("memory.min"), "0\n");
        self.write(&file("memory.high"), "max\n");
        self.write(&file("memory.max"), "max\n");
        self.write(&file("memory.reclaim"), "");
    }
}

/// `/proc/meminfo` with these sizes, in KiB.
fn meminfo(total: u64, free: u64) -> String {
    // procfs wants every line that the oldest supported kernel has.
    let names = [
        "Buffers",
        "Cached",
        "SwapCached",
        "Active",
        "Inactive",
        "Active(anon)",
        "Inactive(anon)",
        "Active(file)",
        "Inactive(file)",
        "SwapTotal",
        "SwapFree",
        "Dirty",
        "Writeback",
        "AnonPages",
        "Mapped",
        "Shmem",
        "Slab",
        "SReclaimable",
        "SUnreclaim",
        "PageTables",
        "CommitLimit",
        "Committed_AS",
        "VmallocTotal",
        "VmallocUsed",
        "VmallocChunk",
    ];
    let mut text = format!("MemTotal: {total} kB\nMemFree: {free} kB\nMemAvailable: {free} kB\n");
    for name in names {
        text.push_str(&format!("{name}: 0 kB\n"));
    }
    text
}
