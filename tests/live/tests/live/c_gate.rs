//! The gate between dockerd and its clients: who is held, and what happens to them when one of its parts dies.

use anyhow::{Context, Result, bail, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, is_running, json, sh, status};
use serde_json::Value;

use super::gated::{Gated, make, queue, waits};

const CONFIG: &str = "/etc/docker/daemon.json";

fn plugins() -> Result<Value> {
    json("docker info --format '{{json .Plugins.Authorization}}'")
}

#[test]
fn enable_and_disable_leave_dockerds_configuration_as_it_was() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let before = std::fs::read_to_string(CONFIG).context(CONFIG)?;
    let gated = Gated::enable("")?;
    ensure!(sh("ctlmgr docker status")?.contains("authorization plugin: enabled"));
    let during: Value = serde_json::from_str(&std::fs::read_to_string(CONFIG)?)?;
    let was: Value = serde_json::from_str(&before)?;
    for (key, value) in was.as_object().into_iter().flatten() {
        assert_eq!(&during[key], value, "{key} stays");
    }
    ensure!(sh("ctlmgr docker enable")?.contains("says so already"));
    sh("docker ps && docker run --rm --network none busybox true")?;
    sh("systemctl restart docker.service && docker ps")?;
    assert_eq!(plugins()?, serde_json::json!(["ctlmgr"]));
    drop(gated);
    assert_eq!(std::fs::read_to_string(CONFIG)?, before);
    sh("docker run --rm --network none busybox true")?;
    let (code, text) = status("systemctl is-active ctlmgr-docker.socket ctlmgr-docker.service")?;
    ensure!(code != 0 && !text.contains("\nactive"), "{text}");
    Ok(())
}

#[test]
fn a_configuration_that_dockerd_would_refuse_is_not_written() -> Result<()> {
    let before = std::fs::read_to_string(CONFIG)?;
    std::fs::write(CONFIG, "{\"authorization-plugins\": \"opa\"}")?;
    let (code, text) = status("ctlmgr docker enable")?;
    std::fs::write(CONFIG, &before)?;
    ensure!(code == 1 && text.contains("authorization-plugins is no list of names"), "{text}");
    std::fs::write(CONFIG, "{\"no-such-key\": 1}")?;
    let (code, text) = status("ctlmgr docker enable")?;
    let after = std::fs::read_to_string(CONFIG)?;
    std::fs::write(CONFIG, &before)?;
    ensure!(code == 1 && text.contains("no-such-key"), "{text}");
    assert_eq!(after, "{\"no-such-key\": 1}");
    sh("docker ps; systemctl disable --now ctlmgr-docker.socket").map(drop)
}

#[test]
fn one_waits_for_another_and_the_operator_lets_it_go() -> Result<()> {
    let ctlmgr = Ctlmgr::start("observe")?;
    // Who does nothing is not over before the next one is there, as slow as this machine is.
    let settings = "/etc/ctlmgr/config.d/90-settle.toml";
    std::fs::write(settings, "[starts]\nsettle_secs = 120\n")?;
    sh("systemctl reload ctlmgr.service")?;
    let _gated = Gated::enable("")?;
    let (db, scan) = (make("db", "random-read")?, make("scan", "sequential-read")?);
    sh("ctlmgr mode --job starts act")?;
    sh(&format!("docker start {}", db.name))?;
    let id = sh("docker inspect -f '{{.Id}}' scan")?;
    // By the beginning of its id, as people do.
    sh(&format!("docker start {} >/run/scan.out 2>&1 &", &id[..12]))?;
    eventually("scan waits", || waits("scan"))?;
    ensure!(!is_running("scan")?, "it is held");
    let queue = queue()?;
    assert_eq!(queue["waiting"][0]["behind"], serde_json::json!(["db"]));
    ensure!(
        sh("ctlmgr queue")?.contains("sequential-read beside those costs 2.00, more than 1.25")
    );
    // Everything else goes on.
    sh("docker ps && docker inspect scan && docker stop -t 0 scan")?;
    sh("ctlmgr queue skip scan")?;
    eventually("scan runs", || is_running(&scan.name))?;
    std::fs::remove_file(settings)?;
    drop(ctlmgr);
    Ok(())
}

