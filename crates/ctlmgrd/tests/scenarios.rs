//! Scenarios: a directory looks like a host, and beside it lies what ctlmgr decides about it.
//!
//! `UPDATE_SCENARIOS=1 cargo test -p ctlmgrd` writes the expected text anew; read the difference
//! like code.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its own files may panic")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use ctlmgr_host::Host;
use ctlmgr_model::{ContainerFacts, Millis, Plan, Settings};
use ctlmgr_policy::{State, check, decide};
use ctlmgr_sense::{Query, Sensor};

/// What dockerd would say, from `containers.json` of the scenario.
fn containers(scenario: &Path) -> BTreeMap<String, ContainerFacts> {
    let Ok(text) = std::fs::read_to_string(scenario.join("containers.json")) else {
        return BTreeMap::new();
    };
    let list: Vec<ContainerFacts> = serde_json::from_str(&text).unwrap();
    let running = |facts| ContainerFacts { is_running: true, ..facts };
    list.into_iter().map(|facts| (facts.id.clone(), running(facts))).collect()
}

fn describe(plan: &Plan, gaps: &[ctlmgr_model::Gap]) -> String {
    let mut out = String::new();
    let a = &plan.account;
    writeln!(
        out,
        "capacity {} = {} total - {} host - {} headroom",
        a.capacity, a.total, a.host, a.headroom
    )
    .unwrap();
    writeln!(out, "asked {}, contended {}", a.demand, a.is_contended()).unwrap();
    for v in &plan.verdicts {
        writeln!(
            out,
            "{} weight {} promise {:?} need {} held {} share {} by {}",
            v.name,
            v.weight,
            v.promise.map(|b| b.to_string()),
            v.demand,
            v.held,
            v.share,
            v.bound
        )
        .unwrap();
    }
    for step in &plan.steps {
        writeln!(out, "step {step}\n     {}", step.reason.0).unwrap();
    }
    plan.complaints.iter().for_each(|c| writeln!(out, "complaint {c}").unwrap());
    gaps.iter().for_each(|g| writeln!(out, "gap {}", g.what).unwrap());
    out
}

fn decide_on(scenario: &Path) -> String {
    let settings: Settings = match ctlmgr_config::load(scenario) {
        Ok(settings) => settings,
        // Paths of the machine that runs the test are no part of the expectation.
        Err(error) => return error.to_string().replace(&format!("{}/", scenario.display()), "/"),
    };
    let sensor = match Sensor::new(Host::fake(scenario)) {
        Ok(sensor) => sensor,
        Err(error) => return error.to_string().replace(&format!("{}/", scenario.display()), "/"),
    };
    let query = Query {
        units: settings.units.clone(),
        containers: containers(scenario),
        ..Query::default()
    };
    let snapshot = sensor.snapshot(Millis(1000), &query).unwrap();
    let (plan, _) = decide(&settings, State::default(), &snapshot);
    assert_eq!(check(&settings, &plan, &snapshot), [], "{}", scenario.display());
    describe(&plan, &snapshot.gaps)
}

#[test]
fn every_scenario_is_decided_as_expected() {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(&all).unwrap() {
        let scenario = entry.unwrap().path();
        let decided = decide_on(&scenario);
        let expected = scenario.join("expected.txt");
        if std::env::var_os("UPDATE_SCENARIOS").is_some() {
            std::fs::write(&expected, &decided).unwrap();
        }
        let wanted = std::fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(decided, wanted, "{}", scenario.display());
        count += 1;
    }
    assert!(count >= 5, "only {count} scenarios were found");
}
