//! What is learned of starts, and batches that are planned ahead.

use anyhow::{Context, Result, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, json, sh, status};
use serde_json::Value;

const CONFIG: &str = "/etc/ctlmgr/config.d/50-live.toml";

/// A piece of configuration, for as long as it lives.
struct Configured;

impl Configured {
    fn with(text: &str) -> Result<Configured> {
        std::fs::write(CONFIG, text).context(CONFIG)?;
        Ok(Configured)
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(CONFIG);
        let _ = status("systemctl reload ctlmgr");
    }
}

/// What was learned of those with this key.
fn profile(key: &str) -> Result<Option<Value>> {
    let all = json("ctlmgr profile list --json")?;
    let found = all.as_array().into_iter().flatten().find(|p| p["key"] == key);
    Ok(found.map(|p| p["profile"].clone()))
}

/// A job of fio that is known as live/NAME, in direct requests of 4 KiB.
fn job(name: &str, pattern: &str) -> Result<Value> {
    let labels = format!(
        "--label com.docker.compose.project=live --label com.docker.compose.service={name}"
    );
    let options = "--name=j --filename=/data/x --size=96m --bs=4k --direct=1 --ioengine=psync --rate=3m \
        --runtime=6 --time_based --minimal";
    sh(&format!(
        "docker run --rm --name {name} --network none --volume /var/tmp/live-jobs:/data {labels} \
         fio fio {options} --rw={pattern} >/dev/null"
    ))?;
    let key = format!("live/{name}");
    eventually("it is learned", || Ok(profile(&key)?.is_some()))?;
    profile(&key)?.context("it was forgotten")
}

#[test]
fn small_requests_in_sequence_are_told_from_random_ones() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    eventually("requests are traced", || is_traced("on"))?;
    let sequential = tell_apart()?;
    expect_traced(&sequential)?;
    let shape = &sequential["io"]["shape"]["write"];
    ensure!(shape["busy_usec"].as_u64() > Some(0), "{shape}");
    Ok(())
}

#[test]
fn where_nothing_is_traced_the_calls_in_which_tasks_wait_tell_them_apart() -> Result<()> {
    let _configured = Configured::with("[starts]\ntrace = \"calls\"\n")?;
    let _ctlmgr = Ctlmgr::start("observe")?;
    eventually("calls are looked at", || is_traced("calls"))?;
    tell_apart()?;
    Ok(())
}

#[test]
fn where_ebpf_cannot_be_the_kernels_events_tell_them_too() -> Result<()> {
    let _configured = Configured::with("[starts]\ntrace = \"events\"\n")?;
    let ctlmgr = Ctlmgr::start("observe")?;
    eventually("events are read", || is_traced("events"))?;
    let instance = std::path::Path::new("/sys/kernel/tracing/instances/ctlmgr");
    ensure!(instance.exists());
    expect_traced(&tell_apart()?)?;
    sh("systemctl kill -s KILL ctlmgr.service; systemctl reset-failed ctlmgr.service || true")?;
    eventually("the daemon is back", || is_traced("events"))?;
    std::fs::write(CONFIG, "[starts]\ntrace = \"ebpf\"\n")?;
    sh("systemctl reload ctlmgr")?;
    eventually("requests are traced otherwise", || is_traced("on"))?;
    ensure!(!instance.exists());
    std::fs::write(CONFIG, "[starts]\ntrace = \"events\"\n")?;
    sh("systemctl reload ctlmgr")?;
    eventually("events are read again", || is_traced("events"))?;
    ctlmgr.stop_and_expect_pristine()?;
    ensure!(!instance.exists());
    Ok(())
}

fn is_traced(how: &str) -> Result<bool> {
    Ok(json("ctlmgr queue --json")?["trace"] == how)
}

/// Each request was seen.
fn expect_traced(sequential: &Value) -> Result<()> {
    let shape = &sequential["io"]["shape"]["write"];
    let of = |key: &str| shape[key].as_u64().unwrap_or_default();
    ensure!(of("sequential") * 10 > of("bytes") * 8, "{shape}");
    ensure!(shape["sizes"][0].as_u64() > Some(1000), "{shape}");
    Ok(())
}

