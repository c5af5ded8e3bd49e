//! Fragments merged key by key.

use std::collections::BTreeMap;

use ctlmgr_model::{
    Bytes, ClassName, Controller, CountTraffic, DiskTracing, Millis, OnOverride, Origin, PageAging,
    PlaceSettings, Settings, StartSettings,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::field::{Field, Source, kind};
use crate::rules::RuleText;
use crate::{ConfigError, Fault, Fragment, keys, rules};

/// Longest of the longest waits: the plugin lets go a little later, whatever the daemon says.
const LONGEST_WAIT_SECS: u64 = 3600;

/// Settings so far, rules not yet resolved, and everything that was wrong.
#[derive(Default)]
pub(crate) struct Merged {
    settings: Settings,
    rules: Vec<RuleText>,
    /// Classes named before all of them are known, by the key that names them.
    named: BTreeMap<&'static str, Vec<(ClassName, Origin)>>,
    faults: Vec<Fault>,
}

impl Merged {
    pub fn take(&mut self, fragment: &Fragment) {
        let text = match std::str::from_utf8(&fragment.bytes) {
            Ok(text) => text,
            Err(e) => {
                let before = &fragment.bytes[..e.valid_up_to()];
                let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
                let message = "is not UTF-8 text".to_owned();
                let file = fragment.file.clone();
                self.faults.push(Fault { file, line: Some(line), key: String::new(), message });
                return;
            }
        };
        let source = Source { file: &fragment.file, text };
        match DeTable::parse(text) {
            Ok(table) => self.take_tables(&source, table.get_ref()),
            Err(e) => {
                let at = e.span().map_or(0, |s| s.start);
                self.faults.push(source.fault(at, "", e.message().replace('\n', ", ")));
            }
        }
    }

    fn take_tables(&mut self, source: &Source<'_>, tables: &DeTable<'_>) {
        for (name, value) in tables {
            let table: &str = name.get_ref();
            let result = match (table, value.get_ref()) {
                ("rule", DeValue::Array(items)) => self.take_rules(source, items),
                (
                    "memory" | "starts" | "place" | "classes" | "containers" | "units",
                    DeValue::Table(inner),
                ) => {
                    self.take_keys(source, table, inner);
                    Ok(())
                }
                ("rule", other) => Err(format!("expected [[rule]], found {}", kind(other))),
                ("memory" | "starts" | "place" | "classes" | "containers" | "units", other) => {
                    Err(format!("expected a table, found {}", kind(other)))
                }
                _ => Err(format!(
                    "unknown table or key; did you mean [{}]?",
                    keys::nearest_table(table).unwrap_or("memory")
                )),
            };
            if let Err(message) = result {
                self.faults.push(source.fault(name.span().start, table, message));
            }
        }
    }

    fn take_keys(&mut self, source: &Source<'_>, table: &str, inner: &DeTable<'_>) {
        for (name, value) in inner {
            let key = format!("{table}.{}", name.get_ref());
            let is_table = matches!(key.as_str(), "memory.bystanders" | "starts.class_wait_secs");
            match (is_table, value.get_ref()) {
                (true, DeValue::Table(deeper)) => {
                    self.take_keys(source, &key, deeper);
                    continue;
                }
                (true, other) => {
                    let message = format!("expected a table, found {}", kind(other));
                    self.faults.push(source.fault(name.span().start, &key, message));
                    continue;
                }
                (false, _) => {}
            }
            if !keys::is_known(table, name.get_ref()) {
                let message = unknown(table, name.get_ref());
                self.faults.push(source.fault(name.span().start, &key, message));
                continue;
            }
            let field = Field { source, key: &key, value };
            if let Err(fault) = self.set(&field) {
                self.faults.push(fault);
            }
        }
    }

    fn set(&mut self, field: &Field<'_>) -> Result<(), Fault> {
        let key = match field.key {
            "memory.freeze" => "memory.freeze",
            "memory.kill" => "memory.kill",
            key => return self.set_plain(key, field),
        };
        self.named.insert(key, field.classes()?);
        Ok(())
    }

    fn set_plain(&mut self, key: &str, field: &Field<'_>) -> Result<(), Fault> {
        if let Some(class) = key.strip_prefix("starts.class_wait_secs.") {
            let named = self.named.entry("starts.class_wait_secs").or_default();
            named.push((class.to_owned(), field.origin()));
            let wait = Millis(field.seconds_within(0, LONGEST_WAIT_SECS)? * 1000);
            self.settings.starts.class_waits.insert(class.to_owned(), wait);
            return Ok(());
        }
        match key.split_once('.') {
            Some(("starts", _)) => set_starts(&mut self.settings.starts, field),
            Some(("place", _)) => set_place(&mut self.settings.place, field),
            _ => set(&mut self.settings, field),
        }
    }

    fn take_rules(
        &mut self,
        source: &Source<'_>,
        items: &[Spanned<DeValue<'_>>],
    ) -> Result<(), String> {
        for item in items {
            let DeValue::Table(table) = item.get_ref() else {
                return Err(format!("expected [[rule]], found a list of {}", kind(item.get_ref())));
            };
            let (rule, faults) = rules::read(source, item.span().start, table);
            self.rules.extend(rule);
            self.faults.extend(faults);
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Settings, ConfigError> {
        let (rules, faults) = rules::resolve(self.rules, &self.settings.classes);
        self.settings.rules = rules;
        self.faults.extend(faults);
        let classes = &self.settings.classes;
        for (key, named) in &self.named {
            let unknown = named.iter().filter(|(name, _)| !classes.contains_key(name));
            self.faults.extend(unknown.map(|(name, at)| rules::no_class(name, (key, at), classes)));
        }
        let mut names = |key| {
            let named = self.named.remove(key).unwrap_or_default();
            named.into_iter().map(|(name, _)| name).collect()
        };
        self.settings.memory.freeze = names("memory.freeze");
        self.settings.memory.kill = names("memory.kill");
        if self.faults.is_empty() { Ok(self.settings) } else { Err(ConfigError(self.faults)) }
    }
}

/// Message for a key that does not exist.
pub(crate) fn unknown(table: &str, name: &str) -> String {
    match keys::nearest(table, name) {
        Some(near) => format!("unknown key; did you mean `{near}`?"),
        None => "unknown key".to_owned(),
    }
}

fn set_starts(starts: &mut StartSettings, field: &Field<'_>) -> Result<(), Fault> {
    let millis = |secs: u64| Millis(secs * 1000);
    match field.key {
        "starts.mode" => starts.mode = field.mode()?,
        "starts.max_together" => {
            let most = field.whole_within("containers", 1, 10_000)?;
            starts.max_together = u32::try_from(most).unwrap_or(u32::MAX);
        }
        "starts.most_penalty" => starts.most_penalty = field.hundredths(100)?,
        "starts.most_sharing" => starts.most_sharing = field.hundredths(100)?,
        "starts.max_wait_secs" => {
            starts.max_wait = millis(field.seconds_within(1, LONGEST_WAIT_SECS)?);
        }
        "starts.settle_secs" => starts.settle = millis(field.seconds_within(1, 600)?),
        "starts.settle_at_most_secs" => starts.settle_at_most = millis(field.seconds()?),
        "starts.io_full" => starts.io_full = field.percent()?,
        "starts.freeze" => starts.freeze = field.boolean()?,
        "starts.trace" => {
            let all = [
                ("auto", DiskTracing::Auto),
                ("ebpf", DiskTracing::Ebpf),
                ("events", DiskTracing::Events),
                ("calls", DiskTracing::Calls),
                ("off", DiskTracing::Off),
            ];
            starts.trace = field.one_of("way to trace", &all)?;
        }
        _ => starts.memory_full = field.percent()?,
    }
    Ok(())
}

fn set_place(place: &mut PlaceSettings, field: &Field<'_>) -> Result<(), Fault> {
    let millis = |secs: u64| Millis(secs * 1000);
    match field.key {
        "place.mode" => place.mode = field.mode()?,
        "place.horizon_secs" => place.horizon = millis(field.seconds()?),
        "place.cool_down_secs" => place.cool_down = millis(field.seconds()?),
        "place.learn_secs" => place.learn = millis(field.seconds()?),
        "place.fill" => place.fill = field.percent_within(100)?,
        "place.memory" => place.memory = field.boolean()?,
        _ => {
            let words = [
                ("auto", CountTraffic::Auto),
                ("on", CountTraffic::On),
                ("off", CountTraffic::Off),
            ];
            place.traffic = field.one_of("word", &words)?;
        }
    }
    Ok(())
}

fn set(settings: &mut Settings, field: &Field<'_>) -> Result<(), Fault> {
    let memory = &mut settings.memory;
    match field.key {
        "memory.mode" => memory.mode = field.mode()?,
        "memory.headroom" => memory.headroom = field.headroom()?,
        "memory.hysteresis" => memory.hysteresis = field.percent()?,
        "memory.hysteresis_bytes" => memory.hysteresis_bytes = field.bytes()?,
        "memory.reclaim_chunk" => {
            memory.reclaim_chunk = field.bytes_within(Bytes::mib(1), Bytes::mib(1024))?;
        }
        "memory.reclaim_per_cycle" => {
            memory.reclaim_per_cycle = field.bytes_within(Bytes::mib(1), Bytes::mib(1 << 20))?;
        }
        "memory.basis_half_life_secs" => {
            memory.basis_half_life = Millis(field.seconds()? * 1000);
        }
        "memory.demand_half_life_secs" => {
            memory.demand_half_life = Millis(field.seconds()? * 1000);
        }
        "memory.controller" => {
            let all = [
                ("shares", Controller::Shares),
                ("stall", Controller::Stall),
                ("both", Controller::Both),
            ];
            memory.controller = field.one_of("controller", &all)?;
        }
        "memory.lru" => {
            let all = [("keep", PageAging::Keep), ("classic", PageAging::Classic)];
            memory.lru = field.one_of("page aging", &all)?;
        }
        "memory.probe" => memory.probe = field.boolean()?,
        "memory.probe_cache" => memory.probe_cache = field.boolean()?,
        "memory.throttle" => memory.throttle = field.boolean()?,
        "memory.harden" => memory.harden = field.boolean()?,
        "memory.kill_grace_secs" => memory.kill_grace = Millis(field.seconds()? * 1000),
        "memory.on_override" => {
            let all = [("yield", OnOverride::Yield), ("reassert", OnOverride::Reassert)];
            memory.on_override = field.one_of("policy", &all)?;
        }
        "memory.bystanders.weight" => memory.bystanders.weight = field.weight()?,
        "memory.bystanders.floor" => memory.bystanders.floor = Some(field.bytes()?),
        "memory.bystanders.spared" => memory.bystanders.spared = field.patterns()?,
        "containers.manage" => settings.manage_containers = field.boolean()?,
        "units.manage" => settings.units = field.patterns()?,
        key => {
            let class = key.strip_prefix("classes.").unwrap_or(key).to_owned();
            settings.classes.insert(class, field.weight()?);
        }
    }
    Ok(())
}
