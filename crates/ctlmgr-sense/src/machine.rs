//! The machine as a whole: `/proc/meminfo`, PSI, the page-aging algorithm.

use ctlmgr_host::{Hierarchy, Host, HostError, Result};
use ctlmgr_model::{Bytes, HostSample, LruFlavour, Pressure, PressureLine};
use procfs_core::{
    FromBufRead, FromRead, Meminfo, MemoryPressure, PressureRecord, parse_pressure_record,
};

use crate::swap::read_zram;

/// A PSI file (kernel: accounting/psi.rst).
pub fn parse_pressure(text: &str) -> Option<Pressure> {
    let psi = MemoryPressure::from_read(text.as_bytes()).ok()?;
    Some(Pressure { some: line(&psi.some), full: line(&psi.full) })
}

fn line(record: &PressureRecord) -> PressureLine {
    PressureLine { avg10_pct: record.avg10, total_usec: record.total }
}

/// `/sys/kernel/mm/lru_gen/enabled`: a bit mask in hexadecimal, 0 is off.
pub fn parse_lru(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// Reads the machine.
///
/// # Errors
/// No usable `/proc/meminfo`: without it nothing can be decided.
pub(crate) fn read_machine(host: &Host, cgroups: &Hierarchy) -> Result<HostSample> {
    let info = read_meminfo(host)?;
    let sum = |parts: &[Option<u64>]| Bytes(parts.iter().flatten().sum());
    let (lru, lru_gen) = read_lru(host);
    // Where it cannot be told both are zero.
    let zones = host.read("proc/zoneinfo").ok().flatten().unwrap_or_default();
    Ok(HostSample {
        mem_total: Bytes(info.mem_total),
        mem_free: Bytes(info.mem_free),
        watermark: parse_watermark(&zones),
        listed_free: parse_listed_free(&zones),
        mem_available: Bytes(info.mem_available.unwrap_or(info.mem_free)),
        reclaimable_cache: sum(&[info.active_file, info.inactive_file]),
        stolen: read_stolen(host),
        swap_total: Bytes(info.swap_total),
        swap_free: Bytes(info.swap_free),
        zram: read_zram(host),
        pressure: read_pressure(host, "memory"),
        io_pressure: read_pressure(host, "io"),
        cpu_pressure: read_cpu_pressure(host),
        cpus: read_cpus(host),
        lru,
        lru_gen,
        has_reclaim: cgroups.has_reclaim(),
    })
}

/// `MemAvailable`, or `MemFree` on kernels that do not count it.
pub(crate) fn read_available(host: &Host) -> Result<Bytes> {
    read_meminfo(host).map(|info| Bytes(info.mem_available.unwrap_or(info.mem_free)))
}

fn read_meminfo(host: &Host) -> Result<Meminfo> {
    let path = "proc/meminfo";
    let text = host.read(path)?.unwrap_or_default();
    Meminfo::from_buf_read(text.as_bytes())
        .map_err(|_| HostError::malformed(host.path(path), &text))
}

/// What the kernel took by itself; absent where it cannot be told.
fn read_stolen(host: &Host) -> Option<u64> {
    parse_stolen(&host.read("proc/vmstat").ok()??)
}

/// `pgsteal_kswapd` of `/proc/vmstat`: pages that background reclaim got, since boot.
pub fn parse_stolen(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("pgsteal_kswapd "))?.trim().parse().ok()
}

/// `/proc/zoneinfo` (proc(5)): background reclaim starts below a zone's `low` watermark and goes on
/// to its `high` one.
pub fn parse_watermark(text: &str) -> Bytes {
    // The `high:` of the per-processor lists is another thing.
    pages(text, "high ")
}

/// What the lists of all processors hold, in `/proc/zoneinfo`.
pub fn parse_listed_free(text: &str) -> Bytes {
    pages(text, "count:")
}

/// Pages on all lines that begin so.
fn pages(text: &str, key: &str) -> Bytes {
    let pages = |line: &str| line.trim_start().strip_prefix(key)?.trim().parse::<u64>().ok();
    let sum = text.lines().filter_map(pages).fold(0, u64::saturating_add);
    Bytes(sum.saturating_mul(Bytes::PAGE.0))
}

/// Host-wide pressure on a resource; absent where PSI is off (reading fails then).
pub(crate) fn read_pressure(host: &Host, resource: &str) -> Option<Pressure> {
    parse_pressure(&host.read(&format!("proc/pressure/{resource}")).ok()??)
}

