//! Tracing of requests, where it is wanted and the kernel can; without it the gate goes by `io.stat`.

use std::sync::Arc;

use tokio::task::JoinHandle;

#[cfg(feature = "ebpf")]
use ctlmgr_trace::DiskTrace;
use tracing::{info, warn};

/// Stands in where ctlmgr was built without eBPF.
#[cfg(not(feature = "ebpf"))]
#[derive(Debug)]
pub(super) struct DiskTrace;

#[cfg(not(feature = "ebpf"))]
impl DiskTrace {
    fn attach() -> Result<DiskTrace, std::io::Error> {
        Err(std::io::Error::other("ctlmgr was built without eBPF"))
    }

    pub fn shape(
        &self,
        _: ctlmgr_model::CgroupId,
        _: ctlmgr_model::Disk,
    ) -> Option<ctlmgr_model::Shape> {
        None
    }
}

/// Whether requests are traced.
#[derive(Debug, Default)]
pub(super) enum Tracing {
    /// Not wanted.
    #[default]
    Off,
    /// The kernel is asked, off the gate's task: it reads the types of the whole kernel.
    Attaching(JoinHandle<Result<DiskTrace, String>>),
    On(Arc<DiskTrace>),
    /// It cannot be, for this reason; asked again after it was not wanted for a while.
    Refused(String),
}

impl Tracing {
    /// Begins or ends, as the settings want it.
    pub fn want(&mut self, is_wanted: bool) {
        match (&self, is_wanted) {
            (Tracing::Off, true) => *self = Tracing::Attaching(tokio::task::spawn_blocking(attach)),
            (_, false) => *self = Tracing::Off,
            _ => {}
        }
    }

    /// Takes what the kernel has answered.
    pub async fn note(&mut self) {
        let Tracing::Attaching(attaching) = self else { return };
        if !attaching.is_finished() {
            return;
        }
        *self = match attaching.await {
            Ok(Ok(trace)) => {
                info!("requests to disks are traced");
                Tracing::On(Arc::new(trace))
            }
            Ok(Err(why)) => {
                warn!(
                    why,
                    "requests to disks are not traced; their character is told from io.stat"
                );
                Tracing::Refused(why)
            }
            Err(error) => Tracing::Refused(error.to_string()),
        };
    }

    pub fn is_beginning(&self) -> bool {
        matches!(self, Tracing::Attaching(_))
    }

    pub fn get(&self) -> Option<Arc<DiskTrace>> {
        match self {
            Tracing::On(trace) => Some(trace.clone()),
            _ => None,
        }
    }

    /// In the words of the API.
    pub fn said(&self) -> String {
        match self {
            Tracing::Off => "off".to_owned(),
            Tracing::Attaching(_) => "beginning".to_owned(),
            Tracing::On(_) => "on".to_owned(),
            Tracing::Refused(why) => why.clone(),
        }
    }
}

fn attach() -> Result<DiskTrace, String> {
    DiskTrace::attach().map_err(|error| ctlmgr_host::chain(&error))
}
