//! `cargo xtask test`: every test there is, and one line that counts them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

use crate::{dist, fresh, lab, sh, vm};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Leave the guest out.
    #[arg(long)]
    fast: bool,
    /// Only the tests outside the guest, so many times, each time with other random cases.
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["fast", "live"])]
    soak: Option<u32>,
    /// What runs beside the guest.
    #[arg(long, hide = true)]
    beside: bool,
    /// In the guest, only tests whose name contains this.
    #[arg(long, default_value = "")]
    live: String,
}

/// What passed and failed so far.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, what: &str, result: Result<(u64, u64)>) {
        let (passed, failed) = match result {
            Ok(counts) => counts,
            Err(error) => {
                eprintln!("xtask: {what}: {error:#}");
                (0, 1)
            }
        };
        self.passed += passed;
        self.failed += failed;
        if failed > 0 {
            self.failures.push(what.to_owned());
        }
    }
}

/// Of random cases. The gate says the same of a commit each time; what other cases find is for `--soak`. It goes before
/// the seeds that tests name themselves, and is theirs.
const SEED: u64 = 7;
/// Tests of a search that is no proof, and finds the best in the cases of that seed only.
const OF_SEED: &str = "placement::tests::";

/// Runs the tests.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(times) = arguments.soak {
        return soak(times);
    }
    let mut tally = Tally::default();
    tally.add("set-up", fresh::ensure_compiler().map(|()| (0, 0)));
    match arguments {
        Arguments { beside: true, .. } => local(&mut tally),
        Arguments { fast: true, .. } => {
            local(&mut tally);
            println!("The guest was left out (--fast): live tests did not run.");
        }
        Arguments { live, .. } => in_guest(&mut tally, live),
    }
    if !tally.failures.is_empty() {
        println!("failed: {}", tally.failures.join(", "));
    }
    // The last line, whatever happened: the gate reads it.
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// Live tests, and beside them all others unless only some are asked for.
fn in_guest(tally: &mut Tally, filter: &str) {
    let mut beside = None;
    timed(tally, "live tests in the guest", || {
        let files = live_files()?;
        beside = filter.is_empty().then(Beside::start);
        live(&files, filter)
    });
    if filter.is_empty() {
        // What cannot be built for the guest keeps nobody from the other tests.
        let beside = beside.unwrap_or_else(Beside::start);
        tally.add("tests outside the guest", beside.and_then(Beside::end));
    }
}

/// All tests outside the guest, as another process: a guest takes 1.4 of two processors, and these take what it leaves.
struct Beside {
    child: Child,
    log: NamedTempFile,
}

impl Beside {
    fn start() -> Result<Beside> {
        let log = NamedTempFile::new().context("failed to create a file for their output")?;
        sh::say(&format!("tests outside the guest run beside it, into {}", log.path().display()));
        let mut command = sh::command(&["nice", "-n", "19"]);
        command.arg(std::env::current_exe()?).args(["test", "--beside"]).stdin(Stdio::null());
        // One file and one place in it for both.
        let output = log.reopen()?;
        command.stdout(output.try_clone()?).stderr(output);
        Ok(Beside { child: command.spawn().context("failed to start nice")?, log })
    }

    fn end(mut self) -> Result<(u64, u64)> {
        let status = self.child.wait().context("failed to wait for them")?;
        let text = std::fs::read(self.log.path()).context("failed to read their output")?;
        let text = String::from_utf8_lossy(&text);
        sh::say("outside the guest, meanwhile");
        print!("{text}");
        let (passed, failed) = text
            .lines()
            .next_back()
            .and_then(closing)
            .with_context(|| format!("they did not count at their end: {status}"))?;
        Ok((passed, if status.success() { failed } else { failed.max(1) }))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the last line counts.
fn closing(line: &str) -> Option<(u64, u64)> {
    let (passed, failed) = line.split_once(" passed, ")?;
    Some((passed.parse().ok()?, failed.strip_suffix(" failed")?.parse().ok()?))
}

fn local(tally: &mut Tally) {
    let one = |command: &mut Command| sh::run(command).map(|()| (1, 0));
    timed(tally, "formatting", || one(&mut sh::cargo(&["fmt", "--all", "--check"])));
    timed(tally, "tidy", || crate::tidy::run().map(|()| (1, 0)));
    timed(tally, "generated pages", || crate::man::run(true).map(|()| (1, 0)));
    let clippy = [
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        // All but `highs`: two lines, for which four minutes of C++ would be compiled.
        "--features",
        "ctlmgr-live/guest",
        "--locked",
    ];
    timed(tally, "clippy", || one(sh::cargo(&clippy).args(["--", "--deny", "warnings"])));
    timed(tally, "unit, property, scenario and closed-loop tests", || count(&mut tests(SEED)));
    timed(tally, "benches compile and run once", || {
        one(&mut sh::cargo(&[
            "test",
            "--quiet",
            "--package",
            "ctlmgr-benches",
            "--benches",
            "--locked",
        ]))
    });
}

/// All tests outside the guest, with random cases from this seed.
fn tests(seed: u64) -> Command {
    let mut command = sh::cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.env("PROPTEST_RNG_SEED", seed.to_string());
    command
}

/// Runs the tests outside the guest again and again, and says with which seeds they fail.
fn soak(times: u32) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let seeds = (0..u64::from(times)).map(|n| now.as_secs() + n);
    let failed: Vec<String> = seeds
        .filter(|seed| {
            sh::say(&format!("random cases from {seed}"));
            let mut others = tests(*seed);
            others.args(["--", "--skip", OF_SEED]);
            !count(&mut others).is_ok_and(|(_, failed)| failed == 0)
        })
        .map(|seed| seed.to_string())
        .collect();
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("failed with PROPTEST_RNG_SEED={}", failed.join(" and ")),
    }
}

