//! Live tests: in guests, of which two run at once.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
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

/// These run in a second guest beside the first, which is busy for half of the time only; they take about as long as all others
/// and those of [`DOMAINS`].
const SECOND: [&str; 7] = [
    "c_memory::",
    "c_making::",
    "c_needs::",
    "c_place::",
    "c_rootless::",
    "c_rungs::",
    "c_starts::",
];

/// Runs the live tests in fresh guests: all, or those whose name contains `filter` in one guest.
pub(super) fn run(files: &Files, filter: &str) -> Result<(u64, u64)> {
    let guests = vm::Guests::begin()?;
    let files = [files.kit.files(), std::slice::from_ref(&files.binary)].concat();
    let live = Live { guests: &guests, files };
    let (small, large) = (vm::Shape::default(), vm::Shape::domains());
    let out = || std::io::stdout();
    if filter.contains(DOMAINS) {
        return live.test(&large, (filter, true), &mut out());
    }
    if !filter.is_empty() {
        return live.test(&small, (&format!("--skip {DOMAINS} {filter}"), true), &mut out());
    }
    // The first is a machine that has never seen ctlmgr.
    let skipped = format!("--skip {DOMAINS} --skip {}", SECOND.join(" --skip "));
    // In one piece at its end, so that it does not mix with that of others.
    let log = NamedTempFile::new().context("failed to create a file for their output")?;
    sh::say(&format!("what runs in the second guest is said in {}", log.path().display()));
    let mut kept = log.reopen()?;
    let results = std::thread::scope(|scope| {
        let second = scope.spawn(|| live.test(&small, (&SECOND.join(" "), true), &mut kept));
        let first = live.test(&small, (&skipped, false), &mut out());
        let third = live.test(&large, (DOMAINS, true), &mut out());
        let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        [first, second, third]
    });
    sh::say("in the second guest, meanwhile");
    std::io::copy(&mut File::open(log.path())?, &mut out())?;
    let counts = results.map(|result| {
        result.unwrap_or_else(|error| {
            eprintln!("xtask: live tests: {error:#}");
            (0, 1)
        })
    });
    Ok(counts.iter().fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1)))
}

/// Guests, and what each is given.
struct Live<'a> {
    guests: &'a vm::Guests,
    files: Vec<PathBuf>,
}

impl Live<'_> {
    /// Runs the tests that `which` selects in a fresh guest of this shape, where ctlmgr is installed or is not.
    fn test(
        &self,
        shape: &vm::Shape,
        (which, is_installed): (&str, bool),
        out: &mut dyn Write,
    ) -> Result<(u64, u64)> {
        let mut machine = self.guests.restore(shape, &self.files)?;
        if is_installed {
            machine.output("dpkg -i /run/in/ctlmgr.deb", Duration::from_secs(120))?;
        }
        let mut shown = Tee { text: Vec::new(), since: Instant::now(), balloon_mib: None, out };
        let script = format!(
            "install -m 755 /run/in/live /var/tmp/live && /var/tmp/live --test-threads=1 {which}"
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
