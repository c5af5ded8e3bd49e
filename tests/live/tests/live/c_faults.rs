//! Faults: after each of them no knob is left that ctlmgr wrote and does not know.

use anyhow::{Result, ensure};
use ctlmgr_live::{
    Balloon, Container, Ctlmgr, eventually, expect_pristine, json, knob, sh, status,
};

#[test]
fn after_kill_9_the_next_start_goes_on_from_the_journal() -> Result<()> {
    let web = Container::start("web", 64, "--memory-reservation 48m")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    let pid = sh("systemctl show -P MainPID ctlmgr")?;
    sh(&format!("kill -9 {pid}"))?;
    eventually("systemd has started another one", || {
        let now = sh("systemctl show -P MainPID ctlmgr")?;
        Ok(now != "0" && now != pid && ctlmgr.status().is_ok())
    })?;
    assert_eq!(ctlmgr.status()?["memory_mode"], "act");
    ctlmgr.wait_protected(&web)?;
    ctlmgr.stop_and_expect_pristine_but(&web, 48 << 20)
}

/// Aimed: the first write has been journalled and done, the second is on its way.
#[test]
fn kill_9_at_the_second_write_of_a_knob_loses_nothing() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    let first = web.knob("memory.low")?;
    let pid = sh("systemctl show -P MainPID ctlmgr")?;
    // strace is not there; the value itself says when the second write has come through.
    sh(&format!(
        "(while [ $(cat {0}/memory.low) = {first} ]; do :; done; kill -9 {pid}) & \
         docker exec web dd if=/dev/urandom of=/dev/shm/more bs=1M count=60 2>/dev/null; wait",
        web.cgroup.display()
    ))?;
    eventually("systemd has started another one", || {
        Ok(ctlmgr.status().is_ok() && sh("systemctl show -P MainPID ctlmgr")? != pid)
    })?;
    ctlmgr.stop_and_expect_pristine()
}

/// Kills at changing moments while there is something to write all the time.
#[test]
fn kill_9_in_the_middle_of_writing_loses_nothing() -> Result<()> {
    let mut containers = Vec::new();
    let _ctlmgr = Ctlmgr::start("act")?;
    for i in 0..4 {
        containers.push(Container::start(&format!("c{i}"), 20, "")?);
        sh(
            "systemctl kill -s KILL ctlmgr.service; systemctl reset-failed ctlmgr.service; systemctl start ctlmgr.service",
        )?;
    }
    // It may have been running still when it was to be started: then it dies now, and it is not the daemon that
    // undoes, but the unit that stops after it, for which a stop does not wait.
    sh("systemctl stop ctlmgr.service; systemctl stop ctlmgr-revert-on-stop.service")?;
    expect_pristine()
}

#[test]
fn revert_works_without_a_daemon() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    sh(
        "systemctl stop ctlmgr.socket 2>/dev/null; systemctl mask --runtime ctlmgr.service ctlmgr-revert-on-stop.service; systemctl kill -s KILL ctlmgr.service",
    )?;
    eventually("the daemon is dead", || {
        Ok(status("systemctl is-active --quiet ctlmgr.service")?.0 != 0)
    })?;
    assert!(web.knob("memory.low")? > 0, "the crash left a value behind");
    assert!(sh("ctlmgr diff")?.contains("memory.low"));
    let text = sh(
        "ctlmgr revert; systemctl unmask --runtime ctlmgr.service ctlmgr-revert-on-stop.service",
    )?;
    assert!(text.contains("put back"), "{text}");
    assert_eq!(web.knob("memory.low")?, 0);
    expect_pristine()
}

#[test]
fn a_daemon_that_fails_for_good_leaves_nothing() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    // Undo takes one knob after the other, so that of the container says only that it has begun.
    eventually("systemd gives up and the revert unit has run", || {
        status("systemctl kill -s KILL ctlmgr.service")?;
        // The knob first: undo may begin between the two looks.
        let is_back = web.knob("memory.low")? == 0;
        let states = sh("systemctl show -P ActiveState ctlmgr.service ctlmgr-revert.service")?;
        Ok(is_back && states.split_whitespace().eq(["failed", "inactive"]))
    })?;
    expect_pristine()
}

