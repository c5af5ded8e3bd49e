//! Changes asked for at run time, kept as configuration fragments in `/run` until reboot.
//!
//! Their names sort behind what people choose: asked for at run time wins.
//! So `ctlmgr config show` shows them, a restart keeps them, and removing a file takes one back.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use ctlmgr_api::Job;
use ctlmgr_model::{Mode, Weight};

/// Sets or clears the run-time mode of a job.
pub(crate) fn set_mode(directory: &Path, job: Job, mode: Option<Mode>) -> io::Result<()> {
    let (table, file) = match job {
        Job::Memory => ("memory", "zz-mode.toml"),
        Job::Starts => ("starts", "zz-mode-starts.toml"),
        Job::Place => ("place", "zz-mode-place.toml"),
    };
    put(directory, file, mode.map(|mode| format!("[{table}]\nmode = \"{mode}\"\n")))
}

/// What makes a workload heavy or light.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heaviness<'a> {
    /// By itself: it has no class.
    Weight(Weight),
    /// With all that its class may and may not.
    Class(&'a str),
}

/// Sets or clears the run-time weight of a workload.
///
/// # Errors
/// The name has characters that no container or unit has.
pub(crate) fn set_weight(
    directory: &Path,
    name: &str,
    wanted: Option<Heaviness<'_>>,
) -> io::Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-@:".contains(c);
    if name.is_empty() || name.len() > 200 || !name.chars().all(is_plain) {
        let message = format!("`{name}` is no name of a container or unit");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let text = wanted.map(|wanted| {
        let effect = match wanted {
            Heaviness::Weight(weight) => format!("weight = {weight}"),
            Heaviness::Class(class) => format!("class = {class:?}"),
        };
        format!("[[rule]]\nname = \"{name}\"\n{effect}\n")
    });
    put(directory, &format!("zz-weight-{name}.toml"), text)
}

/// Writes a fragment whole, or removes it; an error names the file.
fn put(directory: &Path, name: &str, text: Option<String>) -> io::Result<()> {
    let path = directory.join(name);
    try_put(directory, &path, text).map_err(|error| {
        io::Error::new(error.kind(), format!("failed to write {}: {error}", path.display()))
    })
}

fn try_put(directory: &Path, path: &Path, text: Option<String>) -> io::Result<()> {
    let Some(text) = text else {
        return match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    };
    fs::create_dir_all(directory)?;
    // Written beside and renamed, so that nobody ever reads half a fragment.
    let draft = path.with_extension("new");
    let mut file = fs::File::create(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("run/ctlmgr/config.d");
        set_mode(&at, Job::Memory, Some(Mode::Act)).unwrap();
        set_mode(&at, Job::Starts, Some(Mode::Off)).unwrap();
        let weight = Weight::new(400).unwrap();
        set_weight(&at, "web-1", Some(Heaviness::Weight(weight))).unwrap();
        let settings = ctlmgr_config::load(dir.path()).unwrap();
        assert_eq!((settings.memory.mode, settings.starts.mode), (Mode::Act, Mode::Off));
        assert_eq!(settings.rules.len(), 1);
        set_weight(&at, "web-1", Some(Heaviness::Class("critical"))).unwrap();
        let settings = ctlmgr_config::load(dir.path()).unwrap();
        assert_eq!(settings.rules[0].effect.class.as_deref(), Some("critical"));
        // A class that is gone since keeps nobody from starting.
        set_weight(&at, "web-2", Some(Heaviness::Class("gold"))).unwrap();
        assert_eq!(ctlmgr_config::load(dir.path()).unwrap().rules.len(), 1);
        set_weight(&at, "web-2", None).unwrap();
        set_mode(&at, Job::Starts, None).unwrap();
        set_mode(&at, Job::Memory, None).unwrap();
        set_mode(&at, Job::Memory, None).unwrap();
        set_weight(&at, "web-1", None).unwrap();
        assert_eq!(ctlmgr_config::load(dir.path()).unwrap(), ctlmgr_model::Settings::default());
    }

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", "../x", "a/b", "a\"b", "web-*"] {
            assert!(
                set_weight(dir.path(), name, Some(Heaviness::Weight(Weight::DEFAULT))).is_err(),
                "{name}"
            );
        }
    }
}
