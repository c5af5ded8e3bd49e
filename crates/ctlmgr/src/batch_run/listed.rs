//! Containers of a file that says nothing of what they cost each other: that is what ctlmgrd has learned.

use std::collections::BTreeMap;

use ctlmgr_api::{Client, KnownContainer};
use ctlmgr_policy::gate::{Traits, traits};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use super::learned::{Bins, Learned};
use crate::Failure;

/// Where a file says what containers cost each other.
const COSTS: [&str; 3] = ["bins", "penalty", "pairwise"];

/// The text with what is learned filled in, where it says nothing of costs.
pub(super) fn filled_in(
    runtime: &Runtime,
    client: &Client,
    text: String,
) -> Result<String, Failure> {
    let Some(mut input) = without_costs(&text) else { return Ok(text) };
    let (learned, containers) = runtime.block_on(async {
        let containers: Vec<KnownContainer> = client.get("/v1/containers").await?;
        Ok::<_, ctlmgr_api::ClientError>((Learned::ask(client).await?, containers))
    })?;
    let known = containers.into_iter().map(|known| (known.name.clone(), known)).collect();
    fill_in(&mut input, &learned, &known);
    Ok(Value::Object(input).to_string())
}

/// The file, if it leaves out what containers cost each other. What is wrong with it is the planner's to say.
fn without_costs(text: &str) -> Option<Map<String, Value>> {
    let input = serde_json::from_str::<Map<String, Value>>(text).ok()?;
    let containers = input.get("containers")?.as_array()?;
    let says = COSTS.iter().any(|key| input.contains_key(*key))
        || containers.iter().any(|c| c.get("bin").is_some() || !c.is_object());
    (!says).then_some(input)
}

fn fill_in(
    input: &mut Map<String, Value>,
    learned: &Learned,
    known: &BTreeMap<String, KnownContainer>,
) {
    let mut bins = Bins::default();
    // Whoever states uses, or what there is, has units of his own.
    let is_stated = input.contains_key("capacity") || states_uses(input);
    let containers = input.get_mut("containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
        let known = known.get(&first_name(container));
        if known.is_none() {
            let name = first_name(container);
            eprintln!(
                "ctlmgr: {name}: ctlmgrd does not know it, so it is planned as one that is quiet"
            );
        }
        let traits = known.map_or_else(Traits::default, |k| traits(k.profile.as_ref(), k.stated));
        container.insert("bin".to_owned(), json!(bins.name_of(&traits)));
        if !is_stated {
            container.insert("use".to_owned(), learned.uses(&traits));
        }
        if let Some(known) = known {
            container.entry("weight").or_insert_with(|| json!(known.weight.get()));
        }
    }
    if !is_stated {
        input.insert("capacity".to_owned(), learned.capacity());
    }
    input.insert("penalty".to_owned(), json!(bins.table(&learned.penalties)));
    input.insert("bins".to_owned(), json!(bins.names()));
}

fn states_uses(input: &Map<String, Value>) -> bool {
    let containers = input.get("containers").and_then(Value::as_array);
    containers.into_iter().flatten().any(|c| c.get("use").is_some())
}

/// Of several that are alike the first stands for all.
fn first_name(container: &Map<String, Value>) -> String {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
    match container.get("count").and_then(Value::as_u64) {
        None | Some(0 | 1) => name.to_owned(),
        Some(_) => format!("{name}-1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::{Bytes, Character, Weight};

    fn known(name: &str, stated: Option<Character>, weight: i64) -> (String, KnownContainer) {
        let weight = Weight::new(weight).unwrap();
        let known = KnownContainer { name: name.to_owned(), weight, stated, profile: None };
        (name.to_owned(), known)
    }

    #[test]
    fn what_the_file_leaves_out_is_filled_in_and_what_it_says_stays() {
        let text = r#"{"containers": [{"name": "db", "count": 2}, {"name": "log", "weight": 7},
            {"name": "new", "after": ["log"]}]}"#;
        let mut input = without_costs(text).unwrap();
        let known = BTreeMap::from([
            known("db-1", Some(Character::RandomRead), 400),
            known("log", Some(Character::SequentialRead), 100),
        ]);
        let learned = Learned { cpus: Some(2), cache: Some(Bytes::mib(1)), ..Learned::default() };
        fill_in(&mut input, &learned, &known);
        assert_eq!(input["bins"], json!(["random-read-1", "sequential-read-2", "unknown-3"]));
        assert_eq!(input["penalty"][0][1], json!(2.0), "of the paper's guidelines");
        assert_eq!(input["penalty"][2], json!([0.0, 0.0, 0.0]), "who is not known holds nobody up");
        let containers = input["containers"].as_array().unwrap();
        let weights: Vec<_> = containers.iter().map(|c| c.get("weight").cloned()).collect();
        assert_eq!(weights, [Some(json!(400)), Some(json!(7)), None]);
        assert_eq!(input["capacity"], json!({"cpu": 2000, "page_cache": 1 << 20}));
        let batches = crate::batch_plan::batches(&Value::Object(input).to_string()).unwrap();
        let at = |name: &str| batches.iter().position(|b| b.iter().any(|n| n == name)).unwrap();
        assert!(at("log") != at("db-1") && at("log") < at("new"), "{batches:?}");
    }

    #[test]
    fn a_file_that_says_what_they_cost_is_left_as_it_is() {
        for text in [
            r#"{"bins": ["a"], "penalty": [[0]], "containers": [{"name": "x", "bin": "a"}]}"#,
            r#"{"pairwise": [[0]], "containers": [{"name": "x"}]}"#,
            r#"{"containers": [{"name": "x", "bin": "a"}]}"#,
            r#"{"containers": ["x"]}"#,
            r#"{"containers": 3}"#,
            "{",
        ] {
            assert!(without_costs(text).is_none(), "{text}");
        }
    }
}
