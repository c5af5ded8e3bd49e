//! Tracing of requests, where it is wanted and the kernel can; without it the gate goes by `io.stat`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ctlmgr_host::{CgroupDir, Host, chain};
use ctlmgr_model::{Disk, DiskTracing, Moved};
use ctlmgr_trace::{CallTrace, EventTrace};
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// What sees requests.
#[derive(Debug)]
pub(super) enum Trace {
    #[cfg(feature = "ebpf")]
    Ebpf(ctlmgr_trace::DiskTrace),
    Events(EventTrace),
    Calls(CallTrace),
}

impl Trace {
    /// Takes in what has happened since the last time, where that has to be asked for.
    pub fn read(&self) {
        match self {
            #[cfg(feature = "ebpf")]
            Trace::Ebpf(_) => {}
            Trace::Events(trace) => trace.read(),
            Trace::Calls(_) => {}
        }
    }

    /// Adds what a cgroup asked of its disks since tracing began, as far as it was read.
    pub fn tell(&self, dir: &CgroupDir, disks: &mut [(Disk, Moved)]) {
        for (disk, moved) in disks.iter_mut() {
            moved.shape = match self {
                #[cfg(feature = "ebpf")]
                Trace::Ebpf(trace) => trace.shape(dir.id(), *disk),
                Trace::Events(trace) => trace.shape(dir.id(), *disk),
                Trace::Calls(_) => None,
            };
        }
        if let Trace::Calls(trace) = self {
            trace.tell(dir, disks);
        }
    }
}

/// Whether requests are traced.
#[derive(Debug, Default)]
pub(super) struct Tracing {
    way: DiskTracing,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// Not wanted.
    #[default]
    Off,
    /// The kernel is asked, off the gate's task: for eBPF it reads the types of the whole kernel.
    Attaching(JoinHandle<Result<Trace, String>>),
    On(Arc<Trace>),
    /// It cannot be, for this reason; asked again after it was wanted otherwise for a while.
    Refused(String),
}

impl Tracing {
    /// Begins or ends, as the settings want it.
    pub fn want(&mut self, way: DiskTracing, host: &Host) {
        if self.way == way && !(matches!(self.state, State::Off) && way != DiskTracing::Off) {
            return;
        }
        self.way = way;
        let (host, former) = (host.clone(), std::mem::take(&mut self.state));
        let attaching = tokio::task::spawn_blocking(move || {
            end(former);
            attach(way, &host)
        });
        if way != DiskTracing::Off {
            self.state = State::Attaching(attaching);
        }
    }

    /// Takes what the kernel has answered.
    pub async fn note(&mut self) {
        let State::Attaching(attaching) = &mut self.state else { return };
        if !attaching.is_finished() {
            return;
        }
        self.state = match attaching.await {
            Ok(Ok(trace)) => State::On(Arc::new(trace)),
            Ok(Err(why)) => {
                warn!(
                    why,
                    "requests to disks are not traced; their character is told from io.stat"
                );
                State::Refused(why)
            }
            Err(error) => State::Refused(error.to_string()),
        };
    }

    pub fn is_beginning(&self) -> bool {
        matches!(self.state, State::Attaching(_))
    }

    pub fn get(&self) -> Option<Arc<Trace>> {
        match &self.state {
            State::On(trace) => Some(trace.clone()),
            _ => None,
        }
    }

    /// In the words of the API.
    pub fn said(&self) -> String {
        match &self.state {
            State::Off => "off".to_owned(),
            State::Attaching(_) => "beginning".to_owned(),
            State::On(trace) => match **trace {
                #[cfg(feature = "ebpf")]
                Trace::Ebpf(_) => "on".to_owned(),
                Trace::Events(_) => "events".to_owned(),
                Trace::Calls(_) => "calls".to_owned(),
            },
            State::Refused(why) => why.clone(),
        }
    }
}

/// A look may still use it; two that read one instance would be in each other's way.
fn end(former: State) {
    let (trace, began) = match former {
        State::On(trace) => (Arc::downgrade(&trace), Instant::now()),
        State::Attaching(attaching) => {
            let _ = tokio::runtime::Handle::current().block_on(attaching);
            return;
        }
        State::Off | State::Refused(_) => return,
    };
    while trace.strong_count() > 0 && began.elapsed() < PATIENCE {
        std::thread::park_timeout(EVERY);
    }
}

/// Nobody looks for so long.
const PATIENCE: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_millis(20);

fn attach(way: DiskTracing, host: &Host) -> Result<Trace, String> {
    // A crash may have left some.
    EventTrace::remove(host);
    let mut why = Vec::new();
    for (one, by, said) in WAYS {
        if way != one && way != DiskTracing::Auto {
            continue;
        }
        match by(host) {
            Ok(trace) => {
                let why_not_better = (!why.is_empty()).then(|| why.join("; "));
                info!(why_not_better, "{said}");
                return Ok(trace);
            }
            Err(error) => why.push(error),
        }
    }
    Err(if why.is_empty() { "off".to_owned() } else { why.join("; ") })
}

type Way = (DiskTracing, fn(&Host) -> Result<Trace, String>, &'static str);

/// The best one first.
const WAYS: [Way; 3] = [
    (DiskTracing::Ebpf, by_ebpf, "requests to disks are traced"),
    (DiskTracing::Events, by_events, "requests to disks are traced by the kernel's events"),
    (DiskTracing::Calls, by_calls, "of requests to disks the calls are seen in which tasks wait"),
];

#[cfg(feature = "ebpf")]
fn by_ebpf(_: &Host) -> Result<Trace, String> {
    ctlmgr_trace::DiskTrace::attach().map(Trace::Ebpf).map_err(|error| chain(&error))
}

#[cfg(not(feature = "ebpf"))]
fn by_ebpf(_: &Host) -> Result<Trace, String> {
    Err("ctlmgr was built without eBPF".to_owned())
}

fn by_events(host: &Host) -> Result<Trace, String> {
    EventTrace::attach(host).map(Trace::Events).map_err(|error| chain(&error))
}

fn by_calls(host: &Host) -> Result<Trace, String> {
    CallTrace::attach(host).map(Trace::Calls).map_err(|error| chain(&error))
}
