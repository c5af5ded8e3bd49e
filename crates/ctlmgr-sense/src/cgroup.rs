//! Files of the memory controller, as text to values (kernel: admin-guide/cgroup-v2.rst).

use ctlmgr_host::{CgroupDir, HostError, Result};
use ctlmgr_model::{
    Activity, Bytes, Disk, Group, Io, Knob, Limit, MemoryEvents, MemorySample, Moved,
};

use crate::machine::parse_pressure;

/// A plain number of bytes, as in `memory.current`.
pub fn parse_bytes(text: &str) -> Option<Bytes> {
    text.trim().parse().ok().map(Bytes)
}

/// A number of bytes or `max`, as in `memory.high`.
pub fn parse_limit(text: &str) -> Option<Limit> {
    match text.trim() {
        "max" => Some(Limit::Max),
        number => parse_bytes(number).map(Limit::Bytes),
    }
}

/// `memory.low` and `memory.min` may say `max`; everything is protected then.
pub fn parse_protection(text: &str) -> Option<Bytes> {
    parse_limit(text).map(|limit| limit.bytes().unwrap_or(Bytes(u64::MAX)))
}

/// Lines of `key number`. Unknown keys are skipped, so that newer kernels do not matter; a line
/// that is no such pair makes the whole text invalid.
fn pairs(text: &str) -> impl Iterator<Item = Option<(&str, u64)>> {
    text.lines().map(|line| {
        let (key, number) = line.split_once(' ')?;
        Some((key, number.trim().parse().ok()?))
    })
}

/// `memory.events`.
pub fn parse_events(text: &str) -> Option<MemoryEvents> {
    let mut events = MemoryEvents::default();
    for pair in pairs(text) {
        let (key, count) = pair?;
        match key {
            "low" => events.low = count,
            "high" => events.high = count,
            "max" => events.max = count,
            "oom" => events.oom = count,
            "oom_kill" => events.oom_kill = count,
            _ => {}
        }
    }
    Some(events)
}

/// CPU time in microseconds, from `cpu.stat`.
pub fn parse_cpu(text: &str) -> Option<u64> {
    let mut usage = None;
    for pair in pairs(text) {
        if let ("usage_usec", count) = pair? {
            usage = Some(count);
        }
    }
    usage
}

/// What was read and written over all devices, from `io.stat`: lines of `major:minor key=number …`.
/// A device that did nothing yet may stand there without keys.
pub fn parse_io(text: &str) -> Option<Io> {
    let mut all = Io::default();
    for (_, moved) in parse_disks(text)? {
        all.read = all.read + moved.read;
        all.written = all.written + moved.written;
        all.reads = all.reads.saturating_add(moved.reads);
        all.writes = all.writes.saturating_add(moved.writes);
    }
    Some(all)
}

/// The same device by device.
pub fn parse_disks(text: &str) -> Option<Vec<(Disk, Moved)>> {
    text.lines().map(parse_disk).collect()
}

/// One line of `io.stat`.
fn parse_disk(line: &str) -> Option<(Disk, Moved)> {
    let mut words = line.split_ascii_whitespace();
    let disk = words.next()?.parse().ok()?;
    let mut moved = Moved::default();
    for word in words {
        let (key, number) = word.split_once('=')?;
        match key {
            "rbytes" => moved.read = parse_bytes(number)?,
            "wbytes" => moved.written = parse_bytes(number)?,
            "rios" => moved.reads = number.parse().ok()?,
            "wios" => moved.writes = number.parse().ok()?,
            // Others may hold words, as the cost model's do.
            _ => {}
        }
    }
    Some((disk, moved))
}

/// The devices that `io.stat` names, and what was done to each.
pub(crate) fn read_disks(dir: &CgroupDir) -> Vec<(Disk, Moved)> {
    read(dir, "io.stat", parse_disks).ok().flatten().unwrap_or_default()
}

/// `populated` and `frozen` of `cgroup.events`.
pub fn parse_state(text: &str) -> Option<(bool, bool)> {
    let (mut is_populated, mut is_frozen) = (false, false);
    for pair in pairs(text) {
        let (key, count) = pair?;
        match key {
            "populated" => is_populated = count != 0,
            "frozen" => is_frozen = count != 0,
            _ => {}
        }
    }
    Some((is_populated, is_frozen))
}

