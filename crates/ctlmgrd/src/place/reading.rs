//! What placement decides from, put together.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use ctlmgr_host::Host;
use ctlmgr_model::{ContainerFacts, Millis, PlaceReading, PlaceWish, Settings, Tenant, Workload};
use ctlmgr_policy::entitlement;
use ctlmgr_sense::{Containers, Cpuset};
use ctlmgr_store::Profiles;

use super::usage::Usage;
use crate::gate;
use crate::processors::Processors;
use crate::traffic::Seen;

/// What is known beyond one reading.
pub(super) struct Watched {
    processors: Processors,
    usage: Usage,
    /// When each container was first seen, by its full id.
    since: BTreeMap<String, Millis>,
}

impl Watched {
    pub fn new(host: Host, store: Option<Profiles>) -> Watched {
        let (processors, usage) = (Processors::new(host), Usage::new(store));
        Watched { processors, usage, since: BTreeMap::new() }
    }

    /// Blocks for as long as the kernel and the store take. `None` while processors come or go: what was seen
    /// of containers may be from before.
    pub fn read(
        &mut self,
        at: Millis,
        settings: &Settings,
        seen: &Seen,
        containers: &Containers,
    ) -> Option<PlaceReading> {
        self.processors.look().then(|| self.put_together(at, settings, seen, containers))
    }

    fn put_together(
        &mut self,
        at: Millis,
        settings: &Settings,
        seen: &Seen,
        containers: &Containers,
    ) -> PlaceReading {
        self.since.retain(|id, _| seen.members.cpusets.contains_key(id));
        let (mut tenants, mut place) = (Vec::new(), BTreeMap::new());
        for (id, cpuset) in &seen.members.cpusets {
            let unknown = ContainerFacts { id: id.clone(), ..ContainerFacts::default() };
            let facts = containers.by_id.get(id);
            let workload = Workload::unstarted(facts.unwrap_or(&unknown).clone());
            let use_milli = seen.cpu_milli.get(id).copied().unwrap_or(0);
            let key = gate::profile_key(&workload, facts.unwrap_or(&unknown));
            let since = *self.since.entry(id.clone()).or_insert(at);
            // Of the first look nobody knows how long it was about.
            let peak_milli = match since == at {
                true => self.usage.peak(&key),
                false => self.usage.learn(&key, use_milli, unix_now()),
            };
            // Before it runs its runtime may still be setting its own list.
            let wish = facts.filter(|f| f.is_running).map(|_| wish(settings, &workload));
            place.insert(id.as_str(), tenants.len());
            let known_for = at.since(since);
            tenants.push(tenant(&workload, cpuset, wish, [use_milli, peak_milli], known_for));
        }
        let edge = |(a, b, rate): &(String, String, u64)| {
            Some((*place.get(a.as_str())?, *place.get(b.as_str())?, *rate))
        };
        let traffic = seen.pairs.iter().filter_map(edge).collect();
        self.usage.keep();
        PlaceReading { at, topology: self.processors.topology().clone(), tenants, traffic }
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn tenant(
    workload: &Workload,
    cpuset: &Cpuset,
    wish: Option<PlaceWish>,
    [use_milli, peak_milli]: [u64; 2],
    known_for: Millis,
) -> Tenant {
    Tenant {
        name: workload.name.clone(),
        path: cpuset.path.clone(),
        id: cpuset.id,
        use_milli,
        peak_milli,
        known_for,
        cpus: cpuset.cpus.clone(),
        mems: cpuset.mems.clone(),
        allowed: cpuset.allowed.clone(),
        wish,
    }
}

/// What rules and labels ask for; garbage in a label is named by the memory job's complaints.
fn wish(settings: &Settings, workload: &Workload) -> PlaceWish {
    let exclusive = workload.label("ctlmgr.place.exclusive");
    PlaceWish {
        managed: entitlement(settings, workload).managed,
        group: workload.label("ctlmgr.place.group").map(str::to_owned),
        exclusive: exclusive.is_some_and(|text| bool::from_str(text) == Ok(true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::{CgroupId, CgroupPath};

    #[test]
    fn labels_and_addresses_become_wishes_and_edges() {
        let dir = tempfile::tempdir().unwrap();
        let mut watched = Watched::new(Host::fake(dir.path()), None);
        let mut seen = Seen::default();
        let mut containers = Containers::default();
        for (number, name) in ["web", "db", "new", "making"].iter().enumerate() {
            let id = format!("{number}{number}");
            let labels = BTreeMap::from([
                ("ctlmgr.place.group".to_owned(), "shop".to_owned()),
                (
                    "ctlmgr.place.exclusive".to_owned(),
                    if number == 1 { "true" } else { "yes" }.to_owned(),
                ),
            ]);
            let facts = ContainerFacts {
                id: id.clone(),
                name: Some((*name).to_owned()),
                labels,
                is_running: number < 2,
                ..ContainerFacts::default()
            };
            if number != 2 {
                containers.by_id.insert(id.clone(), facts);
            }
            let cpuset = Cpuset {
                path: CgroupPath::new(&id),
                id: CgroupId(number as u64),
                cpus: "1".parse().unwrap(),
                mems: "".parse().unwrap(),
                allowed: "0-7".parse().unwrap(),
            };
            seen.members.cpusets.insert(id.clone(), cpuset);
            seen.cpu_milli.insert(id, 100);
        }
        seen.pairs = vec![("00".into(), "11".into(), 7), ("00".into(), "gone".into(), 9)];
        let settings = Settings::default();
        watched.put_together(Millis(1000), &settings, &seen, &containers);
        let reading = watched.put_together(Millis(6000), &settings, &seen, &containers);
        assert_eq!(reading.traffic, [(0, 1, 7)]);
        let [web, db, new, making] = &reading.tenants[..] else { panic!("{reading:?}") };
        assert_eq!((web.name.0.as_str(), web.known_for, web.use_milli), ("web", Millis(5000), 100));
        let (web_wish, db_wish) = (web.wish.as_ref().unwrap(), db.wish.as_ref().unwrap());
        assert!(
            web.peak_milli >= 100 && web_wish.managed && !web_wish.exclusive && db_wish.exclusive
        );
        assert_eq!(db_wish.group.as_deref(), Some("shop"));
        assert_eq!((&new.wish, &making.wish), (&None, &None), "dockerd has not told that it runs");
    }
}
