//! One reading of everything.

use std::collections::{BTreeMap, BTreeSet};

use ctlmgr_host::{Allowance, CgroupDir, Hierarchy, Host, HostError, Result};
use ctlmgr_model::{
    Bytes, CgroupId, CgroupPath, ContainerFacts, Cpus, Disk, Disks, Group, Io, MemorySample,
    Millis, Moved, Oomd, Pressure, Shape, Snapshot, Source, Workload, WorkloadName,
};
use glob::Pattern;

use crate::bystander::{noteworthy, stands_out};
use crate::cgroup::{read_activity, read_cpu_usec, read_disks, read_group, read_memory};
use crate::kept::Kept;
use crate::machine::{read_available, read_cpus, read_machine, read_pressure};
use crate::reading::Reading;
use crate::tree::{Kind, walk};
use crate::workload::container;

/// Reads the host below a root.
#[derive(Debug)]
pub struct Sensor {
    host: Host,
    cgroups: Hierarchy,
    kept: Kept,
}

/// What to look for.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Units to manage.
    pub units: Vec<Pattern>,
    /// What dockerd said about containers, by full id.
    pub containers: BTreeMap<String, ContainerFacts>,
    /// Whether dockerd does not answer now: what it has not told before is unknown.
    pub is_docker_away: bool,
    /// What systemd-oomd said that it watches.
    pub oomd: Oomd,
    /// Whether the next reading comes so soon that files are worth to stay open for it.
    pub is_soon_again: bool,
}

/// Adds the shape of what a cgroup did to its disks, by whoever sees what `io.stat` only counts.
pub type DiskTrace<'a> = dyn Fn(&CgroupDir, &mut [(Disk, Moved)]) + 'a;

/// What can be seen of a host at a glance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glance {
    /// Memory available (`MemAvailable`).
    pub available: Bytes,
    /// Cgroups of containers and units.
    pub groups: Vec<CgroupPath>,
}

/// What a few containers do, and how hard the host is pressed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// Since each was made, by full id; only those with a process in them.
    pub io: BTreeMap<String, Io>,
    /// The cgroup of each of these.
    pub cgroups: BTreeMap<String, CgroupId>,
    /// Memory of those that do not stand still, as far as it could be read.
    pub memory: BTreeMap<String, MemorySample>,
    /// `/proc/pressure/io`.
    pub io_pressure: Option<Pressure>,
    /// `/proc/pressure/memory`.
    pub memory_pressure: Option<Pressure>,
    /// Memory available (`MemAvailable`).
    pub available: Option<Bytes>,
    /// Processors that run.
    pub cpus: Option<u64>,
}

/// Cgroups within a container, such as those of a systemd in it, are followed so deep.
const NESTED: usize = 4;

/// Containers by cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Full id of the container that a cgroup is of.
    pub of_cgroup: BTreeMap<CgroupId, String>,
    /// Processor time of each container since it was started, in microseconds.
    pub cpu_usec: BTreeMap<String, u64>,
    /// Where each container of the system is, and what it may run on; users' own are not in it.
    pub cpusets: BTreeMap<String, Cpuset>,
}

/// The cpuset controller of one container's cgroup, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpuset {
    /// Where it is.
    pub path: CgroupPath,
    /// Which one it is.
    pub id: CgroupId,
    /// `cpuset.cpus`; empty is what the parent has.
    pub cpus: Cpus,
    /// `cpuset.mems`.
    pub mems: Cpus,
    /// The parent's `cpuset.cpus.effective`.
    pub allowed: Cpus,
}

impl Sensor {
    /// The host that it reads.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// A sensor for `host`.
    ///
    /// # Errors
    /// The host has no cgroup v2 hierarchy.
    pub fn new(host: Host) -> Result<Sensor> {
        let cgroups = host.cgroups()?;
        Ok(Sensor { host, cgroups, kept: Kept::new(Allowance::of_process()) })
    }

    /// The hierarchy that is read.
    pub fn cgroups(&self) -> &Hierarchy {
        &self.cgroups
    }

    /// No reading comes soon: what stayed open for it is closed.
    pub fn rest(&self) {
        self.kept.close();
    }

