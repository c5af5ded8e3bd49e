//! A running QEMU.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::agent::Agent;
use super::image::Image;
use super::json_socket::JsonSocket;
use super::shape::Shape;

/// Size of the disk that carries files in, as a tar archive; fixed, because saved states know it.
pub const INPUT_MIB: u64 = 256;
/// What the kernel is told. PSI is off on some kernels unless asked for.
pub const KERNEL: &str =
    "root=/dev/vda rw console=ttyS0 psi=1 mitigations=off panic=-1 audit=0 quiet";

/// What the guest prints as it boots, beside its disks.
pub const CONSOLE: &str = "console.log";

/// Longest pauses between looks at a command; they begin short. A look costs the guest 20 ms of a processor, and nobody has to be quick about
/// what is only shown.
pub const OFTEN: Duration = Duration::from_millis(300);
pub const SELDOM: Duration = Duration::from_millis(1500);

/// Disks of a machine.
#[derive(Debug, Clone)]
pub struct Disks {
    pub root: PathBuf,
    pub input: PathBuf,
    pub swap: Option<PathBuf>,
    /// The data disk and its limit in operations per second.
    pub data: Option<(PathBuf, u32)>,
}

/// A machine that is running; it ends with this value.
pub struct Machine {
    child: Child,
    directory: tempfile::TempDir,
    console: PathBuf,
    qmp: JsonSocket,
    agent: Option<Agent>,
    commands: u32,
    /// Held for as long as the machine runs.
    lock: Option<Arc<File>>,
}

/// How a machine starts.
pub enum Start {
    Boot,
    /// From a saved state.
    Restore(PathBuf),
}

