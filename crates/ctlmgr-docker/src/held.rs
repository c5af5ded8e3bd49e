//! Starts that are held, as the service manager keeps them while this process is not there.
//!
//! The connection on which dockerd waits is put into the file descriptor store of systemd
//! (`FileDescriptorStoreMax=` in systemd.service(5)), under a name that says what is needed to go on. If
//! the process dies the connection stays open, and the next one takes it over; otherwise everybody who
//! waits would start at that moment. Each is taken over once: what killed one process must not kill the
//! next for ever. When the service fails for good systemd closes them all, as if they had never been kept.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use sd_notify::NotifyState;

/// Before the name of each, so that it is told from the socket.
pub const PREFIX: &str = "held-";
/// Longest name that systemd takes (sd_pid_notify_with_fds(3)).
const LONGEST_NAME: usize = 255;

/// What is needed to go on holding a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The container, as dockerd's client wrote it.
    pub container: String,
    /// What the daemon calls it.
    pub ticket: u64,
    /// Since when, in milliseconds since boot: it must mean the same to the next process.
    pub since_ms: u64,
}

impl Held {
    /// The name under which it is kept; `None` if the container's is none that dockerd would know.
    pub fn to_name(&self) -> Option<String> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        let name = format!("{PREFIX}{}-{}-{}", self.since_ms, self.ticket, self.container);
        let is_kept = !self.container.is_empty() && self.container.bytes().all(is_plain);
        (is_kept && name.len() <= LONGEST_NAME).then_some(name)
    }

    /// What a name says; `None` if it is none of ours.
    pub fn from_name(name: &str) -> Option<Held> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
        let since_ms = parts.next()?.parse().ok()?;
        let ticket = parts.next()?.parse().ok()?;
        let container = parts.next()?.to_owned();
        Some(Held { container, ticket, since_ms })
    }

    /// How long it has been held.
    pub fn waited(&self) -> Duration {
        Duration::from_millis(since_boot_ms().saturating_sub(self.since_ms))
    }
}

/// Time since boot in milliseconds, which nobody sets; nothing if the kernel does not tell.
pub fn since_boot_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// What the service manager is told, in this order.
#[derive(Debug)]
enum Order {
    Keep(String, OwnedFd),
    Forget(String),
}

/// The way to the store. Told from a thread of its own: a service manager that hangs holds nobody up.
#[derive(Debug)]
pub struct Store(Sender<Order>);

impl Store {
    /// That of the service that this process is; without one nothing is kept.
    pub fn new() -> Store {
        let (orders, ordered) = channel();
        std::thread::spawn(move || tell(&ordered));
        Store(orders)
    }

    /// Keeps a connection until what is returned is dropped. Nothing is kept if that fails.
    pub fn keep(&self, held: &Held, connection: &OwnedFd) -> Option<Kept> {
        let (name, copy) = (held.to_name()?, connection.try_clone().ok()?);
        self.0.send(Order::Keep(name.clone(), copy)).ok()?;
        Some(Kept { orders: self.0.clone(), name })
    }

    /// Forgets a connection that was handed over, whatever is made of it.
    pub fn forget(&self, name: String) {
        // Whoever carries it out is gone only with the process.
        let _ = self.0.send(Order::Forget(name));
    }
}

impl Default for Store {
    fn default() -> Self {
        Store::new()
    }
}

/// A connection that is kept as long as this lives.
#[derive(Debug)]
pub struct Kept {
    orders: Sender<Order>,
    name: String,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Whoever carries it out is gone only with the process.
        let _ = self.orders.send(Order::Forget(std::mem::take(&mut self.name)));
    }
}

fn tell(orders: &Receiver<Order>) {
    for order in orders {
        let told = match &order {
            Order::Keep(name, fd) => sd_notify::notify_with_fds(
                &[NotifyState::FdStore, NotifyState::FdName(name)],
                &[fd.as_fd()],
            ),
            Order::Forget(name) => {
                sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)])
            }
        };
        if let Err(error) = told {
            eprintln!("<4>the service manager was not told of a start that is held: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_says_what_was_held(
            container in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,300}|.{0,20}",
            ticket in any::<u64>(),
            since_ms in any::<u64>(),
        ) {
            let held = Held { container, ticket, since_ms };
            if let Some(name) = held.to_name() {
                prop_assert!(name.len() <= LONGEST_NAME && name.is_ascii() && !name.contains(':'));
                prop_assert_eq!(Held::from_name(&name), Some(held));
            } else {
                let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                let is_odd = held.container.is_empty() || !held.container.chars().all(plain);
                prop_assert!(is_odd || held.container.len() > 200);
            }
        }

        #[test]
        fn any_name_is_ours_or_not(name in "(held-)?.{0,60}") {
            let _ = Held::from_name(&name);
        }
    }
}