    /// A small part of a reading: no file of any workload is opened, and none stays open.
    ///
    /// # Errors
    /// No usable `/proc/meminfo`, or the hierarchy cannot be listed.
    pub fn glance(&self, units: &[Pattern]) -> Result<Glance> {
        self.rest();
        let groups = walk(&self.cgroups, units)?.into_iter().map(|(path, _)| path).collect();
        Ok(Glance { available: read_available(&self.host)?, groups })
    }

    /// What the containers of these ids did so far, with the shape of their requests where they are
    /// traced, and how hard the host is pressed. Blocks for as long as the kernel takes.
    ///
    /// # Errors
    /// The hierarchy cannot be listed. Who is not there is not in it.
    pub fn look_at(&self, ids: &BTreeSet<String>, trace: Option<&DiskTrace<'_>>) -> Result<Look> {
        let mut seen = Look::default();
        for (path, kind) in walk(&self.cgroups, &[])? {
            let Kind::Container(id) = kind else { continue };
            if path.is_of_user() && seen.io.contains_key(&id) {
                continue;
            }
            let dir = if ids.contains(&id) { self.cgroups.open(&path)? } else { None };
            if let Some(dir) = dir {
                let activity = read_activity(&dir);
                if activity.is_populated {
                    let (disks, shape) = self.disks(&dir, trace);
                    let held = read_memory(&dir).ok().flatten().filter(|_| !activity.is_frozen);
                    seen.memory.extend(held.map(|held| (id.clone(), held)));
                    seen.cgroups.insert(id.clone(), dir.id());
                    seen.io.insert(id, Io { shape, disks, ..activity.io });
                }
            }
        }
        Ok(Look {
            io_pressure: read_pressure(&self.host, "io"),
            memory_pressure: read_pressure(&self.host, "memory"),
            available: read_available(&self.host).ok(),
            cpus: read_cpus(&self.host),
            ..seen
        })
    }

