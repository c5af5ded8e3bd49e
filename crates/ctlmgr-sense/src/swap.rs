//! Where pages go that leave memory: `/proc/swaps`, and what zram makes of them.

use ctlmgr_host::Host;
use ctlmgr_model::{Bytes, Zram};

/// A device or file to swap to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapDevice {
    /// Its path, as the kernel writes it.
    pub name: String,
    /// How much it can hold.
    pub size: Bytes,
    /// How much it holds.
    pub used: Bytes,
    /// Those with the highest are filled first, those with the same in turn.
    pub priority: i64,
}

impl SwapDevice {
    fn left(&self) -> Bytes {
        self.size - self.used
    }

    /// Its name below `/sys/block`, if it is zram.
    fn zram(&self) -> Option<&str> {
        self.name.rsplit('/').next().filter(|name| name.starts_with("zram"))
    }
}

/// `/proc/swaps` (proc(5)): a head line, then path, type, size and use in KiB, priority. A line that is not understood is
/// none.
pub fn parse_swaps(text: &str) -> Vec<SwapDevice> {
    let kib = |word: Option<&str>| {
        word?.parse::<u64>().ok().map(|count| Bytes(count.saturating_mul(1024)))
    };
    let device = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, _) = (words.next()?.to_owned(), words.next()?);
        let (size, used) = (kib(words.next())?, kib(words.next())?);
        Some(SwapDevice { name, size, used, priority: words.next()?.parse().ok()? })
    };
    text.lines().filter_map(device).collect()
}

/// `orig_data_size` and `compr_data_size` of `/sys/block/zram<N>/mm_stat` (kernel: admin-guide/blockdev/zram.rst).
pub fn parse_mm_stat(text: &str) -> Option<(Bytes, Bytes)> {
    let mut words = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let (stored, used) = (words.next()??, words.next()??);
    Some((Bytes(stored), Bytes(used)))
}

/// zram, where pages that leave memory go there next; `None` where they go to a disk, or it cannot be told.
pub(crate) fn read_zram(host: &Host) -> Option<Zram> {
    let devices = parse_swaps(&host.read("proc/swaps").ok()??);
    let open = || devices.iter().filter(|d| d.left() > Bytes::ZERO);
    let first = open().map(|d| d.priority).max()?;
    let mut sum = Zram::default();
    for device in open().filter(|d| d.priority == first) {
        let path = format!("sys/block/{}/mm_stat", device.zram()?);
        let (stored, used) = parse_mm_stat(&host.read(&path).ok()??)?;
        sum.stored = sum.stored + stored;
        sum.used = sum.used + used;
        sum.left = sum.left + device.left();
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

    fn zram(lines: &str, mm_stat: Option<&str>) -> Option<Zram> {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::fake(dir.path());
        let put = |path: &str, text: &str| {
            let path = host.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/swaps", &format!("{HEAD}{lines}"));
        if let Some(text) = mm_stat {
            put("sys/block/zram0/mm_stat", text);
        }
        read_zram(&host)
    }

    #[test]
    fn zram_counts_where_pages_go_next() {
        let (first, disk) =
            ("/dev/zram0 partition 1024 256 100\n", "/dev/vdb partition 4096 0 -2\n");
        let stat = Some("  262144   131072   135168        0   135168     3       0     0     0\n");
        let some =
            Some(Zram { stored: Bytes(262_144), used: Bytes(131_072), left: Bytes(768 * 1024) });
        assert_eq!(zram(first, stat), some);
        assert_eq!(zram(&format!("{disk}{first}"), stat), some);
        // It is full, or the disk comes first, or they take turns.
        assert_eq!(zram(&format!("/dev/zram0 partition 1024 1024 100\n{disk}"), stat), None);
        assert_eq!(zram(&format!("{first}/dev/vdb partition 4096 0 200\n"), stat), None);
        assert_eq!(zram(&format!("{first}/swap\\040file file 4096 0 100\n"), stat), None);
        assert_eq!((zram("", stat), zram(first, None), zram(first, Some("-"))), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_not(text in "(/dev/zram[0-9] [a-z]{4} [0-9]{0,22} [0-9]{0,22} -?[0-9]{0,4}\n){0,4}|.*") {
            let _ = (parse_swaps(&text), parse_mm_stat(&text));
        }
    }
}
