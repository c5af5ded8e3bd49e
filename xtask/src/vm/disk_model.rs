//! A disk whose time is modelled: an NBD server that QEMU uses as a drive of the guest.
//!
//! The paper's guidelines (Bhimani et al., §5) as a device: reads and writes have a channel each and do
//! not meet; within a channel one request is served at a time. A request is *sequential* if it goes on
//! where one of the last few ended, else *random*; like beside like costs nothing more, and a request of
//! the other kind than the one before costs a *switch*. A *flat* disk has no switches.
//!
//! Protocol: NBD, fixed newstyle, simple replies (the protocol document of the NBD project).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::sh;

/// What requests cost.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// A sequential request.
    pub sequential: Duration,
    /// A random request.
    pub random: Duration,
    /// One of the other kind than the one before it in its direction, on top.
    pub switch: Duration,
    /// Bytes per second.
    pub bytes_per_sec: u32,
}

const MAGIC: u64 = 0x4e42_444d_4147_4943; // NBDMAGIC
const OPTION: u64 = 0x4948_4156_454f_5054; // IHAVEOPT
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const OPT_ABORT: u32 = 2;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_UNSUPPORTED: u32 = 0x8000_0001;
/// It has flags, and it can flush.
const FLAGS: u16 = 1 | 4;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
/// So many ends are remembered in each direction.
const STREAMS: usize = 32;
/// A larger request is a client that has lost its way.
const LARGEST: u32 = 64 << 20;

/// Serves `disk` on `socket`, for one client after the other, until the process ends.
pub fn serve(socket: &Path, disk: &Path, size: u64, costs: Costs) -> Result<()> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(disk)?;
    file.set_len(size)?;
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("failed to listen on {}", socket.display()))?;
    let file = Arc::new(file);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Err(error) = client(stream, &file, size, costs) {
                eprintln!("xtask: the modelled disk: {error:#}");
            }
        }
    });
    Ok(())
}

fn client(mut stream: UnixStream, file: &Arc<File>, size: u64, costs: Costs) -> Result<()> {
    if !shake_hands(&mut stream, size)? {
        return Ok(());
    }
    let out = Arc::new(Mutex::new(stream.try_clone()?));
    let channel_of = |name: &'static str| {
        let (sender, receiver) = channel();
        let (file, out) = (file.clone(), out.clone());
        std::thread::spawn(move || {
            let spent = work(&receiver, &file, &out, costs);
            sh::say(&format!("modelled disk, {name}: {spent}"));
        });
        sender
    };
    requests(&mut stream, &channel_of("reads"), &channel_of("writes"))
}

