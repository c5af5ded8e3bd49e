//! The shape of a machine: what is fixed when it boots.

/// Memory, processors, caches, disks.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Shape {
    /// Memory, in MiB.
    #[arg(long, default_value_t = MEMORY_MIB)]
    pub memory: u32,
    /// Processors.
    #[arg(long, default_value_t = 2)]
    pub cpus: u32,
    /// L3 domains; more than one needs a multiple of it as processors.
    #[arg(long, default_value_t = 1)]
    pub l3: u32,
    /// NUMA nodes, 1 or 2.
    #[arg(long, default_value_t = 1)]
    pub numa: u32,
    /// Size of the swap disk, in MiB; 0 for none.
    #[arg(long, default_value_t = 2048)]
    pub swap: u32,
    /// Add a 1 GiB data disk limited to this many operations per second.
    #[arg(long)]
    pub throttled_iops: Option<u32>,
    /// Debian release whose kernel boots: trixie-backports (7.x), trixie (6.12), bookworm (6.1) or bullseye (5.10).
    #[arg(long, default_value = RELEASE)]
    pub kernel: String,
}

/// Memory of the guest unless said otherwise, in MiB.
pub const MEMORY_MIB: u32 = 2048;

/// Debian release of the guest, and of its kernel unless said otherwise.
pub const RELEASE: &str = "trixie";

/// The processor under emulation. EPYC models show a cache for every processor, so it is `max`; without what an
/// emulator has to do in software for each access and that changes nothing for us: copies byte by byte, a fifth level
/// of page tables, and user pages that the kernel has to open and close.
const EMULATED: &str = "max,-erms,-fsrm,-la57,-smap,-smep,-umip,-pku";

impl Default for Shape {
    fn default() -> Self {
        let kernel = RELEASE.to_owned();
        Shape {
            memory: MEMORY_MIB,
            cpus: 2,
            l3: 1,
            numa: 1,
            swap: 2048,
            throttled_iops: None,
            kernel,
        }
    }
}

impl Shape {
    /// Four last-level caches of two processors, on two memory nodes.
    pub fn domains() -> Shape {
        Shape { cpus: 8, l3: 4, numa: 2, ..Shape::default() }
    }

    /// Two of them, on a node each: twice the processors take more than twice as long to emulate.
    pub fn two_domains() -> Shape {
        Shape { cpus: 4, l3: 2, numa: 2, ..Shape::default() }
    }

    /// A name that differs between shapes; machines with one name can share a saved state.
    pub fn name(&self) -> String {
        let iops = self.throttled_iops.unwrap_or(0);
        format!(
            "m{}-c{}-l{}-n{}-s{}-t{iops}",
            self.memory, self.cpus, self.l3, self.numa, self.swap
        )
    }

    /// QEMU's words for memory, processors and caches.
    pub fn words(&self, accelerator: &str) -> Vec<String> {
        let memory = self.memory;
        let mut words = vec!["-m".to_owned(), memory.to_string()];
        let model = if accelerator == "kvm" { "host" } else { EMULATED };
        words.extend(["-cpu".to_owned(), model.to_owned()]);
        let cores = self.cpus / self.l3.max(1);
        // One L3 per socket is what QEMU shows reliably.
        let smp = format!("{},sockets={},cores={cores},threads=1", self.cpus, self.l3);
        words.extend(["-smp".to_owned(), smp]);
        if self.numa == 2 {
            let half = self.cpus / 2;
            for (node, cpus) in [(0, 0..half), (1, half..self.cpus)] {
                let object = format!("memory-backend-ram,id=node{node},size={}M", memory / 2);
                let numa = format!(
                    "node,nodeid={node},memdev=node{node},cpus={}-{}",
                    cpus.start,
                    cpus.end.saturating_sub(1)
                );
                words.extend(["-object".to_owned(), object, "-numa".to_owned(), numa]);
            }
        }
        words
    }
}
