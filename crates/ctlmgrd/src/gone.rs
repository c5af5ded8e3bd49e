//! Workloads that are there no more, for `ctlmgr why`: the last that was decided about one may be that it had to go.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_model::{CgroupPath, Gap, Plan, Verdict, VerdictKind, WorkloadName};

/// So many are kept; who went longest ago is forgotten first.
const MOST: usize = 200;

/// The last one of each name.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    by_name: BTreeMap<WorkloadName, Departed>,
}

/// One that went.
#[derive(Debug)]
pub(crate) struct Departed {
    /// What held for it last.
    pub verdict: Verdict,
    /// When it was first found missing, in milliseconds since 1970.
    pub unix_ms: u64,
}

impl Gone {
    /// Keeps those of the last plan that are not in this one, but for who could not be read.
    pub(crate) fn note(&mut self, last: &Plan, (now, gaps): (&Plan, &[Gap]), unix_ms: u64) {
        // No shares could be worked out, which says nothing of who is there.
        if now.verdicts.is_empty() {
            return;
        }
        let present: BTreeSet<&CgroupPath> = now.verdicts.iter().map(|v| &v.path).collect();
        self.by_name.retain(|_, departed| !present.contains(&departed.verdict.path));
        let is_unread = |path: &CgroupPath| gaps.iter().any(|gap| gap.what == path.to_string());
        let workloads = last.verdicts.iter().filter(|v| v.kind == VerdictKind::Workload);
        for verdict in workloads.filter(|v| !present.contains(&v.path) && !is_unread(&v.path)) {
            let departed = Departed { verdict: verdict.clone(), unix_ms };
            self.by_name.insert(verdict.name.clone(), departed);
        }
        while self.by_name.len() > MOST {
            let oldest = self.by_name.iter().min_by_key(|(_, departed)| departed.unix_ms);
            let name = oldest.map(|(name, _)| name.clone());
            name.and_then(|name| self.by_name.remove(&name));
        }
    }

    /// The last one of that name.
    pub(crate) fn last(&self, name: &str) -> Option<&Departed> {
        self.by_name.get(&WorkloadName(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each with a cgroup of its own.
    fn plan(names: &[(&str, u32)]) -> Plan {
        let text = include_str!("../../ctlmgr/tests/what-if-plan.json");
        let mut plan: Plan = serde_json::from_str(text).expect("a plan");
        let verdict = plan.verdicts[0].clone();
        let one = |(name, number): &(&str, u32)| Verdict {
            name: WorkloadName((*name).to_owned()),
            kind: VerdictKind::Workload,
            path: CgroupPath::new(&format!("a.slice/{number}.scope")),
            ..verdict.clone()
        };
        plan.verdicts = names.iter().map(one).collect();
        plan
    }

    #[test]
    fn who_went_is_known_until_its_cgroup_is_back() {
        let left = |now: &Plan, gaps: &[Gap]| {
            let mut gone = Gone::default();
            gone.note(&plan(&[("web", 1), ("batch", 2)]), (now, gaps), 7);
            gone
        };
        let unread = Gap { what: "/a.slice/2.scope".to_owned(), why: "test".to_owned() };
        assert!(left(&plan(&[("web", 1)]), &[unread]).last("batch").is_none(), "it is there");
        assert!(left(&plan(&[]), &[]).last("batch").is_none(), "nobody is known to be");
        let mut gone = left(&plan(&[("web", 1)]), &[]);
        assert!(gone.last("web").is_none());
        assert_eq!(gone.last("batch").map(|d| d.unix_ms), Some(7));
        // Another container of that name is another one.
        gone.note(&plan(&[("web", 1)]), (&plan(&[("web", 1), ("batch", 3)]), &[]), 8);
        assert_eq!(gone.last("batch").map(|d| d.unix_ms), Some(7));
        gone.note(&plan(&[("web", 1)]), (&plan(&[("web", 1), ("batch", 2)]), &[]), 9);
        assert!(gone.last("batch").is_none());
    }

    #[test]
    fn who_went_longest_ago_is_forgotten_first() {
        let mut gone = Gone::default();
        for n in 0..=200 {
            let name = format!("w{n}");
            gone.note(&plan(&[(&name, n)]), (&plan(&[("other", 1000)]), &[]), u64::from(n));
        }
        assert!(gone.last("w0").is_none() && gone.last("w1").is_some());
        assert!(gone.last("w200").is_some());
    }
}
