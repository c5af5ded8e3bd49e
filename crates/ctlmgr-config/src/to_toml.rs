//! Settings as a fragment that says the same, as somebody would write it: what `ctlmgr config show` prints can be a file.

use std::fmt::Write;

use ctlmgr_model::{
    Bytes, Headroom, MemorySettings, Millis, Percent, PlaceSettings, Rule, Settings, StartSettings,
};
use glob::Pattern;
use toml::{Table, Value, ser::Error};

use crate::keys::{KEYS, Key};

/// Table, name and value.
type Said = (&'static str, String, Value);

/// A fragment from which [`crate::parse`] makes these settings again. What is not set stands as a comment, and so does where a
/// rule was written.
///
/// # Errors
/// None is known; TOML could not write a value.
pub fn to_toml(settings: &Settings) -> Result<String, Error> {
    let mut said = memory(&settings.memory)?;
    said.extend(starts(&settings.starts)?);
    said.extend(place(&settings.place)?);
    said.extend(others(settings));
    let (mut text, mut table) = (String::new(), "");
    for key in KEYS.iter().filter(|key| key.table != "rule") {
        if key.table != table {
            table = key.table;
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}[{table}]");
        }
        text += &lines(key, &said)?;
    }
    for rule in &settings.rules {
        let _ = write!(text, "\n# {}\n[[rule]]\n{}", rule.origin, of_rule(rule)?);
    }
    Ok(text)
}

/// What is said of a key, or of each of those that the user names.
fn lines(key: &Key, said: &[Said]) -> Result<String, Error> {
    let is_meant =
        |(table, name, _): &&Said| *table == key.table && (key.name == "*" || name == key.name);
    let lines: Result<String, Error> =
        said.iter().filter(is_meant).map(|(_, name, value)| line(name, value.clone())).collect();
    match lines?.as_str() {
        "" if key.name != "*" => Ok(format!("# {} is not set\n", key.name)),
        lines => Ok(lines.to_owned()),
    }
}

fn line(name: &str, value: Value) -> Result<String, Error> {
    toml::to_string(&Table::from_iter([(name.to_owned(), value)]))
}

fn of_rule(rule: &Rule) -> Result<String, Error> {
    let effect = &rule.effect;
    let selector = Some(Value::from(rule.selector.pattern.as_str()));
    // A class brings its weight along.
    let weight = effect.weight.filter(|_| effect.class.is_none());
    [
        (rule.selector.field.to_string(), selector),
        ("weight".to_owned(), weight.map(|w| Value::from(u32::from(w.get())))),
        ("class".to_owned(), effect.class.clone().map(Value::from)),
        ("promise".to_owned(), effect.promise.map(size)),
        ("floor".to_owned(), effect.floor.map(size)),
        ("managed".to_owned(), effect.managed.map(Value::from)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some(line(&name, value?)))
    .collect()
}

fn memory(memory: &MemorySettings) -> Result<Vec<Said>, Error> {
    let bystanders = &memory.bystanders;
    let headroom = match memory.headroom {
        Headroom::Percent(percent) => part(percent),
        Headroom::Bytes(bytes) => size(bytes),
    };
    let mut said = within(
        "memory",
        [
            ("mode", Value::try_from(memory.mode)?),
            ("headroom", headroom),
            ("hysteresis", part(memory.hysteresis)),
            ("hysteresis_bytes", size(memory.hysteresis_bytes)),
            ("reclaim_chunk", size(memory.reclaim_chunk)),
            ("reclaim_per_cycle", size(memory.reclaim_per_cycle)),
            ("basis_half_life_secs", seconds(memory.basis_half_life)?),
            ("demand_half_life_secs", seconds(memory.demand_half_life)?),
            ("controller", Value::try_from(memory.controller)?),
            ("lru", Value::try_from(memory.lru)?),
            ("throttle", Value::from(memory.throttle)),
            ("harden", Value::from(memory.harden)),
            ("probe", Value::from(memory.probe)),
            ("probe_cache", Value::from(memory.probe_cache)),
            ("freeze", Value::from(memory.freeze.clone())),
            ("kill", Value::from(memory.kill.clone())),
            ("kill_grace_secs", seconds(memory.kill_grace)?),
            ("on_override", Value::try_from(memory.on_override)?),
        ],
    );
    let weight = ("weight", Value::from(u32::from(bystanders.weight.get())));
    said.extend(within("memory.bystanders", [weight, ("spared", patterns(&bystanders.spared))]));
    said.extend(within("memory.bystanders", bystanders.floor.map(|floor| ("floor", size(floor)))));
    Ok(said)
}

fn starts(starts: &StartSettings) -> Result<Vec<Said>, Error> {
    let mut said = within(
        "starts",
        [
            ("mode", Value::try_from(starts.mode)?),
            ("max_together", Value::from(starts.max_together)),
            ("most_penalty", hundredths(starts.most_penalty)),
            ("most_sharing", hundredths(starts.most_sharing)),
            ("max_wait_secs", seconds(starts.max_wait)?),
            ("settle_secs", seconds(starts.settle)?),
            ("settle_at_most_secs", seconds(starts.settle_at_most)?),
            ("io_full", part(starts.io_full)),
            ("memory_full", part(starts.memory_full)),
            ("freeze", Value::from(starts.freeze)),
            ("trace", Value::try_from(starts.trace)?),
        ],
    );
    for (class, wait) in &starts.class_waits {
        said.push(("starts.class_wait_secs", class.clone(), seconds(*wait)?));
    }
    Ok(said)
}

fn place(place: &PlaceSettings) -> Result<Vec<Said>, Error> {
    Ok(within(
        "place",
        [
            ("mode", Value::try_from(place.mode)?),
            ("traffic", Value::try_from(place.traffic)?),
            ("horizon_secs", seconds(place.horizon)?),
            ("cool_down_secs", seconds(place.cool_down)?),
            ("learn_secs", seconds(place.learn)?),
            ("fill", part(place.fill)),
            ("memory", Value::from(place.memory)),
        ],
    ))
}

fn others(settings: &Settings) -> Vec<Said> {
    let class = |(name, weight): (&String, &ctlmgr_model::Weight)| {
        ("classes", name.clone(), Value::from(u32::from(weight.get())))
    };
    let mut said: Vec<Said> = settings.classes.iter().map(class).collect();
    let manage = Value::from(settings.manage_containers);
    said.extend(within("containers", [("manage", manage)]));
    said.extend(within("units", [("manage", patterns(&settings.units))]));
    said
}

fn within(
    table: &'static str,
    values: impl IntoIterator<Item = (&'static str, Value)>,
) -> Vec<Said> {
    values.into_iter().map(|(name, value)| (table, name.to_owned(), value)).collect()
}

/// In the largest unit in which it is whole.
fn size(bytes: Bytes) -> Value {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = |(shift, _): &(u32, &str)| bytes.0 > 0 && bytes.0.trailing_zeros() >= *shift;
    Value::from(match units.into_iter().find(whole) {
        Some((shift, unit)) => format!("{}{unit}", bytes.0 >> shift),
        None => bytes.0.to_string(),
    })
}

fn part(percent: Percent) -> Value {
    Value::from(format!("{}%", percent.0))
}

fn seconds(time: Millis) -> Result<Value, Error> {
    Value::try_from(time.0 / 1000)
}

fn hundredths(number: u32) -> Value {
    Value::from(f64::from(number) / 100.0)
}

fn patterns(list: &[Pattern]) -> Value {
    Value::from(list.iter().map(Pattern::as_str).collect::<Vec<_>>())
}