#[test]
fn dockerd_and_dbus_restarts_and_daemon_reload_change_nothing() -> Result<()> {
    let web = Container::start("web", 64, "--stop-timeout 1")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    for _ in 0..3 {
        sh("systemctl daemon-reload")?;
    }
    ctlmgr.wait_protected(&web)?;
    // logind does not come back to a new bus by itself: who asked for it later would wait 25 s each time.
    sh("systemctl restart dbus.service systemd-logind.service")?;
    let other = Container::start("other", 64, "--stop-timeout 1")?;
    ctlmgr.wait_protected(&other)?;
    sh("systemctl restart docker.service")?;
    eventually("ctlmgr talks to dockerd again", || Ok(ctlmgr.status()?["docker"].is_string()))?;
    drop((web, other));
    let new = Container::start("new", 64, "--label ctlmgr.class=high")?;
    ctlmgr.wait_protected(&new)?;
    eventually("names and labels are known", || Ok(ctlmgr.verdict("new")?["weight"] == 400))?;
    ctlmgr.stop_and_expect_pristine()
}

/// Reloading makes the manager write its values again while ctlmgr moves them.
#[test]
fn daemon_reload_under_load_loses_nothing() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    sh("for i in $(seq 6); do systemctl daemon-reload; done & \
        for i in $(seq 3); do docker exec web dd if=/dev/zero of=/dev/shm/more bs=1M count=$((i * 40)) 2>/dev/null; done; wait")?;
    eventually("protection has followed", || {
        let slice = knob("/sys/fs/cgroup/ctlmgr.slice/memory.low")?;
        Ok(web.knob("memory.low")? > 160 << 20 && slice > 160 << 20)
    })?;
    // A manager that reloads for a minute may be late with its answers, and is told again.
    let (_, failed) = status(
        "journalctl -b --no-pager -o cat --output-fields=F_PATH,F_STEP,F_ERROR --grep 'step failed' \
         _SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID ctlmgr.service) | \
         grep -v ': no answer within'",
    )?;
    ctlmgr.wait_told(&web)?;
    ensure!(!failed.contains("failed to"), "{failed}");
    ctlmgr.stop_and_expect_pristine()
}

/// A message bus that does not answer must hold up neither protection nor undo.
#[test]
fn a_hung_message_bus_is_passed_by() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    let other = Container::start("other", 64, "")?;
    ctlmgr.wait_protected(&other)?;
    sh("systemctl kill -s STOP dbus.service; \
        docker exec other dd if=/dev/urandom of=/dev/shm/more bs=1M count=100 2>/dev/null")?;
    let followed =
        eventually("protection follows past the bus", || Ok(other.knob("memory.low")? > 150 << 20));
    let result = followed.and_then(|()| sh("ctlmgr revert"));
    sh("kill -CONT $(cat /sys/fs/cgroup/system.slice/dbus.service/cgroup.procs)")?;
    assert!(result?.contains("put back"));
    assert_eq!(other.knob("memory.low")?, 0);
    ctlmgr.stop_and_expect_pristine()
}

/// As one that waits for memory itself. What it was asked for meanwhile it does late, and that is no other's will.
#[test]
fn protection_follows_while_the_systems_manager_does_not_answer() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let other = Container::start("other", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    ctlmgr.wait_protected(&other)?;
    let freeze = |is_to| sh(&format!("echo {is_to} >/sys/fs/cgroup/init.scope/cgroup.freeze"));
    let grow = |container: &Container| {
        let name = &container.name;
        sh(&format!(
            "docker exec {name} dd if=/dev/urandom of=/dev/shm/more bs=1M count=100 2>/dev/null"
        ))?;
        eventually("protection follows", || Ok(container.knob("memory.low")? > 150 << 20))
    };
    freeze(1)?;
    let followed = grow(&web).and_then(|()| grow(&other));
    let slice = knob("/sys/fs/cgroup/ctlmgr.slice/memory.low");
    freeze(0)?;
    followed?;
    assert!(slice? > 300 << 20, "the slice covers both");
    ctlmgr.wait_told(&web)?;
    ctlmgr.wait_told(&other)?;
    assert_eq!(ctlmgr.status()?["counters"]["overrides"], 0);
    ctlmgr.stop_and_expect_pristine()
}

