//! Keeping clear of systemd-oomd.
//!
//! # Problem
//! systemd-oomd kills in a cgroup where all stand still for want of memory for longer than its unit allows, and
//! the largest user of swap where swap and memory are used up beyond a limit. Who waits at a memory.high
//! of ours stands still, and what is reclaimed early goes to swap: what ctlmgr does could get somebody
//! killed.
//!
//! # Algorithm
//! *Close*: a watched cgroup in which all stood still for half of what is allowed, or that cannot be told. There
//! whoever stands still by itself has no memory.high of ours, and the others' stay as they are: to let a hog go that
//! does not wait would make all stand still for longer. Nothing is reclaimed early there from who stands still. *Near*: for a quarter. There nobody gets a memory.high
//! who has none, so that none comes and goes. Whoever is braked in a watched cgroup is let off at half of what is
//! allowed, where that is less than usual. Swap counts as used up [`MARGIN`] before the limit: no more is asked for
//! than there is page cache, and nothing else is probed. What the kernel takes of what is asked for it decides by itself, so
//! some of it may be swapped out. Who is asked to give up memory before it is stopped is asked all the same.
//!
//! # Properties
//! Without systemd-oomd nothing changes; a lower limit never allows more; what is not known limits nobody anew.

use ctlmgr_model::{Bytes, CgroupPath, HostSample, Oomd, Percent, Snapshot, Watched};

/// Swap this far below the limit is not filled any more, in per cent of it.
const MARGIN: u8 = 5;

/// Standstill at which who is braked there is let off, in per cent, where `usual` is what it would be.
pub(crate) fn guard_pct(oomd: &Oomd, path: &CgroupPath, usual: f32) -> f32 {
    above(oomd, path).map(half).fold(usual, f32::min)
}

/// Whether somebody could be killed soon in a watched cgroup that `path` lies within.
pub(crate) fn is_close(oomd: &Oomd, path: &CgroupPath) -> bool {
    above(oomd, path).any(|watched| stood_still(watched, half(watched)))
}

/// Whether that is not far any more.
pub(crate) fn is_near(oomd: &Oomd, path: &CgroupPath) -> bool {
    above(oomd, path).any(|watched| stood_still(watched, half(watched) / 2.0))
}

fn above<'a>(oomd: &'a Oomd, path: &CgroupPath) -> impl Iterator<Item = &'a Watched> {
    oomd.watched.iter().filter(|(above, _)| path.is_within(above)).map(|(_, watched)| watched)
}

fn half(watched: &Watched) -> f32 {
    f32::from(watched.limit.0) / 2.0
}

fn stood_still(watched: &Watched, least_pct: f32) -> bool {
    watched.pressure.is_none_or(|p| p.full.avg10_pct >= least_pct)
}

/// Swap that has to stay free.
pub(crate) fn swap_to_leave(oomd: &Oomd, host: &HostSample) -> Bytes {
    let free = |limit: Percent| Percent(100 - limit.0.min(100).saturating_sub(MARGIN));
    oomd.swap_limit.map_or(Bytes::ZERO, |limit| host.swap_total.scaled(free(limit)))
}

/// For people.
pub(crate) fn warnings(snapshot: &Snapshot) -> Vec<String> {
    let groups = || snapshot.workloads.iter().map(|w| &w.group).chain(&snapshot.bystanders);
    let concerns = |(path, watched): &(&CgroupPath, &Watched)| {
        stood_still(watched, half(watched)) && groups().any(|g| g.path.is_within(path))
    };
    let close = snapshot.oomd.watched.iter().filter(concerns);
    let mut out: Vec<_> = close.map(|(path, watched)| warning(path, watched)).collect();
    let host = &snapshot.host;
    let is_full =
        host.swap_total > Bytes::ZERO && host.swap_free <= swap_to_leave(&snapshot.oomd, host);
    if let Some(limit) = snapshot.oomd.swap_limit.filter(|_| is_full) {
        out.push(format!(
            "{} of swap are free, and systemd-oomd kills where more than {} % are used: no more is \
             reclaimed early than there is page cache",
            host.swap_free, limit.0
        ));
    }
    out
}

