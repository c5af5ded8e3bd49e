//! Containers of a user's own manager: podman without root.

use std::path::Path;

use anyhow::{Result, ensure};
use ctlmgr_live::{Ctlmgr, eventually, json, knob, sh};

const MIB: u64 = 1 << 20;
const SCOPE: &str = "libpod-7000000000000000000000000000000000000000000000000000000000000000.scope";
/// What it is called: its name is its user's.
const NAME: &str = "700000000000";

/// A user whose manager runs a scope as podman makes them; both are gone with the test.
struct Rootless {
    user: String,
    cgroup: String,
}

impl Rootless {
    /// Its manager is started without PAM, of which the guest has not the module.
    fn start(reservation: &str) -> Result<Rootless> {
        sh("useradd --create-home rootless; mkdir -p /run/systemd/system/user@.service.d; \
            printf '[Service]\\nPAMName=\\nEnvironment=XDG_RUNTIME_DIR=/run/user/%%i\\n' \
            >/run/systemd/system/user@.service.d/lab.conf; systemctl daemon-reload; \
            systemctl start user@$(id -u rootless).service")?;
        let mut user = Rootless { user: sh("id -u rootless")?, cgroup: String::new() };
        user.run(&format!(
            "systemd-run --user --scope --unit={SCOPE} -p MemoryLow={reservation} \
             sh -c 'cd /dev/shm; mkfifo rootless.more; dd if=/dev/urandom of=rootless bs=1M count=64; \
             cat rootless.more; dd if=/dev/urandom of=rootless bs=1M seek=64 count=32; exec sleep 100000' \
             >/dev/null 2>&1 &"
        ))?;
        let find = format!("find /sys/fs/cgroup/user.slice -name {SCOPE}");
        eventually("the scope is there", || Ok(!sh(&find)?.is_empty()))?;
        user.cgroup = sh(&find)?;
        Ok(user)
    }

    fn run(&self, words: &str) -> Result<String> {
        let user = &self.user;
        sh(&format!(
            "setpriv --reuid={user} --regid={user} --init-groups env XDG_RUNTIME_DIR=/run/user/{user} {words}"
        ))
    }

    fn low(&self) -> Result<u64> {
        knob(&format!("{}/memory.low", self.cgroup))
    }

    /// The least that is protected on the way up to the root.
    fn cover(&self) -> Result<u64> {
        let above = Path::new(&self.cgroup).ancestors().skip(1);
        let slices = above.take_while(|dir| *dir != Path::new("/sys/fs/cgroup"));
        slices
            .map(|dir| knob(&dir.join("memory.low").to_string_lossy()))
            .try_fold(u64::MAX, |least, low| Ok(least.min(low?)))
    }
}

impl Drop for Rootless {
    fn drop(&mut self) {
        let _ = sh(&format!(
            "systemctl stop user@{}.service; rm -r /run/systemd/system/user@.service.d /dev/shm/rootless*; \
             systemctl daemon-reload; userdel --remove rootless",
            self.user
        ));
    }
}

/// Its scope and all slices above it get what they need, a reload of either manager changes none of it, and all is put back.
#[test]
fn a_rootless_container_is_protected_whatever_its_users_manager_reloads() -> Result<()> {
    let rootless = Rootless::start("20M")?;
    let ctlmgr = Ctlmgr::start("act")?;
    // A look while it still grew may have written a little less than it needs now.
    let is_protected = |beyond: u64| -> Result<bool> {
        let low = rootless.low()?;
        Ok(low > beyond * MIB && rootless.cover()? >= low)
    };
    eventually("it is protected, and covered up to the root", || is_protected(32))?;
    ensure!(ctlmgr.verdict(NAME)?["promise"].is_null(), "no user's manager promises the host's");
    // So that every knob was written more than once.
    rootless.run("sh -c 'echo >/dev/shm/rootless.more'")?;
    eventually("what it has grown by is protected and covered too", || is_protected(80))?;
    rootless.run("systemctl --user daemon-reload")?;
    sh("systemctl daemon-reload")?;
    eventually("it still is", || is_protected(80))?;
    ensure!(ctlmgr.status()?["counters"]["failures"] == 0, "a write failed");
    // What its user says counts. His manager sets the slice above back to nothing on the way, which he did not say.
    rootless.run(&format!("systemctl --user set-property --runtime {SCOPE} MemoryLow=30M"))?;
    let said = format!(
        "{NAME}: memory.low was changed to 30 MiB by another writer; ctlmgr leaves it at that"
    );
    eventually("its value is named", || Ok(sh("ctlmgr status")?.contains(&said)))?;
    ensure!(rootless.low()? == 30 * MIB, "it is {}", rootless.low()?);
    eventually("it is covered again", || Ok(rootless.cover()? >= 30 * MIB))?;
    let others = sh("ctlmgr status")?.matches("by another writer").count() - 1;
    ensure!(others == 0, "a slice is left at nothing");
    sh("systemctl stop ctlmgr.service")?;
    ensure!(rootless.low()? == 30 * MIB, "after the stop it is {}", rootless.low()?);
    ensure!(json("ctlmgr diff --json")? == serde_json::json!([]), "something is left");
    ensure!(knob("/sys/fs/cgroup/user.slice/memory.low")? == 0, "the cover is left");
    Ok(())
}
