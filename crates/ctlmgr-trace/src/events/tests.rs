use std::fs;
use std::path::Path;

use super::*;

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const ROOM: &str = "sys/kernel/tracing/instances/ctlmgr";
const DISK: Disk = Disk { major: 254, minor: 16 };

/// A host on which task 7 is in the cgroup `a`, and one may trace.
fn host() -> (tempfile::TempDir, Host, CgroupId) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write(root, "sys/fs/cgroup/cgroup.controllers", "io");
    write(root, "sys/fs/cgroup/a/io.stat", "");
    // A cgroup within the container's, which counts nothing.
    fs::create_dir(root.join("sys/fs/cgroup/a/init")).unwrap();
    write(root, "proc/7/cgroup", "0::/a/init\n");
    for file in ["buffer_size_kb", "trace_pipe", "events/block/block_bio_queue/enable"] {
        write(root, &format!("{ROOM}/{file}"), "0");
    }
    write(root, &format!("{ROOM}/trace_pipe"), "");
    let host = Host::fake(root);
    let id = host.cgroups().unwrap().open(&CgroupPath::new("a")).unwrap().unwrap().id();
    (dir, host, id)
}

fn add(root: &Path, text: &str) {
    use std::io::Write;
    let mut pipe =
        OpenOptions::new().append(true).open(root.join(ROOM).join("trace_pipe")).unwrap();
    pipe.write_all(text.as_bytes()).unwrap();
}

fn queued(task: u32, device: &str, from: u64) -> String {
    format!("x-{task} [000] ..... 1.0: block_bio_queue: {device} R {from} + 8 [x]\n")
}

#[test]
fn a_tasks_requests_are_its_containers() {
    let (dir, host, id) = host();
    let trace = EventTrace::attach(&host).unwrap();
    let enable = format!("{ROOM}/events/block/block_bio_queue/enable");
    assert_eq!(host.read(&enable).unwrap().unwrap(), "1");
    let shape = || {
        trace.read();
        trace.shape(id, DISK)
    };
    assert_eq!(shape(), None);
    let (first, second) = (queued(7, "254,16", 0), queued(7, "254,16", 8));
    // The second one comes in two parts.
    add(dir.path(), &format!("{first}{}", &second[..20]));
    assert_eq!(shape().unwrap().read.count, 1);
    add(dir.path(), &second[20..]);
    // It has ended meanwhile.
    fs::remove_dir_all(dir.path().join("proc/7")).unwrap();
    let shape = shape().unwrap();
    assert_eq!((shape.read.count, shape.read.bytes.0, shape.write.count), (2, 8192, 0));
}

#[test]
fn what_is_written_back_is_the_owners_and_a_partitions_is_its_disks() {
    let (dir, host, id) = host();
    let trace = EventTrace::attach(&host).unwrap();
    write(dir.path(), "sys/devices/vdb/dev", "254:16\n");
    write(dir.path(), "sys/devices/vdb/vdb1/partition", "1\n");
    fs::create_dir_all(dir.path().join("sys/dev/block")).unwrap();
    let (from, to) = ("sys/devices/vdb/vdb1", "sys/dev/block/254:17");
    std::os::unix::fs::symlink(dir.path().join(from), dir.path().join(to)).unwrap();
    // What the worker does after that is nobody's.
    let wrote = "<...>-61 [000] ..... 1.1: block_bio_queue: 254,17 W 0 + 16 [kworker/u8:1]\n";
    add(
        dir.path(),
        &format!(
            "kworker/u8:1-61 [000] ..... 1.0: writeback_single_inode_start: bdi 254:16: ino=2 \
             cgroup_ino={}\n{wrote}<...>-61 [000] ..... 1.2: writeback_single_inode: bdi 254:16: x\n\
             {wrote}{}{}",
            id.0,
            queued(7, "254,17", 64),
            queued(99, "254,16", 64)
        ),
    );
    trace.read();
    let shape = trace.shape(id, DISK).unwrap();
    assert_eq!((shape.write.bytes.0, shape.read.count), (8192, 1));
}

#[test]
fn where_it_cannot_be_the_reason_names_the_file() {
    let (dir, host, _) = host();
    fs::remove_dir_all(dir.path().join("sys/kernel")).unwrap();
    let error = EventTrace::attach(&host).unwrap_err();
    assert!(error.to_string().contains("instances/ctlmgr"), "{error}");
    // To take away what is not there does no harm.
    EventTrace::remove(&host);
}
