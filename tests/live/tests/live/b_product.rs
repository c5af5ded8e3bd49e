//! The main job on real containers, other writers, and the views on both.

use anyhow::Result;
use ctlmgr_live::{Container, Ctlmgr, eventually, json, knob, sh, status};
use serde_json::Value;

const MIB: u64 = 1 << 20;

#[test]
fn act_protects_covers_and_revert_puts_back() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let promised = Container::start("db", 40, "--memory-reservation 96m")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    ctlmgr.wait_protected(&promised)?;
    let diff = json("ctlmgr diff --json")?;
    assert!(diff.as_array().is_some_and(|d| d.len() >= 2), "{diff}");
    eventually("why explains it", || Ok(sh("ctlmgr why web")?.contains("keeps all of the")))?;
    sh("ctlmgr revert")?;
    assert_eq!(web.knob("memory.low")?, 0);
    assert_eq!(promised.knob("memory.low")?, 96 * MIB, "the user's own value is back");
    assert_eq!(knob("/sys/fs/cgroup/ctlmgr.slice/memory.low")?, 0);
    assert_eq!(ctlmgr.status()?["memory_mode"], "observe", "or it would do it all again");
    assert_eq!(json("ctlmgr diff --json")?, serde_json::json!([]));
    Ok(())
}

#[test]
fn weights_come_from_labels_rules_and_the_command() -> Result<()> {
    let _a = Container::start("a1", 8, "--label ctlmgr.class=critical")?;
    let _b = Container::start(
        "b1",
        8,
        "--label ctlmgr.weight=rubbish --label com.docker.compose.project=shop",
    )?;
    let ctlmgr = Ctlmgr::start("observe")?;
    let weight = |name: &str, want: u64| {
        eventually(&format!("{name} has weight {want}"), || {
            Ok(ctlmgr.verdict(name)?["weight"] == want)
        })
    };
    weight("a1", 1000)?;
    weight("b1", 100)?;
    assert!(sh("ctlmgr status")?.contains("b1: label ctlmgr.weight=rubbish ignored"));
    sh(
        "printf '[[rule]]\\nproject = \"shop\"\\nclass = \"high\"\\n' >/etc/ctlmgr/config.d/90-test.toml; systemctl reload ctlmgr",
    )?;
    weight("b1", 400)?;
    sh("ctlmgr weight b1 7")?;
    weight("b1", 7)?;
    sh("ctlmgr weight b1 default")?;
    weight("b1", 400)?;
    for bad in ["0", "10001", "heavy"] {
        assert_eq!(status(&format!("ctlmgr weight b1 {bad}"))?.0, 2, "{bad}");
    }
    Ok(())
}

#[test]
fn a_bad_configuration_is_not_applied_and_is_named() -> Result<()> {
    let ctlmgr = Ctlmgr::start("observe")?;
    sh(
        "printf '[[rule]]\\nname = \"vast\"\\npromise = \"64T\"\\n' >/etc/ctlmgr/config.d/91-bad.toml",
    )?;
    let (code, text) = status("ctlmgr config check")?;
    assert_eq!(code, 2);
    assert!(
        text.contains("91-bad.toml:1: rule.promise: 64 TiB is more than this machine has"),
        "{text}"
    );
    sh(
        "printf '[memory]\\nmoed = \"act\"\\n' >/etc/ctlmgr/config.d/91-bad.toml; systemctl reload ctlmgr",
    )?;
    eventually("status says what is wrong", || {
        Ok(sh("ctlmgr status")?
            .contains("91-bad.toml:2: memory.moed: unknown key; did you mean `mode`?"))
    })?;
    assert_eq!(ctlmgr.status()?["memory_mode"], "observe");
    let (code, text) = status("ctlmgr config check")?;
    assert_eq!(code, 2);
    assert!(text.contains("91-bad.toml:2"), "{text}");
    sh("systemctl stop ctlmgr.service")?;
    let (code, _) = status("systemctl start ctlmgr.service")?;
    assert_ne!(code, 0, "a daemon without a good configuration does not start");
    assert_eq!(sh("systemctl show -P ExecMainStatus ctlmgr.service")?, "78");
    sh(
        "rm /etc/ctlmgr/config.d/91-bad.toml; systemctl reset-failed ctlmgr; systemctl start ctlmgr; ctlmgr status",
    )?;
    Ok(())
}

