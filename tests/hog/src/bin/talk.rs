//! A small service that talks: answers each call with as many bytes as it asks for, and calls others at a
//! pace.
//!
//! A call is one connection kept open: eight bytes say how many to answer. Once a second it prints, for each
//! callee, how many bytes of payload went both ways so far.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::json;

/// Answers calls and makes some.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where it listens.
    #[arg(long, default_value_t = 7000)]
    port: u16,
    /// HOST:PORT:BYTES:PER_SECOND; may be given several times.
    #[arg(long)]
    call: Vec<Call>,
    /// Make no more calls after this many seconds; 0 never stops.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
}

/// Calls of one other.
#[derive(Debug, Clone)]
struct Call {
    host: String,
    port: u16,
    bytes: u64,
    per_second: u32,
}

impl FromStr for Call {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Call> {
        let fields: Vec<&str> = text.split(':').collect();
        let [host, port, bytes, per_second] = fields[..] else {
            bail!("expected HOST:PORT:BYTES:PER_SECOND")
        };
        let call = Call {
            host: host.to_owned(),
            port: port.parse()?,
            bytes: bytes.parse()?,
            per_second: per_second.parse()?,
        };
        if call.per_second == 0 {
            bail!("PER_SECOND must be at least 1");
        }
        Ok(call)
    }
}

/// Between two attempts to reach one that is not there (yet).
const AGAIN: Duration = Duration::from_millis(500);

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let listener = TcpListener::bind(("0.0.0.0", arguments.port))
        .with_context(|| format!("failed to listen on port {}", arguments.port))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A caller that goes away ends its thread only.
            std::thread::spawn(move || answer(stream));
        }
    });
    let seconds = arguments.seconds;
    let until = (seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds));
    let counts: Vec<(String, Arc<AtomicU64>)> = arguments
        .call
        .into_iter()
        .map(|call| {
            let count = Arc::new(AtomicU64::new(0));
            let name = call.host.clone();
            let counted = count.clone();
            std::thread::spawn(move || keep_calling(&call, &counted, until));
            (name, count)
        })
        .collect();
    loop {
        std::thread::park_timeout(Duration::from_secs(1));
        // Two seconds for the calls under way.
        let is_final = is_over(until.map(|until| until + Duration::from_secs(2)));
        for (callee, count) in &counts {
            let bytes = count.load(Ordering::Relaxed);
            println!("{}", json!({"callee": callee, "bytes": bytes, "final": is_final}));
        }
        if is_final {
            std::thread::park();
        }
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut wanted = [0; 8];
    let block = vec![7_u8; 64 << 10];
    loop {
        stream.read_exact(&mut wanted)?;
        let mut left = usize::try_from(u64::from_be_bytes(wanted)).unwrap_or(0);
        while left > 0 {
            let part = left.min(block.len());
            stream.write_all(&block[..part])?;
            left -= part;
        }
    }
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

fn keep_calling(call: &Call, count: &AtomicU64, until: Option<Instant>) {
    while !is_over(until) {
        // The other may not have started yet, or be gone for a while.
        let _ = talk(call, count, until);
        std::thread::park_timeout(AGAIN);
    }
}

fn talk(call: &Call, count: &AtomicU64, until: Option<Instant>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((call.host.as_str(), call.port))?;
    stream.set_nodelay(true)?;
    let pause = Duration::from_secs(1) / call.per_second;
    let mut block = vec![0_u8; 64 << 10];
    let mut due = Instant::now();
    while !is_over(until) {
        stream.write_all(&call.bytes.to_be_bytes())?;
        let mut left = usize::try_from(call.bytes).unwrap_or(0);
        while left > 0 {
            let most = left.min(block.len());
            left -= match stream.read(&mut block[..most])? {
                0 => return Ok(()),
                n => n,
            };
        }
        count.fetch_add(call.bytes + 8, Ordering::Relaxed);
        due = (due + pause).max(Instant::now() - pause);
        std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}
