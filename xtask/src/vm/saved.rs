//! Saved states: a machine of each shape, booted once, with dockerd up.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::disk_model::{self, Costs};
use super::image::{self, FIRST_BOOT, Image};
use super::machine::{CONSOLE, Disks, INPUT_MIB, KERNEL, Machine, Start};
use super::shape::{RELEASE, Shape};
use crate::sh;

/// Where the disks of running guests are, in the cache.
const RUN: &str = "run";

/// Size of the data disk.
const DATA_MIB: u64 = 1024;

/// A saved machine.
#[derive(Debug, Clone)]
pub struct Saved {
    image: Image,
    shape: Shape,
    accelerator: String,
    directory: PathBuf,
}

impl Saved {
    fn disks(&self) -> Disks {
        let file = |name: &str| self.directory.join(name);
        Disks {
            root: file("root.qcow2"),
            input: file("input.raw"),
            swap: (self.shape.swap > 0).then(|| file("swap.qcow2")),
            data: self.shape.throttled_iops.map(|limit| (file("data.qcow2"), limit)),
        }
    }

    fn state(&self) -> PathBuf {
        self.directory.join("state")
    }
}

/// Guests of this program, one after the other or at once. Those of another would disturb what is measured in them, and wait
/// until the last has ended.
#[derive(Debug)]
pub struct Guests {
    /// Every machine holds it, too.
    lock: Arc<File>,
    /// What is not saved yet is booted by one.
    saving: Mutex<()>,
}

impl Guests {
    /// Waits until nobody else builds or runs a guest, and clears away what is left of theirs.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub fn begin() -> Result<Guests> {
        let cache = image::cache()?;
        std::fs::create_dir_all(&cache)?;
        let lock = File::create(cache.join("lock"))?;
        if lock.try_lock().is_err() {
            sh::say("waiting for another guest to end");
            lock.lock().context("failed to lock the cache")?;
        }
        let _ = std::fs::remove_dir_all(cache.join(RUN));
        std::fs::create_dir_all(cache.join(RUN))?;
        Ok(Guests { lock: Arc::new(lock), saving: Mutex::new(()) })
    }

    /// A fresh guest of this shape with `put` in /run/in, ready for commands.
    ///
    /// # Errors
    /// QEMU, or the guest, does not come up.
    pub fn restore(&self, shape: &Shape, put: &[PathBuf]) -> Result<Machine> {
        self.restore_on(shape, put, None)
    }

    /// Makes sure that there is a saved machine of this shape.
    ///
    /// # Errors
    /// It does not boot.
    pub fn prepare(&self, shape: &Shape) -> Result<()> {
        self.saved(shape).map(drop)
    }

    fn saved(&self, shape: &Shape) -> Result<Saved> {
        let _one = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(shape)
    }

    fn restore_on(&self, shape: &Shape, put: &[PathBuf], costs: Option<Costs>) -> Result<Machine> {
        let saved = self.saved(shape)?;
        let started = Instant::now();
        let run = tempfile::tempdir_in(image::cache()?.join(RUN))?.keep();
        let mut disks = overlay(&saved, &run)?;
        if let (Some(costs), Some((disk, _))) = (costs, &mut disks.data) {
            let socket = run.join("disk.sock");
            disk_model::serve(&socket, &run.join("disk.raw"), DATA_MIB << 20, costs)?;
            *disk = PathBuf::from(format!("nbd:unix:{}", socket.display()));
        }
        archive(put, &disks.input)?;
        let start = Start::Restore(saved.state());
        let mut machine = Machine::start(&saved.image, shape, &disks, &saved.accelerator, &start)?;
        machine.keep(self.lock.clone());
        machine.wait_up(Duration::from_secs(120))?;
        machine.set_time()?;
        let unpack = "mkdir -p /run/in && tar -C /run/in -xf /dev/vdb 2>/dev/null; \
                      blockdev --flushbufs /dev/vdb; chmod -R a+rx /run/in";
        machine.output(unpack, Duration::from_secs(120))?;
        sh::say(&format!("guest restored in {:.1} s", started.elapsed().as_secs_f32()));
        Ok(machine)
    }
}

/// What the guest that was last started printed as it booted, and whatever its kernel had to say later.
///
/// # Errors
/// There was none.
pub fn last_console() -> Result<PathBuf> {
    let below = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let machines = below(image::cache()?).flat_map(|entry| below(entry.path()));
    let consoles = machines.map(|machine| machine.path().join(CONSOLE));
    let dated = consoles.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    dated.max().map(|(_, path)| path).context("no guest was started yet")
}

/// Makes sure that there is an image to boot from, unless a guest runs: who restores one makes sure, too.
pub fn prepare_image() -> Result<()> {
    std::fs::create_dir_all(image::cache()?)?;
    let lock = File::create(image::cache()?.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => image::ensure(RELEASE).map(drop),
        Err(_) => Ok(()),
    }
}

/// Makes sure that there is a saved machine of this shape.
pub fn prepare(shape: &Shape) -> Result<()> {
    Guests::begin()?.prepare(shape)
}

/// The saved machine of this shape; boots one if there is none. The caller holds the lock.
fn ensure(shape: &Shape) -> Result<Saved> {
    let image = image::ensure(&shape.kernel)?;
    let accelerator = accelerator(&image)?;
    // Named by what it was booted with, too: a state of another processor does not come up.
    let mut hasher = DefaultHasher::new();
    (KERNEL, shape.words(&accelerator)).hash(&mut hasher);
    let name = format!("{accelerator}-{}-{:016x}", shape.name(), hasher.finish());
    let directory = image.directory.join(name);
    let saved = Saved { image, shape: shape.clone(), accelerator, directory };
    if !saved.directory.join("complete").exists() {
        boot(&saved)?;
        std::fs::write(saved.directory.join("complete"), "")?;
    }
    Ok(saved)
}

