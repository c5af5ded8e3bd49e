//! `ctlmgr doctor`: what on this host stops ctlmgr from working, in plain words.

use ctlmgr_api::{Difference, Finding, Severity};
use ctlmgr_model::{Bytes, LruFlavour, Snapshot};
use ctlmgr_sense::HostFacts;

/// Everything that is judged.
#[derive(Debug)]
pub struct Examination {
    /// Facts of the host.
    pub facts: HostFacts,
    /// Version of dockerd, if it answers.
    pub docker: Option<String>,
    /// A reading, where one could be made.
    pub snapshot: Option<Snapshot>,
    /// Knobs that differ from before ctlmgr.
    pub differences: Vec<Difference>,
}

/// Judges an examination; pure.
pub fn judge(examination: &Examination) -> Vec<Finding> {
    let facts = &examination.facts;
    if !facts.has_cgroup2 {
        return vec![finding(
            "cgroup v2",
            Severity::Fatal,
            "no cgroup v2 hierarchy at /sys/fs/cgroup: boot with systemd.unified_cgroup_hierarchy=1",
        )];
    }
    let mut out = kernel(facts);
    out.extend([swap(facts), lru(facts), docker(examination), plugin(facts), slices(facts)]);
    out.push(cover(examination.snapshot.as_ref()));
    out.push(writers(&examination.differences));
    out
}

fn finding(check: &str, severity: Severity, message: &str) -> Finding {
    Finding { check: check.to_owned(), severity, message: message.to_owned() }
}

/// One check: fine, or not and then how bad and what to do.
fn expect(check: &str, is_well: bool, fine: &str, severity: Severity, advice: &str) -> Finding {
    match is_well {
        true => finding(check, Severity::Ok, fine),
        false => finding(check, severity, advice),
    }
}

fn kernel(facts: &HostFacts) -> Vec<Finding> {
    let has_memory = facts.controllers.iter().any(|c| c == "memory");
    vec![
        finding("cgroup v2", Severity::Ok, "mounted at /sys/fs/cgroup"),
        expect(
            "memory controller",
            has_memory,
            "available",
            Severity::Fatal,
            "the memory controller is off: remove cgroup_disable=memory from the kernel command line",
        ),
        expect(
            "systemd",
            facts.has_systemd,
            "is the system manager",
            Severity::Warning,
            "systemd is not the system manager: knobs are written to the files directly",
        ),
        expect(
            "memory.reclaim",
            facts.has_reclaim,
            "available",
            Severity::Warning,
            "this kernel has no memory.reclaim (5.19 or newer): a memory.high for the time of one \
             write takes its place",
        ),
        expect(
            "PSI",
            facts.has_psi,
            "on",
            Severity::Warning,
            "pressure stall information is off: boot with psi=1; until then ctlmgr looks every few \
             seconds instead of being woken",
        ),
    ]
}

fn swap(facts: &HostFacts) -> Finding {
    expect(
        "swap",
        facts.has_swap,
        "configured",
        Severity::Warning,
        "no swap: anonymous memory cannot be reclaimed, only page cache can; add swap or zram",
    )
}

fn lru(facts: &HostFacts) -> Finding {
    let is_weak = facts.lru == Some(LruFlavour::Mglru) && before(&facts.kernel, (6, 17));
    let advice = format!(
        "kernel {} with MGLRU: the kernel's own reclaim largely ignores memory.low; ctlmgr reclaims \
         early in mode act to stay ahead of it. Classic lists keep memory.low: lru = \"classic\" under \
         [memory]. Of two services promised 400 and 800 MiB the larger made 8 % of its accesses in \
         time on the plain kernel with MGLRU and 40 % with classic lists, at worst; with ctlmgr \
         acting, 96 and 95 %",
        facts.kernel
    );
    expect("page aging", !is_weak, "memory.low is honoured", Severity::Warning, &advice)
}

/// Whether a release such as `6.12.1-amd64` is older than `major.minor`.
fn before(release: &str, than: (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) < than,
        _ => false,
    }
}

fn docker(examination: &Examination) -> Finding {
    let Some(version) = &examination.docker else {
        return finding(
            "dockerd",
            Severity::Warning,
            "does not answer: containers are found, but without names, labels and promises",
        );
    };
    let advice = format!("{version} is too old: cgroup v2 takes 20.10 or newer");
    expect("dockerd", !before(version, (20, 10)), version, Severity::Fatal, &advice)
}

