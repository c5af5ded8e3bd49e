//! How soon protections stand still after the machine has changed, and how often they turn round until then.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::lab::Record;

/// A change of less than this part of a knob, in per cent, is no more than what estimates breathe.
const NOTEWORTHY: u64 = 5;
const LOW: &str = "memory.low";
const MIN: &str = "memory.min";
/// Shares are to have settled by then.
const SETTLED_USEC: u64 = 10_000_000;

/// What ctlmgr wrote after one change.
#[derive(Debug, Clone, PartialEq)]
pub struct Settling {
    /// Writes of memory.low and memory.min.
    pub writes: usize,
    /// When the first one came that changed a memory.low noticeably, in seconds after the change. That is a share.
    pub first_secs: Option<f64>,
    /// When the last one came that changed a memory.low noticeably.
    pub last_secs: f64,
    /// Whose that was: the name of its cgroup.
    pub last_of: String,
    /// When the last one came that changed a memory.min noticeably. What is hard follows what is used, as that comes back.
    pub hard_secs: Option<f64>,
    /// How often one knob, memory.high among them, changed its direction within ten seconds, at most.
    pub turns: usize,
}

/// One for each time that the script said that it changed the machine.
pub fn of(record: &Record) -> Vec<Settling> {
    let changes: Vec<u64> = record.data.iter().filter_map(|v| v["changed_usec"].as_u64()).collect();
    let writes: Vec<Written> = record.data.iter().filter_map(Written::of).collect();
    let ends = changes.iter().skip(1).copied().chain([u64::MAX]);
    changes.iter().zip(ends).map(|(from, to)| between(*from, to, &writes)).collect()
}

fn between(from: u64, to: u64, all: &[Written]) -> Settling {
    let of_change: Vec<&Written> = all.iter().filter(|w| (from..to).contains(&w.at_usec)).collect();
    let mut ways: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for w in of_change.iter().filter(|w| w.at_usec - from < SETTLED_USEC) {
        ways.entry(&w.knob).or_default().push(w.to > w.from);
    }
    let noteworthy = |knob| of_change.iter().filter(move |w| w.is_of(knob) && w.is_noteworthy());
    let secs = |w: &Written| (w.at_usec - from) as f64 / 1e6;
    let first = noteworthy(LOW).min_by_key(|w| w.at_usec);
    let last = noteworthy(LOW).max_by_key(|w| w.at_usec);
    let hard = noteworthy(MIN).max_by_key(|w| w.at_usec);
    let turns = |ways: &Vec<bool>| ways.windows(2).filter(|pair| pair[0] != pair[1]).count();
    Settling {
        writes: of_change.iter().filter(|w| w.is_of(LOW) || w.is_of(MIN)).count(),
        first_secs: first.map(|w| secs(w)),
        last_secs: last.map_or(0.0, |w| secs(w)),
        last_of: last.map_or(String::new(), |w| w.name().to_owned()),
        hard_secs: hard.map(|w| secs(w)),
        turns: ways.values().map(turns).max().unwrap_or(0),
    }
}

/// A knob of memory that was written, from ctlmgr's journal.
struct Written {
    at_usec: u64,
    /// Which, and of whom.
    knob: String,
    from: u64,
    to: u64,
}

impl Written {
    fn of(entry: &Value) -> Option<Written> {
        let number = |field: &str| entry[field].as_str()?.parse().ok();
        let knob = entry["F_KNOB"].as_str()?;
        let is_known = matches!(knob, LOW | MIN | "memory.high");
        is_known.then_some(Written {
            at_usec: number("__REALTIME_TIMESTAMP")?,
            knob: format!("{} {knob}", entry["F_PATH"].as_str()?),
            from: number("F_FROM")?,
            to: number("F_TO")?,
        })
    }

    fn name(&self) -> &str {
        let path = self.knob.split(' ').next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        // Of a container's id that is enough.
        name.get(..20).unwrap_or(name)
    }

    fn is_of(&self, knob: &str) -> bool {
        self.knob.ends_with(knob)
    }

    fn is_noteworthy(&self) -> bool {
        self.from.abs_diff(self.to) > self.from.max(self.to) / 100 * NOTEWORTHY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn turns_are_of_one_knob_and_what_estimates_breathe_is_no_change() {
        let write_of = |knob: &str, secs: u64, path: &str, from: u64, to: u64| {
            json!({"__REALTIME_TIMESTAMP": (secs * 1_000_000).to_string(), "F_KNOB": knob,
                "F_PATH": path, "F_FROM": from.to_string(), "F_TO": to.to_string()})
        };
        let write = |secs, path, from, to| write_of(LOW, secs, path, from, to);
        let changed = |secs: u64| json!({"changed_usec": secs * 1_000_000});
        let data = vec![
            write(90, "/a", 400, 0),
            changed(100),
            changed(120),
            write(102, "/a", 400, 300),
            write(103, "/b", 100, 200),
            write(104, "/a", 300, 350),
            write(106, "/a", 350, 349),
            write_of(MIN, 107, "/a", 100, 200),
            // Not a protection, but a knob that must not swing.
            write_of("memory.high", 101, "/a", 500, 600),
            write_of("memory.high", 102, "/a", 600, 500),
            write_of("memory.high", 103, "/a", 500, 600),
            write_of("memory.high", 108, "/a", 600, 500),
            write(115, "/a", 349, 360),
            write(121, "/a", 360, 100),
        ];
        let found = of(&Record { data });
        let settled = |writes, first_secs, last_secs, hard_secs, turns| Settling {
            writes,
            first_secs: Some(first_secs),
            last_secs,
            last_of: "a".to_owned(),
            hard_secs,
            turns,
        };
        assert_eq!(found, [settled(6, 2.0, 4.0, Some(7.0), 3), settled(1, 1.0, 1.0, None, 0)]);
    }
}
