//! What systemd-oomd watches, as it says itself: the text that `oomctl` shows.
//!
//! Its limits come of units, drop-ins and oomd.conf, and what holds in the end it alone knows.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use ctlmgr_host::Host;
use ctlmgr_model::{CgroupPath, Oomd, Percent, Watched};
use tokio::sync::watch;
use tracing::debug;
use zbus::{Connection, OwnedFd, connection};

const NAME: &str = "org.freedesktop.oom1";
const PATH: &str = "/org/freedesktop/oom1";
const INTERFACE: &str = "org.freedesktop.oom1.Manager";
const BUS_SOCKET: &str = "run/dbus/system_bus_socket";
const BUS: &str = "org.freedesktop.DBus";
const BUS_PATH: &str = "/org/freedesktop/DBus";
/// It waits for at least as long, by default, before it kills.
const PACE: Duration = Duration::from_secs(20);
const TIMEOUT: Duration = Duration::from_secs(5);
/// More text than this is not read: a cgroup takes about 300 bytes.
const MOST_TEXT: u64 = 4 << 20;

/// Follows systemd-oomd for ever, and publishes what it watches. What it said last holds while it does not
/// answer; who is not there watches nothing.
pub async fn watch_oomd(host: Host, publish: watch::Sender<Oomd>) {
    let mut link = None;
    loop {
        match tokio::time::timeout(TIMEOUT, ask(&host, &mut link)).await {
            Ok(Ok(oomd)) => _ = publish.send_if_modified(|last| replace(last, oomd)),
            Ok(Err(error)) => {
                debug!(%error, "systemd-oomd could not be asked");
                link = None;
            }
            Err(_) => {
                debug!("systemd-oomd does not answer");
                link = None;
            }
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Whether that is news.
fn replace(last: &mut Oomd, now: Oomd) -> bool {
    let is_news = *last != now;
    *last = now;
    is_news
}

async fn ask(host: &Host, link: &mut Option<Connection>) -> zbus::Result<Oomd> {
    let connection = match link {
        Some(connection) => connection.clone(),
        None => {
            let address = format!("unix:path={}", host.path(BUS_SOCKET).display());
            connection::Builder::address(address.as_str()).build().await?
        }
    };
    *link = Some(connection.clone());
    // A call would start it.
    let is_there =
        connection.call_method(Some(BUS), BUS_PATH, Some(BUS), "NameHasOwner", &NAME).await?;
    if !is_there.body().deserialize::<bool>()? {
        return Ok(Oomd::default());
    }
    let answer = connection
        .call_method(Some(NAME), PATH, Some(INTERFACE), "DumpByFileDescriptor", &())
        .await?;
    let dump: OwnedFd = answer.body().deserialize()?;
    let read = move || {
        let mut text = String::new();
        File::from(std::os::fd::OwnedFd::from(dump)).take(MOST_TEXT).read_to_string(&mut text)?;
        Ok(parse(&text))
    };
    let done = tokio::task::spawn_blocking(read).await;
    done.unwrap_or_else(|error| Err(error.into()))
        .map_err(|error: std::io::Error| zbus::Error::InputOutput(Arc::new(error)))
}

/// Which list a line of the text is in.
#[derive(Clone, Copy, PartialEq)]
enum Section {
    Swap,
    Standstill,
}

/// From the text of systemd 247 and later. Lines that are not known say nothing.
fn parse(text: &str) -> Oomd {
    let mut oomd = Oomd::default();
    let (mut section, mut path, mut swap_limit) = (None, None, None);
    for line in text.lines() {
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        match (key, value.trim()) {
            ("Swap Monitored CGroups", _) => section = Some(Section::Swap),
            ("Memory Pressure Monitored CGroups", _) => section = Some(Section::Standstill),
            ("Swap Used Limit", value) => swap_limit = percent(value),
            ("Path", value) => {
                path = Some(CgroupPath::new(value));
                if section == Some(Section::Swap) {
                    oomd.swap_limit = swap_limit;
                }
            }
            ("Memory Pressure Limit", value) if section == Some(Section::Standstill) => {
                let watched = |limit| Watched { limit, pressure: None };
                oomd.watched.extend(path.take().zip(percent(value).map(watched)));
            }
            _ => {}
        }
    }
    oomd
}

/// Whole per cent, rounded down: a limit is rather too low than too high.
fn percent(text: &str) -> Option<Percent> {
    let number = text.strip_suffix('%')?;
    let whole = number.split_once('.').map_or(number, |(whole, _)| whole);
    whole.parse().ok().filter(|whole| *whole <= 100).map(Percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As systemd 257 writes it.
    const TEXT: &str = "\
Dry Run: no
Swap Used Limit: 90.00%
Default Memory Pressure Limit: 60.00%
Default Memory Pressure Duration: 20s
System Context:
\tMemory: Used: 239.5M, Total: 1.9G
\tSwap: Used: 0B, Total: 1.9G
Swap Monitored CGroups:
\tPath: /
\t\tSwap Usage: (see System Context)
Memory Pressure Monitored CGroups:
\tPath: /system.slice
\t\tMemory Pressure Limit: 12.50%
\t\tMemory Pressure Duration: 20s
\t\tPressure: Avg10: 0.00, Avg60: 0.00, Avg300: 0.00, Total: 0
\t\tCurrent Memory Usage: 160.2M
\t\tMemory Min: 24M
\tPath: /user.slice/user-1000.slice/user@1000.service
\t\tMemory Pressure Limit: 60.00%
\t\tPressure: Avg10: 0.00, Avg60: 0.00, Avg300: 0.00, Total: 0
";

    #[test]
    fn limits_are_read_by_cgroup_and_that_of_swap_where_one_is_watched() {
        let oomd = parse(TEXT);
        assert_eq!(oomd.swap_limit, Some(Percent(90)));
        let limits: Vec<_> = oomd
            .watched
            .iter()
            .map(|(path, watched)| (path.to_string(), watched.limit.0))
            .collect();
        let user = "/user.slice/user-1000.slice/user@1000.service".to_owned();
        assert_eq!(limits, [("/system.slice".to_owned(), 12), (user, 60)]);
        let without = TEXT.replace("\tPath: /\n\t\tSwap Usage: (see System Context)\n", "");
        assert_eq!(parse(&without).swap_limit, None);
    }

    #[tokio::test]
    async fn without_a_bus_nothing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let asked = ask(&Host::fake(dir.path()), &mut None).await;
        assert!(asked.is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(lines in proptest::collection::vec(
            prop_oneof!["\\PC*", proptest::sample::select(TEXT.lines().collect::<Vec<_>>()).prop_map(str::to_owned)],
            0..40,
        )) {
            let oomd = parse(&lines.join("\n"));
            prop_assert!(oomd.watched.values().all(|watched| watched.limit.0 <= 100));
        }
    }
}
