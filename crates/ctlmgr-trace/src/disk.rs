//! Requests to disks.

use ctlmgr_model::{Bytes, CgroupId, Disk, Requests, SIZES, Shape};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};

use crate::load::{TraceError, load, map, refused};

static DISK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/disk.bpf.o"));

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
        let object = load(DISK)?;
        let links = object.progs_mut().map(|program| program.attach()).collect::<Result<_, _>>();
        let links = links.map_err(refused("attach"))?;
        Ok(DiskTrace {
            shapes: map(&object, "shapes", 2 * SIDE * WORD)?,
            _links: links,
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
    use libbpf_rs::ObjectBuilder;

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
