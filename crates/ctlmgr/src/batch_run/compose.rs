//! The services of a compose file as a problem for the planner.
//!
//! compose itself reads the file (`docker compose config`): variables, profiles and extensions are its
//! business. What the services are like is what ctlmgrd has learned of them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use ctlmgr_api::{Client, KeyedProfile};
use ctlmgr_model::{Character, PairPenalty, Profile};
use ctlmgr_policy::gate::{Penalties, Traits, traits};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::needs::{Condition, Need, Needs};
use crate::Failure;
use crate::docker_cli::docker;

#[derive(Debug, Deserialize)]
struct Project {
    name: String,
    #[serde(default)]
    services: BTreeMap<String, Service>,
}

#[derive(Debug, Deserialize)]
struct Service {
    #[serde(default)]
    depends_on: BTreeMap<String, Dependency>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    image: Option<String>,
    #[serde(default)]
    command: Value,
    #[serde(default)]
    entrypoint: Value,
    container_name: Option<String>,
    scale: Option<u32>,
    #[serde(default)]
    deploy: Deploy,
}

/// On another service; compose fills in what the file leaves out.
#[derive(Debug, Deserialize)]
struct Dependency {
    #[serde(default)]
    condition: String,
    #[serde(default = "yes")]
    required: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Default, Deserialize)]
struct Deploy {
    replicas: Option<u32>,
}

impl Service {
    fn count(&self) -> u32 {
        self.scale.or(self.deploy.replicas).unwrap_or(1)
    }
}

/// The problem, as text for the planner, and what each container needs.
pub(super) fn problem(
    runtime: &Runtime,
    client: &Client,
    file: &Path,
) -> Result<(String, Needs), anyhow::Error> {
    let name = file.to_str().context("the name of the compose file is no UTF-8")?;
    let text = docker(&["compose", "-f", name, "config", "--format", "json"])
        .with_context(|| format!("failed to read {name} with docker compose"))?;
    let learned = runtime.block_on(async {
        let profiles: Vec<KeyedProfile> = client.get("/v1/profiles").await?;
        let penalties: Vec<PairPenalty> = client.get("/v1/penalties").await?;
        Ok::<_, ctlmgr_api::ClientError>((profiles, penalties))
    });
    let (profiles, penalties) = learned.unwrap_or_else(|error| {
        eprintln!("ctlmgr: {error}: planned without what was learned");
        Default::default()
    });
    let profiles: BTreeMap<String, Profile> =
        profiles.into_iter().map(|p| (p.key, p.profile)).collect();
    let input = input(&text, &profiles, &Penalties::new(penalties));
    let input = input.with_context(|| format!("failed to plan {name}"))?;
    Ok((input.to_string(), needs(&text)?))
}

/// What must have come of others before each container may start.
fn needs(config: &str) -> Result<Needs, anyhow::Error> {
    let project = read(config)?;
    let mut all = Needs::new();
    for (service, s) in &project.services {
        let mut before = Vec::new();
        for (other, dependency) in &s.depends_on {
            let condition = match dependency.condition.as_str() {
                "service_healthy" => Condition::Healthy,
                "service_completed_successfully" => Condition::Completed,
                _ => Condition::Started,
            };
            let is_required = dependency.required;
            let need = |name| Need { name, condition, is_required };
            before.extend(names(&project, other).into_iter().map(need));
        }
        all.extend(names(&project, service).into_iter().map(|name| (name, before.clone())));
    }
    Ok(all)
}

fn read(config: &str) -> Result<Project, anyhow::Error> {
    serde_json::from_str(config).context("failed to understand docker compose config")
}

/// What costs others different amounts, each once.
#[derive(Debug, Default)]
struct Bins(Vec<Traits>);

impl Bins {
    /// The name of the bin of one that is like this.
    fn name_of(&mut self, traits: &Traits) -> String {
        let Traits { character, disk, .. } = *traits;
        let mix = traits.mix.filter(|_| character == Some(Character::Mixed));
        let bin = Traits { character, mix, disk, ..Traits::default() };
        let at = self.0.iter().position(|b| *b == bin).unwrap_or_else(|| {
            self.0.push(bin);
            self.0.len() - 1
        });
        self.names()[at].clone()
    }

    fn names(&self) -> Vec<String> {
        let name = |(n, b): (usize, &Traits)| {
            // One that nobody knows holds nobody up.
            format!("{}-{}", b.character.map_or("unknown", Character::as_str), n + 1)
        };
        self.0.iter().enumerate().map(name).collect()
    }

