//! `[place]`, read and refused.

use ctlmgr_config::{ConfigError, Fragment, parse};
use ctlmgr_model::{CountTraffic, Millis, Mode, Percent, PlaceSettings, Settings};

fn read(text: &str) -> Result<Settings, ConfigError> {
    parse(&[Fragment { file: "f.toml".into(), bytes: text.as_bytes().to_vec() }])
}

#[test]
fn everything_can_be_set() {
    let text = "[place]\nmode = \"act\"\ntraffic = \"on\"\nhorizon_secs = 60\ncool_down_secs = 5\n\
                learn_secs = 7\nfill = \"100%\"\nmemory = true\n";
    let expected = PlaceSettings {
        mode: Mode::Act,
        traffic: CountTraffic::On,
        horizon: Millis(60_000),
        cool_down: Millis(5000),
        learn: Millis(7000),
        fill: Percent(100),
        memory: true,
    };
    assert_eq!(read(text).unwrap().place, expected);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (line, complaint) in [
        ("mod = \"act\"", "place.mod: unknown key; did you mean `mode`?"),
        ("traffic = \"always\"", "`always` is no word"),
        ("horizon_secs = 0", "0 is outside 1–86400"),
        ("fill = \"101%\"", "`101%` is no percentage within 0–100 %"),
        ("fill = 70", "expected a percentage"),
        ("memory = 1", "expected true or false"),
    ] {
        let error = read(&format!("[place]\n{line}\n")).unwrap_err().to_string();
        assert!(error.contains(complaint), "{line}: {error}");
        assert!(error.starts_with("f.toml:2"), "{error}");
    }
}