/// Cgroups below that were removed and still hold something, from `cgroup.stat`.
pub fn parse_dying(text: &str) -> Option<u64> {
    let count = |pair: Option<(&str, u64)>| match pair {
        None => Some(None),
        Some(("nr_dying_descendants", count)) => Some(Some(count)),
        Some(_) => None,
    };
    pairs(text).find_map(count).unwrap_or(Some(0))
}

/// Whether cgroups that were removed from it still hold something.
pub(crate) fn has_dying(dir: &CgroupDir) -> bool {
    read(dir, "cgroup.stat", parse_dying).ok().flatten().is_some_and(|count| count > 0)
}

/// What is taken from `memory.stat`. Keys that a kernel lacks stay zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStat {
    anon: u64,
    file: u64,
    shmem: u64,
    unevictable: u64,
    active_file: u64,
    inactive_file: u64,
    /// Since 5.18; before, its parts are all there is.
    kernel: Option<u64>,
    unreclaimable: u64,
    sock: u64,
    slab_reclaimable: u64,
    swapcached: u64,
    refault_anon: u64,
    refault_file: u64,
    activate_file: u64,
    major_faults: Option<u64>,
    stolen: Option<u64>,
}

impl MemoryStat {
    /// What the kernel itself needs for a cgroup, and does not give back under pressure.
    fn unreclaimable(&self) -> Bytes {
        let kernel = self.kernel.map(|all| Bytes(all) - Bytes(self.slab_reclaimable));
        kernel.unwrap_or(Bytes(self.unreclaimable)) + Bytes(self.sock)
    }

    /// Locked page cache: on no list of page cache, and shared memory is `file`, too (but not swap cache, as it is of the
    /// host). Anonymous pages that were given up (MADV_FREE) are on a list as well: it is less than there is by those.
    fn locked_file(&self) -> Bytes {
        let elsewhere = [self.active_file, self.inactive_file, self.shmem];
        let elsewhere: Bytes = elsewhere.into_iter().map(Bytes).sum();
        (Bytes(self.file) - elsewhere).min(Bytes(self.unevictable))
    }
}

/// `memory.stat`.
pub fn parse_stat(text: &str) -> Option<MemoryStat> {
    let mut stat = MemoryStat::default();
    for pair in pairs(text) {
        let (key, count) = pair?;
        let slot = match key {
            "anon" => &mut stat.anon,
            "file" => &mut stat.file,
            "unevictable" => &mut stat.unevictable,
            "shmem" => &mut stat.shmem,
            "active_file" => &mut stat.active_file,
            "inactive_file" => &mut stat.inactive_file,
            "kernel" => stat.kernel.get_or_insert_default(),
            "kernel_stack" | "pagetables" | "percpu" | "slab_unreclaimable" => {
                stat.unreclaimable = stat.unreclaimable.saturating_add(count);
                continue;
            }
            "sock" => &mut stat.sock,
            "slab_reclaimable" => &mut stat.slab_reclaimable,
            "swapcached" => &mut stat.swapcached,
            "workingset_refault_anon" => &mut stat.refault_anon,
            "workingset_refault_file" => &mut stat.refault_file,
            "workingset_activate_file" => &mut stat.activate_file,
            "pgmajfault" => stat.major_faults.get_or_insert_default(),
            "pgsteal_kswapd" => stat.stolen.get_or_insert_default(),
            _ => continue,
        };
        *slot = count;
    }
    Some(stat)
}

/// Reads the memory controller of an open cgroup; `None` if it vanished or has no such controller.
///
/// # Errors
/// A file that is there but cannot be read or understood.
pub fn read_group(dir: &CgroupDir) -> Result<Option<Group>> {
    let Some(memory) = read_memory(dir)? else { return Ok(None) };
    let activity = read_activity(dir);
    Ok(Some(Group { path: dir.cgroup().clone(), id: dir.id(), memory, activity }))
}

/// Its page cache, shared memory without; none of one that vanished.
///
/// # Errors
/// A file that is there but cannot be read or understood.
pub(crate) fn read_page_cache(dir: &CgroupDir) -> Result<Bytes> {
    let stat = read(dir, "memory.stat", parse_stat)?.unwrap_or_default();
    Ok(Bytes(stat.active_file) + Bytes(stat.inactive_file))
}