    fn table(&self, penalties: &Penalties) -> Vec<Vec<f64>> {
        let cost = |a: &Traits, b: &Traits| f64::from(a.conflict(b, penalties)) / 100.0;
        self.0.iter().map(|a| self.0.iter().map(|b| cost(a, b)).collect()).collect()
    }
}

/// The planner's input for what `docker compose config` printed.
fn input(
    config: &str,
    profiles: &BTreeMap<String, Profile>,
    penalties: &Penalties,
) -> Result<Value, anyhow::Error> {
    let project = read(config)?;
    if project.services.is_empty() {
        bail!("it has no services");
    }
    let mut bins = Bins::default();
    let mut containers = Vec::new();
    for (service, s) in &project.services {
        let stated = s.labels.get("ctlmgr.batch.class").map(|text| text.parse()).transpose();
        let stated: Option<Character> =
            stated.with_context(|| format!("service `{service}`: label ctlmgr.batch.class"))?;
        let own = profiles.get(&format!("{}/{service}", project.name));
        let bin = bins.name_of(&traits(own.or_else(|| sampled(profiles, s)), stated));
        // One of an inactive profile may be missing where it is not required.
        let missing = |(name, d): &(&String, &Dependency)| {
            d.required && !project.services.contains_key(*name)
        };
        if let Some((name, _)) = s.depends_on.iter().find(missing) {
            bail!("service `{service}`: depends_on names `{name}`, which is none");
        }
        let after: Vec<String> =
            s.depends_on.keys().flat_map(|name| names(&project, name)).collect();
        for name in names(&project, service) {
            containers.push(json!({"name": name, "bin": bin, "after": after}));
        }
    }
    Ok(json!({
        "max_batch": null,
        "bins": bins.names(),
        "penalty": bins.table(penalties),
        "containers": containers,
    }))
}

/// What is known of the image of a service that was never seen itself (`ctlmgr batch sample`), if it runs the
/// image's own command. Which of several that were seen that was cannot be told here: they have to agree.
fn sampled<'a>(profiles: &'a BTreeMap<String, Profile>, service: &Service) -> Option<&'a Profile> {
    let image = service.image.as_deref()?;
    let is_its =
        |key: &str| key.strip_prefix(image).is_some_and(|r| r.is_empty() || r.starts_with('#'));
    let known = || profiles.iter().filter(|(key, _)| is_its(key)).map(|(_, profile)| profile);
    let latest = known().max_by_key(|p| p.learned_unix)?;
    let is_plain = service.command.is_null() && service.entrypoint.is_null();
    (is_plain && known().all(|p| p.character == latest.character)).then_some(latest)
}

/// Names of the containers of a service, as compose gives them.
fn names(project: &Project, service: &str) -> Vec<String> {
    let Some(s) = project.services.get(service) else { return Vec::new() };
    match &s.container_name {
        Some(name) => vec![name.clone()],
        None => (1..=s.count()).map(|n| format!("{}-{service}-{n}", project.name)).collect(),
    }
}

