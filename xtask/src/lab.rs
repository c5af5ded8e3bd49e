//! Experiments in the guest: a script prints progress, and data in lines that start with `@`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{dist, fresh, sh, vm};

/// What goes into the guest: the package, the load generator, and the scripts.
pub struct Kit {
    files: Vec<PathBuf>,
    _directory: tempfile::TempDir,
}

/// Builds everything that an experiment needs.
pub fn kit() -> Result<Kit> {
    fresh::ensure_packager()?;
    sh::say("building the package and the load generator");
    let package = dist::run()?;
    let hog = hog()?;
    let directory = tempfile::tempdir()?;
    let mut files = Vec::new();
    let sources = [
        (package.as_path(), "ctlmgr.deb"),
        (&hog, "hog"),
        (&hog.with_file_name("talk"), "talk"),
        (Path::new("xtask/guest/lib.sh"), "lib.sh"),
        (Path::new("xtask/guest/demo.sh"), "demo.sh"),
        (Path::new("xtask/guest/record.sh"), "record.sh"),
        (Path::new("xtask/guest/bench-memory.sh"), "bench-memory.sh"),
        (Path::new("xtask/guest/bench-changes.sh"), "bench-changes.sh"),
        (Path::new("xtask/guest/bench-idle.sh"), "bench-idle.sh"),
        (Path::new("xtask/guest/bench-bomb.sh"), "bench-bomb.sh"),
        (Path::new("xtask/guest/bench-starts.sh"), "bench-starts.sh"),
        (Path::new("xtask/guest/bench-gate.sh"), "bench-gate.sh"),
        (Path::new("xtask/guest/bench-gate-here.sh"), "bench-gate-here.sh"),
        (Path::new("xtask/guest/bench-shapes.sh"), "bench-shapes.sh"),
        (Path::new("xtask/guest/bench-placement.sh"), "bench-placement.sh"),
    ];
    for (from, name) in sources {
        let to = directory.path().join(name);
        std::fs::copy(from, &to).with_context(|| format!("failed to copy {}", from.display()))?;
        files.push(to);
    }
    Ok(Kit { files, _directory: directory })
}

impl Kit {
    /// The files of the kit.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The directory that holds them.
    pub fn directory(&self) -> &Path {
        self._directory.path()
    }
}

/// The load generator as one static file, so that its container needs nothing else; beside it is
/// `talk`, the small service.
pub fn hog() -> Result<PathBuf> {
    let build = ["rustc", "--quiet", "--release", "--locked", "--package", "hog"];
    for program in ["hog", "talk"] {
        let arguments = ["--bin", program, "--", "-C", "target-feature=+crt-static"];
        sh::run(sh::cargo(&build).args(arguments))?;
    }
    Ok(dist::target().join("release/hog"))
}

/// What an experiment said.
#[derive(Debug, Default)]
pub struct Record {
    /// Data, in order.
    pub data: Vec<Value>,
}

impl Record {
    /// Data objects that have all these string fields.
    pub fn select<'a>(&'a self, fields: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Value> {
        self.data
            .iter()
            .filter(move |v| fields.iter().all(|(k, want)| v[*k].as_str() == Some(*want)))
    }

    /// A named counter.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.select(&[("counter", name)]).next()?["value"].as_u64()
    }

    /// Fails unless undo left nothing behind.
    pub fn expect_undone(&self) -> Result<()> {
        let diff =
            self.data.iter().find_map(|v| v.get("diff")).context("the script said no diff")?;
        match diff.as_array().is_some_and(Vec::is_empty) {
            true => Ok(()),
            false => bail!("ctlmgr stopped but left something behind: {diff}"),
        }
    }
}

/// Runs a script of the kit in a fresh guest.
pub fn run(kit: &Kit, script: &str, within: Duration) -> Result<Record> {
    run_in_shape(kit, script, within, &vm::Shape::default())
}

/// The same, on a machine of another shape.
pub fn run_in_shape(
    kit: &Kit,
    script: &str,
    within: Duration,
    shape: &vm::Shape,
) -> Result<Record> {
    fresh::ensure_guest_tools()?;
    run_in(vm::restore(shape, kit.files())?, script, within)
}

/// The same, with a data disk that takes its time.
pub fn run_on(kit: &Kit, script: &str, within: Duration, costs: vm::Costs) -> Result<Record> {
    fresh::ensure_guest_tools()?;
    run_in(vm::restore_with_disk(kit.files(), costs)?, script, within)
}

fn run_in(mut machine: vm::Machine, script: &str, within: Duration) -> Result<Record> {
    let mut sink = Sink::default();
    let status = machine.run_with(
        &format!("sh /run/in/{script}"),
        within,
        vm::OFTEN,
        &mut |machine, bytes| {
            sink.write_all(bytes)?;
            // A script may ask for a smaller or larger machine.
            sink.balloon_mib.take().map_or(Ok(()), |mib| machine.balloon(mib))
        },
    )?;
    sink.finish(status)
}

/// Runs a script of the kit on this machine.
pub fn run_here(kit: &Kit, script: &str) -> Result<Record> {
    let directory = kit.directory();
    let mut command = sh::privileged(&["env", &format!("LAB={}", directory.display()), "sh"]);
    let words: Vec<&str> = script.split(' ').collect();
    command.arg(directory.join(words[0])).args(&words[1..]);
    let mut child = command.stdout(Stdio::piped()).spawn().context("failed to run the script")?;
    let mut sink = Sink::default();
    std::io::copy(&mut child.stdout.take().context("the script has no output")?, &mut sink)?;
    sink.finish(i64::from(child.wait()?.code().unwrap_or(-1)))
}

/// Separates data from what is for people.
#[derive(Default)]
struct Sink {
    rest: Vec<u8>,
    record: Record,
    /// What the last `@{"balloon": MIB}` asked for, until it is done.
    balloon_mib: Option<u64>,
}

impl Sink {
    fn finish(self, status: i64) -> Result<Record> {
        match status {
            0 => Ok(self.record),
            _ => bail!("the experiment ended with status {status}"),
        }
    }

    fn take_line(&mut self, line: &str) {
        match line.strip_prefix('@').map(serde_json::from_str) {
            Some(Ok(value)) => {
                let value: Value = value;
                self.balloon_mib = value["balloon"].as_u64().or(self.balloon_mib);
                self.record.data.push(value);
            }
            // A line cut short by a killed loop is not worth an error.
            Some(Err(_)) => {}
            None => eprintln!("    {line}"),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.rest.extend(bytes);
        while let Some(end) = self.rest.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.take_line(String::from_utf8_lossy(&line).trim_end());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Mean of a field over some data; 0 for none.
pub fn mean<'a>(data: impl Iterator<Item = &'a Value>, field: &str) -> f64 {
    let values: Vec<f64> = data.filter_map(|v| v[field].as_f64()).collect();
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}
