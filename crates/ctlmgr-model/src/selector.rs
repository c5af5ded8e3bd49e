//! Which workloads a rule means.

use std::fmt;

use glob::Pattern;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Workload;

/// What a pattern is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectorField {
    /// Image reference.
    Image,
    /// Compose project.
    Project,
    /// systemd unit.
    Unit,
    /// Workload name.
    Name,
}

impl fmt::Display for SelectorField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SelectorField::Image => "image",
            SelectorField::Project => "project",
            SelectorField::Unit => "unit",
            SelectorField::Name => "name",
        })
    }
}

/// A shell pattern on one field of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// What is compared.
    pub field: SelectorField,
    /// With what.
    pub pattern: Pattern,
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (field, pattern) = text.split_once(" = ").unwrap_or((&text, ""));
        let all = [
            SelectorField::Image,
            SelectorField::Project,
            SelectorField::Unit,
            SelectorField::Name,
        ];
        let field = all.into_iter().find(|f| f.to_string() == field);
        let field = field.ok_or_else(|| D::Error::custom(format!("`{text}` is no selector")))?;
        Ok(Selector { field, pattern: Pattern::new(pattern).map_err(D::Error::custom)? })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.field, self.pattern)
    }
}

impl Selector {
    /// Whether this selector means `workload`.
    pub fn matches(&self, workload: &Workload) -> bool {
        let value = match self.field {
            SelectorField::Image => workload.image(),
            SelectorField::Project => workload.project(),
            SelectorField::Unit => workload.unit(),
            SelectorField::Name => Some(workload.name.0.as_str()),
        };
        value.is_some_and(|v| self.pattern.matches(v))
    }

    /// Whether the pattern has no wildcard.
    pub fn is_literal(&self) -> bool {
        !self.pattern.as_str().contains(['*', '?', '['])
    }

    /// How exactly the selector points: later wins. A literal beats a pattern, a name beats a
    /// unit, a unit a project, a project an image.
    pub fn precision(&self) -> (bool, SelectorField) {
        (self.is_literal(), self.field)
    }

    /// Whether some text could match both selectors. A character class counts as any character,
    /// so the answer errs on the side of "yes".
    pub fn overlaps(&self, other: &Selector) -> bool {
        self.field == other.field
            && intersect(&atoms(self.pattern.as_str()), &atoms(other.pattern.as_str()))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Atom {
    Char(char),
    Any,
    Star,
}

fn atoms(pattern: &str) -> Vec<Atom> {
    let mut chars = pattern.chars();
    let mut out = Vec::new();
    while let Some(c) = chars.next() {
        out.push(match c {
            '*' => Atom::Star,
            '?' => Atom::Any,
            '[' => {
                // A `]` directly after `[` or `[!` stands for itself.
                let mut first = true;
                for inner in chars.by_ref() {
                    if inner == ']' && !first {
                        break;
                    }
                    first = first && inner == '!';
                }
                Atom::Any
            }
            c => Atom::Char(c),
        });
    }
    out
}

/// Whether two patterns have a text in common: reachability over pairs of positions, O(n·m).
fn intersect(a: &[Atom], b: &[Atom]) -> bool {
    let mut reach = vec![vec![false; b.len() + 1]; a.len() + 1];
    reach[0][0] = true;
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if !reach[i][j] {
                continue;
            }
            let (x, y) = (a.get(i), b.get(j));
            if x == Some(&Atom::Star) {
                reach[i + 1][j] = true;
            }
            if y == Some(&Atom::Star) {
                reach[i][j + 1] = true;
            }
            if let (Some(x), Some(y)) = (x, y) {
                let both = match (x, y) {
                    (Atom::Char(c), Atom::Char(d)) => c == d,
                    _ => true,
                };
                let i2 = if *x == Atom::Star { i } else { i + 1 };
                let j2 = if *y == Atom::Star { j } else { j + 1 };
                if both && (i2, j2) != (i, j) {
                    reach[i2][j2] = true;
                }
            }
        }
    }
    reach[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(pattern: &str) -> Selector {
        Selector { field: SelectorField::Name, pattern: Pattern::new(pattern).unwrap() }
    }

    #[test]
    fn overlap_of_patterns() {
        for (a, b, expected) in [
            ("web-*", "*-1", true),
            ("web-*", "db-*", false),
            ("web-?", "web-12", false),
            ("*", "", true),
            ("a*c", "ab", false),
            ("[ab]x", "cx", true),
            ("a*?*b", "a?b", true),
        ] {
            assert_eq!(name(a).overlaps(&name(b)), expected, "{a} {b}");
            assert_eq!(name(b).overlaps(&name(a)), expected, "{b} {a}");
        }
    }

    proptest! {
        #[test]
        fn a_common_text_is_always_found(text in "[ab]{0,6}", a in "([ab?]{0,2}[*]?[ab?]){0,3}", b in "([ab?]{0,2}[*]?[ab?]){0,3}") {
            let (a, b) = (name(&a), name(&b));
            if a.pattern.matches(&text) && b.pattern.matches(&text) {
                prop_assert!(a.overlaps(&b));
            }
        }
    }
}
