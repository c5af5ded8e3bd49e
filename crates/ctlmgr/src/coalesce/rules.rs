//! Whether two containers can become one (Rao et al., Algorithm 2: `Coalescable`), and if not, why not.
//!
//! The paper leaves out storage backends and those whose ports or dependencies clash. What a container of
//! today has beyond that is compared too: one container has one user, one set of capabilities, one health
//! check, one restart policy.

use super::inspect::Service;
use super::instead::project;

/// Parts of image names by which storage is known.
const STORAGE: [&str; 22] = [
    "postgres",
    "mysql",
    "mariadb",
    "percona",
    "mongo",
    "redis",
    "valkey",
    "memcached",
    "cassandra",
    "scylla",
    "couchdb",
    "elasticsearch",
    "opensearch",
    "influxdb",
    "clickhouse",
    "etcd",
    "consul",
    "rabbitmq",
    "kafka",
    "zookeeper",
    "minio",
    "cockroach",
];

/// The label by which an owner says no.
const LABEL: &str = "ctlmgr.coalesce";

/// Why `a` and `b` cannot be one container; empty if they can, as far as can be told without looking into
/// their file systems.
pub(super) fn refusals(a: &Service, b: &Service) -> Vec<String> {
    let mut all: Vec<String> = [a, b].into_iter().flat_map(alone).collect();
    let ports: Vec<&str> = a.ports.intersection(&b.ports).map(String::as_str).collect();
    if !ports.is_empty() {
        all.push(format!("both listen on {}", ports.join(", ")));
    }
    let mut differ = |what: &str, x: &str, y: &str| {
        if x != y {
            let shown = |text: &str| if text.is_empty() { "none" } else { text }.to_owned();
            all.push(format!("{what} differ: {} and {}", shown(x), shown(y)));
        }
    };
    let user = |s: &Service| if s.user.is_empty() { "root".to_owned() } else { s.user.clone() };
    differ("users", &user(a), &user(b));
    differ("platforms", &a.platform, &b.platform);
    differ("restart policies", &a.restart, &b.restart);
    for name in a
        .settings
        .keys()
        .chain(b.settings.keys())
        .copied()
        .collect::<std::collections::BTreeSet<_>>()
    {
        let text =
            |s: &Service| s.settings.get(name).filter(|v| !v.is_null()).map(ToString::to_string);
        differ(name, &text(a).unwrap_or_default(), &text(b).unwrap_or_default());
    }
    for (what, x, y) in [("memory", a.memory, b.memory), ("CPU", a.nano_cpus, b.nano_cpus)] {
        if (x == 0) != (y == 0) {
            all.push(format!("one has a {what} limit, and the other none"));
        }
    }
    all.extend(mounts(a, b));
    let others = [&a.name, &b.name];
    for (name, address) in a.hosts.iter().filter(|(name, _)| !others.contains(name)) {
        if let Some(its) = b.hosts.get(name).filter(|its| *its != address) {
            let (address, its) = (address.join(" "), its.join(" "));
            all.push(format!("they know {name} by different addresses: {address} and {its}"));
        }
    }
    if a.health.is_some() && b.health.is_some() {
        all.push("both have a health check, and a container has one".to_owned());
    }
    if let Some([_, first, second]) = project(a, b) {
        for name in [first, second].into_iter().filter(|name| a.hosts.contains_key(*name)) {
            all.push(format!("{}: its file gives {name} an address, which would stay", a.name));
        }
    }
    if a.networks.is_disjoint(&b.networks) {
        all.push("they share no network of their own".to_owned());
    }
    all
}

/// Mounts that would hide each other.
fn mounts(a: &Service, b: &Service) -> Vec<String> {
    let is_below =
        |x: &str, y: &str| x == y || x.starts_with(&format!("{}/", y.trim_end_matches('/')));
    let mut all = Vec::new();
    let places = |s: &Service| {
        let memory = s.tmpfs.iter().map(|(at, how)| {
            (
                at.clone(),
                if how.is_empty() { "memory".to_owned() } else { format!("memory ({how})") },
            )
        });
        s.mounted.clone().into_iter().chain(memory).collect::<Vec<_>>()
    };
    let theirs = places(b);
    for (at, source) in &places(a) {
        for (other, its) in theirs.iter().filter(|(o, _)| is_below(at, o) || is_below(o, at)) {
            if (at, source) != (other, its) {
                all.push(format!("mounts clash: {source} at {at} and {its} at {other}"));
            }
        }
    }
    all
}

/// What words for `docker run` would have to say besides what they do.
pub(super) fn unusual(s: &Service) -> Vec<&'static str> {
    // Log options are carried over, and without a word on paths all are masked that usually are.
    let carried = ["LogConfig", "MaskedPaths", "ReadonlyPaths"];
    let set = s.settings.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| *name);
    set.filter(|name| !carried.contains(name)).collect()
}

/// What stands against coalescing one with anybody.
fn alone(s: &Service) -> Vec<String> {
    let mut all = Vec::new();
    if s.labels.get(LABEL).is_some_and(|value| value == "false") {
        all.push(format!("{}: label {LABEL}=false", s.name));
    }
    if let Some(storage) = storage(&s.image) {
        all.push(format!("{}: a storage backend ({storage})", s.name));
    }
    if !s.writable.is_empty() {
        all.push(format!("{}: keeps data in {}", s.name, s.writable.join(", ")));
    }
    if s.argv.first().is_none_or(String::is_empty) {
        all.push(format!("{}: has no command", s.name));
    }
    if s.settings.get("CpuQuota").is_some_and(|quota| !quota.is_null()) {
        all.push(format!(
            "{}: has a CPU quota; with --cpus in its place it can be added up",
            s.name
        ));
    }
    if s.limits_swap {
        all.push(format!("{}: has a limit of swap that does not follow from memory's", s.name));
    }
    all
}

