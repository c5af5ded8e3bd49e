//! Enabling and disabling, in the order that never leaves dockerd without its plugin.
//!
//! dockerd refuses every request while a plugin that it is to ask does not answer, and exits when it is
//! told of one that it cannot reach. So the socket listens and answers before dockerd is told of it, and
//! dockerd has forgotten it before the socket goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ctlmgr_api::Client;
use serde_json::Value;

use crate::daemon_json::{self, Use};
use crate::plugin;

/// Units of the plugin.
const SOCKET_UNIT: &str = "ctlmgr-docker.socket";
const SERVICE_UNIT: &str = "ctlmgr-docker.service";
/// Has dockerd do without it, again and again until that has worked.
const OFF_UNIT: &str = "ctlmgr-docker-off.service";
/// dockerd follows a reload within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// A boot with many containers takes dockerd no longer.
const BOOT: Duration = Duration::from_secs(240);

/// Where everything is.
#[derive(Debug, Clone)]
pub struct Places {
    /// dockerd's configuration.
    pub config: PathBuf,
    /// dockerd's API socket.
    pub docker: PathBuf,
    /// The plugin's socket.
    pub plugin: PathBuf,
    /// Where dockerd looks the plugin up. It is there only while dockerd is to ask: dockerd tries
    /// every plugin that it finds, whatever for, and waits 15 s for one that does not answer.
    pub spec: PathBuf,
    /// The runtime wrapper.
    pub wrapper: PathBuf,
    /// `systemctl` and `dockerd`, by name or path.
    pub systemctl: PathBuf,
    /// See `systemctl`.
    pub dockerd: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Places {
            config: "/etc/docker/daemon.json".into(),
            docker: "/run/docker.sock".into(),
            plugin: "/run/ctlmgr/docker.sock".into(),
            spec: "/etc/docker/plugins/ctlmgr.spec".into(),
            wrapper: "/usr/libexec/ctlmgr/ctlmgr-runc".into(),
            systemctl: "systemctl".into(),
            dockerd: "dockerd".into(),
        }
    }
}

impl Places {
    /// What dockerd's configuration has it use.
    ///
    /// # Errors
    /// The file cannot be read or understood.
    pub fn in_use(&self) -> Result<Use> {
        self.about_config(daemon_json::in_use(&self.read()?.unwrap_or_default()))
    }

    /// Has dockerd use ctlmgr; returns what was done, in words.
    ///
    /// # Errors
    /// Something is not as it must be. dockerd's configuration is what it was then.
    pub async fn enable(&self, wanted: Use) -> Result<Vec<String>> {
        let before = self.read()?;
        let text = before.clone().unwrap_or_default();
        let wrapper = self.wrapper.to_string_lossy();
        let after = self.about_config(daemon_json::enabled(&text, wanted, &wrapper))?;
        if wanted.plugin {
            self.expect_no_flag()?;
            // Or it would take out at once what is enabled now.
            let _ = self.systemctl(&["stop", OFF_UNIT]);
            // Or systemd would not start who failed too often of late. Where nothing failed there is nothing to forget.
            let _ = self.systemctl(&["reset-failed", SOCKET_UNIT, SERVICE_UNIT]);
            self.systemctl(&["enable", "--now", "--quiet", SOCKET_UNIT])?;
            self.knock().await?;
            put(&self.spec, &format!("unix://{}\n", self.plugin.display()), None)?;
        }
        let mut done = Vec::new();
        if self.about_config(daemon_json::in_use(&text))? == wanted && before.is_some() {
            done.push(format!("{} says so already", self.config.display()));
        } else {
            self.replace(before.as_deref(), &after)?;
            done.push(match before {
                Some(_) => format!(
                    "changed {}; as it was without ctlmgr it is {}",
                    self.config.display(),
                    self.backup().display()
                ),
                None => format!("made {}", self.config.display()),
            });
        }
        done.extend(self.what_it_means(wanted));
        if self.is_dockerd_up().await {
            if let Err(error) = self.reload(wanted.plugin).await {
                self.restore(before.as_deref())?;
                let _ = self.systemctl(&["reload", "docker.service"]);
                return Err(
                    error.context("dockerd did not follow; its configuration is what it was")
                );
            }
            done.push("dockerd asks ctlmgr before every start from now on".to_owned());
        } else {
            done.push("dockerd does not run; it will ask ctlmgr when it does".to_owned());
        }
        Ok(done)
    }

