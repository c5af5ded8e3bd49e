//! The runtime wrapper before a runtime that tells what it was given.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

/// Runs the wrapper before a script, without a daemon.
fn run(script: &str, arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let runc = dir.path().join("runc");
    std::fs::write(&runc, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&runc, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ctlmgr-runc"))
        .args(arguments)
        .env("CTLMGR_RUNC", &runc)
        .env("CTLMGR_SOCKET", dir.path().join("none.sock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that does not read may have ended by now.
    let _ = child.stdin.take().unwrap().write_all(b"in");
    child.wait_with_output().unwrap()
}

#[test]
fn runc_gets_everything_and_says_everything() {
    let id = "0123456789abcdef";
    for arguments in [
        vec!["--version"],
        vec!["--root", "/run/x", "create", "--bundle", "/b with space", id],
        vec!["run", "--help"],
        vec!["state", id],
        vec!["kill", id, "9"],
        vec![],
    ] {
        let output = run("printf '<%s>' \"$@\"; cat; echo err >&2; exit 7", &arguments);
        let words: String = arguments.iter().map(|a| format!("<{a}>")).collect();
        let words = if words.is_empty() { "<>".to_owned() } else { words };
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{words}in"));
        assert_eq!(
            (output.stderr.as_slice(), output.status.code()),
            (b"err\n".as_slice(), Some(7))
        );
    }
}

#[test]
fn it_is_runc_itself_that_runs() {
    // The same process, with signals as they were: SIGPIPE not ignored, the end by a signal passed on.
    use std::os::unix::process::ExitStatusExt;
    let output = run("kill -TERM $$", &["create", "0123456789abcdef"]);
    assert_eq!(output.status.signal(), Some(15));
    let output = run("grep SigIgn /proc/self/status", &["state"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mask = u64::from_str_radix(text.split_whitespace().last().unwrap(), 16).unwrap();
    assert_eq!(mask & (1 << 12), 0, "SIGPIPE is ignored: {text}");
}

/// `--preserve-fds`, and the console that containerd hands over.
#[test]
fn open_descriptors_stay_open() {
    let dir = tempfile::tempdir().unwrap();
    let (runc, file) = (dir.path().join("runc"), dir.path().join("file"));
    std::fs::write(&file, "handed over").unwrap();
    std::fs::write(&runc, "#!/bin/sh\ncat <&5\n").unwrap();
    std::fs::set_permissions(&runc, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("sh")
        .args(["-c", "exec 5<\"$0\"; exec \"$@\""])
        .arg(&file)
        .arg(env!("CARGO_BIN_EXE_ctlmgr-runc"))
        .args(["create", "--preserve-fds", "3", "0123456789abcdef"])
        .env("CTLMGR_RUNC", &runc)
        .env("CTLMGR_SOCKET", dir.path().join("none.sock"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "handed over", "{output:?}");
}

#[test]
fn a_missing_runtime_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_ctlmgr-runc"))
        .arg("--version")
        .env("CTLMGR_RUNC", "/nowhere/runc")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/runc"));
}