/// Nobody who is held pays for it that dockerd asks no more.
#[test]
fn a_start_that_is_held_is_refused_when_cancelled_and_goes_through_when_dockerd_stops_asking()
-> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let gated = Gated::enable("")?;
    let late = make("late", "quiet")?;
    let held = make("held", "quiet")?;
    sh("ctlmgr mode --job starts act; ctlmgr queue hold")?;
    sh("(docker start late; echo status $?) >/run/late.out 2>&1 &")?;
    eventually("late waits", || waits(&late.name))?;
    sh("ctlmgr queue cancel late")?;
    eventually("the client was told", || {
        let text = std::fs::read_to_string("/run/late.out").unwrap_or_default();
        Ok(text.contains("cancelled by the operator") && text.contains("status 1"))
    })?;
    ensure!(!is_running("late")?);
    sh("(docker start held; echo status $?) >/run/held.out 2>&1 &")?;
    eventually("held waits", || waits(&held.name))?;
    drop(gated);
    eventually("the client has its answer", || {
        Ok(std::fs::read_to_string("/run/held.out").unwrap_or_default().contains("status"))
    })?;
    let told = std::fs::read_to_string("/run/held.out")?;
    ensure!(told.contains("status 0") && is_running("held")?, "{told}");
    Ok(())
}

/// Milliseconds that a command takes.
fn time(command: &str) -> Result<u64> {
    let began = std::time::Instant::now();
    sh(command)?;
    Ok(u64::try_from(began.elapsed().as_millis())?)
}

#[test]
fn docker_works_while_ctlmgrd_hangs_is_dead_or_comes_back() -> Result<()> {
    let ctlmgr = Ctlmgr::start("observe")?;
    let _gated = Gated::enable("")?;
    let web = make("web", "random-read")?;
    sh("ctlmgr mode --job starts act")?;
    let start = |what: &str| -> Result<()> {
        let list = time("docker ps")?;
        let free = time(&format!("docker start {}", web.name))?;
        println!("{what}: docker ps {list} ms, docker start {free} ms");
        sh("docker stop -t 0 web").map(drop)
    };
    start("alive")?;
    sh("systemctl kill --kill-whom=main -s STOP ctlmgr.service")?;
    let result = start("hung");
    sh("systemctl kill --kill-whom=main -s CONT ctlmgr.service")?;
    result?;
    let unasked = sh("journalctl -b -u ctlmgr-docker.service | grep -c 'allowed unasked'")?;
    ensure!(unasked.parse::<u32>()? >= 1, "the plugin says so");
    sh("test -s /run/ctlmgr-docker/silent.docker").context("to the wrapper, too")?;
    // Held while the daemon dies: the start goes through. (One that was let go just now would not wait.)
    let held = make("held", "random-read")?;
    sh("ctlmgr queue hold; docker start held >/run/held.out 2>&1 &")?;
    eventually("it waits", || waits("held"))?;
    sh("systemctl kill --kill-whom=main -s KILL ctlmgr.service")?;
    eventually("it runs", || is_running(&held.name))?;
    sh("systemctl stop ctlmgr.service ctlmgr.socket")?;
    start("stopped")?;
    sh("systemctl start ctlmgr.socket ctlmgr.service")?;
    // It dies again and again, while systemd keeps its socket open.
    let dropin = "/run/systemd/system/ctlmgr.service.d";
    sh(&format!(
        "mkdir -p {dropin}; printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' >{dropin}/bad.conf; \
         systemctl daemon-reload; systemctl kill --kill-whom=main -s KILL ctlmgr.service"
    ))?;
    let result = start("crash-looping");
    sh(&format!(
        "rm -r {dropin}; systemctl daemon-reload; systemctl reset-failed; \
         systemctl start ctlmgr.socket ctlmgr.service"
    ))?;
    drop(ctlmgr);
    result
}