    fn what_it_means(&self, wanted: Use) -> Vec<String> {
        let (socket, spec) = (self.plugin.display(), self.spec.display());
        let plugin = format!("{SOCKET_UNIT} listens at {socket}; {spec} tells dockerd where");
        let wrapper = self.wrapper.display();
        let runtime = format!("containers that are made from now on start by {wrapper}");
        [(wanted.plugin, plugin), (wanted.runtime, runtime)]
            .into_iter()
            .filter_map(|(is_wanted, line)| is_wanted.then_some(line))
            .collect()
    }

    /// Has dockerd do without ctlmgr; returns what was done, in words.
    ///
    /// # Errors
    /// dockerd still asks: the socket stays open then, so that nothing stands still.
    pub async fn disable(&self) -> Result<Vec<String>> {
        let mut done = Vec::new();
        if let Some(text) = self.read()? {
            let after = self.about_config(daemon_json::disabled(&text, &real_runc()))?;
            if self.about_config(daemon_json::differ(&text, &after))? {
                done.push(self.take_back(&text, &after)?);
            }
        }
        // Where nothing was enabled dockerd need not hear of it, whatever else waits for its reload.
        let was_enabled = !done.is_empty() || self.is_active(SOCKET_UNIT);
        if was_enabled && self.is_dockerd_up().await {
            self.reload(false).await?;
            self.drain().await;
            done.push("dockerd does not ask ctlmgr any more".to_owned());
        }
        let _ = fs::remove_file(&self.spec);
        self.systemctl(&["disable", "--now", "--quiet", SOCKET_UNIT, SERVICE_UNIT])?;
        Ok(done)
    }

    /// Puts back the file as it was, if nobody has changed it since; else only ours is taken out.
    fn take_back(&self, text: &str, after: &str) -> Result<String> {
        let config = self.config.display();
        let is_clean = |text: &String| is_without_us(text);
        let has_file = self.backup().exists();
        let backup = fs::read_to_string(self.backup()).ok().filter(is_clean);
        let wrapper = self.wrapper.to_string_lossy();
        let ours = daemon_json::in_use(text)?;
        let was = backup.clone().unwrap_or_default();
        let is_untouched = has_file == backup.is_some()
            && daemon_json::enabled(&was, ours, &wrapper).is_ok_and(|t| t == text);
        // With the wrapper its name has to stay.
        let said = if is_untouched && !ours.runtime {
            self.restore(backup.as_deref())?;
            format!("{config} is what it was before")
        } else {
            self.write(after)?;
            format!("took ctlmgr out of {config}")
        };
        let _ = fs::remove_file(self.backup());
        Ok(said)
    }

