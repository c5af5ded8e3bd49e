use std::path::Path;

use super::*;
use proptest::prelude::*;

/// A directory that looks like a machine's sysfs.
struct Machine(tempfile::TempDir);

/// A processor as sysfs shows it.
#[derive(Clone, Default)]
struct Cpu {
    socket: u32,
    core: String,
    /// Level and processors of its unified caches.
    caches: Vec<(u8, String, &'static str)>,
    cluster: Option<String>,
    capacity: Option<u32>,
}

impl Machine {
    fn new(online: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine.write("sys/devices/system/cpu/online", online);
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path: &Path = &self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn cpu(&self, number: u32, cpu: &Cpu) {
        let dir = format!("sys/devices/system/cpu/cpu{number}");
        self.write(&format!("{dir}/topology/physical_package_id"), &cpu.socket.to_string());
        self.write(&format!("{dir}/topology/core_cpus_list"), &cpu.core);
        if let Some(cluster) = &cpu.cluster {
            self.write(&format!("{dir}/topology/cluster_cpus_list"), cluster);
        }
        if let Some(capacity) = cpu.capacity {
            self.write(&format!("{dir}/cpu_capacity"), &capacity.to_string());
        }
        let first = [(1, "Data", &cpu.core, "32K"), (1, "Instruction", &cpu.core, "32K")];
        let all =
            first.into_iter().chain(cpu.caches.iter().map(|(l, c, s)| (*l, "Unified", c, *s)));
        for (index, (level, kind, cpus, size)) in all.enumerate() {
            let dir = format!("{dir}/cache/index{index}");
            self.write(&format!("{dir}/level"), &level.to_string());
            self.write(&format!("{dir}/type"), kind);
            self.write(&format!("{dir}/shared_cpu_list"), cpus);
            self.write(&format!("{dir}/size"), size);
        }
    }

    fn nodes(&self, nodes: &[&str]) {
        self.write("sys/devices/system/node/online", &format!("0-{}", nodes.len() - 1));
        for (number, cpus) in nodes.iter().enumerate() {
            self.write(&format!("sys/devices/system/node/node{number}/cpulist"), cpus);
        }
    }

    fn read(&self) -> Topology {
        read_topology(&Host::fake(self.0.path())).unwrap()
    }
}

/// Sockets of complexes of cores of two threads; the second threads come after all cores, as on AMD.
fn complexes(
    sockets: u32,
    per_socket: u32,
    cores: u32,
    nodes_per_socket: u32,
    l3: &'static str,
) -> Machine {
    let all = sockets * per_socket * cores;
    let machine = Machine::new(&format!("0-{}", 2 * all - 1));
    let list = |from: u32, n: u32| {
        format!("{from}-{},{}-{}", from + n - 1, all + from, all + from + n - 1)
    };
    for core in 0..all {
        let complex = core / cores;
        let own = format!("{core},{}", core + all);
        let cpu = Cpu {
            socket: complex / per_socket,
            core: own.clone(),
            caches: vec![(2, own, "512K"), (3, list(complex * cores, cores), l3)],
            ..Cpu::default()
        };
        machine.cpu(core, &cpu);
        machine.cpu(core + all, &cpu);
    }
    let nodes = sockets * nodes_per_socket;
    let lists: Vec<String> = (0..nodes).map(|n| list(n * all / nodes, all / nodes)).collect();
    machine.nodes(&lists.iter().map(String::as_str).collect::<Vec<_>>());
    machine
}

fn shapes(topology: &Topology) -> Vec<(usize, usize, u32, u32)> {
    topology.domains.iter().map(|d| (d.cpus.len(), d.cores.len(), d.numa, d.socket)).collect()
}

#[test]
fn epyc_7401_has_eight_complexes_of_three_cores_in_four_nodes_of_a_socket() {
    let topology = complexes(2, 8, 3, 4, "8192K").read();
    assert_eq!(topology.domains.len(), 16);
    assert_eq!(shapes(&topology)[..3], [(6, 3, 0, 0), (6, 3, 0, 0), (6, 3, 1, 0)]);
    assert_eq!(shapes(&topology)[15], (6, 3, 7, 1));
    assert_eq!(topology.domains[1].cpus.to_string(), "3-5,51-53");
    assert_eq!(topology.domains[1].shared.to_string(), "L3 8 MiB");
}

#[test]
fn epyc_9004_has_complexes_of_eight_or_sixteen_cores() {
    let genoa = complexes(1, 12, 8, 1, "32768K").read();
    assert_eq!((genoa.domains.len(), shapes(&genoa)[11]), (12, (16, 8, 0, 0)));
    let bergamo = complexes(1, 8, 16, 4, "16384K").read();
    assert_eq!((bergamo.domains.len(), shapes(&bergamo)[7]), (8, (32, 16, 3, 0)));
}

#[test]
fn a_xeon_has_one_domain_for_each_of_its_sub_numa_nodes() {
    let one = complexes(2, 1, 28, 1, "39424K").read();
    assert_eq!(shapes(&one), [(56, 28, 0, 0), (56, 28, 1, 1)]);
    // The cache spans both nodes of a socket; memory does not.
    let snc = complexes(2, 1, 28, 2, "39424K").read();
    assert_eq!(shapes(&snc), [(28, 14, 0, 0), (28, 14, 1, 0), (28, 14, 2, 1), (28, 14, 3, 1)]);
}

#[test]
fn an_ampere_without_l3_has_its_nodes_or_clusters() {
    let machine = Machine::new("0-7");
    for core in 0..8_u32 {
        let own = core.to_string();
        machine.cpu(
            core,
            &Cpu { core: own.clone(), caches: vec![(2, own, "1024K")], ..Cpu::default() },
        );
    }
    machine.nodes(&["0-3", "4-7"]);
    let topology = machine.read();
    assert_eq!(shapes(&topology), [(4, 4, 0, 0), (4, 4, 1, 0)]);
    assert_eq!(topology.domains[0].shared, Shared::Node);
    for core in 0..8_u32 {
        let first = core / 2 * 2;
        let cluster = format!("{first}-{}", first + 1);
        machine.write(
            &format!("sys/devices/system/cpu/cpu{core}/topology/cluster_cpus_list"),
            &cluster,
        );
    }
    let topology = machine.read();
    assert_eq!(topology.domains.len(), 4);
    assert_eq!(topology.domains[3].shared, Shared::Cluster);
}

#[test]
fn a_hybrid_desktop_has_one_domain_and_slow_cores() {
    let machine = Machine::new("0-7");
    let cpu = |core: &str, l2: &str| Cpu {
        core: core.into(),
        caches: vec![(2, l2.into(), "2048K"), (3, "0-7".into(), "30720K")],
        ..Cpu::default()
    };
    for fast in 0..4_u32 {
        let core = if fast < 2 { "0-1" } else { "2-3" };
        machine.cpu(fast, &cpu(core, core));
    }
    (4..8_u32).for_each(|slow| machine.cpu(slow, &cpu(&slow.to_string(), "4-7")));
    machine.write("sys/devices/cpu_atom/cpus", "4-7");
    let topology = machine.read();
    assert_eq!(shapes(&topology), [(8, 6, 0, 0)]);
    assert_eq!(topology.slow.to_string(), "4-7");
}

#[test]
fn processors_of_two_capacities_are_told_apart() {
    let machine = Machine::new("0-3");
    for core in 0..4_u32 {
        let capacity = Some(if core < 2 { 446 } else { 1024 });
        machine.cpu(core, &Cpu { core: core.to_string(), capacity, ..Cpu::default() });
    }
    assert_eq!(machine.read().slow.to_string(), "0-1");
}

#[test]
fn a_small_machine_that_tells_nothing_is_one_domain() {
    let machine = Machine::new("0-1");
    let topology = machine.read();
    assert_eq!(shapes(&topology), [(2, 2, 0, 0)]);
    assert_eq!(topology.domains[0].shared, Shared::Node);
    let none = Machine(tempfile::tempdir().unwrap());
    assert!(read_topology(&Host::fake(none.0.path())).is_err());
}

#[test]
fn offline_and_isolated_processors_are_named() {
    let machine = complexes(1, 2, 2, 1, "16384K");
    machine.write("sys/devices/system/cpu/present", "0-7");
    machine.write("sys/devices/system/cpu/online", "0-2,4-7");
    machine.write("sys/devices/system/cpu/isolated", "1");
    let topology = machine.read();
    assert_eq!(shapes(&topology), [(4, 2, 0, 0), (3, 2, 0, 0)]);
    assert_eq!(
        (topology.offline.to_string(), topology.isolated.to_string()),
        ("3".into(), "1".into())
    );
}

proptest! {
    // Each case is a tree of files.
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn any_files_are_read_or_refused(
        online in "[0-9,-]{0,6}", list in "[0-9,-]{0,6}", level in "[0-9]{0,3}", id in "-?[0-9]{0,11}",
    ) {
        let machine = Machine::new(&online);
        for cpu in 0..4 {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            machine.write(&format!("{dir}/topology/physical_package_id"), &id);
            machine.write(&format!("{dir}/topology/core_cpus_list"), &list);
            machine.write(&format!("{dir}/cache/index0/level"), &level);
            machine.write(&format!("{dir}/cache/index0/type"), "Unified");
            machine.write(&format!("{dir}/cache/index0/shared_cpu_list"), &list);
        }
        if let Ok(topology) = read_topology(&Host::fake(machine.0.path())) {
            let all: Vec<u32> = topology.domains.iter().flat_map(|d| d.cpus.iter()).collect();
            let once: BTreeSet<u32> = all.iter().copied().collect();
            prop_assert_eq!(once.len(), all.len(), "in one domain each");
            prop_assert!(topology.online.iter().all(|cpu| once.contains(&cpu)));
        }
    }
}
