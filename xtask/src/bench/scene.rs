//! What is measured: pairs of workloads, ways of treating the host, and pressure.

/// Workloads in pairs, and what presses on them.
pub struct Scene {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, for the report.
    pub about: &'static str,
    /// The workloads; each two are a pair that is compared.
    pub members: &'static [Member],
    /// What presses.
    pub pressure: Pressure,
}

/// One workload.
pub struct Member {
    pub name: &'static str,
    pub kind: Kind,
    /// Size of its set, in MiB.
    pub mib: u32,
    /// What it is promised (`--memory-reservation`), in MiB.
    pub promise: u32,
    /// Touches per MiB and second; at 40 a page is touched every 6 s or so. A redis makes as many
    /// requests as it can, and this is only what it counts for beside others.
    pub rate: u32,
}

/// What a workload is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A hog with anonymous memory.
    Memory,
    /// A hog with page cache.
    Files,
    /// A redis with one client.
    Redis,
}

impl Kind {
    /// For the script.
    pub fn script(self) -> &'static str {
        match self {
            Kind::Memory => "memory",
            Kind::Files => "files",
            Kind::Redis => "redis",
        }
    }
}

const fn hog(name: &'static str, mib: u32, promise: u32) -> Member {
    Member { name, kind: Kind::Memory, mib, promise, rate: 40 }
}

/// What presses on them: five steps each.
#[derive(Clone, Copy)]
pub enum Pressure {
    /// A unit that nobody manages, with this much memory at each step, in MiB.
    Unit([u32; STEPS]),
    /// A balloon that leaves this much memory to the machine, in MiB.
    Balloon([u32; STEPS]),
}

/// Steps of pressure.
pub const STEPS: usize = 5;

impl Pressure {
    /// What is written beside each step.
    pub fn steps(self) -> [u32; STEPS] {
        match self {
            Pressure::Unit(steps) | Pressure::Balloon(steps) => steps,
        }
    }

    /// For the axis of a picture.
    pub fn label(self) -> &'static str {
        match self {
            Pressure::Unit(_) => "MiB of outside pressure",
            Pressure::Balloon(_) => "MiB of memory left",
        }
    }
}

const RISING: Pressure = Pressure::Unit([200, 400, 600, 800, 1000]);
const SHRINKING: Pressure = Pressure::Balloon([1800, 1600, 1500, 1400, 1300]);

const fn scene(
    name: &'static str,
    about: &'static str,
    members: &'static [Member],
    pressure: Pressure,
) -> Scene {
    Scene { name, about, members, pressure }
}