/// Whom ctlmgr holds back must not wait for it either.
#[test]
fn a_limit_rises_while_the_systems_manager_does_not_answer() -> Result<()> {
    let _balloon = Balloon::leave(900)?;
    let web = Container::start("web", 420, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    eventually("memory is nearly short", || Ok(web.knob("memory.high")? < u64::MAX))?;
    let freeze = |is_to| sh(&format!("echo {is_to} >/sys/fs/cgroup/init.scope/cgroup.freeze"));
    let before = web.knob("memory.high")?;
    freeze(1)?;
    let grown =
        sh("docker exec web dd if=/dev/urandom of=/dev/shm/more bs=1M count=60 2>/dev/null");
    let follows = grown.and_then(|_| {
        eventually("the limit follows", || {
            let (high, current) = (web.knob("memory.high")?, web.knob("memory.current")?);
            Ok(high > before && high > current + (8 << 20))
        })
    });
    freeze(0)?;
    follows?;
    assert_eq!(ctlmgr.status()?["counters"]["overrides"], 0);
    ctlmgr.stop_and_expect_pristine()
}

/// Its queue is full soon, and who waits for it stands still with it.
#[test]
fn a_journald_that_stands_still_is_not_waited_for() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    sh("kill -STOP $(systemctl show -P MainPID systemd-journald.service); \
        while echo MESSAGE=full | timeout 3 logger --journald; do :; done")?;
    let grown =
        sh("docker exec web dd if=/dev/urandom of=/dev/shm/more bs=1M count=100 2>/dev/null");
    let follows = grown
        .and_then(|_| eventually("protection follows", || Ok(web.knob("memory.low")? > 150 << 20)));
    let answers = sh("timeout 60 ctlmgr status");
    sh("kill -CONT $(systemctl show -P MainPID systemd-journald.service)")?;
    follows.and(answers)?;
    sh("ctlmgr revert")?;
    eventually("it says how much was lost", || {
        let told = sh("journalctl -u ctlmgr.service -n 1000 --no-pager")?;
        Ok(told.contains("lines before this one were lost"))
    })?;
    ctlmgr.stop_and_expect_pristine()
}

/// Between a crash and the next start there is no process that `systemctl stop` could ask.
#[test]
fn a_stop_while_systemd_waits_to_restart_undoes() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    sh("mkdir -p /run/systemd/system/ctlmgr.service.d; \
        printf '[Service]\\nRestartSec=600\\n' >/run/systemd/system/ctlmgr.service.d/slow.conf; \
        systemctl daemon-reload; systemctl kill -s KILL ctlmgr.service")?;
    let waiting = eventually("systemd waits to start it again", || {
        Ok(sh("systemctl show -P SubState ctlmgr.service")? == "auto-restart")
    });
    let kept = web.knob("memory.low")?;
    sh("systemctl stop ctlmgr.service; \
        rm -r /run/systemd/system/ctlmgr.service.d; systemctl daemon-reload")?;
    waiting?;
    assert!(kept > 0, "the crash left its value for the next start");
    // The unit that undoes stops after this one, and nobody waits for it.
    eventually("it is undone", || Ok(web.knob("memory.low")? == 0))?;
    eventually("all of it", || expect_pristine().map(|()| true))
}