    /// What a cgroup did to each disk, and its requests over all devices.
    fn disks(&self, dir: &CgroupDir, trace: Option<&DiskTrace<'_>>) -> (Disks, Option<Shape>) {
        let mut all = read_disks(dir);
        trace.iter().for_each(|trace| trace(dir, &mut all));
        let shapes = all.iter().filter_map(|(_, moved)| moved.shape);
        let shape = shapes.reduce(|sum, shape| sum.with(shape, u64::saturating_add));
        let (stacked, below): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(disk, _)| self.is_stacked(*disk));
        let disks = if is_seen_below(&stacked, &below) {
            below.into_iter().collect()
        } else {
            Disks::default()
        };
        (disks, shape)
    }

    /// Whether a device lies on others (device mapper, md, loop devices).
    fn is_stacked(&self, disk: Disk) -> bool {
        let path = |name: &str| self.host.path(&format!("sys/dev/block/{disk}/{name}"));
        let is_any = |mut entries: std::fs::ReadDir| entries.next().is_some();
        std::fs::read_dir(path("slaves")).is_ok_and(is_any) || path("loop").exists()
    }

    /// `/proc/pressure/io`; absent where PSI is off.
    pub fn io_pressure(&self) -> Option<Pressure> {
        read_pressure(&self.host, "io")
    }

    /// The cgroup of a container, by its full id.
    ///
    /// # Errors
    /// The hierarchy cannot be listed, or the cgroup cannot be read.
    pub fn find(&self, id: &str) -> Result<Option<Group>> {
        let is_it = |(_, kind): &(CgroupPath, Kind)| *kind == Kind::Container(id.to_owned());
        let found = walk(&self.cgroups, &[])?.into_iter().filter(is_it);
        let Some((path, _)) = found.min_by_key(|(path, _)| path.is_of_user()) else {
            return Ok(None);
        };
        match self.cgroups.open(&path)? {
            Some(dir) => read_group(&dir),
            None => Ok(None),
        }
    }

    /// Which containers the cgroups are of, those within containers included, and their processor time.
    /// Blocks for as long as the kernel takes.
    ///
    /// # Errors
    /// The hierarchy cannot be listed. Who is not there is not in it.
    pub fn members(&self) -> Result<Members> {
        let mut members = Members::default();
        for (path, kind) in walk(&self.cgroups, &[])? {
            let Kind::Container(id) = kind else { continue };
            let Some(dir) = self.cgroups.open(&path)? else { continue };
            members.cpu_usec.insert(id.clone(), read_cpu_usec(&dir));
            if !path.is_of_user() {
                let cpuset = self.cpuset(&path, &dir)?;
                members.cpusets.extend(cpuset.map(|cpuset| (id.clone(), cpuset)));
            }
            self.note_below(&path, &id, NESTED, &mut members)?;
        }
        Ok(members)
    }

    /// `None` where the controller is off, or a process is not there any more.
    fn cpuset(&self, path: &CgroupPath, dir: &CgroupDir) -> Result<Option<Cpuset>> {
        let cpus = read_list(dir, "cpuset.cpus")?;
        let mems = read_list(dir, "cpuset.mems")?;
        // Where a parent has no cpuset of its own, one further up decides.
        let mut allowed = None;
        let above = std::iter::successors(path.parent(), CgroupPath::parent);
        for parent in above {
            if let Some(dir) = self.cgroups.open(&parent)? {
                allowed = read_list(&dir, "cpuset.cpus.effective")?;
            }
            if allowed.is_some() {
                break;
            }
        }
        let (Some(cpus), Some(mems), Some(allowed)) = (cpus, mems, allowed) else {
            return Ok(None);
        };
        Ok(Some(Cpuset { path: path.clone(), id: dir.id(), cpus, mems, allowed }))
    }

    fn note_below(
        &self,
        path: &CgroupPath,
        id: &str,
        depth: usize,
        members: &mut Members,
    ) -> Result<()> {
        if let Some(dir) = self.cgroups.open(path)? {
            members.of_cgroup.insert(dir.id(), id.to_owned());
        }
        if depth > 0 {
            for child in self.cgroups.children(path)? {
                self.note_below(&child, id, depth - 1, members)?;
            }
        }
        Ok(())
    }

    /// Reads everything once. Blocks for as long as the kernel takes.
    ///
    /// # Errors
    /// The machine as a whole cannot be read; anything smaller is a gap.
    pub fn snapshot(&self, at: Millis, query: &Query) -> Result<Snapshot> {
        let host = read_machine(&self.host, &self.cgroups)?;
        let mut reading =
            Reading { dirs: self.kept.begin(&self.cgroups, query.is_soon_again), gaps: Vec::new() };
        let (mut workloads, mut bystanders) = (Vec::new(), Vec::new());
        let (mut alive, mut small) = (Vec::new(), Vec::new());
        let least = noteworthy(host.mem_total);
        for (path, kind) in walk(&self.cgroups, &query.units)? {
            if kind == Kind::Bystander && reading.is_small(&path, least) {
                small.push(path);
                continue;
            }
            let Some(group) = reading.group(&path) else { continue };
            alive.push((path, group.memory.page_cache()));
            match kind {
                Kind::Container(id) => workloads.push(container(query, id, group)),
                Kind::Unit(unit) => workloads.push(Workload {
                    name: WorkloadName(unit.clone()),
                    source: Source::Unit(unit),
                    group,
                }),
                Kind::Bystander if stands_out(&group, least) => bystanders.push(group),
                Kind::Bystander => {}
            }
        }
        let above: BTreeSet<CgroupPath> =
            workloads.iter().flat_map(|w| w.group.path.ancestors()).collect();
        let ancestors: Vec<Group> = above.iter().filter_map(|path| reading.group(path)).collect();
        // A user's manager sets its slices back with each change of a unit.
        let ours = bystanders.iter().filter(|g| !g.path.is_of_user());
        let beside: BTreeSet<CgroupPath> =
            ours.flat_map(|g| g.path.ancestors()).filter(|path| !above.contains(path)).collect();
        let above_bystanders: Vec<Group> =
            beside.iter().filter_map(|path| reading.group(path)).collect();
        let slices = ancestors.iter().chain(&above_bystanders);
        let dead = reading.dead(slices, alive, &small);
        let (oomd, gaps) = (reading.watched(&query.oomd, host.pressure), reading.gaps);
        let is_mixed = false;
        Ok(Snapshot {
            at,
            host,
            workloads,
            bystanders,
            ancestors,
            above_bystanders,
            dead,
            oomd,
            is_mixed,
            gaps,
        })
    }
}

fn read_list(dir: &CgroupDir, name: &str) -> Result<Option<Cpus>> {
    let Some(text) = dir.read(name)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| HostError::malformed(dir.file(name), &text))
}

