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
/// dockerd follows a reload within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where everything is.
#[derive(Debug, Clone)]
pub struct Places {
    /// dockerd's configuration.
    pub config: PathBuf,
    /// dockerd's API socket.
    pub docker: PathBuf,
    /// The plugin's socket.
    pub plugin: PathBuf,
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
            self.systemctl(&["enable", "--now", "--quiet", SOCKET_UNIT])?;
            self.knock().await?;
        }
        let mut done = Vec::new();
        if self.about_config(daemon_json::in_use(&text))? == wanted && before.is_some() {
            done.push(format!("{} says so already", self.config.display()));
        } else {
            self.replace(before.as_deref(), &after)?;
            done.push(format!(
                "changed {}; the former is {}",
                self.config.display(),
                self.backup().display()
            ));
        }
        if self.is_dockerd_active() {
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

    /// Has dockerd do without ctlmgr; returns what was done, in words.
    ///
    /// # Errors
    /// dockerd still asks: the socket stays open then, so that nothing stands still.
    pub async fn disable(&self) -> Result<Vec<String>> {
        let mut done = Vec::new();
        if let Some(text) = self.read()? {
            let runc = real_runc();
            let after = self.about_config(daemon_json::disabled(&text, &runc))?;
            if self.about_config(daemon_json::in_use(&text))? != Use::default() {
                done.push(self.take_back(&text, &after)?);
            }
        }
        if self.is_dockerd_active() {
            self.reload(false).await?;
            done.push("dockerd does not ask ctlmgr any more".to_owned());
        }
        self.systemctl(&["disable", "--now", "--quiet", SOCKET_UNIT, SERVICE_UNIT])?;
        Ok(done)
    }

    /// Puts back the file as it was, if nobody has changed it since; else only ours is taken out.
    fn take_back(&self, text: &str, after: &str) -> Result<String> {
        let config = self.config.display();
        let backup = fs::read_to_string(self.backup()).ok();
        let wrapper = self.wrapper.to_string_lossy();
        let ours = daemon_json::in_use(text)?;
        let was = backup.clone().unwrap_or_default();
        let is_untouched = daemon_json::enabled(&was, ours, &wrapper).is_ok_and(|t| t == text);
        // With the wrapper its name has to stay.
        if !is_untouched || ours.runtime {
            self.write(after)?;
            return Ok(format!("took ctlmgr out of {config}"));
        }
        self.restore(backup.as_deref())?;
        let _ = fs::remove_file(self.backup());
        Ok(format!("{config} is what it was before"))
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

    /// Validates, keeps the former, and puts the new one in its place whole.
    fn replace(&self, before: Option<&str>, after: &str) -> Result<()> {
        let draft = self.config.with_extension("json.ctlmgr-new");
        put(&draft, after)?;
        let checked =
            self.run(&self.dockerd, &["--validate", "--config-file", &draft.to_string_lossy()]);
        let _ = fs::remove_file(&draft);
        checked.context("dockerd refuses the changed configuration, so it was not changed")?;
        // What is kept is the file without us, however often and in whatever steps we are enabled.
        if let Some(text) =
            before.filter(|t| daemon_json::in_use(t).is_ok_and(|u| u == Use::default()))
        {
            put(&self.backup(), text)?;
        }
        self.write(after)
    }

    fn write(&self, text: &str) -> Result<()> {
        let draft = self.config.with_extension("json.ctlmgr-new");
        put(&draft, text)?;
        fs::rename(&draft, &self.config)
            .with_context(|| format!("failed to write {}", self.config.display()))
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

    fn is_dockerd_active(&self) -> bool {
        self.run(&self.systemctl, &["is-active", "--quiet", "docker.service"]).is_ok()
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

/// Writes a file durably, for its owner and readers as dockerd's own.
fn put(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let write = || {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut file = fs::File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("failed to write {}", path.display()))
}

/// Where distributions put runc, in the order of dockerd's own search; by name if it is elsewhere.
pub fn real_runc() -> String {
    const PLACES: [&str; 4] =
        ["/usr/bin/runc", "/usr/sbin/runc", "/usr/local/bin/runc", "/usr/local/sbin/runc"];
    PLACES.into_iter().find(|path| Path::new(path).exists()).unwrap_or("runc").to_owned()
}
