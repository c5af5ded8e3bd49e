//! The upper rungs: freezing and stopping, by class and with leave.

use anyhow::{Context, Result, bail, ensure};
use ctlmgr_act::Stopper;
use ctlmgr_live::{Container, Ctlmgr, eventually, install_hog, knob, sh};
use ctlmgr_model::{Millis, Outcome, Stoppable};

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
    // With the rungs below web would hardly go short.
    let scene = Scene::start("freeze = [\"idle\"]\\nthrottle = false\\nharden = false")?;
    eventually("batch stands still, and why says so", || {
        let why = sh("ctlmgr why batch; ctlmgr why web")?;
        if scene.batch.knob("cgroup.freeze")? != 1 {
            bail!("{why}");
        }
        Ok(why.contains("rung     freeze") && why.contains("class idle may be frozen"))
    })?;
    eprintln!("== {:?} frozen", std::time::SystemTime::now());
    sh("docker kill -s HUP batch")?;
    eventually("a signal reaches it", || Ok(scene.batch.knob("cgroup.freeze")? == 0))?;
    drop((scene.web, scene.batch));
    sh("rm /etc/ctlmgr/config.d/96-rungs.toml")?;
    scene.ctlmgr.stop_and_expect_pristine()
}

/// The hand of the last rung, and how it treats whom.
#[test]
fn a_container_and_a_unit_are_stopped_in_good_order() -> Result<()> {
    let stop = |target: &Stoppable, grace_ms: u64| -> Result<Outcome> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stopper = Stopper::new("/run/docker.sock".into());
        Ok(runtime.block_on(stopper.stop(target, Millis(grace_ms))))
    };
    let exit = |name: &str| sh(&format!("docker inspect -f '{{{{.State.ExitCode}}}}' {name}"));
    let target = |name: &str| -> Result<Stoppable> {
        Ok(Stoppable::Container(sh(&format!("docker inspect -f '{{{{.Id}}}}' {name}"))?))
    };
    let kind = Container::run("kind", "busybox sh -c 'trap \"exit 7\" TERM; sleep 1000 & wait'")?;
    let deaf = Container::run("deaf", "busybox sh -c 'trap \"\" TERM; while :; do sleep 1; done'")?;
    ensure!(stop(&target("kind")?, 20_000)? == Outcome::Done);
    ensure!(exit("kind")? == "7", "it had the time to end by itself");
    ensure!(stop(&target("deaf")?, 1_000)? == Outcome::Done);
    ensure!(exit("deaf")? == "137", "killed after its grace");
    ensure!(stop(&target("deaf")?, 1_000)? == Outcome::Done, "it has ended already");
    ensure!(stop(&Stoppable::Container("0".repeat(64)), 1_000)? == Outcome::Vanished);
    sh("systemd-run --quiet --unit=lab-stop sleep 1000")?;
    ensure!(stop(&Stoppable::Unit("lab-stop.service".to_owned()), 1_000)? == Outcome::Done);
    ensure!(sh("systemctl is-active lab-stop.service || true")? == "inactive");
    let absent = stop(&Stoppable::Unit("lab-nothing.service".to_owned()), 1_000)?;
    ensure!(matches!(&absent, Outcome::Failed(said) if said.contains("not loaded")), "{absent:?}");
    drop((kind, deaf));
    Ok(())
}

/// Swap is off as long as this lives.
struct SwapOff;

impl SwapOff {
    fn now() -> Result<SwapOff> {
        sh("swapoff -a")?;
        Ok(SwapOff)
    }
}

impl Drop for SwapOff {
    fn drop(&mut self) {
        let _ = sh("swapon -a");
    }
}

fn available_mib() -> Result<u64> {
    let kib = sh("sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo")?;
    Ok(kib.parse::<u64>()? / 1024)
}

/// Without swap, a service that lives by page cache, and an idle class that grows slowly until almost
/// nothing is left, and no further: the kernel's own OOM killer must not be faster.
#[test]
fn when_memory_is_used_up_the_named_class_is_asked_and_then_stopped() -> Result<()> {
    install_hog()?;
    let ctlmgr = Ctlmgr::start("act")?;
    sh("printf '[memory]\\nthrottle = false\\nkill = [\"idle\"]\\nkill_grace_secs = 5\\n' \
        >/etc/ctlmgr/config.d/96-rungs.toml; systemctl reload ctlmgr; mkdir -p /var/tmp/rungs")?;
    let since = sh("date +%s")?;
    let swap_off = SwapOff::now()?;
    let web = Container::run(
        "web",
        "-v /var/tmp/rungs:/set --memory-reservation 400m --label ctlmgr.class=high \
         lab-hog /hog --size 400 --rate 80 --threads 2 --file /set/web",
    )?;
    eventually("web has its page cache", || Ok(web.knob("memory.current")? > 395 << 20))?;
    // What others free meanwhile differs: it grows on, so slowly that it is stopped before nothing is left.
    let available = available_mib()?;
    let batch = Container::run(
        "batch",
        &format!(
            "--label ctlmgr.class=idle lab-hog /hog --first {} --size {} --steps 80 --step-secs 1 \
             --rate 1 --threads 4",
            available - 90,
            available + 10
        ),
    )?;
    let journal = || {
        sh(&format!("journalctl -u ctlmgr --since @{since} -o verbose --no-pager | grep F_REASON"))
    };
    eventually("memory is nearly used up", || Ok(available_mib()? < 100))?;
    eventually("batch is asked", || Ok(journal()?.contains("asked to give up memory")))
        .with_context(|| sh("ctlmgr status; cat /proc/meminfo").unwrap_or_default())?;
    let state =
        |name: &str, field: &str| sh(&format!("docker inspect -f '{{{{.State.{field}}}}}' {name}"));
    eventually("batch is stopped", || Ok(state("batch", "Running")? == "false"))
        .with_context(|| {
            sh("ctlmgr status; ctlmgr why batch; cat /proc/meminfo").unwrap_or_default()
        })
        .with_context(|| journal().unwrap_or_default())?;
    ensure!(state("batch", "OOMKilled")? == "false", "the kernel was faster");
    ensure!(state("web", "Running")? == "true");
    let reasons = journal()?;
    // The request has the same reason, but not at its beginning.
    ensure!(reasons.contains("F_REASON=memory is used up and web (weight 400"), "{reasons}");
    ensure!(reasons.contains("instead of it: nobody else may be"), "{reasons}");
    drop((web, batch, swap_off));
    sh("rm -r /etc/ctlmgr/config.d/96-rungs.toml /var/tmp/rungs")?;
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
    // They heed memory.low, so units keep their floor by it.
    let low = |unit: &str| knob(&format!("/sys/fs/cgroup/system.slice{unit}/memory.low"));
    eventually("dockerd keeps its floor, and its slice covers it", || {
        let own = low("/docker.service")?;
        Ok(own > 0 && low("")? >= own)
    })?;
    sh("systemctl kill -s KILL ctlmgr.service; systemctl reset-failed ctlmgr.service || true")?;
    eventually("the daemon is back", || Ok(sh("ctlmgr status").is_ok()))?;
    eventually("the lists are classic still, or again", is_classic)?;
    sh("rm /etc/ctlmgr/config.d/96-lru.toml; systemctl reload ctlmgr")?;
    eventually("it is given back when the setting goes", || {
        Ok(sh(&format!("cat {file}"))? == before)
    })?;
    eventually("nor is anything kept for units then", || {
        Ok(low("/docker.service")? == 0 && low("")? == 0)
    })?;
    ctlmgr.stop_and_expect_pristine()
}
