//! Starts: what is learned from them, and by which turns they go.

use anyhow::{Context, Result, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, json, sh, status};
use serde_json::Value;

use super::gated::{Gated, is_running, make, queue};

/// Who does nothing is not over before the next one is there, as slow as this machine is.
const FREEZE: &str = "[starts]\nfreeze = true\nsettle_secs = 120\n";

/// When a unit, since it was started last, has logged something (with these fields), in seconds since the boot.
fn logged(unit: &str, what: &str, fields: &str) -> Result<Vec<f64>> {
    let log = sh(&format!(
        "journalctl -b -o short-monotonic --grep '{what}' --case-sensitive=true {fields} \
         _SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value {unit}.service)"
    ))?;
    let times =
        log.lines().filter_map(|l| l.strip_prefix('[')?.split(']').next()?.trim().parse().ok());
    Ok(times.collect())
}

/// What dockerd fails to start is over at once: who waits for it would wait for nothing.
#[test]
fn a_start_that_fails_at_dockerd_keeps_nobody_waiting() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let _gated = Gated::enable("")?;
    sh(
        "docker create --name broken --network none --label ctlmgr.batch.class=random-read busybox /no/such/program",
    )?;
    let _broken = Container { name: "broken".into(), cgroup: std::path::PathBuf::new() };
    let _scan = make("scan", "sequential-read")?;
    sh("ctlmgr mode --job starts act")?;
    let (code, told) = status("docker start broken")?;
    ensure!(code != 0 && told.contains("/no/such/program"), "{told}");
    eventually("it is over", || {
        let queue = queue()?;
        ensure!(queue["waiting"].as_array().is_some_and(Vec::is_empty));
        Ok(queue["starting"].as_array().is_some_and(Vec::is_empty))
    })?;
    let last = |what: &str| -> Result<f64> {
        Ok(*logged("ctlmgr", what, "F_CONTAINER=broken")?.last().context("never")?)
    };
    let lasted = last("start is over")? - last("may start")?;
    ensure!(lasted < 20.0, "it was given up for want of news, after {lasted} s");
    Ok(())
}

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

#[test]
fn one_that_nobody_asked_about_is_frozen_until_its_turn_and_never_left_so() -> Result<()> {
    std::fs::write("/etc/ctlmgr/config.d/90-freeze.toml", FREEZE)?;
    let ctlmgr = Ctlmgr::start("observe")?;
    std::fs::write("/etc/ctlmgr/config.d/90-freeze.toml", FREEZE)?;
    sh("ctlmgr mode --job starts act")?;
    let label = "--label ctlmgr.batch.class";
    let _db = Container::run("db", &format!("{label}=random-read busybox sleep 100000"))?;
    eventually("db starts", || Ok(queue()?["starting"][0]["name"] == "db"))?;
    let scan = Container::run("scan", &format!("{label}=sequential-read busybox sleep 100000"))?;
    eventually("scan is frozen", || Ok(scan.knob("cgroup.freeze")? == 1))?;
    ensure!(sh("ctlmgr queue")?.contains("behind db"));
    ensure!(sh("ctlmgr diff")?.contains("cgroup.freeze"));
    sh("ctlmgr queue skip scan")?;
    eventually("scan runs on", || Ok(scan.knob("cgroup.freeze")? == 0))?;
    // And whoever stops the daemon in the midst of it finds nobody frozen.
    let late = Container::run("late", &format!("{label}=sequential-read busybox sleep 100000"))?;
    eventually("late is frozen", || Ok(late.knob("cgroup.freeze")? == 1))?;
    let result = ctlmgr.stop_and_expect_pristine();
    assert_eq!(late.knob("cgroup.freeze")?, 0);
    sh("rm /etc/ctlmgr/config.d/90-freeze.toml")?;
    result
}

/// Two that fight for a disk, twice, which dockerd starts again by itself.
fn storm() -> Result<Vec<Container>> {
    let classes = ["random-read", "sequential-read", "random-read", "sequential-read"];
    let run = |(i, class): (usize, &&str)| {
        let label = format!("--label ctlmgr.batch.class={class}");
        Container::run(
            &format!("s{i}"),
            &format!("--restart always --stop-timeout 1 {label} busybox sleep 100000"),
        )
    };
    classes.iter().enumerate().map(run).collect()
}

fn all_run(storm: &[Container]) -> Result<bool> {
    storm.iter().map(|c| is_running(&c.name)).try_fold(true, |all, one| Ok(all & one?))
}

#[test]
fn after_a_restart_of_dockerd_the_wrapper_lets_them_start_by_turns_and_all_come_up() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let gated = Gated::enable("--runtime")?;
    let storm = storm()?;
    sh("ctlmgr mode --job starts act")?;
    sh("systemctl restart --no-block docker.service")?;
    // dockerd answers nobody yet, and is not needed for this.
    let held = || Ok(queue()?["waiting"].as_array().is_some_and(|all| all.len() == 2));
    eventually("those of one kind wait for those of the other", held)?;
    eventually("all of them run again", || Ok(status("docker ps")?.0 == 0 && all_run(&storm)?))?;
    drop((storm, gated));
    Ok(())
}

#[test]
fn after_a_restart_of_dockerd_they_run_by_turns_where_freezing_is_wanted() -> Result<()> {
    let ctlmgr = Ctlmgr::start("observe")?;
    std::fs::write("/etc/ctlmgr/config.d/90-freeze.toml", FREEZE)?;
    sh("systemctl reload ctlmgr.service")?;
    let storm = storm()?;
    sh("ctlmgr mode --job starts act && systemctl restart docker.service")?;
    // Between two starts of a container it has no cgroup.
    let frozen = || storm.iter().filter(|c| c.knob("cgroup.freeze").ok() == Some(1)).count();
    eventually("those of one kind wait for those of the other", || Ok(frozen() == 2))?;
    ensure!(all_run(&storm)?, "to dockerd all of them run");
    // They were, before dockerd told of anything.
    let first = *logged("ctlmgr", "cgroup.freeze", "")?.first().context("frozen")?;
    let ready = *logged("docker", "API listen on", "")?.first().context("dockerd answers")?;
    ensure!(first < ready, "frozen at {first}, dockerd answers from {ready} on");
    sh("ctlmgr queue release")?;
    eventually("nobody waits any more", || Ok(frozen() == 0))?;
    sh("rm /etc/ctlmgr/config.d/90-freeze.toml")?;
    drop(storm);
    ctlmgr.stop_and_expect_pristine()
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
        eventually("it has done its work", || {
            Ok(sh(&format!("docker inspect -f '{{{{.State.Status}}}}' {}", job.name))? == "exited")
        })
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
