//! Everything an operator can get wrong gives file, line, key and what would be right.

#![expect(clippy::unwrap_used, reason = "a helper of tests may panic like a test")]

use ctlmgr_config::{Fragment, KEYS, beyond, parse};
use ctlmgr_model::{Bytes, Mode, Settings, Weight};
use proptest::prelude::*;

fn fragment(file: &str, bytes: impl AsRef<[u8]>) -> Fragment {
    Fragment { file: file.into(), bytes: bytes.as_ref().to_vec() }
}

fn faults(text: impl AsRef<[u8]>) -> String {
    parse(&[fragment("10-a.toml", text)]).unwrap_err().to_string()
}

#[test]
fn each_mistake_is_named_where_it_was_made() {
    for (text, expected) in [
        ("[memory]\nmod = \"act\"", "10-a.toml:2: memory.mod: unknown key; did you mean `mode`?"),
        (
            "[memroy]\nmode = \"act\"",
            "10-a.toml:1: memroy: unknown table or key; did you mean [memory]?",
        ),
        (
            "[memory]\nmode = 3",
            "10-a.toml:2: memory.mode: expected \"off\", \"observe\" or \"act\", found a whole number",
        ),
        ("[memory]\nmode = \"atc\"", "did you mean \"act\"?"),
        ("[classes]\nlow = 0", "10-a.toml:2: classes.low: weight 0 is outside 1–10000"),
        (
            "\n[[rule]]\nname = \"a\"\nweight = 10001",
            "10-a.toml:4: rule.weight: weight 10001 is outside 1–10000",
        ),
        ("[[rule]]\nname = \"web-[\"\nweight = 1", "10-a.toml:2: rule.name: bad pattern `web-[`"),
        ("[[rule]]\nweight = 1", "10-a.toml:1: rule: needs exactly one selector"),
        ("[[rule]]\nname = \"a\"\nimage = \"b\"\nweight = 1", "exactly one selector"),
        ("[[rule]]\nname = \"a\"", "10-a.toml:1: rule: sets nothing"),
        (
            "[[rule]]\nname = \"a\"\nclass = \"critcal\"",
            "10-a.toml:3: rule.class: no class `critcal`; did you mean `critical`?",
        ),
        ("[[rule]]\nname = \"a\"\nclass = \"low\"\nweight = 3", "exclude each other"),
        (
            "[[rule]]\nname = \"a\"\nwieght = 3",
            "10-a.toml:3: rule.wieght: unknown key; did you mean `weight`?",
        ),
        (
            "[memory]\nheadroom = \"80%\"",
            "10-a.toml:2: memory.headroom: `80%` is no percentage within 0–50 %",
        ),
        (
            "[memory.bystanders]\nflor = 3",
            "10-a.toml:2: memory.bystanders.flor: unknown key; did you mean `floor`?",
        ),
        (
            "[memory]\nkill = [\"idle\",\n\"hihg\"]",
            "10-a.toml:3: memory.kill: no class `hihg`; did you mean `high`?",
        ),
        ("[memory]\nfreeze = \"idle\"", "expected a list of classes such as [\"idle\"]"),
        ("[memory]\nfreeze = [3]", "10-a.toml:2: memory.freeze: expected the name of a class"),
        ("[memory]\nreclaim_chunk = \"1T\"", "is outside"),
        ("[memory]\nmode = \"act\"\nmode = \"off\"", "10-a.toml:3"),
        ("[memory", "10-a.toml:1"),
        ("memory = 3", "10-a.toml:1: memory: expected a table"),
        ("rule = 3", "10-a.toml:1: rule: expected [[rule]]"),
    ] {
        let shown = faults(text);
        assert!(shown.contains(expected), "{text:?}\n  gave {shown}\n  not  {expected}");
    }
}

#[test]
fn binary_and_empty_files() {
    assert_eq!(faults(b"[memory]\n\xff\xfe\0"), "10-a.toml:2: is not UTF-8 text");
    assert!(faults("\0\0\0").starts_with("10-a.toml:1"));
    assert_eq!(parse(&[fragment("empty.toml", "")]).unwrap(), Settings::default());
}

#[test]
fn overlapping_rules_name_each_other() {
    let text = "[[rule]]\nname = \"web-*\"\nweight = 5\n[[rule]]\nname = \"*-1\"\nweight = 6";
    let shown = faults(text);
    assert!(
        shown.starts_with("10-a.toml:4: rule.name: `*-1` and `web-*` (rule at 10-a.toml:1)"),
        "{shown}"
    );
    // A class says who may be frozen or stopped, too.
    for other in ["class = \"scratch\"", "weight = 1"] {
        let text = format!(
            "[classes]\nscratch = 1\n[[rule]]\nname = \"web-*\"\nclass = \"idle\"\n[[rule]]\nname = \"*-1\"\n{other}"
        );
        assert!(faults(text).contains("set different values"), "{other}");
    }
    let literal = "[[rule]]\nname = \"web-1\"\nweight = 5\n[[rule]]\nname = \"web-*\"\nweight = 6";
    let settings = parse(&[fragment("a.toml", literal)]).unwrap();
    let last = settings.rules.last().unwrap();
    assert_eq!(last.selector.to_string(), "name = web-1", "the literal wins");
}