#[test]
fn what_leaves_the_plan_is_given_back_at_once() -> Result<()> {
    let web = Container::start("web", 64, "--memory-reservation 48m")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    sh("printf '[[rule]]\\nname = \"web\"\\nmanaged = false\\n' \
        >/etc/ctlmgr/config.d/95-out.toml; systemctl reload ctlmgr")?;
    let given_back = |what: &str| {
        eventually(what, || {
            Ok(json("ctlmgr diff --json")? == serde_json::json!([])
                && knob("/sys/fs/cgroup/ctlmgr.slice/memory.low").unwrap_or(0) == 0)
        })
    };
    given_back("what is not managed any more is as it was")?;
    assert_eq!(web.knob("memory.low")?, 48 << 20);
    sh("rm /etc/ctlmgr/config.d/95-out.toml; systemctl reload ctlmgr")?;
    ctlmgr.wait_protected(&web)?;
    ctlmgr.wait_told(&web)?;
    drop(web);
    given_back("the slice of the last container is as it was")?;
    eventually("the journal has forgotten all of it", || {
        Ok(!std::path::Path::new("/run/systemd/system.control/ctlmgr.slice.d").exists())
    })?;
    assert_eq!(sh("ctlmgr revert")?, "Nothing to put back.");
    drop(ctlmgr);
    expect_pristine()
}

/// What an administrator has set at run time is theirs, file and all.
#[test]
fn a_run_time_setting_of_the_slice_stays() -> Result<()> {
    let file = "/run/systemd/system.control/ctlmgr.slice.d/50-MemoryLow.conf";
    let web = Container::start("web", 64, "")?;
    sh("systemctl set-property --runtime ctlmgr.slice MemoryLow=16M")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    sh("systemctl stop ctlmgr.service")?;
    let kept = (knob("/sys/fs/cgroup/ctlmgr.slice/memory.low")?, sh(&format!("cat {file}"))?);
    sh(
        "systemctl revert ctlmgr.slice; systemctl set-property --runtime ctlmgr.slice MemoryLow=0; \
        rm -rf /run/systemd/system.control/ctlmgr.slice.d; systemctl daemon-reload",
    )?;
    assert_eq!(kept.0, 16 << 20);
    assert!(kept.1.contains(&format!("MemoryLow={}", 16 << 20)), "{}", kept.1);
    drop(ctlmgr);
    expect_pristine()
}

#[test]
fn a_stopped_dockerd_costs_names_not_protection() -> Result<()> {
    let web = Container::start("web", 64, "--stop-timeout 1")?;
    sh("systemctl stop ctlmgr.service docker.socket docker.service")?;
    let stopped = status("test -d /sys/fs/cgroup/ctlmgr.slice/docker-*.scope")?.0 != 0;
    sh("systemctl start docker.socket docker.service; docker start web >/dev/null")?;
    assert!(stopped, "without live-restore containers stop with dockerd");
    let ctlmgr = Ctlmgr::start("act")?;
    sh("systemctl kill -s STOP docker.service")?;
    let again = Ctlmgr::start("act");
    let protected = ctlmgr_live::eventually("protected by short id", || {
        let id =
            sh("ls /sys/fs/cgroup/ctlmgr.slice | sed -n 's/^docker-\\(............\\).*/\\1/p'")?;
        Ok(json("ctlmgr status --json")?["docker"].is_null()
            && again.as_ref().is_ok_and(|c| c.verdict(&id).is_ok()))
    });
    sh("systemctl kill -s CONT docker.service")?;
    protected?;
    drop((ctlmgr, web));
    expect_pristine()
}

#[test]
fn docker_update_is_the_users_will() -> Result<()> {
    let web = Container::start("web", 64, "--memory-reservation 16m")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    sh("docker update --memory-reservation 24m web")?;
    eventually("ctlmgr noticed and asserts its own again", || {
        let promise = ctlmgr.verdict("web")?["promise"] == 24 << 20;
        Ok(promise && web.knob("memory.low")? > 32 << 20)
    })?;
    ctlmgr.stop_and_expect_pristine_but(&web, 24 << 20)
}

