//! `cargo xtask test`: every test there is, and one line that counts them.

mod live;

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

use crate::{fresh, sh, vm};

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
    /// Debian release whose kernel boots for them: trixie-backports (7.x), bookworm (6.1) or bullseye (5.10).
    #[arg(long, default_value = vm::RELEASE, requires = "live", conflicts_with = "fast")]
    kernel: String,
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
        Arguments { live, kernel, .. } => in_guest(&mut tally, live, kernel),
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
fn in_guest(tally: &mut Tally, filter: &str, kernel: &str) {
    let mut beside = None;
    timed(tally, "live tests in the guest", || {
        let files = live::files()?;
        match filter {
            "" => live::all(&files, || beside = Some(Beside::start())),
            some => live::some(&files, some, kernel),
        }
    });
    if filter.is_empty() {
        // What cannot be built for the guest keeps nobody from the other tests.
        let beside = beside.unwrap_or_else(Beside::start);
        tally.add("tests outside the guest", beside.and_then(Beside::end));
    }
}

/// All tests outside the guest, as another process: it takes what guests leave of the processors.
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
    // No tests in documentation: to find none, rustdoc would read all of each crate.
    let mut command = sh::cargo(&["test", "--workspace", "--lib", "--bins", "--tests"]);
    command.args(["--locked", "--no-fail-fast"]);
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

#[cfg(test)]
mod tests {
    use super::{closing, tally};

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
