//! Validated settings. Nothing here is checked again later.

use std::collections::BTreeMap;
use std::fmt;

use glob::Pattern;
use serde::{Deserialize, Serialize};

use crate::{Bytes, Millis, Percent, PlaceSettings, Selector, StartSettings, Weight};

/// What a job may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Not even watched.
    Off,
    /// Decide and show, never write.
    #[default]
    Observe,
    /// Decide and write.
    Act,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Off => "off",
            Mode::Observe => "observe",
            Mode::Act => "act",
        })
    }
}

/// What shares follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// Weight and size only (feed-forward).
    Shares,
    /// What the workloads feel only: everybody starts from their demand.
    Stall,
    /// Weight and size, corrected by what the workloads feel.
    #[default]
    Both,
}

/// What is done about another writer of a knob of ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnOverride {
    /// The other one's value stays.
    #[default]
    Yield,
    /// Ours is written again.
    Reassert,
}

/// Which page aging the host should have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageAging {
    /// Whatever it has.
    #[default]
    Keep,
    /// Active and inactive lists, whose reclaim honours memory.low also before 6.17.
    Classic,
}

/// Name of a class of weights.
pub type ClassName = String;

/// Free memory kept so that global reclaim stays asleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Headroom {
    /// Part of `MemTotal`.
    Percent(Percent),
    /// A fixed amount.
    Bytes(Bytes),
}

impl Headroom {
    /// The amount on a machine of this size.
    pub fn of(self, total: Bytes) -> Bytes {
        match self {
            Headroom::Percent(percent) => total.scaled(percent),
            Headroom::Bytes(bytes) => bytes.min(total),
        }
    }
}

/// How units that nobody asked ctlmgr to manage are treated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bystanders {
    /// Their weight when memory is short.
    pub weight: Weight,
    /// What each of them keeps as far as it makes use of it, and suffers as workloads do; see [`Bystanders::floor_on`] where nothing is said.
    pub floor: Option<Bytes>,
    /// Units that are never limited or stopped, and keep a quarter of what they used of late.
    #[serde(with = "patterns")]
    pub spared: Vec<Pattern>,
}

/// Patterns as the text they were made from.
mod patterns {
    use glob::Pattern;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(list: &[Pattern], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(Pattern::as_str))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Pattern>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| Pattern::new(text).map_err(D::Error::custom)).collect()
    }
}

/// Settings of the memory job. Those that an older recording lacks have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemorySettings {
    /// What the job may do.
    pub mode: Mode,
    /// Free memory kept.
    pub headroom: Headroom,
    /// A `memory.low` change smaller than this part of the value is not written.
    pub hysteresis: Percent,
    /// A `memory.low` change smaller than this is not written.
    pub hysteresis_bytes: Bytes,
    /// Most that one `memory.reclaim` write asks for.
    pub reclaim_chunk: Bytes,
    /// Most that is reclaimed in one cycle, over all groups.
    pub reclaim_per_cycle: Bytes,
    /// How fast an undeclared basis follows demand: half of a change in this time.
    pub basis_half_life: Millis,
    /// How fast estimated demand decays; of what nobody manages within seconds, whatever stands here.
    pub demand_half_life: Millis,
    /// What shares follow.
    pub controller: Controller,
    /// Which page aging the host should have.
    pub lru: PageAging,
    /// Whether memory.high may be used: against bursts, and on those far above their share.
    pub throttle: bool,
    /// Whether a part of shares is hard (memory.min) where soft protection is not heeded.
    pub harden: bool,
    /// Whether a little is taken from those that seem to need all they have, to learn whether they do.
    pub probe: bool,
    /// Whether, before memory is short, a little page cache is taken from those that hold more than they are known to need.
    pub probe_cache: bool,
    /// Classes that may be frozen.
    pub freeze: Vec<ClassName>,
    /// Classes that may be stopped.
    pub kill: Vec<ClassName>,
    /// Time between the request to end and the kill.
    pub kill_grace: Millis,
    /// What is done about another writer.
    pub on_override: OnOverride,
    /// Units that nobody asked ctlmgr to manage.
    pub bystanders: Bystanders,
}

/// Where a setting was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The file.
    pub file: String,
    /// Line in it, from 1.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// What a rule sets; `None` leaves it to the next rule or the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleEffect {
    /// Weight, or that of the named class.
    pub weight: Option<Weight>,
    /// The class that the weight is of, if it was given by one.
    pub class: Option<ClassName>,
    /// Memory promised.
    pub promise: Option<Bytes>,
    /// Memory kept in any case (memory.min).
    pub floor: Option<Bytes>,
    /// Whether ctlmgr manages the workload at all.
    pub managed: Option<bool>,
}

/// One `[[rule]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Which workloads.
    pub selector: Selector,
    /// What it sets.
    pub effect: RuleEffect,
    /// Where it was written.
    pub origin: Origin,
}

/// Everything an operator can set, validated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The memory job.
    pub memory: MemorySettings,
    /// The starts job.
    #[serde(default)]
    pub starts: StartSettings,
    /// The placement job.
    #[serde(default)]
    pub place: PlaceSettings,
    /// Weight of each class, built-in ones included.
    pub classes: BTreeMap<ClassName, Weight>,
    /// Rules, least precise first: a later one wins.
    pub rules: Vec<Rule>,
    /// Whether containers are managed unless a rule or label says otherwise.
    pub manage_containers: bool,
    /// systemd units to manage.
    #[serde(with = "patterns")]
    pub units: Vec<Pattern>,
}

impl Default for MemorySettings {
    fn default() -> Self {
        MemorySettings {
            mode: Mode::Observe,
            headroom: Headroom::Percent(Percent(1)),
            hysteresis: Percent(2),
            hysteresis_bytes: Bytes::mib(8),
            reclaim_chunk: Bytes::mib(16),
            reclaim_per_cycle: Bytes::mib(256),
            basis_half_life: Millis(600_000),
            demand_half_life: Millis(60_000),
            controller: Controller::default(),
            lru: PageAging::default(),
            throttle: true,
            harden: true,
            probe: false,
            probe_cache: true,
            freeze: Vec::new(),
            kill: Vec::new(),
            kill_grace: Millis(30_000),
            on_override: OnOverride::default(),
            bystanders: Bystanders::default(),
        }
    }
}

impl Bystanders {
    /// The floor of each on a machine with so much memory: 16 MiB, or one part in 256 of one that has less than 4 GiB
    /// (there are some ten such units on any machine).
    pub fn floor_on(&self, total: Bytes) -> Bytes {
        self.floor.unwrap_or(Bytes::mib(16).min(Bytes(total.0 / 256)))
    }
}

impl Default for Bystanders {
    fn default() -> Self {
        let spared =
            ["ctlmgr*", "docker.*", "containerd.*", "dbus*", "ssh*", "systemd-*", "init.scope"];
        Bystanders {
            weight: Weight::DEFAULT,
            floor: None,
            // A constant pattern that did not parse would show in the first test that runs.
            spared: spared.iter().filter_map(|p| Pattern::new(p).ok()).collect(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        let names = ["critical", "high", "normal", "low", "idle"];
        Settings {
            memory: MemorySettings::default(),
            starts: StartSettings::default(),
            place: PlaceSettings::default(),
            classes: names
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), Weight::of_class(name)?)))
                .collect(),
            rules: Vec::new(),
            manage_containers: true,
            units: Vec::new(),
        }
    }
}
