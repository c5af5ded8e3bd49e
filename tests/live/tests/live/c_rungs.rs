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
