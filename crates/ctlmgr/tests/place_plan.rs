//! `ctlmgr place plan` on instances with known optima, and on bad input.

#![expect(clippy::unwrap_used, reason = "a test that cannot run the command may panic")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn plan(input: &Value, arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ctlmgr"))
        .args(["place", "plan", "-", "--json"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn planned(input: &Value, arguments: &[&str]) -> Value {
    let output = plan(input, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(input: &Value) -> String {
    let output = plan(input, &[]);
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

/// Loads by domain of an input whose workloads have one domain each.
fn loads(input: &Value, found: &Value) -> BTreeMap<String, f64> {
    let mut loads = BTreeMap::new();
    for w in input["workloads"].as_array().unwrap() {
        let at = found["assignment"][w["name"].as_str().unwrap()].as_array().unwrap();
        assert_eq!(at.len(), 1);
        *loads.entry(at[0].as_str().unwrap().to_owned()).or_default() += w["cpu"].as_f64().unwrap();
    }
    loads
}

#[test]
fn known_optima_are_found_within_the_limits() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/place");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let input = &case["input"];
        let found = planned(input, &["--rounds", "5000"]);
        let cut = found["weighted_cut"].as_f64().unwrap();
        let known = case["optimum_weighted_cut"].as_f64().unwrap();
        match case["proven"].as_bool().unwrap() {
            true => assert!((cut - known).abs() < 1e-6, "{path:?}: {cut}, {known} is the optimum"),
            false => assert!(cut <= known, "{path:?}: {cut}, {known} is known"),
        }
        for (load, limit) in loads(input, &found).values().zip(case["limit"].as_array().unwrap()) {
            assert!(*load <= limit.as_f64().unwrap() + 1e-9, "{path:?}: {load} of {limit}");
        }
        assert_eq!(found["overload"], 0.0, "{path:?}");
        seen += 1;
    }
    assert!(seen > 5, "instances are there");
}

#[test]
fn a_proof_is_given_on_request() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/place");
    for name in ["teastore_7_flat_s1", "teastore_7_hier_s1", "sockshop_15_hier_s1"] {
        let text = std::fs::read_to_string(directory.join(name).with_extension("json")).unwrap();
        let case: Value = serde_json::from_str(&text).unwrap();
        let found = planned(&case["input"], &["--rounds", "5000", "--prove", "600"]);
        assert_eq!(found["proven"], true, "{name}");
        let (cut, known) = (&found["weighted_cut"], &case["optimum_weighted_cut"]);
        assert!(
            (cut.as_f64().unwrap() - known.as_f64().unwrap()).abs() < 1e-6,
            "{name}: {cut}, {known}"
        );
        assert!(planned(&case["input"], &["--rounds", "10"]).get("proven").is_none());
    }
}

#[test]
fn of_equals_those_of_more_weight_are_where_there_is_room() {
    let mut input = json!({
        "domains": [{"id": "d0", "cpus": 2}, {"id": "d1", "cpus": 2}],
        "workloads": [
            {"name": "light", "cpu": 1.5, "weight": 10}, {"name": "heavy", "cpu": 1.5, "weight": 400},
            {"name": "other", "cpu": 1.5, "weight": 10},
        ],
    });
    for heavy in 0..3 {
        for w in 0..3 {
            input["workloads"][w]["weight"] = json!(if w == heavy { 400 } else { 10 });
        }
        let found = planned(&input, &["--rounds", "100"]);
        assert_eq!(found["overload"], 1.0);
        let at = |w: usize| &found["assignment"][input["workloads"][w]["name"].as_str().unwrap()];
        assert!((0..3).filter(|w| *w != heavy).all(|w| at(w) != at(heavy)), "{found}");
    }
}

fn pair() -> Value {
    json!({
        "domains": [{"id": "d0", "cpus": 2}, {"id": "d1", "cpus": 2}],
        "workloads": [{"name": "a", "cpu": 1.5}, {"name": "b", "cpu": 1.5}, {"name": "c", "cpu": 0.25}],
        "edges": [["a", "b", 1000], ["b", "c", 10]],
    })
}

#[test]
fn what_is_planned_is_told_in_the_terms_of_the_input() {
    let mut input = pair();
    input["workloads"][2]["current"] = json!("d0");
    input["workloads"][1]["current"] = json!(["d1"]);
    input["workloads"][1]["pinned"] = json!(true);
    let found = planned(&input, &[]);
    assert_eq!(found["assignment"], json!({"a": ["d0"], "b": ["d1"], "c": ["d1"]}));
    assert_eq!((&found["cut"], &found["weighted_cut"]), (&json!(1000.0), &json!(1000.0)));
    assert_eq!((&found["moves"], &found["gain_vs_current"]), (&json!(1), &json!(10.0)));
    assert_eq!(found["max_load"], json!(1.75));
}

#[test]
fn a_load_that_exceeds_the_machine_is_placed_and_said() {
    let mut input = pair();
    input["workloads"][0]["cpu"] = json!(7.5);
    let output = plan(&input, &[]);
    assert!(output.status.success());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["overload"], json!(5.5));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("5.500 CPUs are beyond the limits"), "{said}");
}

/// What is wrong with an input.
type Change<'a> = &'a dyn Fn(&mut Value);

#[test]
fn bad_input_names_its_field() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut input = pair();
        change(&mut input);
        refused(&input)
    };
    let cases: [(Change<'_>, &str); 9] = [
        (&|i| i["workloads"][0]["pinned"] = json!(true), "workload `a`: `pinned`"),
        (&|i| i["workloads"][0]["current"] = json!("d7"), "`current` names `d7`"),
        (&|i| i["workloads"][0]["current"] = json!(3), "workloads[0].current"),
        (&|i| i["workloads"][0]["cpus"] = json!(3), "unknown field `cpus`"),
        (&|i| i["edges"][1][0] = json!("x"), "`edges[1]` names `x`"),
        (&|i| i["edges"][0][2] = json!(-1), "`edges[0]`: bytes are -1"),
        (&|i| i["domains"][1]["id"] = json!("d0"), "two entries of `domains`"),
        (&|i| i["domains"] = json!([]), "`domains` is empty"),
        (
            &|i| {
                for w in i["workloads"].as_array_mut().unwrap() {
                    w["exclusive"] = json!(true);
                }
            },
            "`exclusive`: exclusive workloads need 3 of 2 domains",
        ),
    ];
    for (change, expected) in cases {
        let said = with(change);
        assert!(said.contains(expected), "{said} lacks {expected}");
    }
    let both = with(&|i| {
        for w in [0, 1] {
            i["workloads"][w]["current"] = json!("d0");
            i["workloads"][w]["pinned"] = json!(true);
        }
        i["workloads"][1]["exclusive"] = json!(true);
    });
    assert!(both.contains("workload `b`: `exclusive`") && both.contains("(`a`)"), "{both}");
}