fn timed(tally: &mut Tally, what: &str, work: impl FnOnce() -> Result<(u64, u64)>) {
    sh::say(what);
    let started = Instant::now();
    let result = work();
    tally.add(what, result);
    sh::say(&format!("{what}: {:.0} s", started.elapsed().as_secs_f32()));
}

/// Runs a test command and counts by the closing lines of its test runners.
fn count(command: &mut Command) -> Result<(u64, u64)> {
    let output = command.stderr(Stdio::inherit()).output().context("failed to start cargo test")?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let (passed, failed) = tally(&text);
    match output.status.success() {
        true => Ok((passed, failed)),
        // A test binary that did not compile or crashed counts as a failure of its own.
        false => Ok((passed, failed.max(1))),
    }
}

/// Sums `test result: ok. 3 passed; 0 failed; …` over all runners.
fn tally(text: &str) -> (u64, u64) {
    let number = |line: &str, word: &str| {
        let before = line.split(word).next()?.trim_end();
        before.rsplit([' ', ';']).next()?.parse::<u64>().ok()
    };
    text.lines()
        .filter(|l| l.contains("test result:"))
        .map(|l| (number(l, " passed").unwrap_or(0), number(l, " failed").unwrap_or(0)))
        .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

/// What the guest is given, for as long as this is kept.
struct LiveFiles {
    kit: lab::Kit,
    binary: PathBuf,
}

/// Builds what the guest is given, and its image beside that: a machine that has nothing yet takes minutes for either.
fn live_files() -> Result<LiveFiles> {
    // One of the two at a time may install programs.
    fresh::ensure_packager()?;
    fresh::ensure_guest_tools()?;
    std::thread::scope(|scope| {
        let image = scope.spawn(vm::prepare_image);
        let files = LiveFiles { kit: lab::kit()?, binary: live_binary()? };
        let built = image.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        built.map(|()| files)
    })
}

/// Runs the live tests in a fresh guest.
fn live(files: &LiveFiles, filter: &str) -> Result<(u64, u64)> {
    let files = [files.kit.files(), std::slice::from_ref(&files.binary)].concat();
    let small = format!("--skip {DOMAINS} {filter}");
    let one = live_in(&vm::Shape::default(), &files, &small, !filter.is_empty())?;
    // Every test has one of the two machines.
    let large = if filter.contains(DOMAINS) { filter } else { DOMAINS };
    let is_asked = filter.is_empty() || large == filter;
    let two = if is_asked { live_in(&vm::Shape::domains(), &files, large, true)? } else { (0, 0) };
    Ok((one.0 + two.0, one.1 + two.1))
}

/// Tests that need several last-level caches.
const DOMAINS: &str = "many_domains";

/// Runs some of the live tests in a fresh guest of this shape.
fn live_in(
    shape: &vm::Shape,
    files: &[PathBuf],
    which: &str,
    is_installed: bool,
) -> Result<(u64, u64)> {
    let mut machine = vm::restore(shape, files)?;
    if is_installed {
        machine.output("dpkg -i /run/in/ctlmgr.deb", Duration::from_secs(120))?;
    }
    let mut shown = Tee { text: Vec::new(), since: Instant::now(), balloon_mib: None };
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

/// Shows output as it comes, with the seconds that each test took, and keeps it.
struct Tee {
    text: Vec<u8>,
    since: Instant,
    /// What the last `@{"balloon": MIB}` asked for, until it is done.
    balloon_mib: Option<u64>,
}

impl Tee {
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

impl Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut out = std::io::stdout();
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            self.text.extend(part);
            if part.ends_with(b"\n") {
                self.hear();
            }
            if self.ends_a_test() {
                let secs = self.since.elapsed().as_secs_f32();
                self.since = Instant::now();
                out.write_all(part.trim_ascii_end())?;
                writeln!(out, " ({secs:.0} s)")?;
            } else {
                out.write_all(part)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

/// Builds the live tests and returns their binary, under the name `live`.
fn live_binary() -> Result<PathBuf> {
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
    use super::{Tee, closing, tally};
    use std::io::Write as _;
    use std::time::Instant;

    #[test]
    fn knows_the_end_of_a_test_in_pieces() {
        let mut tee = Tee { text: Vec::new(), since: Instant::now(), balloon_mib: None };
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
        let mut tee = Tee { text: Vec::new(), since: Instant::now(), balloon_mib: None };
        tee.write_all(b"test a::b ... @{\"ball").unwrap();
        assert_eq!(tee.balloon_mib, None);
        tee.write_all(b"oon\": 1250}\n").unwrap();
        assert_eq!(tee.balloon_mib.take(), Some(1250));
        tee.write_all(b"ok\n").unwrap();
        assert!(tee.ends_a_test());
        assert_eq!(tee.balloon_mib, None);
    }

    #[test]
    fn counts_all_runners() {
        let text = "x\ntest result: ok. 3 passed; 0 failed; 1 ignored\n\
                    test result: FAILED. 10 passed; 2 failed; 0 ignored\n";
        assert_eq!(tally(text), (13, 2));
    }

    #[test]
    fn reads_its_own_last_line() {
        assert_eq!(closing("612 passed, 3 failed"), Some((612, 3)));
        assert_eq!(closing("xtask: no such thing"), None);
    }
}
