//! Page aging of the host: classic lists instead of MGLRU, where the operator wants it.
//!
//! # Problem
//! Before 6.17 global reclaim under MGLRU largely ignores memory.low (`shrink_one()` in mm/vmscan.c), so what early
//! reclaim does not prevent hits the protected too.
//!
//! # Approach
//! `memory.lru = "classic"` switches MGLRU off for as long as ctlmgr acts. It is a knob like the
//! others: its prior value is in the journal, and another writer's value stays.
//!
//! # Properties
//! Nothing unless asked for; nothing where the lists are classic already; once written it is not
//! written again, unless overrides are to be reasserted.

use ctlmgr_model::{
    Action, Bytes, CgroupId, CgroupPath, Knob, LruFlavour, MemorySettings, OnOverride, PageAging,
    Reason, Rung, Snapshot, Step, Telling,
};

use crate::state::{REASSERT_INTERVAL, State, WRITE_INTERVAL};

/// The root has no cgroup of its own to be mistaken for another.
const ROOT: CgroupId = CgroupId(0);

/// The step that switches to classic lists.
pub(crate) fn age(settings: &MemorySettings, state: &State, snapshot: &Snapshot) -> Option<Step> {
    let from = Bytes(u64::from(snapshot.host.lru_gen?));
    if settings.lru == PageAging::Keep || snapshot.host.lru == Some(LruFlavour::Classic) {
        return None;
    }
    let path = CgroupPath::new("");
    let written = state.written.get(&(path.clone(), Knob::LruGen));
    let is_foreign = foreign(state, snapshot).is_some();
    let interval = if is_foreign { REASSERT_INTERVAL } else { WRITE_INTERVAL };
    let is_recent = written.is_some_and(|w| snapshot.at.since(w.at) < interval);
    if is_recent || is_foreign && settings.on_override == OnOverride::Yield {
        return None;
    }
    let prior =
        written.filter(|_| !is_foreign).and_then(|w| w.saved.prior.amount()).unwrap_or(from);
    Some(Step {
        path,
        id: ROOT,
        action: Action::Set { knob: Knob::LruGen, from, prior, to: Bytes::ZERO },
        rung: Rung::Protect,
        reason: Reason("memory.lru is classic: its reclaim honours memory.low".to_owned()),
        telling: Telling::Now,
    })
}

/// Another writer's value, if one changed it since.
pub(crate) fn foreign(state: &State, snapshot: &Snapshot) -> Option<((CgroupPath, Knob), Bytes)> {
    let key = (CgroupPath::new(""), Knob::LruGen);
    let present = Bytes(u64::from(snapshot.host.lru_gen?));
    let is_other = !state.written.get(&key)?.saved.is_ours(&present.into());
    (is_other && !snapshot.is_mixed).then_some((key, present))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide;
    use crate::testing::host;
    use ctlmgr_model::{Millis, Outcome, Settings, Value};

    fn write(snapshot: &mut Snapshot, mask: u32) {
        snapshot.host.lru_gen = Some(mask);
        snapshot.host.lru = Some(if mask == 0 { LruFlavour::Classic } else { LruFlavour::Mglru });
    }

    /// The mask after what is decided is done.
    fn next(settings: &MemorySettings, state: &mut State, snapshot: &mut Snapshot) -> Option<u32> {
        snapshot.at = Millis(snapshot.at.0 + 5_000);
        if let Some(step) = age(settings, state, snapshot) {
            write(snapshot, 0);
            state.learn(&step, &Outcome::Done, snapshot.at);
        }
        snapshot.host.lru_gen
    }

    #[test]
    fn only_who_asks_for_classic_lists_gets_them() {
        let mut snapshot = host(Bytes::mib(1024), Vec::new(), Vec::new());
        let (mut settings, mut state) = (MemorySettings::default(), State::default());
        assert_eq!(next(&settings, &mut state, &mut snapshot), Some(7));
        settings.lru = PageAging::Classic;
        assert_eq!(next(&settings, &mut state, &mut snapshot), Some(0));
        assert_eq!(age(&settings, &state, &snapshot), None);
    }

    #[test]
    fn another_writer_is_left_alone_unless_ours_is_to_be_reasserted() {
        let mut snapshot = host(Bytes::mib(1024), Vec::new(), Vec::new());
        let mut settings = MemorySettings { lru: PageAging::Classic, ..MemorySettings::default() };
        let mut state = State::default();
        assert_eq!(next(&settings, &mut state, &mut snapshot), Some(0));
        // The very value from before us is another's will just as well.
        for mask in [7, 5] {
            write(&mut snapshot, mask);
            settings.on_override = OnOverride::Yield;
            assert_eq!(next(&settings, &mut state, &mut snapshot), Some(mask));
            let before = state.overrides();
            let (plan, seen) = decide(&Settings::default(), state.clone(), &snapshot);
            assert_eq!(seen.overrides(), before + 1, "it is counted");
            let said =
                "page aging (lru_gen) was changed by another writer; ctlmgr leaves it at that";
            assert!(plan.complaints.iter().any(|c| c == said), "and named: {:?}", plan.complaints);
            state = seen;
            let again = decide(&Settings::default(), state.clone(), &snapshot).1;
            assert_eq!(again.overrides(), state.overrides(), "the same is no news");
            let release = state.release(snapshot.at, |_, _| false);
            let mut left = state.clone();
            let found = Value::from(Bytes(u64::from(mask)));
            left.learn(&release[0], &Outcome::Overridden(found.clone()), snapshot.at);
            let is_known = |value| left.is_overridden(&release[0].path, Knob::LruGen, value);
            assert!(is_known(&found), "nor is what is left to it");
            assert!(!is_known(&Bytes(3).into()), "another value is");
            settings.on_override = OnOverride::Reassert;
            assert_eq!(next(&settings, &mut state, &mut snapshot), Some(0));
        }
    }
}
