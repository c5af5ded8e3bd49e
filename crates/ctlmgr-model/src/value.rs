//! What knobs hold.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Cpus};

/// What a knob holds: a number, or a list of processors or memory nodes. In JSON a number or a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Of most knobs.
    Amount(Bytes),
    /// Of cpusets.
    List(Cpus),
}

impl Value {
    /// The number; `None` for a list.
    pub fn amount(&self) -> Option<Bytes> {
        match self {
            Value::Amount(amount) => Some(*amount),
            Value::List(_) => None,
        }
    }

    /// The list; `None` for a number.
    pub fn list(&self) -> Option<&Cpus> {
        match self {
            Value::Amount(_) => None,
            Value::List(list) => Some(list),
        }
    }

    /// As the kernel writes it into a file of a cgroup.
    pub fn file_text(&self) -> String {
        match self {
            Value::Amount(Bytes(u64::MAX)) => "max".to_owned(),
            Value::Amount(Bytes(number)) => number.to_string(),
            Value::List(list) => list.to_string(),
        }
    }
}

impl From<Bytes> for Value {
    fn from(amount: Bytes) -> Value {
        Value::Amount(amount)
    }
}

impl From<Cpus> for Value {
    fn from(list: Cpus) -> Value {
        Value::List(list)
    }
}

impl PartialEq<Bytes> for Value {
    fn eq(&self, other: &Bytes) -> bool {
        self.amount() == Some(*other)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Amount(amount) => fmt::Display::fmt(amount, f),
            Value::List(list) => fmt::Display::fmt(list, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lists_are_told_apart_in_json() {
        let list: Cpus = "0-3,8".parse().unwrap();
        for (value, json) in
            [(Value::from(Bytes(u64::MAX)), "18446744073709551615"), (list.into(), "\"0-3,8\"")]
        {
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
            assert_eq!(serde_json::from_str::<Value>(json).unwrap(), value);
        }
        assert!(serde_json::from_str::<Value>("\"no list\"").is_err());
    }
}
