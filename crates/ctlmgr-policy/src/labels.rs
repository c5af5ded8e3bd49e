//! Labels that nobody reads: what was meant by a mistyped one has no effect, and that must not go unsaid.

use std::ops::Bound::{Excluded, Unbounded};

use ctlmgr_model::{Source, Workload};
use strsim::jaro_winkler;

/// All our labels begin like this.
const PREFIX: &str = "ctlmgr.";
/// Labels that somebody reads; the last one is written by `ctlmgr coalesce`.
const KNOWN: [&str; 10] = [
    "ctlmgr.class",
    "ctlmgr.weight",
    "ctlmgr.memory.promise",
    "ctlmgr.managed",
    "ctlmgr.batch.class",
    "ctlmgr.batch.after",
    "ctlmgr.place.group",
    "ctlmgr.place.exclusive",
    "ctlmgr.coalesce",
    "ctlmgr.coalesced",
];
/// So many of one container are named: labels come from images, and those from anywhere.
const NAMED: usize = 3;

/// What to say of the labels of `workload` that begin like ours and are none of ours.
pub(crate) fn unknown(workload: &Workload) -> Vec<String> {
    let Source::Container(facts) = &workload.source else { return Vec::new() };
    let ours = facts.labels.range::<str, _>((Excluded(PREFIX), Unbounded)).map(|(key, _)| key);
    let ours = ours.take_while(|key| key.starts_with(PREFIX));
    let unknown: Vec<&String> = ours.filter(|key| !KNOWN.contains(&key.as_str())).collect();
    let name = &workload.name;
    let mut out: Vec<String> = unknown
        .iter()
        .take(NAMED)
        .map(|key| {
            let key = shown(key);
            format!("{name}: label {key} ignored: unknown; did you mean {}?", nearest(&key))
        })
        .collect();
    if let Some(rest @ 1..) = unknown.len().checked_sub(NAMED) {
        out.push(format!("{name}: {rest} more unknown labels ignored"));
    }
    out
}

/// Text from a label, fit for one line: what is not seen, or changes how the rest is, by its number.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).flat_map(char::escape_debug).take(40).collect()
}

fn nearest(key: &str) -> &'static str {
    let likeness = |known: &str| jaro_winkler(known, key);
    let best = KNOWN.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.unwrap_or(KNOWN[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::container;
    use ctlmgr_model::Bytes;
    use proptest::prelude::*;

    fn labelled(labels: &[&str]) -> Workload {
        let mut web = container("web", 1, Bytes::mib(1), None);
        if let Source::Container(facts) = &mut web.source {
            facts.labels = labels.iter().map(|l| ((*l).to_owned(), "1".to_owned())).collect();
        }
        web
    }

    #[test]
    fn a_mistyped_label_is_named_with_the_nearest_one() {
        let said = |label| unknown(&labelled(&[label])).join("\n");
        assert_eq!(
            said("ctlmgr.wieght"),
            "web: label ctlmgr.wieght ignored: unknown; did you mean ctlmgr.weight?"
        );
        assert!(said("ctlmgr.memory.promis").ends_with("did you mean ctlmgr.memory.promise?"));
        assert!(said("ctlmgr.batch.clas").ends_with("did you mean ctlmgr.batch.class?"));
        for known in KNOWN {
            assert_eq!(said(known), "");
        }
    }

    #[test]
    fn labels_of_others_are_no_matter() {
        let others = ["com.docker.compose.project", "ctlmgr", "ctlmgr.", "ctlmgrx.weight", "zzz"];
        assert_eq!(unknown(&labelled(&others)), [""; 0]);
    }

    proptest! {
        #[test]
        fn an_image_full_of_garbage_is_a_few_lines(keys in proptest::collection::vec(".{0,60}", 0..30)) {
            let labels: Vec<String> = keys.iter().map(|k| format!("ctlmgr.x\n\u{202e}{k}")).collect();
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            let said = unknown(&labelled(&labels));
            prop_assert!(said.len() <= NAMED + 1);
            prop_assert_eq!(said.is_empty(), labels.is_empty());
            for line in said {
                // Of no width, or that turn the text round; dashes and quotes between them are seen.
                let unseen = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{206f}'];
                let is_hidden = |c: char| c.is_control() || unseen.iter().any(|u| u.contains(&c));
                prop_assert!(!line.contains(is_hidden) && line.chars().count() < 120, "{}", line);
            }
        }
    }
}
