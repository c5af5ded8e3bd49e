//! What undo needs to know of a knob, and what becomes of it.

use serde::{Deserialize, Serialize};

use crate::{Action, CgroupId, CgroupPath, Knob, Step, Value};

/// A knob that ctlmgr wrote, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Where.
    pub path: CgroupPath,
    /// Which cgroup that was.
    pub id: CgroupId,
    /// Which knob.
    pub knob: Knob,
    /// What others last wrote: undo puts it back.
    pub prior: Value,
    /// What ctlmgr last wrote, or was about to write when it was interrupted.
    pub ours: Value,
    /// What was there before that write: still there if the write never came through.
    pub before: Value,
    /// What the keeper was last told, if ours is in force without it: it may write that again.
    #[serde(default)]
    pub told: Option<Value>,
    /// What the keeper was asked to write since and has not confirmed: it may do so later.
    #[serde(default)]
    pub asked: Option<Value>,
    /// Whether the unit had a run-time setting of its own (`systemctl set-property --runtime`),
    /// which undo must leave in place; known once the journal has the knob.
    pub had_setting: bool,
}

impl Saved {
    /// Whether a value can only be there because of ctlmgr, or because it did nothing yet.
    pub fn is_ours(&self, value: &Value) -> bool {
        let at_keeper = [&self.told, &self.asked];
        [&self.ours, &self.before].contains(&value)
            || at_keeper.iter().any(|held| held.as_ref() == Some(value))
    }
}

/// What became of putting a knob back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undone {
    /// The prior value is there again.
    PutBack,
    /// Somebody else wrote this value since; it was left alone.
    LeftToOthers(Value),
    /// The cgroup is gone, and the value with it.
    Vanished,
    /// It failed; the journal keeps the knob.
    Failed(String),
}

impl Step {
    /// Whether it sets protection, which the kernel has at once, whoever keeps the knob.
    pub fn is_protection(&self) -> bool {
        matches!(self.action, Action::Set { knob, .. } if Knob::PROTECTION.contains(&knob))
    }

    /// Whether it lets somebody run on whom the kernel holds still.
    pub fn is_thaw(&self) -> bool {
        matches!(self.action, Action::Release { knob: Knob::CgroupFreeze, .. })
    }

    /// The write of a limit that is raised or given back, which takes nothing from anybody: whoever is held back need not wait
    /// for the keeper of the knob. `None` for any other step.
    pub fn to_raise(&self) -> Option<Step> {
        let (knob, from, prior, to) = match self.action {
            Action::Set { knob, from, prior, to } => (knob, from, prior, to),
            Action::Release { knob, ours, prior } => (knob, ours, prior, prior),
            _ => return None,
        };
        let action = Action::Set { knob, from, prior, to };
        (knob == Knob::MemoryHigh && from < to).then(|| Step { action, ..self.clone() })
    }

    /// Whether the value is there, and only the keeper of the knob does not know.
    pub fn is_told_only(&self) -> bool {
        self.is_protection() && matches!(self.action, Action::Set { from, to, .. } if from == to)
    }

    /// Whether it is of a knob that the system's manager has, too.
    pub fn is_for_keeper(&self) -> bool {
        let knob = self.action.knob();
        knob.is_some_and(|knob| !matches!(knob, Knob::CgroupFreeze | Knob::LruGen))
    }

    /// What the journal must know before this step; `None` if it leaves nothing behind.
    pub fn to_save(&self) -> Option<Saved> {
        let (knob, [prior, ours, before]) = match &self.action {
            Action::Set { knob, prior, from, to } => (*knob, [*prior, *to, *from].map(Value::from)),
            Action::Pin { knob, prior, from, to } => {
                (*knob, [prior, to, from].map(|list| Value::from(list.clone())))
            }
            _ => return None,
        };
        let path = self.path.clone();
        Some(Saved {
            path,
            id: self.id,
            knob,
            prior,
            ours,
            before,
            told: None,
            asked: None,
            had_setting: false,
        })
    }
}
