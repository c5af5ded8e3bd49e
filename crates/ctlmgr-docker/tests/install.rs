//! Enabling and disabling, with a systemctl and a dockerd that only note what they are asked.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ctlmgr_docker::ask::Daemon;
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
            spec: path("plugins/ctlmgr.spec"),
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
        tokio::spawn(serve(
            listener,
            Vec::new(),
            Plugin::new(Daemon::at(Some("/nowhere".into())), Duration::ZERO),
            std::future::pending(),
        ));
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
    fs::set_permissions(&world.places.config, fs::Permissions::from_mode(0o600)).unwrap();
    world.places.enable(PLUGIN).await.unwrap();
    assert_eq!(world.places.in_use().unwrap(), PLUGIN);
    let spec = fs::read_to_string(&world.places.spec).unwrap();
    assert_eq!(spec, format!("unix://{}\n", world.places.plugin.display()));
    for file in ["daemon.json", "daemon.json.before-ctlmgr"] {
        let mode =
            fs::metadata(world.dir.path().join("etc").join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let log = world.log();
    let at = |what: &str| log.find(what).unwrap();
    assert!(at("enable --now") < at("dockerd --validate"), "first the socket: {log}");
    assert!(at("reset-failed") < at("enable --now"), "with no starts counted against it: {log}");
    world.places.enable(PLUGIN).await.unwrap();
    world.places.disable().await.unwrap();
    assert_eq!(fs::read_to_string(&world.places.config).unwrap(), before);
    assert_eq!(world.files(), ["daemon.json"]);
    assert!(!world.places.spec.exists());
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
    let said = world.places.enable(PLUGIN).await.unwrap().join("\n");
    assert!(said.contains("made ") && !said.contains("before-ctlmgr"), "{said}");
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
    let both = Use { plugin: true, runtime: true };
    let said = world.places.enable(both).await.unwrap().join("\n");
    assert!(said.contains("before-ctlmgr") && said.contains("start by /w/ctlmgr-runc"), "{said}");
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

/// In whatever steps it was enabled, and whatever an administrator did since.
#[tokio::test]
async fn no_container_is_left_with_a_runtime_that_is_gone() {
    let world = World::new(true, "");
    world.write("{}");
    world.listen();
    world.places.enable(PLUGIN).await.unwrap();
    world.places.enable(Use { plugin: true, runtime: true }).await.unwrap();
    world.places.disable().await.unwrap();
    let left = fs::read_to_string(&world.places.config).unwrap();
    assert!(left.contains("ctlmgr-runc") && !left.contains("/w/ctlmgr-runc"), "{left}");
    world.write(
        r#"{"default-runtime": "x", "runtimes": {"ctlmgr-runc": {"path": "/w/ctlmgr-runc"}}}"#,
    );
    world.places.disable().await.unwrap();
    let left = fs::read_to_string(&world.places.config).unwrap();
    assert!(
        !left.contains("/w/ctlmgr-runc") && left.contains(r#""default-runtime": "x""#),
        "{left}"
    );
}

#[tokio::test]
async fn where_nothing_was_enabled_nothing_is_reloaded() {
    let world = World::new(true, "");
    world.write("{");
    assert!(world.places.disable().await.is_err(), "what cannot be understood is not passed over");
    world.write("{\"debug\": true}");
    world.places.disable().await.unwrap();
    assert!(!world.log().contains("reload"), "{}", world.log());
}

/// dockerd before 23.0.
#[tokio::test]
async fn a_dockerd_that_cannot_validate_is_believed() {
    let world = World::new(false, "");
    let old = "#!/bin/sh\necho 'unknown flag: --validate' >&2; exit 125\n";
    fs::write(&world.places.dockerd, old).unwrap();
    world.listen();
    world.places.enable(PLUGIN).await.unwrap();
    assert_eq!(world.places.in_use().unwrap(), PLUGIN);
}
