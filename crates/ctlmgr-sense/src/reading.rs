//! What of one reading is asked of cgroups one by one.

use std::collections::BTreeMap;

use ctlmgr_host::{CgroupDir, Result, chain};
use ctlmgr_model::{Bytes, CgroupPath, Gap, Group, Oomd, Pressure};

use crate::bystander::is_small;
use crate::cgroup::{has_dying, read_group, read_memory_pressure, read_page_cache};
use crate::kept::Dirs;

/// One reading under way.
pub(crate) struct Reading<'a> {
    pub dirs: Dirs<'a>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

impl Reading<'_> {
    /// Whether a bystander is so small that it counts as part of the host.
    pub(crate) fn is_small(&mut self, path: &CgroupPath, least: Bytes) -> bool {
        self.dirs.with(path, |dir| Ok(Some(is_small(dir, least)))).is_ok_and(|is| is == Some(true))
    }

    /// A cgroup; `None` if it vanished or could not be read, which is noted.
    pub(crate) fn group(&mut self, path: &CgroupPath) -> Option<Group> {
        self.dirs.with(path, read_group).unwrap_or_else(|error| {
            self.gaps.push(Gap { what: path.to_string(), why: chain(&error) });
            None
        })
    }

    /// Page cache that no cgroup that is there holds, of slices from which some were removed that still hold something.
    pub(crate) fn dead<'a>(
        &mut self,
        slices: impl Iterator<Item = &'a Group>,
        mut alive: Vec<(CgroupPath, Bytes)>,
        small: &[CgroupPath],
    ) -> BTreeMap<CgroupPath, Bytes> {
        let dirs = &mut self.dirs;
        let mut has_dying = |path| dirs.with(path, |dir| Ok(Some(has_dying(dir))));
        let slices: Vec<&Group> =
            slices.filter(|g| has_dying(&g.path).is_ok_and(|has| has == Some(true))).collect();
        if !slices.is_empty() {
            let mut cached = |path: &CgroupPath| {
                let cache = dirs.with(path, |dir| read_page_cache(dir).map(Some)).transpose()?;
                Some(cache.map(|cache| (path.clone(), cache)))
            };
            // What one holds and cannot be read would pass for what the dead hold, which is the first to be taken.
            let Ok(cached) = small.iter().filter_map(&mut cached).collect::<Result<Vec<_>>>()
            else {
                return BTreeMap::new();
            };
            alive.extend(cached);
        }
        let of = |g: &Group| {
            let below = alive.iter().filter(|(path, _)| path.is_within(&g.path));
            (g.path.clone(), g.memory.page_cache() - below.map(|(_, cache)| *cache).sum())
        };
        slices.into_iter().map(of).filter(|(_, dead)| *dead > Bytes::ZERO).collect()
    }

    /// What systemd-oomd watches, with how pressed it is now.
    pub(crate) fn watched(&mut self, oomd: &Oomd, host: Option<Pressure>) -> Oomd {
        let mut oomd = oomd.clone();
        for (path, watched) in &mut oomd.watched {
            let read = |dir: &CgroupDir| Ok(read_memory_pressure(dir));
            watched.pressure = match path.is_root() {
                true => host,
                false => self.dirs.with(path, read).ok().flatten(),
            };
        }
        oomd
    }
}
