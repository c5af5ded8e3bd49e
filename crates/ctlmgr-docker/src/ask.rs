//! Asking ctlmgrd for leave, without ever being held up by it.
//!
//! The question is asked in slices of less than a second. A daemon that is dead refuses the connection, and one
//! that hangs misses its slice: either way the container starts, at most [`SLICE`] + [`GRACE`] later. When
//! plugin or wrapper was not answered, the other, which asks about the same start, does not wait as long again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ctlmgr_api::{Client, FailedStart, StartDecision, StartRequest};
use hyper::Method;

/// The daemon answers at least this often …
const SLICE: Duration = Duration::from_millis(800);
/// … or so much later, busy as it may be.
const GRACE: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_millis(1500);
/// Whatever becomes of the daemon `docker start` works within two seconds, and needs some of that for itself.
const _: () = assert!(SLICE.as_millis() + GRACE.as_millis() == PATIENCE.as_millis());
/// Whoever asks one that did not answer the other one just now waits no longer for its first word. Nobody
/// goes by his own: on a busy host one late answer must not let all that follow go unasked.
const SUSPICION: Duration = Duration::from_millis(200);
/// For so long.
const SUSPICIOUS_FOR: Duration = Duration::from_secs(5);
/// Nobody is held so long unless the daemon says that its longest wait is longer …
pub const LONGEST: Duration = Duration::from_secs(52);
/// … and nobody so long whatever it says: longer than any wait that can be configured (an hour).
pub const LONGEST_EVER: Duration = Duration::from_secs(3607);
/// A daemon lets go when the longest wait is over; so much later nobody waits for it any more.
const OVERDUE: Duration = Duration::from_secs(7);

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    /// It may start.
    Start,
    /// The operator refused it, in these words.
    Refused(String),
    /// It starts without leave, because of this.
    Unasked(String),
}

/// Whom to ask.
#[derive(Debug, Clone)]
pub struct Daemon {
    /// Its API.
    pub socket: PathBuf,
    /// A file for each who was not answered begins so; its time of modification says when.
    pub silence: PathBuf,
    /// An answer later than this is none.
    pub patience: Duration,
}

impl Daemon {
    /// The one of this host; another socket is another daemon.
    pub fn at(socket: Option<PathBuf>) -> Daemon {
        match socket {
            Some(socket) if socket != Path::new(ctlmgr_api::SOCKET) => {
                Daemon { silence: socket.with_extension("silent"), socket, patience: PATIENCE }
            }
            _ => Daemon {
                socket: ctlmgr_api::SOCKET.into(),
                silence: SILENCE.into(),
                patience: PATIENCE,
            },
        }
    }

    /// To somebody else than who asks now.
    fn was_silent_just_now(&self, source: &str) -> bool {
        SOURCES.iter().filter(|other| **other != source).any(|other| {
            let noted = std::fs::metadata(self.silence_to(other)).and_then(|m| m.modified());
            // A clock that was set back says nothing.
            noted.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SUSPICIOUS_FOR))
        })
    }

    /// Where it is noted that this one was not answered.
    pub fn silence_to(&self, source: &str) -> PathBuf {
        self.silence.with_extension(source)
    }

    /// Without it the other one waits as long as this one did.
    fn note_silence(&self, source: &str) {
        if let Some(directory) = self.silence.parent() {
            let _ = std::fs::create_dir_all(directory);
        }
        let _ = std::fs::write(self.silence_to(source), "silent\n");
    }
}

/// Who asks: the plugin, and the wrapper.
pub const SOURCES: [&str; 2] = ["docker", "runc"];

/// Where the plugin, which sees the host read-only, may write.
const SILENCE: &str = "/run/ctlmgr-docker/silent";

/// A container that wants to start.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// By name, id, or the beginning of its id.
    pub container: &'a str,
    /// Who asks, for people.
    pub source: &'a str,
    /// Whether it is no matter where it runs already.
    pub is_mere_start: bool,
    /// It is held for [`LONGEST`] or what the daemon says instead, and never longer than this.
    pub longest: Duration,
    /// How long it has been held already.
    pub waited: Duration,
    /// What the daemon called it then.
    pub ticket: Option<u64>,
}

/// Asks for leave; `on_hold` hears the ticket whenever the daemon says wait.
pub async fn leave(daemon: &Daemon, start: Start<'_>, mut on_hold: impl FnMut(u64)) -> Leave {
    let client = Client::new(&daemon.socket);
    let now = Instant::now();
    // Time may not reach back that far.
    let began = now.checked_sub(start.waited).unwrap_or(now);
    let (slice, mut limit) = match daemon.was_silent_just_now(start.source) {
        true => (Duration::ZERO, SUSPICION),
        false => (SLICE, daemon.patience),
    };
    let mut request = StartRequest {
        container: start.container.to_owned(),
        source: start.source.to_owned(),
        is_mere_start: start.is_mere_start,
        ticket: start.ticket,
        waited_ms: millis(began.elapsed()),
        wait_ms: Some(millis(slice)),
        ..StartRequest::default()
    };
    loop {
        let asked = Instant::now();
        let answer = match client.ask_start(&request, limit).await {
            Ok(answer) => answer,
            Err(error) => {
                if limit > SUSPICION && asked.elapsed() >= limit {
                    daemon.note_silence(start.source);
                }
                return Leave::Unasked(chain(&error));
            }
        };
        match answer.decision {
            StartDecision::Start => return Leave::Start,
            StartDecision::Refuse => return Leave::Refused(answer.reason),
            StartDecision::Wait => on_hold(answer.ticket),
        }
        let patience = patience_for(answer.longest_ms).min(start.longest);
        if began.elapsed() >= patience {
            return Leave::Unasked(format!("it was held for {} s", patience.as_secs()));
        }
        request.ticket = Some(answer.ticket);
        (request.wait_ms, limit) = (Some(millis(SLICE)), daemon.patience);
        // Another daemon would not know how long it has waited.
        request.waited_ms = millis(began.elapsed());
    }
}

/// Tells that a start has come to nothing, as far as anybody listens.
pub async fn give_up(daemon: &Daemon, container: String) {
    let client = Client::new(&daemon.socket);
    let failed = FailedStart { container };
    let told = client.send::<_, bool>(Method::DELETE, "/v1/starts", &failed);
    let _ = tokio::time::timeout(daemon.patience.saturating_sub(GRACE), told).await;
}

/// How long one may be held whose longest wait is this, if the daemon knows.
fn patience_for(longest_ms: Option<u64>) -> Duration {
    longest_ms.map_or(LONGEST, |ms| Duration::from_millis(ms).saturating_add(OVERDUE))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_held_a_little_longer_than_its_longest_wait() {
        assert_eq!(patience_for(None), LONGEST);
        assert_eq!(patience_for(Some(45_000)), LONGEST);
        assert_eq!(patience_for(Some(3_600_000)), LONGEST_EVER);
        assert!(patience_for(Some(u64::MAX)) > LONGEST_EVER, "whoever asks sets the limit");
    }
}