#[test]
fn units_and_containers_in_system_slice_are_covered() -> Result<()> {
    sh("printf '[units]\\nmanage = [\"lab-*.service\"]\\n' >/tmp/units.toml")?;
    let inside = Container::start("inside", 48, "--cgroup-parent system.slice")?;
    sh("systemd-run --quiet --unit=lab-unit sh -c 'head -c 60M /dev/urandom | sleep 10000 & \
        dd if=/dev/urandom of=/dev/shm/lab bs=1M count=60; wait'")?;
    let ctlmgr = Ctlmgr::start("act")?;
    sh("cp /tmp/units.toml /etc/ctlmgr/config.d/92-units.toml; systemctl reload ctlmgr")?;
    let unit = "/sys/fs/cgroup/system.slice/lab-unit.service/memory.low";
    eventually("the unit is protected", || Ok(knob(unit)? >= 48 * MIB))?;
    ctlmgr.wait_protected(&inside)?;
    // Demand still moves, so the two may be a write apart for a moment.
    eventually("the slice covers both", || {
        let sum = knob(unit)? + inside.knob("memory.low")?;
        Ok(knob("/sys/fs/cgroup/system.slice/memory.low")? >= sum)
    })?;
    sh("systemctl stop ctlmgr.service")?;
    assert_eq!(knob(unit)?, 0);
    assert_eq!(knob("/sys/fs/cgroup/system.slice/memory.low")?, 0);
    sh("systemctl stop lab-unit.service; rm -f /dev/shm/lab")?;
    drop(ctlmgr);
    Ok(())
}

/// Containers of other engines, and of projects that have a slice of their own.
#[test]
fn podman_and_nested_slices_are_covered() -> Result<()> {
    let id = "0123456789abcdef".repeat(4);
    let shop = Container::start("shop", 48, "--cgroup-parent ctlmgr-shop.slice")?;
    let others = OtherEngine(&id);
    // What podman would make is a scope with a payload.
    let podman = format!("/sys/fs/cgroup/machine.slice/libpod-{id}.scope");
    sh(&format!(
        "systemd-run --quiet --scope --slice=machine.slice --unit=libpod-{id} sh -c \
         'dd if=/dev/urandom of=/dev/shm/podman bs=1M count=48 2>/dev/null; exec sleep 100000' \
         >/dev/null 2>&1 &"
    ))?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&shop)?;
    eventually("the nested slice is covered up to the top", || {
        Ok(knob("/sys/fs/cgroup/ctlmgr.slice/memory.low")? >= shop.knob("memory.low")?)
    })?;
    eventually("it is protected below covered ancestors", || {
        let low = knob(&format!("{podman}/memory.low"))?;
        let top = podman.split('/').take(5).collect::<Vec<_>>().join("/");
        Ok(low > 40 * MIB && knob(&format!("{top}/memory.low"))? >= low)
    })?;
    drop(shop);
    let result = ctlmgr.stop_and_expect_pristine();
    drop(others);
    result
}

/// What looks like podman's, gone with the test, even with one that failed.
struct OtherEngine<'a>(&'a str);

impl Drop for OtherEngine<'_> {
    fn drop(&mut self) {
        let _ = sh(&format!(
            "systemctl stop libpod-{}.scope; rm -f /dev/shm/podman; systemctl daemon-reload",
            self.0
        ));
    }
}

#[test]
fn a_floor_becomes_memory_min_up_to_the_root() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    sh(
        "printf '[[rule]]\\nname = \"web\"\\nfloor = \"40M\"\\n' >/etc/ctlmgr/config.d/93-floor.toml; systemctl reload ctlmgr",
    )?;
    eventually("the floor is kept", || {
        let slice = knob("/sys/fs/cgroup/ctlmgr.slice/memory.min")?;
        Ok(web.knob("memory.min")? == 40 * MIB && slice >= 40 * MIB)
    })?;
    ctlmgr.stop_and_expect_pristine()?;
    assert_eq!(web.knob("memory.min")?, 0);
    assert_eq!(knob("/sys/fs/cgroup/ctlmgr.slice/memory.min")?, 0);
    Ok(())
}

#[test]
fn another_writers_value_stays_and_is_named_or_is_written_over() -> Result<()> {
    let web = Container::start("web", 64, "")?;
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    // Before its keeper is told what he is told by another is overtaken by ours, which is on its way.
    ctlmgr.wait_told(&web)?;
    let unit = web.cgroup.file_name().map(|n| n.to_string_lossy().into_owned());
    let unit = unit.unwrap_or_default();
    // What it holds itself it is not told: that would undo what `docker update` sets meanwhile.
    let told = sh(&format!("ls /run/systemd/transient/{unit}.d"))?;
    assert!(told.contains("50-MemoryLow.conf") && !told.contains("MemoryMin"), "{told}");
    // Whoever puts back what was there before ctlmgr is another writer, too.
    sh(&format!("systemctl set-property --runtime {unit} MemoryLow=0"))?;
    let said = "web: memory.low was changed to 0 B by another writer; ctlmgr leaves it at that";
    eventually("status names it", || Ok(sh("ctlmgr status")?.contains(said)))?;
    let before = ctlmgr.status()?["counters"]["cycles"].as_u64();
    eventually("ctlmgr has looked again", || {
        Ok(ctlmgr.status()?["counters"]["cycles"].as_u64() > before)
    })?;
    assert_eq!(web.knob("memory.low")?, 0);
    sh("printf '[memory]\non_override = \"reassert\"\n' >/etc/ctlmgr/config.d/96-override.toml; \
        systemctl reload ctlmgr")?;
    let counted =
        || -> Result<Option<u64>> { Ok(ctlmgr.status()?["counters"]["overrides"].as_u64()) };
    for earlier in 1..=2 {
        eventually("its own is written again", || Ok(web.knob("memory.low")? > 32 * MIB))?;
        ctlmgr.wait_told(&web)?;
        sh(&format!("systemctl set-property --runtime {unit} MemoryLow=20M"))?;
        // However often it is the same value.
        eventually("it is counted", || Ok(counted()? > Some(earlier)))?;
    }
    eventually("its own is written again", || Ok(web.knob("memory.low")? > 32 * MIB))?;
    ctlmgr.wait_told(&web)?;
    sh("systemctl stop ctlmgr.service; rm /etc/ctlmgr/config.d/96-override.toml")?;
    assert_eq!(web.knob("memory.low")?, 20 * MIB, "undo leaves it too");
    Ok(())
}

