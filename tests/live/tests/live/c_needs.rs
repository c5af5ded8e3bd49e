//! What a workload needs, of kinds that look larger than they are.

use anyhow::{Context, Result, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, install_hog, sh};

const MIB: u64 = 1 << 20;
/// What one process of the fork server made, and all of them have.
const SHARED_MIB: u64 = 60;
/// What the leak goes on using, and what it has at last.
const LIVE_MIB: u64 = 40;
const LEAKED_MIB: u64 = 1300;

/// Resident memory of all processes of a container, each counted by itself.
fn resident_mib(container: &Container) -> Result<u64> {
    let procs = container.cgroup.join("cgroup.procs");
    let kib = sh(&format!(
        "for pid in $(cat {}); do cat /proc/$pid/status 2>/dev/null; done | awk '/^VmRSS/ {{ n += $2 }} END {{ print n + 0 }}'",
        procs.display()
    ))?;
    Ok(kib.parse::<u64>()? / 1024)
}

/// The mean pace of the last seconds, 0–1, of a load generator that writes to this file.
fn pace(file: &str) -> Result<f64> {
    let mean = sh(&format!(
        "tail -n 10 {file} | sed 's/.*\"pace\":\\([0-9.]*\\).*/\\1/' | awk '{{ n += $1 }} END {{ print n / NR }}'"
    ))?;
    mean.parse().with_context(|| format!("{file}: {mean}"))
}

/// A service with a promise, a fork server, and one that leaks more than is left.
#[test]
fn a_leak_takes_nothing_from_who_was_promised_and_shared_pages_count_once() -> Result<()> {
    install_hog()?;
    sh("rm -rf /var/tmp/needs; mkdir -p /var/tmp/needs")?;
    let ctlmgr = Ctlmgr::start("act")?;
    let web = Container::run(
        "web",
        "--memory-reservation 500m -v /var/tmp/needs:/log \
         lab-hog /hog --size 500 --rate 20 --threads 4 --out /log/web",
    )?;
    let fork = Container::run(
        "fork",
        &format!(
            "busybox sh -c 'set=$(yes 0123456789abcde | head -c {}); \
             for i in 1 2 3 4 5 6; do (sleep 100000; echo $set >/dev/null) & done; wait'",
            SHARED_MIB * MIB
        ),
    )?;
    let need =
        |name: &str| -> Result<u64> { Ok(ctlmgr.verdict(name)?["demand"].as_u64().unwrap_or(0)) };
    eventually("web has its set", || Ok(web.knob("memory.current")? > 495 * MIB))?;
    eventually("the fork server has its processes", || {
        Ok(resident_mib(&fork)? > 6 * SHARED_MIB && need("fork")? > SHARED_MIB * MIB)
    })?;
    let counted = need("fork")?;
    ensure!(
        counted < 2 * SHARED_MIB * MIB,
        "{} MiB of {} resident",
        counted / MIB,
        resident_mib(&fork)?
    );
    ctlmgr.wait_protected(&web)?;
    let alone = pace("/var/tmp/needs/web")?;
    let leak = Container::run(
        "leak",
        &format!(
            "-v /var/tmp/needs:/log lab-hog /hog --first 900 --size {LEAKED_MIB} --live {LIVE_MIB} \
             --steps 35 --step-secs 1 --rate 20 --out /log/leak"
        ),
    )?;
    let mut least = u64::MAX;
    eventually("it has leaked all that it can", || {
        least = least.min(web.knob("memory.current")?);
        Ok(leak.knob("memory.current")? + leak.knob("memory.swap.current")?
            > (LEAKED_MIB - 20) * MIB)
    })?;
    let (web_pace, leak_pace) = (pace("/var/tmp/needs/web")?, pace("/var/tmp/needs/leak")?);
    let seen = format!(
        "web was left with {} MiB and does {web_pace} of its work, {alone} before, the leak {leak_pace} of its own; {}",
        least / MIB,
        sh("ctlmgr status; ctlmgr memory top; ctlmgr why leak")?
    );
    // How much goes while it takes its first 900 MiB is the speed of a machine that looks once a second.
    ensure!(least > 430 * MIB, "{seen}");
    ensure!(web.knob("memory.current")? > 480 * MIB, "{seen}");
    // Writing to swap takes of the processors, too, and some machines have few to spare.
    ensure!(web_pace > 0.5 * alone, "{seen}");
    drop((web, fork, leak));
    sh("rm -r /var/tmp/needs")?;
    ctlmgr.stop_and_expect_pristine()
}

/// One that lives by page cache, and one that has filled memory with what it wrote once: which is which is known while there is still room.
#[test]
fn page_cache_in_use_is_known_before_memory_is_short() -> Result<()> {
    install_hog()?;
    sh("rm -rf /var/tmp/needs; mkdir -p /var/tmp/needs")?;
    let ctlmgr = Ctlmgr::start("act")?;
    let cold = Container::run(
        "cold",
        "-v /var/tmp/needs:/log busybox \
         sh -c 'dd if=/dev/zero of=/log/cold bs=1M count=1000 2>/dev/null; sync; sleep 100000'",
    )?;
    let files = Container::run(
        "files",
        "-v /var/tmp/needs:/log \
         lab-hog /hog --size 300 --rate 20 --threads 4 --file /log/set --out /log/files",
    )?;
    let need = |name: &str| -> Result<u64> {
        Ok(ctlmgr.verdict(name)?["demand"].as_u64().unwrap_or(0) / MIB)
    };
    eventually("both hold what they have read and written", || {
        Ok(files.knob("memory.current")? > 290 * MIB && cold.knob("memory.current")? > 900 * MIB)
    })?;
    eventually("what is in use is need", || Ok(need("files")? > 290))?;
    let seen = sh("ctlmgr status; ctlmgr why files; ctlmgr why cold")?;
    ensure!(seen.matches("probes whether").count() > 0 && !seen.contains("contended"), "{seen}");
    ensure!(need("cold")? < 200, "{seen}");
    drop((files, cold));
    sh("rm -r /var/tmp/needs")?;
    ctlmgr.stop_and_expect_pristine()
}