/// Two jobs of small writes; what was learned of the one in sequence.
fn tell_apart() -> Result<Value> {
    // What the program itself reads from the disk is not what is looked for, nor what was learned before.
    sh("docker run --rm --network none fio fio --version; \
        for key in live/seq live/rand; do ctlmgr profile forget $key || true; done")?;
    sh(
        "mkdir -p /var/tmp/live-jobs && dd if=/dev/zero of=/var/tmp/live-jobs/x bs=1M count=96 conv=fsync",
    )?;
    let (sequential, random) = (job("seq", "write")?, job("rand", "randwrite")?);
    assert_eq!(sequential["character"], "sequential-write", "{sequential}");
    assert_eq!(random["character"], "random-write", "{random}");
    ensure!(sh("ctlmgr profile show live/seq")?.contains("% of the bytes in sequence"));
    sh(
        "rm -r /var/tmp/live-jobs; ctlmgr profile forget live/seq && ctlmgr profile forget live/rand",
    )?;
    Ok(sequential)
}

#[test]
fn without_tracing_the_gate_goes_by_io_stat() -> Result<()> {
    let _configured = Configured::with("[starts]\ntrace = \"off\"\n")?;
    let _ctlmgr = Ctlmgr::start("observe")?;
    assert_eq!(json("ctlmgr queue --json")?["trace"], "off");
    ensure!(sh("ctlmgr queue")?.contains("requests to disks are not traced: off"));
    std::fs::write(CONFIG, "[starts]\ntrace = \"auto\"\n")?;
    sh("systemctl reload ctlmgr")?;
    eventually("requests are traced", || is_traced("on"))
}

/// So many reads per second for all containers together.
struct Narrow(String);

impl Narrow {
    fn to(reads: u32) -> Result<Narrow> {
        let disk = sh("findmnt -no MAJ:MIN -T /var/tmp")?;
        let narrow = Narrow(disk);
        narrow.limit(&reads.to_string())?;
        Ok(narrow)
    }

    fn limit(&self, reads: &str) -> Result<()> {
        let line = format!("{} riops={reads}", self.0);
        let file = "/sys/fs/cgroup/ctlmgr.slice/io.max";
        std::fs::write(file, &line).with_context(|| format!("{line} to {file}"))
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        let _ = self.limit("max");
    }
}

/// 500 random reads; what moves less in a second counts for quiet.
fn reader(name: &str) -> String {
    format!(
        "docker run --rm --name {name} --network none --volume /var/tmp/live-jobs:/data \
         --label com.docker.compose.project=live --label com.docker.compose.service={name} \
         fio fio --name=j --filename=/data/x --size=96m --io_size=32000k --bs=64k --direct=1 \
         --ioengine=psync --rw=randread --minimal >/dev/null"
    )
}

#[test]
fn what_two_cost_each_other_is_learned_from_their_starts() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    // The slice stays as long as somebody is in it.
    let _rests = Container::start("rests", 1, "")?;
    sh(
        "mkdir -p /var/tmp/live-jobs && dd if=/dev/zero of=/var/tmp/live-jobs/x bs=1M count=96 conv=fsync",
    )?;
    // What the program itself reads from the disk is not what is looked for.
    sh("docker run --rm --network none fio fio --version")?;
    eventually("nobody else starts", || {
        Ok(json("ctlmgr queue --json")?["starting"].as_array().is_some_and(Vec::is_empty))
    })?;
    let _narrow = Narrow::to(100)?;
    // Beside one that nobody knows nothing would be learned.
    for name in ["one", "two"] {
        sh(&reader(name))?;
        let key = format!("live/{name}");
        eventually("it is known", || Ok(profile(&key)?.is_some()))?;
        let alone = profile(&key)?.context("it was forgotten")?;
        ensure!(alone["alone"].as_u64().is_some_and(|ms| ms >= 4000), "{alone}");
    }
    sh(&format!("{} & {} & wait", reader("one"), reader("two")))?;
    let pair = || -> Result<Option<Value>> {
        let all = json("ctlmgr batch penalties --json")?;
        let is_it = |p: &&Value| p["a"] == "random-read" && p["b"] == "random-read";
        Ok(all.as_array().into_iter().flatten().find(is_it).cloned())
    };
    eventually("it is learned", || Ok(pair()?.is_some()))?;
    let pair = pair()?.context("it was forgotten")?;
    // By the guideline they cost each other 0.5; with half of the disk each they take nearly twice as long.
    ensure!(pair["hundredths"].as_u64().is_some_and(|s| (52..=75).contains(&s)), "{pair}");
    Ok(())
}

