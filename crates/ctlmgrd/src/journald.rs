//! Lines for journald, each with its fields; one that journald does not take is dropped.
//!
//! Whoever waits for journald stands still with it: while its disk hangs, or it is stopped, its queue is full within
//! seconds. The loop must go on then, as limits and freezes are let go by nobody else. The library for this
//! (tracing-journald 0.3.2) waits.
//!
//! Format: systemd's "Native Journal Protocol".

use std::fmt::Debug;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where journald listens.
pub(crate) const SOCKET: &str = "/run/systemd/journal/socket";
/// What lines are filed under.
const IDENTIFIER: &str = "ctlmgrd";

/// A layer that hands lines to journald.
#[derive(Debug)]
pub(crate) struct Journald {
    socket: UnixDatagram,
    path: PathBuf,
    /// Lines that were not taken since one was.
    dropped: AtomicU64,
}

impl Journald {
    /// For whoever listens at `path`, now or later.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Journald> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Journald { socket, path: path.into(), dropped: AtomicU64::new(0) })
    }

    fn send(&self, line: &Line) {
        if self.socket.send_to(&line.0, &self.path).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let mut line = Line::new(Level::WARN, module_path!());
            line.put(
                "MESSAGE",
                &format!("{dropped} lines before this one were lost: journald did not take them"),
            );
            if self.socket.send_to(&line.0, &self.path).is_err() {
                self.dropped.fetch_add(dropped, Ordering::Relaxed);
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for Journald {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let about = event.metadata();
        let mut line = Line::new(*about.level(), about.target());
        if let (Some(file), Some(number)) = (about.file(), about.line()) {
            line.put("CODE_FILE", file);
            line.put("CODE_LINE", &number.to_string());
        }
        event.record(&mut line);
        self.send(&line);
    }
}

/// Fields of one line, as journald reads them.
struct Line(Vec<u8>);

impl Line {
    fn new(level: Level, target: &str) -> Line {
        let mut line = Line(Vec::with_capacity(512));
        line.put("SYSLOG_IDENTIFIER", IDENTIFIER);
        line.put("PRIORITY", priority(level));
        line.put("TARGET", target);
        line
    }

    /// A value may have several lines, so its length goes ahead.
    fn put(&mut self, name: &str, value: &str) {
        self.0.extend(name.as_bytes());
        self.0.push(b'\n');
        self.0.extend(u64::try_from(value.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.0.extend(value.as_bytes());
        self.0.push(b'\n');
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(&name_of(field.name()), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(&name_of(field.name()), &format!("{value:?}"));
    }
}

/// Letters, digits and underscores are all that a name may have; ours begin with `F_`, so none is one of journald's own.
fn name_of(field: &str) -> String {
    match field {
        "message" => "MESSAGE".to_owned(),
        _ => {
            let valid =
                |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            format!("F_{}", field.chars().map(valid).collect::<String>())
        }
    }
}

/// Syslog's: error, warning, notice, informational, debug.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "5",
        Level::DEBUG => "6",
        Level::TRACE => "7",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;
    use tracing_subscriber::layer::SubscriberExt;

    /// The next line, if there is one.
    fn take(journald: &UnixDatagram) -> Option<BTreeMap<String, String>> {
        let mut buffer = [0; 4096];
        let length = journald.recv(&mut buffer).ok()?;
        let mut left = &buffer[..length];
        let mut fields = BTreeMap::new();
        while let Some(end) = left.iter().position(|byte| *byte == b'\n') {
            let (name, rest) = (&left[..end], &left[end + 1..]);
            let length =
                usize::try_from(u64::from_le_bytes(rest[..8].try_into().unwrap())).unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            fields.insert(text(name), text(&rest[8..8 + length]));
            assert_eq!(rest[8 + length], b'\n');
            left = &rest[9 + length..];
        }
        Some(fields)
    }

    /// Whoever listens at `path`, and reads when asked to.
    fn journald(path: &Path) -> UnixDatagram {
        let journald = UnixDatagram::bind(path).unwrap();
        journald.set_nonblocking(true).unwrap();
        journald
    }

    /// Logs to whoever listens at `path`.
    fn log(path: &Path, work: impl FnOnce()) {
        let layer = Journald::new(path).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    }

    #[test]
    fn a_line_has_its_fields() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let journald = journald(&path);
        log(&path, || {
            tracing::warn!(path = %"a.slice", bytes = 7, a.b = "two\nlines", "it {}", "happened");
        });
        let line = take(&journald).unwrap();
        let expected = [
            ("SYSLOG_IDENTIFIER", "ctlmgrd"),
            ("PRIORITY", "4"),
            ("MESSAGE", "it happened"),
            ("F_PATH", "a.slice"),
            ("F_BYTES", "7"),
            ("F_A_B", "two\nlines"),
        ];
        for (name, value) in expected {
            assert_eq!(line.get(name).map(String::as_str), Some(value), "{line:?}");
        }
        assert!(line["CODE_FILE"].ends_with("journald.rs") && line.contains_key("TARGET"));
    }

    #[test]
    fn nobody_waits_for_it_and_what_was_lost_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let journald = journald(&path);
        log(&path, || {
            // More than any queue holds; it reads none of them.
            (0..10_000).for_each(|nth| tracing::info!(nth, "{}", "x".repeat(100)));
            let taken = std::iter::from_fn(|| take(&journald)).count();
            assert!(taken > 0 && taken < 10_000, "{taken}");
            tracing::info!("again");
            assert_eq!(take(&journald).unwrap()["MESSAGE"], "again");
            let lost = format!("{} lines before", 10_000 - taken);
            assert!(take(&journald).unwrap()["MESSAGE"].starts_with(&lost));
            assert!(take(&journald).is_none());
        });
    }

    #[test]
    fn without_it_lines_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        log(&dir.path().join("socket"), || tracing::info!("nobody listens"));
    }
}
