//! Who talks to whom, and which processors share what.

use anyhow::{Context, Result, ensure};
use ctlmgr_live::{Container, Ctlmgr, eventually, json, sh};
use serde_json::Value;

const CONFIG: &str = "/etc/ctlmgr/config.d/50-place.toml";
const MIB: u64 = 1 << 20;

fn container(name: &str, command: &str) -> Result<Container> {
    sh(&format!(
        "docker run -d --name {name} --network talk --volume /var/tmp/talk:/talk busybox sh -c '{command}'"
    ))?;
    Ok(Container { name: name.to_owned(), cgroup: std::path::PathBuf::new() })
}

fn edge(a: &str, b: &str) -> Result<Option<Value>> {
    let graph = json("ctlmgr place graph --json")?;
    let found =
        graph["edges"].as_array().into_iter().flatten().find(|e| e["a"] == a && e["b"] == b);
    Ok(found.cloned())
}

#[test]
fn bytes_between_containers_are_counted_as_they_are() -> Result<()> {
    std::fs::write(CONFIG, "[place]\ntraffic = \"on\"\n")?;
    sh("docker network create talk")?;
    let measured = measure();
    sh(&format!("rm -rf {CONFIG} /var/tmp/talk; docker network rm talk"))?;
    measured
}

fn measure() -> Result<()> {
    let _ctlmgr = Ctlmgr::start("observe")?;
    let is_on = || Ok(json("ctlmgr place graph --json")?["traffic"] == "on");
    eventually("traffic is counted", is_on)?;
    sh("mkdir -p /var/tmp/talk && dd if=/dev/urandom of=/var/tmp/talk/data bs=1M count=8")?;
    let _server = container("talk-server", "exec httpd -f -p 80 -h /talk")?;
    let address =
        "docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' talk-server";
    let address = sh(address)?;
    let fetch = format!(
        "wget -q -O /dev/null http://{address}/data && wget -q -O /dev/null http://{address}/data && \
         touch /talk/done && exec sleep 100000"
    );
    let _client = container("talk-client", &fetch)?;
    eventually("both files came", || Ok(std::path::Path::new("/var/tmp/talk/done").exists()))?;
    let sent = || -> Result<u64> {
        let edge = edge("talk-client", "talk-server")?;
        Ok(edge.and_then(|e| e["bytes"].as_u64()).unwrap_or(0))
    };
    eventually("they are counted", || Ok(sent()? >= 16 * MIB))?;
    let sent = sent()?;
    ensure!(sent <= 16 * MIB * 105 / 100, "{sent} bytes of {}", 16 * MIB);
    let shown = sh("ctlmgr place graph")?;
    ensure!(shown.contains("talk-client - talk-server"), "{shown}");
    ensure!(sh("ctlmgr place graph --dot")?.contains("\"talk-client\" -- \"talk-server\""));
    ensure!(sh("ctlmgr place suggest")?.contains("talk-client"));
    // A process in the host's name space on the container's address is no container.
    sh(&format!("busybox wget -q -O /dev/null http://{address}/data || true"))?;
    let outside = json("ctlmgr place graph --json")?;
    let nodes = outside["nodes"].as_array().context("nodes")?.len();
    ensure!(nodes == 2, "{outside}");
    Ok(())
}

#[test]
fn processors_are_read_from_this_kernel() -> Result<()> {
    let topology = json("ctlmgr topology --json")?;
    let domains = topology["domains"].as_array().context("domains")?;
    let cpus = sh("nproc --all")?.parse::<usize>()?;
    let cores = |d: &Value| d["cores"].as_array().map_or(0, Vec::len);
    ensure!(domains.iter().map(cores).sum::<usize>() <= cpus && !domains.is_empty(), "{topology}");
    assert_eq!(
        topology["online"].as_str(),
        Some(sh("cat /sys/devices/system/cpu/online")?.as_str())
    );
    Ok(())
}