/// Makes the containers of the project where they are not there.
pub(super) fn create(file: &Path) -> Result<(), Failure> {
    let name = file.to_string_lossy();
    docker(&["compose", "-f", &name, "create", "--no-recreate"])
        .with_context(|| format!("failed to make the containers of {name}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::{Bytes, Disk, Io, Millis, Percent};

    const CONFIG: &str = r#"{"name": "shop", "networks": {"default": {}}, "services": {
        "db": {"image": "db", "labels": {"ctlmgr.batch.class": "random-write"}, "networks": {}},
        "web": {"image": "web", "depends_on": {"db": {"condition": "service_healthy", "required": true}},
            "deploy": {"replicas": 2, "resources": {}}},
        "cache": {"image": "cache", "container_name": "the-cache", "scale": 1}}}"#;

    /// Of starts that move this much by requests of 1 MiB.
    fn profile(character: Character, read_mib: u64, written_mib: u64) -> Profile {
        Profile {
            character,
            starts: 4,
            io: Io {
                read: Bytes::mib(read_mib),
                written: Bytes::mib(written_mib),
                reads: read_mib,
                writes: written_mib,
                ..Io::default()
            },
            lasts: Millis(10_000),
            alone: None,
            steady_per_sec: Bytes::ZERO,
            confidence: Percent(100),
            learned_unix: 0,
        }
    }

    #[test]
    fn a_mixed_service_is_planned_by_its_parts_and_disks_apart_do_not_meet() {
        let web = profile(Character::Mixed, 100, 300);
        let mut profiles = BTreeMap::from([("shop/web".to_owned(), web.clone())]);
        let cost = |profiles: &BTreeMap<String, Profile>| {
            let input = input(CONFIG, profiles, &Penalties::default()).unwrap();
            assert_eq!(input["bins"], json!(["unknown-1", "random-write-2", "mixed-3"]));
            input["penalty"][1][2].as_f64().unwrap()
        };
        assert!((cost(&profiles) - 1.5).abs() < 1e-9, "three quarters of 2 for sequential writes");
        let on = |minor| Profile {
            io: Io { disk: Some(Disk { major: 8, minor }), ..web.io },
            ..web.clone()
        };
        profiles.insert("shop/web".to_owned(), on(0));
        profiles.insert("shop/db".to_owned(), on(16));
        assert!(cost(&profiles).abs() < 1e-9);
    }

    #[test]
    fn a_service_that_was_never_seen_is_like_its_image_unless_it_runs_something_else() {
        let cache = profile(Character::SequentialRead, 100, 0);
        let mut profiles = BTreeMap::from([
            ("cache#0badcafe".to_owned(), cache.clone()),
            ("cache2#1".to_owned(), cache),
        ]);
        let bin = |config: &str, profiles: &BTreeMap<String, Profile>| {
            let input = input(config, profiles, &Penalties::default()).unwrap();
            input["containers"][0]["bin"].as_str().unwrap().to_owned()
        };
        assert_eq!(bin(CONFIG, &profiles), "sequential-read-1");
        let other = CONFIG.replace(r#""image": "cache""#, r#""image": "cache", "command": ["x"]"#);
        assert_eq!(bin(&other, &profiles), "unknown-1");
        profiles.insert("cache#1".to_owned(), profile(Character::RandomWrite, 0, 100));
        assert_eq!(bin(CONFIG, &profiles), "unknown-1", "one of the two is what it runs");
    }

    #[test]
    fn services_become_containers_in_order() {
        let web = profile(Character::SequentialRead, 100, 0);
        let profiles = BTreeMap::from([("shop/web".to_owned(), web)]);
        let input = input(CONFIG, &profiles, &Penalties::default()).unwrap();
        assert_eq!(
            input["containers"],
            json!([
                {"name": "the-cache", "bin": "unknown-1", "after": []},
                {"name": "shop-db-1", "bin": "random-write-2", "after": []},
                {"name": "shop-web-1", "bin": "sequential-read-3", "after": ["shop-db-1"]},
                {"name": "shop-web-2", "bin": "sequential-read-3", "after": ["shop-db-1"]},
            ])
        );
        let needs = needs(CONFIG).unwrap();
        let db =
            Need { name: "shop-db-1".to_owned(), condition: Condition::Healthy, is_required: true };
        assert_eq!((&needs["shop-web-2"], needs["the-cache"].len()), (&vec![db], 0));
        let batches = crate::batch_plan::batches(&input.to_string()).unwrap();
        let at = |name: &str| batches.iter().position(|b| b.iter().any(|n| n == name));
        assert!(at("shop-db-1") < at("shop-web-1") && at("shop-db-1") < at("shop-web-2"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |config: &str| {
            let error = input(config, &BTreeMap::new(), &Penalties::default()).unwrap_err();
            format!("{error:#}")
        };
        let wrong = CONFIG.replace("random-write", "random");
        assert!(
            error(&wrong).contains("service `db`: label ctlmgr.batch.class"),
            "{}",
            error(&wrong)
        );
        assert!(error(r#"{"name": "x", "services": {}}"#).contains("no services"));
        assert!(error("no configuration file").contains("docker compose config"));
        let wrong = CONFIG.replace(r#"{"db": {"condition""#, r#"{"dp": {"condition""#);
        assert!(error(&wrong).contains("depends_on names `dp`"), "{}", error(&wrong));
        let optional = wrong.replace(r#""required": true"#, r#""required": false"#);
        let input = input(&optional, &BTreeMap::new(), &Penalties::default()).unwrap();
        assert_eq!(input["containers"][2]["after"], json!([]), "of a profile that is not active");
    }
}