impl Machine {
    /// Starts QEMU; the guest is not up yet.
    pub fn start(
        image: &Image,
        shape: &Shape,
        disks: &Disks,
        accelerator: &str,
        start: &Start,
    ) -> Result<Machine> {
        let directory = tempfile::tempdir()?;
        let console = disks.root.with_file_name(CONSOLE);
        let log = File::create(directory.path().join("qemu.log"))?;
        // However this program ends, a guest does not stay behind and take two processors from whatever runs next.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"])
            .args(words(image, disks, accelerator, &console))
            .args(shape.words(accelerator))
            .args(
                matches!(start, Start::Restore(_))
                    .then_some(["-incoming", "defer"])
                    .iter()
                    .flatten(),
            )
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("failed to start qemu-system-x86_64")?;
        let connected =
            JsonSocket::connect(&directory.path().join("qmp.sock"), Duration::from_secs(20));
        let mut child = child;
        let qmp = match connected {
            Ok(qmp) => qmp,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                let text = std::fs::read_to_string(directory.path().join("qemu.log"));
                return Err(error.context(format!("QEMU says: {}", text.unwrap_or_default())));
            }
        };
        let mut machine =
            Machine { child, directory, console, qmp, agent: None, commands: 0, lock: None };
        machine.control("qmp_capabilities", Value::Null)?;
        if let Start::Restore(state) = start {
            machine.load(state)?;
        }
        Ok(machine)
    }

    /// Keeps the lock on the cache until the machine ends.
    pub fn keep(&mut self, lock: Arc<File>) {
        self.lock = Some(lock);
    }

    /// Calls the machine's monitor.
    pub fn control(&mut self, name: &str, arguments: Value) -> Result<Value> {
        self.qmp.call(name, arguments, Duration::from_secs(60))
    }

    /// Sets the memory that the balloon leaves to the guest, in MiB.
    pub fn balloon(&mut self, mib: u64) -> Result<()> {
        self.control("balloon", json!({"value": mib << 20})).map(drop)
    }

    fn load(&mut self, state: &Path) -> Result<()> {
        let uri = format!("file:{}", state.display());
        self.control("migrate-incoming", json!({"uri": uri}))?;
        self.wait_for_migration()?;
        self.control("cont", Value::Null).map(drop)
    }

    /// Writes the machine's state to a file and ends it.
    pub fn save(mut self, state: &Path) -> Result<()> {
        self.control("stop", Value::Null)?;
        self.control("migrate", json!({"uri": format!("file:{}", state.display())}))?;
        self.wait_for_migration()?;
        self.control("quit", Value::Null)?;
        self.child.wait()?;
        Ok(())
    }

    fn wait_for_migration(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let answer = self.control("query-migrate", Value::Null)?;
            match answer["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => bail!("failed to move the state: {answer}"),
                _ if Instant::now() > deadline => bail!("moving the state takes too long"),
                _ => std::thread::park_timeout(Duration::from_millis(100)),
            }
        }
    }

    /// Waits until the guest agent answers.
    pub fn wait_up(&mut self, within: Duration) -> Result<()> {
        let path = self.directory.path().join("agent.sock");
        let child = &mut self.child;
        let agent = Agent::wait(&path, within, || matches!(child.try_wait(), Ok(None)));
        match agent {
            Ok(agent) => self.agent = Some(agent),
            Err(error) => return Err(error.context(self.last_words())),
        }
        Ok(())
    }

    fn agent(&mut self) -> Result<&mut Agent> {
        self.agent.as_mut().context("the guest is not up")
    }

    /// Sets the guest's clock, which stands still while a saved state lies around.
    pub fn set_time(&mut self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let script = format!("date -s @{} >/dev/null", now.as_secs());
        self.output(&script, Duration::from_secs(60)).map(drop)
    }

    /// Runs a command in its own slice of the guest and streams its output; returns its status.
    pub fn run(&mut self, script: &str, within: Duration) -> Result<i64> {
        self.run_into(script, within, &mut std::io::stdout())
    }

    /// The same, with the output returned. A command that fails is an error.
    pub fn output(&mut self, script: &str, within: Duration) -> Result<String> {
        let mut bytes = Vec::new();
        let status = self.run_into(script, within, &mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status != 0 {
            bail!("in the guest, `{script}` ended with status {status}:\n{text}");
        }
        Ok(text)
    }

    /// Runs a command and copies what it prints to `out` as it comes.
    pub fn run_into(&mut self, script: &str, within: Duration, out: &mut dyn Write) -> Result<i64> {
        self.run_with(script, within, SELDOM, &mut |_, bytes| {
            out.write_all(bytes)?;
            Ok(out.flush()?)
        })
    }

    /// Runs a command; `take` gets what it prints as it comes, and may turn to the machine. It is looked for at least once in
    /// this pause ([`OFTEN`], [`SELDOM`]).
    pub fn run_with(
        &mut self,
        script: &str,
        within: Duration,
        longest_pause: Duration,
        take: &mut dyn FnMut(&mut Machine, &[u8]) -> Result<()>,
    ) -> Result<i64> {
        let done = self.try_run(script, within, longest_pause, take);
        done.map_err(|error| error.context(self.last_words()))
    }

    fn try_run(
        &mut self,
        script: &str,
        within: Duration,
        longest_pause: Duration,
        take: &mut dyn FnMut(&mut Machine, &[u8]) -> Result<()>,
    ) -> Result<i64> {
        self.commands += 1;
        let file = format!("/run/xtask.{}.out", self.commands);
        let quoted = script.replace('\'', "'\\''");
        let pid = self.agent()?.start(&format!(
            "exec systemd-run --scope --quiet --slice=xtask.slice sh -c '{quoted}' >{file} 2>&1 </dev/null"
        ))?;
        let deadline = Instant::now() + within;
        let (mut seen, mut pause) = (0, OFTEN);
        loop {
            let status = self.agent()?.status(pid)?;
            let bytes = self.agent()?.read_from(&file, seen)?;
            seen += bytes.len() as u64;
            take(self, &bytes)?;
            if let Some(status) = status {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("the command did not end within {} s: {script}", within.as_secs());
            }
            std::thread::park_timeout(pause);
            pause = (pause + pause / 2).min(longest_pause);
        }
    }

    /// The end of the console and of QEMU's own log, for errors.
    fn last_words(&self) -> String {
        let tail = |path: &Path| {
            let text = std::fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(25)..].join("\n")
        };
        let qemu = tail(&self.directory.path().join("qemu.log"));
        format!("the guest failed; its console ends with:\n{}\n{qemu}", tail(&self.console))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(image: &Image, disks: &Disks, accelerator: &str, console: &Path) -> Vec<String> {
    let accel = match accelerator {
        "kvm" => "kvm".to_owned(),
        _ => "tcg,thread=multi,tb-size=1024".to_owned(),
    };
    let mut words: Vec<String> = vec!["-accel".into(), accel];
    words.extend(
        "-machine q35 -no-reboot -nodefaults -display none -device virtio-balloon-pci \
         -device virtio-serial-pci -chardev socket,id=agent,path=agent.sock,server=on,wait=off \
         -device virtserialport,chardev=agent,name=org.qemu.guest_agent.0 \
         -qmp unix:qmp.sock,server=on,wait=off \
         -object rng-random,id=rng0,filename=/dev/urandom -device virtio-rng-pci,rng=rng0"
            .split_whitespace()
            .map(str::to_owned),
    );
    words.extend(["-serial".into(), format!("file:{}", console.display())]);
    words.extend(["-kernel".into(), image.kernel().display().to_string()]);
    words.extend(["-initrd".into(), image.initrd().display().to_string()]);
    words.extend(["-append".into(), KERNEL.into()]);
    words.extend(drives(disks));
    words
}

/// Disks, by the serial numbers that the guest finds them under.
fn drives(disks: &Disks) -> Vec<String> {
    let plain = |path: &PathBuf, serial| (path.clone(), serial, String::new());
    let mut list = vec![plain(&disks.root, "root"), plain(&disks.input, "input")];
    list.extend(disks.swap.as_ref().map(|s| plain(s, "swap")));
    list.extend(
        disks
            .data
            .as_ref()
            .map(|(d, n)| (d.clone(), "data", format!(",throttling.iops-total={n}"))),
    );
    let words = list.into_iter().flat_map(|(path, serial, limit)| {
        let format = if path.extension().is_some_and(|e| e == "qcow2") { "qcow2" } else { "raw" };
        let path = path.display();
        [
            "-drive".to_owned(),
            format!("file={path},if=none,id={serial},cache=unsafe,format={format}{limit}"),
            "-device".to_owned(),
            format!("virtio-blk-pci,drive={serial},serial={serial}"),
        ]
    });
    words.collect()
}
