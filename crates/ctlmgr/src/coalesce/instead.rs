//! How the coalesced container is run in place of the two: a compose override, or words for `docker run`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::build::{ENTRY, checked};
use super::inspect::Service;

const PROJECT: &str = "com.docker.compose.project";
const SERVICE: &str = "com.docker.compose.service";

/// The environment of both, each variable with the number of its service in front.
fn environment(services: [&Service; 2]) -> BTreeMap<String, String> {
    let numbered = services.into_iter().enumerate();
    let own = |(index, s): (usize, &Service)| {
        let name = move |(name, value): (&String, &String)| {
            (format!("CTLMGR_{index}_{name}"), value.clone())
        };
        s.own_env.iter().map(name).collect::<Vec<_>>()
    };
    numbered.flat_map(own).collect()
}

/// Limits of both together; none if one has none.
fn sum(a: u64, b: u64) -> Option<u64> {
    (a > 0 && b > 0).then(|| a.saturating_add(b))
}

/// The compose project and services, if both are of one project.
pub(super) fn project<'a>(a: &'a Service, b: &'a Service) -> Option<[&'a str; 3]> {
    let label = |s: &'a Service, key| s.labels.get(key).map(String::as_str);
    let project = label(a, PROJECT)?;
    let is_one = label(b, PROJECT) == Some(project);
    let services = [project, label(a, SERVICE)?, label(b, SERVICE)?];
    (is_one && services[1] != services[2]).then_some(services)
}

/// The override for compose. JSON is YAML.
pub(super) fn compose(a: &Service, b: &Service, image: &str) -> Option<String> {
    let [project, first, second] = project(a, b)?;
    let own = |network: &str| {
        let name = network.strip_prefix(project).and_then(|n| n.strip_prefix('_'));
        name.map(str::to_owned)
    };
    let mut networks = serde_json::Map::new();
    let mut external = serde_json::Map::new();
    for network in a.networks.union(&b.networks) {
        // A network of another name was made elsewhere.
        let key = own(network).unwrap_or_else(|| {
            external.insert(network.clone(), json!({"external": true, "name": escaped(network)}));
            network.clone()
        });
        networks.insert(key, json!({"aliases": [second]}));
    }
    let names = [(first, "127.0.0.1"), (second, "127.0.0.1")];
    let mut merged = json!({
        "image": escaped(image),
        "entrypoint": [ENTRY],
        "command": [],
        "environment": environment([a, b])
            .into_iter()
            .map(|(name, value)| (name, escaped(&value)))
            .collect::<BTreeMap<_, _>>(),
        "extra_hosts": hosts(a, b, names),
        "networks": networks,
    });
    let lists = [
        ("ports", b.published.clone()),
        ("volumes", mounted(b)),
        ("tmpfs", in_memory(&only_in(b, a))),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        merged[name] = list.iter().map(|text| escaped(text)).collect();
    }
    // What the first's own file says of its check would win over the image's.
    merged["healthcheck"] = match checked([a, b]) {
        Some((test, _)) => {
            let words = test.iter().map(|word| escaped(word));
            let test: Vec<String> = std::iter::once("CMD".to_owned()).chain(words).collect();
            json!({"test": test, "disable": false})
        }
        None => json!({"disable": true}),
    };
    limit(&mut merged, a, b);
    let mut services = json!({"services": {first: merged, second: {"scale": 0}}});
    if !external.is_empty() {
        services["networks"] = Value::Object(external);
    }
    let text = serde_json::to_string_pretty(&services).unwrap_or_default();
    Some(format!(
        "# Made by `ctlmgr coalesce build`: {first} and {second} in one container. Leave this file out to go back.\n\
         {text}\n"
    ))
}

