//! `[[rule]]`: reading, and refusing rules that contradict each other.

use std::collections::BTreeMap;

use ctlmgr_model::{Bytes, ClassName, Origin, Rule, RuleEffect, Selector, SelectorField, Weight};
use toml::de::DeTable;

use crate::field::{Field, Source};
use crate::fragment::unknown;
use crate::{Fault, keys};

/// Where what was asked for at run time is kept.
const RUN_TIME: &str = "run/ctlmgr/config.d/";

/// No workload lives with less: whoever promises less meant another unit.
const LEAST: Bytes = Bytes::mib(1);

/// A rule whose class is not looked up yet: a later fragment may define it.
pub(crate) struct RuleText {
    rule: Rule,
    class: Option<(ClassName, Origin)>,
}

/// Reads one rule; `None` if anything about it is wrong.
pub(crate) fn read(
    source: &Source<'_>,
    at: usize,
    table: &DeTable<'_>,
) -> (Option<RuleText>, Vec<Fault>) {
    let mut draft = Draft::default();
    let mut faults = Vec::new();
    for (name, value) in table {
        let name_text: &str = name.get_ref();
        let key = format!("rule.{name_text}");
        if !keys::is_known("rule", name_text) {
            faults.push(source.fault(name.span().start, &key, unknown("rule", name_text)));
            continue;
        }
        let field = Field { source, key: &key, value };
        faults.extend(draft.set(name_text, &field).err());
    }
    let origin = Origin { file: source.file.to_owned(), line: source.line(at) };
    if !faults.is_empty() {
        return (None, faults);
    }
    match draft.finish(origin) {
        Ok(rule) => (Some(rule), faults),
        Err(message) => (None, vec![source.fault(at, "rule", message)]),
    }
}

#[derive(Default)]
struct Draft {
    selectors: Vec<Selector>,
    class: Option<(ClassName, Origin)>,
    effect: RuleEffect,
}

impl Draft {
    fn set(&mut self, name: &str, field: &Field<'_>) -> Result<(), Fault> {
        let selector = |kind| Ok::<_, Fault>(Selector { field: kind, pattern: field.pattern()? });
        match name {
            "name" => self.selectors.push(selector(SelectorField::Name)?),
            "image" => self.selectors.push(selector(SelectorField::Image)?),
            "project" => self.selectors.push(selector(SelectorField::Project)?),
            "unit" => self.selectors.push(selector(SelectorField::Unit)?),
            "weight" => self.effect.weight = Some(field.weight()?),
            "class" => {
                self.class = Some((field.text("the name of a class")?.to_owned(), field.origin()));
            }
            "promise" => self.effect.promise = Some(field.bytes_within(LEAST, Bytes(u64::MAX))?),
            // None at all is what takes back that of another rule.
            "floor" => match field.bytes()? {
                Bytes::ZERO => self.effect.floor = Some(Bytes::ZERO),
                _ => self.effect.floor = Some(field.bytes_within(LEAST, Bytes(u64::MAX))?),
            },
            _ => self.effect.managed = Some(field.boolean()?),
        }
        Ok(())
    }

    fn finish(mut self, origin: Origin) -> Result<RuleText, &'static str> {
        if self.class.is_some() && self.effect.weight.is_some() {
            return Err("weight and class exclude each other");
        }
        if self.class.is_none() && self.effect == RuleEffect::default() {
            return Err("sets nothing: expected weight, class, promise, floor or managed");
        }
        match (self.selectors.pop(), self.selectors.is_empty()) {
            (Some(selector), true) => Ok(RuleText {
                rule: Rule { selector, effect: self.effect, origin },
                class: self.class,
            }),
            _ => Err("needs exactly one selector: name, image, project or unit"),
        }
    }
}

/// Looks up classes, refuses contradictions, and sorts by precision: a later rule wins.
pub(crate) fn resolve(
    texts: Vec<RuleText>,
    classes: &BTreeMap<ClassName, Weight>,
) -> (Vec<Rule>, Vec<Fault>) {
    let mut faults = Vec::new();
    let mut rules: Vec<Rule> = Vec::new();
    for RuleText { mut rule, class } in texts {
        if let Some((name, origin)) = class {
            match classes.get(&name) {
                Some(weight) => {
                    rule.effect.weight = Some(*weight);
                    rule.effect.class = Some(name);
                }
                // It was there when it was asked for at run time; that keeps nobody from starting.
                None if origin.file.contains(RUN_TIME) => continue,
                None => faults.push(no_class(&name, ("rule.class", &origin), classes)),
            }
        }
        if let Some(other) = rules.iter().find(|r| contradicts(r, &rule)) {
            faults.push(contradiction(&rule, other));
        }
        rules.push(rule);
    }
    rules.sort_by_key(|r| r.selector.precision());
    (rules, faults)
}

/// What is wrong with a class that does not exist, under the key where it was named.
pub(crate) fn no_class(
    name: &str,
    (key, origin): (&str, &Origin),
    classes: &BTreeMap<ClassName, Weight>,
) -> Fault {
    let near = keys::best(classes.keys().map(String::as_str), name).unwrap_or("normal");
    Fault {
        file: origin.file.clone(),
        line: Some(origin.line),
        key: key.to_owned(),
        message: format!("no class `{name}`; did you mean `{near}`?"),
    }
}

/// Whether two rules of equal precision could both mean one workload and disagree about it.
fn contradicts(a: &Rule, b: &Rule) -> bool {
    fn differ<T: PartialEq>(a: Option<&T>, b: Option<&T>) -> bool {
        matches!((a, b), (Some(a), Some(b)) if a != b)
    }
    // The same selector again in a later file is an override, as everywhere in the configuration.
    if a.selector == b.selector && a.origin.file != b.origin.file {
        return false;
    }
    let (x, y) = (&a.effect, &b.effect);
    // Of equal weight, but it may be that only one class is frozen or stopped, and without a class nobody is.
    let is_other_class = x.weight.is_some() && y.weight.is_some() && x.class != y.class;
    let disagree = is_other_class
        || differ(x.weight.as_ref(), y.weight.as_ref())
        || differ(x.promise.as_ref(), y.promise.as_ref())
        || differ(x.floor.as_ref(), y.floor.as_ref())
        || differ(x.managed.as_ref(), y.managed.as_ref());
    disagree && a.selector.precision() == b.selector.precision() && a.selector.overlaps(&b.selector)
}

fn contradiction(rule: &Rule, other: &Rule) -> Fault {
    Fault {
        file: rule.origin.file.clone(),
        line: Some(rule.origin.line),
        key: format!("rule.{}", rule.selector.field),
        message: format!(
            "`{}` and `{}` (rule at {}) can mean the same workload but set different values; \
             make one of them a literal name or the patterns disjoint",
            rule.selector.pattern, other.selector.pattern, other.origin
        ),
    }
}
