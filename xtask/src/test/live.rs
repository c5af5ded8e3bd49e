//! Live tests: in guests, of which two run at once where nothing is measured.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

use super::tally;
use crate::{dist, fresh, lab, sh, vm};

/// What the guest is given, for as long as this is kept.
pub(super) struct Files {
    kit: lab::Kit,
    binary: PathBuf,
}

/// Builds what the guest is given, and its image beside that: a machine that has nothing yet takes minutes for either.
pub(super) fn files() -> Result<Files> {
    // One of the two at a time may install programs.
    fresh::ensure_packager()?;
    fresh::ensure_guest_tools()?;
    std::thread::scope(|scope| {
        let image = scope.spawn(vm::prepare_image);
        let files = Files { kit: lab::kit()?, binary: binary()? };
        let built = image.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        built.map(|()| files)
    })
}

/// Tests that need several last-level caches.
const DOMAINS: &str = "many_domains";

/// These run in two guests at once: they measure nothing that another could disturb. Both take about as long. The first is
/// a machine that has never seen ctlmgr.
const QUIET: [&[&str]; 2] = [
    &[
        "a_install::",
        "c_batches::an_image_",
        "c_coalesce::",
        "c_gate::",
        "c_place::bytes_",
        "c_rungs::classic_lists_",
        "c_turns::",
        "d_removal::",
    ],
    &[
        "b_product::",
        "c_faults::",
        "c_making::",
        "c_memory::a_floor_",
        "c_rootless::",
        "c_rungs::a_container_and_a_unit_",
        "c_rungs::an_idle_class_",
    ],
];

/// With fewer processors than two guests have, each does with one: who holds a lock would wait for a processor while others
/// wait for the lock, and all takes half as long again.
const ENOUGH: usize = 4;

/// Runs the live tests in fresh guests: those whose name contains `filter` in one with the kernel of a Debian release.
pub(super) fn some(files: &Files, filter: &str, kernel: &str) -> Result<(u64, u64)> {
    let live = Live::new(files)?;
    let (machine, which) = match filter.contains(DOMAINS) {
        true => (vm::Shape::two_domains(), filter.to_owned()),
        false => (vm::Shape::default(), format!("--skip {DOMAINS} {filter}")),
    };
    let shape = vm::Shape { kernel: kernel.to_owned(), ..machine };
    let counts = live.test(&shape, &Part::of(&which), &mut std::io::stdout())?;
    ensure!(counts != (0, 0), "no live test has `{filter}` in its name");
    Ok(counts)
}

/// Runs all live tests in fresh guests. `beside` is begun when the machine is theirs: a guest that waits for a clock leaves
/// it a processor.
pub(super) fn all(files: &Files, beside: impl FnOnce()) -> Result<(u64, u64)> {
    let live = Live::new(files)?;
    beside();
    let mut results = live.quiet()?;
    let (small, large, out) =
        (vm::Shape::default(), vm::Shape::two_domains(), &mut std::io::stdout());
    let others = format!("--skip {DOMAINS} --skip {}", QUIET.concat().join(" --skip "));
    results.push(live.test(&small, &Part::of(&others), out));
    results.push(live.test(&large, &Part::of(DOMAINS), out));
    let counts = results.into_iter().map(|result| {
        result.unwrap_or_else(|error| {
            eprintln!("xtask: live tests: {error:#}");
            (0, 1)
        })
    });
    Ok(counts.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1)))
}

/// Tests that share a guest.
struct Part<'a> {
    /// The words that select them.
    which: &'a str,
    /// Whether ctlmgr is installed before they begin.
    is_installed: bool,
    /// Whether another guest runs beside theirs.
    has_company: bool,
}

impl Part<'_> {
    /// Alone in a guest in which ctlmgr is installed.
    fn of(which: &str) -> Part<'_> {
        Part { which, is_installed: true, has_company: false }
    }
}

/// Guests, and what each is given.
struct Live {
    guests: vm::Guests,
    files: Vec<PathBuf>,
}

impl Live {
    fn new(files: &Files) -> Result<Live> {
        let files = [files.kit.files(), std::slice::from_ref(&files.binary)].concat();
        Ok(Live { guests: vm::Guests::begin()?, files })
    }

