//! One JSON object per line over a Unix socket: QMP and the guest agent speak it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A connection with a deadline on every answer.
pub struct JsonSocket {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    calls: u64,
}

impl JsonSocket {
    pub fn connect(path: &Path, within: Duration) -> Result<JsonSocket> {
        let deadline = Instant::now() + within;
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => {
                    let reader = BufReader::new(stream.try_clone()?);
                    return Ok(JsonSocket { stream, reader, calls: 0 });
                }
                Err(error) if Instant::now() > deadline => {
                    return Err(error)
                        .with_context(|| format!("failed to reach {}", path.display()));
                }
                // QEMU makes its sockets while it starts.
                Err(_) => std::thread::park_timeout(Duration::from_millis(50)),
            }
        }
    }

    pub fn send(&mut self, message: &Value) -> Result<()> {
        let mut text = message.to_string();
        text.push('\n');
        self.stream.write_all(text.as_bytes()).context("failed to send")
    }

    /// The next object that is neither an event nor a greeting.
    pub fn receive(&mut self, within: Duration) -> Result<Value> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("no answer within {} s", within.as_secs());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut line = Vec::new();
            let count = self.reader.read_until(b'\n', &mut line).context("no answer in time")?;
            if count == 0 {
                bail!("the connection was closed");
            }
            // 0xff is how the agent marks the end of garbage after a resynchronisation.
            let text = line.rsplit(|&b| b == 0xff).next().unwrap_or_default();
            let Ok(value) = serde_json::from_slice::<Value>(text) else { continue };
            if value.get("event").is_none() && value.get("QMP").is_none() {
                return Ok(value);
            }
        }
    }

    /// Sends a command and returns what it returns. The answer to one that was given up may still come: it is passed over.
    pub fn call(&mut self, name: &str, arguments: Value, within: Duration) -> Result<Value> {
        self.calls += 1;
        let id = self.calls;
        let mut message = serde_json::json!({ "execute": name, "id": id });
        if !arguments.is_null() {
            message["arguments"] = arguments;
        }
        self.send(&message)?;
        let answer = loop {
            let answer = self.receive(within).with_context(|| format!("failed to call {name}"))?;
            if answer["id"].as_u64() == Some(id) {
                break answer;
            }
        };
        match (answer.get("return"), answer.get("error")) {
            (Some(value), _) => Ok(value.clone()),
            (None, Some(error)) => bail!("{name} failed: {}", error["desc"]),
            _ => bail!("{name}: unexpected answer {answer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_late_answer_is_not_taken_for_the_next_one() {
        let (stream, other) = UnixStream::pair().unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        let mut socket = JsonSocket { stream, reader, calls: 0 };
        let given_up = socket.call("first", Value::Null, Duration::from_millis(1));
        assert!(given_up.is_err());
        let mut late = JsonSocket {
            reader: BufReader::new(other.try_clone().unwrap()),
            stream: other,
            calls: 0,
        };
        late.send(&json!({"id": 1, "return": "late"})).unwrap();
        late.send(&json!({"id": 2, "return": "mine"})).unwrap();
        let answer = socket.call("second", Value::Null, Duration::from_secs(10)).unwrap();
        assert_eq!(answer, "mine");
    }
}