/// Its memory alone.
pub(crate) fn read_memory(dir: &CgroupDir) -> Result<Option<MemorySample>> {
    let Some(current) = read(dir, "memory.current", parse_bytes)? else { return Ok(None) };
    let Some(stat) = read(dir, "memory.stat", parse_stat)? else { return Ok(None) };
    Ok(Some(MemorySample {
        current,
        swap: read(dir, "memory.swap.current", parse_bytes)?.unwrap_or_default(),
        swap_max: read(dir, "memory.swap.max", parse_limit)?.unwrap_or_default(),
        min: read(dir, "memory.min", parse_protection)?.unwrap_or_default(),
        low: read(dir, "memory.low", parse_protection)?.unwrap_or_default(),
        high: read(dir, "memory.high", parse_limit)?.unwrap_or(Limit::Max),
        max: read(dir, "memory.max", parse_limit)?.unwrap_or(Limit::Max),
        anon: Bytes(stat.anon),
        active_file: Bytes(stat.active_file),
        inactive_file: Bytes(stat.inactive_file),
        shmem: Bytes(stat.shmem),
        kernel: stat.unreclaimable(),
        locked: Bytes(stat.unevictable),
        locked_file: stat.locked_file(),
        kernel_cache: Bytes(stat.slab_reclaimable),
        swapcached: Bytes(stat.swapcached),
        refault_anon: stat.refault_anon,
        refault_file: stat.refault_file,
        activate_file: stat.activate_file,
        major_faults: stat.major_faults,
        stolen: stat.stolen,
        events: read(dir, "memory.events", parse_events)?.unwrap_or_default(),
        // Reading fails with EOPNOTSUPP where PSI is off; that is an absence, not a fault.
        pressure: read_memory_pressure(dir),
    }))
}

/// How pressed a cgroup is for memory; `None` where that cannot be told.
pub(crate) fn read_memory_pressure(dir: &CgroupDir) -> Option<ctlmgr_model::Pressure> {
    read(dir, "memory.pressure", parse_pressure).ok().flatten()
}

/// What a cgroup does. A controller that is not enabled here counts nothing; and what is only
/// shown must not make a gap of a cgroup whose memory is known.
pub(crate) fn read_activity(dir: &CgroupDir) -> Activity {
    let io = read(dir, "io.stat", parse_io).ok().flatten();
    let state = read(dir, "cgroup.events", parse_state).ok().flatten();
    let cpu_usec = read_cpu_usec(dir);
    // Before Linux 5.13 it has no `full`, and says nothing here.
    let delay = read(dir, "cpu.pressure", parse_pressure).ok().flatten();
    let pressure = read(dir, "io.pressure", parse_pressure).ok().flatten();
    let disk_wait_usec = pressure.map(|p| p.some.total_usec);
    let waited_usec = disk_wait_usec.unwrap_or_default();
    Activity {
        disk_wait_usec,
        disk_wait_full_usec: pressure.map(|p| p.full.total_usec),
        io: Io { cpu_usec, waited_usec, ..io.unwrap_or_default() },
        cpu_wait_usec: delay.map(|p| p.some.total_usec),
        cpu_wait_full_usec: delay.map(|p| p.full.total_usec),
        is_populated: state.unwrap_or_default().0,
        is_frozen: state.unwrap_or_default().1,
        is_to_freeze: read(dir, "cgroup.freeze", parse_bytes).ok().flatten() == Some(Knob::STILL),
    }
}

/// Its processor time, in microseconds.
pub(crate) fn read_cpu_usec(dir: &CgroupDir) -> u64 {
    read(dir, "cpu.stat", parse_cpu).ok().flatten().unwrap_or_default()
}

