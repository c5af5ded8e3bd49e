//! The upper rungs: freezing and stopping, by class and with leave.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use anyhow::{Context, Error, Result, bail, ensure};
use ctlmgr_act::Stopper;
use ctlmgr_live::{Container, Ctlmgr, eventually, inspect, install_hog, json, knob, sh};
use ctlmgr_model::{Millis, Outcome, Stoppable};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What web has of page cache, where it lives by that.
const WEB_MIB: u64 = 400;

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

/// What an application listens to (systemd's memory pressure protocol), with the threshold that systemd gives it.
struct Notification(File);

impl Notification {
    fn of(container: &Container) -> Result<Notification> {
        let path = container.cgroup.join("memory.pressure");
        let mut file = File::options().read(true).write(true).open(path)?;
        file.write_all(b"some 200000 2000000\0").context("failed to listen to memory.pressure")?;
        Ok(Notification(file))
    }

    /// Whether it was notified since this was last asked.
    fn has_come(&self) -> Result<bool> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLPRI)];
        poll(&mut fds, PollTimeout::ZERO)?;
        // With its cgroup gone the kernel says both.
        let is_notified =
            |e: PollFlags| e.contains(PollFlags::POLLPRI) && !e.contains(PollFlags::POLLERR);
        Ok(fds[0].revents().is_some_and(is_notified))
    }
}

/// A service that lives by page cache and was promised it.
fn web_of_files() -> Result<Container> {
    let words = format!(
        "-v /var/tmp/rungs:/set --memory-reservation {WEB_MIB}m --label ctlmgr.class=high \
         lab-hog /hog --size {WEB_MIB} --rate 80 --threads 2 --file /set/web"
    );
    Container::run("web", &words)
}

/// One of class idle that grows by 2 MiB in a second, from what is free on. Units give way first, then web.
fn batch_that_grows() -> Result<Container> {
    // Page cache counts as available.
    let first = available_mib()?.saturating_sub(WEB_MIB);
    let most = first + WEB_MIB;
    let words = format!(
        "--label ctlmgr.class=idle lab-hog /hog --first {first} --size {most} --steps 200 \
         --step-secs 1 --rate 1 --threads 4"
    );
    Container::run("batch", &words)
}

/// Without swap, a service that lives by page cache that it was promised, and an idle class that grows until there is
/// no room for that any more.
#[test]
fn when_memory_is_used_up_the_named_class_is_asked_and_then_stopped() -> Result<()> {
    install_hog()?;
    let ctlmgr = Ctlmgr::start("act")?;
    sh("printf '[memory]\\nkill = [\"idle\"]\\nkill_grace_secs = 5\\n' \
        >/etc/ctlmgr/config.d/96-rungs.toml; systemctl reload ctlmgr; mkdir -p /var/tmp/rungs")?;
    let since = sh("date +%s")?;
    let swap_off = SwapOff::now()?;
    let web = web_of_files()?;
    let held_mib = || -> Result<u64> { Ok(web.knob("memory.current")? >> 20) };
    eventually("web has its page cache", || Ok(held_mib()? > WEB_MIB - 5))?;
    let batch = batch_that_grows()?;
    let notification = Notification::of(&batch)?;
    let journal = || {
        sh(&format!("journalctl -u ctlmgr --since @{since} -o verbose --no-pager | grep F_REASON"))
    };
    let mut least_mib = WEB_MIB;
    eventually("web goes short", || Ok(held_mib()? < WEB_MIB * 7 / 8))
        .with_context(|| sh("ctlmgr status; docker ps -a").unwrap_or_default())?;
    eventually("batch is asked", || {
        least_mib = least_mib.min(held_mib()?);
        Ok(journal()?.contains("asked by its memory pressure to give up memory"))
    })
    .with_context(|| {
        sh("ctlmgr status; docker ps -a; journalctl -u ctlmgr | tail").unwrap_or_default()
    })?;
    let need_mib = ctlmgr.verdict("web")?["demand"].as_u64().unwrap_or(0) >> 20;
    let is = |name: &str, field: &str| Ok::<_, Error>(inspect(name)?["State"][field] == true);
    notification.has_come()?;
    let mut was_told = false;
    eventually("batch is stopped", || {
        was_told |= notification.has_come()?;
        least_mib = least_mib.min(held_mib()?);
        Ok(!is("batch", "Running")?)
    })
    .with_context(|| sh("ctlmgr status; ctlmgr why batch; cat /proc/meminfo").unwrap_or_default())
    .with_context(|| journal().unwrap_or_default())?;
    ensure!(!is("batch", "OOMKilled")?, "the kernel was faster");
    ensure!(is("web", "Running")?);
    let reasons = journal()?;
    ensure!(was_told, "its memory.pressure did not tell it: {reasons}");
    // How much goes at once differs; nearly all of it was gone where only what nobody has was taken to be used up.
    ensure!(least_mib > WEB_MIB / 8, "web kept {least_mib} MiB only: {reasons}");
    ensure!(need_mib > WEB_MIB * 9 / 10, "what was promised and is missed stays need: {need_mib}");
    // The request has the same reason, but not at its beginning.
    let stops = ["F_REASON=memory is used up, ", "F_REASON=for want of memory "];
    ensure!(stops.iter().any(|stop| reasons.contains(stop)), "{reasons}");
    ensure!(reasons.contains(" and web (weight 400"), "{reasons}");
    ensure!(reasons.contains("instead of it: nobody else may be"), "{reasons}");
    // Though it is there no more.
    eventually("`why` tells of its stop", || {
        let why = json("ctlmgr why batch --json")?;
        let decisions = why["decisions"].as_array().context("decisions")?;
        let is_stop = |d: &serde_json::Value| d["step"]["action"].to_string().contains("stop");
        Ok(why["gone_unix_ms"].is_u64() && decisions.iter().any(is_stop))
    })?;
    eventually("web has its page cache again", || Ok(held_mib()? > WEB_MIB - 5))?;
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