#[test]
fn a_full_disk_under_the_journal_means_that_nothing_is_written() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    sh(
        "systemctl stop ctlmgr.service ctlmgr.socket; mount -t tmpfs -o size=256k tmpfs /run/ctlmgr",
    )?;
    let result = on_a_full_disk(&web);
    sh(
        "systemctl stop ctlmgr.service ctlmgr.socket ctlmgr-revert-on-stop.service; umount /run/ctlmgr; \
        rm -rf /etc/ctlmgr/config.d/94-act.toml /run/ctlmgr/config.d; systemctl start ctlmgr.socket",
    )?;
    result?;
    expect_pristine()
}

fn on_a_full_disk(web: &Container) -> Result<()> {
    sh(
        "systemctl reset-failed ctlmgr.service 2>/dev/null; systemctl start ctlmgr.socket ctlmgr.service; ctlmgr status",
    )?;
    sh("dd if=/dev/zero of=/run/ctlmgr/fill bs=1k 2>/dev/null || true; \
        printf '[memory]\\nmode = \"act\"\\n' >/etc/ctlmgr/config.d/94-act.toml; systemctl reload ctlmgr")?;
    eventually("the failure is counted", || {
        Ok(json("ctlmgr status --json")?["counters"]["failures"].as_u64() > Some(0))
    })?;
    assert_eq!(web.knob("memory.low")?, 0, "no journal, no write");
    assert_eq!(knob("/sys/fs/cgroup/ctlmgr.slice/memory.low")?, 0);
    sh("rm /run/ctlmgr/fill")?;
    eventually("with room for the journal it acts", || Ok(web.knob("memory.low")? > 0))?;
    // Full again, and now it has to undo: the journal cannot forget, which must not matter.
    sh("dd if=/dev/zero of=/run/ctlmgr/fill bs=1k 2>/dev/null || true; \
        systemctl stop ctlmgr.service; rm /run/ctlmgr/fill")?;
    assert_eq!(web.knob("memory.low")?, 0);
    assert_eq!(knob("/sys/fs/cgroup/ctlmgr.slice/memory.low")?, 0);
    Ok(())
}

#[test]
fn many_starts_and_stops_leave_nothing() -> Result<()> {
    let stays = Container::start("stays", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&stays)?;
    sh(
        "for i in $(seq 4); do docker create --name churn$i --network none busybox true >/dev/null; done; \
        for round in $(seq 2); do \
          for i in $(seq 4); do docker start churn$i >/dev/null & done; wait; \
        done; \
        docker rm -f $(docker ps -aq --filter name=churn) >/dev/null",
    )?;
    assert!(ctlmgr.status()?["counters"]["cycles"].as_u64() > Some(3));
    ctlmgr.wait_protected(&stays)?;
    ctlmgr.stop_and_expect_pristine()
}

#[test]
fn the_cgroupfs_driver_is_written_directly() -> Result<()> {
    sh("cp /etc/docker/daemon.json /tmp/daemon.json; \
        sed -i 's/\"cgroup-parent\": *\"[^\"]*\",/\"exec-opts\": [\"native.cgroupdriver=cgroupfs\"],/' /etc/docker/daemon.json; \
        systemctl restart docker.service")?;
    let run = || -> Result<()> {
        let web = Container::start("web", 64, "")?;
        assert!(web.cgroup.starts_with("/sys/fs/cgroup/docker"), "{}", web.cgroup.display());
        let ctlmgr = Ctlmgr::start("act")?;
        ctlmgr.wait_protected(&web)?;
        sh("systemctl stop ctlmgr.service")?;
        assert_eq!(web.knob("memory.low")?, 0);
        assert_eq!(knob("/sys/fs/cgroup/docker/memory.low")?, 0);
        Ok(())
    };
    let result = run();
    sh("cp /tmp/daemon.json /etc/docker/daemon.json; systemctl restart docker.service")?;
    result
}
