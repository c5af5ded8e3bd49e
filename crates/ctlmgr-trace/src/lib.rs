//! What cgroup v2 files do not tell, seen by eBPF programs in the kernel.
//!
//! [`DiskTrace`] counts the requests of each cgroup to each disk: their size, whether they lie side by
//! side, how long they take. Needs Linux 5.8 with BTF (`/sys/kernel/btf/vmlinux`), the io controller,
//! and `CAP_BPF` with `CAP_PERFMON` or `CAP_SYS_ADMIN`. Nothing is pinned: when the process ends, the
//! programs go.

use std::sync::{Mutex, PoisonError};

use ctlmgr_model::{Bytes, CgroupId, Disk, Requests, SIZES, Shape};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel};

static DISK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/disk.bpf.o"));

/// Why nothing is traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// libbpf or the kernel refused.
    #[error("failed to {what} the eBPF programs for disks{said}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The last that libbpf or the verifier said.
        said: String,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// The programs and this code were not built together.
    #[error("the eBPF object has no map `shapes` of the expected form")]
    NoMap,
}

/// Requests of cgroups, counted in the kernel for as long as this lives.
#[derive(Debug)]
pub struct DiskTrace {
    shapes: MapHandle,
    _links: Vec<Link>,
    _object: Object,
}

/// Streams that the program remembers in each direction.
const STREAMS: usize = 16;
/// Of a direction in the map, in words: four counts, the sizes, five words for each stream.
const SIDE: usize = 4 + SIZES + 5 * STREAMS;
const WORD: usize = size_of::<u64>();

impl DiskTrace {
    /// Loads the programs and attaches them. Takes 50 ms or so: the types of the whole kernel are read.
    ///
    /// # Errors
    /// The kernel has no BTF, is too old, or does not let this process; the reason is in the source.
    pub fn attach() -> Result<DiskTrace, TraceError> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, listen)));
        let refused = |what| move |source| TraceError::Refused { what, said: last_said(), source };
        let open = ObjectBuilder::default().open_memory(DISK).map_err(refused("read"))?;
        let object = open.load().map_err(refused("load"))?;
        let links = object.progs_mut().map(|program| program.attach()).collect::<Result<_, _>>();
        let shapes = object.maps().find(|map| map.name() == "shapes");
        let shapes = shapes.filter(|map| map.value_size() as usize == 2 * SIDE * WORD);
        let shapes = MapHandle::try_from(&shapes.ok_or(TraceError::NoMap)?);
        Ok(DiskTrace {
            shapes: shapes.map_err(refused("open the map of"))?,
            _links: links.map_err(refused("attach"))?,
            _object: object,
        })
    }

    /// What a cgroup asked of a disk since tracing began; `None` if nothing. Of two thousand pairs the
    /// ones that were used the longest ago are forgotten.
    pub fn shape(&self, cgroup: CgroupId, disk: Disk) -> Option<Shape> {
        let mut key = cgroup.0.to_ne_bytes().to_vec();
        key.extend(disk.major.to_ne_bytes());
        key.extend(disk.minor.to_ne_bytes());
        decode(&self.shapes.lookup(&key, MapFlags::ANY).ok()??)
    }
}

/// What libbpf warned of. A fallback is no cause for alarm, so it is kept for the error.
static SAID: Mutex<String> = Mutex::new(String::new());
/// Of a verifier's log the end says why.
const SAID_LINES: usize = 4;

#[expect(clippy::needless_pass_by_value, reason = "libbpf hands it over so")]
fn listen(_: PrintLevel, text: String) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
}

fn last_said() -> String {
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(SAID_LINES)..];
    if last.is_empty() { String::new() } else { format!(" ({})", last.join("; ")) }
}

/// Reads `struct shape` of `bpf/disk.bpf.c`.
fn decode(value: &[u8]) -> Option<Shape> {
    let words: Vec<u64> = value
        .chunks_exact(WORD)
        .filter_map(|w| Some(u64::from_ne_bytes(w.try_into().ok()?)))
        .collect();
    let (read, write) = words.split_at_checked(SIDE)?;
    Some(Shape { read: requests(read)?, write: requests(write)? })
}

fn requests(side: &[u64]) -> Option<Requests> {
    let [count, bytes, sequential, busy_ns, ..] = *side else { return None };
    Some(Requests {
        count,
        bytes: Bytes(bytes),
        sequential: Bytes(sequential),
        busy_usec: busy_ns / 1000,
        sizes: side.get(4..4 + SIZES)?.try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_read_as_the_program_writes_it() {
        let mut words = vec![0_u64; 2 * SIDE];
        words[..6].copy_from_slice(&[3, 12_288, 8192, 9000, 2, 1]);
        words[SIDE..SIDE + 4].copy_from_slice(&[1, 4096, 0, 1000]);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let shape = decode(&bytes).unwrap();
        assert_eq!(
            (shape.read.count, shape.read.bytes, shape.read.sequential),
            (3, Bytes(12_288), Bytes(8192))
        );
        assert_eq!((shape.read.busy_usec, shape.read.sizes[..3].to_vec()), (9, vec![2, 1, 0]));
        assert_eq!((shape.write.count, shape.write.busy_usec), (1, 1));
        assert_eq!(decode(&bytes[..SIDE * WORD + 8]), None);
    }

    #[test]
    fn the_object_has_the_map_and_both_programs() {
        let open = ObjectBuilder::default().open_memory(DISK).unwrap();
        let sizes: Vec<u32> =
            open.maps().filter(|m| m.name() == "shapes").map(|m| m.value_size()).collect();
        assert_eq!(sizes, [u32::try_from(2 * SIDE * WORD).unwrap()]);
        let programs: Vec<_> = open.progs().map(|p| p.name().to_owned()).collect();
        assert_eq!(programs, ["issued", "completed"]);
    }
}
