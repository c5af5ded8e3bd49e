//! What `ctlmgr config show` prints says the same settings again.

use ctlmgr_config::{Fragment, KEYS, parse, to_toml};
use ctlmgr_model::{Origin, Settings};
use proptest::prelude::*;

fn read(text: &str) -> Settings {
    let file = "etc/ctlmgr/config.d/10.toml".to_owned();
    let mut settings = parse(&[Fragment { file, bytes: text.into() }])
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    // A rule says as a comment where it was written.
    for rule in &mut settings.rules {
        rule.origin = Origin { file: String::new(), line: 0 };
    }
    settings
}

#[test]
fn each_key_is_shown_by_its_name() {
    let text = to_toml(&Settings::default()).unwrap();
    for key in KEYS.iter().filter(|key| key.table != "rule" && key.name != "*") {
        let table = text.split(&format!("[{}]\n", key.table)).nth(1).unwrap();
        let table = table.split("\n[").next().unwrap();
        let starts = [format!("{} = ", key.name), format!("# {} is not set", key.name)];
        let is_shown = table.lines().any(|l| starts.iter().any(|start| l.starts_with(start)));
        assert!(is_shown, "{}.{} in\n{text}", key.table, key.name);
    }
    assert_eq!(read(&text), Settings::default());
}

#[test]
fn rules_and_classes_come_back() {
    let settings = read(
        r#"
[memory]
headroom = "300M"
freeze = ["batch jobs"]
[memory.bystanders]
floor = "24M"
[starts.class_wait_secs]
"batch jobs" = 7
[classes]
"batch jobs" = 3
[units]
manage = ["postgresql@*", "\\[odd\\]"]
[[rule]]
name = "web-*"
class = "batch jobs"
promise = "1536M"
floor = 0
[[rule]]
unit = "a.service"
weight = 7
managed = false
"#,
    );
    assert_eq!(read(&to_toml(&settings).unwrap()), settings);
}

proptest! {
    #[test]
    fn what_is_shown_says_the_same(
        weight in 1u32..10_000, kib in 1024u64..1 << 22, odd in 1_048_576u64..1 << 40,
        secs in 1u64..3600, hundredths in 0u32..10_000, percent in 0u8..=50, name in "[a-z0-9 .=\"\\\\#-]{1,12}"
    ) {
        let name = toml::Value::from(name);
        let written = format!(
            "[memory]\nhysteresis = \"{percent}%\"\nheadroom = {odd}\nreclaim_per_cycle = \"{kib}K\"\nkill_grace_secs = {secs}\n\
             [starts]\nmost_penalty = {}.{:02}\nmax_wait_secs = {secs}\n\
             [classes]\n{name} = {weight}\n\
             [[rule]]\nimage = \"a\"\nclass = {name}\npromise = {odd}\n",
            hundredths / 100, hundredths % 100,
        );
        let settings = read(&written);
        prop_assert_eq!(read(&to_toml(&settings).unwrap()), settings);
    }
}
