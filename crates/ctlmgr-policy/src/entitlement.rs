//! What a workload is entitled to: weight, promise, floor, and where each comes from.
//!
//! Precedence, weakest first: default, `--memory-reservation` (a promise; of a container of root's podman what others have
//! set as its memory.low), container labels, configuration rules by precision. The host's operator has the last word over
//! an image's label. A label with garbage is a complaint and falls back to the default: nothing is ever tightened
//! by what cannot be understood.

use std::str::FromStr;

use ctlmgr_model::{
    Bytes, Character, ClassName, Group, Knob, Settings, Snapshot, Source, Weight, Workload,
};

use crate::labels::{shown, unknown};
use crate::state::State;

/// No workload lives with less: whoever promises less meant another unit.
const LEAST: Bytes = Bytes::mib(1);

/// Where a promise comes from that dockerd tells of.
const RESERVATION: &str = "--memory-reservation";
/// And where one comes from that podman has given to the kernel.
const PODMANS: &str = "memory.low, as podman has set it";
/// memory.low of whom somebody wants to be protected whatever it uses: no size.
const UNLIMITED: Bytes = Bytes(u64::MAX);

/// Weight, promise and floor of one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entitlement {
    /// Whether ctlmgr acts on it.
    pub managed: bool,
    /// Weight.
    pub weight: Weight,
    /// The class that the weight is of, if one was given.
    pub class: Option<ClassName>,
    /// Where the weight comes from, for `ctlmgr why`.
    pub weight_from: String,
    /// Memory promised.
    pub promise: Option<Bytes>,
    /// Where the promise comes from, if there is one.
    pub promise_from: String,
    /// Memory kept in any case.
    pub floor: Bytes,
    /// Where the floor comes from, if there is one.
    pub floor_from: String,
    /// Labels that could not be understood or contradict each other, and what was promised beyond what there can be.
    pub complaints: Vec<String>,
}

/// Works out what `workload` is entitled to.
pub fn entitlement(settings: &Settings, workload: &Workload) -> Entitlement {
    let mut result = Entitlement::by_default(settings, workload);
    result.follow_labels(settings, workload);
    for rule in settings.rules.iter().filter(|r| r.selector.matches(workload)) {
        if let Some(weight) = rule.effect.weight {
            result.weight = weight;
            result.weight_from = format!("rule at {}", rule.origin);
            result.class.clone_from(&rule.effect.class);
        }
        if let Some(promise) = rule.effect.promise {
            result.promise = Some(promise);
            result.promise_from = format!("rule at {}", rule.origin);
        }
        if let Some(floor) = rule.effect.floor {
            result.floor = floor;
            result.floor_from = format!("rule at {}", rule.origin);
        }
        result.managed = rule.effect.managed.unwrap_or(result.managed);
    }
    result
}

/// The same with what podman tells nobody but the kernel: its `--memory-reservation` is a container's memory.low, as others
/// last wrote it.
pub(crate) fn entitlement_with_reserved(
    settings: &Settings,
    (state, snapshot): (&State, &Snapshot),
    workload: &Workload,
) -> Entitlement {
    let mut result = entitlement(settings, workload);
    let group = &workload.group;
    let is_container = matches!(workload.source, Source::Container(_));
    if result.promise.is_none() && is_container && is_podmans(group) {
        let (knob, low) = (Knob::MemoryLow, group.memory.low);
        let reserved = match snapshot.is_mixed {
            // It may be ours already.
            true => state.first_prior(group, knob).unwrap_or(low),
            false => state.prior(group, knob, low),
        };
        result.promise = Some(reserved).filter(|p| (LEAST..UNLIMITED).contains(p));
        result.promise_from = result.promise.map_or_else(String::new, |_| PODMANS.to_owned());
    }
    result
}

/// Whether a container is one of root's podman. What a user's own manager says of memory.low counts nowhere above it, and
/// must not claim the host's memory.
pub(crate) fn is_podmans(group: &Group) -> bool {
    !group.path.is_of_user() && group.path.name().starts_with("libpod-")
}

