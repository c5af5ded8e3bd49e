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
const MAX_DEPTH: usize = 16;

/// All cgroups of interest, found by walking slices and plain directories.
pub(crate) fn walk(cgroups: &Hierarchy, units: &[Pattern]) -> Result<Vec<(CgroupPath, Kind)>> {
    let mut found = Vec::new();
    let mut open = vec![CgroupPath::new("")];
    while let Some(parent) = open.pop() {
        for path in cgroups.children(&parent)? {
            match classify(&path, units) {
                Some(kind) => found.push((path, kind)),
                None if path.ancestors().count() < MAX_DEPTH => open.push(path),
                None => {}
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// What `path` is; `None` for a directory to look into.
fn classify(path: &CgroupPath, units: &[Pattern]) -> Option<Kind> {
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

/// The container id in `docker-<id>.scope` (systemd driver) or `<parent>/<id>` (cgroupfs driver).
fn container_id(path: &CgroupPath) -> Option<&str> {
    let name = path.name();
    let id = match name.strip_prefix("docker-") {
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
        assert_eq!(of("docker"), None);
        assert_eq!(of("a.slice"), None);
        assert_eq!(of("a.slice/docker-short.scope"), Some(Kind::Bystander));
        assert_eq!(of("system.slice/pg.service"), Some(Kind::Unit("pg.service".into())));
        assert_eq!(of("system.slice/ssh.service"), Some(Kind::Bystander));
    }
}
