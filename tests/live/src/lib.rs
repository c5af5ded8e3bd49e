//! What the live tests share: shell, docker, ctlmgr and cgroup files of the guest.
//!
//! Nothing waits by sleeping for a guessed time: every wait is for a condition, with a deadline
//! that only a hung guest reaches.

mod dockerd;

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

pub use dockerd::{inspect, is_running, logs};

/// A condition must hold within this time; the guest is 10 to 30 times slower than hardware.
const PATIENCE: Duration = Duration::from_secs(180);

const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs a shell command and returns its standard output.
///
/// # Errors
/// It ended with a status other than 0.
pub fn sh(script: &str) -> Result<String> {
    let (status, text) = status(script)?;
    if status != 0 {
        bail!("`{script}` ended with status {status}: {text}");
    }
    Ok(text.trim().to_owned())
}

/// Runs a shell command and returns its status and output.
///
/// # Errors
/// There is no shell.
pub fn status(script: &str) -> Result<(i32, String)> {
    let output = Command::new("sh").args(["-c", script]).output().context("failed to run sh")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
}

/// Runs a command that prints JSON.
///
/// # Errors
/// It failed, or printed something else.
pub fn json(script: &str) -> Result<Value> {
    let text = sh(script)?;
    serde_json::from_str(&text).with_context(|| format!("`{script}` printed no JSON: {text}"))
}

/// Waits until a condition holds. It looks no more than half of the time: many a look is a program that the emulated
/// processors spend a second on, and what is waited for needs them too.
///
/// # Errors
/// It did not within a generous time; the last error is the cause.
pub fn eventually(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let began = Instant::now();
        let result = holds();
        if matches!(result, Ok(true)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let never = format!("never came true: {what}\n{}", situation());
            return result.and_then(|_| bail!("it is not so")).context(never);
        }
        std::thread::park_timeout(began.elapsed().clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
}

/// What ctlmgr knows and did last, for who reads why a test failed where nobody can look.
fn situation() -> String {
    let asked = status(
        "timeout 9 ctlmgr status; timeout 9 ctlmgr diff; grep -H . /sys/fs/cgroup/*.slice/memory.low /sys/fs/cgroup/ctlmgr.slice/*/memory.low \
           /sys/fs/cgroup/ctlmgr.slice/memory.min /sys/fs/cgroup/ctlmgr.slice/*/memory.min; \
         head -n 2 /proc/pressure/*; journalctl --no-pager -o verbose --output-fields=MESSAGE,F_CONTAINER,F_PATH,F_WHY,F_REASON -u ctlmgr.service -n 40 | sed 's/ [[]s=.*//'; \
         journalctl --no-pager -o short-precise -u docker.service -n 20; \
         for name in $(timeout 9 docker ps --format '{{.Names}}'); do timeout 9 ctlmgr why $name; done",
    );
    asked.map_or_else(|error| format!("{error:#}"), |(_, text)| text)
}

/// A container that is removed with this value.
#[derive(Debug)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Directory of its cgroup.
    pub cgroup: PathBuf,
}

impl Container {
    /// Starts a busybox that holds `mib` of memory in a tmpfs file, with `arguments` for docker.
    ///
    /// # Errors
    /// Docker failed.
    pub fn start(name: &str, mib: u32, arguments: &str) -> Result<Container> {
        let work =
            format!("dd if=/dev/zero of=/dev/shm/set bs=1M count={mib} 2>/dev/null; sleep 100000");
        let container =
            Container::run(name, &format!("--shm-size 1g {arguments} busybox sh -c '{work}'"))?;
        let full = u64::from(mib) << 20;
        eventually(
            "the container holds its set",
            || Ok(container.knob("memory.current")? >= full),
        )?;
        Ok(container)
    }

    /// Runs a container, with `arguments` for docker, image and command.
    ///
    /// # Errors
    /// Docker failed.
    pub fn run(name: &str, arguments: &str) -> Result<Container> {
        let id = sh(&format!("docker run -d --name {name} --network none {arguments}"))?;
        let found = sh(&format!("find /sys/fs/cgroup -type d -name '*{id}*' | head -n 1"))?;
        Ok(Container { name: name.to_owned(), cgroup: PathBuf::from(found) })
    }

    /// A number in a file of its cgroup; `max` is the largest.
    ///
    /// # Errors
    /// There is no such file, or it holds no number.
    pub fn knob(&self, file: &str) -> Result<u64> {
        knob(&self.cgroup.join(file).to_string_lossy())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = status(&format!("docker rm -f {}", self.name));
    }
}

/// The load generator, as a program and as an image.
///
/// # Errors
/// Docker failed.
pub fn install_hog() -> Result<()> {
    sh("install -m 755 /run/in/hog /usr/local/bin/lab-hog; d=$(mktemp -d); cp /run/in/hog $d/hog; \
        tar -C $d -c . | docker import - lab-hog >/dev/null; rm -rf $d")
    .map(drop)
}

/// A balloon of the hypervisor's, which takes memory from the guest until this is dropped.
#[derive(Debug)]
pub struct Balloon;

impl Balloon {
    /// Leaves so much to the guest.
    ///
    /// # Errors
    /// The hypervisor cannot be asked.
    pub fn leave(mib: u64) -> Result<Balloon> {
        ask_for_memory(mib).map(|()| Balloon)
    }
}

