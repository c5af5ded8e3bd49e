//! Enabling and disabling, with a systemctl and a dockerd that only note what they are asked.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use ctlmgr_docker::daemon_json::Use;
use ctlmgr_docker::install::Places;
use ctlmgr_docker::plugin::{Plugin, serve};
use tokio::net::UnixListener;

const PLUGIN: Use = Use { plugin: true, runtime: false };

struct World {
    dir: tempfile::TempDir,
    places: Places,
}

impl World {
    /// `validates` is what `dockerd --validate` says. dockerd itself does not run.
    fn new(validates: bool, flags: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let script = |name: &str, text: &str| {
            let file = path(name);
            fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        };
        let log = path("log").display().to_string();
        let places = Places {
            config: path("etc/daemon.json"),
            docker: path("none.sock"),
            plugin: path("plugin.sock"),
            wrapper: "/w/ctlmgr-runc".into(),
            systemctl: script(
                "systemctl",
                &format!(
                    "echo \"$@\" >>{log}; case $1 in is-active) exit 3;; show) echo 'dockerd {flags}';; esac"
                ),
            ),
            dockerd: script(
                "dockerd",
                &format!(
                    "echo dockerd \"$1\" >>{log}; echo bad >&2; exit {}",
                    i32::from(!validates)
                ),
            ),
        };
        World { dir, places }
    }

    fn listen(&self) {
        let listener = UnixListener::bind(&self.places.plugin).unwrap();
        tokio::spawn(serve(listener, Plugin::new(PathBuf::from("/nowhere"), Duration::ZERO)));
    }

    fn write(&self, text: &str) {
        fs::create_dir_all(self.places.config.parent().unwrap()).unwrap();
        fs::write(&self.places.config, text).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Everything in dockerd's directory.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.places.config.parent().unwrap());
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn there_and_back_the_file_is_the_same_to_the_byte() {
    let world = World::new(true, "");
    let before = "{\n\t\"bip\": \"10.0.0.1/24\", \"debug\": true}";
    world.write(before);
    world.listen();
    world.places.enable(PLUGIN).await.unwrap();
    assert_eq!(world.places.in_use().unwrap(), PLUGIN);
    let log = world.log();
    let at = |what: &str| log.find(what).unwrap();
    assert!(at("enable --now") < at("dockerd --validate"), "first the socket: {log}");
    world.places.enable(PLUGIN).await.unwrap();
    world.places.disable().await.unwrap();
    assert_eq!(fs::read_to_string(&world.places.config).unwrap(), before);
    assert_eq!(world.files(), ["daemon.json"]);
    assert!(
        world
            .log()
            .trim_end()
            .ends_with("disable --now --quiet ctlmgr-docker.socket ctlmgr-docker.service")
    );
}

#[tokio::test]
async fn where_there_was_no_file_there_is_none_again() {
    let world = World::new(true, "");
    world.listen();
    world.places.enable(PLUGIN).await.unwrap();
    assert_eq!(world.places.in_use().unwrap(), PLUGIN);
    world.places.disable().await.unwrap();
    assert_eq!(world.files(), [""; 0]);
    world.places.disable().await.unwrap();
}

#[tokio::test]
async fn what_somebody_changed_meanwhile_stays() {
    let world = World::new(true, "");
    world.write("{\"debug\": true}");
    world.listen();
    world.places.enable(Use { plugin: true, runtime: true }).await.unwrap();
    let text = fs::read_to_string(&world.places.config).unwrap();
    world.write(&text.replace("\"debug\": true", "\"debug\": false"));
    world.places.disable().await.unwrap();
    let text = fs::read_to_string(&world.places.config).unwrap();
    assert!(text.contains("\"debug\": false") && !text.contains("authorization-plugins"), "{text}");
    assert!(!text.contains("default-runtime") && !text.contains("/w/ctlmgr-runc"), "{text}");
    assert!(text.contains("\"ctlmgr-runc\""), "containers name it for ever: {text}");
}

#[tokio::test]
async fn nothing_changes_unless_plugin_and_dockerd_agree() {
    let deaf = World::new(true, "");
    let refusing = World::new(false, "");
    refusing.listen();
    let flagged = World::new(true, "--authorization-plugin=opa");
    flagged.listen();
    for (world, complaint) in [
        (deaf, "the plugin does not answer"),
        (refusing, "dockerd refuses the changed configuration, so it was not changed"),
        (flagged, "started with --authorization-plugin"),
    ] {
        world.write("{}");
        let error = world.places.enable(PLUGIN).await.unwrap_err();
        assert!(format!("{error:#}").contains(complaint), "{error:#}");
        assert_eq!(fs::read_to_string(&world.places.config).unwrap(), "{}");
        assert_eq!(world.files(), ["daemon.json"]);
    }
}
