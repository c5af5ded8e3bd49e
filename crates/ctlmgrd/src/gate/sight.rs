//! Looks at those that start, off the gate's task.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctlmgr_host::CgroupDir;
use ctlmgr_model::{Disk, DiskTracing, Moved};
use ctlmgr_sense::{Look, Sensor};
use tokio::task::JoinHandle;

use super::tracing::Tracing;

/// So often.
const LOOK: Duration = Duration::from_secs(1);

/// The gate's eyes: one look at a time.
pub(super) struct Sight {
    sensor: Arc<Sensor>,
    /// Where requests are traced.
    pub tracing: Tracing,
    looking: Option<JoinHandle<Option<Look>>>,
    looked_at: Instant,
}

impl Sight {
    pub fn new(sensor: Arc<Sensor>) -> Sight {
        Sight { sensor, tracing: Tracing::default(), looking: None, looked_at: Instant::now() }
    }

    /// Traces requests so from now on.
    pub fn want_tracing(&mut self, way: DiskTracing) {
        self.tracing.want(way, self.sensor.host());
    }

    /// What a look has brought, if one has ended: nothing if it failed.
    pub async fn take(&mut self) -> Option<Option<Look>> {
        self.looking.as_ref().filter(|looking| looking.is_finished())?;
        let looking = self.looking.take()?;
        Some(looking.await.ok().flatten())
    }

    /// When the look began that was taken last, or is under way.
    pub fn looked_at(&self) -> Instant {
        self.looked_at
    }

    /// Whether something is about to come.
    pub fn is_busy(&self) -> bool {
        self.looking.is_some() || self.tracing.is_beginning()
    }

    /// Part of the last 10 s in which everything waited for a disk, now.
    pub fn io_full_pct(&self) -> Option<f32> {
        self.sensor.io_pressure().map(|p| p.full.avg10_pct)
    }

    /// Takes the next look at these, where it is time; whether it was.
    pub fn look(&mut self, now: Instant, ids: BTreeSet<String>) -> bool {
        if self.looking.is_some() || now.duration_since(self.looked_at) < LOOK {
            return false;
        }
        self.looked_at = now;
        let (sensor, trace) = (self.sensor.clone(), self.tracing.get());
        self.looking = Some(tokio::task::spawn_blocking(move || {
            trace.iter().for_each(|trace| trace.read());
            let tell = |dir: &CgroupDir, disks: &mut [(Disk, Moved)]| {
                trace.iter().for_each(|trace| trace.tell(dir, disks));
            };
            sensor.look_at(&ids, Some(&tell)).ok()
        }));
        true
    }
}
