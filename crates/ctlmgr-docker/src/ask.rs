//! Asking ctlmgrd for leave, without ever being held up by it.
//!
//! The question is asked in slices of a second. A daemon that is dead refuses the connection, and one
//! that hangs misses its slice: either way the container starts, at most [`SLICE`] + [`GRACE`] later.

use std::path::Path;
use std::time::{Duration, Instant};

use ctlmgr_api::{Client, StartDecision, StartRequest};

/// The daemon answers at least this often …
const SLICE: Duration = Duration::from_secs(1);
/// … or so much later, busy as it may be.
const GRACE: Duration = Duration::from_millis(700);
/// Clients of dockerd give up after a minute; nobody is held so long, whatever the daemon says.
pub const LONGEST: Duration = Duration::from_secs(52);

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

/// Asks for leave to start `container`, for at most `longest`.
pub async fn leave(socket: &Path, container: &str, source: &str, longest: Duration) -> Leave {
    let client = Client::new(socket);
    let began = Instant::now();
    let mut request = StartRequest {
        container: container.to_owned(),
        source: source.to_owned(),
        wait_ms: Some(millis(SLICE)),
        ..StartRequest::default()
    };
    loop {
        if began.elapsed() >= longest {
            return Leave::Unasked(format!("it was held for {} s", longest.as_secs()));
        }
        match client.ask_start(&request, SLICE + GRACE).await {
            Ok(answer) => match answer.decision {
                StartDecision::Start => return Leave::Start,
                StartDecision::Refuse => return Leave::Refused(answer.reason),
                StartDecision::Wait => request.ticket = Some(answer.ticket),
            },
            Err(error) => return Leave::Unasked(chain(&error)),
        }
        // Another daemon would not know how long it has waited.
        request.waited_ms = millis(began.elapsed());
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
