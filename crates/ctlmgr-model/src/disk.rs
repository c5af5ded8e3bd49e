//! What a cgroup does to block devices, as it is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// A block device by its numbers: a whole disk, partitions are not told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Disk {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for Disk {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Disk, Self::Err> {
        let (major, minor) = text.split_once(':').unwrap_or((text, ""));
        Ok(Disk { major: major.parse()?, minor: minor.parse()? })
    }
}

/// What a cgroup did to block devices and the processor, all devices together, since it was made or
/// between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Io {
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Requests that read.
    pub reads: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Processor time, in microseconds.
    pub cpu_usec: u64,
    /// Time in which somebody waited for a disk (`some` of io.pressure), in microseconds.
    pub waited_usec: u64,
    /// The same disk by disk, as far as that is known: of those that lie on others (device mapper, md, loop
    /// devices) those below.
    #[serde(skip_serializing_if = "Disks::is_empty")]
    pub disks: Disks,
    /// What `io.stat` does not tell, where it is traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
}

impl Io {
    /// What was done since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Io) -> Io {
        Io {
            read: self.read - earlier.read,
            written: self.written - earlier.written,
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            cpu_usec: self.cpu_usec.saturating_sub(earlier.cpu_usec),
            waited_usec: self.waited_usec.saturating_sub(earlier.waited_usec),
            disks: self.disks.since(earlier.disks),
            shape: since(self.shape, earlier.shape),
        }
    }

    /// Bytes moved in either direction.
    pub fn moved(self) -> Bytes {
        self.read + self.written
    }
}

/// Nobody may have traced until now.
fn since(now: Option<Shape>, earlier: Option<Shape>) -> Option<Shape> {
    now.map(|now| now.with(earlier.unwrap_or_default(), u64::saturating_sub))
}

/// What a cgroup did to one disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moved {
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Requests that read.
    pub reads: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// What `io.stat` does not tell, where it is traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
}

impl Moved {
    /// Bytes moved in either direction.
    pub fn bytes(self) -> Bytes {
        self.read + self.written
    }

    fn with(self, other: Moved, join: &impl Fn(u64, u64) -> u64) -> Moved {
        Moved {
            read: Bytes(join(self.read.0, other.read.0)),
            written: Bytes(join(self.written.0, other.written.0)),
            reads: join(self.reads, other.reads),
            writes: join(self.writes, other.writes),
            shape: match (self.shape, other.shape) {
                (Some(shape), Some(other)) => Some(shape.with(other, join)),
                // What was not traced says nothing of the shape.
                (shape, other) => other.or(shape),
            },
        }
    }
}

/// So many disks are told apart.
pub const DISKS: usize = 4;

/// What a cgroup did to each disk, in the order of their numbers; of more than [`DISKS`] to those to which it did
/// the most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<OnDisk>", into = "Vec<OnDisk>")]
pub struct Disks([Option<(Disk, Moved)>; DISKS]);

/// One of [`Disks`], as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct OnDisk {
    disk: Disk,
    #[serde(flatten)]
    moved: Moved,
}

impl From<Vec<OnDisk>> for Disks {
    fn from(all: Vec<OnDisk>) -> Disks {
        all.into_iter().map(|d| (d.disk, d.moved)).collect()
    }
}

impl From<Disks> for Vec<OnDisk> {
    fn from(disks: Disks) -> Vec<OnDisk> {
        disks.iter().map(|(disk, moved)| OnDisk { disk, moved }).collect()
    }
}

impl FromIterator<(Disk, Moved)> for Disks {
    fn from_iter<T: IntoIterator<Item = (Disk, Moved)>>(all: T) -> Disks {
        // What is imported may name one twice.
        let all: BTreeMap<Disk, Moved> = all.into_iter().collect();
        let mut all: Vec<_> = all.into_iter().filter(|(_, m)| m.bytes() > Bytes::ZERO).collect();
        all.sort_unstable_by_key(|(disk, moved)| (std::cmp::Reverse(moved.bytes()), *disk));
        all.truncate(DISKS);
        all.sort_unstable_by_key(|(disk, _)| *disk);
        let mut disks = Disks::default();
        disks.0.iter_mut().zip(all).for_each(|(place, each)| *place = Some(each));
        disks
    }
}

impl Disks {
    /// Each disk, and what was done to it.
    pub fn iter(&self) -> impl Iterator<Item = (Disk, Moved)> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Whether nothing is known of any.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn on(&self, disk: Disk) -> Option<Moved> {
        self.iter().find(|(d, _)| *d == disk).map(|(_, moved)| moved)
    }

    /// Joins two, count by count; of a disk that is not in one of them nothing was done there.
    #[must_use]
    pub fn with(self, other: Disks, join: impl Fn(u64, u64) -> u64) -> Disks {
        let disks: BTreeSet<Disk> = self.iter().chain(other.iter()).map(|(d, _)| d).collect();
        // Not to use it is not to be traced on it: there is nothing to trace.
        let unused = |beside: Option<Moved>| Moved {
            shape: beside.and_then(|m| m.shape).map(|_| Shape::default()),
            ..Moved::default()
        };
        let both = |disk: Disk| {
            let (a, b) = (self.on(disk), other.on(disk));
            (a.unwrap_or_else(|| unused(b)), b.unwrap_or_else(|| unused(a)))
        };
        disks
            .into_iter()
            .map(|disk| (disk, both(disk)))
            .map(|(disk, (a, b))| (disk, a.with(b, &join)))
            .collect()
    }