/// `some` of the pressure on processors, which is all that there is before Linux 5.13.
fn read_cpu_pressure(host: &Host) -> Option<PressureLine> {
    parse_cpu_pressure(&host.read("proc/pressure/cpu").ok()??)
}

/// `/proc/pressure/cpu` (kernel: accounting/psi.rst).
pub fn parse_cpu_pressure(text: &str) -> Option<PressureLine> {
    text.lines()
        .find(|line| line.starts_with("some "))
        .and_then(|some| parse_pressure_record(some).ok())
        .filter(|record| record.avg10.is_finite())
        .map(|record| line(&record))
}

/// How many processors run; absent where it cannot be told.
pub(crate) fn read_cpus(host: &Host) -> Option<u64> {
    let text = host.read("sys/devices/system/cpu/online").ok()??;
    parse_cpu_list(&text).filter(|n| *n > 0)
}

/// How many processors a list such as `0-3,8` names (kernel: admin-guide/cputopology.rst).
pub fn parse_cpu_list(text: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u32>().ok();
    let count = |part: &str| match part.split_once('-') {
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            last.checked_sub(first).map(|n| u64::from(n) + 1)
        }
        None => number(part).map(|_| 1),
    };
    text.trim().split(',').map(count).sum()
}

/// The page-aging algorithm, and the mask it follows from; a kernel without the file has only the
/// classic one. The lowest bit is the main switch (kernel: admin-guide/mm/multigen_lru.rst).
pub(crate) fn read_lru(host: &Host) -> (Option<LruFlavour>, Option<u32>) {
    let Ok(text) = host.read("sys/kernel/mm/lru_gen/enabled") else { return (None, None) };
    let Some(text) = text else { return (Some(LruFlavour::Classic), None) };
    let mask = parse_lru(&text);
    let flavour = |mask: u32| if mask & 1 == 0 { LruFlavour::Classic } else { LruFlavour::Mglru };
    (mask.map(flavour), mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pressure() {
        let text = "some avg10=1.50 avg60=0.00 avg300=0.00 total=42\n\
                    full avg10=0.25 avg60=0.00 avg300=0.00 total=7\n";
        let psi = parse_pressure(text).unwrap();
        assert_eq!((psi.some.total_usec, psi.full.total_usec), (42, 7));
        assert!(parse_pressure("some avg10=x").is_none());
        let some = text.lines().next().unwrap();
        assert_eq!(parse_cpu_pressure(some).map(|p| p.total_usec), Some(42), "before Linux 5.13");
        assert_eq!(parse_cpu_pressure(text).map(|p| p.avg10_pct), Some(1.5));
        for strange in ["some\n", "some\u{e9}", "some avg10=nan avg60=0 avg300=0 total=1\n"] {
            assert!(parse_cpu_pressure(strange).is_none(), "{strange}");
        }
    }

    #[test]
    fn lru() {
        assert_eq!(parse_lru("0x0007\n"), Some(7));
        assert_eq!(parse_lru("0x0000\n"), Some(0));
        assert_eq!(parse_lru("y"), None);
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(parse_cpu_list("0-3,8\n"), Some(5));
        assert_eq!(parse_cpu_list("0"), Some(1));
        assert_eq!(parse_cpu_list("3-0"), None);
        assert_eq!(parse_cpu_list(""), None);
    }

    #[test]
    fn watermarks_and_lists_are_summed_over_zones() {
        let text = "Node 0, zone      DMA\n  pages free     2816\n        boost    0\n        \
                    min      67\n        high     99\n  pagesets\n    cpu: 0\n              \
                    count:    30\n              high:  378\n    cpu: 1\n              count:    12\n\
                    Node 0, zone    DMA32\n        high     17000\n";
        assert_eq!(parse_watermark(text), Bytes(17_099 * 4096));
        assert_eq!(parse_listed_free(text), Bytes(42 * 4096));
        assert_eq!(parse_watermark(""), Bytes::ZERO);
    }

    #[test]
    fn a_machine_without_meminfo_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::fake(dir.path());
        std::fs::create_dir_all(host.path("sys/fs/cgroup")).unwrap();
        std::fs::write(host.path("sys/fs/cgroup/cgroup.controllers"), "memory").unwrap();
        let error = read_machine(&host, &host.cgroups().unwrap()).unwrap_err();
        assert!(error.to_string().contains("proc/meminfo"));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_not(text in "(some avg10=)?.*") {
            let _ = (parse_pressure(&text), parse_lru(&text), parse_watermark(&text), parse_cpu_list(&text));
            let _ = (parse_cpu_pressure(&text), parse_listed_free(&text));
        }
    }
}