    fn read(&self) -> Result<Option<String>> {
        match fs::read_to_string(&self.config) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("failed to read {}", self.config.display())),
        }
    }

    fn about_config<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| format!("failed to understand {}", self.config.display()))
    }

    fn backup(&self) -> PathBuf {
        self.config.with_extension("json.before-ctlmgr")
    }

    /// The file itself, where the path is a link to it.
    fn file(&self) -> PathBuf {
        fs::canonicalize(&self.config).unwrap_or_else(|_| self.config.clone())
    }

    /// Validates, keeps the former, and puts the new one in its place whole.
    fn replace(&self, before: Option<&str>, after: &str) -> Result<()> {
        let draft = self.file().with_extension("json.ctlmgr-new");
        put(&draft, after, Some(&self.file()))?;
        let checked =
            self.run(&self.dockerd, &["--validate", "--config-file", &draft.to_string_lossy()]);
        let _ = fs::remove_file(&draft);
        // Before 23.0 it cannot be asked.
        let is_old = |e: &anyhow::Error| format!("{e:#}").contains("unknown flag: --validate");
        let checked = checked.or_else(|e| if is_old(&e) { Ok(String::new()) } else { Err(e) });
        checked.context("dockerd refuses the changed configuration, so it was not changed")?;
        // What is kept is the file without us, however often and in whatever steps we are enabled.
        if let Some(text) = before.filter(|text| is_without_us(text)) {
            put(&self.backup(), text, Some(&self.file()))?;
        }
        self.write(after)
    }

    fn write(&self, text: &str) -> Result<()> {
        let file = self.file();
        let draft = file.with_extension("json.ctlmgr-new");
        put(&draft, text, Some(&file))?;
        fs::rename(&draft, &file).with_context(|| format!("failed to write {}", file.display()))
    }

    fn restore(&self, before: Option<&str>) -> Result<()> {
        match before {
            Some(text) => self.write(text),
            None => fs::remove_file(&self.config)
                .with_context(|| format!("failed to remove {}", self.config.display())),
        }
    }

    /// dockerd takes no key from both its command line and the file, and exits.
    fn expect_no_flag(&self) -> Result<()> {
        let start =
            self.run(&self.systemctl, &["show", "docker.service", "--property", "ExecStart"]);
        match start.is_ok_and(|line| line.contains("--authorization-plugin")) {
            true => bail!(
                "dockerd is started with --authorization-plugin, and takes none from {} then; move it there",
                self.config.display()
            ),
            false => Ok(()),
        }
    }

    /// Whether the plugin answers as one that authorizes.
    async fn knock(&self) -> Result<()> {
        let client = Client::new(&self.plugin);
        let answer: Value = client
            .send(hyper::Method::POST, "/Plugin.Activate", &())
            .await
            .with_context(|| format!("the plugin does not answer at {}", self.plugin.display()))?;
        match answer["Implements"][0] == "authz" {
            true => Ok(()),
            false => bail!("something else answers at {}", self.plugin.display()),
        }
    }

    fn is_active(&self, unit: &str) -> bool {
        self.run(&self.systemctl, &["is-active", "--quiet", unit]).is_ok()
    }

    /// Whether dockerd runs; one that is about to start or stop is waited for.
    async fn is_dockerd_up(&self) -> bool {
        let began = Instant::now();
        loop {
            let show = ["show", "docker.service", "--property", "ActiveState", "--value"];
            let state = self.run(&self.systemctl, &show).unwrap_or_default();
            match state.trim() {
                "activating" | "deactivating" | "reloading" if began.elapsed() < BOOT => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                state => return matches!(state, "active" | "reloading"),
            }
        }
    }

    /// Lets everybody go who is held, and waits until dockerd has reported the end of their starts: for
    /// requests under way it asks the plugin until then.
    async fn drain(&self) {
        let (client, began) = (Client::new(&self.plugin), Instant::now());
        let open = async || {
            client.send::<_, u64>(hyper::Method::POST, "/ctlmgr/drain", &()).await.unwrap_or(0)
        };
        while open().await > 0 && began.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Has dockerd read its configuration, and waits until it asks the plugin, or does not any more.
    async fn reload(&self, should_ask: bool) -> Result<()> {
        self.systemctl(&["reload", "docker.service"])?;
        let began = Instant::now();
        for probe in 0_u32.. {
            let asks = self.asks(probe).await;
            match asks {
                Ok(asks) if asks == should_ask => return Ok(()),
                _ if began.elapsed() < PATIENCE => {}
                Err(error) => return Err(error.context("dockerd does not answer after its reload")),
                Ok(_) => bail!("dockerd did not take over its configuration; see its journal"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Whether dockerd asks the plugin about a request.
    async fn asks(&self, probe: u32) -> Result<bool> {
        let uri = format!("{}{}-{probe}", plugin::PROBE, std::process::id());
        Client::new(&self.docker).get::<Value>(&uri).await?;
        // Without a plugin there is nobody to ask.
        let probed = Client::new(&self.plugin).get::<Option<String>>("/ctlmgr/probed").await;
        Ok(probed.is_ok_and(|last| last == Some(uri)))
    }

    fn systemctl(&self, arguments: &[&str]) -> Result<String> {
        self.run(&self.systemctl, arguments)
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Result<String> {
        let what = || format!("{} {}", program.display(), arguments.join(" "));
        let output = Command::new(program)
            .args(arguments)
            .output()
            .with_context(|| format!("failed to run {}", what()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!("{} failed: {}", what(), text.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn is_without_us(text: &str) -> bool {
    daemon_json::in_use(text).is_ok_and(|in_use| in_use == Use::default())
}

/// Writes a file durably, with mode and owner of another where that exists: it may hold secrets.
fn put(path: &Path, text: &str, like: Option<&Path>) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, fchown};
    let write = || {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut file = fs::File::create(path)?;
        if let Some(other) = like.and_then(|other| fs::metadata(other).ok()) {
            file.set_permissions(other.permissions())?;
            fchown(&file, Some(other.uid()), Some(other.gid()))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("failed to write {}", path.display()))
}

/// Where runc is, in the order of the path that systemd gives to dockerd; by name if it is elsewhere.
/// Links are not followed, so that what a distribution's alternatives choose later counts.
pub fn real_runc() -> String {
    const PLACES: [&str; 4] =
        ["/usr/local/sbin/runc", "/usr/local/bin/runc", "/usr/sbin/runc", "/usr/bin/runc"];
    PLACES.into_iter().find(|path| Path::new(path).exists()).unwrap_or("runc").to_owned()
}