/// Both ways to say it, with the same values: compose refuses different ones, and which of them the
/// services' own file has is not known.
fn limit(merged: &mut Value, a: &Service, b: &Service) {
    let mut deploy = json!({});
    if let Some(memory) = sum(a.memory, b.memory) {
        merged["mem_limit"] = json!(memory);
        deploy["limits"]["memory"] = json!(memory.to_string());
    }
    if let Some(nanos) = sum(a.nano_cpus, b.nano_cpus) {
        merged["cpus"] = json!(cpus(nanos));
        deploy["limits"]["cpus"] = json!(cpus(nanos));
    }
    let reservation = a.reservation.saturating_add(b.reservation);
    if reservation > 0 {
        merged["mem_reservation"] = json!(reservation);
        deploy["reservations"]["memory"] = json!(reservation.to_string());
    }
    if deploy != json!({}) {
        merged["deploy"] = json!({"resources": deploy});
    }
}

/// Names that both know, and their own, as docker and compose take them.
fn hosts(a: &Service, b: &Service, own: [(&str, &str); 2]) -> Vec<String> {
    let is_own = |name: &str| own.iter().any(|(n, _)| *n == name);
    let known = a.hosts.iter().chain(&b.hosts).filter(|(name, _)| !is_own(name));
    let known = known
        .flat_map(|(name, all)| all.iter().map(move |address| (name.as_str(), address.as_str())));
    let all: BTreeSet<(&str, &str)> = known.chain(own).collect();
    all.into_iter().map(|(name, address)| format!("{name}:{address}")).collect()
}

/// As `docker run --tmpfs` and compose take them.
fn in_memory(s: &Service) -> Vec<String> {
    let word = |(at, options): (&String, &String)| match options.is_empty() {
        true => at.clone(),
        false => format!("{at}:{options}"),
    };
    s.tmpfs.iter().map(word).collect()
}

/// What the first has beyond the second is in its own file.
fn only_in(b: &Service, a: &Service) -> Service {
    let tmpfs = b.tmpfs.iter().filter(|(at, _)| !a.tmpfs.contains_key(*at));
    let tmpfs = tmpfs.map(|(at, options)| (at.clone(), options.clone())).collect();
    Service { tmpfs, ..b.clone() }
}

/// compose would take a `$` for a variable of its own.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

/// As `docker run -v` and compose take them.
fn mounted(s: &Service) -> Vec<String> {
    s.mounted.iter().map(|(at, source)| format!("{source}:{at}:ro")).collect()
}

fn cpus(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1_000_000_000, nanos / 1_000_000 % 1000)
}

