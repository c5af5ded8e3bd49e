//! What deciding produces: data that leaves nothing to choose.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Bytes, CapacityAccount, CgroupId, CgroupPath, Cpus, Knob, Millis, Percent, SliceAccount, Value,
    Weight, WorkloadName,
};

/// One thing to do to one cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Write an amount.
    Set {
        /// Which file.
        knob: Knob,
        /// Value read in the snapshot.
        from: Bytes,
        /// Value that undo puts back: what others last wrote.
        prior: Bytes,
        /// Value after.
        to: Bytes,
    },
    /// Give a knob back: nothing of ours belongs there any more.
    Release {
        /// Which file.
        knob: Knob,
        /// What ctlmgr last wrote; anything else is another writer's and stays.
        ours: Bytes,
        /// What others last wrote: it is put back.
        prior: Bytes,
    },
    /// Let a workload use some processors, or the memory of some nodes, only.
    Pin {
        /// Which file.
        knob: Knob,
        /// List read before.
        from: Cpus,
        /// What undo puts back: what others last wrote.
        prior: Cpus,
        /// List after.
        to: Cpus,
    },
    /// Give a list back: nothing of ours belongs there any more.
    Unpin {
        /// Which file.
        knob: Knob,
        /// What ctlmgr last wrote; anything else is another writer's and stays.
        ours: Cpus,
        /// What others last wrote: it is put back.
        prior: Cpus,
    },
    /// Ask the kernel to reclaim, at most `chunk` at a time.
    Reclaim {
        /// How much in all.
        amount: Bytes,
        /// How much per write.
        chunk: Bytes,
        /// Whether to take page cache only (`swappiness=0`, Linux 6.9): a kernel that cannot is asked for nothing.
        #[serde(default)]
        only_cache: bool,
    },
    /// Stop the workload in good order. Nothing can undo this.
    Stop {
        /// Through whom.
        target: Stoppable,
        /// Time between the request to end and the kill.
        grace: Millis,
    },
}

impl Action {
    /// How much memory it asks for; `None` if it is no reclaim.
    pub fn amount_to_reclaim(&self) -> Option<Bytes> {
        match self {
            Action::Reclaim { amount, .. } => Some(*amount),
            _ => None,
        }
    }

    /// The knob that it sets or gives back.
    pub fn knob(&self) -> Option<Knob> {
        match *self {
            Action::Set { knob, .. } | Action::Release { knob, .. } => Some(knob),
            Action::Pin { knob, .. } | Action::Unpin { knob, .. } => Some(knob),
            Action::Reclaim { .. } | Action::Stop { .. } => None,
        }
    }
}

/// Something that can be asked to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stoppable {
    /// A container of dockerd, by full id.
    Container(String),
    /// A systemd unit.
    Unit(String),
}

/// Rung of the ladder that a step belongs to (protect, reclaim, …; ARCHITECTURE, "How memory is shared").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// memory.low and memory.min.
    Protect,
    /// memory.reclaim before global reclaim starts.
    Reclaim,
    /// A little is taken to learn whether it is missed.
    Probe,
    /// memory.high: against bursts, and on those above their share.
    Throttle,
    /// Processes stand still for a while.
    Freeze,
    /// The workload is stopped.
    Kill,
    /// No rung: it is about which processors run it.
    Place,
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Rung::Protect => "protect",
            Rung::Reclaim => "reclaim",
            Rung::Probe => "probe",
            Rung::Throttle => "throttle",
            Rung::Freeze => "freeze",
            Rung::Kill => "kill",
            Rung::Place => "place",
        })
    }
}

/// Why a step exists, in words an operator understands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reason(pub String);

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Where.
    pub path: CgroupPath,
    /// Which cgroup that was; dropped if another one is there now.
    pub id: CgroupId,
    /// What.
    pub action: Action,
    /// Rung.
    pub rung: Rung,
    /// Why.
    pub reason: Reason,
    /// Whether the keeper of the knob is told now.
    #[serde(default, skip_serializing_if = "Telling::is_now")]
    pub telling: Telling,
}

/// When the keeper of a knob is told of protection that is in force. All else is done by him, now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Telling {
    /// With this plan.
    #[default]
    Now,
    /// A later plan tells him.
    Later,
}

impl Telling {
    /// Whether it is now.
    pub fn is_now(&self) -> bool {
        *self == Telling::Now
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Set { knob, from, to, .. } => {
                let (from, to) = (knob.words(*from), knob.words(*to));
                write!(f, "{} {knob}: {from} -> {to}", self.path)
            }
            Action::Release { knob, ours, prior } => {
                let (ours, prior) = (knob.words(*ours), knob.words(*prior));
                write!(f, "{} {knob}: {ours} given back, {prior} as before", self.path)
            }
            Action::Pin { knob, from, to, .. } => {
                let (from, to) = (knob.words(from.clone()), knob.words(to.clone()));
                write!(f, "{} {knob}: {from} -> {to}", self.path)
            }
            Action::Unpin { knob, ours, prior } => {
                let (ours, prior) = (knob.words(ours.clone()), knob.words(prior.clone()));
                write!(f, "{} {knob}: {ours} given back, {prior} as before", self.path)
            }
            Action::Reclaim { amount, only_cache: false, .. } => {
                write!(f, "{} reclaim {amount}", self.path)
            }
            Action::Reclaim { amount, .. } => {
                write!(f, "{} reclaim {amount} of page cache", self.path)
            }
            Action::Stop { grace, .. } => {
                write!(f, "{} stop, killed after {} s", self.path, grace.0 / 1000)
            }
        }
    }
}