/// dockerd fails every request while its plugin is gone.
fn plugin(facts: &HostFacts) -> Finding {
    let fine = match facts.is_asked {
        true => "dockerd asks before every start",
        false => {
            "dockerd does not ask: `ctlmgr docker enable` if starts are to wait for each other"
        }
    };
    expect(
        "starts",
        facts.has_plugin_socket || !facts.is_asked,
        fine,
        Severity::Fatal,
        "dockerd is told to ask ctlmgr before every request, but nobody listens at \
         /run/ctlmgr/docker.sock: systemctl start ctlmgr-docker.socket, or ctlmgr docker disable",
    )
}

fn slices(facts: &HostFacts) -> Finding {
    let names: Vec<String> = facts.slices_without_memory.iter().map(ToString::to_string).collect();
    let advice = format!(
        "no memory controller below {}: its containers cannot be protected",
        names.join(", ")
    );
    expect("controller on slices", names.is_empty(), "passed on", Severity::Fatal, &advice)
}

/// Containers with a reservation below a slice that has none: the reservation does nothing.
fn cover(snapshot: Option<&Snapshot>) -> Finding {
    let low_of = |path: &ctlmgr_model::CgroupPath| {
        let ancestors = snapshot.iter().flat_map(|s| &s.ancestors);
        ancestors.filter(|a| a.path == *path).map(|a| a.memory.low).next().unwrap_or_default()
    };
    let uncovered: Vec<&str> = snapshot
        .iter()
        .flat_map(|s| &s.workloads)
        .filter(|w| w.group.memory.low > Bytes::ZERO)
        .filter(|w| w.group.path.ancestors().any(|a| low_of(&a) < w.group.memory.low))
        .map(|w| w.name.0.as_str())
        .collect();
    let advice = format!(
        "memory reservations of {} do nothing: a slice above them has no memory.low; mode act covers \
         them",
        uncovered.join(", ")
    );
    expect(
        "cover",
        uncovered.is_empty(),
        "every reservation is covered",
        Severity::Warning,
        &advice,
    )
}

fn writers(differences: &[Difference]) -> Finding {
    let foreign: Vec<String> = differences
        .iter()
        .filter(|d| d.present.as_ref().is_some_and(|p| *p != d.ours))
        .map(|d| format!("{} {}", d.path, d.knob))
        .collect();
    let advice =
        format!("changed by somebody else after ctlmgr wrote them: {}", foreign.join(", "));
    expect("other writers", foreign.is_empty(), "none seen", Severity::Warning, &advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Examination {
        Examination {
            facts: HostFacts {
                has_cgroup2: true,
                controllers: vec!["memory".into()],
                slices_without_memory: Vec::new(),
                has_reclaim: true,
                has_psi: true,
                lru: Some(LruFlavour::Classic),
                kernel: "6.18.1".into(),
                has_swap: true,
                has_systemd: true,
                is_asked: true,
                has_plugin_socket: true,
            },
            docker: Some("26.1.5".into()),
            snapshot: None,
            differences: Vec::new(),
        }
    }

    /// Makes one thing wrong.
    type Break = fn(&mut Examination);

    fn worst(examination: &Examination) -> (Severity, String) {
        let worst = judge(examination).into_iter().max_by_key(|f| f.severity).unwrap();
        (worst.severity, worst.check)
    }

    #[test]
    fn a_healthy_host_is_well() {
        assert_eq!(worst(&healthy()).0, Severity::Ok);
    }

    #[test]
    fn each_fault_is_found() {
        let cases: [(&str, Severity, Break); 9] = [
            ("cgroup v2", Severity::Fatal, |e| e.facts.has_cgroup2 = false),
            ("memory controller", Severity::Fatal, |e| e.facts.controllers.clear()),
            ("PSI", Severity::Warning, |e| e.facts.has_psi = false),
            ("swap", Severity::Warning, |e| e.facts.has_swap = false),
            ("dockerd", Severity::Warning, |e| e.docker = None),
            ("dockerd", Severity::Fatal, |e| e.docker = Some("19.3.1".into())),
            ("page aging", Severity::Warning, |e| {
                (e.facts.kernel, e.facts.lru) = ("6.12.1-amd64".into(), Some(LruFlavour::Mglru));
            }),
            ("starts", Severity::Fatal, |e| e.facts.has_plugin_socket = false),
            ("controller on slices", Severity::Fatal, |e| {
                e.facts.slices_without_memory.push(ctlmgr_model::CgroupPath::new("a.slice"));
            }),
        ];
        for (check, severity, break_it) in cases {
            let mut examination = healthy();
            break_it(&mut examination);
            assert_eq!(worst(&examination), (severity, check.to_owned()));
        }
    }
}
