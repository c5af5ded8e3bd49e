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

/// PID 1 can be slow under pressure; a hung bus must not hold the worker for ever.
const TIMEOUT: Duration = Duration::from_secs(10);
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

/// The system manager, reached over the message bus, or directly while that is away.
#[derive(Debug, Default)]
pub struct SystemdBus {
    connection: Mutex<Option<Connection>>,
}

impl SystemdBus {
    /// A client that connects when first needed, and again after a failure.
    pub fn new() -> SystemdBus {
        SystemdBus::default()
    }

    async fn connect() -> zbus::Result<Connection> {
        match Connection::system().await {
            Ok(connection) => Ok(connection),
            Err(_) => zbus::connection::Builder::address(PRIVATE).p2p().build().await,
        }
    }

    /// A connection may have died with the bus since it was last used: one more try on a new one.
    async fn call_twice(&self, unit: &str, property: (&'static str, u64)) -> zbus::Result<()> {
        match self.call(unit, property).await {
            Ok(()) => Ok(()),
            Err(error @ zbus::Error::MethodError(..)) => Err(error),
            Err(_) => self.call(unit, property).await,
        }
    }

    async fn call(&self, unit: &str, property: (&'static str, u64)) -> zbus::Result<()> {
        let mut guard = self.connection.lock().await;
        let connection = match guard.take() {
            Some(connection) => connection,
            None => Self::connect().await?,
        };
        let is_bus = connection.is_bus();
        let properties = vec![(property.0, Variant::from(property.1))];
        connection
            .call_method(
                is_bus.then_some("org.freedesktop.systemd1"),
                "/org/freedesktop/systemd1",
                Some("org.freedesktop.systemd1.Manager"),
                "SetUnitProperties",
                &(unit, true, properties),
            )
            .await
            .inspect(|_| *guard = Some(connection))
            .map(drop)
    }
}

impl UnitProperties for SystemdBus {
    async fn set(&self, unit: &str, property: (&'static str, u64)) -> Result<(), UnitError> {
        let name = property.0;
        match tokio::time::timeout(TIMEOUT, self.call_twice(unit, property)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(zbus::Error::MethodError(kind, _, _)))
                if kind.ends_with(".NoSuchUnit") || kind.ends_with(".UnitNotLoaded") =>
            {
                Err(UnitError::NoSuchUnit(unit.to_owned()))
            }
            Ok(Err(source)) => {
                Err(UnitError::Bus { unit: unit.to_owned(), property: name, source })
            }
            Err(_) => Err(UnitError::Timeout { unit: unit.to_owned(), property: name }),
        }
    }
}