fn storage(image: &str) -> Option<&'static str> {
    let name = image.rsplit('/').next().unwrap_or(image);
    let name = name.split([':', '@']).next().unwrap_or(name);
    STORAGE
        .into_iter()
        .find(|storage| name.split(['-', '_', '.']).any(|word| word.starts_with(storage)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(name: &str) -> Service {
        Service {
            name: name.to_owned(),
            image: format!("shop/{name}:1"),
            argv: vec![format!("/{name}")],
            networks: ["shop".to_owned()].into(),
            restart: "no".to_owned(),
            ..Service::default()
        }
    }

    #[test]
    fn two_plain_services_can_be_one() {
        assert_eq!(refusals(&service("a"), &service("b")), Vec::<String>::new());
    }

    #[test]
    fn each_difference_is_named() {
        let change = |change: &dyn Fn(&mut Service)| {
            let mut b = service("b");
            change(&mut b);
            refusals(&service("a"), &b).join("; ")
        };
        assert_eq!(change(&|b| b.user = "app".into()), "users differ: root and app");
        assert_eq!(change(&|b| b.user = "root".into()), "");
        assert_eq!(
            change(&|b| b.restart = "always".into()),
            "restart policies differ: no and always"
        );
        assert_eq!(
            change(&|b| drop(b.settings.insert("CapAdd", json!(["NET_ADMIN"])))),
            "CapAdd differ: none and [\"NET_ADMIN\"]"
        );
        assert_eq!(change(&|b| drop(b.settings.insert("CapAdd", json!(null)))), "");
        assert_eq!(
            change(&|b| b.networks = ["x".to_owned()].into()),
            "they share no network of their own"
        );
        assert_eq!(change(&|b| b.writable = vec!["/data".into()]), "b: keeps data in /data");
        assert_eq!(
            change(&|b| drop(b.labels.insert(LABEL.into(), "false".into()))),
            "b: label ctlmgr.coalesce=false"
        );
        assert_eq!(change(&|b| b.argv.clear()), "b: has no command");
        assert_eq!(
            change(&|b| b.limits_swap = true),
            "b: has a limit of swap that does not follow from memory's"
        );
        assert_eq!(
            change(&|b| drop(b.settings.insert("Ulimits", json!([{"Name": "nofile"}])))),
            "Ulimits differ: none and [{\"Name\":\"nofile\"}]"
        );
        assert_eq!(change(&|b| b.memory = 5), "one has a memory limit, and the other none");
        let mut a = service("a");
        let mut b = service("b");
        (a.ports, b.ports) = (["80/tcp".to_owned()].into(), ["80/tcp".to_owned()].into());
        (a.health, b.health) = (Some(json!({})), Some(json!({})));
        assert_eq!(
            refusals(&a, &b),
            ["both listen on 80/tcp", "both have a health check, and a container has one"]
        );
    }

    #[test]
    fn mounts_that_would_hide_each_other_are_named() {
        let with = |name: &str, at: &str, source: &str| Service {
            mounted: [(at.to_owned(), source.to_owned())].into(),
            ..service(name)
        };
        let clash = |x: &Service, y: &Service| refusals(x, y).join("; ");
        assert_eq!(clash(&with("a", "/conf", "/c"), &with("b", "/conf", "/c")), "");
        assert_eq!(clash(&with("a", "/conf", "/c"), &with("b", "/config", "/d")), "");
        assert_eq!(
            clash(&with("a", "/conf", "/c"), &with("b", "/conf/x", "/d")),
            "mounts clash: /c at /conf and /d at /conf/x"
        );
        let mut memory = service("b");
        memory.tmpfs.insert("/conf".to_owned(), String::new());
        assert_eq!(
            clash(&with("a", "/conf/x", "/c"), &memory),
            "mounts clash: /c at /conf/x and memory at /conf"
        );
    }

    #[test]
    fn names_of_others_must_mean_the_same() {
        let knows = |name: &str, host: &str, address: &str| Service {
            hosts: [(host.to_owned(), vec![address.to_owned()])].into(),
            ..service(name)
        };
        assert!(refusals(&knows("a", "b", "10.0.0.2"), &knows("b", "b", "10.0.0.9")).is_empty());
        assert_eq!(
            refusals(&knows("a", "db", "10.0.0.2"), &knows("b", "db", "10.0.0.9")),
            ["they know db by different addresses: 10.0.0.2 and 10.0.0.9"]
        );
    }

    #[test]
    fn settings_beyond_the_defaults_are_named() {
        let mut s = service("a");
        s.settings = [
            ("CapDrop", json!(["ALL"])),
            ("ReadonlyRootfs", json!(true)),
            ("PidMode", json!(null)),
        ]
        .into();
        assert_eq!(unusual(&s), ["CapDrop", "ReadonlyRootfs"]);
    }

    #[test]
    fn storage_is_known_by_the_name_of_its_image() {
        for image in [
            "postgres:16",
            "docker.io/library/redis",
            "reg:5000/x/mysql-server@sha256:0",
            "bitnami/mongodb",
        ] {
            assert!(storage(image).is_some(), "{image}");
        }
        for image in ["web", "predis-client:1", "shop/cart"] {
            assert_eq!(storage(image), None, "{image}");
        }
    }
}