impl Entitlement {
    fn by_default(settings: &Settings, workload: &Workload) -> Self {
        let (managed, promise) = match &workload.source {
            Source::Container(facts) => {
                // As dockerd has it: zero promises nothing.
                let reservation = facts.reservation.filter(|p| *p > Bytes::ZERO);
                (settings.manage_containers, reservation)
            }
            Source::Unit(_) => (true, None),
        };
        Entitlement {
            managed,
            weight: Weight::DEFAULT,
            class: None,
            weight_from: "default".to_owned(),
            promise,
            promise_from: promise.map_or_else(String::new, |_| RESERVATION.to_owned()),
            floor: Bytes::ZERO,
            floor_from: String::new(),
            complaints: Vec::new(),
        }
    }

    /// The same on a host of this size: more than all of it cannot be promised. Of what is beyond its own limit nothing comes:
    /// shares end there.
    pub(crate) fn within(mut self, total: Bytes, workload: &Workload) -> Self {
        let name = &workload.name;
        if let Some(promise) = self.promise.filter(|p| *p > total) {
            self.complaints.push(format!(
                "{name}: promised {promise} ({}), taken for {total}: the host has no more",
                self.promise_from
            ));
            self.promise = Some(total);
        }
        let Some(max) = workload.group.memory.max.bytes() else { return self };
        let promise = self.promise.map(|p| ("promised", p, &self.promise_from));
        let floor = (self.floor > Bytes::ZERO).then_some(("floor", self.floor, &self.floor_from));
        let beyond = promise.into_iter().chain(floor).filter(|(_, amount, _)| *amount > max);
        let words = beyond.map(|(what, amount, from)| {
            format!(
                "{name}: {what} {amount} ({from}), but its share ends at its own limit of {max}"
            )
        });
        let words: Vec<String> = words.collect();
        self.complaints.extend(words);
        self
    }

    fn follow_labels(&mut self, settings: &Settings, workload: &Workload) {
        if let Some(class) = workload.label("ctlmgr.class") {
            match settings.classes.get(class) {
                Some(weight) => {
                    self.weight = *weight;
                    self.weight_from = format!("label ctlmgr.class={class}");
                    self.class = Some(class.to_owned());
                }
                None => self.complain(workload, "ctlmgr.class", class, "no such class"),
            }
        }
        let weight = |text: &str| {
            i64::from_str(text).ok().and_then(|n| Weight::new(n).ok()).ok_or("not 1–10000")
        };
        if let Some(weight) = self.read(workload, "ctlmgr.weight", weight) {
            if let Some(class) = self.class.take() {
                self.complain(workload, "ctlmgr.class", &class, "there is a ctlmgr.weight as well");
            }
            self.weight = weight;
            self.weight_from = format!("label ctlmgr.weight={weight}");
        }
        let amount = |text: &str| match Bytes::from_str(text) {
            Ok(bytes) if bytes > Bytes::ZERO && bytes < LEAST => Err("less than 1 MiB"),
            other => other.map_err(|_| "no amount of memory"),
        };
        if let Some(promise) = self.read(workload, "ctlmgr.memory.promise", amount) {
            self.promise = Some(promise).filter(|p| *p > Bytes::ZERO);
            self.promise_from = match self.promise {
                Some(_) => format!("label ctlmgr.memory.promise={promise}"),
                None => String::new(),
            };
        }
        let flag = |text: &str| bool::from_str(text).map_err(|_| "neither true nor false");
        self.managed = self.read(workload, "ctlmgr.managed", flag).unwrap_or(self.managed);
        // Of no matter here; but this is where garbage in a label is named.
        let character = |text: &str| Character::from_str(text).map_err(|_| "no character");
        let _ = self.read(workload, "ctlmgr.batch.class", character);
        let _ = self.read(workload, "ctlmgr.place.exclusive", flag);
        let _ = self.read(workload, "ctlmgr.coalesce", flag);
        self.complaints.extend(unknown(workload));
    }

    fn read<T>(
        &mut self,
        workload: &Workload,
        key: &str,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        let text = workload.label(key)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.complain(workload, key, text, why);
                None
            }
        }
    }

    fn complain(&mut self, workload: &Workload, key: &str, text: &str, why: &str) {
        let (name, shown) = (&workload.name, shown(text));
        self.complaints.push(format!("{name}: label {key}={shown} ignored: {why}"));
    }
}
