//! What dockerd says, asked on its socket: its own client takes an emulated processor for a second, and who waits asks often.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::PATIENCE;

const SOCKET: &str = "/run/docker.sock";

/// What `docker inspect` shows of a container.
///
/// # Errors
/// dockerd does not answer, or knows no such container.
pub fn inspect(name: &str) -> Result<Value> {
    let text = ask(&format!("/containers/{name}/json"))?;
    serde_json::from_slice(&text).with_context(|| format!("dockerd says no JSON of {name}"))
}

/// Whether a container runs.
///
/// # Errors
/// As [`inspect`].
pub fn is_running(name: &str) -> Result<bool> {
    Ok(inspect(name)?["State"]["Running"] == true)
}

/// The last lines that a container has printed.
///
/// # Errors
/// As [`inspect`].
pub fn logs(name: &str) -> Result<String> {
    let text = ask(&format!("/containers/{name}/logs?stdout=1&stderr=1&tail=20"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The body of an answer. By HTTP/1.0, so that it comes in one piece and ends with the connection.
fn ask(path: &str) -> Result<Vec<u8>> {
    let asked = || format!("failed to ask dockerd for {path}");
    let mut socket = UnixStream::connect(SOCKET).with_context(asked)?;
    socket.set_read_timeout(Some(PATIENCE)).with_context(asked)?;
    write!(socket, "GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n").with_context(asked)?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).with_context(asked)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").with_context(asked)?;
    let body = answer.split_off(end + 4);
    let head = String::from_utf8_lossy(&answer);
    let said = String::from_utf8_lossy(&body);
    ensure!(head.split(' ').nth(1) == Some("200"), "{}: {head}{said}", asked());
    Ok(body)
}
