//! Which cgroups are containers, chosen units, bystanders or slices.

use ctlmgr_host::{Hierarchy, Result};
use ctlmgr_model::CgroupPath;
use glob::Pattern;

/// What a cgroup is to ctlmgr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A container of dockerd, with its full id.
    Container(String),
    /// A unit chosen by configuration.
    Unit(String),
    /// Something else that holds processes.
    Bystander,
}

/// Deepest nesting that is looked into; slices of systemd nest by name and stay far below.
pub(crate) const MAX_DEPTH: usize = 16;

/// All cgroups of interest, found by walking slices and plain directories.
pub(crate) fn walk(cgroups: &Hierarchy, units: &[Pattern]) -> Result<Vec<(CgroupPath, Kind)>> {
    let mut found = below(cgroups, units, &CgroupPath::new(""))?;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn below(
    cgroups: &Hierarchy,
    units: &[Pattern],
    top: &CgroupPath,
) -> Result<Vec<(CgroupPath, Kind)>> {
    let mut found = Vec::new();
    let mut open = vec![top.clone()];
    while let Some(parent) = open.pop() {
        for path in cgroups.children(&parent)? {
            match classify(&path, units) {
                Some(Kind::Bystander) if path.is_user_manager() => {
                    found.extend(user_manager(cgroups, units, path)?);
                }
                Some(kind) => found.push((path, kind)),
                None if path.ancestors().count() < MAX_DEPTH => open.push(path),
                None => {}
            }
        }
    }
    Ok(found)
}

/// What a user's manager runs: rootless containers are found in it; without any it is one thing.
fn user_manager(
    cgroups: &Hierarchy,
    units: &[Pattern],
    path: CgroupPath,
) -> Result<Vec<(CgroupPath, Kind)>> {
    let inside = below(cgroups, units, &path)?;
    let has_container = inside.iter().any(|(_, kind)| matches!(kind, Kind::Container(_)));
    Ok(if has_container { inside } else { vec![(path, Kind::Bystander)] })
}

/// What `path` is; `None` for a directory to look into.
pub(crate) fn classify(path: &CgroupPath, units: &[Pattern]) -> Option<Kind> {
    let name = path.name();
    if let Some(id) = container_id(path) {
        return Some(Kind::Container(id.to_owned()));
    }
    if path.unit().is_some() && units.iter().any(|p| p.matches(name)) {
        return Some(Kind::Unit(name.to_owned()));
    }
    let is_leaf = [".service", ".scope", ".mount", ".swap", ".socket"];
    is_leaf.iter().any(|end| name.ends_with(end)).then_some(Kind::Bystander)
}

/// The container id in `docker-<id>.scope` (systemd driver), `libpod-<id>.scope` (podman), or
/// `<parent>/<id>` (cgroupfs driver).
fn container_id(path: &CgroupPath) -> Option<&str> {
    let name = path.name();
    let scope = ["docker-", "libpod-"].iter().find_map(|engine| name.strip_prefix(engine));
    let id = match scope {
        Some(rest) => rest.strip_suffix(".scope")?,
        None => name,
    };
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        let id = "0123456789abcdef".repeat(4);
        let of = |path: &str| classify(&CgroupPath::new(path), &[Pattern::new("pg*").unwrap()]);
        assert_eq!(
            of(&format!("system.slice/docker-{id}.scope")),
            Some(Kind::Container(id.clone()))
        );
        assert_eq!(of(&format!("docker/{id}")), Some(Kind::Container(id.clone())));
        let podman = of(&format!("machine.slice/libpod-{id}.scope"));
        assert_eq!(podman, Some(Kind::Container(id.clone())));
        let watcher = of(&format!("machine.slice/libpod-conmon-{id}.scope"));
        assert_eq!(watcher, Some(Kind::Bystander));
        assert_eq!(of("docker"), None);
        assert_eq!(of("a.slice"), None);
        assert_eq!(of("a.slice/docker-short.scope"), Some(Kind::Bystander));
        assert_eq!(of("system.slice/pg.service"), Some(Kind::Unit("pg.service".into())));
        assert_eq!(of("system.slice/ssh.service"), Some(Kind::Bystander));
    }

    /// Rootless engines live below the user's manager, which is one bystander otherwise.
    #[test]
    fn rootless_containers_are_found_in_a_users_manager() {
        let dir = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            std::fs::create_dir_all(dir.path().join("sys/fs/cgroup").join(path)).unwrap();
        };
        make("user.slice/user-1000.slice/user@1000.service/app.slice/editor.service");
        std::fs::write(dir.path().join("sys/fs/cgroup/cgroup.controllers"), "").unwrap();
        let cgroups = ctlmgr_host::Host::fake(dir.path()).cgroups().unwrap();
        let names = || -> Vec<String> {
            let found = walk(&cgroups, &[]).unwrap();
            found.iter().map(|(path, _)| path.name().to_owned()).collect()
        };
        assert_eq!(names(), ["user@1000.service"]);
        let scope = format!("docker-{}.scope", "0123456789abcdef".repeat(4));
        make(&format!("user.slice/user-1000.slice/user@1000.service/user.slice/{scope}"));
        assert_eq!(names(), ["editor.service", scope.as_str()]);
    }
}
