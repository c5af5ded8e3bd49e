//! Logging: journald with fields where there is a journal, else stderr.

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::journald::{Journald, SOCKET};

/// Starts logging at `info`, or as `CTLMGR_LOG` says (`debug`, `ctlmgrd=trace`, …).
pub fn start() {
    let filter = EnvFilter::try_from_env("CTLMGR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let has_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let journald = has_journal.then(|| Journald::new(SOCKET)).and_then(Result::ok);
    let layer = match journald {
        Some(journald) => journald.boxed(),
        None => tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_target(false)
            .without_time()
            .boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
}
