//! The upper rungs: freezing and stopping, by class and with leave.

use anyhow::{Result, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, install_hog, sh};

/// A heavy service and an idle class that never rests, on too little memory.
struct Scene {
    ctlmgr: Ctlmgr,
    web: Container,
    batch: Container,
}

impl Scene {
    /// With one line of `[memory]`.
    fn start(setting: &str) -> Result<Scene> {
        install_hog()?;
        let ctlmgr = Ctlmgr::start("act")?;
        sh(&format!(
            "printf '[memory]\\n{setting}\\n' >/etc/ctlmgr/config.d/96-rungs.toml; \
             systemctl reload ctlmgr"
        ))?;
        let web = Container::run(
            "web",
            "--memory-reservation 900m --label ctlmgr.class=high \
             lab-hog /hog --size 900 --rate 80 --threads 8",
        )?;
        let held = || ctlmgr.verdict("web").map(|v| v["held"].as_u64().unwrap_or(0));
        eventually("web holds its set", || Ok(held()? > 890 << 20))?;
        let batch = Container::run(
            "batch",
            "--label ctlmgr.class=idle lab-hog /hog --size 1500 --rate 40 --threads 8",
        )?;
        Ok(Scene { ctlmgr, web, batch })
    }
}

#[test]
fn an_idle_class_stands_still_until_its_user_wants_something_of_it() -> Result<()> {
    // Without its ramp the burst of batch takes from web, which is hot and feels it.
    let scene = Scene::start("freeze = [\"idle\"]\\nthrottle = false")?;
    eventually("batch stands still, and why says so", || {
        let why = sh("ctlmgr why batch")?;
        ensure!(scene.batch.knob("cgroup.freeze")? == 1, "{why}");
        Ok(why.contains("rung     freeze") && why.contains("class idle may be frozen"))
    })?;
    sh("docker kill -s HUP batch")?;
    eventually("a signal reaches it", || Ok(scene.batch.knob("cgroup.freeze")? == 0))?;
    drop((scene.web, scene.batch));
    sh("rm /etc/ctlmgr/config.d/96-rungs.toml")?;
    scene.ctlmgr.stop_and_expect_pristine()
}

/// Where nothing else helps: what web lost comes back through a slow disk, so the host stands
/// still for as long as batch holds on.
#[test]
fn an_idle_class_is_asked_and_then_stopped_in_good_order() -> Result<()> {
    install_hog()?;
    let ctlmgr = Ctlmgr::start("observe")?;
    sh("printf '[memory]\\nkill = [\"idle\"]\\nthrottle = false\\nkill_grace_secs = 3\\n' \
        >/etc/ctlmgr/config.d/96-rungs.toml; systemctl reload ctlmgr")?;
    let slow = "--device-read-bps /dev/vdb:200kb";
    let web = Container::run(
        "web",
        &format!(
            "--memory-reservation 900m --label ctlmgr.class=high {slow} \
             lab-hog /hog --size 900 --rate 80 --threads 8"
        ),
    )?;
    let held = |name: &str| ctlmgr.verdict(name).map(|v| v["held"].as_u64().unwrap_or(0));
    eventually("web holds its set", || Ok(held("web")? > 890 << 20))?;
    let batch = Container::run(
        "batch",
        &format!("--label ctlmgr.class=idle {slow} lab-hog /hog --size 1500 --rate 40 --threads 8"),
    )?;
    eventually("web lost something", || Ok(held("web")? < 800 << 20))?;
    sh("ctlmgr mode act")?;
    let state = "docker inspect -f '{{.State.Status}} {{.State.OOMKilled}}' batch";
    eventually("batch is stopped", || {
        let text = sh("cat /proc/pressure/memory; ctlmgr status")?;
        ensure!(sh(state)? == "exited false", "{text}");
        Ok(true)
    })?;
    let log = sh("journalctl -u ctlmgr.service -o cat --no-pager | grep -a 'stop' | tail -n 5")?;
    ensure!(log.contains("killed after 3 s") && log.contains("web"), "{log}");
    ensure!(sh("docker inspect -f '{{.State.Running}}' web")? == "true", "web lives");
    drop((web, batch));
    sh("rm /etc/ctlmgr/config.d/96-rungs.toml")?;
    ctlmgr.stop_and_expect_pristine()
}

#[test]
fn classic_lists_are_switched_on_while_acting_and_off_at_stop() -> Result<()> {
    let file = "/sys/kernel/mm/lru_gen/enabled";
    let before = sh(&format!("cat {file}"))?;
    ensure!(before != "0x0000", "MGLRU is on here: {before}");
    let ctlmgr = Ctlmgr::start("observe")?;
    sh("printf '[memory]\\nlru = \"classic\"\\n' >/etc/ctlmgr/config.d/96-lru.toml; \
        systemctl reload ctlmgr; ctlmgr status >/dev/null")?;
    ensure!(sh(&format!("cat {file}"))? == before, "observing writes nothing");
    sh("ctlmgr mode act")?;
    let is_classic = || Ok(sh(&format!("cat {file}"))? == "0x0000");
    eventually("the lists are classic", is_classic)?;
    ensure!(sh("ctlmgr diff")?.contains("lru_gen"));
    sh("systemctl kill -s KILL ctlmgr.service; systemctl reset-failed ctlmgr.service || true")?;
    eventually("the daemon is back", || Ok(sh("ctlmgr status").is_ok()))?;
    eventually("the lists are classic still, or again", is_classic)?;
    sh("rm /etc/ctlmgr/config.d/96-lru.toml; systemctl reload ctlmgr")?;
    eventually("it is given back when the setting goes", || {
        Ok(sh(&format!("cat {file}"))? == before)
    })?;
    ctlmgr.stop_and_expect_pristine()
}
