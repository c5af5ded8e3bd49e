//! What is measured: pairs of hogs, ways of treating the host, and pressure.

/// A pair of hogs and what presses on them.
pub struct Scene {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, for the report.
    pub about: &'static str,
    /// Names of the two.
    pub hogs: [&'static str; 2],
    /// Sizes of their sets, in MiB.
    pub sizes: [u32; 2],
    /// What they are promised (`--memory-reservation`), in MiB.
    pub promises: [u32; 2],
    /// Touches per MiB and second; at 40 a page is touched every 6 s or so.
    pub rates: [u32; 2],
    /// Whether their sets are files instead of anonymous memory.
    pub in_files: bool,
    /// What presses.
    pub pressure: Pressure,
}

/// What presses on the pair: five steps each.
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
/// Table 4.1 of the paper: two of 500 MB, promised 150 MB, 200 to 1000 MB outside, 2 GB.
const TABLE_4_1: Scene = Scene {
    name: "exp3a",
    about: "base of the paper's chapter 4: two of 500 MiB promised 150 (also Exp-4a and 5a)",
    hogs: ["first", "second"],
    sizes: [500, 500],
    promises: [150, 150],
    rates: [40, 40],
    in_files: false,
    pressure: RISING,
};

/// All of them.
pub const SCENES: [Scene; 11] = [
    Scene {
        name: "sizes",
        about: "400 and 800 MiB, equally hot, promised what they use",
        hogs: ["small", "large"],
        sizes: [400, 800],
        promises: [400, 800],
        ..TABLE_4_1
    },
    Scene {
        name: "heat",
        about: "500 MiB each, promised what they use, one four times as hot",
        hogs: ["cold", "hot"],
        promises: [500, 500],
        rates: [10, 40],
        ..TABLE_4_1
    },
    Scene {
        name: "exp1",
        about: "Exp-1: both of 700 MiB exceed a promise of 350 by the same",
        sizes: [700, 700],
        promises: [350, 350],
        ..TABLE_4_1
    },
    Scene {
        name: "exp2",
        about: "Exp-2: neither of 500 MiB exceeds its promise of 1000",
        promises: [1000, 1000],
        ..TABLE_4_1
    },
    TABLE_4_1,
    Scene {
        name: "exp3b",
        about: "Exp-3b: the base under 1000 to 1400 MiB",
        pressure: Pressure::Unit([1000, 1100, 1200, 1300, 1400]),
        ..TABLE_4_1
    },
    Scene {
        name: "exp4b",
        about: "Exp-4b: the base with page cache instead of anonymous memory",
        in_files: true,
        ..TABLE_4_1
    },
    Scene {
        name: "exp5b",
        about: "Exp-5b: the base promised 300",
        promises: [300, 300],
        ..TABLE_4_1
    },
    Scene {
        name: "mixed",
        about: "one exceeds its promise (150 of 500 MiB), the other does not (1000)",
        promises: [150, 1000],
        ..TABLE_4_1
    },
    Scene {
        name: "reversed",
        about: "sizes, started in the other order",
        hogs: ["large", "small"],
        sizes: [800, 400],
        promises: [800, 400],
        ..TABLE_4_1
    },
    Scene {
        name: "balloon",
        about: "sizes, pressed by a machine that shrinks",
        hogs: ["small", "large"],
        sizes: [400, 800],
        promises: [400, 800],
        pressure: Pressure::Balloon([1800, 1600, 1500, 1400, 1300]),
        ..TABLE_4_1
    },
];

/// A way of treating the host, and what the script needs to know of it.
pub struct Policy {
    /// For the report.
    pub name: &'static str,
    /// For the script.
    pub script: &'static str,
    /// Weight of the larger, or second.
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
pub const POLICIES: [Policy; 13] = [
    policy("plain kernel, MGLRU", "plain", 100, "mglru"),
    policy("plain kernel, classic LRU", "plain", 100, "classic"),
    peer("covered memory.low, MGLRU", "static"),
    peer("exceed-based, MGLRU", "exceed"),
    peer("oomd's senpai with immediate backoff, MGLRU", "senpai-backoff"),
    peer("oomd's senpai by limit, MGLRU", "senpai-limit"),
    peer("systemd-oomd, MGLRU", "systemd-oomd"),
    peer("ctlmgr 1:1 with stall feedback, MGLRU", "act-both"),
    peer("ctlmgr 1:1 by stall only, MGLRU", "act-stall"),
    policy("ctlmgr 1:1, MGLRU", "act", 100, "mglru"),
    policy("ctlmgr 1:1, classic LRU", "act", 100, "classic"),
    policy("ctlmgr 1:4, MGLRU", "act", 400, "mglru"),
    policy("ctlmgr 1:4, classic LRU", "act", 400, "classic"),
];
