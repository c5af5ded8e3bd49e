//! Between making a container's cgroup and setting it up a runtime takes its time; nothing is written there meanwhile.

use anyhow::{Result, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, json, knob, sh, status};
use serde_json::Value;

/// A runtime that stops between the two until it is told to go on.
const SLOW: &str = r#"#!/bin/sh
case " $* " in *" create "*) ;; *) exec runc "$@" ;; esac
for id; do :; done
runc "$@" &
until [ -e /run/slow/made ]; do
	kill -0 $! 2>/dev/null || exit
	for scope in /sys/fs/cgroup/*.slice/docker-$id.scope; do [ -d "$scope" ] && kill -STOP $! && echo "$scope" >/run/slow/made; done
done
until [ -e /run/slow/go ]; do sleep 0.2; done
kill -CONT $!
wait $!
"#;

/// dockerd with that runtime, for as long as this is kept.
struct SlowRuntime;

impl SlowRuntime {
    fn install() -> Result<SlowRuntime> {
        std::fs::write("/usr/local/bin/slow-runc", SLOW)?;
        let installed = SlowRuntime;
        sh(
            "chmod 755 /usr/local/bin/slow-runc; mkdir -p /run/slow; cp /etc/docker/daemon.json /run/slow/daemon.json; \
            sed -i '0,/{/s//{\"runtimes\": {\"slow\": {\"path\": \"\\/usr\\/local\\/bin\\/slow-runc\"}},/' /etc/docker/daemon.json; \
            systemctl reload docker.service",
        )?;
        eventually("dockerd knows the runtime", || {
            Ok(json("docker info -f '{{json .Runtimes}}'")?["slow"].is_object())
        })?;
        Ok(installed)
    }
}

impl Drop for SlowRuntime {
    fn drop(&mut self) {
        let _ = status(
            "touch /run/slow/go; docker rm -f web; cp /run/slow/daemon.json /etc/docker/daemon.json; \
             systemctl reload docker.service; rm -rf /run/slow /usr/local/bin/slow-runc /dev/shm/made",
        );
    }
}

/// What is there meanwhile is nobody's will: to be put back, or to be written again by the system's manager with the rest.
#[test]
fn a_container_that_is_being_made_is_left_alone() -> Result<()> {
    let slow = SlowRuntime::install()?;
    let ctlmgr = Ctlmgr::start("act")?;
    let arguments = "--runtime slow --memory 400m --memory-reservation 300m --restart always \
        --stop-signal KILL busybox sleep 100000";
    let web = expect_left_alone(&ctlmgr, || Container::run("web", arguments))?;
    ctlmgr.wait_protected(&web)?;
    // One that begins anew starts it before it answers, and has told of it before.
    sh("rm /run/slow/made /run/slow/go")?;
    expect_left_alone(&ctlmgr, || sh("systemctl restart docker.service"))?;
    ctlmgr.wait_protected(&web)?;
    let now = (web.knob("memory.low")?, web.knob("memory.max")?);
    ensure!(now == (300 << 20, 400 << 20), "{now:?}");
    ensure!(ctlmgr.status()?["counters"]["overrides"] == 0, "nobody has written over anything");
    ctlmgr.stop_and_expect_pristine_but(&web, 300 << 20)?;
    drop((web, slow));
    Ok(())
}

/// Fails if something is written between the two when `start` starts the container.
fn expect_left_alone<T: Send>(
    ctlmgr: &Ctlmgr,
    start: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let (during, started) = std::thread::scope(|scope| {
        let starting = scope.spawn(start);
        let during = watch_making(ctlmgr);
        let _ = sh("touch /run/slow/go");
        (during, starting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (started, (during, written)) = (started?, during?);
    ensure!(during == (0, u64::MAX), "it is set up already: {during:?}");
    ensure!(!written.to_string().contains("docker-"), "{written}");
    Ok(started)
}

/// memory.low and memory.max of what is being made, and what ctlmgr says that it wrote, once it has decided about it a few times.
fn watch_making(ctlmgr: &Ctlmgr) -> Result<((u64, u64), Value)> {
    eventually("its cgroup is made", || Ok(status("test -s /run/slow/made")?.0 == 0))?;
    let scope = sh("cat /run/slow/made")?;
    // Enough that it would be protected.
    sh(&format!(
        "sh -c 'echo $$ >{scope}/cgroup.procs && exec dd if=/dev/zero of=/dev/shm/made bs=1M count=40 2>/dev/null'"
    ))?;
    let seen = || -> Result<Option<u64>> {
        let plan = ctlmgr.plan()?;
        let all = plan["verdicts"].as_array().into_iter().flatten();
        let mut named =
            all.filter(|v| v["path"].as_str().is_some_and(|path| scope.ends_with(path)));
        let is_seen = named.any(|v| v["held"].as_u64() > Some(32 << 20));
        Ok(plan["at"].as_u64().filter(|_| is_seen))
    };
    eventually("ctlmgr has seen it", || Ok(seen()?.is_some()))?;
    let since = seen()?.unwrap_or_default();
    eventually("and again", || Ok(seen()? > Some(since + 3000)))?;
    let during = (knob(&format!("{scope}/memory.low"))?, knob(&format!("{scope}/memory.max"))?);
    Ok((during, json("ctlmgr diff --json")?))
}