fn warning(path: &CgroupPath, watched: &Watched) -> String {
    let stands = watched.pressure.map_or("may stand still".to_owned(), |p| {
        format!("stands still {:.0} % of the time", p.full.avg10_pct)
    });
    format!(
        "{path} {stands} for want of memory, and systemd-oomd kills there above {} %: who stands still \
         itself is not held back",
        watched.limit.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, host};
    use ctlmgr_model::{Pressure, PressureLine};
    use proptest::prelude::*;

    const M: fn(u64) -> Bytes = Bytes::mib;

    /// One container, whose slice is watched, and stands still this much.
    fn watched(limit: u8, full_pct: Option<f32>) -> Snapshot {
        let mut snapshot = host(M(1000), vec![container("web", 11, M(400), None)], Vec::new());
        let line = |avg10_pct| PressureLine { avg10_pct, total_usec: 0 };
        let pressure = full_pct.map(|pct| Pressure { some: line(pct), full: line(pct) });
        let watched = Watched { limit: Percent(limit), pressure };
        snapshot.oomd.watched.insert(CgroupPath::new("a.slice"), watched);
        snapshot
    }

    /// Whether it is near, and close.
    fn distance(snapshot: &Snapshot) -> (bool, bool) {
        let path = &snapshot.workloads[0].group.path;
        (is_near(&snapshot.oomd, path), is_close(&snapshot.oomd, path))
    }

    #[test]
    fn half_of_what_is_allowed_is_close_and_so_is_what_nobody_can_tell() {
        assert_eq!(distance(&watched(60, Some(14.0))), (false, false));
        assert_eq!(distance(&watched(60, Some(15.0))), (true, false));
        assert_eq!(distance(&watched(60, Some(30.0))), (true, true));
        assert_eq!(distance(&watched(60, None)), (true, true));
        let elsewhere = CgroupPath::new("b.slice/x.scope");
        assert!(!is_near(&watched(60, None).oomd, &elsewhere));
        assert_eq!(
            warnings(&watched(60, Some(31.0))),
            [
                "/a.slice stands still 31 % of the time for want of memory, and systemd-oomd kills there \
                 above 60 %: who stands still itself is not held back"
            ]
        );
        assert!(warnings(&watched(60, Some(29.0))).is_empty());
    }

    #[test]
    fn swap_is_left_before_the_limit() {
        let mut snapshot = host(M(1000), Vec::new(), Vec::new());
        assert_eq!(swap_to_leave(&snapshot.oomd, &snapshot.host), Bytes::ZERO);
        snapshot.oomd.swap_limit = Some(Percent(90));
        assert_eq!(swap_to_leave(&snapshot.oomd, &snapshot.host), M(150));
        snapshot.host.swap_free = M(151);
        assert!(warnings(&snapshot).is_empty());
        snapshot.host.swap_free = M(150);
        assert_eq!(warnings(&snapshot).len(), 1);
    }

    proptest! {
        #[test]
        fn a_lower_limit_never_allows_more(low in 0u8..=100, more in 0u8..=100, full in 0f32..100.0) {
            let high = low.saturating_add(more).min(100);
            let (strict, lax) = (watched(low, Some(full)), watched(high, Some(full)));
            let ((near, close), (far_near, far_close)) = (distance(&strict), distance(&lax));
            prop_assert!((near || !far_near) && (close || !far_close) && (near || !close));
            let path = &strict.workloads[0].group.path;
            let guards = [&strict, &lax].map(|s| guard_pct(&s.oomd, path, 20.0));
            prop_assert!(guards[0] <= guards[1] && guards[1] <= 20.0);
            let kept = [low, high].map(|limit| {
                let oomd = Oomd { swap_limit: Some(Percent(limit)), ..Oomd::default() };
                swap_to_leave(&oomd, &strict.host)
            });
            prop_assert!(kept[0] >= kept[1]);
        }
    }
}