fn make(name: &str) -> Result<Container> {
    sh(&format!("docker create --name {name} --network none busybox sleep 100000"))?;
    Ok(Container { name: name.to_owned(), cgroup: std::path::PathBuf::new() })
}

#[test]
fn a_batch_starts_when_the_one_before_is_over() -> Result<()> {
    let _configured = Configured::with("[starts]\nsettle_secs = 3\n")?;
    let _ctlmgr = Ctlmgr::start("observe")?;
    let _all = [make("batch-a")?, make("batch-b")?, make("batch-c")?];
    let plan = "/run/plan.json";
    let text = r#"{"bins": ["reads", "scans"], "penalty": [[0, 2], [2, 0]], "containers": [
        {"name": "batch-a", "bin": "reads"}, {"name": "batch-b", "bin": "scans"},
        {"name": "batch-c", "bin": "reads"}]}"#;
    std::fs::write(plan, text)?;
    let planned = sh(&format!("ctlmgr batch run --dry-run {plan}"))?;
    ensure!(planned.contains("batch 1: ") && planned.contains("batch 2: "), "{planned}");
    let running = "docker ps --format '{{.Names}}' --filter name=batch-";
    assert_eq!(sh(running)?, "", "nothing was started");
    let (code, said) = status(&format!("sed s/batch-b/batch-x/ {plan} | ctlmgr batch run -"))?;
    ensure!(
        code == 2 && said.contains("no such container: batch-x; nothing was started"),
        "{said}"
    );
    assert_eq!(sh(running)?, "", "nothing was started");
    sh(&format!("ctlmgr batch run {plan}"))?;
    let started = |name: &str| -> Result<f64> {
        let text = sh(&format!(
            "date -d \"$(docker inspect -f '{{{{.State.StartedAt}}}}' {name})\" +%s.%N"
        ))?;
        text.parse().with_context(|| format!("when {name} started"))
    };
    let (a, b, c) = (started("batch-a")?, started("batch-b")?, started("batch-c")?);
    // The two of one batch wait for each other only as long as dockerd takes to start both.
    let later = (b - a).abs().min((b - c).abs());
    ensure!(later >= 3.0, "batches {later} s apart: a {a}, b {b}, c {c}");
    ensure!((a > b) == (c > b), "a and c are in one batch: a {a}, b {b}, c {c}");
    ensure!(sh("ctlmgr batch penalties")?.contains("by the guidelines"));
    // ctlmgrd begins anew in the midst of it: the next batch follows all the same.
    sh("docker kill batch-a batch-b batch-c")?;
    sh(&format!("(ctlmgr batch run {plan}; echo status $?) >/run/batch.out 2>&1 &"))?;
    eventually("the first batch runs", || Ok(!sh(running)?.is_empty()))?;
    sh(
        "systemctl kill --kill-whom=main -s KILL ctlmgr.service; systemctl reset-failed ctlmgr.service || true",
    )?;
    let said = || std::fs::read_to_string("/run/batch.out").context("/run/batch.out");
    eventually("it ends", || Ok(said()?.contains("status ")))?;
    ensure!(said()?.contains("status 0") && sh(running)?.lines().count() == 3, "{}", said()?);
    Ok(())
}

#[test]
fn an_image_is_sampled_and_removed_again() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    // What the program itself reads from the disk is not what is looked for.
    sh("docker run --rm --network none fio fio --version")?;
    let cmd = r#"CMD ["fio", "--name=j", "--filename=/x", "--size=48m", "--rw=write", "--bs=128k", "--direct=1", "--rate=4m", "--runtime=60", "--time_based", "--minimal"]"#;
    sh(&format!(
        "docker create --name to-sample --network none fio true && docker commit -c '{cmd}' to-sample sampled && docker rm to-sample"
    ))?;
    let said = sh("ctlmgr batch sample --seconds 8 --run-option=--network=none sampled");
    let left = sh("docker ps -aq --filter name=ctlmgr-sample")?;
    sh("docker rmi sampled")?;
    let said = said?;
    ensure!(said.contains("sampling sampled: 8 of 8 s"), "{said}");
    ensure!(said.contains("sequential-write"), "{said}");
    assert_eq!(left, "", "the container is gone");
    let (code, said) = status("ctlmgr batch sample no-such-image")?;
    ensure!(code == 1 && said.contains("no-such-image"), "{said}");
    Ok(())
}