#[test]
fn a_plugin_that_dies_with_a_start_in_its_hands_loses_nothing() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let _gated = Gated::enable("")?;
    let web = make("web", "random-read")?;
    sh("ctlmgr mode --job starts act; ctlmgr queue hold")?;
    sh("docker start web >/run/web.out 2>&1 &")?;
    eventually("web waits", || waits("web"))?;
    let kill = || {
        let pid = || sh("systemctl show -P MainPID ctlmgr-docker.service");
        let before = pid()?;
        sh("systemctl kill --kill-whom=main -s KILL ctlmgr-docker.service")?;
        eventually("there is another plugin", || Ok(!["0", &before].contains(&pid()?.as_str())))
    };
    let stored = || sh("systemctl show -P NFileDescriptorStore ctlmgr-docker.service");
    eventually("systemd keeps its connection", || Ok(stored()? == "1"))?;
    kill()?;
    eventually("the next one goes on with it", || Ok(stored()? == "0"))?;
    // It would be forgotten five seconds after the last question.
    let waited = || -> Result<Option<u64>> { Ok(queue()?["waiting"][0]["waited_ms"].as_u64()) };
    eventually("it waits still", || Ok(waited()? > Some(12_000)))?;
    sh("docker ps")?;
    ensure!(!is_running(&web.name)?);
    sh("ctlmgr queue release")?;
    eventually("web runs", || is_running(&web.name))?;
    ensure!(sh("cat /run/web.out")? == "web", "its client was told so");

    sh("docker kill web; ctlmgr queue hold")?;
    let starts = || Ok(queue()?["starting"].as_array().is_some_and(|all| !all.is_empty()));
    eventually("its first start is over", || starts().map(|starts| !starts))?;
    sh("docker start web >/run/web.out 2>&1 &")?;
    eventually("web waits again", || Ok(waits("web")? && stored()? == "1"))?;
    kill()?;
    eventually("the next one goes on with it", || Ok(stored()? == "0"))?;
    kill()?;
    eventually("who was held by two that died is let go", || is_running(&web.name))?;
    sh("ctlmgr queue release; docker ps")?;
    let said = sh("ctlmgr docker status")?;
    ensure!(said.contains("authorization plugin: enabled"), "two crashes are no failure: {said}");
    Ok(())
}

#[test]
fn a_plugin_that_cannot_run_is_taken_out_of_dockerd() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let before = std::fs::read_to_string(CONFIG)?;
    let gated = Gated::enable("")?;
    let dropin = "/run/systemd/system/ctlmgr-docker.service.d";
    sh(&format!(
        "mkdir -p {dropin}; printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' >{dropin}/bad.conf; \
         systemctl daemon-reload; systemctl kill --kill-whom=main -s KILL ctlmgr-docker.service"
    ))?;
    let result = eventually("dockerd does without it", || {
        Ok(std::fs::read_to_string(CONFIG)? == before && status("docker ps")?.0 == 0)
    });
    sh(&format!("rm -r {dropin}; systemctl daemon-reload; systemctl reset-failed"))?;
    drop(gated);
    result
}

#[test]
fn the_wrapper_asks_for_restarts_too_and_disabling_leaves_its_containers_able_to_start()
-> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let gated = Gated::enable("--runtime")?;
    sh("ctlmgr mode --job starts act")?;
    let id =
        sh("docker run -d --name loop --network none --restart always busybox sh -c 'sleep 1'")?;
    let _loop = Container { name: "loop".into(), cgroup: std::path::PathBuf::new() };
    assert_eq!(sh("docker inspect -f '{{.HostConfig.Runtime}}' loop")?, "ctlmgr-runc");
    eventually("a restart by dockerd itself was asked for", || {
        let log = sh(
            "journalctl -b -u ctlmgr.service -o json --output-fields=SOURCE,F_SOURCE,MESSAGE | tail -n 400",
        )?;
        Ok(log.contains("\"runc\""))
    })?;
    drop(gated);
    sh("docker rm -f loop >/dev/null; systemctl restart docker.service")?;
    let made = sh("docker run -d --name plain --network none busybox sleep 100000")?;
    let _plain = Container { name: "plain".into(), cgroup: std::path::PathBuf::new() };
    assert_eq!(sh("docker inspect -f '{{.HostConfig.Runtime}}' plain")?, "runc");
    if id == made {
        bail!("two containers have one id");
    }
    // Its name stays in dockerd's configuration, and means runc now.
    sh("docker run --rm --network none --runtime ctlmgr-runc busybox true").map(drop)
}
