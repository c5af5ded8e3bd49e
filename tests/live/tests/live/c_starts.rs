//! Starts: what is learned from them, and what they leave each other.

use anyhow::{Context, Result, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, inspect, json, sh, status};
use serde_json::Value;

use super::gated::Gated;

#[test]
fn what_a_start_does_is_learned_and_kept() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let second = SecondDisk::mount()?;
    let write = |of, count| format!("dd if=/dev/zero of={of} {count} conv=fsync 2>/dev/null");
    let (first, then) = (write("/f", "bs=1M count=64"), write("/g", "bs=64k count=4"));
    let there = write("/data/h", "bs=1M count=24");
    let work = format!("{first}; {there}; while sleep 1; do {then}; done");
    let volume = SecondDisk::AT;
    let writer = Container::run("writer", &format!("-v {volume}:/data busybox sh -c '{work}'"))?;
    let learned = || -> Result<Option<Value>> {
        let list = json("ctlmgr profile list --json")?;
        let all = list.as_array().cloned().unwrap_or_default();
        let is_it = |p: &Value| {
            let written = p["profile"]["io"]["written"].as_u64();
            p["key"].as_str().is_some_and(|k| k.starts_with("busybox#"))
                && written >= Some(32 << 20)
        };
        Ok(all.into_iter().find(is_it))
    };
    eventually("its start is over and learned", || Ok(learned()?.is_some()))?;
    let profile = learned()?.context("it is there")?;
    assert_eq!(profile["profile"]["character"], "sequential-write", "{profile}");
    let disks = profile["profile"]["io"]["disks"].as_array().cloned().unwrap_or_default();
    let mut written: Vec<u64> = disks.iter().filter_map(|d| d["written"].as_u64()).collect();
    written.sort_unstable();
    ensure!(written.len() == 2 && written[0] >= 24 << 20 && written[1] >= 64 << 20, "{profile}");
    sh("systemctl restart ctlmgr.service")?;
    ensure!(learned()?.is_some(), "it outlives the daemon");
    // What it goes on to do is learned as well, of one whose start this daemon has not seen, too.
    let running = || -> Result<Value> {
        Ok(learned()?.map(|p| p["profile"]["running"].clone()).unwrap_or_default())
    };
    eventually("it is looked at while it runs", || Ok(running()?["looks"].as_u64() >= Some(1)))?;
    let found = running()?;
    let written = found["per_minute"]["written"].as_u64();
    ensure!(written > Some(4 << 20) && written < Some(32 << 20), "{found}");
    ensure!(found["character"] == "quiet" && found["held"].as_u64() > Some(1 << 20), "{found}");
    // A list of names is planned by it.
    sh("docker create --name shuffler --label ctlmgr.batch.class=random-write busybox true")?;
    let names = r#"{"containers": [{"name": "writer"}, {"name": "shuffler"}]}"#;
    let apart = eventually("the two are planned apart", || {
        let plan = json(&format!("echo '{names}' | ctlmgr batch run --dry-run --json -"))?;
        Ok(plan["batches"].as_array().is_some_and(|b| b.len() == 2))
    });
    sh("docker rm shuffler")?;
    apart?;
    sh("ctlmgr profile export /run/p.json")?;
    let key = profile["key"].as_str().unwrap_or_default();
    sh(&format!("ctlmgr profile forget \"{key}\""))?;
    ensure!(learned()?.is_none());
    sh("ctlmgr profile import /run/p.json && ctlmgr profile list")?;
    ensure!(learned()?.is_some());
    let (code, text) = status("ctlmgr profile show nothing")?;
    ensure!(code == 1 && text.contains("no profile `nothing`"), "{text}");
    drop((writer, second));
    Ok(())
}

/// A disk of its own, in memory.
struct SecondDisk;

impl SecondDisk {
    const AT: &str = "/mnt/second";

    fn mount() -> Result<SecondDisk> {
        sh("modprobe null_blk nr_devices=1 memory_backed=1 gb=1 && mkfs.ext4 -q /dev/nullb0")?;
        let disk = SecondDisk;
        sh(&format!("mkdir -p {0} && mount /dev/nullb0 {0}", Self::AT))?;
        Ok(disk)
    }
}

