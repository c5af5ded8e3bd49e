//! The QEMU guest agent: commands in, output and files out, over virtio-serial.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::json_socket::JsonSocket;

/// A guest under pressure answers late; a dead one never does.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Agent {
    socket: JsonSocket,
}

impl Agent {
    /// Waits until the agent of a booting or restored guest answers.
    pub fn wait(
        path: &Path,
        within: Duration,
        mut is_alive: impl FnMut() -> bool,
    ) -> Result<Agent> {
        let deadline = Instant::now() + within;
        for round in 1_u64.. {
            let mut socket = JsonSocket::connect(path, Duration::from_secs(10))?;
            // Answers to earlier rounds may still be under way: only our own number counts.
            socket.send(&json!({"execute": "guest-sync", "arguments": {"id": round}}))?;
            while let Ok(answer) = socket.receive(Duration::from_secs(2)) {
                if answer["return"].as_u64() == Some(round) {
                    return Ok(Agent { socket });
                }
            }
            if !is_alive() {
                bail!("QEMU ended before the guest answered");
            }
            if Instant::now() > deadline {
                bail!("the guest did not answer within {} s", within.as_secs());
            }
        }
        bail!("the guest never answered")
    }

    fn call(&mut self, name: &str, arguments: Value) -> Result<Value> {
        self.socket.call(name, arguments, PATIENCE)
    }

    /// Starts a shell command and returns its process id.
    pub fn start(&mut self, script: &str) -> Result<u64> {
        let arguments = json!({"path": "/bin/sh", "arg": ["-c", script], "capture-output": false});
        let answer = self.call("guest-exec", arguments)?;
        answer["pid"].as_u64().context("guest-exec gave no pid")
    }

    /// Exit status of a command, once it has ended.
    pub fn status(&mut self, pid: u64) -> Result<Option<i64>> {
        let answer = self.call("guest-exec-status", json!({"pid": pid}))?;
        if answer["exited"] != json!(true) {
            return Ok(None);
        }
        let signal = answer["signal"].as_i64().map(|s| 128 + s);
        Ok(Some(answer["exitcode"].as_i64().or(signal).unwrap_or(-1)))
    }

    /// What a file holds from `offset` on; nothing if it is not there.
    pub fn read_from(&mut self, path: &str, offset: u64) -> Result<Vec<u8>> {
        let Ok(handle) = self.call("guest-file-open", json!({"path": path, "mode": "r"})) else {
            return Ok(Vec::new());
        };
        let seek = json!({"handle": handle, "offset": offset, "whence": "set"});
        self.call("guest-file-seek", seek)?;
        let mut bytes = Vec::new();
        loop {
            let read = json!({"handle": handle, "count": 1 << 20});
            let answer = self.call("guest-file-read", read)?;
            bytes.extend(decode(answer["buf-b64"].as_str().unwrap_or_default()));
            if answer["eof"] == json!(true) || answer["count"] == json!(0) {
                break;
            }
        }
        self.call("guest-file-close", json!({"handle": handle}))?;
        Ok(bytes)
    }
}

/// Base64 as in RFC 4648 §4; what is no digit is skipped.
fn decode(text: &str) -> Vec<u8> {
    let digit = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(digit).collect();
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.chunks(4) {
        let word =
            chunk.iter().fold(0u32, |w, d| w << 6 | u32::from(*d)) << (6 * (4 - chunk.len()));
        let bytes = word.to_be_bytes();
        out.extend(&bytes[1..chunk.len().max(1)]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn base64() {
        for (text, expected) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmE=", "fooba")]
        {
            assert_eq!(decode(text), expected.as_bytes(), "{text}");
        }
    }
}