    /// Runs those of [`QUIET`].
    fn quiet(&self) -> Result<Vec<Result<(u64, u64)>>> {
        // In one piece at its end, so that it does not mix with that of the first.
        let log = NamedTempFile::new().context("failed to create a file for their output")?;
        sh::say(&format!("what runs in a second guest is said in {}", log.path().display()));
        let mut kept = log.reopen()?;
        let shape = vm::Shape::default();
        // One that does not boot is said once.
        self.guests.prepare(&shape)?;
        let [first, second] = QUIET.map(|which| which.join(" "));
        let results = std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let part = Part { has_company: true, ..Part::of(&second) };
                let result = self.test(&shape, &part, &mut kept);
                // It boots for a minute or more where there is none yet.
                if let Err(error) = self.guests.prepare(&vm::Shape::two_domains()) {
                    sh::say(&format!("no machine with many domains: {error:#}"));
                }
                result
            });
            let part = Part { which: &first, is_installed: false, has_company: true };
            let first = self.test(&shape, &part, &mut std::io::stdout());
            [first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))]
        });
        sh::say("in the second guest, meanwhile");
        let shown = File::open(log.path())
            .and_then(|mut log| std::io::copy(&mut log, &mut std::io::stdout()));
        if let Err(error) = shown {
            eprintln!("xtask: it cannot be shown: {error}");
        }
        Ok(results.into())
    }

    /// Runs tests in a fresh guest of this shape.
    fn test(&self, shape: &vm::Shape, part: &Part, out: &mut dyn Write) -> Result<(u64, u64)> {
        let mut machine = self.guests.restore(shape, &self.files)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if part.has_company && processors < ENOUGH {
            let off = "echo 0 >/sys/devices/system/cpu/cpu1/online";
            machine.output(off, Duration::from_secs(120))?;
        }
        if part.is_installed {
            machine.output("dpkg -i /run/in/ctlmgr.deb", Duration::from_secs(120))?;
        }
        let mut shown = Tee { text: Vec::new(), since: Instant::now(), balloon_mib: None, out };
        let script = format!(
            "install -m 755 /run/in/live /var/tmp/live && /var/tmp/live --test-threads=1 {}",
            part.which
        );
        let status = machine.run_with(
            &script,
            Duration::from_secs(3000),
            vm::SELDOM,
            &mut |machine, bytes| {
                shown.write_all(bytes)?;
                shown.flush()?;
                // A test may ask for a smaller machine.
                shown.balloon_mib.take().map_or(Ok(()), |mib| machine.balloon(mib))
            },
        )?;
        let (passed, failed) = tally(&String::from_utf8_lossy(&shown.text));
        Ok((passed, if status == 0 { failed } else { failed.max(1) }))
    }
}

/// Shows output as it comes, with the seconds that each test took, and keeps it.
struct Tee<'a> {
    text: Vec<u8>,
    since: Instant,
    /// What the last `@{"balloon": MIB}` asked for, until it is done.
    balloon_mib: Option<u64>,
    out: &'a mut dyn Write,
}

impl Tee<'_> {
    /// Takes a request out of the line that just ended: it stands where the test runner will say what came of the test.
    fn hear(&mut self) {
        let start = self.text.windows(2).rposition(|two| two == b"@{");
        let request = start.and_then(|at| {
            let value: serde_json::Value = serde_json::from_slice(self.text.get(at + 1..)?).ok()?;
            Some((at, value["balloon"].as_u64()?))
        });
        if let Some((at, mib)) = request {
            self.balloon_mib = Some(mib);
            self.text.truncate(at);
        }
    }

    fn ends_a_test(&self) -> bool {
        let line = self.text.strip_suffix(b"\n").and_then(|t| t.rsplit(|b| *b == b'\n').next());
        line.is_some_and(|l| l.starts_with(b"test ") && !l.starts_with(b"test result"))
    }
}

impl Write for Tee<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            self.text.extend(part);
            if part.ends_with(b"\n") {
                self.hear();
            }
            if self.ends_a_test() {
                let secs = self.since.elapsed().as_secs_f32();
                self.since = Instant::now();
                self.out.write_all(part.trim_ascii_end())?;
                writeln!(self.out, " ({secs:.0} s)")?;
            } else {
                self.out.write_all(part)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Builds the live tests and returns their binary, under the name `live`.
fn binary() -> Result<PathBuf> {
    let build = [
        "test",
        "--package",
        "ctlmgr-live",
        "--features",
        "guest",
        "--test",
        "live",
        "--no-run",
        "--locked",
        "--message-format",
        "json-render-diagnostics",
    ];
    let output = sh::cargo(&build).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let built = text
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok())
        .filter(|m| m["target"]["name"] == "live")
        .find_map(|m| m["executable"].as_str().map(str::to_owned))
        .context("cargo built no live tests")?;
    let path = dist::target().join("live");
    std::fs::copy(&built, &path)?;
    sh::quiet(sh::command(&["strip"]).arg(&path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::Tee;
    use std::io::Write as _;
    use std::time::Instant;

    #[test]
    fn knows_the_end_of_a_test_in_pieces() {
        let mut tee = Tee {
            text: Vec::new(),
            since: Instant::now(),
            balloon_mib: None,
            out: &mut Vec::new(),
        };
        let mut ends = |bytes: &[u8]| {
            tee.write_all(bytes).unwrap();
            tee.ends_a_test()
        };
        assert!(!ends(b"running 1 test\ntest a::b ... "));
        assert!(ends(b"ok\n") && !ends(b"\n"));
        assert!(!ends(b"test result: ok. 1 passed\n"));
    }

    #[test]
    fn a_test_may_ask_for_a_smaller_machine_before_it_ends() {
        let mut tee = Tee {
            text: Vec::new(),
            since: Instant::now(),
            balloon_mib: None,
            out: &mut Vec::new(),
        };
        tee.write_all(b"test a::b ... @{\"ball").unwrap();
        assert_eq!(tee.balloon_mib, None);
        tee.write_all(b"oon\": 1250}\n").unwrap();
        assert_eq!(tee.balloon_mib.take(), Some(1250));
        tee.write_all(b"ok\n").unwrap();
        assert!(tee.ends_a_test());
        assert_eq!(tee.balloon_mib, None);
    }
}
