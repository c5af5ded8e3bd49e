//! Every key there is, once: the parser, `config show`, the reference page and the suggestions
//! for misspelt keys all come from here.

use strsim::jaro_winkler;

/// A configuration key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Table it stands in; `rule` is an array of tables.
    pub table: &'static str,
    /// Name; `*` where the user chooses it.
    pub name: &'static str,
    /// Type, unit and range in words.
    pub kind: &'static str,
    /// Default, as it would be written.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

const fn key(
    table: &'static str,
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key { table, name, kind, default, meaning }
}

/// All keys, in the order of the reference page.
pub const KEYS: &[Key] = &[
    key(
        "memory",
        "mode",
        "\"off\", \"observe\" or \"act\"",
        "\"observe\"",
        "What the memory job may do. observe decides and shows, and never writes.",
    ),
    key(
        "memory",
        "headroom",
        "percentage of memory (0–50 %) or size",
        "\"1%\"",
        "Free memory kept under contention, above the watermark of the kernel's own reclaim, so that \
         it stays asleep; with that no more than half of the machine.",
    ),
    key(
        "memory",
        "hysteresis",
        "percentage, 0–50 %",
        "\"2%\"",
        "A change of memory.low, memory.min or memory.high smaller than this part of its value is not written; one that \
         turns round takes twice as much if it has done so once in the last minute, and four times if more often.",
    ),
    key(
        "memory",
        "hysteresis_bytes",
        "size",
        "\"8M\"",
        "A change of memory.low, memory.min or memory.high smaller than this (or than half of the value, if that is \
         less, but 1M at least) is not written, but for floors, where protection has to make room in a full slice, and for \
         a raise of a limit that is nearly reached.",
    ),
    key(
        "memory",
        "reclaim_chunk",
        "size, 1M–1G",
        "\"16M\"",
        "Most that one write to memory.reclaim asks for.",
    ),
    key(
        "memory",
        "reclaim_per_cycle",
        "size, at least 1M",
        "\"256M\"",
        "Most that is reclaimed early in one cycle (about a second), over all cgroups; what is probed comes on top.",
    ),
    key(
        "memory",
        "basis_half_life_secs",
        "seconds, 1–86400",
        "600",
        "How fast the size basis of a workload without promise follows its demand.",
    ),
    key(
        "memory",
        "demand_half_life_secs",
        "seconds, 1–86400",
        "60",
        "How fast estimated demand decays; of units and containers that are not managed within seconds, whatever \
         stands here.",
    ),
    key(
        "memory",
        "controller",
        "\"shares\", \"stall\" or \"both\"",
        "\"both\"",
        "What shares follow: weight and size, what the workloads feel (how long they wait for memory), or both.",
    ),
    key(
        "memory",
        "lru",
        "\"keep\" or \"classic\"",
        "\"keep\"",
        "Page aging of the host: as it is, or classic lists instead of MGLRU while ctlmgr acts.",
    ),
    key(
        "memory",
        "throttle",
        "true or false",
        "true",
        "Whether memory.high is used so that nobody takes all that is free in one burst, and on \
         those far above their share while others suffer.",
    ),
    key(
        "memory",
        "harden",
        "true or false",
        "true",
        "Whether, while memory is short or nearly so, a part of each share is memory.min (up to 75 % of what there is to share in all, less with little swap, nothing without), \
         where the kernel hardly heeds memory.low (by what was seen; before that where it ages pages by MGLRU).",
    ),
    key(
        "memory",
        "probe",
        "true or false",
        "false",
        "Whether, while memory is short, a little is taken from those that seem to need all they have, \
         to learn whether they miss it.",
    ),
    key(
        "memory",
        "probe_cache",
        "true or false",
        "true",
        "Whether, before memory is short, a little page cache is taken from workloads that hold more than they are known to \
         need, to learn whether they miss it.",
    ),
    key(
        "memory",
        "freeze",
        "list of classes",
        "[]",
        "Classes whose workloads may be frozen for up to two minutes while heavier ones go short.",
    ),
    key(
        "memory",
        "kill",
        "list of classes",
        "[]",
        "Classes whose workloads may be stopped when memory is used up and heavier ones go short.",
    ),
    key(
        "memory",
        "kill_grace_secs",
        "seconds, 1–86400",
        "30",
        "Time that a container has to end by itself before it is killed; units have their own.",
    ),
    key(
        "memory",
        "on_override",
        "\"yield\" or \"reassert\"",
        "\"yield\"",
        "What happens when another writer changes a value of ours: it stays, or ours is written again, every 10 s at most.",
    ),
    key(
        "memory.bystanders",
        "weight",
        "1–10000",
        "100",
        "Weight of units that ctlmgr does not manage.",
    ),
    key(
        "memory.bystanders",
        "floor",
        "size",
        "\"16M\"",
        "What each unit that ctlmgr does not manage keeps, as far as it makes use of it and, while workloads wait for what they lack, suffers for it as they do. Unless set, one part in 256 of a machine with less than 4 GiB.",
    ),
    key(
        "memory.bystanders",
        "spared",
        "list of patterns",
        "[\"ctlmgr*\", \"docker.*\", \"containerd.*\", \"dbus*\", \"ssh*\", \"systemd-*\", \"init.scope\"]",
        "Units that are never limited or stopped, and keep a quarter of what they used of late, or one part in 128 of the machine if that is less.",
    ),
    key(
        "starts",
        "mode",
        "\"off\", \"observe\" or \"act\"",
        "\"observe\"",
        "What the starts job may do. observe learns and shows, and lets everybody start at once.",
    ),
    key(
        "starts",
        "max_together",
        "1–10000",
        "16",
        "Most containers that start at once; quiet ones do not count.",
    ),
    key(
        "starts",
        "most_penalty",
        "number, 0–100",
        "1.25",
        "Most penalty that a start may add to those under way that it fights: 2 is sequential beside random of the \
         same direction.",
    ),
    key(
        "starts",
        "most_sharing",
        "number, 0–100",
        "4",
        "Most penalty that a start may add to all that are under way (most_penalty, if that is more): 1 is like \
         beside like, so five share a disk that are alike, 0 reads beside writes.",
    ),
    key(
        "starts",
        "max_wait_secs",
        "seconds, 1–3600",
        "45",
        "Nobody waits longer. The docker command and compose wait as long as it takes, but clients that use \
         docker-py (Ansible among them) give up after a minute, and others after two. Where the wrapper or the \
         freezer holds a start, 50 is the most.",
    ),
    key(
        "starts",
        "settle_secs",
        "seconds, 1–600",
        "10",
        "A start is over when the container moved little data, and was not at work on a disk, for so long.",
    ),
    key(
        "starts",
        "settle_at_most_secs",
        "seconds, 1–86400",
        "300",
        "A start is over after this time in any case.",
    ),
    key(
        "starts",
        "io_full",
        "percentage, 0–50 %",
        "\"50%\"",
        "While all tasks of the host wait for the disk for more than this part of the time, starts wait, \
         unless one of those that start uses the disk, which explains it.",
    ),
    key("starts", "memory_full", "percentage, 0–50 %", "\"10%\"", "The same for memory."),
    key(
        "starts",
        "freeze",
        "true or false",
        "false",
        "Whether containers that started without being asked about are frozen until their turn. \
         Health checks of a frozen container fail.",
    ),
    key(
        "starts",
        "trace",
        "\"auto\", \"ebpf\", \"events\", \"calls\" or \"off\"",
        "\"auto\"",
        "How requests to disks are traced: by eBPF (5.8 with BTF), by the kernel's event tracing (an \
         instance of our own in tracefs), not at all but by the system calls in which tasks wait (calls), \
         by the first of these that can be (auto), or not. \
         io.stat, which counts in any case, does not tell whether they lie side by side.",
    ),
    key(
        "starts.class_wait_secs",
        "*",
        "seconds, 0–3600",
        "critical=0",
        "Longest wait of a class; 0 is never.",
    ),
    key(
        "place",
        "mode",
        "\"off\", \"observe\" or \"act\"",
        "\"observe\"",
        "What the placement job may do. act pins containers that talk to each other to processors that share a \
         last-level cache.",
    ),
    key(
        "place",
        "traffic",
        "\"auto\", \"on\" or \"off\"",
        "\"auto\"",
        "Whether the bytes that containers send to each other are counted, by an eBPF program at the topmost \
         cgroup; auto: where the machine has several last-level caches to choose from and mode is not off.",
    ),
    key(
        "place",
        "horizon_secs",
        "seconds, 1–86400",
        "600",
        "A move to another domain must pay for a cache that is cold after it within this time.",
    ),
    key(
        "place",
        "cool_down_secs",
        "seconds, 1–86400",
        "600",
        "Who was moved stays where it is for this time, unless it lacks processors.",
    ),
    key(
        "place",
        "learn_secs",
        "seconds, 1–86400",
        "120",
        "Nobody is pinned who was not watched for so long.",
    ),
    key(
        "place",
        "fill",
        "percentage, 0–100 %",
        "\"70%\"",
        "Up to this part of its processors a domain may be filled while others are empty; beyond it load \
         is balanced.",
    ),
    key(
        "place",
        "memory",
        "true or false",
        "false",
        "Whether memory follows to the NUMA nodes of the domains, which moves what is there already.",
    ),
    key(
        "classes",
        "*",
        "weight, 1–10000",
        "critical=1000 high=400 normal=100 low=25 idle=5",
        "Weight of a class; new classes may be added.",
    ),
    key(
        "containers",
        "manage",
        "true or false",
        "true",
        "Whether containers are managed unless a rule or label says otherwise.",
    ),
    key("units", "manage", "list of patterns", "[]", "systemd units to manage."),
    key(
        "rule",
        "name",
        "pattern",
        "",
        "Selects by container name (or unit name). Exactly one selector per rule.",
    ),
    key("rule", "image", "pattern", "", "Selects by image reference."),
    key("rule", "project", "pattern", "", "Selects by compose project."),
    key("rule", "unit", "pattern", "", "Selects by systemd unit."),
    key("rule", "weight", "1–10000", "100", "Weight under contention."),
    key("rule", "class", "name of a class", "", "Weight of that class. Not together with weight."),
    key(
        "rule",
        "promise",
        "size of at least 1M",
        "",
        "Memory the owner was told they have; the size basis of the share.",
    ),
    key(
        "rule",
        "floor",
        "0, or a size of at least 1M",
        "",
        "Memory kept in any case, by memory.min, as far as the host can cover it.",
    ),
    key("rule", "managed", "true or false", "true", "false: ctlmgr leaves these workloads alone."),
];

/// Whether `table.name` exists.
pub(crate) fn is_known(table: &str, name: &str) -> bool {
    KEYS.iter().any(|k| k.table == table && (k.name == name || k.name == "*"))
}

/// The valid name in `table` nearest to `name`.
pub(crate) fn nearest(table: &str, name: &str) -> Option<&'static str> {
    best(KEYS.iter().filter(|k| k.table == table && k.name != "*").map(|k| k.name), name)
}

/// The valid table nearest to `name`.
pub(crate) fn nearest_table(name: &str) -> Option<&'static str> {
    best(KEYS.iter().map(|k| k.table), name)
}

/// The candidate most like `name`; always one, so that the message can name it.
pub(crate) fn best<'a>(candidates: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    candidates.max_by(|a, b| jaro_winkler(a, name).total_cmp(&jaro_winkler(b, name)))
}
