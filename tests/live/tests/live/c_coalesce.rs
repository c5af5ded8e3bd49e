//! Two small services as one container, and back.

use anyhow::{Result, ensure};
use ctlmgr_live::{Ctlmgr, eventually, inspect, json, logs, sh, status};

const CONFIG: &str = "/etc/ctlmgr/config.d/50-place.toml";

/// Makes an image from busybox, unless it is there: what `script` does in it, and `changes` to what it runs.
fn image(name: &str, script: &str, changes: &[&str]) -> Result<()> {
    let changes: String = changes.iter().map(|c| format!(" --change '{c}'")).collect();
    sh(&format!(
        "docker image inspect {name} >/dev/null 2>&1 && exit; docker rm -f draft >/dev/null 2>&1; \
         docker run --name draft --network none busybox sh -c '{script}' && \
         docker commit{changes} draft {name} && docker rm draft"
    ))
    .map(drop)
}

/// The mall; all of it goes with this value but the images of its services, which the next test has, too.
struct Mall;

impl Mall {
    fn open() -> Result<Mall> {
        std::fs::write(CONFIG, "[place]\ntraffic = \"on\"\n")?;
        sh("docker network create mall")?;
        let mall = Mall;
        let page = "mkdir /www && head -c 65536 /dev/zero >/www/index.html";
        image(
            "mall/web:1",
            page,
            &["CMD [\"sh\",\"-c\",\"exec httpd -f -p 8080 -h /www\"]", "EXPOSE 8080"],
        )?;
        let script = "echo \"while :; do wget -q -O /dev/null http://web:8080/ && echo got \\$GREETING; sleep 1; done\" >/cart.sh";
        image("mall/cart:1", script, &["CMD [\"sh\",\"/cart.sh\"]"])?;
        Ok(mall)
    }

    fn run_both(&self) -> Result<()> {
        sh("docker run -d --name web --network mall mall/web:1")?;
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        let address = sh(&format!("docker inspect -f '{format}' web"))?;
        sh(&format!(
            "docker run -d --name cart --network mall --add-host web:{address} --env GREETING=hi \
             --tmpfs /scratch:size=1m --health-interval 1h \
             --health-start-period 1h --health-start-interval 2s --health-timeout 30s \
             --health-cmd '[ \"$GREETING\" = hi ] && touch /scratch/ok' mall/cart:1"
        ))?;
        eventually("the cart gets what it asks for", || said("cart", "got hi"))
    }
}

impl Drop for Mall {
    fn drop(&mut self) {
        let _ = status(&format!(
            "docker rm -f web cart web-cart store shy draft; docker network rm mall; \
             docker rmi -f mall/redis:1 mall/both:1; rm -f {CONFIG}"
        ));
    }
}

fn said(container: &str, words: &str) -> Result<bool> {
    Ok(logs(container)?.contains(words))
}

/// Bytes that came in over an interface of a container.
fn received(container: &str, interface: &str) -> Result<u64> {
    let text = sh(&format!("docker exec {container} sh -c 'cat /proc/net/dev'"))?;
    let line = text.lines().find_map(|l| l.trim().strip_prefix(interface)?.strip_prefix(':'));
    Ok(line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0))
}

