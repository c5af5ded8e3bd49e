//! The rungs above protection, put together: who is held back, frozen, taken from, or stopped.

use std::collections::BTreeSet;

use ctlmgr_model::{Bytes, CgroupId, CgroupPath, Group, Knob, Step, Verdict};

use crate::cache_probe::probe_caches;
use crate::freeze::{Frozen, freeze};
use crate::keeping::Keeping;
use crate::kill::last_resort;
use crate::memory::read;
use crate::probe::{Probe, probe};
use crate::reclaim::reclaim;
use crate::scene::Scene;
use crate::throttle::{Throttled, throttle, tighten};

/// What the upper rungs want.
pub(crate) struct Ladder<'a> {
    /// Who should have a memory.high.
    pub throttled: Vec<Throttled<'a>>,
    /// Who should stand still.
    pub frozen: Vec<Frozen<'a>>,
    /// What to remember of probes.
    pub probes: Vec<(CgroupId, Probe)>,
    /// Steps that leave no value behind: reclaim, probes, and the last resort.
    pub taking: Vec<Step>,
}

impl<'a> Ladder<'a> {
    /// The rungs for a scene, whose parties have these verdicts in the same order. Without
    /// `may_take` nobody loses anything that is not lost already.
    pub(crate) fn climb(
        scene: &Scene<'a, '_>,
        verdicts: &[&Verdict],
        may_take: bool,
    ) -> Ladder<'a> {
        let prior = |g| scene.state.prior(g, Knob::MemoryHigh, read(g, Knob::MemoryHigh));
        let hard = |g: &Group| g.memory.max.bytes().unwrap_or(Bytes(u64::MAX));
        let mut throttled = throttle(scene);
        let taking = if may_take { reclaim(scene) } else { Vec::new() };
        if scene.is_swept() {
            tighten(&mut throttled, scene, &taking);
        }
        // Never above what others had set; and a limit beyond the hard one says nothing.
        throttled.retain(|t| t.high < prior(t.group).min(hard(t.group)));
        let frozen = freeze(scene, may_take);
        let mut ladder = Ladder { throttled, frozen, probes: Vec::new(), taking };
        if may_take && scene.account.is_contended() {
            ladder.probe(scene, verdicts);
        }
        if may_take {
            ladder.taking.extend(probe_caches(scene));
            ladder.taking.extend(last_resort(scene));
        }
        ladder
    }

    /// One probe at a time, of whoever waits longest; those that rest only remember it.
    fn probe(&mut self, scene: &Scene<'a, '_>, verdicts: &[&Verdict]) {
        let braked = self.limited(|t| t.is_braked);
        let is_free =
            |k: &Keeping<'_, '_>| !k.party.is_untold() && !braked.contains(&k.party.group.path);
        let free = scene.all.iter().zip(verdicts).filter(|(k, _)| is_free(k));
        let mut due = Vec::new();
        for (keeping, verdict) in free {
            match probe(scene, keeping, verdict) {
                Some((next, None)) => self.probes.push((keeping.id(), next)),
                Some((next, Some(step))) => due.push((keeping, next, step)),
                None => {}
            }
        }
        let first = due.into_iter().min_by_key(|(k, ..)| (k.party.estimate.probe.at, k.id()));
        if let Some((keeping, next, step)) = first {
            self.probes.push((keeping.id(), next));
            self.taking.push(step);
        }
    }

    /// Who has a limit and is like this.
    pub(crate) fn limited(&self, is_it: impl Fn(&Throttled<'_>) -> bool) -> BTreeSet<CgroupPath> {
        let limited = self.throttled.iter().filter(|t| is_it(t));
        limited.map(|t| t.group.path.clone()).collect()
    }

    /// Every knob where a value of ours belongs.
    pub(crate) fn wanted(&self) -> BTreeSet<(CgroupPath, Knob)> {
        let limits = self.throttled.iter().map(|t| (t.group.path.clone(), Knob::MemoryHigh));
        let still = self.frozen.iter().map(|f| (f.group.path.clone(), Knob::CgroupFreeze));
        limits.chain(still).collect()
    }
}
