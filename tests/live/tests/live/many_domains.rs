//! Placement, on a machine with two last-level caches and two memory nodes. (The other tests run on one
//! with one cache, where there is nothing to choose.)

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use ctlmgr_live::{Ctlmgr, eventually, expect_pristine, json, sh};
use serde_json::Value;

const CONFIG: &str = "/etc/ctlmgr/config.d/50-place.toml";
/// Short times: everything is slow enough here.
const SETTINGS: &str = "[place]\ntraffic = \"on\"\nlearn_secs = 5\ncool_down_secs = 5\n";

/// A docker network, and what is on it; all of it goes with this value.
struct Town {
    ctlmgr: Option<Ctlmgr>,
}

impl Town {
    fn found() -> Result<Town> {
        std::fs::write(CONFIG, SETTINGS)?;
        sh("d=$(mktemp -d); install -m 755 /run/in/talk $d/talk; tar -C $d -c . | \
            docker import - lab-talk >/dev/null; rm -rf $d; \
            docker network inspect town >/dev/null 2>&1 || docker network create town >/dev/null")?;
        Ok(Town { ctlmgr: Some(Ctlmgr::start("observe")?) })
    }

    /// Starts a container that answers calls, and calls these all the time.
    fn talker(&self, name: &str, options: &str, callees: &[&str]) -> Result<()> {
        let mut calls = String::new();
        for callee in callees {
            let address = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
            let address = sh(&format!("docker inspect -f '{address}' {callee}"))?;
            calls += &format!(" --call {address}:7000:32768:20");
        }
        sh(&format!(
            "docker run -d --name {name} --network town {options} lab-talk /talk --port 7000{calls}"
        ))
        .map(drop)
    }

    fn act(&self) -> Result<()> {
        sh("ctlmgr mode --job place act").map(drop)
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        let names = "docker ps -aq --filter ancestor=lab-talk";
        let _ = sh(&format!("{names} | xargs -r docker rm -f; rm -f {CONFIG}"));
        drop(self.ctlmgr.take());
    }
}

/// A file of a container's cgroup.
fn cgroup(name: &str, file: &str) -> Result<String> {
    let id = sh(&format!("docker inspect -f '{{{{.Id}}}}' {name}"))?;
    sh(&format!("cat $(find /sys/fs/cgroup -type d -name '*{id}*' | head -n 1)/{file}"))
}

fn cpus(name: &str) -> Result<String> {
    cgroup(name, "cpuset.cpus.effective")
}

fn domains() -> Result<Vec<String>> {
    let topology = json("ctlmgr topology --json")?;
    let all = topology["domains"].as_array().context("domains")?;
    Ok(all.iter().filter_map(|d| d["cpus"].as_str().map(str::to_owned)).collect())
}

fn all_cpus() -> Result<String> {
    sh("cat /sys/devices/system/cpu/online")
}

fn verdict(name: &str) -> Result<Value> {
    let status = json("ctlmgr place show --json")?;
    let all = status["plan"]["verdicts"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|v| v["name"] == name).context("no verdict")
}

/// Two pairs that talk, and one that does not.
fn pairs(town: &Town) -> Result<()> {
    town.talker("one-b", "", &[])?;
    town.talker("one-a", "", &["one-b"])?;
    town.talker("two-b", "", &[])?;
    town.talker("two-a", "", &["two-b"])?;
    town.talker("alone", "", &[])
}

fn are_paired() -> Result<bool> {
    let domains = domains()?;
    let of = |name| cpus(name);
    let (one, two) = (of("one-a")?, of("two-a")?);
    Ok(one == of("one-b")?
        && two == of("two-b")?
        && domains.contains(&one)
        && domains.contains(&two))
}