/// Where QEMU 10 crashes now and then, and says so, while emulated processors come up or devices are set up.
const CRASHES: [&str; 2] = ["iotlb_to_section", "msix_table_mmio_write: Assertion"];

/// Such a crash is QEMU's fault and none of a test; no other failure is tried again.
fn boot(saved: &Saved) -> Result<()> {
    let Err(error) = boot_and_save(saved) else { return Ok(()) };
    let text = format!("{error:#}");
    let Some(crash) = CRASHES.iter().find(|crash| text.contains(**crash)) else {
        return Err(error);
    };
    sh::say(&format!("QEMU crashed while it booted ({crash}); booting once more"));
    boot_and_save(saved)
}

/// One fresh guest ([`Guests::restore`]).
pub fn restore(shape: &Shape, put: &[PathBuf]) -> Result<Machine> {
    Guests::begin()?.restore(shape, put)
}

/// The same, with an empty data disk whose requests cost time.
pub fn restore_with_disk(put: &[PathBuf], costs: Costs) -> Result<Machine> {
    // The limit is that of the disk it was booted with, and beyond what the modelled one does.
    let shape = Shape { throttled_iops: Some(100_000), ..Shape::default() };
    Guests::begin()?.restore_on(&shape, put, Some(costs))
}

fn overlay(saved: &Saved, run: &Path) -> Result<Disks> {
    let over = |base: &Path| -> Result<PathBuf> {
        let path = run.join(base.file_name().context("a disk has a name")?);
        let words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"];
        let paths = [&*base.to_string_lossy(), &*path.to_string_lossy()];
        sh::quiet(&mut sh::command(&[&words[..], &paths].concat()))?;
        Ok(path)
    };
    let base = saved.disks();
    Ok(Disks {
        root: over(&base.root)?,
        input: run.join("input.raw"),
        swap: base.swap.as_deref().map(over).transpose()?,
        data: base.data.map(|(d, limit)| over(&d).map(|d| (d, limit))).transpose()?,
    })
}

/// A raw disk that is a tar archive of files, by their names.
fn archive(files: &[PathBuf], disk: &Path) -> Result<()> {
    if files.is_empty() {
        File::create(disk)?;
    } else {
        let mut command = sh::command(&["tar", "-cf"]);
        command.arg(disk);
        for file in files {
            let file = std::path::absolute(file)?;
            let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else { continue };
            command.arg("-C").arg(dir).arg(name);
        }
        sh::quiet(&mut command)?;
    }
    File::options().write(true).open(disk)?.set_len(INPUT_MIB << 20)?;
    Ok(())
}

fn boot_and_save(saved: &Saved) -> Result<()> {
    sh::say(&format!("booting a guest {} once (1 to 4 minutes)", saved.shape.name()));
    let _ = std::fs::remove_dir_all(&saved.directory);
    std::fs::create_dir_all(&saved.directory)?;
    let disks = saved.disks();
    let create = |path: &Path, more: &[&str]| {
        let words = ["qemu-img", "create", "-q", "-f", "qcow2"];
        let path = path.to_string_lossy();
        sh::quiet(&mut sh::command(&[&words[..], &[&*path], more].concat()))
    };
    let base = saved.image.disk();
    let backing = ["-F", "raw", "-b", &*base.to_string_lossy()];
    let words = ["qemu-img", "create", "-q", "-f", "qcow2"];
    let root = disks.root.to_string_lossy();
    sh::quiet(&mut sh::command(&[&words[..], &backing, &[&*root]].concat()))?;
    archive(&[], &disks.input)?;
    if let Some(swap) = &disks.swap {
        create(swap, &[&format!("{}M", saved.shape.swap)])?;
    }
    if let Some((data, _)) = &disks.data {
        create(data, &[&format!("{DATA_MIB}M")])?;
    }
    let mut machine =
        Machine::start(&saved.image, &saved.shape, &disks, &saved.accelerator, &Start::Boot)?;
    // One to four minutes alone; but the tests of another guest may run beside it.
    machine.wait_up(Duration::from_secs(600))?;
    machine.set_time()?;
    machine.output(FIRST_BOOT, Duration::from_secs(600))?;
    machine.save(&saved.state())
}

/// `kvm` if a guest really boots with it, else `tcg`; remembered with the image.
fn accelerator(image: &Image) -> Result<String> {
    let memory = image.directory.join("accelerator");
    if let Ok(known) = std::fs::read_to_string(&memory) {
        return Ok(known);
    }
    let found = if Path::new("/dev/kvm").exists() && boots_with_kvm(image) { "kvm" } else { "tcg" };
    sh::say(&format!("the guest runs with {found}"));
    std::fs::write(&memory, found)?;
    Ok(found.to_owned())
}

/// A device node proves nothing: let the kernel say its first word within a few seconds.
fn boots_with_kvm(image: &Image) -> bool {
    let Ok(directory) = tempfile::tempdir_in(&image.directory) else { return false };
    let console = directory.path().join("console");
    let child =
        sh::command(&["timeout", "12", "qemu-system-x86_64", "-accel", "kvm", "-cpu", "host"])
            .args(["-m", "512", "-nodefaults", "-display", "none", "-no-reboot", "-kernel"])
            .arg(image.kernel())
            .args(["-append", "console=ttyS0 panic=-1", "-serial"])
            .arg(format!("file:{}", console.display()))
            .stderr(std::process::Stdio::null())
            .status();
    child.is_ok()
        && std::fs::read(&console)
            .is_ok_and(|text| String::from_utf8_lossy(&text).contains("Linux version"))
}
