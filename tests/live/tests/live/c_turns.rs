//! Starts by turns: after a restart of dockerd, frozen, and failed.

use anyhow::{Context, Result, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, is_running, sh, status};

use super::gated::{Gated, make, queue};

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
    eventually("all of them run again", || all_run(&storm))?;
    drop((storm, gated));
    Ok(())
}

/// A dockerd that nobody hears of, as while it does not answer yet, until this is dropped.
struct Silent;

impl Silent {
    fn dockerd() -> Result<Silent> {
        sh("mv /run/docker.sock /run/docker.sock.away").map(|_| Silent)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = sh("mv /run/docker.sock.away /run/docker.sock");
    }
}

#[test]
fn after_a_restart_of_dockerd_they_run_by_turns_where_freezing_is_wanted() -> Result<()> {
    let ctlmgr = Ctlmgr::start("observe")?;
    std::fs::write("/etc/ctlmgr/config.d/90-freeze.toml", FREEZE)?;
    sh("systemctl reload ctlmgr.service")?;
    let storm = storm()?;
    sh("ctlmgr mode --job starts act")?;
    let silent = Silent::dockerd()?;
    sh("systemctl restart --no-block docker.service")?;
    // Between two starts of a container it has no cgroup.
    let frozen = || storm.iter().filter(|c| c.knob("cgroup.freeze").ok() == Some(1)).count();
    eventually("those of one kind wait for those of the other", || Ok(frozen() == 2))?;
    drop(silent);
    eventually("to dockerd all of them run", || all_run(&storm))?;
    sh("ctlmgr queue release")?;
    eventually("nobody waits any more", || Ok(frozen() == 0))?;
    sh("rm /etc/ctlmgr/config.d/90-freeze.toml")?;
    drop(storm);
    ctlmgr.stop_and_expect_pristine()
}
