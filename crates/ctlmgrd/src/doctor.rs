//! `ctlmgr doctor`: what on this host stops ctlmgr from working, in plain words.

use ctlmgr_api::{Difference, Finding, Severity};
use ctlmgr_model::{Bytes, Heeding, LruFlavour, Snapshot};
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
    /// What the running daemon has seen of how the kernel treats memory.low.
    pub heeding: Option<Heeding>,
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
    out.extend([
        swap(examination),
        lru(examination),
        docker(examination),
        plugin(facts),
        slices(facts),
    ]);
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
        reclaim(facts),
        expect(
            "PSI",
            facts.has_psi,
            "on",
            Severity::Warning,
            "pressure stall information is off: boot with psi=1; until then ctlmgr looks every few \
             seconds instead of being woken, goes by weight and size alone, and brakes, freezes and \
             probes nobody",
        ),
    ]
}

fn swap(examination: &Examination) -> Finding {
    let host = examination.snapshot.as_ref().map(|s| &s.host);
    if let Some(warning) = host.and_then(ctlmgr_policy::swap_warning) {
        return finding("swap", Severity::Warning, &warning);
    }
    expect(
        "swap",
        examination.facts.has_swap,
        "configured",
        Severity::Warning,
        "no swap: anonymous memory cannot be reclaimed, only page cache can; add swap or zram",
    )
}

/// Whether memory can be asked for, and of page cache alone.
fn reclaim(facts: &HostFacts) -> Finding {
    let lacking = |advice| finding("memory.reclaim", Severity::Warning, advice);
    match (facts.has_reclaim, before(&facts.kernel, (6, 9))) {
        (false, _) => lacking(
            "this kernel has no memory.reclaim (5.19 or newer): a memory.high for the time of one \
             write takes its place",
        ),
        (true, true) => lacking(
            "it cannot be asked for page cache alone (6.9 or newer): who reads without end is held \
             back by its memory.high, and no memory is made free from what it has read",
        ),
        (true, false) => finding("memory.reclaim", Severity::Ok, "available"),
    }
}

/// Whether the kernel's own reclaim heeds memory.low: as was seen, or before enough was, as its version says.
fn lru(examination: &Examination) -> Finding {
    let Examination { facts, heeding, .. } = examination;
    let is_old = facts.lru == Some(LruFlavour::Mglru) && before(&facts.kernel, (6, 17));
    let evidence = match heeding {
        Some(Heeding { taken, expected, is_heeded: Some(_) }) => format!(
            "seen: where {expected} would have been theirs, it took {taken} from those within their \
             memory.low"
        ),
        Some(_) => "by its version and page aging; what was seen says neither".to_owned(),
        None => "by its version and page aging; nothing was seen of it yet".to_owned(),
    };
    let advice = match facts.lru {
        Some(LruFlavour::Mglru) => {
            "Classic lists keep memory.low: lru = \"classic\" under \
             [memory]. Of two services promised 400 and 800 MiB the larger made 9 % of its accesses in \
             time on the plain kernel with MGLRU and 56 % with classic lists, at worst; with ctlmgr \
             acting, 98 and 98 %"
        }
        _ => "Is there more of memory.low and memory.min than of memory?",
    };
    let advice = format!(
        "kernel {}: the kernel's own reclaim largely ignores memory.low ({evidence}); ctlmgr reclaims \
         early in mode act to stay ahead of it. {advice}",
        facts.kernel
    );
    let seen = heeding.and_then(|seen| seen.is_heeded);
    let is_weak = seen.map_or(is_old, |is_heeded| !is_heeded);
    let fine = format!("memory.low is honoured ({evidence})");
    expect("page aging", !is_weak, &fine, Severity::Warning, &advice)
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
            heeding: None,
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
    fn what_was_seen_of_memory_low_counts_for_more_than_the_version() {
        let judged = |kernel: &str, is_heeded| {
            let mut examination = healthy();
            (examination.facts.kernel, examination.facts.lru) =
                (kernel.into(), Some(LruFlavour::Mglru));
            let (taken, expected) = (Bytes::mib(3), Bytes::mib(64));
            examination.heeding = Some(Heeding { taken, expected, is_heeded });
            judge(&examination).into_iter().find(|f| f.check == "page aging").unwrap()
        };
        let seen = judged("6.12.1", Some(true));
        assert_eq!(seen.severity, Severity::Ok);
        assert!(
            seen.message.contains("where 64 MiB would have been theirs, it took 3 MiB"),
            "{seen:?}"
        );
        assert_eq!(judged("6.18.1", Some(false)).severity, Severity::Warning);
        assert_eq!(judged("6.12.1", None).severity, Severity::Warning);
        assert_eq!(judged("6.18.1", None).severity, Severity::Ok);
    }

    #[test]
    fn what_memory_reclaim_cannot_do_is_said_by_version() {
        let said = |kernel: &str, has_reclaim| {
            let mut examination = healthy();
            (examination.facts.kernel, examination.facts.has_reclaim) =
                (kernel.into(), has_reclaim);
            let mut judged = judge(&examination).into_iter();
            judged.find(|f| f.check == "memory.reclaim").unwrap().message
        };
        assert!(said("5.15.0", false).contains("no memory.reclaim (5.19 or newer)"));
        assert!(said("6.8.12", true).contains("page cache alone (6.9 or newer)"));
        assert_eq!(said("6.9.0", true), "available");
    }

    #[test]
    fn each_fault_is_found() {
        let cases: [(&str, Severity, Break); 11] = [
            ("cgroup v2", Severity::Fatal, |e| e.facts.has_cgroup2 = false),
            ("memory controller", Severity::Fatal, |e| e.facts.controllers.clear()),
            ("memory.reclaim", Severity::Warning, |e| e.facts.has_reclaim = false),
            ("memory.reclaim", Severity::Warning, |e| e.facts.kernel = "6.8.0-49-generic".into()),
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
