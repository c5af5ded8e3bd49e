//! `ctlmgr batch plan` on instances with known optima, and on bad input.

#![expect(clippy::unwrap_used, reason = "a test that cannot run the command may panic")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn plan(input: &str, arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ctlmgr"))
        .args(["batch", "plan", "-", "--json"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn planned(input: &str, arguments: &[&str]) -> Value {
    let output = plan(input, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Names of all containers of an input.
fn names(input: &Value) -> BTreeSet<String> {
    let of = |c: &Value| -> Vec<String> {
        let name = c["name"].as_str().unwrap();
        match c["count"].as_u64().unwrap_or(1) {
            1 => vec![name.to_owned()],
            n => (1..=n).map(|i| format!("{name}-{i}")).collect(),
        }
    };
    input["containers"].as_array().unwrap().iter().flat_map(of).collect()
}

#[test]
fn known_optima_are_found_and_proven() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/batch");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut input = case["input"].clone();
        // Builds without optimisation need longer for the same work.
        input["time_limit_ms"] = 60_000.into();
        let found = planned(&input.to_string(), &[]);
        let (objective, optimum) =
            (found["objective"].as_f64().unwrap(), case["optimum"].as_f64().unwrap());
        assert!((objective - optimum).abs() < 1e-9, "{path:?}: {objective}, {optimum} is known");
        assert_eq!(found["proven"], true, "{path:?}");
        let started: Vec<String> = found["batches"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|b| b.as_array().unwrap())
            .map(|n| n.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(started.len(), names(&input).len(), "{path:?}");
        assert_eq!(started.into_iter().collect::<BTreeSet<_>>(), names(&input), "{path:?}");
        seen += 1;
    }
    assert!(seen > 5, "instances are there");
}

/// With rounds in place of the clock the plan is the same every time.
#[test]
fn the_same_work_gives_the_same_plan() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/batch/class_c5_n100_phi8_s1.json");
    let case: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let input = case["input"].to_string();
    let of = |v: Value| (v["batches"].clone(), v["bound"].clone());
    let first = of(planned(&input, &["--rounds", "50"]));
    assert_eq!(first, of(planned(&input, &["--rounds", "50"])));
}

#[test]
fn nothing_to_start_and_order_and_volumes() {
    let none = planned(r#"{"pairwise": [], "containers": []}"#, &[]);
    assert_eq!(none["batches"], Value::Array(Vec::new()));
    let apart = planned(
        r#"{"pairwise": [[0, 9], [9, 0]], "containers": [{"name": "a", "volume": "v0"}, {"name": "b", "volume": "v1"}]}"#,
        &[],
    );
    assert_eq!(apart["batches"].as_array().unwrap().len(), 1, "different volumes do not conflict");
    let ordered = planned(
        r#"{"bins": ["x"], "penalty": [[0]], "containers": [{"name": "web", "bin": "x", "count": 2, "after": ["db"]}, {"name": "db", "bin": "x"}]}"#,
        &[],
    );
    assert_eq!(ordered["batches"].to_string(), r#"[["db"],["web-1","web-2"]]"#);
}

/// Penalties and amounts of any size, and those that decimals cannot say exactly.
#[test]
fn figures_of_any_size() {
    let pair = |s: &str| {
        format!(
            r#"{{"pairwise": [[0, {s}], [{s}, 0]], "containers": [{{"name": "a"}}, {{"name": "b"}}]}}"#
        )
    };
    // One batch or two are worth the same; whatever it is, it is not free.
    for s in ["4e-7", "1", "3e9"] {
        assert_eq!(planned(&pair(s), &[])["objective"], 1.0, "{s}");
    }
    let third = planned(&pair("0.3333333333333333"), &[]);
    assert!(
        (third["objective"].as_f64().unwrap() - 1.0).abs() < 1e-5
            && third["bound"].as_f64() >= Some(1.0)
    );
    let bytes = r#"{"pairwise": [[0, 0], [0, 0]], "capacity": {"memory": 8589934592},
        "containers": [{"name": "a", "use": {"memory": 5e9}}, {"name": "b", "use": {"memory": 5000000000}}]}"#;
    assert_eq!(planned(bytes, &[])["batches"].as_array().unwrap().len(), 2);
}

#[test]
fn bad_input_names_the_field_or_the_constraint() {
    let cases = [
        (r#"{"containers": []}"#, "missing field `penalty` or `pairwise`"),
        (r#"{"pairwise": [[0]], "containers": [{"name": "a", "cuont": 2}]}"#, "containers[0]"),
        (
            r#"{"pairwise": [[0]], "containers": [{"name": "a", "count": "x"}]}"#,
            "containers[0].count",
        ),
        (
            r#"{"pairwise": [[0]], "containers": [{"name": "a", "count": 0}]}"#,
            "`count` is at least 1",
        ),
        (
            r#"{"pairwise": [[0]], "containers": [{"name": "a", "count": 4000000000}]}"#,
            "4000000000 in all",
        ),
        (r#"{"pairwise": [[-1]], "containers": [{"name": "a"}]}"#, "`pairwise[0][0]` is -1"),
        (r#"{"pairwise": [[0, 1]], "containers": [{"name": "a"}]}"#, "1 rows of 1"),
        (
            r#"{"pairwise": [[0, 1], [2, 0]], "containers": [{"name": "a"}, {"name": "b"}]}"#,
            "differ",
        ),
        (
            r#"{"bins": ["x"], "penalty": [[0]], "containers": [{"name": "a", "bin": "y"}]}"#,
            "`bins` has no `y`",
        ),
        (r#"{"bins": ["x"], "penalty": [[0]], "containers": [{"name": "a"}]}"#, "has no `bin`"),
        (
            r#"{"pairwise": [[0]], "containers": [{"name": "a", "after": ["b"]}]}"#,
            "`after` names `b`",
        ),
        (
            r#"{"pairwise": [[0]], "containers": [{"name": "a", "after": ["a"]}]}"#,
            "leads back to itself",
        ),
        (
            r#"{"pairwise": [[0]], "max_batch": 0, "containers": [{"name": "a"}]}"#,
            "`max_batch` is 0",
        ),
        (
            r#"{"pairwise": [[0]], "capacity": {"cpu": 1}, "containers": [{"name": "a", "use": {"cpu": 2}}]}"#,
            "uses 2 of `cpu`",
        ),
        (
            r#"{"pairwise": [[0]], "objective": {"penalty": 0, "batches": 0}, "containers": [{"name": "a"}]}"#,
            "`objective`",
        ),
        (
            r#"{"pairwise": [[0, 0], [0, 0]], "containers": [{"name": "a"}, {"name": "a"}]}"#,
            "called `a`",
        ),
        (r#"{"pairwise": [[0]], "containers": [{"name": "a"}]} x"#, "follows the input"),
    ];
    for (input, expected) in cases {
        let output = plan(input, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{input}: {said}");
        assert!(said.contains(expected), "{input}: {said}");
    }
}
