//! The services of a compose file as a problem for the planner.
//!
//! compose itself reads the file (`docker compose config`): variables, profiles and extensions are its
//! business. What the services are like is what ctlmgrd has learned of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use ctlmgr_api::Client;
use ctlmgr_model::{Character, Profile, Weight};
use ctlmgr_policy::gate::{Traits, traits};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::learned::{Bins, Learned};
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
    let learned = runtime.block_on(Learned::ask(client)).unwrap_or_else(|error| {
        eprintln!("ctlmgr: {error}: planned without what was learned");
        Learned::default()
    });
    let project = read(&text)?;
    let running = running(&project).unwrap_or_default();
    if !running.is_empty() {
        let names: Vec<&str> = running.iter().map(String::as_str).collect();
        eprintln!("ctlmgr: up already, and left alone: {}", names.join(", "));
    }
    let input = input(&project, &learned, &running);
    let input = input.with_context(|| format!("failed to plan {name}"))?;
    Ok((input.to_string(), needs(&project, &running)))
}

/// Containers of the project that are up.
fn running(project: &Project) -> Result<BTreeSet<String>, anyhow::Error> {
    let filter = format!("label=com.docker.compose.project={}", project.name);
    let text = docker(&["ps", "--filter", &filter, "--format", "{{.Names}}"])?;
    let all = project.services.keys().flat_map(|service| names(project, service));
    let up: BTreeSet<&str> = text.lines().map(str::trim).collect();
    Ok(all.filter(|name| up.contains(name.as_str())).collect())
}

/// What must have come of others before each container may start.
fn needs(project: &Project, running: &BTreeSet<String>) -> Needs {
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
            before.extend(names(project, other).into_iter().map(need));
        }
        all.extend(names(project, service).into_iter().map(|name| (name, before.clone())));
    }
    // Only for the order: their failure is no matter.
    let only_after = |name| Need { name, condition: Condition::Started, is_required: false };
    for (name, before) in labelled(project, running) {
        all.entry(name).or_default().extend(before.into_iter().map(only_after));
    }
    all
}

/// Names of containers that come before each.
type Before = BTreeMap<String, BTreeSet<String>>;

/// Those of the project that `depends_on` asks for.
fn depended_on(project: &Project) -> Before {
    let mut all = Before::new();
    for (service, s) in &project.services {
        let before: BTreeSet<String> =
            s.depends_on.keys().flat_map(|other| names(project, other)).collect();
        all.extend(names(project, service).into_iter().map(|name| (name, before.clone())));
    }
    all
}

/// Those of the project that do not run yet, and that labels ask for; but for what would go in a circle,
/// which holds nobody, as at the gate.
fn labelled(project: &Project, running: &BTreeSet<String>) -> Before {
    let (mut all, mut own) = (depended_on(project), Before::new());
    for (service, s) in &project.services {
        let label = s.labels.get("ctlmgr.batch.after").map_or("", String::as_str);
        let asked: Vec<&str> = label.split(',').map(str::trim).collect();
        for name in names(project, service) {
            for other in &asked {
                let is_meant = all.contains_key(*other) && !running.contains(*other);
                if is_meant && !comes_after(&all, other, &name) {
                    all.entry(name.clone()).or_default().insert((*other).to_owned());
                    own.entry(name.clone()).or_default().insert((*other).to_owned());
                }
            }
        }
    }
    own
}

