//! Bystanders: units that are not managed, and which of them are large enough to count one by one.
//!
//! Most units of a host are small. Of those three files are read in place of sixteen.

use ctlmgr_host::CgroupDir;
use ctlmgr_model::{Bytes, Group, MemorySample};

use crate::cgroup::{parse_protection, read};

/// A bystander smaller than this, or than one part in [`SMALL`] of the machine, counts as part of the host.
const NOTEWORTHY: Bytes = Bytes::mib(32);
const SMALL: u64 = 256;
/// However small, nothing is done without the system's manager.
const MANAGER: &str = "init.scope";

/// From here on a bystander of a machine with so much memory is one of its own.
pub(crate) fn noteworthy(total: Bytes) -> Bytes {
    NOTEWORTHY.min(Bytes(total.0 / SMALL))
}

/// Whether it is one of its own. Who is protected stays in sight.
pub(crate) fn stands_out(group: &Group, least: Bytes) -> bool {
    let is_manager = group.path.as_str() == MANAGER;
    in_use(&group.memory) >= least || group.memory.low > Bytes::ZERO || is_manager
}

/// Who was taken from is as large as before, or it would come and go with what it holds just then.
fn in_use(memory: &MemorySample) -> Bytes {
    memory.current + (memory.swap - memory.swapcached)
}

/// Whether it surely does not stand out, by as few files as that takes; what cannot be read may.
pub(crate) fn is_small(dir: &CgroupDir, least: Bytes) -> bool {
    let bytes = |name| read(dir, name, parse_protection).ok().flatten();
    let swap = || bytes("memory.swap.current").unwrap_or_default();
    let is_below = || bytes("memory.current").is_some_and(|held| held + swap() < least);
    let is_protected = || bytes("memory.low").is_some_and(|low| low > Bytes::ZERO);
    dir.cgroup().as_str() != MANAGER && is_below() && !is_protected()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_unit_counts_by_what_it_holds_and_has_in_swap_and_by_the_size_of_the_machine() {
        let counts = |current, swap, swapcached, total| {
            let [current, swap, swapcached] = [current, swap, swapcached].map(Bytes::mib);
            let memory = MemorySample { current, swap, swapcached, ..MemorySample::default() };
            in_use(&memory) >= noteworthy(Bytes::mib(total))
        };
        assert!(counts(32, 0, 0, 65_536) && !counts(31, 0, 0, 65_536));
        assert!(counts(12, 20, 0, 65_536) && !counts(12, 20, 1, 65_536));
        assert!(counts(8, 0, 0, 2048) && !counts(7, 0, 0, 2048));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Who is passed over by three files would have been by all of them.
        #[test]
        fn nobody_who_stands_out_is_passed_over(
            name in prop::sample::select(vec!["init.scope", "cron.service"]),
            files in (0_u64..40, 0_u64..40, 0_u64..40, 0_u64..2),
            is_readable in any::<bool>(),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("sys/fs/cgroup");
            std::fs::create_dir_all(root.join(name)).unwrap();
            std::fs::write(root.join("cgroup.controllers"), "memory").unwrap();
            let (current, swap, cached, low) = files;
            let write = |file: &str, text: String| std::fs::write(root.join(name).join(file), text);
            let number = |mib: u64| (mib << 20).to_string();
            write("memory.current", if is_readable { number(current) } else { "?".into() }).unwrap();
            write("memory.swap.current", number(swap)).unwrap();
            write("memory.stat", format!("swapcached {}\n", cached.min(swap) << 20)).unwrap();
            write("memory.low", number(low)).unwrap();
            let cgroups = ctlmgr_host::Host::fake(dir.path()).cgroups().unwrap();
            let open = cgroups.open(&ctlmgr_model::CgroupPath::new(name)).unwrap().unwrap();
            let least = noteworthy(Bytes::mib(65_536));
            let is_passed_over = is_small(&open, least);
            match crate::cgroup::read_group(&open) {
                Ok(Some(group)) => prop_assert!(!is_passed_over || !stands_out(&group, least)),
                _ => prop_assert!(!is_passed_over, "a gap is told"),
            }
        }
    }
}