/// Whether the client goes on to transmission.
fn shake_hands(stream: &mut UnixStream, size: u64) -> Result<bool> {
    stream.write_all(&MAGIC.to_be_bytes())?;
    stream.write_all(&OPTION.to_be_bytes())?;
    // Fixed newstyle, no padding.
    stream.write_all(&3_u16.to_be_bytes())?;
    let _flags = u32::from_be_bytes(take(stream)?);
    loop {
        if u64::from_be_bytes(take(stream)?) != OPTION {
            bail!("the client speaks another language");
        }
        let option = u32::from_be_bytes(take(stream)?);
        let length = u32::from_be_bytes(take(stream)?);
        if length > 64 << 10 {
            bail!("an option of {length} bytes");
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        match option {
            OPT_GO => {
                let mut info = vec![0, 0];
                info.extend(size.to_be_bytes());
                info.extend(FLAGS.to_be_bytes());
                reply_option(stream, option, REP_INFO, &info)?;
                reply_option(stream, option, REP_ACK, &[])?;
                return Ok(true);
            }
            OPT_ABORT => {
                reply_option(stream, option, REP_ACK, &[])?;
                return Ok(false);
            }
            _ => reply_option(stream, option, REP_UNSUPPORTED, &[])?,
        }
    }
}

fn reply_option(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> Result<()> {
    let length = u32::try_from(data.len())?;
    let mut reply = OPTION_REPLY.to_be_bytes().to_vec();
    for word in [option, kind, length] {
        reply.extend(word.to_be_bytes());
    }
    reply.extend(data);
    Ok(stream.write_all(&reply)?)
}

struct Request {
    kind: u16,
    cookie: [u8; 8],
    offset: u64,
    length: u32,
    data: Vec<u8>,
}

fn requests(
    stream: &mut UnixStream,
    reads: &Sender<Request>,
    writes: &Sender<Request>,
) -> Result<()> {
    loop {
        // The guest ends by being killed: then there is no more.
        let Ok(magic) = take(stream) else { return Ok(()) };
        if u32::from_be_bytes(magic) != REQUEST {
            bail!("the client lost its way");
        }
        let _flags = u16::from_be_bytes(take(stream)?);
        let kind = u16::from_be_bytes(take(stream)?);
        let cookie = take(stream)?;
        let offset = u64::from_be_bytes(take(stream)?);
        let length = u32::from_be_bytes(take(stream)?);
        if length > LARGEST {
            bail!("a request of {length} bytes");
        }
        let mut data = vec![0; if kind == WRITE { length as usize } else { 0 }];
        stream.read_exact(&mut data)?;
        let request = Request { kind, cookie, offset, length, data };
        match kind {
            DISCONNECT => return Ok(()),
            READ => reads.send(request)?,
            // A flush comes after the writes before it.
            _ => writes.send(request)?,
        }
    }
}

/// What a channel did: no way of starting can take less time than it was busy without its switches.
#[derive(Default)]
struct Spent {
    requests: u32,
    switches: u32,
    busy: Duration,
    switching: Duration,
}

impl std::fmt::Display for Spent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Spent { requests, switches, busy, switching } = self;
        let (busy, switching) = (busy.as_secs_f64(), switching.as_secs_f64());
        write!(
            f,
            "{requests} requests, busy {busy:.1} s, {switching:.1} s of it in {switches} switches"
        )
    }
}

/// One channel: one request after the other, each in its time.
fn work(queue: &Receiver<Request>, file: &File, out: &Mutex<UnixStream>, costs: Costs) -> Spent {
    let (mut streams, mut was_sequential) = (VecDeque::new(), false);
    let mut spent = Spent::default();
    let mut free_at = Instant::now();
    for mut request in queue {
        let is_data = matches!(request.kind, READ | WRITE);
        let result = match request.kind {
            READ => {
                request.data = vec![0; request.length as usize];
                file.read_exact_at(&mut request.data, request.offset)
            }
            WRITE => file.write_all_at(&request.data, request.offset),
            _ => Ok(()),
        };
        if is_data {
            let stream = streams.iter().position(|end| *end == request.offset);
            let is_sequential = stream.and_then(|at| streams.remove(at)).is_some();
            let own = if is_sequential { costs.sequential } else { costs.random };
            let is_switch = std::mem::replace(&mut was_sequential, is_sequential) != is_sequential;
            let switch = if is_switch { costs.switch } else { Duration::ZERO };
            let bytes = f64::from(request.length) / f64::from(costs.bytes_per_sec);
            let bytes = Duration::from_secs_f64(bytes);
            spent.requests += 1;
            spent.switches += u32::from(is_switch);
            spent.switching += switch;
            spent.busy += own + switch + bytes;
            free_at = free_at.max(Instant::now()) + own + switch + bytes;
            streams.push_front(request.offset + u64::from(request.length));
            streams.truncate(STREAMS);
            wait_until(free_at);
        }
        let error: u32 = if result.is_ok() { 0 } else { 5 };
        let mut reply = REPLY.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(request.cookie);
        if request.kind == READ && error == 0 {
            reply.extend(&request.data);
        }
        if out.lock().unwrap_or_else(PoisonError::into_inner).write_all(&reply).is_err() {
            break;
        }
    }
    spent
}

fn wait_until(at: Instant) {
    while let Some(left) = at.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        std::thread::park_timeout(left);
    }
}

fn take<const N: usize>(stream: &mut UnixStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