    fn since(self, earlier: Disks) -> Disks {
        let is_full = earlier.0.iter().all(Option::is_some);
        let less = |(disk, now): (Disk, Moved)| {
            // What it had done before it came among those that are told apart is not known.
            let before = earlier.on(disk).or((!is_full).then(Moved::default))?;
            let shape = since(now.shape, before.shape);
            Some((disk, Moved { shape, ..now.with(before, &u64::saturating_sub) }))
        };
        self.iter().filter_map(less).collect()
    }
}

/// Requests as the devices got them: after readahead, writeback and merging.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// Those that read.
    pub read: Requests,
    /// Those that wrote.
    pub write: Requests,
}

/// Requests of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// Bytes moved.
    pub bytes: Bytes,
    /// Of these, in runs of at least 2 MiB of requests that lie side by side.
    pub sequential: Bytes,
    /// Time under way, all requests together, in microseconds: divided by the time that passed, it is
    /// the mean depth of the queue (Little's law).
    pub busy_usec: u64,
    /// How many of up to 4 KiB, 8 KiB, … 1 MiB, and more.
    pub sizes: [u64; SIZES],
}

/// Classes of the size of requests.
pub const SIZES: usize = 10;

impl Shape {
    /// Joins two, count by count.
    #[must_use]
    pub fn with(self, other: Shape, join: impl Fn(u64, u64) -> u64) -> Shape {
        Shape {
            read: self.read.with(other.read, &join),
            write: self.write.with(other.write, &join),
        }
    }
}

impl Requests {
    fn with(self, other: Requests, join: &impl Fn(u64, u64) -> u64) -> Requests {
        let bytes = |a: Bytes, b: Bytes| Bytes(join(a.0, b.0));
        let mut sizes = self.sizes;
        for (size, other) in sizes.iter_mut().zip(other.sizes) {
            *size = join(*size, other);
        }
        Requests {
            count: join(self.count, other.count),
            bytes: bytes(self.bytes, other.bytes),
            sequential: bytes(self.sequential, other.sequential),
            busy_usec: join(self.busy_usec, other.busy_usec),
            sizes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_read_as_they_are_written() {
        let disk = Disk { major: 254, minor: 16 };
        assert_eq!(disk.to_string().parse(), Ok(disk));
        assert!("254".parse::<Disk>().is_err() && "a:0".parse::<Disk>().is_err());
    }

    fn on(minor: u32, read: u64) -> (Disk, Moved) {
        (Disk { major: 8, minor }, Moved { read: Bytes(read), reads: 1, ..Moved::default() })
    }

    #[test]
    fn of_many_disks_those_are_told_apart_that_are_used_most() {
        let many: Disks =
            [on(5, 9), on(0, 0), on(1, 1), on(4, 7), on(2, 8), on(3, 2)].into_iter().collect();
        let numbers: Vec<u32> = many.iter().map(|(disk, _)| disk.minor).collect();
        assert_eq!(numbers, [2, 3, 4, 5]);
        let json = serde_json::to_string(&many).unwrap();
        assert_eq!(serde_json::from_str::<Disks>(&json).unwrap(), many);
    }

    #[test]
    fn disks_are_joined_and_taken_apart_one_by_one() {
        let now: Disks = [on(0, 9), on(1, 5)].into_iter().collect();
        let before: Disks = [on(0, 4), on(1, 5), on(2, 3)].into_iter().collect();
        let io = |disks| Io { disks, ..Io::default() };
        let passed: Vec<_> =
            io(now).since(io(before)).disks.iter().map(|(d, m)| (d.minor, m.read)).collect();
        assert_eq!(passed, [(0, Bytes(5))]);
        let sum: Vec<_> =
            now.with(before, u64::saturating_add).iter().map(|(d, m)| (d.minor, m.read)).collect();
        assert_eq!(sum, [(0, Bytes(13)), (1, Bytes(10)), (2, Bytes(3))]);
    }

    #[test]
    fn of_a_disk_that_is_not_used_any_more_the_shape_fades_as_well() {
        let traced = |count| {
            Some(Shape { read: Requests { count, ..Requests::default() }, ..Shape::default() })
        };
        let (disk, moved) = on(0, 8);
        let known: Disks = [(disk, Moved { shape: traced(4), ..moved })].into_iter().collect();
        let half = |a: u64, b: u64| (a + b) / 2;
        let faded = known.with(Disks::default(), half).on(disk).unwrap();
        assert_eq!((faded.read, faded.shape), (Bytes(4), traced(2)));
    }

    #[test]
    fn what_was_kept_before_disks_were_told_apart_is_read() {
        let old = r#"{"read": 5, "disk": {"major": 8, "minor": 0}}"#;
        let io: Io = serde_json::from_str(old).unwrap();
        assert!(io.read == Bytes(5) && io.disks.is_empty());
    }

    #[test]
    fn what_happened_between_two_readings() {
        let requests =
            |count| Requests { count, bytes: Bytes(count * 4096), ..Requests::default() };
        let shape = |count| Some(Shape { read: requests(count), ..Shape::default() });
        let io = |reads| Io { reads, shape: shape(reads), ..Io::default() };
        assert_eq!(io(5).since(io(3)), io(2));
        // Counters that began anew have not gone backwards.
        assert_eq!(io(1).since(io(3)), io(0));
        // Nobody traced until now.
        assert_eq!(io(5).since(Io::default()).shape, shape(5));
    }
}
