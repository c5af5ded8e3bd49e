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
    /// What it may do beyond others, or less.
    pub privileges: BTreeMap<&'static str, Value>,
    /// Places that it writes to and that outlive it.
    pub writable: Vec<String>,
    /// What is mounted for reading: source by destination.
    pub mounted: BTreeMap<String, String>,
    /// Names of networks, without the ones that are no network of its own.
    pub networks: BTreeSet<String>,
    /// Limits, 0 is none.
    pub memory: u64,
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
    nano_cpus: u64,
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

/// Settings of a container that say what it may do.
const PRIVILEGES: [&str; 14] = [
    "Privileged",
    "CapAdd",
    "CapDrop",
    "SecurityOpt",
    "Devices",
    "DeviceCgroupRules",
    "DeviceRequests",
    "ReadonlyRootfs",
    "PidMode",
    "IpcMode",
    "UsernsMode",
    "Sysctls",
    "Runtime",
    "GroupAdd",
];

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
    let (writable, mounted): (Vec<Mount>, Vec<Mount>) =
        mounts.into_iter().filter(|m| m.r#type != "tmpfs").partition(|m| m.rw);
    let networks = container.network_settings.networks.unwrap_or_default().into_keys();
    let own_network = |name: &String| !["bridge", "host", "none"].contains(&name.as_str());
    let privilege = |name: &&'static str| Some((*name, host_config.rest.get(*name)?.clone()));
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
        privileges: PRIVILEGES.iter().filter_map(privilege).map(plain).collect(),
        writable: writable.into_iter().map(|m| m.destination).collect(),
        mounted: mounted.into_iter().map(Mount::pair).collect(),
        networks: networks.filter(own_network).collect(),
        memory: host_config.memory,
        nano_cpus: host_config.nano_cpus,
        labels: config.labels.unwrap_or_default(),
    }
}

/// Empty and absent are the same.
fn plain((name, value): (&'static str, Value)) -> (&'static str, Value) {
    let is_empty = match &value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    (name, if is_empty { Value::Null } else { value })
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
                "PortBindings": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}]}},
            "Mounts": [{"Type": "volume", "Source": "/v", "Destination": "/data", "RW": true},
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
        assert_eq!(web.privileges["CapAdd"], Value::Null);
        assert_eq!(web.platform, "linux/amd64");
    }
}
