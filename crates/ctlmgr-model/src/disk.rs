//! What a cgroup does to block devices, as it is counted.

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
    /// The disk that moved the most of it. Of a device and the one below it, which count the same, the
    /// one with the smaller numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
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
            disk: self.disk,
            shape: self
                .shape
                .map(|s| s.with(earlier.shape.unwrap_or_default(), u64::saturating_sub)),
        }
    }

    /// Bytes moved in either direction.
    pub fn moved(self) -> Bytes {
        self.read + self.written
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