/// Words for a shell.
pub(super) fn docker_run(a: &Service, b: &Service, image: &str) -> String {
    let mut words = vec!["docker".to_owned(), "run".to_owned(), "-d".to_owned()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    add("--name", format!("{}-{}", a.name, b.name));
    let networks: BTreeSet<&String> = a.networks.intersection(&b.networks).collect();
    networks.iter().take(1).for_each(|network| add("--network", (*network).clone()));
    for s in [a, b] {
        add("--network-alias", s.name.clone());
        s.published.iter().for_each(|port| add("--publish", port.clone()));
        mounted(s).into_iter().for_each(|volume| add("--volume", volume));
    }
    for s in [a, &only_in(b, a)] {
        in_memory(s).into_iter().for_each(|place| add("--tmpfs", place));
    }
    let own = [(a.name.as_str(), "127.0.0.1"), (b.name.as_str(), "127.0.0.1")];
    hosts(a, b, own).into_iter().for_each(|host| add("--add-host", host));
    environment([a, b])
        .into_iter()
        .for_each(|(name, value)| add("--env", format!("{name}={value}")));
    add("--restart", a.restart.clone());
    if let Some(log) = a.settings.get("LogConfig").filter(|log| !log.is_null()) {
        log["Type"].as_str().into_iter().for_each(|name| add("--log-driver", name.to_owned()));
        let options = log["Config"].as_object().into_iter().flatten();
        let text = options.filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
        text.for_each(|option| add("--log-opt", option));
    }
    sum(a.memory, b.memory).into_iter().for_each(|bytes| add("--memory", bytes.to_string()));
    let reservation = Some(a.reservation.saturating_add(b.reservation)).filter(|r| *r > 0);
    reservation.into_iter().for_each(|r| add("--memory-reservation", r.to_string()));
    sum(a.nano_cpus, b.nano_cpus).into_iter().for_each(|nanos| add("--cpus", cpus(nanos)));
    words.push(image.to_owned());
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compose_would_read_into_it_is_escaped() {
        let mut web = service("web");
        web.own_env = [("KEY".to_owned(), "p$word${x}".to_owned())].into();
        web.networks.insert("outside".to_owned());
        let text = compose(&web, &service("cart"), "both:1").unwrap();
        let read: Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
        assert_eq!(read["services"]["web"]["environment"]["CTLMGR_0_KEY"], "p$$word$${x}");
        assert_eq!(read["networks"]["outside"]["external"], true);
    }

    fn service(name: &str) -> Service {
        let labels = [(PROJECT, "shop"), (SERVICE, name)];
        Service {
            name: format!("shop-{name}-1"),
            own_env: [("KEY".to_owned(), format!("it's {name}"))].into(),
            networks: ["shop_default".to_owned()].into(),
            published: vec![format!("80:{}/tcp", name.len())],
            restart: "always".to_owned(),
            memory: 5,
            tmpfs: [(format!("/run/{name}"), "size=1m".to_owned())].into(),
            hosts: [("db", &["10.0.0.1", "fd00::1"][..]), ("web", &["10.0.0.7"])]
                .map(|(n, all)| (n.to_owned(), all.iter().map(|a| (*a).to_owned()).collect()))
                .into(),
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..Service::default()
        }
    }

    #[test]
    fn the_override_runs_one_in_place_of_two() {
        let text = compose(&service("web"), &service("cart"), "both:1").unwrap();
        let (comment, json) = text.split_once('\n').unwrap();
        assert!(comment.starts_with("# Made by"));
        let read: Value = serde_json::from_str(json).unwrap();
        let web = &read["services"]["web"];
        assert_eq!((&web["image"], &web["mem_limit"]), (&json!("both:1"), &json!(10)));
        assert_eq!(web["deploy"]["resources"]["limits"], json!({"memory": "10"}));
        assert_eq!(web["tmpfs"], json!(["/run/cart:size=1m"]), "its own is in its own file");
        assert_eq!(
            web["extra_hosts"],
            json!(["cart:127.0.0.1", "db:10.0.0.1", "db:fd00::1", "web:127.0.0.1"])
        );
        assert_eq!(web["environment"]["CTLMGR_1_KEY"], "it's cart");
        assert_eq!(web["networks"]["default"]["aliases"], json!(["cart"]));
        assert_eq!(web["ports"], json!(["80:4/tcp"]), "those of the first are in its own file");
        assert_eq!(read["services"]["cart"]["scale"], 0);
        assert_eq!(web["healthcheck"], json!({"disable": true}), "none has one");
        let check = json!({"Test": ["CMD", "/ok", "$X"]});
        let checked = Service { health: Some(check), ..service("cart") };
        let text = compose(&service("web"), &checked, "both:1").unwrap();
        let read: Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
        let test = &read["services"]["web"]["healthcheck"]["test"];
        assert_eq!(*test, json!(["CMD", "/.ctlmgr/init", "exec", "1", "/ok", "$$X"]));
        let other = Service { labels: BTreeMap::new(), ..service("x") };
        assert_eq!(compose(&service("web"), &other, "both:1"), None);
    }

    #[test]
    fn words_for_a_shell_are_quoted() {
        let mut web = service("web");
        web.settings.insert("LogConfig", json!({"Type": "local", "Config": {"max-size": "1m"}}));
        let said = docker_run(&web, &service("cart"), "both:1");
        assert!(
            said.starts_with("docker run -d --name shop-web-1-shop-cart-1 --network shop_default")
        );
        assert!(said.contains(r"--env 'CTLMGR_0_KEY=it'\''s web'"), "{said}");
        let end = "--restart always --log-driver local --log-opt max-size=1m --memory 10 both:1";
        assert!(said.ends_with(end), "{said}");
    }
}
