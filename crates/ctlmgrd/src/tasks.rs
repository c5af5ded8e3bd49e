//! Tasks beside the loop: the gate of starts, the count of traffic, and placement.

use std::sync::Arc;

use ctlmgr_act::SystemdBus;
use ctlmgr_host::Host;
use ctlmgr_model::{Mode, Oomd, Settings};
use ctlmgr_sense::{Appearance, Sensor, watch_appearances, watch_oomd};
use ctlmgr_store::Profiles;
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::daemon::Daemon;
use crate::gate::late::Hand;
use crate::places::Places;
use crate::processors::Processors;
use crate::{gate, place, traffic};

/// Opens the gate; returns the way to it, and what shows its queue.
pub(crate) fn open_gate(
    daemon: &Daemon<SystemdBus>,
    settings: watch::Receiver<Settings>,
) -> (mpsc::Sender<gate::Question>, watch::Receiver<ctlmgr_api::Queue>) {
    let (sender, questions) = mpsc::channel(1024);
    let (orders, heard) = mpsc::unbounded_channel();
    // Without a journal nothing is written, so nobody is frozen.
    if let Some(journal) = daemon.journal.clone() {
        let (sensor, actuator) = (daemon.sensor.clone(), daemon.actuator.clone());
        let hand = Hand { sensor, actuator, journal, permit: daemon.permit.clone() };
        tokio::spawn(hand.obey(heard));
    }
    let (told, appeared) = mpsc::unbounded_channel();
    tokio::spawn(watch_appearances_if_wanted(settings.clone(), daemon.sensor.clone(), told));
    let queue = gate::open(gate::Parts {
        appeared,
        settings,
        containers: daemon.containers.clone(),
        sensor: daemon.sensor.clone(),
        store: open_profiles(&daemon.places),
        questions,
        orders,
    });
    (sender, queue)
}

/// Only who freezes has to know of a container before dockerd tells.
async fn watch_appearances_if_wanted(
    mut settings: watch::Receiver<Settings>,
    sensor: Arc<Sensor>,
    told: mpsc::UnboundedSender<Appearance>,
) {
    let is_wanted = |all: &Settings| all.starts.freeze && all.starts.mode == Mode::Act;
    while settings.wait_for(is_wanted).await.is_ok() {
        let watching = watch_appearances(sensor.clone(), told.clone());
        tokio::select! {
            result = watching => {
                if let Err(error) = result {
                    warn!(%error, "containers that appear are seen only when dockerd tells of them");
                }
                return;
            }
            changed = settings.wait_for(|all| !is_wanted(all)) => if changed.is_err() {
                return;
            }
        }
    }
}

/// Places containers, where there are several domains.
pub(crate) fn place(
    daemon: &Daemon<SystemdBus>,
    settings: watch::Receiver<Settings>,
    seen: watch::Receiver<traffic::Seen>,
) -> watch::Receiver<ctlmgr_api::PlaceStatus> {
    let parts = place::Parts {
        settings,
        seen,
        containers: daemon.containers.clone(),
        host: daemon.places.host(),
        actuator: daemon.actuator.clone(),
        journal: daemon.journal.clone(),
        permit: daemon.permit.clone(),
        reports: daemon.reports.clone(),
    };
    place::watch(parts, open_profiles(&daemon.places))
}

/// Counts who talks to whom, where that is wanted.
pub(crate) fn watch_traffic(
    daemon: &Daemon<SystemdBus>,
    settings: watch::Receiver<Settings>,
) -> watch::Receiver<traffic::Seen> {
    let host = daemon.places.host();
    traffic::watch(traffic::Parts {
        settings,
        containers: daemon.containers.clone(),
        sensor: daemon.sensor.clone(),
        cgroups: host.path("sys/fs/cgroup"),
        processors: Processors::new(host),
    })
}

/// Learns what systemd-oomd watches.
pub(crate) fn follow_oomd(host: Host) -> watch::Receiver<Oomd> {
    let (publish, oomd) = watch::channel(Oomd::default());
    tokio::spawn(watch_oomd(host, publish));
    oomd
}

/// The profiles, or nothing: then they live as long as the daemon.
fn open_profiles(places: &Places) -> Option<Profiles> {
    let opened = Profiles::open(&places.profiles());
    opened
        .inspect_err(|error| {
            warn!(error = ctlmgr_host::chain(error), "what is learned of starts will not be kept");
        })
        .ok()
}