/// Reads and parses one file of a cgroup.
pub(crate) fn read<T>(
    dir: &CgroupDir,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    let Some(text) = dir.read(name)? else { return Ok(None) };
    match parse(&text) {
        Some(value) => Ok(Some(value)),
        None => Err(HostError::malformed(dir.file(name), &text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cgroup with these files and no others.
    fn cgroup(files: &[(&str, &str)]) -> (tempfile::TempDir, CgroupDir) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("sys/fs/cgroup");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::write(root.join("cgroup.controllers"), "").unwrap();
        for (name, text) in files {
            std::fs::write(root.join("a").join(name), text).unwrap();
        }
        let cgroups = ctlmgr_host::Host::fake(dir.path()).cgroups().unwrap();
        let a = cgroups.open(&ctlmgr_model::CgroupPath::new("a")).unwrap().unwrap();
        (dir, a)
    }

    /// One knob, three tests on one line: good, malformed, missing.
    macro_rules! knob {
        ($name:ident, $parse:expr, $good:expr => $value:expr, $bad:expr) => {
            #[test]
            fn $name() {
                assert_eq!($parse($good), Some($value));
                assert_eq!($parse($bad), None);
                let (_dir, a) = cgroup(&[]);
                assert_eq!(read(&a, stringify!($name), $parse).unwrap(), None);
            }
        };
    }

    knob!(memory_current, parse_bytes, "4096\n" => Bytes(4096), "4096 kB");
    knob!(memory_high, parse_limit, "max\n" => Limit::Max, "maximum");
    knob!(memory_max, parse_limit, "8192\n" => Limit::Bytes(Bytes(8192)), "-1");
    knob!(memory_low, parse_protection, "max\n" => Bytes(u64::MAX), "");
    knob!(memory_events, parse_events, "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n"
        => MemoryEvents { low: 1, high: 2, max: 3, oom: 4, oom_kill: 5 }, "low one");
    knob!(memory_stat, parse_stat, "anon 5\nfile 9\nworkingset_refault_anon 7\npgmajfault 3\npgsteal_kswapd 8\n"
        => MemoryStat { anon: 5, file: 9, refault_anon: 7, major_faults: Some(3), stolen: Some(8), ..MemoryStat::default() },
        "anon\n");

    knob!(cpu_stat, parse_cpu, "usage_usec 42\nuser_usec 40\n" => 42, "user_usec 40\n");
    knob!(io_stat, parse_io, "8:0 rbytes=10 wbytes=2 rios=1 cost.ctrl=auto\n254:0 rbytes=12\n7:0\n"
        => Io { read: Bytes(22), written: Bytes(2), reads: 1, ..Io::default() },
        "8:0 rbytes\n");
    knob!(cgroup_stat, parse_dying, "nr_descendants 9\nnr_dying_descendants 4\n" => 4, "nr_dying_descendants\n");
    knob!(cgroup_events, parse_state, "populated 1\nfrozen 0\n" => (true, false), "populated");

    /// Of 100 bytes of page cache 30 are shared memory and 40 on the two lists: 30 are left, if so many are locked.
    #[test]
    fn page_cache_on_no_list_is_locked_but_no_more_than_is_locked_at_all() {
        let locked = |locked: u64| {
            let text = format!(
                "file 100\nshmem 30\nswapcached 10\nactive_file 15\ninactive_file 25\nunevictable {locked}\n"
            );
            parse_stat(&text).unwrap().locked_file()
        };
        assert_eq!([0, 5, 50].map(locked), [Bytes(0), Bytes(5), Bytes(30)]);
        // Counters are read one after the other.
        assert_eq!(
            parse_stat("file 1\nactive_file 2\nunevictable 9\n").unwrap().locked_file(),
            Bytes(0)
        );
    }

    #[test]
    fn waits_for_processors_and_disks_are_told_apart() {
        let line =
            |kind, total| format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        let disk = line("some", 5) + &line("full", 4);
        let waits = |cpu: &str| {
            let (_dir, a) = cgroup(&[("io.pressure", &disk), ("cpu.pressure", cpu)]);
            let a = read_activity(&a);
            [a.disk_wait_usec, a.disk_wait_full_usec, a.cpu_wait_usec, a.cpu_wait_full_usec]
        };
        let both = line("some", 3) + &line("full", 2);
        assert_eq!(waits(&both), [Some(5), Some(4), Some(3), Some(2)]);
        assert_eq!(waits(&line("some", 3)), [Some(5), Some(4), None, None], "before Linux 5.13");
    }

    proptest! {
        #[test]
        fn any_text_parses_or_not(text in "([a-z_]{0,8} ?-?[0-9]{0,22}\n){0,6}|([0-9]:[0-9] ([a-z]{1,6}=?[0-9]{0,22} ?){0,3}\n){0,3}|.*") {
            let _ = (parse_bytes(&text), parse_limit(&text), parse_events(&text), parse_stat(&text));
            let _ = (parse_cpu(&text), parse_io(&text), parse_state(&text), parse_dying(&text));
        }
    }
}