/// What a label says wrongly has no effect and is named, and nothing worse.
#[test]
fn labels_that_cannot_be_meant_are_named() -> Result<()> {
    let ctlmgr = Ctlmgr::start("act")?;
    let odd = Container::start(
        "odd",
        40,
        "--memory 200m --label ctlmgr.wieght=400 --label ctlmgr.class=hgih --label ctlmgr.memory.promise=300m",
    )?;
    ctlmgr.wait_protected(&odd)?;
    let verdict = ctlmgr.verdict("odd")?;
    assert_eq!(verdict["weight"], 100, "{verdict}");
    let said = sh("ctlmgr status")?;
    for words in [
        "label ctlmgr.wieght ignored: unknown; did you mean ctlmgr.weight?",
        "no such class",
        "but its share ends at its own limit of 200 MiB",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    drop(odd);
    ctlmgr.stop_and_expect_pristine()
}

#[test]
fn what_if_top_record_and_replay_need_no_acting() -> Result<()> {
    let web_container = Container::start("web", 64, "--memory-reservation 64m")?;
    let ctlmgr = Ctlmgr::start("observe")?;
    eventually("web is known", || Ok(ctlmgr.verdict("web")?["promise"] == 64 * MIB))?;
    let compared = json("ctlmgr what-if --capacity 100M --add 1G@low --json")?;
    let of = |name: &str| {
        let shares = compared["shares"].as_array().cloned().unwrap_or_default();
        shares.into_iter().find(|s| s["name"] == name)
    };
    let web = of("web").unwrap_or_default();
    assert!(web["after_bytes"].as_u64() < web["before_bytes"].as_u64(), "{compared}");
    assert!(of("1G@low").is_some_and(|s| s["weight"] == 25), "{compared}");
    let heavier = json("ctlmgr what-if --weight web=400 --capacity 100M --add 1G@low --json")?;
    let share = |of: &Value| -> Option<u64> {
        of["shares"].as_array()?.iter().find(|s| s["name"] == "web")?["after_bytes"].as_u64()
    };
    assert!(share(&compared).is_some() && share(&heavier) > share(&compared), "{heavier}");
    assert_eq!(ctlmgr.verdict("web")?["weight"], 100, "it was only asked");
    let (code, text) = status("ctlmgr what-if --weight nobody=5")?;
    assert_eq!(code, 2);
    assert!(text.contains("no workload `nobody`"), "{text}");
    assert!(sh("ctlmgr memory top")?.contains("REFL/S"));
    sh("rm -f /tmp/rec; ctlmgr record --seconds 15 /tmp/rec")?;
    let replayed = json("ctlmgr replay /tmp/rec --json")?;
    assert!(replayed["decisions"].as_u64() > Some(0), "{replayed}");
    assert_eq!(replayed["deviations"], serde_json::json!([]));
    assert_eq!(status("ctlmgr record /tmp/rec")?.0, 1, "a recording is not overwritten");
    ctlmgr.stop_and_expect_pristine_but(&web_container, 64 * MIB)
}

/// The system manager writes all memory values of a scope whenever one of them is set, and does
/// not know those that runc wrote past it.
#[test]
fn limits_that_dockerd_set_stay() -> Result<()> {
    let web = Container::start("web", 40, "--memory 300m --memory-swap 300m")?;
    let limits = || Ok::<_, anyhow::Error>((web.knob("memory.max")?, web.knob("memory.swap.max")?));
    let before = limits()?;
    assert_eq!(before, (300 * MIB, 0));
    let ctlmgr = Ctlmgr::start("act")?;
    ctlmgr.wait_protected(&web)?;
    assert_eq!(limits()?, before);
    ctlmgr.stop_and_expect_pristine()?;
    assert_eq!(limits()?, before);
    Ok(())
}
