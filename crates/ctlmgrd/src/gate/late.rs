//! The late gate: containers that started without being asked about are frozen until their turn.
//!
//! For starts that pass neither plugin nor wrapper: the boot, restart policies, other clients. It comes
//! after the fact, and what is frozen fails its health checks, so it is off unless asked for
//! (`starts.freeze`). Each freeze is in the undo journal before it is made. Whatever becomes of the gate,
//! nobody stays frozen here for longer than [`LONGEST`]; a crash is undone by the next start, from the journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctlmgr_act::{Actuator, UnitProperties};
use ctlmgr_model::{Action, Bytes, Knob, Outcome, Reason, Rung, Step, Telling};
use ctlmgr_sense::Sensor;
use tokio::sync::{Mutex, mpsc};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use crate::step::{carry_out_one, outcome_of};
use crate::undo::SharedJournal;

/// Longer than anybody who is frozen waits.
const LONGEST: Duration = Duration::from_secs(70);
/// How often that is looked after.
const ROUND: Duration = Duration::from_secs(1);

/// What is to become of a container, by its full id.
#[derive(Debug)]
pub(crate) enum Order {
    Freeze(String, Reason),
    /// A user may have paused it meanwhile; then it stays so.
    Thaw {
        id: String,
        is_paused: bool,
    },
}

/// Whether freezing is allowed; held while a freeze is made, so that undo comes before or after it.
pub(crate) type Permit = Arc<Mutex<bool>>;

/// Who stands still.
struct Frozen {
    step: Step,
    /// Whether a user has paused it meanwhile; known once it may go on.
    is_paused: bool,
    /// When it is let go in any case.
    until: Instant,
}

/// By full id.
#[derive(Default)]
struct Held {
    /// Who is to be frozen, and why.
    waiting: BTreeMap<String, Reason>,
    frozen: BTreeMap<String, Frozen>,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.frozen.is_empty()
    }
}

/// Who carries orders out.
pub(crate) struct Hand<U> {
    pub sensor: Arc<Sensor>,
    pub actuator: Arc<Actuator<U>>,
    pub journal: SharedJournal,
    pub permit: Permit,
}