impl Drop for SecondDisk {
    fn drop(&mut self) {
        let _ = sh(&format!("umount {}; rmmod null_blk", Self::AT));
    }
}

/// Bytes that the machine has read from its disks, in MiB.
fn read_mib() -> Result<u64> {
    Ok(sh("awk '$1 == \"pgpgin\" { print int($2 / 1024) }' /proc/vmstat")?.parse()?)
}

/// Reads 900 MiB of the disk twice, with pauses: it needs page cache, and hardly a processor.
const READ: &str = "for pass in 1 2; do for part in 0 1 2 3 4; do \
    dd if=/dev/vda of=/dev/null bs=1M skip=$((AT + part * 180)) count=180; sleep 1; done; done 2>/dev/null";
/// Keeps more than one of two processors busy while it reads.
const SUM: &str = "dd if=/dev/vda bs=1M skip=$AT count=600 2>/dev/null | md5sum";

/// A job that is made and does not run yet.
fn job(name: &str, arguments: &str, work: &str) -> Result<Container> {
    sh(&format!("docker create --name {name} --network none {arguments} busybox sh -c '{work}'"))?;
    Ok(Container { name: name.to_owned(), cgroup: std::path::PathBuf::new() })
}

fn reader(name: &str, at: u32, work: &str) -> Result<Container> {
    job(name, &format!("--device /dev/vda -e AT={at}"), work)
}

fn start_all(jobs: &[Container]) -> Result<()> {
    jobs.iter().try_for_each(|job| {
        sh(&format!("docker start {} >/run/{}.out 2>&1 &", job.name, job.name)).map(drop)
    })
}

fn expect_end(jobs: &[Container]) -> Result<()> {
    jobs.iter().try_for_each(|job| {
        eventually(
            "it has done its work",
            || Ok(inspect(&job.name)?["State"]["Status"] == "exited"),
        )
    })
}

fn expect_profile(what: &str, is_it: impl Fn(&Value) -> bool) -> Result<()> {
    eventually(what, || {
        let all = json("ctlmgr profile list --json")?;
        Ok(all.as_array().into_iter().flatten().any(|p| is_it(&p["profile"])))
    })
}

/// Two whose sets have no room in memory together would read all of it from the disk each time; and two that work as
/// they read have no room on the processors.
#[test]
fn starts_leave_each_other_the_page_cache_and_the_processors_that_they_need() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let _gated = Gated::enable("")?;
    // Each kind is learned from one that starts alone.
    let first = [reader("first", 0, READ)?];
    start_all(&first)?;
    expect_profile("how much it reads is learned", |p| {
        let read = p["io"]["read"].as_u64();
        p["character"] == "sequential-read" && read > Some(800 << 20) && read < Some(1000 << 20)
    })?;
    let summer = [reader("sum", 3000, SUM)?];
    start_all(&summer)?;
    expect_profile("how hard it works is learned", |p| {
        let used = |what: &str| p["io"][what].as_u64().unwrap_or_default();
        // In the mean, in thousandths of a processor.
        let busy = used("cpu_usec") / p["lasts"].as_u64().unwrap_or(u64::MAX).max(1);
        let read = used("read") >> 20;
        (500..700).contains(&read) && busy > 1000
    })?;
    sh("ctlmgr mode --job starts act; echo 3 > /proc/sys/vm/drop_caches")?;
    let before = read_mib()?;
    let readers = [reader("one", 1000, READ)?, reader("two", 2000, READ)?];
    start_all(&readers)?;
    eventually("one of them waits for page cache", || {
        Ok(sh("ctlmgr queue")?.contains("what it reads does not fit into memory beside the others"))
    })?;
    expect_end(&readers)?;
    let read = read_mib()? - before;
    ensure!(read < 2600, "{read} MiB for two times 900: together they read it all twice");
    let summers = [reader("sum1", 1000, SUM)?, reader("sum2", 2000, SUM)?];
    start_all(&summers)?;
    eventually("one of them waits for a processor", || {
        Ok(sh("ctlmgr queue")?.contains("all processors are busy with starts"))
    })?;
    expect_end(&summers)
}