/// Whether what was asked of devices that lie on others was counted below as well. Of some it is not: encryption and
/// parity write from threads of their own, for nobody.
fn is_seen_below(stacked: &[(Disk, Moved)], below: &[(Disk, Moved)]) -> bool {
    [|m: &Moved| m.read, |m: &Moved| m.written].iter().all(|bytes| {
        let most = stacked.iter().map(|(_, m)| bytes(m)).max().unwrap_or_default();
        let sum: Bytes = below.iter().map(|(_, m)| bytes(m)).fold(Bytes::ZERO, |a, b| a + b);
        most.0 / 2 <= sum.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a host below `root`.
    fn write(root: &std::path::Path, path: &str, file: &str, text: &str) {
        std::fs::create_dir_all(root.join(path)).unwrap();
        std::fs::write(root.join(path).join(file), text).unwrap();
    }

    /// With 8 GiB of everything.
    fn meminfo() -> String {
        let keys = "MemTotal MemFree Buffers Cached SwapCached Active Inactive SwapTotal SwapFree Dirty Writeback \
                    Mapped Slab Committed_AS VmallocTotal VmallocUsed VmallocChunk";
        let line = |key| format!("{key}: 8388608 kB\n");
        keys.split_whitespace().map(line).collect()
    }

    #[test]
    fn small_units_are_read_no_further_but_for_what_the_dead_hold_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, file: &str, text: &str| write(dir.path(), path, file, text);
        write("proc", "meminfo", &meminfo());
        write("sys/fs/cgroup", "cgroup.controllers", "memory");
        let group = |path: &str, held: u64, cache: u64| {
            let path = format!("sys/fs/cgroup/{path}");
            write(&path, "memory.current", &(held << 20).to_string());
            write(&path, "memory.stat", &format!("inactive_file {}\n", cache << 20));
        };
        group("system.slice", 900, 100);
        group("system.slice/large.service", 800, 40);
        group("system.slice/small.service", 9, 5);
        let sensor = Sensor::new(Host::fake(dir.path())).unwrap();
        let read = || sensor.snapshot(Millis(1), &Query::default()).unwrap();
        write("sys/fs/cgroup/system.slice", "cgroup.stat", "nr_dying_descendants 1\n");
        let slice = CgroupPath::new("system.slice");
        assert_eq!(read().dead, BTreeMap::from([(slice, Bytes::mib(55))]));
        write("sys/fs/cgroup/system.slice", "cgroup.stat", "nr_dying_descendants 0\n");
        write("sys/fs/cgroup/system.slice/small.service", "memory.stat", "not read\n");
        let snapshot = read();
        let names: Vec<_> = snapshot.bystanders.iter().map(|g| g.path.as_str()).collect();
        assert_eq!(names, ["system.slice/large.service"]);
        assert_eq!((snapshot.dead, snapshot.gaps), (BTreeMap::new(), Vec::new()));
        write("sys/fs/cgroup/system.slice", "cgroup.stat", "nr_dying_descendants 1\n");
        assert_eq!(read().dead, BTreeMap::new(), "what cannot be read is nobody's to be taken");
    }

    /// Readings of one sensor whose files stay open, beside those of another each time, while the host changes.
    #[test]
    fn what_stays_open_changes_no_reading() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, file: &str, text: &str| write(dir.path(), path, file, text);
        write("proc", "meminfo", &meminfo());
        write("sys/fs/cgroup", "cgroup.controllers", "memory");
        let group = |name: &str, held: u64, rest: &str| {
            let path = format!("sys/fs/cgroup/system.slice/{name}.service");
            write(&path, "memory.current", &(held << 20).to_string());
            write(&path, "memory.stat", &format!("anon {}\n", held << 20));
            write(&path, "memory.events", rest);
            let line =
                |kind| format!("{kind} avg10={held}.50 avg60=0.00 avg300=0.00 total={held}\n");
            write(&path, "memory.pressure", &(line("some") + &line("full")));
        };
        let sensor = Sensor::new(Host::fake(dir.path())).unwrap();
        let oomd = Oomd {
            watched: BTreeMap::from([(
                CgroupPath::new("system.slice/a.service"),
                Default::default(),
            )]),
            ..Oomd::default()
        };
        let query = |is_soon_again| Query { oomd: oomd.clone(), is_soon_again, ..Query::default() };
        let mut sizes = Vec::new();
        for (held, events) in [(100, "low 1\n"), (90, "garbage"), (9, "low 2\n"), (2000, "")] {
            group("a", held, events);
            group("b", 200 - held.min(199), "high 3\n");
            group("c", 3, "");
            write("sys/fs/cgroup/system.slice", "memory.current", &(held << 20).to_string());
            write("sys/fs/cgroup/system.slice", "memory.stat", "file 1\n");
            let kept = sensor.snapshot(Millis(1), &query(true)).unwrap();
            let fresh = Sensor::new(Host::fake(dir.path())).unwrap();
            assert_eq!(kept, fresh.snapshot(Millis(1), &query(false)).unwrap());
            sizes.push((kept.bystanders.len(), kept.gaps.len()));
            assert!(kept.oomd.watched.values().all(|w| w.pressure.is_some()));
        }
        assert_eq!(sizes, [(2, 0), (1, 1), (1, 0), (1, 0)]);
    }

    #[test]
    fn lists_of_processors_are_read_and_those_of_users_managers_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("sys/fs/cgroup");
        let (ours, theirs) = ("a".repeat(64), "b".repeat(64));
        let write = |path: &str, file: &str, text: &str| {
            std::fs::create_dir_all(root.join(path)).unwrap();
            std::fs::write(root.join(path).join(file), text).unwrap();
        };
        write("", "cgroup.controllers", "cpuset");
        write("", "cpuset.cpus.effective", "0-7\n");
        let scope = format!("system.slice/docker-{ours}.scope");
        let user = format!("user.slice/user-1.slice/user@1.service/docker-{theirs}.scope");
        for path in [&scope, &user] {
            write(path, "cpuset.cpus", "2-3\n");
            write(path, "cpuset.mems", "\n");
            write(path, "cpu.stat", "usage_usec 5\n");
        }
        let members = Sensor::new(Host::fake(dir.path())).unwrap().members().unwrap();
        assert_eq!(members.cpu_usec.len(), 2);
        let cpuset = &members.cpusets[&ours];
        // The slice has no list of its own, so the root's holds.
        assert_eq!(
            (cpuset.cpus.to_string(), cpuset.allowed.to_string()),
            ("2-3".into(), "0-7".into())
        );
        assert!(cpuset.mems.is_empty() && !members.cpusets.contains_key(&theirs));
    }

    #[test]
    fn what_is_done_to_each_disk_is_told_apart_and_what_lies_on_others_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, file: &str, text: &str| write(dir.path(), path, file, text);
        let id = "a".repeat(64);
        let scope = format!("sys/fs/cgroup/system.slice/docker-{id}.scope");
        write("sys/fs/cgroup", "cgroup.controllers", "io");
        write(&scope, "cgroup.events", "populated 1\nfrozen 0\n");
        // A volume of LVM on 8:0, a loop device on 8:16.
        write("sys/dev/block/253:0/slaves", "sda", "");
        write("sys/dev/block/7:0/loop", "backing_file", "");
        let line = |disk, read| format!("{disk} rbytes={read} wbytes=1 rios=2 wios=1\n");
        let lines = [line("253:0", 100), line("8:0", 100), line("7:0", 50), line("8:16", 50)];
        write(&scope, "io.stat", &lines.concat());
        let sensor = Sensor::new(Host::fake(dir.path())).unwrap();
        let requests = ctlmgr_model::Requests { count: 3, ..Default::default() };
        let traced = |_: &CgroupDir, disks: &mut [(Disk, Moved)]| {
            for (_, moved) in disks.iter_mut().filter(|(disk, _)| disk.major == 8) {
                moved.shape = Some(Shape { read: requests, ..Shape::default() });
            }
        };
        let look = sensor.look_at(&BTreeSet::from([id.clone()]), Some(&traced)).unwrap();
        let disks: Vec<_> =
            look.io[&id].disks.iter().map(|(disk, m)| (disk.to_string(), m.read.0)).collect();
        assert_eq!(disks, [("8:0".to_owned(), 100), ("8:16".to_owned(), 50)]);
        assert_eq!(look.io[&id].shape.unwrap().read.count, 6);
        // An encrypted one, whose writes nobody is counted for below.
        let crypt = "253:0 rbytes=100 wbytes=900\n8:0 rbytes=100 wbytes=0\n";
        write(&scope, "io.stat", crypt);
        let look = sensor.look_at(&BTreeSet::from([id.clone()]), None).unwrap();
        assert!(look.io[&id].disks.is_empty());
    }
}