impl<U: UnitProperties> Hand<U> {
    /// Carries out orders, one after the other, until nobody can give any.
    pub async fn obey(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut held = Held::default();
        let mut round = tokio::time::interval(ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Freeze(id, reason)) => _ = held.waiting.insert(id, reason),
                    Some(Order::Thaw { id, is_paused }) => {
                        held.waiting.remove(&id);
                        if let Some(it) = held.frozen.get_mut(&id) {
                            (it.is_paused, it.until) = (is_paused, Instant::now());
                        }
                    }
                    None => break,
                },
                _ = round.tick(), if !held.is_empty() => {}
            }
            self.thaw_due(&mut held.frozen).await;
            self.freeze_waiting(&mut held).await;
        }
        for it in held.frozen.values() {
            self.thaw(it).await;
        }
    }

    /// Lets go of whoever may go on or stands still for too long. What fails is tried again in the next round.
    async fn thaw_due(&self, frozen: &mut BTreeMap<String, Frozen>) {
        let is_due = |it: &Frozen| Instant::now() >= it.until;
        let due: Vec<String> =
            frozen.iter().filter(|(_, it)| is_due(it)).map(|(id, _)| id.clone()).collect();
        for id in due {
            if self.thaw(&frozen[&id]).await {
                frozen.remove(&id);
            }
        }
    }

    /// Freezes who is to be, in the next round where undo or whoever places has the permit: nobody who stands still waits
    /// for them.
    async fn freeze_waiting(&self, held: &mut Held) {
        let Ok(is_allowed) = self.permit.try_lock() else { return };
        for (id, reason) in std::mem::take(&mut held.waiting) {
            let step = if *is_allowed { self.freeze(&id, reason).await } else { None };
            if let Some(step) = step {
                let until = Instant::now() + LONGEST;
                held.frozen.insert(id, Frozen { step, is_paused: false, until });
            }
        }
    }

    /// Freezes a container; `None` if it is gone or not ready, or was frozen by somebody else.
    async fn freeze(&self, id: &str, reason: Reason) -> Option<Step> {
        let (sensor, id) = (self.sensor.clone(), id.to_owned());
        // It may have been made anew since: whoever stops the runtime meanwhile stops dockerd.
        let found = move || {
            let group = sensor.find(&id).ok().flatten()?;
            (sensor.is_ready(&group.path) == Some(true)).then_some(group)
        };
        let found = tokio::task::spawn_blocking(found).await;
        let group = found.ok().flatten().filter(|g| !g.activity.is_to_freeze)?;
        let action = Action::Set {
            knob: Knob::CgroupFreeze,
            from: Bytes::ZERO,
            prior: Bytes::ZERO,
            to: Knob::STILL,
        };
        let step = Step {
            path: group.path,
            id: group.id,
            action,
            rung: Rung::Freeze,
            reason,
            telling: Telling::Now,
        };
        // It may stand still though that failed: when it was read back, or noted.
        let is_gone = self.carry_out(&step).await == Outcome::Vanished;
        (!is_gone).then_some(step)
    }

    /// Whether it runs, as far as that is ctlmgr's say.
    async fn thaw(&self, Frozen { step, is_paused, .. }: &Frozen) -> bool {
        let prior = if *is_paused { Knob::STILL } else { Bytes::ZERO };
        let action = Action::Release { knob: Knob::CgroupFreeze, prior, ours: Knob::STILL };
        let reason = Reason("it may start".to_owned());
        let outcome = self.carry_out(&Step { action, reason, ..step.clone() }).await;
        !matches!(outcome, Outcome::Failed(_))
    }

    async fn carry_out(&self, step: &Step) -> Outcome {
        let work = carry_out_one(&self.actuator, &self.journal, step, Instant::now());
        let outcome = outcome_of(work.await);
        let (path, reason) = (&step.path, &step.reason.0);
        match &outcome {
            Outcome::Done => info!(%path, reason, "{step}"),
            Outcome::Failed(error) => warn!(%path, error, "{step} failed"),
            other => info!(%path, outcome = ?other, "{step}"),
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_act::{Property, UnitError};
    use ctlmgr_host::Host;
    use ctlmgr_store::Journal;
    use ctlmgr_testkit::FakeHost;
    use tokio::sync::oneshot;

    /// Nobody is told of a freeze.
    struct NoManager;

    impl UnitProperties for NoManager {
        async fn set(&self, unit: &str, _: &[Property]) -> Result<(), UnitError> {
            panic!("{unit} is set")
        }

        async fn held(&self, _: &str) -> Option<Vec<Property>> {
            None
        }
    }

    /// A host with two containers, and one who carries orders out.
    struct Bench {
        directory: tempfile::TempDir,
        orders: mpsc::UnboundedSender<Order>,
        permit: Permit,
        over: oneshot::Receiver<()>,
    }

    impl Bench {
        fn new() -> Bench {
            let directory = tempfile::tempdir().unwrap();
            let host = FakeHost::new(directory.path());
            std::fs::create_dir_all(directory.path().join("proc/100")).unwrap();
            std::os::unix::fs::symlink("/app", directory.path().join("proc/100/exe")).unwrap();
            for id in [1, 2].map(full) {
                host.cgroup(&format!("a.slice/docker-{id}.scope"), 10 << 20, 0);
                host.write(&file(&id, "cgroup.procs"), "100\n");
                host.write(&file(&id, "cgroup.freeze"), "0\n");
            }
            let sensor = Arc::new(Sensor::new(Host::fake(directory.path())).unwrap());
            let actuator =
                Arc::new(Actuator::new(Host::fake(directory.path()), NoManager).unwrap());
            let journal = Journal::open(&directory.path().join("journal"), "boot").unwrap();
            let journal = Arc::new(std::sync::Mutex::new(journal));
            let permit = Permit::new(Mutex::new(true));
            let (orders, heard) = mpsc::unbounded_channel();
            let (ended, over) = oneshot::channel();
            let hand = Hand { sensor, actuator, journal, permit: permit.clone() };
            tokio::spawn(async move {
                hand.obey(heard).await;
                let _ = ended.send(());
            });
            Bench { directory, orders, permit, over }
        }

        fn host(&self) -> FakeHost {
            FakeHost::new(self.directory.path())
        }

        fn order(&self, order: Order) {
            self.orders.send(order).unwrap();
        }

        fn freeze(&self, nth: u8) {
            self.order(Order::Freeze(full(nth), Reason("test".to_owned())));
        }

        fn thaw(&self, nth: u8) {
            self.order(Order::Thaw { id: full(nth), is_paused: false });
        }

        async fn expect(&self, nth: u8, value: &str) {
            let is_so = async {
                while self.host().read(&file(&full(nth), "cgroup.freeze")) != value {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let patience = Duration::from_secs(60);
            tokio::time::timeout(patience, is_so).await.expect("it is frozen, or let go");
        }
    }

    fn full(nth: u8) -> String {
        nth.to_string().repeat(64)
    }

    fn file(id: &str, name: &str) -> String {
        format!("sys/fs/cgroup/a.slice/docker-{id}.scope/{name}")
    }

    /// Writing lists of processors may take minutes.
    #[tokio::test]
    async fn who_is_to_go_on_does_not_wait_for_who_is_to_be_frozen() {
        let bench = Bench::new();
        bench.freeze(1);
        bench.expect(1, "1").await;
        let permit = bench.permit.clone();
        let busy = permit.lock().await;
        bench.freeze(2);
        bench.thaw(1);
        bench.expect(1, "0").await;
        assert_eq!(bench.host().read(&file(&full(2), "cgroup.freeze")), "0");
        drop(busy);
        bench.expect(2, "1").await;
        bench.thaw(2);
        bench.expect(2, "0").await;
    }

    #[tokio::test]
    async fn who_may_go_on_before_it_was_frozen_never_is() {
        let bench = Bench::new();
        let permit = bench.permit.clone();
        let busy = permit.lock().await;
        bench.freeze(1);
        bench.thaw(1);
        drop(busy);
        bench.freeze(2);
        bench.expect(2, "1").await;
        assert_eq!(bench.host().read(&file(&full(1), "cgroup.freeze")), "0");
    }

    /// Its knob cannot be read when it is let go, and can a while later.
    #[tokio::test]
    async fn a_thaw_that_fails_is_tried_again() {
        let bench = Bench::new();
        bench.freeze(1);
        bench.expect(1, "1").await;
        let knob = bench.directory.path().join(file(&full(1), "cgroup.freeze"));
        let away = knob.with_extension("away");
        // A directory in its place cannot be read as a file.
        std::fs::rename(&knob, &away).unwrap();
        std::fs::create_dir(&knob).unwrap();
        bench.thaw(1);
        bench.freeze(2);
        bench.expect(2, "1").await;
        std::fs::remove_dir(&knob).unwrap();
        std::fs::rename(&away, &knob).unwrap();
        bench.expect(1, "0").await;
    }

    #[tokio::test]
    async fn at_the_end_all_are_let_go() {
        let bench = Bench::new();
        bench.freeze(1);
        bench.expect(1, "1").await;
        let Bench { directory, orders, over, .. } = bench;
        drop(orders);
        over.await.unwrap();
        let host = FakeHost::new(directory.path());
        assert_eq!(host.read(&file(&full(1), "cgroup.freeze")), "0");
    }
}