#[test]
fn two_services_become_one_over_loopback_which_ends_with_either() -> Result<()> {
    let mall = Mall::open()?;
    let _ctlmgr = Ctlmgr::start("observe")?;
    mall.run_both()?;
    eventually("the pair is advised", || {
        Ok(sh("ctlmgr coalesce advise")?.contains("can be coalesced"))
    })?;
    // A storage backend, by the name of its image.
    sh(
        "docker tag mall/web:1 mall/redis:1 && docker run -d --name store --network mall mall/redis:1",
    )?;
    let (code, why) = status("ctlmgr coalesce build cart store --tag mall/none:1")?;
    ensure!(code == 2 && why.contains("storage backend (redis)"), "{code}: {why}");
    sh("docker run -d --name shy --network mall --tmpfs /www mall/cart:1")?;
    let (code, why) = status("ctlmgr coalesce build web shy --tag mall/none:1")?;
    ensure!(code == 2 && why.contains("would hide /www/index.html"), "{code}: {why}");
    let built = json("ctlmgr coalesce build web cart --tag mall/both:1 --json")?;
    ensure!(said("cart", "got hi")?, "both go on");
    let (code, why) = status("ctlmgr coalesce build web cart --tag mall/both:1")?;
    ensure!(code == 2 && why.contains("is there already"), "{code}: {why}");
    let list = sh(
        "docker run --rm --network none --entrypoint sh mall/both:1 -c 'cat /.ctlmgr/services.json'",
    )?;
    ensure!(!list.contains("GREETING"), "its own environment is in the image: {list}");
    sh("docker rm -f web cart")?;
    sh(built["docker_run"].as_str().unwrap_or("false"))?;
    eventually("the cart gets what it asks for", || said("web-cart", "got hi"))?;
    let before = received("web-cart", "lo")?;
    eventually("pages come", || Ok(received("web-cart", "lo")? > before + (128 << 10)))?;
    ensure!(received("web-cart", "eth0")? < 64 << 10, "not over loopback");
    eventually("the check of the second runs as the second", || {
        Ok(inspect("web-cart")?["State"]["Health"]["Status"] == "healthy")
    })?;
    sh(
        "docker exec web-cart sh -c 'grep -q \" /scratch tmpfs \" /proc/mounts && test -e /scratch/ok'",
    )?;
    sh("docker stop web-cart")?;
    ensure!(ended(143)?, "it did not end by its signal");
    // When one of the two dies the container ends with its status.
    sh("docker start web-cart")?;
    let find = "docker top web-cart -o pid,args | awk '/httpd/ {print $1}'";
    eventually("both run", || Ok(!sh(find)?.is_empty()))?;
    sh(&format!("{find} | xargs kill -KILL"))?;
    eventually("the container has ended", || ended(137))
}

/// Whether the one is over, with this status.
fn ended(code: i32) -> Result<bool> {
    let state = &inspect("web-cart")?["State"];
    Ok(state["Running"] == false && state["ExitCode"] == code)
}

const COMPOSE: &str = "name: shop
services:
  web:
    image: mall/web:1
    stop_grace_period: 1s
    deploy: {resources: {limits: {memory: 48m}}}
    healthcheck:
      test: [CMD, sh, -c, 'wget -q -O /dev/null http://127.0.0.1:8080/']
      interval: 1h
      start_period: 1h
      start_interval: 2s
      timeout: 30s
  cart:
    image: mall/cart:1
    stop_grace_period: 1s
    mem_limit: 32m
    tmpfs: [/scratch]
    extra_hosts: ['elsewhere:10.9.8.7']
    environment: {GREETING: composed}
    depends_on: {web: {condition: service_healthy}}
";

/// With compose itself: planned and started, coalesced by the override, and back without it.
#[test]
fn compose_runs_the_one_in_place_of_the_two_and_back() -> Result<()> {
    let mall = Mall::open()?;
    let _ctlmgr = Ctlmgr::start("observe")?;
    let done = composed(&mall);
    // As `down` does, which takes half a minute of an emulated processor.
    let _ = status(
        "docker rm -f $(docker ps -aq --filter label=com.docker.compose.project=shop); \
         docker network rm shop_default; rm -f /var/tmp/shop.yaml /var/tmp/both.yaml",
    );
    done
}

fn composed(_mall: &Mall) -> Result<()> {
    std::fs::write("/var/tmp/shop.yaml", COMPOSE)?;
    let planned = sh("cd /var/tmp && ctlmgr batch run --compose shop.yaml --dry-run")?;
    ensure!(planned.contains("shop-web-1") && planned.contains("shop-cart-1"), "{planned}");
    sh("cd /var/tmp && ctlmgr batch run --compose shop.yaml")?;
    eventually("they run", || said("shop-cart-1", "got composed"))?;
    sh(
        "cd /var/tmp && ctlmgr coalesce build shop-web-1 shop-cart-1 --tag mall/both:1 --output both.yaml",
    )?;
    sh("cd /var/tmp && docker compose -f shop.yaml -f both.yaml up -d")?;
    eventually("the one runs", || said("shop-web-1", "got composed"))?;
    ensure!(sh("docker ps -q --filter name=shop-cart")?.is_empty(), "both run");
    let limit = sh("docker inspect -f '{{.HostConfig.Memory}}' shop-web-1")?;
    ensure!(limit == (80 << 20).to_string(), "not the limits of both: {limit}");
    sh(
        "docker exec shop-web-1 sh -c 'grep -q \" /scratch tmpfs \" /proc/mounts && grep -q elsewhere /etc/hosts'",
    )?;
    ensure!(received("shop-web-1", "eth0")? < 64 << 10, "not over loopback");
    sh("cd /var/tmp && docker compose -f shop.yaml up -d")?;
    eventually("the two run again", || said("shop-cart-1", "got composed"))
}