#[test]
fn those_that_talk_are_pinned_to_one_domain_live_and_undone_on_stop() -> Result<()> {
    let town = Town::found()?;
    ensure!(domains()?.len() == 2, "this guest has other caches than the test needs");
    pairs(&town)?;
    // runc writes past the manager that it may not swap.
    town.talker("unswapped", "--memory 64m --memory-swap 64m", &["one-b"])?;
    ensure!(cgroup("unswapped", "memory.swap.max")? == "0", "what runc has set");
    let all = all_cpus()?;
    eventually("the observer would pin them", || Ok(!verdict("one-a")?["cpus"].is_null()))?;
    ensure!(cpus("one-a")? == all, "an observer has pinned");
    let started = sh("docker inspect -f '{{.State.StartedAt}}' one-a")?;
    town.act()?;
    eventually("pairs share a domain", are_paired)?;
    ensure!(cpus("alone")? == all, "who talks to nobody runs anywhere");
    eventually("who talks to one is there, too", || Ok(cpus("unswapped")? == cpus("one-b")?))?;
    ensure!(cgroup("unswapped", "memory.swap.max")? == "0", "a pin lets it swap");
    let id = sh("docker inspect -f '{{.Id}}' one-a")?;
    let writes =
        sh(&format!("journalctl -u ctlmgr.service | grep -c '{id}.scope cpuset.cpus: all ->'"))?;
    ensure!(writes == "1", "pinned {writes} times");
    ensure!(sh("docker inspect -f '{{.State.StartedAt}}' one-a")? == started, "it was restarted");
    let why = sh("ctlmgr why one-a")?;
    ensure!(why.contains("stay near") && why.contains("cpuset.cpus"), "{why}");
    let diff = sh("ctlmgr diff")?;
    ensure!(diff.contains("cpuset.cpus: all -> "), "{diff}");
    // The manager knows: its next write leaves ours there.
    sh("systemctl daemon-reload")?;
    ensure!(are_paired()?, "lost by a reload of the manager");
    // The threads of the container really run there.
    let pid = sh("docker inspect -f '{{.State.Pid}}' one-a")?;
    let allowed = sh(&format!("awk '/Cpus_allowed_list/ {{print $2}}' /proc/{pid}/status"))?;
    ensure!(allowed == cpus("one-a")?, "{allowed}");
    sh("systemctl stop ctlmgr.service")?;
    for name in ["one-a", "one-b", "two-a", "two-b", "alone", "unswapped"] {
        ensure!(cpus(name)? == all, "{name} is still pinned");
    }
    expect_pristine()
}

#[test]
fn a_crash_loses_no_pin_and_observing_gives_all_back() -> Result<()> {
    let town = Town::found()?;
    pairs(&town)?;
    town.act()?;
    eventually("pairs share a domain", are_paired)?;
    let before = cpus("one-a")?;
    sh("systemctl kill --signal=KILL ctlmgr.service")?;
    eventually("it runs again", || Ok(!verdict("one-a")?["cpus"].is_null()))?;
    ensure!(cpus("one-a")? == before, "a crash has moved it");
    sh("ctlmgr mode --job place observe")?;
    let all = all_cpus()?;
    eventually("all is given back", || Ok(cpus("one-a")? == all && cpus("two-b")? == all))?;
    expect_pristine()
}

#[test]
fn what_a_user_has_set_stays_and_later_changes_of_his_too() -> Result<()> {
    let town = Town::found()?;
    town.talker("own", "--cpuset-cpus 3", &[])?;
    town.talker("guest", "", &["own"])?;
    town.act()?;
    let home = domains()?.into_iter().find(|d| d.contains('3')).context("a domain with CPU 3")?;
    eventually("the other one comes to it", || Ok(cpus("guest")? == home))?;
    ensure!(cpus("own")? == "3");
    sh("docker update --cpuset-cpus 0 guest")?;
    eventually("the user's word is heard", || {
        let reason = verdict("guest")?["reason"].to_string();
        Ok(reason.contains("another writer") || reason.contains("own choice"))
    })?;
    ensure!(cpus("guest")? == "0");
    sh("systemctl stop ctlmgr.service")?;
    ensure!((cpus("guest")?, cpus("own")?) == ("0".to_owned(), "3".to_owned()));
    expect_pristine()
}

#[test]
fn groups_are_together_the_exclusive_alone_and_memory_follows_if_asked() -> Result<()> {
    let town = Town::found()?;
    std::fs::write(CONFIG, format!("{SETTINGS}memory = true\n"))?;
    sh("ctlmgr config check && systemctl reload ctlmgr.service")?;
    for name in ["team-1", "team-2"] {
        town.talker(name, "--label ctlmgr.place.group=team", &[])?;
    }
    town.talker("alone-db", "--label ctlmgr.place.exclusive=true", &[])?;
    town.act()?;
    eventually("the group is together", || {
        let one = cpus("team-1")?;
        Ok(one == cpus("team-2")? && domains()?.contains(&one))
    })?;
    eventually("the exclusive one is alone", || {
        Ok(domains()?.contains(&cpus("alone-db")?) && cpus("alone-db")? != cpus("team-1")?)
    })?;
    let nodes: BTreeSet<String> =
        [cgroup("team-1", "cpuset.mems")?, cgroup("alone-db", "cpuset.mems")?].into();
    ensure!(nodes.iter().all(|n| n == "0" || n == "1"), "{nodes:?}");
    sh("systemctl stop ctlmgr.service")?;
    ensure!(cgroup("team-1", "cpuset.mems.effective")? == "0-1");
    expect_pristine()
}