#[test]
fn all_mistakes_are_reported_together() {
    let error = parse(&[fragment("a.toml", "[memory]\nx = 1\ny = 2"), fragment("b.toml", "z = 1")]);
    assert_eq!(error.unwrap_err().0.len(), 3);
}

#[test]
fn later_fragments_win_key_by_key() {
    let settings = parse(&[
        fragment("a.toml", "[memory]\nmode = \"act\"\nheadroom = \"64M\"\n[classes]\ngold = 700"),
        fragment("b.toml", "[memory]\nmode = \"observe\"\n[[rule]]\nname = \"db\"\nclass = \"gold\"\npromise = \"1G\""),
        fragment("c.toml", "[[rule]]\nname = \"db\"\nweight = 9"),
    ])
    .unwrap();
    assert_eq!(settings.memory.mode, Mode::Observe);
    assert_eq!(settings.memory.headroom, ctlmgr_model::Headroom::Bytes(Bytes::mib(64)));
    assert_eq!(settings.rules[1].effect.weight, Some(Weight::new(9).unwrap()));
    assert_eq!(settings.rules[0].effect.promise, Some(Bytes::mib(1024)), "what b said stays");
}

#[test]
fn classes_of_the_last_rungs_may_be_defined_later() {
    let settings = parse(&[
        fragment("a.toml", "[memory]\nfreeze = [\"scratch\"]\nkill = [\"idle\", \"scratch\"]"),
        fragment("b.toml", "[classes]\nscratch = 2\n[memory]\nkill = [\"idle\"]"),
    ])
    .unwrap();
    assert_eq!(settings.memory.freeze, ["scratch"]);
    assert_eq!(settings.memory.kill, ["idle"], "later fragments win key by key");
}

#[test]
fn a_file_in_etc_replaces_its_namesake_in_usr() {
    let dir = tempfile::tempdir().unwrap();
    for (directory, text) in
        [("usr/lib", "[memory]\nmode = \"act\""), ("etc", "[memory]\nheadroom = \"1M\"")]
    {
        let path = dir.path().join(directory).join("ctlmgr/config.d");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("10-x.toml"), text).unwrap();
        std::fs::write(path.join("ignored.conf"), "garbage").unwrap();
    }
    let settings = ctlmgr_config::load(dir.path()).unwrap();
    assert_eq!(settings.memory.mode, Mode::Observe);
}

#[test]
fn what_no_machine_of_this_size_has_is_named_where_it_was_asked_for() {
    let text = "[[rule]]\nname = \"a\"\npromise = \"2G\"\n[[rule]]\nname = \"b\"\nfloor = \"3G\"\npromise = \"1G\"\n";
    let settings = parse(&[fragment("10-a.toml", text)]).unwrap();
    let named =
        |total| beyond(&settings, total).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(named(Bytes::mib(3072)), Vec::<String>::new());
    assert_eq!(
        named(Bytes::mib(1024)),
        [
            "10-a.toml:1: rule.promise: 2 GiB is more than this machine has (1 GiB)",
            "10-a.toml:4: rule.floor: 3 GiB is more than this machine has (1 GiB)",
        ]
    );
}

#[test]
fn the_shipped_configuration_says_the_defaults() {
    let text = include_str!("../../../config/10-ctlmgr.toml");
    assert_eq!(parse(&[fragment("10-ctlmgr.toml", text)]).unwrap(), Settings::default());
    let uncommented: String = text
        .lines()
        .map(|l| l.strip_prefix("#").filter(|l| !l.starts_with(' ')).unwrap_or(l))
        .flat_map(|l| [l, "\n"])
        .collect();
    assert!(parse(&[fragment("10-ctlmgr.toml", &uncommented)]).is_ok(), "{uncommented}");
    for key in KEYS.iter().filter(|k| k.name != "*") {
        assert!(uncommented.contains(&format!("\n{} =", key.name)), "{} is not shown", key.name);
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_or_err(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&[fragment("f", bytes)]);
    }

    #[test]
    fn any_toml_like_text_parses_or_errs(
        lines in proptest::collection::vec("(\\[{1,2}[a-z.]{1,8}\\]{1,2}|[a-z]{1,8} = (\"[^\"]{0,6}\"|-?[0-9]{1,20}|\\[\\]|true|\\{\\}))", 0..8)
    ) {
        let _ = parse(&[fragment("f", lines.join("\n"))]);
    }
}
