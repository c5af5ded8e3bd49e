//! A container's cgroup, with what dockerd said about it.

use ctlmgr_model::{CgroupPath, ContainerFacts, Group, Source, Workload, WorkloadName};

use crate::sensor::Query;

/// Whether it is where dockerd puts its containers: with systemd's help, or without.
fn is_of_docker(path: &CgroupPath) -> bool {
    let is_below = path.parent().is_some_and(|parent| parent.name() == "docker");
    is_below || path.name().starts_with("docker-")
}

/// The workload that `group` is, by what dockerd said of `id`.
pub(crate) fn container(query: &Query, id: String, group: Group) -> Workload {
    // Below a user's manager anybody may give a cgroup the name of another's container.
    let is_ours = !group.path.is_of_user();
    let facts = query.containers.get(&id).filter(|_| is_ours).cloned();
    // Its slice may be any.
    let is_dockers = facts.is_some() || (is_ours && is_of_docker(&group.path));
    let mut facts = facts.unwrap_or_else(|| ContainerFacts {
        id,
        is_untold: is_dockers && query.is_docker_away,
        ..ContainerFacts::default()
    });
    facts.is_unheard = is_dockers && query.is_docker_away;
    facts.is_unstarted = is_dockers && !query.is_docker_away && !facts.is_running;
    let name = facts.name.clone().unwrap_or_else(|| facts.id.chars().take(12).collect());
    Workload { name: WorkloadName(name), source: Source::Container(facts), group }
}
