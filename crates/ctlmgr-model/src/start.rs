//! Starts of containers: what they do to disk and processor, and who may start when.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Bytes, ClassName, Io, Millis, Mode, Percent};

/// What a container does while it starts: the workload character bin of Bhimani et al., §6.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Character {
    /// Small reads all over the device.
    RandomRead,
    /// Large or adjacent reads.
    SequentialRead,
    /// Small writes all over the device.
    RandomWrite,
    /// Large or adjacent writes.
    SequentialWrite,
    /// Reads and writes, neither of which prevails.
    Mixed,
    /// Little input and output, much processor time.
    Cpu,
    /// Little of either.
    Quiet,
}

impl Character {
    /// All of them.
    pub const ALL: [Character; 7] = [
        Character::RandomRead,
        Character::SequentialRead,
        Character::RandomWrite,
        Character::SequentialWrite,
        Character::Mixed,
        Character::Cpu,
        Character::Quiet,
    ];

    /// As it is written in labels and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Character::RandomRead => "random-read",
            Character::SequentialRead => "sequential-read",
            Character::RandomWrite => "random-write",
            Character::SequentialWrite => "sequential-write",
            Character::Mixed => "mixed",
            Character::Cpu => "cpu",
            Character::Quiet => "quiet",
        }
    }
}

impl fmt::Display for Character {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that names no character.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no character: expected random-read, sequential-read, random-write, sequential-write, \
     mixed, cpu or quiet"
)]
pub struct CharacterError(String);

impl FromStr for Character {
    type Err = CharacterError;

    fn from_str(text: &str) -> Result<Character, CharacterError> {
        let found = Character::ALL.into_iter().find(|c| c.as_str() == text);
        found.ok_or_else(|| CharacterError(text.to_owned()))
    }
}

/// What was learned of the starts of one kind of container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What they are like.
    pub character: Character,
    /// Starts that were seen to their end; none of one that was only seen to run, whose start is taken
    /// for being like that.
    pub starts: u32,
    /// What a start does, in the mean of the last ones.
    pub io: Io,
    /// How long a start takes, in the mean of the last ones.
    pub lasts: Millis,
    /// The same of those beside which nobody started that uses the disk, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Millis>,
    /// Bytes moved per second when a start was over.
    pub steady_per_sec: Bytes,
    /// Which part of the last starts was of this character by itself.
    #[serde(default)]
    pub confidence: Percent,
    /// When it was last learned from, in seconds of Unix time.
    pub learned_unix: u64,
    /// What they do once they have started, if one was seen to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
}

/// What containers of one kind do in normal running, in the mean of the last looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// What they are like.
    pub character: Character,
    /// Which part of the last looks was of this character by itself.
    pub confidence: Percent,
    /// What one does in a minute.
    pub per_minute: Io,
    /// Memory that it works with ([`MemorySample::working_set`](crate::MemorySample::working_set)).
    pub working_set: Bytes,
    /// Page cache that it has, needed or not.
    pub page_cache: Bytes,
    /// All of its memory.
    pub held: Bytes,
    /// Looks that were taken.
    pub looks: u32,
}

/// What was learned of two characters that start together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairPenalty {
    /// The one.
    pub a: Character,
    /// The other, or the same.
    pub b: Character,
    /// What they cost each other, in hundredths: 100 is a start that takes twice as long.
    pub hundredths: u32,
    /// Starts that taught it.
    pub seen: u32,
    /// When the last one did, in seconds of Unix time.
    pub learned_unix: u64,
}

/// How requests to disks are traced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskTracing {
    /// By eBPF; where the kernel cannot, by its events; where it can neither, by calls.
    #[default]
    Auto,
    /// By eBPF or not at all.
    Ebpf,
    /// By the kernel's own events (tracefs): less is seen, more is spent.
    Events,
    /// Not traced: the system calls are looked at in which tasks wait, beside `io.stat`.
    Calls,
    /// Not at all: what `io.stat` tells has to do.
    Off,
}

/// Settings of the starts job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartSettings {
    /// What the job may do.
    pub mode: Mode,
    /// Most containers that start at once.
    pub max_together: u32,
    /// Most penalty that one start may add to those under way that it fights, in hundredths.
    pub most_penalty: u32,
    /// The same to all of them, those included with which it merely shares a disk.
    pub most_sharing: u32,
    /// Nobody waits longer.
    pub max_wait: Millis,
    /// The same for some classes; zero is never.
    pub class_waits: BTreeMap<ClassName, Millis>,
    /// A start is over when it was quiet for so long …
    pub settle: Millis,
    /// … or after this time in any case.
    pub settle_at_most: Millis,
    /// While the host's tasks all wait for the disk for more than this part of the time, starts wait.
    pub io_full: Percent,
    /// The same for memory.
    pub memory_full: Percent,
    /// Whether those that nobody asked about are frozen until their turn.
    pub freeze: bool,
    /// How requests to disks are traced: `io.stat` does not tell whether they lie side by side.
    #[serde(deserialize_with = "way_to_trace")]
    pub trace: DiskTracing,
}

/// Recordings of before there was a choice say whether.
fn way_to_trace<'de, D: serde::Deserializer<'de>>(text: D) -> Result<DiskTracing, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Told {
        Whether(bool),
        How(DiskTracing),
    }
    Ok(match Told::deserialize(text)? {
        Told::Whether(true) => DiskTracing::Auto,
        Told::Whether(false) => DiskTracing::Off,
        Told::How(way) => way,
    })
}

impl Default for StartSettings {
    fn default() -> Self {
        StartSettings {
            mode: Mode::Observe,
            max_together: 16,
            most_penalty: 125,
            most_sharing: 400,
            max_wait: Millis(45_000),
            class_waits: [("critical".to_owned(), Millis(0))].into_iter().collect(),
            settle: Millis(10_000),
            settle_at_most: Millis(300_000),
            io_full: Percent(50),
            memory_full: Percent(10),
            freeze: false,
            trace: DiskTracing::Auto,
        }
    }
}

impl StartSettings {
    /// The longest wait of a class.
    pub fn longest_wait(&self, class: Option<&ClassName>) -> Millis {
        class.and_then(|c| self.class_waits.get(c)).copied().unwrap_or(self.max_wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_read_as_they_are_written() {
        for character in Character::ALL {
            assert_eq!(character.to_string().parse(), Ok(character));
            let json = serde_json::to_string(&character).unwrap();
            assert_eq!(json, format!("\"{character}\""));
        }
        let error = "seq".parse::<Character>().unwrap_err();
        assert!(error.to_string().contains("sequential-read"), "{error}");
    }
}
