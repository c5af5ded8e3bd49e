//! What systemd is told. Without `NOTIFY_SOCKET` all of this does nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "systemd was not notified");
    }
}

/// The daemon is up, or up again after a reload.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// A line for `systemctl status`.
pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// The loop moves.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The configuration is being read again.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// The daemon is going down.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// How often the watchdog wants to hear from us; half of its limit.
pub(crate) fn watchdog_interval() -> Duration {
    sd_notify::watchdog_enabled().map_or(Duration::from_secs(10), |limit| limit / 2)
}
