//! The system manager on D-Bus.

use std::collections::HashMap;
use std::future::Future;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ctlmgr_model::{Bytes, Cpus, Value};
use tokio::process::Command;
use tokio::sync::Mutex;
use tracing::debug;
use zbus::{Connection, OwnedVariant, Variant};

use crate::properties::{BESIDE, Property};

/// Why a unit property could not be set.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// No bus, or the call failed.
    #[error("failed to set {property} of {unit}")]
    Bus {
        /// The unit.
        unit: String,
        /// The property.
        property: &'static str,
        /// Why.
        source: zbus::Error,
    },
    /// No answer in time.
    #[error("failed to set {property} of {unit}: no answer within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// The unit.
        unit: String,
        /// The property.
        property: &'static str,
    },
    /// `systemctl set-property` did not work either.
    #[error("failed to set {property} of {unit}: {said}")]
    Command {
        /// The unit.
        unit: String,
        /// The property.
        property: &'static str,
        /// What it said.
        said: String,
    },
    /// There is no such unit (any more), or none that can be loaded.
    #[error("unit {0} is not loaded")]
    NoSuchUnit(String),
}

/// PID 1 can be slow under pressure; a hung bus must not hold the worker for ever. For each way.
const TIMEOUT: Duration = Duration::from_secs(5);
/// For so long a bus that did not answer is left alone.
const SILENCE: Duration = Duration::from_secs(60);
/// As root it talks to the manager's own socket, which works without a message bus. (zbus cannot:
/// the manager signs its answers there with a name that is no unique name.)
const SYSTEMCTL: &str = "systemctl";

/// Whoever can set properties of units.
pub trait UnitProperties: Send + Sync + 'static {
    /// Sets properties until the next reboot, all at once, and returns when they are applied. The
    /// first is the one that errors name.
    fn set(
        &self,
        unit: &str,
        properties: &[Property],
    ) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// What the manager would write of memory to a scope of its own; `None` if it does not say. What is set by then through it
    /// is in the files as well.
    fn held(&self, scope: &str) -> impl Future<Output = Option<Vec<Property>>> + Send;
}

/// The system manager, reached over the message bus, or past it while that is away or hangs.
#[derive(Debug, Default)]
pub struct SystemdBus {
    link: Mutex<Link>,
}

/// What is known of the way over the bus.
#[derive(Debug, Default)]
struct Link {
    /// The connection that worked last.
    connection: Option<Connection>,
    /// When the bus last let us wait in vain.
    silent_at: Option<Instant>,
}

impl SystemdBus {
    /// A client that connects when first needed, and again after a failure.
    pub fn new() -> SystemdBus {
        SystemdBus::default()
    }

    /// Connections to try: the one that worked last, which may have died with the bus since, and
    /// a new one; none while the bus is silent.
    async fn ways(&self) -> Vec<Option<Connection>> {
        let link = self.link.lock().await;
        if link.silent_at.is_some_and(|at| at.elapsed() < SILENCE) {
            return Vec::new();
        }
        let known = link.connection.clone();
        known.map(Some).into_iter().chain([None]).collect()
    }

    /// Over a known connection, or a new one; `None` when there is no answer in time. What was asked
    /// may still wait in the bus then, to be done after all that comes later: leaving the bus takes
    /// it back, as the manager does nothing for a sender that is gone.
    async fn over_bus(
        &self,
        known: Option<Connection>,
        unit: &str,
        properties: &[Property],
    ) -> Option<zbus::Result<()>> {
        let connection = match connect(known).await? {
            Ok(connection) => connection,
            Err(error) => return Some(Err(error)),
        };
        let Some(result) = within(ask(&connection, unit, properties)).await else {
            if let Some(Err(error)) = within(connection.close()).await {
                debug!(%error, "failed to leave the message bus");
            }
            return None;
        };
        if result.is_ok() {
            *self.link.lock().await = Link { connection: Some(connection), silent_at: None };
        }
        Some(result)
    }

    /// Remembers that the bus is silent, and that its connection was left.
    async fn pass_by(&self) {
        *self.link.lock().await = Link { connection: None, silent_at: Some(Instant::now()) };
    }
}

/// What comes of it in time.
async fn within<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(TIMEOUT, work).await.ok()
}

/// A known connection, or a new one; `None` if the bus does not answer in time.
async fn connect(known: Option<Connection>) -> Option<zbus::Result<Connection>> {
    match known {
        Some(connection) => Some(Ok(connection)),
        None => within(Connection::system()).await,
    }
}

/// Asks the manager, and waits for its answer.
async fn ask(connection: &Connection, unit: &str, properties: &[Property]) -> zbus::Result<()> {
    let properties: Vec<_> =
        properties.iter().map(|(name, value)| (*name, variant(value))).collect();
    connection
        .call_method(
            Some("org.freedesktop.systemd1"),
            "/org/freedesktop/systemd1",
            Some("org.freedesktop.systemd1.Manager"),
            "SetUnitProperties",
            &(unit, true, properties),
        )
        .await?;
    Ok(())
}

/// What the manager holds of a scope, in the order of [`BESIDE`].
async fn ask_held(connection: &Connection, scope: &str) -> zbus::Result<Vec<Property>> {
    let answer = connection
        .call_method(
            Some("org.freedesktop.systemd1"),
            object(scope).as_str(),
            Some("org.freedesktop.DBus.Properties"),
            "GetAll",
            &("org.freedesktop.systemd1.Scope",),
        )
        .await?;
    let body = answer.body();
    let all: HashMap<String, OwnedVariant> = body.deserialize()?;
    let number = |name| u64::try_from(all.get(name)?).ok();
    let known = |(_, name)| Some((name, Value::from(Bytes(number(name)?))));
    Ok(BESIDE.into_iter().filter_map(known).collect())
}