/// All of them. Table 4.1 of the paper is two of 500 MB, promised 150 MB, 200 to 1000 MB outside, on
/// 2 GB.
pub const SCENES: [Scene; 15] = [
    scene(
        "sizes",
        "400 and 800 MiB, equally hot, promised what they use",
        &[hog("small", 400, 400), hog("large", 800, 800)],
        RISING,
    ),
    scene(
        "heat",
        "500 MiB each, promised what they use, one four times as hot",
        &[Member { rate: 10, ..hog("cold", 500, 500) }, hog("hot", 500, 500)],
        RISING,
    ),
    scene(
        "exp1",
        "Exp-1: both of 700 MiB exceed a promise of 350 by the same",
        &[hog("first", 700, 350), hog("second", 700, 350)],
        RISING,
    ),
    scene(
        "exp2",
        "Exp-2: neither of 500 MiB exceeds its promise of 1000",
        &[hog("first", 500, 1000), hog("second", 500, 1000)],
        RISING,
    ),
    scene(
        "exp3a",
        "base of the paper's chapter 4: two of 500 MiB promised 150 (also Exp-4a and 5a)",
        &[hog("first", 500, 150), hog("second", 500, 150)],
        RISING,
    ),
    scene(
        "exp3b",
        "Exp-3b: the base under 1000 to 1400 MiB",
        &[hog("first", 500, 150), hog("second", 500, 150)],
        Pressure::Unit([1000, 1100, 1200, 1300, 1400]),
    ),
    scene(
        "exp4b",
        "Exp-4b: the base with page cache instead of anonymous memory",
        &[
            Member { kind: Kind::Files, ..hog("first", 500, 150) },
            Member { kind: Kind::Files, ..hog("second", 500, 150) },
        ],
        RISING,
    ),
    scene(
        "exp5b",
        "Exp-5b: the base promised 300",
        &[hog("first", 500, 300), hog("second", 500, 300)],
        RISING,
    ),
    scene(
        "mixed",
        "one exceeds its promise (150 of 500 MiB), the other does not (1000)",
        &[hog("exceeding", 500, 150), hog("within", 500, 1000)],
        RISING,
    ),
    scene(
        "covered",
        "a redis whose promise covers its set (250 of 400 MiB), beside a hog that exceeds its (500 of 150)",
        &[
            Member { rate: 10, ..hog("exceeding", 500, 150) },
            Member { kind: Kind::Redis, ..hog("covered", 250, 400) },
        ],
        RISING,
    ),
    scene(
        "reversed",
        "sizes, started in the other order",
        &[hog("large", 800, 800), hog("small", 400, 400)],
        RISING,
    ),
    scene(
        "balloon",
        "sizes, pressed by a machine that shrinks",
        &[hog("small", 400, 400), hog("large", 800, 800)],
        SHRINKING,
    ),
    scene(
        "balloon-reversed",
        "balloon, started in the other order",
        &[hog("large", 800, 800), hog("small", 400, 400)],
        SHRINKING,
    ),
    scene(
        "kinds",
        "anonymous memory beside page cache, 550 MiB each, promised what they use, on a machine that shrinks",
        &[
            Member { rate: 10, ..hog("anonymous", 550, 550) },
            Member { kind: Kind::Files, rate: 10, ..hog("cached", 550, 550) },
        ],
        SHRINKING,
    ),
    // Its 16 to 9 GB as parts of what is used: the last step leaves less than that.
    scene(
        "cloud",
        "Table 5.1 of the paper: a pair of redis and a pair of hogs, promised 1:2, on a machine that \
         shrinks",
        &[
            Member { kind: Kind::Redis, rate: 10, ..hog("redis-low", 150, 150) },
            Member { kind: Kind::Redis, rate: 10, ..hog("redis-high", 300, 300) },
            Member { rate: 10, ..hog("hog-low", 160, 160) },
            Member { rate: 10, ..hog("hog-high", 320, 320) },
        ],
        Pressure::Balloon([1500, 1375, 1250, 1125, 1000]),
    ),
];

/// A way of treating the host, and what the script needs to know of it.
pub struct Policy {
    /// For the report.
    pub name: &'static str,
    /// For the script.
    pub script: &'static str,
    /// Weight of the second of each pair; the first has 100.
    pub weight_of_second: u32,
    /// Page aging.
    pub lru: &'static str,
    /// Measured only when peers are asked for.
    pub is_peer: bool,
}

const fn policy(
    name: &'static str,
    script: &'static str,
    weight_of_second: u32,
    lru: &'static str,
) -> Policy {
    Policy { name, script, weight_of_second, lru, is_peer: false }
}

const fn peer(name: &'static str, script: &'static str) -> Policy {
    Policy { name, script, weight_of_second: 100, lru: "mglru", is_peer: true }
}

/// All of them.
pub const POLICIES: [Policy; 14] = [
    policy("plain kernel, MGLRU", "plain", 100, "mglru"),
    policy("plain kernel, classic LRU", "plain", 100, "classic"),
    peer("covered memory.low, MGLRU", "static"),
    peer("exceed-based, MGLRU", "exceed"),
    peer("oomd's senpai with immediate backoff, MGLRU", "senpai-backoff"),
    peer("oomd's senpai by limit, MGLRU", "senpai-limit"),
    peer("systemd-oomd, MGLRU", "systemd-oomd"),
    peer("equal parts by hand, MGLRU", "parts"),
    peer("ctlmgr 1:1 by shares only, MGLRU", "act-shares"),
    peer("ctlmgr 1:1 by stall only, MGLRU", "act-stall"),
    policy("ctlmgr 1:1, MGLRU", "act", 100, "mglru"),
    policy("ctlmgr 1:1, classic LRU", "act", 100, "classic"),
    policy("ctlmgr 1:4, MGLRU", "act", 400, "mglru"),
    policy("ctlmgr 1:4, classic LRU", "act", 400, "classic"),
];
