//! What an operator who installs and removes the package sees.

use anyhow::Result;
use ctlmgr_live::{Container, Ctlmgr, eventually, json, sh, status};

/// The first test of all, by its name: the others need the package.
#[test]
fn a_install_touches_nothing_and_observes() -> Result<()> {
    let web = Container::start("web", 40, "--memory-reservation 64m")?;
    let before = web.knob("memory.low")?;
    sh("dpkg -i /run/in/ctlmgr.deb")?;
    assert_eq!(status("systemctl is-enabled ctlmgr.service")?.0, 1, "nothing runs unasked");
    sh("systemctl enable --now ctlmgr")?;
    eventually("the daemon has seen the container", || {
        Ok(json("ctlmgr why web --json")?["verdict"]["promise"] == 64 << 20)
    })?;
    let status = json("ctlmgr status --json")?;
    assert_eq!(status["memory_mode"], "observe");
    assert_eq!(status["counters"]["writes"], 0);
    assert_eq!(web.knob("memory.low")?, before);
    assert_eq!(
        sh("systemctl show -P StatusText ctlmgr")?.split(';').next(),
        Some("memory: observe")
    );
    Ok(())
}

#[test]
fn pages_completions_and_help_are_there() -> Result<()> {
    // The guest's dpkg leaves documentation out, so the package itself is asked.
    let content = sh("dpkg-deb -c /run/in/ctlmgr.deb")?;
    for file in [
        "/usr/share/man/man1/ctlmgr.1.gz",
        "/usr/share/man/man8/ctlmgrd.8.gz",
        "/usr/share/man/man5/ctlmgr.toml.5.gz",
        "/usr/share/bash-completion/completions/ctlmgr",
    ] {
        assert!(content.contains(file), "{file}");
    }
    let help = sh("ctlmgr --help")?;
    assert!(help.lines().all(|l| l.chars().count() <= 80), "{help}");
    sh("systemd-analyze verify --man=no /usr/lib/systemd/system/ctlmgr.service")?;
    Ok(())
}

#[test]
fn the_socket_lets_strangers_neither_read_nor_change() -> Result<()> {
    let ctlmgr = Ctlmgr::start("observe")?;
    let (code, text) = status("setpriv --reuid 65534 --clear-groups ctlmgr status")?;
    assert_eq!(code, 1, "{text}");
    sh("id reader >/dev/null 2>&1 || useradd -G ctlmgr reader")?;
    sh("setpriv --reuid reader --init-groups ctlmgr status >/dev/null")?;
    let (code, text) = status("setpriv --reuid reader --init-groups ctlmgr mode act")?;
    assert_eq!(code, 1);
    assert!(text.contains("not allowed"), "{text}");
    sh("id changer >/dev/null 2>&1 || useradd -G ctlmgr-admin changer")?;
    let changed = sh("setpriv --reuid changer --init-groups ctlmgr mode act")?;
    assert_eq!(changed, "memory: act");
    ctlmgr.stop_and_expect_pristine()
}

#[test]
fn doctor_says_what_is_wrong_here() -> Result<()> {
    let _web = Container::start("web", 40, "--memory-reservation 64m")?;
    let findings = json("ctlmgr doctor --json")?;
    let severity = |check: &str| {
        let list = findings.as_array().cloned().unwrap_or_default();
        list.into_iter().find(|f| f["check"] == check).map(|f| f["severity"].clone())
    };
    assert_eq!(severity("cgroup v2"), Some("ok".into()));
    assert_eq!(severity("PSI"), Some("ok".into()));
    assert_eq!(severity("dockerd"), Some("ok".into()));
    assert_eq!(severity("page aging"), Some("warning".into()), "6.12 with MGLRU");
    assert_eq!(severity("cover"), Some("warning".into()), "a reservation below a bare slice");
    sh("swapoff -a")?;
    let without = sh("ctlmgr doctor; swapon /dev/disk/by-id/virtio-swap")?;
    assert!(without.contains("warn  swap"), "{without}");
    Ok(())
}
