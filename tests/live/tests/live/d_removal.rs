//! What is left when the package goes.

use anyhow::Result;
use ctlmgr_live::{Container, Ctlmgr, knob, sh};

/// The last test of all, by its name.
#[test]
fn removal_reverts_and_purge_removes_the_configuration() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    sh("dpkg -r ctlmgr")?;
    assert_eq!(web.knob("memory.low")?, 0);
    assert_eq!(knob("/sys/fs/cgroup/ctlmgr.slice/memory.low")?, 0);
    let left = sh(
        "find / -xdev \\( -path /proc -o -path /run/in -o -path /var/lib/dpkg -o -path /var/tmp \\) -prune -o \
                   -name '*ctlmgr*' -print | grep -v '^/sys\\|ctlmgr.slice\\|/var/log\\|/var/cache' | sort",
    )?;
    let stays = |l: &str| l.starts_with("/etc/ctlmgr") || l.starts_with("/var/lib/ctlmgr");
    assert!(left.lines().all(stays), "only configuration and what was learned stay: {left}");
    assert!(std::path::Path::new("/etc/ctlmgr/config.d/10-ctlmgr.toml").exists());
    assert!(!std::path::Path::new("/run/ctlmgr").exists());
    sh("dpkg -P ctlmgr")?;
    assert!(!std::path::Path::new("/etc/ctlmgr").exists());
    assert!(!std::path::Path::new("/var/lib/ctlmgr").exists());
    Ok(())
}