/// What decided a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Weight times basis: it gives way.
    Weight,
    /// It has all it needs.
    Demand,
    /// Its floor.
    Floor,
    /// Its hard limit.
    Max,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Bound::Weight => "weight",
            Bound::Demand => "demand",
            Bound::Floor => "floor",
            Bound::Max => "max",
        })
    }
}

/// Whether a verdict is about something managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// A managed workload.
    Workload,
    /// A unit nobody asked ctlmgr to manage.
    Bystander,
}

/// What a workload does at present.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doing {
    /// CPU time per second, in microseconds: 1 000 000 is one CPU.
    pub cpu_usec_per_sec: u64,
    /// Read from block devices per second.
    pub read_per_sec: Bytes,
    /// Written to block devices per second.
    pub written_per_sec: Bytes,
    /// Whether its processes are stopped by the freezer.
    pub is_frozen: bool,
}

/// What was decided about one workload, and from what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Who.
    pub name: WorkloadName,
    /// Managed or not.
    pub kind: VerdictKind,
    /// Its cgroup.
    pub path: CgroupPath,
    /// Its weight.
    pub weight: Weight,
    /// Where the weight comes from.
    pub weight_from: String,
    /// Memory promised, if any.
    pub promise: Option<Bytes>,
    /// Where the promise comes from. Empty without one, and in plans from before that was said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub promise_from: String,
    /// Size basis: the promise, else slow-moving demand; corrected by what it and others feel.
    pub basis: Bytes,
    /// Estimated working set.
    pub demand: Bytes,
    /// What it holds now.
    pub held: Bytes,
    /// What it has in swap.
    pub swapped: Bytes,
    /// What it may keep.
    pub share: Bytes,
    /// What decided that.
    pub bound: Bound,
    /// The slice that holds it to that, if it is full, and not the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<CgroupPath>,
    /// Kept in any case.
    pub floor: Bytes,
    /// Where the floor comes from, if one was given. Empty without one, and in plans from before that was said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub floor_from: String,
    /// Kept whatever it weighs: the floor, or what cannot be taken and a little, whichever is more. Zero in plans from before that was said.
    #[serde(default)]
    pub kept: Bytes,
    /// What its share would be if all of it could be taken.
    #[serde(default)]
    pub due: Bytes,
    /// If it is not managed, what of it nobody can take: all that it keeps below a slice with a limit in any case. Absent in plans
    /// from before that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmanaged_stuck: Option<Bytes>,
    /// Hard limit (memory.max), if any.
    pub max: Option<Bytes>,
    /// What that correction is, in per cent of the uncorrected basis.
    pub lift_pct: u32,
    /// The strongest rung that is in force for it now.
    pub rung: Option<Rung>,
    /// Working-set pages that came back per second.
    pub refaults_per_sec: u64,
    /// What it does.
    pub doing: Doing,
    /// Share of the last 10 s in which some task waited for memory, per cent; absent without PSI.
    pub stall_pct: Option<Percent>,
    /// The rule in words.
    pub reason: Reason,
}

/// The result of one decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Time of the snapshot it was made from.
    pub at: Millis,
    /// The capacity and how it came about.
    pub account: CapacityAccount,
    /// Slices with limits of their own, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceAccount>,
    /// Whether the kernel took memory by itself of late although all that is asked for is there: somebody's page cache
    /// crowds out that of others.
    #[serde(default)]
    pub is_swept: bool,
    /// Whether the kernel's own reclaim heeds memory.low, once that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heeding: Option<Heeding>,
    /// One entry per workload and bystander, by name.
    pub verdicts: Vec<Verdict>,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// Promises and labels that could not be followed, each in words.
    pub complaints: Vec<String>,
}

impl Plan {
    /// Whether the host is worth a look every second: contention is there or near, or page cache crowds out others.
    pub fn is_tight(&self) -> bool {
        self.account.is_near_contention() || self.is_swept
    }
}

/// What the kernel's own reclaim took from those that memory.low should have kept from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heeding {
    /// So much.
    pub taken: Bytes,
    /// So much would have been theirs of all that it took, had it taken from all alike.
    pub expected: Bytes,
    /// What follows; absent where it lies between.
    pub is_heeded: Option<bool>,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Written and read back; of a stop: it has ended.
    Done,
    /// Reclaimed this much, by the kernel's word.
    Reclaimed(Bytes),
    /// The cgroup was gone, or another one had its path.
    Vanished,
    /// Not done, because the host changed meanwhile: use had grown beyond a limit that must not lie below it, another had
    /// written protection, or others had been reclaimed from for too long.
    Overtaken,
    /// It has its value; its keeper, who may be slow, is told later.
    Untold,
    /// Read back something else: another writer.
    Overridden(Value),
    /// It failed.
    Failed(String),
}
