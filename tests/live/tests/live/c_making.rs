//! Between making a container's cgroup and setting it up a runtime takes its time; nothing is written there meanwhile.

use anyhow::{Result, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, json, knob, sh, status};

/// A runtime that stops between the two until it is told to go on.
const SLOW: &str = r#"#!/bin/sh
case " $* " in *" create "*) ;; *) exec runc "$@" ;; esac
for id; do :; done
runc "$@" <&0 &
made=
until [ -n "$made" ]; do
	for scope in /sys/fs/cgroup/*.slice/docker-$id.scope; do [ -d "$scope" ] && made=$scope; done
done
used=0
until [ "$used" -gt 1500000 ]; do read -r used <"$made/memory.current"; done
kill -STOP $!
echo "$made" >/run/slow/made
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
             systemctl reload docker.service; rm -rf /run/slow /usr/local/bin/slow-runc",
        );
    }
}

/// What is there meanwhile is nobody's will: to be put back, or to be written again by the system's manager with the rest.
#[test]
fn a_container_that_is_being_made_is_left_alone() -> Result<()> {
    let slow = SlowRuntime::install()?;
    let ctlmgr = Ctlmgr::start("act")?;
    let starting = std::thread::spawn(|| {
        Container::run(
            "web",
            "--runtime slow --memory 400m --memory-reservation 300m busybox sleep 100000",
        )
    });
    eventually("its cgroup is made", || Ok(status("test -s /run/slow/made")?.0 == 0))?;
    let scope = sh("cat /run/slow/made")?;
    let decided = || Ok::<_, anyhow::Error>(ctlmgr.plan()?["at"].as_u64().unwrap_or_default());
    let since = decided()?;
    eventually("ctlmgr has seen it for a while", || {
        let is_seen = ctlmgr.verdict("web")?["held"].as_u64() > Some(1 << 20);
        Ok(is_seen && decided()? > since + 5000)
    })?;
    let during = (knob(&format!("{scope}/memory.low"))?, knob(&format!("{scope}/memory.max"))?);
    let written = json("ctlmgr diff --json")?;
    sh("touch /run/slow/go")?;
    let web = starting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    ensure!(during == (0, u64::MAX), "it is set up already: {during:?}");
    ensure!(!written.to_string().contains("docker-"), "{written}");
    ctlmgr.wait_protected(&web)?;
    let now = (web.knob("memory.low")?, web.knob("memory.max")?);
    ensure!(now == (300 << 20, 400 << 20), "{now:?}");
    ensure!(ctlmgr.status()?["counters"]["overrides"] == 0, "nobody has written over anything");
    ctlmgr.stop_and_expect_pristine_but(&web, 300 << 20)?;
    drop((web, slow));
    Ok(())
}
