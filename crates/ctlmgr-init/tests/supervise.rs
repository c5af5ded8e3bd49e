//! Two services under the real program.

#![expect(clippy::unwrap_used, reason = "a test that cannot make its own world may panic")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn start(dir: &Path, list: &str) -> Child {
    let file = dir.join("services.json");
    std::fs::write(&file, list).unwrap();
    let program = env!("CARGO_BIN_EXE_ctlmgr-init");
    Command::new(program).arg(&file).stderr(Stdio::piped()).spawn().unwrap()
}

fn service(name: &str, script: &str) -> String {
    format!(
        "{{\"name\": \"{name}\", \"argv\": [\"/bin/sh\", \"-c\", \"{script}\"], \"stop\": \"SIGTERM\"}}"
    )
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Says that it runs, and what signals it got; ends at SIGTERM with this status.
fn waiter(dir: &Path, name: &str, status: u8) -> String {
    let file = dir.join(name).display().to_string();
    let script = format!(
        "trap 'echo usr >>{file}' USR1; trap 'echo term >>{file}; exit {status}' TERM; \
         echo up >>{file}; while :; do sleep 0.1; done"
    );
    service(name, &script)
}

fn said(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap_or_default().replace('\n', " ")
}

#[test]
fn signals_reach_both_and_the_container_stops_in_good_order() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut child = start(dir, &format!("[{}, {}]", waiter(dir, "a", 0), waiter(dir, "b", 0)));
    until("both run", || said(dir, "a") == "up " && said(dir, "b") == "up ");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(pid, Signal::SIGUSR1).unwrap();
    until("both heard it", || said(dir, "a") == "up usr " && said(dir, "b") == "up usr ");
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!((said(dir, "a"), said(dir, "b")), ("up usr term ".into(), "up usr term ".into()));
}

#[test]
fn when_one_ends_the_other_is_asked_to_and_the_status_is_that_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let b = dir.join("b").display().to_string();
    // Not before the other one can be asked.
    let script = format!("until grep -q up {b} 2>/dev/null; do sleep 0.1; done; exit 7");
    let mut child = start(dir, &format!("[{}, {}]", service("a", &script), waiter(dir, "b", 3)));
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(said(dir, "b"), "up term ");
}

/// A child has the signal mask of its parent: a program that does not look after its own must be stopped all
/// the same.
#[test]
fn services_hear_their_signals() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let up = dir.join("a").display().to_string();
    let script = format!("echo up >{up}; exec sleep 1000");
    let mut child = start(dir, &format!("[{}]", service("a", &script)));
    until("it runs", || said(dir, "a") == "up ");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15), "not 137: that is the kill");
}

#[test]
fn what_cannot_be_started_is_named_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let missing = "{\"name\": \"web\", \"argv\": [\"/no/such/program\"]}";
    let child = start(dir, &format!("[{}, {missing}]", service("a", "exec sleep 1000")));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(said.contains("/no/such/program") && said.contains("`web`"), "{said}");
    let child = start(dir, "[]");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(125));
}