/// The object of a unit: whatever is no letter or digit is written as its number, and a digit that comes first
/// (systemd: sd_bus_path_encode(3)).
fn object(unit: &str) -> String {
    let label = unit.bytes().enumerate().map(|(at, byte)| match byte {
        b'0'..=b'9' if at > 0 => char::from(byte).to_string(),
        b'a'..=b'z' | b'A'..=b'Z' => char::from(byte).to_string(),
        other => format!("_{other:02x}"),
    });
    format!("/org/freedesktop/systemd1/unit/{}", label.collect::<String>())
}

/// Ends of error names by which the manager says that there is no such unit to set anything on.
const UNLOADABLE: [&str; 5] =
    [".NoSuchUnit", ".UnitNotLoaded", ".UnitMasked", ".LoadFailed", ".BadUnitSetting"];
/// The same in the words of `systemctl`.
const UNLOADABLE_WORDS: [&str; 4] = [" not found", " not loaded", " is masked", " bad unit file"];

/// What an error of the bus says about the unit.
fn explain(source: zbus::Error, unit: &str, property: &'static str) -> UnitError {
    let is_unknown = matches!(&source, zbus::Error::MethodError(kind, _, _)
        if UNLOADABLE.iter().any(|end| kind.ends_with(end)));
    let unit = unit.to_owned();
    if is_unknown { UnitError::NoSuchUnit(unit) } else { UnitError::Bus { unit, property, source } }
}

/// Numbers as they are; lists as bits, the lowest processor in the lowest bit of the first byte.
fn variant(value: &Value) -> Variant<'static> {
    match value {
        Value::Amount(Bytes(number)) => Variant::from(*number),
        Value::List(list) => Variant::from(bits(list)),
    }
}

fn bits(list: &Cpus) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in list.iter() {
        // u32 fits into usize here.
        let at = number as usize / 8;
        bytes.resize(bytes.len().max(at + 1), 0);
        bytes[at] |= 1 << (number % 8);
    }
    bytes
}

/// As `systemctl` takes it.
fn assignment((name, value): &Property) -> String {
    match value {
        Value::Amount(Bytes(u64::MAX)) => format!("{name}=infinity"),
        Value::Amount(Bytes(number)) => format!("{name}={number}"),
        Value::List(list) => format!("{name}={list}"),
    }
}

/// The property that errors name.
fn first(properties: &[Property]) -> &'static str {
    properties.first().map_or("nothing", |(name, _)| name)
}

/// Past the bus.
async fn by_command(unit: &str, properties: &[Property]) -> Result<(), UnitError> {
    let output = Command::new(SYSTEMCTL)
        .args(["set-property", "--runtime", "--", unit])
        .args(properties.iter().map(assignment))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let said = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("{SYSTEMCTL}: {error}"),
    };
    let unit = unit.to_owned();
    let is_unknown = UNLOADABLE_WORDS.iter().any(|words| said.contains(words));
    Err(if is_unknown {
        UnitError::NoSuchUnit(unit)
    } else {
        UnitError::Command { unit, property: first(properties), said }
    })
}

impl UnitProperties for SystemdBus {
    async fn set(&self, unit: &str, properties: &[Property]) -> Result<(), UnitError> {
        let name = first(properties);
        for way in self.ways().await {
            let Some(result) = self.over_bus(way, unit, properties).await else {
                self.pass_by().await;
                break;
            };
            match result.map_err(|error| explain(error, unit, name)) {
                // Any other error may be the bus speaking, for a manager that it does not see.
                done @ (Ok(()) | Err(UnitError::NoSuchUnit(_))) => return done,
                Err(error) => debug!(%error, "the message bus failed"),
            }
        }
        within(by_command(unit, properties))
            .await
            .unwrap_or_else(|| Err(UnitError::Timeout { unit: unit.to_owned(), property: name }))
    }

    async fn held(&self, scope: &str) -> Option<Vec<Property>> {
        for way in self.ways().await {
            let Ok(connection) = connect(way).await? else { continue };
            // Whose fault it is that no answer comes is found out by who sets something.
            match within(ask_held(&connection, scope)).await? {
                Ok(held) => {
                    self.link.lock().await.connection = Some(connection);
                    return Some(held);
                }
                Err(error) => debug!(%error, scope, "what the manager holds is not known"),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_units_are_named_as_the_manager_names_them() {
        let object = |unit| object(unit).rsplit('/').next().unwrap_or_default().to_owned();
        assert_eq!(object("docker-3f.scope"), "docker_2d3f_2escope");
        assert_eq!(object("9a_x.scope"), "_39a_5fx_2escope");
    }

    #[test]
    fn lists_are_bits_to_the_bus_and_ranges_to_the_command() {
        let list: Cpus = "0-1,9,16".parse().unwrap();
        assert_eq!(bits(&list), [0b11, 0b10, 1]);
        assert!(bits(&Cpus::default()).is_empty());
        assert_eq!(assignment(&("AllowedCPUs", list.into())), "AllowedCPUs=0-1,9,16");
        assert_eq!(assignment(&("MemoryLow", Bytes(u64::MAX).into())), "MemoryLow=infinity");
    }
}
