//! Containers of a user's own manager: podman and dockerd without root.

use std::path::Path;

use anyhow::{Result, ensure};
use ctlmgr_live::{Ctlmgr, eventually, json, knob, sh};

const MIB: u64 = 1 << 20;
const SCOPE: &str = "libpod-7000000000000000000000000000000000000000000000000000000000000000.scope";
/// What it is called: its name is its user's.
const NAME: &str = "700000000000";

/// A user with a manager of his own; both are gone with the test.
struct User(String);

impl User {
    fn new() -> Result<User> {
        sh("useradd --create-home rootless")?;
        let user = User(sh("id -u rootless")?);
        sh(&format!("systemctl start user@{}.service", user.0))?;
        Ok(user)
    }

    fn run(&self, words: &str) -> Result<String> {
        let user = &self.0;
        sh(&format!(
            "setpriv --reuid={user} --regid={user} --init-groups env HOME=/home/rootless XDG_RUNTIME_DIR=/run/user/{user} \
             DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/{user}/bus DOCKER_HOST=unix:///run/user/{user}/docker.sock {words}"
        ))
    }

    /// The cgroup of something that it runs, once that is there.
    fn cgroup(&self, name: &str) -> Result<Cgroup> {
        let find = format!("find /sys/fs/cgroup/user.slice -name '{name}'");
        eventually("the scope is there", || Ok(!sh(&find)?.is_empty()))?;
        sh(&find).map(Cgroup)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = sh(&format!(
            "systemctl stop user@{}.service; rm -rf /dev/shm/rootless*; userdel --remove rootless",
            self.0
        ));
    }
}

struct Cgroup(String);

impl Cgroup {
    fn low(&self) -> Result<u64> {
        knob(&format!("{}/memory.low", self.0))
    }

    /// The least that is protected on the way up to the root.
    fn cover(&self) -> Result<u64> {
        let above = Path::new(&self.0).ancestors().skip(1);
        let slices = above.take_while(|dir| *dir != Path::new("/sys/fs/cgroup"));
        slices
            .map(|dir| knob(&dir.join("memory.low").to_string_lossy()))
            .try_fold(u64::MAX, |least, low| Ok(least.min(low?)))
    }

    /// Whether more than `beyond` MiB of it are protected, and covered up to the root.
    fn is_protected(&self, beyond: u64) -> Result<bool> {
        let low = self.low()?;
        Ok(low > beyond * MIB && self.cover()? >= low)
    }

    /// Stops ctlmgr: what its user said is in force, and nothing else is left.
    fn has_its_own_after_a_stop(&self, low: u64) -> Result<()> {
        sh("systemctl stop ctlmgr.service")?;
        ensure!(self.low()? == low, "after the stop it is {}", self.low()?);
        ensure!(json("ctlmgr diff --json")? == serde_json::json!([]), "something is left");
        ensure!(knob("/sys/fs/cgroup/user.slice/memory.low")? == 0, "the cover is left");
        Ok(())
    }
}

/// A scope as podman makes them, which holds 64 MiB, and 32 more once it is told.
fn podmans(user: &User, reservation: &str) -> Result<Cgroup> {
    user.run(&format!(
        "systemd-run --user --scope --unit={SCOPE} -p MemoryLow={reservation} \
         sh -c 'cd /dev/shm; mkfifo rootless.more; dd if=/dev/urandom of=rootless bs=1M count=64; \
         cat rootless.more; dd if=/dev/urandom of=rootless bs=1M seek=64 count=32; exec sleep 100000' \
         >/dev/null 2>&1 &"
    ))?;
    user.cgroup(SCOPE)
}

/// A container of the user's own dockerd, which holds 64 MiB.
fn of_own_dockerd(user: &User, reservation: &str) -> Result<Cgroup> {
    user.run(
        "systemd-run --user --unit=docker --property=Delegate=yes /usr/share/docker.io/contrib/dockerd-rootless.sh \
         --bridge=none --iptables=false --ip6tables=false",
    )?;
    eventually("the user's dockerd answers", || Ok(user.run("docker version").is_ok()))?;
    sh("docker save busybox >/dev/shm/rootless.tar")?;
    user.run("docker load --input /dev/shm/rootless.tar")?;
    let id = user.run(&format!(
        "docker run -d --name shop --network none --memory-reservation {reservation} --shm-size 1g busybox \
         sh -c 'dd if=/dev/zero of=/dev/shm/set bs=1M count=64; sleep 100000'"
    ))?;
    user.cgroup(&format!("docker-{id}.scope"))
}

/// Its scope and all slices above it get what they need, a reload of either manager changes none of it, and all is put back.
#[test]
fn a_rootless_container_is_protected_whatever_its_users_manager_reloads() -> Result<()> {
    let user = User::new()?;
    let scope = podmans(&user, "20M")?;
    let ctlmgr = Ctlmgr::start("act")?;
    // A look while it still grew may have written a little less than it needs now.
    eventually("it is protected, and covered up to the root", || scope.is_protected(32))?;
    ensure!(ctlmgr.verdict(NAME)?["promise"].is_null(), "no user's manager promises the host's");
    // So that every knob was written more than once.
    user.run("sh -c 'echo >/dev/shm/rootless.more'")?;
    eventually("what it has grown by is protected and covered too", || scope.is_protected(80))?;
    user.run("systemctl --user daemon-reload")?;
    sh("systemctl daemon-reload")?;
    eventually("it still is", || scope.is_protected(80))?;
    ensure!(ctlmgr.status()?["counters"]["failures"] == 0, "a write failed");
    // What its user says counts. His manager sets the slice above back to nothing on the way, which he did not say.
    user.run(&format!("systemctl --user set-property --runtime {SCOPE} MemoryLow=30M"))?;
    let said = format!(
        "{NAME}: memory.low was changed to 30 MiB by another writer; ctlmgr leaves it at that"
    );
    eventually("its value is named", || Ok(sh("ctlmgr status")?.contains(&said)))?;
    ensure!(scope.low()? == 30 * MIB, "it is {}", scope.low()?);
    eventually("it is covered again", || Ok(scope.cover()? >= 30 * MIB))?;
    let others = sh("ctlmgr status")?.matches("by another writer").count() - 1;
    ensure!(others == 0, "a slice is left at nothing");
    scope.has_its_own_after_a_stop(30 * MIB)
}

/// As dockerd and runc make it there: a scope of the user's manager, with a reservation that counts for nothing on the host.
#[test]
fn a_container_of_a_users_own_dockerd_is_protected() -> Result<()> {
    let user = User::new()?;
    let container = of_own_dockerd(&user, "20m")?;
    let ctlmgr = Ctlmgr::start("act")?;
    eventually("it is protected, and covered up to the root", || container.is_protected(48))?;
    let id = user.run("docker inspect --format '{{.Id}}' shop")?;
    let name = &id[..12];
    ensure!(ctlmgr.verdict(name)?["promise"].is_null(), "no user promises the host's memory");
    // What its user says counts for his container.
    user.run("docker update --memory-reservation 30m shop")?;
    let said = format!(
        "{name}: memory.low was changed to 30 MiB by another writer; ctlmgr leaves it at that"
    );
    eventually("its value is named", || Ok(sh("ctlmgr status")?.contains(&said)))?;
    ensure!(ctlmgr.status()?["counters"]["failures"] == 0, "a write failed");
    container.has_its_own_after_a_stop(30 * MIB)
}
