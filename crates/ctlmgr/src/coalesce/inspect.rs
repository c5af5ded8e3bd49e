//! What dockerd says of a container and its image, as far as it matters for coalescing.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::docker_cli::docker;

/// A container that may become a part of another.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Service {
    pub name: String,
    pub container_id: String,
    /// Reference of the image, and its id.
    pub image: String,
    pub image_id: String,
    pub platform: String,
    /// Layers of the image, the base first.
    pub layers: Vec<String>,
    /// Entry point and arguments.
    pub argv: Vec<String>,
    pub dir: String,
    pub user: String,
    pub stop: String,
    pub image_env: BTreeMap<String, String>,
    /// What the container has beyond the image.
    pub own_env: BTreeMap<String, String>,
    /// Ports that it says it listens on, as 80/tcp.
    pub ports: BTreeSet<String>,
    /// Published ones, as `docker run -p` takes them.
    pub published: Vec<String>,
    pub health: Option<Value>,
    pub restart: String,
    /// What a container has one of; `null` is what dockerd does by itself.
    pub settings: BTreeMap<&'static str, Value>,
    /// Places that it writes to and that outlive it.
    pub writable: Vec<String>,
    /// What is mounted for reading: source by destination.
    pub mounted: BTreeMap<String, String>,
    /// File systems in memory, and their options.
    pub tmpfs: BTreeMap<String, String>,
    /// Addresses by name that it was given.
    pub hosts: BTreeMap<String, Vec<String>>,
    /// Names of networks, without the ones that are no network of its own.
    pub networks: BTreeSet<String>,
    /// Limits, 0 is none.
    pub memory: u64,
    pub reservation: u64,
    /// Whether it has a limit of swap that does not follow from the one of memory.
    pub limits_swap: bool,
    pub nano_cpus: u64,
    pub labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    id: String,
    name: String,
    path: String,
    #[serde(default)]
    args: Vec<String>,
    image: String,
    config: Config,
    host_config: HostConfig,
    #[serde(default)]
    mounts: Vec<Mount>,
    network_settings: NetworkSettings,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    #[serde(default)]
    user: String,
    exposed_ports: Option<BTreeMap<String, Value>>,
    env: Option<Vec<String>>,
    #[serde(default)]
    image: String,
    #[serde(default)]
    working_dir: String,
    #[serde(default)]
    stop_signal: String,
    healthcheck: Option<Value>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    restart_policy: RestartPolicy,
    #[serde(default)]
    memory: u64,
    #[serde(default)]
    memory_reservation: u64,
    /// -1 is no limit.
    #[serde(default)]
    memory_swap: i64,
    #[serde(default)]
    nano_cpus: u64,
    tmpfs: Option<BTreeMap<String, String>>,
    /// Those that were asked for by `--mount`.
    mounts: Option<Vec<Value>>,
    extra_hosts: Option<Vec<String>>,
    port_bindings: Option<BTreeMap<String, Option<Vec<Binding>>>>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Binding {
    #[serde(default)]
    host_ip: String,
    #[serde(default)]
    host_port: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RestartPolicy {
    name: String,
    #[serde(default)]
    maximum_retry_count: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Mount {
    #[serde(default)]
    r#type: String,
    /// Of a volume.
    #[serde(default)]
    name: String,
    #[serde(default)]
    source: String,
    destination: String,
    #[serde(default, rename = "RW")]
    rw: bool,
}

impl Mount {
    /// Where, and what: a volume by its name, because where it lies is its driver's business.
    fn pair(self) -> (String, String) {
        (self.destination, if self.name.is_empty() { self.source } else { self.name })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NetworkSettings {
    networks: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(rename = "RootFS")]
    root_fs: RootFs,
    config: Option<ImageConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RootFs {
    layers: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageConfig {
    env: Option<Vec<String>>,
}

/// What a container has one of.
const SETTINGS: [&str; 43] = [
    "BlkioDeviceReadBps",
    "BlkioDeviceReadIOps",
    "BlkioDeviceWriteBps",
    "BlkioDeviceWriteIOps",
    "BlkioWeight",
    "BlkioWeightDevice",
    "CapAdd",
    "CapDrop",
    "CgroupParent",
    "CgroupnsMode",
    "CpuPeriod",
    "CpuQuota",
    "CpuRealtimePeriod",
    "CpuRealtimeRuntime",
    "CpuShares",
    "CpusetCpus",
    "CpusetMems",
    "DeviceCgroupRules",
    "DeviceRequests",
    "Devices",
    "Dns",
    "DnsOptions",
    "DnsSearch",
    "GroupAdd",
    "Init",
    "IpcMode",
    "LogConfig",
    "MaskedPaths",
    "MemorySwappiness",
    "OomKillDisable",
    "OomScoreAdj",
    "PidMode",
    "PidsLimit",
    "Privileged",
    "ReadonlyPaths",
    "ReadonlyRootfs",
    "Runtime",
    "SecurityOpt",
    "ShmSize",
    "Sysctls",
    "UTSMode",
    "Ulimits",
    "UsernsMode",
];
/// Bytes of `/dev/shm` unless something else was asked for.
const SHM: u64 = 64 << 20;

/// Asks dockerd about a container and its image.
pub(super) fn inspect(name: &str) -> Result<Service, anyhow::Error> {
    let container = docker(&["container", "inspect", "--", name])?;
    let container = only::<Container>(&container, name)?;
    let image = docker(&["image", "inspect", "--", &container.image])?;
    let image = only::<Image>(&image, &container.image)?;
    Ok(service(container, image))
}

fn only<T: for<'de> Deserialize<'de>>(text: &str, name: &str) -> Result<T, anyhow::Error> {
    let all: Vec<T> = serde_json::from_str(text)
        .with_context(|| format!("failed to understand what docker says of {name}"))?;
    match all.into_iter().next() {
        Some(one) => Ok(one),
        None => bail!("docker says nothing of {name}"),
    }
}

fn pairs(list: Option<Vec<String>>) -> BTreeMap<String, String> {
    let pair = |text: String| {
        text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    list.unwrap_or_default().into_iter().filter_map(pair).collect()
}

fn service(container: Container, image: Image) -> Service {
    let Container { config, host_config, mounts, .. } = container;
    let image_env = pairs(image.config.and_then(|c| c.env));
    let mut own_env = pairs(config.env);
    own_env.retain(|name, value| image_env.get(name) != Some(value));
    let RestartPolicy { name: restart, maximum_retry_count: most } = host_config.restart_policy;
    let restart = if most > 0 { format!("{restart}:{most}") } else { restart };
    let (in_memory, mounts): (Vec<Mount>, Vec<Mount>) =
        mounts.into_iter().partition(|m| m.r#type == "tmpfs");
    let (writable, mounted): (Vec<Mount>, Vec<Mount>) = mounts.into_iter().partition(|m| m.rw);
    let mut tmpfs = host_config.tmpfs.unwrap_or_default();
    for mount in in_memory {
        let asked = host_config.mounts.iter().flatten().find(|m| m["Target"] == mount.destination);
        let options = asked.map(|m| tmpfs_options(&m["TmpfsOptions"])).unwrap_or_default();
        tmpfs.entry(mount.destination).or_insert(options);
    }
    let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in host_config.extra_hosts.unwrap_or_default() {
        if let Some((name, address)) = text.split_once(':') {
            hosts.entry(name.to_owned()).or_default().push(address.to_owned());
        }
    }
    let memory = host_config.memory;
    let follows = [0, i64::try_from(memory.saturating_mul(2)).unwrap_or(i64::MAX)];
    let networks = container.network_settings.networks.unwrap_or_default().into_keys();
    let own_network = |name: &String| !["bridge", "host", "none"].contains(&name.as_str());
    let setting = |name: &&'static str| Some((*name, host_config.rest.get(*name)?.clone()));
    Service {
        name: container.name.trim_start_matches('/').to_owned(),
        container_id: container.id,
        image: config.image,
        image_id: container.image,
        platform: format!("{}/{}", image.os, image.architecture),
        layers: image.root_fs.layers.unwrap_or_default(),
        argv: std::iter::once(container.path).chain(container.args).collect(),
        dir: config.working_dir,
        user: config.user,
        stop: config.stop_signal,
        image_env,
        own_env,
        ports: config.exposed_ports.unwrap_or_default().into_keys().collect(),
        published: published(host_config.port_bindings.unwrap_or_default()),
        health: config.healthcheck.filter(|check| check["Test"][0] != "NONE"),
        restart: if restart.is_empty() { "no".to_owned() } else { restart },
        settings: SETTINGS.iter().filter_map(setting).map(plain).collect(),
        writable: writable.into_iter().map(|m| m.destination).collect(),
        mounted: mounted.into_iter().map(Mount::pair).collect(),
        tmpfs,
        hosts,
        networks: networks.filter(own_network).collect(),
        memory,
        reservation: host_config.memory_reservation,
        limits_swap: !follows.contains(&host_config.memory_swap),
        nano_cpus: host_config.nano_cpus,
        labels: config.labels.unwrap_or_default(),
    }
}

/// As `--tmpfs` takes them.
fn tmpfs_options(options: &Value) -> String {
    let size = options["SizeBytes"].as_u64().filter(|n| *n > 0).map(|n| format!("size={n}"));
    let mode = options["Mode"].as_u64().filter(|n| *n > 0).map(|n| format!("mode={n:o}"));
    size.into_iter().chain(mode).collect::<Vec<_>>().join(",")
}

/// What says nothing, and what dockerd does by itself, are the same.
fn plain((name, value): (&'static str, Value)) -> (&'static str, Value) {
    let is_nothing = match (name, &value) {
        (_, Value::Bool(is_set)) => !is_set,
        (_, Value::Array(list)) => list.is_empty(),
        ("LogConfig", Value::Object(log)) => {
            log.get("Type").is_some_and(|t| t == "json-file")
                && !log.get("Config").is_some_and(is_full)
        }
        (_, Value::Object(map)) => map.is_empty(),
        ("ShmSize", Value::Number(bytes)) => [Some(0), Some(SHM)].contains(&bytes.as_u64()),
        (_, Value::Number(number)) => number.as_u64() == Some(0),
        ("IpcMode" | "CgroupnsMode", Value::String(text)) => text.is_empty() || text == "private",
        ("Runtime", Value::String(text)) => text.is_empty() || text == "runc",
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Null) => true,
    };
    (name, if is_nothing { Value::Null } else { value })
}

fn is_full(value: &Value) -> bool {
    value.as_object().is_some_and(|map| !map.is_empty())
}

fn published(bindings: BTreeMap<String, Option<Vec<Binding>>>) -> Vec<String> {
    let mut all = Vec::new();
    for (port, hosts) in bindings {
        for Binding { host_ip, host_port } in hosts.unwrap_or_default() {
            let ip = if host_ip.is_empty() { String::new() } else { format!("{host_ip}:") };
            all.push(format!("{ip}{host_port}:{port}"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dockerd_says_is_understood() {
        let container = r#"[{"Id": "c1", "Name": "/web", "Path": "/bin/web", "Args": ["-v"], "Image": "sha256:aa",
            "Config": {"User": "app", "ExposedPorts": {"80/tcp": {}}, "Env": ["PATH=/bin", "KEY=a=b"],
                "Image": "web:1", "WorkingDir": "/srv", "StopSignal": "SIGQUIT",
                "Healthcheck": {"Test": ["CMD", "/ok"]}, "Labels": {"x": "y"}},
            "HostConfig": {"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}, "Memory": 5,
                "NanoCpus": 0, "CapAdd": [], "CapDrop": null, "Privileged": false, "PidMode": "",
                "ShmSize": 67108864, "Runtime": "runc", "LogConfig": {"Type": "json-file", "Config": {}},
                "Ulimits": [{"Name": "nofile"}], "MemorySwap": 10, "Tmpfs": {"/run": "size=1m"},
                "ExtraHosts": ["db:10.0.0.1", "db:fd00::1"], "CgroupnsMode": "private",
                "Mounts": [{"Type": "tmpfs", "Target": "/scratch", "TmpfsOptions": {"SizeBytes": 64, "Mode": 448}}],
                "PortBindings": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}]}},
            "Mounts": [{"Type": "volume", "Source": "/v", "Destination": "/data", "RW": true},
                {"Type": "tmpfs", "Destination": "/scratch", "RW": true},
                {"Type": "bind", "Source": "/c", "Destination": "/conf", "RW": false}],
            "NetworkSettings": {"Networks": {"shop_default": {}, "bridge": {}}}}]"#;
        let image = r#"[{"Architecture": "amd64", "Os": "linux", "RootFS": {"Layers": ["l1", "l2"]},
            "Config": {"Env": ["PATH=/bin"]}}]"#;
        let web = service(only(container, "web").unwrap(), only(image, "web:1").unwrap());
        assert_eq!(
            (web.name.as_str(), web.user.as_str(), web.stop.as_str()),
            ("web", "app", "SIGQUIT")
        );
        assert_eq!(web.argv, ["/bin/web", "-v"]);
        assert_eq!(web.own_env, BTreeMap::from([("KEY".to_owned(), "a=b".to_owned())]));
        assert_eq!((web.restart.as_str(), web.memory), ("on-failure:3", 5));
        assert_eq!(web.published, ["127.0.0.1:8080:80/tcp"]);
        assert_eq!(
            (web.writable, web.mounted),
            (vec!["/data".to_owned()], BTreeMap::from([("/conf".to_owned(), "/c".to_owned())]))
        );
        assert_eq!(web.networks.into_iter().collect::<Vec<_>>(), ["shop_default"]);
        let set: Vec<_> =
            web.settings.iter().filter(|(_, v)| !v.is_null()).map(|(n, _)| *n).collect();
        assert_eq!(set, ["Ulimits"], "the others are as dockerd has them");
        assert!(!web.limits_swap, "twice the memory");
        let tmpfs = [("/run", "size=1m"), ("/scratch", "size=64,mode=700")];
        assert_eq!(web.tmpfs, tmpfs.map(|(at, how)| (at.to_owned(), how.to_owned())).into());
        assert_eq!(web.hosts["db"], ["10.0.0.1", "fd00::1"]);
        assert_eq!(web.platform, "linux/amd64");
    }
}
