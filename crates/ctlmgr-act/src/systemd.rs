//! The system manager on D-Bus.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use zbus::Connection;
use zbus::Variant;

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
    /// There is no such unit (any more).
    #[error("unit {0} is not loaded")]
    NoSuchUnit(String),
}

/// PID 1 can be slow under pressure; a hung bus must not hold the worker for ever. For each way.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The manager's own socket: works without a message bus, for root.
const PRIVATE: &str = "unix:path=/run/systemd/private";

/// Whoever can set properties of units.
pub trait UnitProperties: Send + Sync + 'static {
    /// Sets one property until the next reboot, and returns when it is applied.
    fn set(
        &self,
        unit: &str,
        property: (&'static str, u64),
    ) -> impl Future<Output = Result<(), UnitError>> + Send;
}

/// The system manager, reached over the message bus, or directly while that is away or hangs.
#[derive(Debug, Default)]
pub struct SystemdBus {
    connection: Mutex<Option<Connection>>,
}

/// Ways to the manager, in the order in which they are tried.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// The connection that worked last; it may have died with the bus since.
    Known,
    /// A new one to the message bus.
    Bus,
    /// The manager's own socket.
    Direct,
}

impl SystemdBus {
    /// A client that connects when first needed, and again after a failure.
    pub fn new() -> SystemdBus {
        SystemdBus::default()
    }

    /// One try, and the connection if there was one.
    async fn attempt(
        known: Option<Connection>,
        way: Way,
        unit: &str,
        property: (&str, u64),
    ) -> zbus::Result<Option<Connection>> {
        let connection = match (way, known) {
            (Way::Known, None) => return Ok(None),
            (Way::Known, Some(connection)) => connection,
            (Way::Bus, _) => Connection::system().await?,
            (Way::Direct, _) => zbus::connection::Builder::address(PRIVATE).p2p().build().await?,
        };
        call(&connection, unit, property).await.map(|()| Some(connection))
    }
}

async fn call(connection: &Connection, unit: &str, property: (&str, u64)) -> zbus::Result<()> {
    let properties = vec![(property.0, Variant::from(property.1))];
    connection
        .call_method(
            connection.is_bus().then_some("org.freedesktop.systemd1"),
            "/org/freedesktop/systemd1",
            Some("org.freedesktop.systemd1.Manager"),
            "SetUnitProperties",
            &(unit, true, properties),
        )
        .await
        .map(drop)
}

/// What an error of the bus says about the unit.
fn explain(source: zbus::Error, unit: &str, property: &'static str) -> UnitError {
    let is_unknown = matches!(&source, zbus::Error::MethodError(kind, _, _)
        if kind.ends_with(".NoSuchUnit") || kind.ends_with(".UnitNotLoaded"));
    let unit = unit.to_owned();
    if is_unknown { UnitError::NoSuchUnit(unit) } else { UnitError::Bus { unit, property, source } }
}

impl UnitProperties for SystemdBus {
    async fn set(&self, unit: &str, property: (&'static str, u64)) -> Result<(), UnitError> {
        let name = property.0;
        let mut known = self.connection.lock().await;
        let mut last = Ok(());
        for way in [Way::Known, Way::Bus, Way::Direct] {
            let attempt = Self::attempt(known.take(), way, unit, property);
            match tokio::time::timeout(TIMEOUT, attempt).await {
                Ok(Ok(None)) => {}
                Ok(Ok(connection)) => {
                    *known = connection;
                    return Ok(());
                }
                Ok(Err(error)) => match explain(error, unit, name) {
                    error @ UnitError::NoSuchUnit(_) => return Err(error),
                    // It may be the bus that says so, in place of a manager it does not see.
                    error => last = Err(error),
                },
                Err(_) => {
                    last = Err(UnitError::Timeout { unit: unit.to_owned(), property: name });
                }
            }
        }
        last
    }
}
