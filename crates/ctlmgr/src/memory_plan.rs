//! `ctlmgr memory plan FILE`: the share computation alone.

use std::path::Path;

use anyhow::{Context, anyhow};
use ctlmgr_model::{Bytes, Weight};
use ctlmgr_policy::share::{Claim, Division, divide};
use serde::Deserialize;

use crate::input::read;
use crate::{Failure, print_json, show};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    capacity_bytes: u64,
    workloads: Vec<WorkloadInput>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadInput {
    name: String,
    #[serde(default = "default_weight")]
    weight: i64,
    promise_bytes: Option<u64>,
    demand_bytes: u64,
    #[serde(default)]
    floor_bytes: u64,
    max_bytes: Option<u64>,
}

fn default_weight() -> i64 {
    i64::from(Weight::DEFAULT.get())
}

impl WorkloadInput {
    fn claim(self) -> Result<Claim, anyhow::Error> {
        let weight =
            Weight::new(self.weight).map_err(|e| anyhow!("workload `{}`: {e}", self.name))?;
        Ok(Claim {
            weight,
            basis: Bytes(self.promise_bytes.unwrap_or(self.demand_bytes)),
            demand: Bytes(self.demand_bytes),
            floor: Bytes(self.floor_bytes),
            max: self.max_bytes.map(Bytes),
            name: self.name,
        })
    }
}

/// Runs the command.
pub(crate) fn run(file: &Path, json: bool) -> Result<u8, Failure> {
    let division = read(file).and_then(|text| plan(&text)).map_err(Failure::bad_input)?;
    if json {
        print_json(&division)?;
    } else {
        show::division(&division);
    }
    Ok(0)
}

fn plan(text: &str) -> Result<Division, anyhow::Error> {
    let input: Input = serde_json::from_str(text).context("failed to understand the input")?;
    let claims: Result<Vec<Claim>, _> =
        input.workloads.into_iter().map(WorkloadInput::claim).collect();
    Ok(divide(Bytes(input.capacity_bytes), &claims?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_as_documented() {
        let text = r#"{"capacity_bytes": 600, "workloads": [
            {"name": "b", "weight": 100, "promise_bytes": 800, "demand_bytes": 800, "floor_bytes": 0, "max_bytes": null},
            {"name": "a", "weight": 100, "promise_bytes": null, "demand_bytes": 400, "floor_bytes": 0, "max_bytes": null}]}"#;
        let out = serde_json::to_string(&plan(text).unwrap()).unwrap();
        assert_eq!(
            out,
            r#"{"lambda":0.005,"shares":[{"name":"a","share_bytes":200,"bound":"weight"},{"name":"b","share_bytes":400,"bound":"weight"}],"unmet_floor_bytes":0}"#
        );
    }

    #[test]
    fn bad_input_names_the_workload() {
        let one = |fields: &str| {
            let text =
                format!(r#"{{"capacity_bytes": 1, "workloads": [{{"name": "web", {fields}}}]}}"#);
            format!("{:#}", plan(&text).unwrap_err())
        };
        assert!(one(r#""weight": 0, "demand_bytes": 1"#).contains("workload `web`: weight 0"));
        assert!(one(r#""weight": 10001, "demand_bytes": 1"#).contains("10001"));
        assert!(
            one(r#""demand_bytes": 9, "floor_bytes": 5, "max_bytes": 4"#).contains("`web`: floor")
        );
        assert!(one(r#""demand_bytes": -1"#).contains("line 1"));
        assert!(one(r#""demand": 1"#).contains("unknown field `demand`"));
        assert!(plan("").is_err());
    }
}