/// Whether `name` is `other`, or comes after it, through however many.
fn comes_after(all: &Before, name: &str, other: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![name]);
    while let Some(name) = open.pop() {
        if name == other {
            return true;
        }
        if seen.insert(name) {
            open.extend(all.get(name).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

fn read(config: &str) -> Result<Project, anyhow::Error> {
    serde_json::from_str(config).context("failed to understand docker compose config")
}

/// The planner's input for those of the project that do not run yet.
fn input(
    project: &Project,
    learned: &Learned,
    running: &BTreeSet<String>,
) -> Result<Value, anyhow::Error> {
    if project.services.is_empty() {
        bail!("it has no services");
    }
    let (depended_on, labelled) = (depended_on(project), labelled(project, running));
    let mut bins = Bins::default();
    let mut containers = Vec::new();
    for (service, s) in &project.services {
        let known = Known::of(service, s, project, learned)?;
        let bin = bins.name_of(&known.traits);
        // One of an inactive profile may be missing where it is not required.
        let missing = |(name, d): &(&String, &Dependency)| {
            d.required && !project.services.contains_key(*name)
        };
        if let Some((name, _)) = s.depends_on.iter().find(missing) {
            bail!("service `{service}`: depends_on names `{name}`, which is none");
        }
        let (uses, weight) = (learned.uses(&known.traits), known.weight);
        for name in names(project, service).into_iter().filter(|name| !running.contains(name)) {
            let before = [&depended_on, &labelled].into_iter().filter_map(|all| all.get(&name));
            let after: BTreeSet<&String> =
                before.flatten().filter(|other| !running.contains(*other)).collect();
            containers.push(
                json!({"name": name, "bin": bin, "after": after, "use": uses, "weight": weight}),
            );
        }
    }
    Ok(json!({
        "max_batch": null,
        "bins": bins.names(),
        "penalty": bins.table(&learned.penalties),
        "containers": containers,
        "capacity": learned.capacity(),
    }))
}

fn parse_weight(text: &str) -> Result<Weight, anyhow::Error> {
    Ok(Weight::new(text.trim().parse()?)?)
}

/// A service, as far as starts care.
struct Known {
    traits: Traits,
    weight: u16,
}

impl Known {
    fn of(
        service: &str,
        s: &Service,
        project: &Project,
        learned: &Learned,
    ) -> Result<Known, anyhow::Error> {
        let label = |key: &'static str| {
            let text = s.labels.get(key);
            text.map(|text| (text, move || format!("service `{service}`: label {key}")))
        };
        let stated = label("ctlmgr.batch.class")
            .map(|(text, place)| text.parse::<Character>().with_context(place))
            .transpose()?;
        let weight = label("ctlmgr.weight")
            .map(|(text, place)| parse_weight(text).with_context(place))
            .transpose()?;
        let own = learned.profiles.get(&format!("{}/{service}", project.name));
        let of_image = || sampled(&learned.profiles, s).or(own);
        let profile = own.filter(|p| p.starts > 0).or_else(of_image);
        let weight = weight.unwrap_or(Weight::DEFAULT).get();
        Ok(Known { traits: traits(profile, stated), weight })
    }
}

/// What is known of the image of a service that was never seen itself (`ctlmgr batch sample`), if it runs the
/// image's own command. Which of several that were seen that was cannot be told here: they have to agree.
fn sampled<'a>(profiles: &'a BTreeMap<String, Profile>, service: &Service) -> Option<&'a Profile> {
    let image = service.image.as_deref()?;
    let is_its =
        |key: &str| key.strip_prefix(image).is_some_and(|r| r.is_empty() || r.starts_with('#'));
    let known = || {
        let all = profiles.iter().filter(|(key, profile)| is_its(key) && profile.starts > 0);
        all.map(|(_, profile)| profile)
    };
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
    use ctlmgr_model::{Bytes, Disk, Io, Millis, Moved, Percent};

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
            running: None,
        }
    }

    fn planned(config: &str, profiles: &BTreeMap<String, Profile>) -> Value {
        let learned = Learned { profiles: profiles.clone(), ..Learned::default() };
        input(&read(config).unwrap(), &learned, &BTreeSet::new()).unwrap()
    }

    #[test]
    fn who_runs_already_is_left_out_and_labels_and_capacities_count() {
        let labels =
            r#""labels": {"ctlmgr.batch.after": "the-cache, elsewhere", "ctlmgr.weight": "400"}"#;
        let config = CONFIG.replace(r#""image": "web""#, &format!(r#""image": "web", {labels}"#));
        let project = read(&config).unwrap();
        let web = profile(Character::SequentialRead, 3000, 0);
        let learned = Learned {
            profiles: BTreeMap::from([("shop/web".to_owned(), web)]),
            cache: Some(Bytes::mib(2000)),
            cpus: Some(4),
            ..Learned::default()
        };
        let up = BTreeSet::from(["shop-db-1".to_owned(), "shop-web-2".to_owned()]);
        let input = input(&project, &learned, &up).unwrap();
        let most = Bytes::mib(2000).0;
        assert_eq!(
            input["containers"],
            json!([
                {"name": "the-cache", "bin": "unknown-1", "after": [], "weight": 100,
                    "use": {"cpu": 0, "page_cache": 0}},
                {"name": "shop-web-1", "bin": "sequential-read-3", "after": ["the-cache"], "weight": 400,
                    "use": {"cpu": 0, "page_cache": most}},
            ])
        );
        assert_eq!(input["capacity"], json!({"cpu": 4000, "page_cache": most}));
        let batches = crate::batch_plan::batches(&input.to_string()).unwrap();
        assert_eq!(batches, [["the-cache"], ["shop-web-1"]]);
        // The one that is up is waited for until it is healthy all the same.
        let needs = needs(&project, &up);
        let of_web: Vec<_> =
            needs["shop-web-1"].iter().map(|n| (n.name.as_str(), n.condition)).collect();
        assert_eq!(of_web, [("shop-db-1", Condition::Healthy), ("the-cache", Condition::Started)]);
        assert!(
            crate::batch_plan::batches(r#"{"containers": [], "penalty": [], "bins": []}"#)
                .unwrap()
                .is_empty()
        );
    }

    /// What the file says wins; of labels alone, that of the service that comes first by name.
    #[test]
    fn labels_that_go_in_a_circle_hold_nobody() {
        let labelled = |config: String, service: &str, after: &str| {
            let labels =
                format!(r#""image": "{service}", "labels": {{"ctlmgr.batch.after": "{after}"}}"#);
            config.replace(&format!(r#""image": "{service}""#), &labels)
        };
        let config = CONFIG.replace(r#""labels": {"ctlmgr.batch.class": "random-write"}, "#, "");
        let config = labelled(config, "db", "shop-web-1");
        let config = labelled(config, "web", "shop-web-1, the-cache");
        let config = labelled(config, "cache", "shop-web-2");
        let batches = crate::batch_plan::batches(&planned(&config, &BTreeMap::new()).to_string());
        let batches = batches.unwrap();
        let expected = [["shop-db-1"], ["shop-web-2"], ["the-cache"], ["shop-web-1"]];
        assert_eq!(batches, expected);
    }

    #[test]
    fn a_mixed_service_is_planned_by_its_parts_and_disks_apart_do_not_meet() {
        let web = profile(Character::Mixed, 100, 200);
        let mut profiles = BTreeMap::from([("shop/web".to_owned(), web.clone())]);
        let cost = |profiles: &BTreeMap<String, Profile>| {
            let input = planned(CONFIG, profiles);
            assert_eq!(input["bins"], json!(["unknown-1", "random-write-2", "mixed-3"]));
            input["penalty"][1][2].as_f64().unwrap()
        };
        assert!((cost(&profiles) - 1.32).abs() < 1e-9, "two thirds of 2 for sequential writes");
        let Io { read, written, reads, writes, .. } = web.io;
        let moved = Moved { read, written, reads, writes, shape: None };
        let on = |minor| Profile {
            io: Io { disks: [(Disk { major: 8, minor }, moved)].into_iter().collect(), ..web.io },
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
            let input = planned(config, profiles);
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
        let input = planned(CONFIG, &BTreeMap::from([("shop/web".to_owned(), web)]));
        let of = |key: &str| -> Vec<Value> {
            let all = input["containers"].as_array().unwrap();
            all.iter().map(|c| c[key].clone()).collect()
        };
        assert_eq!(of("name"), ["the-cache", "shop-db-1", "shop-web-1", "shop-web-2"]);
        let bins = ["unknown-1", "random-write-2", "sequential-read-3", "sequential-read-3"];
        assert_eq!(of("bin"), bins);
        let after = [json!([]), json!([]), json!(["shop-db-1"]), json!(["shop-db-1"])];
        assert_eq!(of("after"), after);
        let needs = needs(&read(CONFIG).unwrap(), &BTreeSet::new());
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
            let input = |project| input(&project, &Learned::default(), &BTreeSet::new());
            let error = read(config).and_then(input).unwrap_err();
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
        let input = planned(&optional, &BTreeMap::new());
        assert_eq!(input["containers"][2]["after"], json!([]), "of a profile that is not active");
    }
}