impl Drop for Balloon {
    fn drop(&mut self) {
        // More than there is: all.
        let _ = ask_for_memory(1 << 20);
    }
}

/// What runs the guest reads this in the output of the tests, where no test runner keeps it back.
fn ask_for_memory(mib: u64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "@{{\"balloon\": {mib}}}")
        .and_then(|()| out.flush())
        .context("failed to ask for memory")
}

/// A number in a file; `max` is the largest.
///
/// # Errors
/// There is no such file, or it holds no number.
pub fn knob(path: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {path}"))?;
    match text.trim() {
        "max" => Ok(u64::MAX),
        number => number.parse().with_context(|| format!("{path} holds `{number}`")),
    }
}

/// A ctlmgr in the mode that a test wants; it is stopped at the end.
#[derive(Debug)]
pub struct Ctlmgr;

impl Ctlmgr {
    /// Starts the daemon with no leftovers of other tests.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(mode: &str) -> Result<Ctlmgr> {
        sh("systemctl reset-failed ctlmgr.service 2>/dev/null; systemctl stop ctlmgr.service; \
            rm -rf /run/ctlmgr/config.d /etc/ctlmgr/config.d/9*.toml /var/lib/ctlmgr/profiles.db*; \
            systemctl start ctlmgr.socket ctlmgr.service")?;
        sh(&format!("ctlmgr mode {mode}"))?;
        Ok(Ctlmgr)
    }

    /// The answer of `ctlmgr status --json`.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn status(&self) -> Result<Value> {
        json("ctlmgr status --json")
    }

    /// The answer of `ctlmgr plan --json`.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn plan(&self) -> Result<Value> {
        json("ctlmgr plan --json")
    }

    /// What is decided about a workload.
    ///
    /// # Errors
    /// The daemon does not know it.
    pub fn verdict(&self, name: &str) -> Result<Value> {
        Ok(json(&format!("ctlmgr why {name} --json"))?["verdict"].clone())
    }

    /// Waits until ctlmgr protects a container below a covered slice.
    ///
    /// # Errors
    /// It never does.
    pub fn wait_protected(&self, container: &Container) -> Result<()> {
        let slice =
            container.cgroup.parent().context("a container has a slice")?.join("memory.low");
        eventually("the container is protected below a covered slice", || {
            let low = container.knob("memory.low")?;
            Ok(low > 32 << 20 && knob(&slice.to_string_lossy())? >= low)
        })
    }

    /// Waits until the system's manager knows what protects a container, and its slice.
    ///
    /// # Errors
    /// It is never told.
    pub fn wait_told(&self, container: &Container) -> Result<()> {
        let slice = container.cgroup.parent().context("a container has a slice")?;
        eventually("the system's manager is told", || {
            for cgroup in [&*container.cgroup, slice] {
                let unit = cgroup.file_name().unwrap_or_default().display();
                let known = sh(&format!("systemctl show -P MemoryLow {unit}"))?;
                if known != sh(&format!("cat {}/memory.low", cgroup.display()))? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Stops the daemon and checks that nothing of it is left.
    ///
    /// # Errors
    /// Something is left.
    pub fn stop_and_expect_pristine(self) -> Result<()> {
        sh("systemctl stop ctlmgr.service")?;
        expect_pristine()
    }

    /// The same, for a container whose own reservation must be there again.
    ///
    /// # Errors
    /// Something else is left, or the reservation is not back.
    pub fn stop_and_expect_pristine_but(self, container: &Container, low: u64) -> Result<()> {
        sh("systemctl stop ctlmgr.service")?;
        let now = container.knob("memory.low")?;
        if now != low {
            bail!("memory.low of {} is {now}, not {low}", container.name);
        }
        let left = json("ctlmgr diff --json")?;
        if left != Value::Array(Vec::new()) {
            bail!("left behind: {left}");
        }
        Ok(())
    }
}

impl Drop for Ctlmgr {
    fn drop(&mut self) {
        let _ = status("systemctl stop ctlmgr.service; ctlmgr revert --offline");
    }
}

/// Fails if a knob differs from before ctlmgr, by its journal, or if a slice or container kept a
/// protection that nobody but ctlmgr gave it.
///
/// # Errors
/// What is left.
pub fn expect_pristine() -> Result<()> {
    let diff = json("ctlmgr diff --json")?;
    if diff != Value::Array(Vec::new()) {
        bail!("left behind: {diff}");
    }
    // The package itself asks for memory.min of the daemon, below a covered system.slice, and the
    // testbed for its agent. Cgroups that go while this looks are no matter.
    let left = sh(
        "find /sys/fs/cgroup -path '*ctlmgr.service*' -prune -o -path '*guest-agent*' -prune -o \
           \\( -name memory.low -o -name memory.min \\) -print 2>/dev/null | while read -r f; do \
           value=$(cat $f 2>/dev/null || echo 0); [ $value = 0 ] || echo $f $value; done | \
         grep -v '/system.slice/memory.min ' || true; \
         grep -Lx max /sys/fs/cgroup/*.slice/memory.high /sys/fs/cgroup/*.slice/*/memory.high 2>/dev/null; \
         grep -lx 1 /sys/fs/cgroup/*.slice/*/cgroup.freeze 2>/dev/null; \
         ls -d /run/systemd/system.control/*.d /run/systemd/transient/init.scope.d 2>/dev/null || true",
    )?;
    if !left.is_empty() {
        bail!("left behind: {left}");
    }
    Ok(())
}
