//! What systemd is told. Without `NOTIFY_SOCKET` all of this does nothing.

use std::future::Future;
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

/// How often systemd hears that slow work goes on, and for how long that holds.
const BEAT: Duration = Duration::from_secs(5);
const PATIENCE_USEC: u32 = 30_000_000;

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

/// Waits for `work`, which may be slow where the system manager is, and keeps systemd from taking
/// that for a hang.
pub(crate) async fn attended<T>(work: impl Future<Output = T>) -> T {
    let mut beat = tokio::time::interval(BEAT);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return result,
            _ = beat.tick() => tell(&[NotifyState::Watchdog, NotifyState::ExtendTimeoutUsec(PATIENCE_USEC)]),
        }
    }
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
