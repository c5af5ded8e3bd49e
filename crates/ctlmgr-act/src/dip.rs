//! Reclaim without memory.reclaim: a memory.high below use, for the time of one write.
//!
//! The kernel reclaims down to a new memory.high within the write (mm/memcontrol.c,
//! `memory_high_write`), and on a slice it spares what the children's memory.low protects, as
//! memory.reclaim does. Unlike that, whoever allocates meanwhile is slowed down; so the limit
//! stands for one chunk only, and the value from before is written again, unless another writer was
//! there meanwhile.

use ctlmgr_host::{CgroupDir, HostError};
use ctlmgr_model::{Bytes, Knob, Saved};

use crate::actuator::read_file;

/// One such write, planned.
#[derive(Debug)]
pub struct Dip {
    dir: CgroupDir,
    saved: Saved,
}

impl Dip {
    pub(crate) fn plan(
        dir: CgroupDir,
        amount: Bytes,
        known: Option<&Saved>,
    ) -> Result<Option<Dip>, HostError> {
        let file = |name| read_file(&dir, name);
        let (current, high) = (file("memory.current")?, file("memory.high")?);
        let (Some(current), Some(high)) = (current, high) else { return Ok(None) };
        let ours = (current - amount).page_floor();
        if high <= ours {
            return Ok(None);
        }
        // By value, not by id: a unit keeps our limit while its cgroup goes and comes.
        let known = known.filter(|k| k.is_ours(&high.into()));
        let saved = Saved {
            path: dir.cgroup().clone(),
            id: dir.id(),
            knob: Knob::MemoryHigh,
            prior: known.map_or(high.into(), |k| k.prior.clone()),
            ours: ours.into(),
            before: high.into(),
            told: None,
            asked: None,
            had_setting: known.is_some_and(|k| k.had_setting),
        };
        Ok(Some(Dip { dir, saved }))
    }

    /// What the journal must know before.
    pub fn saved(&self) -> &Saved {
        &self.saved
    }

    /// Carries it out, and returns by how much use fell. Reclaims within the write, which may take
    /// seconds.
    ///
    /// # Errors
    /// The limit could not be written, or not be put back; the journal still knows it then.
    pub fn take(&self) -> Result<Bytes, HostError> {
        let file = |name| read_file(&self.dir, name).map(Option::unwrap_or_default);
        let before = file("memory.current")?;
        let written = self.dir.write("memory.high", &self.saved.ours.file_text());
        // Whoever wrote in those seconds keeps the last word.
        if self.saved.ours == file("memory.high")? {
            self.dir.write("memory.high", &self.saved.before.file_text())?;
        }
        written?;
        Ok(before - file("memory.current")?)
    }
}
