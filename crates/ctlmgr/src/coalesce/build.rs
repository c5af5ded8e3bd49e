//! One image from two containers.
//!
//! Over the image of the first lies what only that of the second has, the list of services, and the program
//! that runs them; so the layers of the first are shared as before.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::inspect::Service;
use super::merge::{Comparison, Tree, compare, copy_additions, read_tree};
use crate::docker_cli::docker;

/// Where the program is, on this host and in the image.
pub(super) const PROGRAM: &str = "/usr/libexec/ctlmgr/ctlmgr-init";
const DIRECTORY: &str = ".ctlmgr";
pub(super) const ENTRY: &str = "/.ctlmgr/init";

/// The exported file systems of two images.
pub(super) struct Exports {
    directory: tempfile::TempDir,
}

impl Exports {
    /// Exports both; takes as much room below the temporary directory as they have files.
    pub fn of(a: &Service, b: &Service) -> Result<Exports, anyhow::Error> {
        // Not in memory, as /tmp is on many hosts.
        let directory = tempfile::Builder::new().prefix("ctlmgr-").tempdir_in("/var/tmp");
        let exports = Exports { directory: directory.context("failed to make a directory")? };
        export(&a.image_id, &exports.path("a"))?;
        export(&b.image_id, &exports.path("b"))?;
        Ok(exports)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// How they go together.
    pub fn compare(&self, a: &Service, b: &Service) -> Result<Comparison, anyhow::Error> {
        let tree = |name| -> Result<_, anyhow::Error> {
            let file = File::open(self.path(name)).context("failed to read an export")?;
            read_tree(std::io::BufReader::new(file)).context("failed to understand an export")
        };
        let trees = [tree("a")?, tree("b")?];
        let hidden = hidden(a, b, &trees[1]).into_iter().chain(hidden(b, a, &trees[0])).collect();
        Ok(Comparison { hidden, ..compare(&trees[0], &trees[1]) })
    }
}

/// What mounts of one would hide of the other one's files.
fn hidden(of: &Service, other: &Service, files: &Tree) -> Vec<String> {
    let places = of.mounted.keys().chain(of.tmpfs.keys());
    // What it mounts there itself it has hidden already.
    let new =
        places.filter(|at| !other.mounted.contains_key(*at) && !other.tmpfs.contains_key(*at));
    let first = |at: &String| Some((at.clone(), files.first_below(at)?.to_owned()));
    new.filter_map(first)
        .map(|(at, file)| {
            format!("what {} mounts at {at} would hide /{file} of {}", of.name, other.name)
        })
        .collect()
}

/// A container of docker that is removed with this value.
struct Draft(String);

impl Draft {
    fn of(image: &str) -> Result<Draft, anyhow::Error> {
        // Its command is never run.
        let id = docker(&["create", "--network", "none", "--entrypoint", "/none", "--", image])?;
        Ok(Draft(id.trim().to_owned()))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // A container that never ran and stays costs a line in `docker ps -a`.
        let _ = docker(&["rm", "--force", "--volumes", &self.0]);
    }
}

fn export(image: &str, to: &Path) -> Result<(), anyhow::Error> {
    let draft = Draft::of(image)?;
    let file = File::create(to).with_context(|| format!("failed to make {}", to.display()))?;
    let status = Command::new("docker").args(["export", &draft.0]).stdout(file).status();
    match status.context("failed to run docker")?.success() {
        true => Ok(()),
        false => bail!("failed to export {image}"),
    }
}

/// Builds the image `name`.
pub(super) fn build(
    (a, b): (&Service, &Service),
    exports: &Exports,
    comparison: &Comparison,
    name: &str,
) -> Result<(), anyhow::Error> {
    let draft = Draft::of(&a.image_id)?;
    let mut child = Command::new("docker")
        .args(["cp", "-", &format!("{}:/", draft.0)])
        .stdin(Stdio::piped())
        .spawn()
        .context("failed to run docker cp")?;
    let mut to = Builder::new(child.stdin.take().context("docker cp has no input")?);
    let from = std::io::BufReader::new(File::open(exports.path("b"))?);
    let copied = copy_additions(from, &comparison.additions, &mut to)
        .and_then(|()| add_program(&mut to, &[a, b]))
        .and_then(|()| to.into_inner());
    drop(copied.context("failed to send files to docker cp")?);
    if !child.wait()?.success() {
        bail!("docker cp failed");
    }
    let mut words = vec!["commit".to_owned()];
    for change in changes(a, b) {
        words.extend(["--change".to_owned(), change]);
    }
    words.extend(["--".to_owned(), draft.0.clone(), name.to_owned()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    docker(&words).map(drop)
}

fn add_program<W: Write>(to: &mut Builder<W>, services: &[&Service]) -> std::io::Result<()> {
    let mut directory = header(0o755, 0);
    directory.set_entry_type(EntryType::Directory);
    to.append_data(&mut directory, format!("{DIRECTORY}/"), std::io::empty())?;
    let program = std::fs::read(PROGRAM)?;
    to.append_data(&mut header(0o755, program.len()), ENTRY.trim_start_matches('/'), &program[..])?;
    let list = list(services).to_string();
    let path = format!("{DIRECTORY}/services.json");
    to.append_data(&mut header(0o644, list.len()), path, list.as_bytes())
}

fn header(mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

/// What `ctlmgr-init` reads. What only the containers have of environment is no part of the image: it may be
/// secret.
fn list(services: &[&Service]) -> Value {
    let one = |s: &&Service| json!({"name": s.name, "argv": s.argv, "env": s.image_env, "dir": s.dir, "stop": s.stop});
    services.iter().map(one).collect()
}

/// Instructions for `docker commit`.
fn changes(a: &Service, b: &Service) -> Vec<String> {
    let mut all = vec![format!("ENTRYPOINT [\"{ENTRY}\"]"), "CMD []".to_owned()];
    // Without one the image says none either; and not every image knows a user by the name of root.
    all.extend((!a.user.is_empty()).then(|| format!("USER {}", a.user)));
    all.push("WORKDIR /".to_owned());
    all.push("STOPSIGNAL SIGTERM".to_owned());
    all.extend(a.ports.union(&b.ports).map(|port| format!("EXPOSE {port}")));
    // Without an instruction the first image's own check would stay.
    let check = checked([a, b]).and_then(|(test, check)| health(&test, check));
    all.push(check.unwrap_or_else(|| "HEALTHCHECK NONE".to_owned()));
    all.push(format!("LABEL ctlmgr.coalesced=\"{} {}\"", a.name, b.name));
    all
}

/// The check of the first that has one, and the words that run it as that service runs.
pub(super) fn checked<'a>(services: [&'a Service; 2]) -> Option<(Vec<String>, &'a Value)> {
    let one = |(index, s): (usize, &'a Service)| {
        let check = s.health.as_ref()?;
        let test = check["Test"].as_array()?;
        let words: Vec<&str> = test.iter().filter_map(Value::as_str).collect();
        let test = match words[..] {
            ["CMD-SHELL", text] => vec!["/bin/sh", "-c", text],
            ["CMD", ..] => words[1..].to_vec(),
            _ => return None,
        };
        let number = index.to_string();
        let words = [&[ENTRY, "exec", &number], &test[..]].concat();
        Some((words.into_iter().map(str::to_owned).collect(), check))
    };
    services.into_iter().enumerate().find_map(one)
}

/// A health check as it is written in a Dockerfile.
fn health(test: &[String], check: &Value) -> Option<String> {
    let command = serde_json::to_string(test).ok()?;
    let mut options = String::new();
    for (field, name) in [
        ("Interval", "interval"),
        ("Timeout", "timeout"),
        ("StartPeriod", "start-period"),
        ("StartInterval", "start-interval"),
    ] {
        // Nanoseconds, of which dockerd takes no fewer than a million.
        let ms = check[field].as_u64().map(|nanos| nanos / 1_000_000).filter(|ms| *ms > 0);
        options.extend(ms.map(|ms| format!("--{name}={ms}ms ")));
    }
    let retries = check["Retries"].as_u64().filter(|n| *n > 0);
    options.extend(retries.map(|n| format!("--retries={n} ")));
    Some(format!("HEALTHCHECK {options}CMD {command}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_says_what_both_said() {
        let a = Service { name: "a".into(), ports: ["80/tcp".into()].into(), ..Service::default() };
        let check = json!({"Test": ["CMD", "/ok", "x"], "Interval": 5_000_000_000_u64, "StartInterval": 500_000_000, "Retries": 3});
        let b = Service {
            name: "b".into(),
            ports: ["90/tcp".into()].into(),
            health: Some(check),
            own_env: [("SECRET".to_owned(), "s".to_owned())].into(),
            ..Service::default()
        };
        let all = changes(&a, &b);
        for expected in [
            "ENTRYPOINT [\"/.ctlmgr/init\"]",
            "EXPOSE 80/tcp",
            "EXPOSE 90/tcp",
            "HEALTHCHECK --interval=5000ms --start-interval=500ms --retries=3 CMD [\"/.ctlmgr/init\",\"exec\",\"1\",\"/ok\",\"x\"]",
        ] {
            assert!(all.iter().any(|line| line == expected), "{expected}: {all:?}");
        }
        assert!(!all.iter().any(|line| line.starts_with("USER")), "{all:?}");
        assert!(changes(&a, &a).contains(&"HEALTHCHECK NONE".to_owned()));
        assert!(!list(&[&a, &b]).to_string().contains("SECRET"));
        let shell = Service {
            health: Some(json!({"Test": ["CMD-SHELL", "a\nb \"c\""]})),
            ..Service::default()
        };
        let (test, check) = checked([&shell, &a]).unwrap();
        let shell = health(&test, check).unwrap();
        assert!(!shell.contains('\n'), "it would begin another instruction: {shell}");
        assert!(shell.ends_with(r#""exec","0","/bin/sh","-c","a\nb \"c\""]"#), "{shell}");
    }
}
