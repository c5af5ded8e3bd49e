//! `[starts]`, read and refused.

use ctlmgr_config::{ConfigError, Fragment, parse};
use ctlmgr_model::{Millis, Mode, Settings};

fn read(text: &str) -> Result<Settings, ConfigError> {
    parse(&[Fragment { file: "f.toml".into(), bytes: text.as_bytes().to_vec() }])
}

#[test]
fn everything_can_be_set() {
    let text = "[classes]\nbatch = 10\n[starts]\nmode = \"act\"\nmax_together = 4\nmost_penalty = 1.5\nmost_sharing = 2\n\
                max_wait_secs = 20\nsettle_secs = 5\nsettle_at_most_secs = 60\nio_full = \"30%\"\n\
                memory_full = \"5%\"\n[starts.class_wait_secs]\nbatch = 600\n";
    let starts = read(text).unwrap().starts;
    assert_eq!((starts.mode, starts.max_together), (Mode::Act, 4));
    assert_eq!((starts.most_penalty, starts.most_sharing), (150, 200));
    assert_eq!((starts.max_wait, starts.settle), (Millis(20_000), Millis(5000)));
    assert_eq!((starts.io_full.0, starts.memory_full.0), (30, 5));
    let wait = |class: &str| starts.longest_wait(Some(&class.to_owned()));
    assert_eq!(
        (wait("batch"), wait("critical"), wait("high")),
        (Millis(600_000), Millis(0), Millis(20_000))
    );
    for (text, hundredths) in [("0", 0), ("2", 200), ("0.25", 25), ("100", 10_000)] {
        let settings = read(&format!("[starts]\nmost_penalty = {text}\n")).unwrap();
        assert_eq!(settings.starts.most_penalty, hundredths, "{text}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (line, complaint) in [
        ("mod = \"act\"", "starts.mod: unknown key; did you mean `mode`?"),
        ("max_together = 0", "0 is outside 1–10000 containers"),
        ("max_wait_secs = 3601", "3601 is outside 1–3600 seconds"),
        ("most_penalty = 1.005", "1.005 is no number within 0–100 with two decimals at most"),
        ("most_penalty = -1", "-1 is no number within 0–100"),
        ("most_penalty = 101", "101 is no number within 0–100"),
        ("most_penalty = \"1\"", "expected a number, 0–100, found text"),
        ("class_wait_secs = 5", "starts.class_wait_secs: expected a table, found a whole number"),
        (
            "class_wait_secs.high = 3601",
            "starts.class_wait_secs.high: 3601 is outside 0–3600 seconds",
        ),
        ("class_wait_secs.hihg = 5", "no class `hihg`; did you mean `high`?"),
    ] {
        let error = read(&format!("[starts]\n{line}\n")).unwrap_err().to_string();
        assert!(error.contains(complaint), "{line}: {error}");
        assert!(error.starts_with("f.toml:2"), "{error}");
    }
}
