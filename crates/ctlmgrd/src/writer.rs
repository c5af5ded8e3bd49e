//! The writer of knobs.
//!
//! Protection takes effect before the system's manager is told of it, of a whole plan at once and what becomes less
//! first: a manager that is starved of memory takes seconds for each, and may be waiting for the very memory that is
//! kept from it. So
//!
//! * it is not told of what a later plan tells it ([`ctlmgr_model::Telling`]);
//! * what it was not told within [`TELL_TIME`] is left to the next plan;
//! * while the writer waits for it, protection of newer plans takes effect, and it is told of that in place of what is
//!   old by then.
//!
//! A limit that is raised or given back takes effect like protection, and whoever is frozen is let go while the writer
//! waits: a manager that does not answer holds nobody up.
//!
//! Page cache that a limit counts on is reclaimed here, for [`CACHE_TIME`] at most but for one chunk.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctlmgr_act::{Actuator, RECLAIM_TIME, UnitProperties};
use ctlmgr_model::{Action, CgroupPath, Millis, Outcome, Saved, Step, Value};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

use crate::step::{carry_out_one, is_anothers, note, outcome_of};
use crate::undo::{SharedJournal, with_journal};
use crate::workers::Report;

/// Whoever writes knobs takes page cache no longer than this.
const CACHE_TIME: Duration = Duration::from_millis(500);
/// What its keeper was not told by then is left to the next plan, if it is in force.
const TELL_TIME: Duration = Duration::from_secs(1);

/// Steps of one plan that wait for nobody: they set protection, or let go of somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Urgent {
    pub steps: Vec<Step>,
    pub decided_at: Millis,
}

/// What became of a step, and when it was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub step: Step,
    pub decided_at: Millis,
    pub outcome: Outcome,
}

/// What became of a plan.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Of what was not in force before its turn.
    pub outcomes: Vec<(Step, Outcome)>,
    /// Of what was, and its keeper had to be told.
    pub told: Vec<Told>,
}

/// Knobs that are being written.
pub(crate) struct Writing {
    pub task: JoinHandle<()>,
    /// When what is written was decided.
    pub decided_at: Millis,
    newer: Sender<Urgent>,
    /// Whether the loop knows all that is in force: readings from before are of no use to a newer plan.
    is_known: bool,
}

impl Writing {
    /// Has a plan carried out.
    pub(crate) fn begin<U: UnitProperties>(
        actuator: &Arc<Actuator<U>>,
        journal: &SharedJournal,
        (steps, decided_at): (Vec<Step>, Millis),
        done: Sender<Report>,
    ) -> Writing {
        let (newer, plans) = channel(1);
        let (actuator, journal) = (actuator.clone(), journal.clone());
        let task = tokio::spawn(async move {
            // Elsewhere reclaim is a write, and whoever writes has nothing more urgent to do.
            let reclaim = if actuator.has_reclaim() { CACHE_TIME } else { RECLAIM_TIME };
            let patience = Patience { reclaim, tell: TELL_TIME };
            let writer = Writer::new((&actuator, &journal), plans, done);
            writer.write(steps, decided_at, patience).await;
        });
        Writing { task, decided_at, newer, is_known: false }
    }

    /// Puts what is urgent of a newer plan in force, though the keeper of knobs has not answered yet.
    pub(crate) fn go_on(&mut self, steps: Vec<Step>, decided_at: Millis) {
        let urgent = |step: Step| match step.to_raise() {
            Some(raise) => Some(raise),
            None => (step.is_protection() || step.is_thaw()).then_some(step),
        };
        let steps: Vec<Step> = steps.into_iter().filter_map(urgent).collect();
        if self.is_known && !steps.is_empty() {
            self.is_known = self.newer.try_send(Urgent { steps, decided_at }).is_err();
        }
    }

    /// The loop has learned what is in force.
    pub(crate) fn note_known(&mut self) {
        self.is_known = true;
    }
}

/// For how long steps are begun.
#[derive(Clone, Copy)]
struct Patience {
    reclaim: Duration,
    /// Nothing but what is in force already is put off.
    tell: Duration,
}

/// Carries out one plan.
struct Writer<'a, U> {
    actuator: &'a Actuator<U>,
    journal: &'a SharedJournal,
    plans: Receiver<Urgent>,
    done: Sender<Report>,
    /// What is in force, and known to the journal, before its turn.
    ahead: Vec<Step>,
    /// What newer plans have put in force, and when that was decided; the newest last.
    newer: Vec<(Step, Millis)>,
    /// Whom newer plans have let go.
    thawed: Vec<(Step, Outcome)>,
}

impl<'a, U: UnitProperties> Writer<'a, U> {
    fn new(
        (actuator, journal): (&'a Actuator<U>, &'a SharedJournal),
        plans: Receiver<Urgent>,
        done: Sender<Report>,
    ) -> Self {
        let (ahead, newer, thawed) = (Vec::new(), Vec::new(), Vec::new());
        Writer { actuator, journal, plans, done, ahead, newer, thawed }
    }

    async fn write(mut self, steps: Vec<Step>, decided_at: Millis, patience: Patience) {
        self.give_back_ahead(&steps).await;
        let ahead = self.write_ahead(&steps).await;
        self.ahead = ahead.clone();
        self.ahead.extend(steps.iter().filter(|step| step.is_told_only()).cloned());
        self.report_ahead(ahead, decided_at).await;
        let mut written = self.carry_out(&steps, decided_at, patience).await;
        written.outcomes.append(&mut self.thawed);
        // The loop is gone only when the process is about to end.
        let _ = self.done.send(Report::Written(written)).await;
    }

    async fn report_ahead(&self, steps: Vec<Step>, decided_at: Millis) {
        let _ = self.done.send(Report::Ahead(Urgent { steps, decided_at })).await;
    }

    async fn carry_out(
        &mut self,
        steps: &[Step],
        decided_at: Millis,
        patience: Patience,
    ) -> Written {
        let begun = Instant::now();
        // For all reclaim together: by then the host is another, and no dip lets a limit be raised meanwhile.
        let deadline = begun + patience.reclaim;
        let mut written = Written::default();
        // However slow the keeper of knobs is, each plan tells it something; and all of a unit, as it writes all.
        let mut begun_with: Vec<&CgroupPath> = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            let is_of_unit = |other: &Step| {
                other.path == step.path && other.is_for_keeper() && !self.ahead.contains(other)
            };
            let is_late = !begun_with.is_empty() && begun.elapsed() >= patience.tell;
            let is_begun =
                begun_with.contains(&&step.path) || steps[index..].iter().any(is_of_unit);
            // A limit that was raised and not told comes back as it was with the next that its keeper is told.
            let may_wait = is_late && step.to_raise().is_none();
            let may_tell = is_begun || (step.telling.is_now() && !may_wait);
            if may_tell && step.is_for_keeper() {
                begun_with.push(&step.path);
            }
            if self.ahead.contains(step) {
                written.told.push(self.tell((step, decided_at), &steps[index..], may_tell).await);
            } else {
                let outcome = self.carry_out_first(&steps[index..], deadline).await;
                written.outcomes.push((step.clone(), outcome));
            }
        }
        written
    }

    /// The first of `left`, unless a newer plan has raised that limit.
    async fn carry_out_first(&mut self, left: &[Step], deadline: Instant) -> Outcome {
        let step = &left[0];
        if self.newer.iter().any(|(newer, _)| is_same_knob(newer, step)) {
            return Outcome::Overtaken;
        }
        let work = carry_out_one(self.actuator, self.journal, step, deadline);
        outcome_of(self.attend(work, left).await)
    }

    /// Tells the keeper of what is in force by now: the first of `left`, or what newer plans have made of it.
    async fn tell(&mut self, ours: (&Step, Millis), left: &[Step], may_tell: bool) -> Told {
        let newest = self.newer.iter().rev().find(|(newer, _)| is_same_knob(newer, ours.0));
        let (step, decided_at) =
            newest.map_or_else(|| (ours.0.clone(), ours.1), |(step, at)| (step.clone(), *at));
        let outcome = match step.to_save() {
            Some(saved) if may_tell => outcome_of(self.ask(saved, left).await),
            _ => Outcome::Untold,
        };
        Told { step, decided_at, outcome }
    }

    async fn ask(&mut self, saved: Saved, left: &[Step]) -> anyhow::Result<Outcome> {
        if self.actuator.is_overtaken(&saved)
            || is_anothers(self.actuator, self.journal, &saved).await?
        {
            return Ok(Outcome::Overtaken);
        }
        // Whoever writes past the keeper meanwhile must know what that may still do.
        let asked = saved.clone();
        with_journal(self.journal, move |j| j.note_asked(&asked)).await?;
        let outcome = match self.attend(self.actuator.set(&saved), left).await {
            Outcome::Overridden(value) if self.is_of_newer(&left[0], &value) => Outcome::Done,
            other => other,
        };
        if outcome == Outcome::Done {
            with_journal(self.journal, move |j| j.note_told(&saved)).await?;
        }
        Ok(outcome)
    }

    /// Whether a newer plan has given this value to the knob of `step`.
    fn is_of_newer(&self, step: &Step, value: &Value) -> bool {
        let mut newer = self.newer.iter().filter(|(newer, _)| is_same_knob(newer, step));
        newer.any(|(newer, _)| newer.to_save().is_some_and(|saved| saved.ours == *value))
    }

    /// Waits for `work` on the first of `left`; what is urgent of newer plans takes effect meanwhile.
    async fn attend<T>(&mut self, work: impl Future<Output = T>, left: &[Step]) -> T {
        let mut work = pin!(work);
        let result = loop {
            tokio::select! {
                // It has begun before anything newer is written.
                biased;
                result = &mut work => break result,
                Some(plan) = self.plans.recv() => self.write_newer(plan, left).await,
            }
        };
        // The keeper may have written what it was asked for before, and the limit that it knows beside it.
        let is_touched = |(newer, _): &&(Step, Millis)| {
            let is_beside = newer.path == left[0].path && newer.to_raise().is_some();
            is_beside || is_same_knob(newer, &left[0])
        };
        let newer = self.newer.iter().filter(is_touched);
        for saved in newer.filter_map(|(newer, _)| newer.to_save()) {
            self.actuator.write_ahead(&saved);
        }
        result
    }

    /// What this plan has still to write itself is left to it; and protection beside that which the keeper is just asked for,
    /// because it writes all of a unit: those from when it was asked. Whoever is held back does not wait for that, nor for a
    /// limit that was to be lowered, unless the keeper is just asked for that: what had grown until it does would be
    /// reclaimed by it.
    async fn write_newer(&mut self, mut plan: Urgent, left: &[Step]) {
        let open =
            |step: &Step| left.iter().find(|l| is_same_knob(l, step) && !self.ahead.contains(l));
        let may_pass = |open: &Step| {
            matches!(open.action, Action::Set { .. }) && !is_same_knob(open, &left[0])
        };
        let is_beside = |step: &Step| step.path == left[0].path && !is_same_knob(step, &left[0]);
        plan.steps.retain(|step| match (step.to_raise(), open(step)) {
            (Some(_), open) => open.is_none_or(may_pass),
            (None, Some(_)) => false,
            (None, None) => step.is_thaw() || !is_beside(step),
        });
        for step in plan.steps.extract_if(.., |step| step.is_thaw()) {
            self.thaw(step).await;
        }
        let ahead = self.write_ahead(&plan.steps).await;
        self.newer.extend(ahead.iter().map(|step| (step.clone(), plan.decided_at)));
        self.report_ahead(ahead, plan.decided_at).await;
    }

    /// Once, as newer plans do not know of it.
    async fn thaw(&mut self, step: Step) {
        let is_it = |(thawed, outcome): &(Step, Outcome)| {
            is_same_knob(thawed, &step) && !matches!(outcome, Outcome::Failed(_))
        };
        if !self.thawed.iter().any(is_it) {
            let done = carry_out_one(self.actuator, self.journal, &step, Instant::now()).await;
            self.thawed.push((step, outcome_of(done)));
        }
    }

    /// Writes protection past its keeper, and limits that are raised. The journal knows each before; what fails here is
    /// tried again in its turn.
    async fn write_ahead(&self, steps: &[Step]) -> Vec<Step> {
        let mut ahead = Vec::new();
        let is_set = |step: &Step| matches!(step.action, Action::Set { .. });
        let is_less =
            |step: &&Step| matches!(step.action, Action::Set { from, to, .. } if to < from);
        let raises = steps.iter().filter(|step| is_set(step) && step.to_raise().is_some());
        let (less, more): (Vec<_>, Vec<_>) =
            steps.iter().filter(|step| step.is_protection()).partition(is_less);
        for step in raises.chain(less).chain(more) {
            if self.write_one_ahead(step).await {
                ahead.push(step.clone());
            }
        }
        ahead
    }

    /// Limits that are given back. Their turn comes, and they are reported then.
    async fn give_back_ahead(&self, steps: &[Step]) {
        let is_release = |step: &&Step| matches!(step.action, Action::Release { .. });
        for step in steps.iter().filter(is_release).filter_map(Step::to_raise) {
            self.write_one_ahead(&step).await;
        }
    }

    /// What a knob holds, if that is there because of ctlmgr.
    async fn held_of_ours(&self, saved: &Saved) -> Option<Value> {
        let held = self.actuator.present(saved).ok()??;
        let (path, knob) = (saved.path.clone(), saved.knob);
        let known = with_journal(self.journal, move |j| j.find(&path, knob)).await.ok()??;
        known.is_ours(&held).then_some(held)
    }

    async fn write_one_ahead(&self, step: &Step) -> bool {
        let Some(mut saved) = step.to_save() else { return false };
        if step.to_raise().is_some() {
            // Of a limit that was to be lowered, and was not, too.
            saved.before = self.held_of_ours(&saved).await.unwrap_or(saved.before);
        }
        // What is not written now is not noted as ours either.
        if self.actuator.is_overtaken(&saved) || !self.actuator.is_as_decided(&saved) {
            return false;
        }
        let is_noted = note(self.actuator, self.journal, &saved).await.is_ok();
        is_noted && self.actuator.write_ahead(&saved)
    }
}

fn is_same_knob(one: &Step, other: &Step) -> bool {
    one.path == other.path
        && one.action.knob().is_some()
        && one.action.knob() == other.action.knob()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_act::{Property, UnitError};
    use ctlmgr_host::Host;
    use ctlmgr_model::{Bytes, Knob, Reason, Rung, Telling};
    use ctlmgr_store::Journal;
    use ctlmgr_testkit::FakeHost;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;
    use tokio::sync::Semaphore;

    const NONE: Patience = Patience { reclaim: Duration::ZERO, tell: Duration::ZERO };
    const DAY: Patience =
        Patience { reclaim: Duration::ZERO, tell: Duration::from_secs(24 * 60 * 60) };

    /// A system's manager that does as often what it was asked for as it is let.
    #[derive(Clone)]
    struct Manager {
        root: PathBuf,
        may_go_on: Arc<Semaphore>,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl UnitProperties for Manager {
        async fn set(&self, unit: &str, properties: &[Property]) -> Result<(), UnitError> {
            self.asked.lock().unwrap().push(unit.to_owned());
            self.may_go_on.acquire().await.unwrap().forget();
            for (file, name) in [("memory.low", "MemoryLow"), ("memory.high", "MemoryHigh")] {
                if let Some((_, value)) = properties.iter().find(|(n, _)| *n == name) {
                    let file = format!("sys/fs/cgroup/a.slice/{unit}/{file}");
                    FakeHost::new(&self.root).write(&file, &value.file_text());
                }
            }
            Ok(())
        }

        async fn held(&self, _: &str) -> Option<Vec<Property>> {
            None
        }
    }

    /// A host with three scopes, a manager, and a journal.
    struct Bench {
        directory: tempfile::TempDir,
        manager: Manager,
        actuator: Actuator<Manager>,
        journal: SharedJournal,
    }

    impl Bench {
        /// With a manager that answers so often.
        fn new(answers: usize) -> Bench {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().to_owned();
            let host = FakeHost::new(&root);
            host.cgroup("a.slice", 40 << 20, 0);
            for name in ["x", "y", "z"] {
                host.cgroup(scope(name).as_str(), 10 << 20, 4096);
            }
            let journal = Journal::open(&root.join("journal"), "boot").unwrap();
            let (may_go_on, asked) = (Arc::new(Semaphore::new(answers)), Arc::default());
            let manager = Manager { root: root.clone(), may_go_on, asked };
            let actuator = Actuator::new(Host::fake(&root), manager.clone()).unwrap();
            Bench { directory, manager, actuator, journal: Arc::new(Mutex::new(journal)) }
        }

        fn root(&self) -> &Path {
            self.directory.path()
        }

        /// One step for each scope: its memory.low.
        fn steps(&self, from: u64, to: u64) -> Vec<Step> {
            let cgroups = Host::fake(self.root()).cgroups().unwrap();
            let (knob, prior) = (Knob::MemoryLow, Bytes(4096));
            let action = Action::Set { knob, from: Bytes(from), prior, to: Bytes(to) };
            let step = |name| {
                let (path, rung) = (scope(name), Rung::Protect);
                let id = cgroups.open(&path).unwrap().unwrap().id();
                Step {
                    path,
                    id,
                    action: action.clone(),
                    rung,
                    reason: Reason("test".to_owned()),
                    telling: Telling::Now,
                }
            };
            ["x", "y", "z"].map(step).into()
        }

        fn writer(&self) -> (Writer<'_, Manager>, Sender<Urgent>, Receiver<Report>) {
            let ((newer, plans), (done, reports)) = (channel(1), channel(4));
            (Writer::new((&self.actuator, &self.journal), plans, done), newer, reports)
        }

        fn lows(&self) -> [String; 3] {
            let host = FakeHost::new(self.root());
            ["x", "y", "z"].map(|n| host.read(&format!("sys/fs/cgroup/{}/memory.low", scope(n))))
        }

        fn asked(&self) -> Vec<String> {
            self.manager.asked.lock().unwrap().clone()
        }

        fn noted(&self) -> [Saved; 3] {
            let journal = self.journal.lock().unwrap();
            let find = |name| journal.find(&scope(name), Knob::MemoryLow).unwrap().unwrap();
            ["x", "y", "z"].map(find)
        }

        /// What the manager was told and asked for, by the journal.
        fn held(&self) -> [(Option<u64>, Option<u64>); 3] {
            let bytes = |value: Option<Value>| Some(value?.amount()?.0);
            self.noted().map(|saved| (bytes(saved.told), bytes(saved.asked)))
        }

        fn is_ours(&self, at: usize, bytes: u64) -> bool {
            self.noted()[at].is_ours(&Bytes(bytes).into())
        }
    }

    fn scope(name: &str) -> CgroupPath {
        CgroupPath::new(&format!("a.slice/{name}.scope"))
    }

    fn texts(of: [u64; 3]) -> [String; 3] {
        of.map(|value| value.to_string())
    }

    async fn expect_ahead(reports: &mut Receiver<Report>) -> Urgent {
        match reports.recv().await {
            Some(Report::Ahead(ahead)) => ahead,
            other => panic!("{other:?}"),
        }
    }

    async fn expect_written(reports: &mut Receiver<Report>) -> Written {
        match reports.recv().await {
            Some(Report::Written(written)) => written,
            other => panic!("{other:?}"),
        }
    }

    fn outcomes(written: &Written) -> Vec<Outcome> {
        written.told.iter().map(|told| told.outcome.clone()).collect()
    }

    #[tokio::test]
    async fn protection_is_there_before_the_manager_is_told_and_an_old_plan_is_left_to_the_next() {
        for to in [0, 8192] {
            let bench = Bench::new(1);
            let steps = bench.steps(4096, to);
            let (writer, _newer, mut reports) = bench.writer();
            writer.write(steps.clone(), Millis(1), NONE).await;
            let ahead = Urgent { steps, decided_at: Millis(1) };
            assert_eq!(expect_ahead(&mut reports).await, ahead);
            assert_eq!(bench.lows(), texts([to; 3]));
            let written = expect_written(&mut reports).await;
            assert_eq!(outcomes(&written), [Outcome::Done, Outcome::Untold, Outcome::Untold]);
            assert!(written.outcomes.is_empty());
            assert_eq!(bench.asked(), ["x.scope"]);
            // The manager, asked for something else, would write again what it was last told.
            let again = bench.steps(to, to + 4096);
            assert_eq!(bench.writer().0.write_ahead(&again).await.len(), 3);
            let held = [(to, None), (4096, None), (4096, None)];
            assert_eq!(bench.held(), held.map(|(told, asked)| (Some(told), asked)));
            assert!([0, 1, 2].iter().all(|at| bench.is_ours(*at, to + 4096)));
        }
    }

    #[tokio::test]
    async fn all_of_a_unit_is_told_however_slow_the_manager_is() {
        let bench = Bench::new(2);
        let mut steps = bench.steps(4096, 8192);
        let (knob, prior, to) = (Knob::MemoryHigh, Bytes(u64::MAX), Bytes::mib(64));
        let action = Action::Set { knob, from: prior, prior, to };
        steps.insert(0, Step { action, ..steps[1].clone() });
        let (writer, _newer, mut reports) = bench.writer();
        writer.write(steps.clone(), Millis(1), NONE).await;
        expect_ahead(&mut reports).await;
        let written = expect_written(&mut reports).await;
        assert_eq!(outcomes(&written), [Outcome::Untold, Outcome::Done, Outcome::Untold]);
        assert_eq!(written.outcomes, [(steps[0].clone(), Outcome::Done)]);
        assert_eq!(bench.asked(), ["y.scope", "y.scope"]);
    }

    #[tokio::test]
    async fn what_a_later_plan_tells_is_in_force_and_the_manager_asked_for_nothing() {
        let bench = Bench::new(1);
        let mut steps = bench.steps(4096, 8192);
        (steps[0].telling, steps[2].telling) = (Telling::Later, Telling::Later);
        let (writer, _newer, mut reports) = bench.writer();
        writer.write(steps.clone(), Millis(1), DAY).await;
        assert_eq!(expect_ahead(&mut reports).await.steps, steps);
        assert_eq!(bench.lows(), texts([8192; 3]));
        let written = expect_written(&mut reports).await;
        assert_eq!(outcomes(&written), [Outcome::Untold, Outcome::Done, Outcome::Untold]);
        assert_eq!(bench.asked(), ["y.scope"]);
    }

    #[tokio::test]
    async fn while_the_manager_does_not_answer_newer_plans_take_effect() {
        let bench = Bench::new(0);
        let (writer, newer, mut reports) = bench.writer();
        let write = writer.write(bench.steps(4096, 8192), Millis(1), DAY);
        let look_on = async {
            expect_ahead(&mut reports).await;
            for (at, to) in [(2, 12288), (3, 16384)] {
                let (steps, decided_at) = (bench.steps(to - 4096, to), Millis(at));
                let plan = Urgent { steps, decided_at };
                newer.send(plan.clone()).await.unwrap();
                assert_eq!(expect_ahead(&mut reports).await, plan);
                assert_eq!(bench.lows(), texts([to; 3]));
            }
            assert_eq!(bench.asked(), ["x.scope"]);
            let (told, asked) = (Some(4096), Some(8192));
            assert_eq!(bench.held(), [(told, asked), (told, None), (told, None)]);
            // It does what it was asked for long ago, and is told of what is in force by now.
            bench.manager.may_go_on.add_permits(3);
            expect_written(&mut reports).await
        };
        let ((), written) = tokio::join!(write, look_on);
        assert_eq!(outcomes(&written), [Outcome::Done, Outcome::Done, Outcome::Done]);
        let decided: Vec<_> = written.told.iter().map(|told| told.decided_at.0).collect();
        assert_eq!(decided, [1, 3, 3]);
        assert_eq!(bench.lows(), texts([16384; 3]));
        assert_eq!(bench.held(), [8192, 16384, 16384].map(|told| (Some(told), None)));
        assert!(bench.is_ours(0, 8192) && !bench.is_ours(1, 8192));
    }

    /// Its own write of an open knob comes later, and what goes along with a limit stays as it was when that was asked for.
    #[tokio::test]
    async fn a_newer_plan_leaves_what_the_older_one_has_still_to_write() {
        let bench = Bench::new(0);
        let mut steps = bench.steps(4096, 8192);
        let (knob, ours, prior) = (Knob::MemoryLow, Bytes(4096), Bytes::ZERO);
        bench.writer().0.write_ahead(&bench.steps(4096, 4096)).await;
        steps[1].action = Action::Release { knob, ours, prior };
        let (knob, prior, to) = (Knob::MemoryHigh, Bytes(u64::MAX), Bytes::mib(64));
        let action = Action::Set { knob, from: prior, prior, to };
        steps.insert(0, Step { action, ..steps[0].clone() });
        let (writer, newer, mut reports) = bench.writer();
        let write = writer.write(steps, Millis(1), DAY);
        let look_on = async {
            expect_ahead(&mut reports).await;
            let steps = bench.steps(8192, 12288);
            newer.send(Urgent { steps: steps.clone(), decided_at: Millis(2) }).await.unwrap();
            assert_eq!(expect_ahead(&mut reports).await.steps, steps[2..]);
            assert_eq!(bench.lows(), texts([8192, 4096, 12288]));
            bench.manager.may_go_on.add_permits(4);
            expect_written(&mut reports).await
        };
        let ((), written) = tokio::join!(write, look_on);
        assert_eq!(outcomes(&written), [Outcome::Done, Outcome::Done]);
        assert!(written.outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Done));
        assert_eq!(bench.lows(), texts([8192, 0, 12288]));
    }

    /// Of protection that waits to be told, and of such that could not be put in force before its turn.
    #[tokio::test]
    async fn what_another_wrote_meanwhile_is_not_written_over() {
        let bench = Bench::new(0);
        let host = FakeHost::new(bench.root());
        let low = |name| format!("sys/fs/cgroup/{}/memory.low", scope(name));
        let steps = bench.steps(4096, 8192);
        host.write(&low("z"), "10240");
        let (writer, _newer, mut reports) = bench.writer();
        let write = writer.write(steps.clone(), Millis(1), DAY);
        let look_on = async {
            assert_eq!(expect_ahead(&mut reports).await.steps, steps[..2]);
            host.write(&low("y"), "9216");
            bench.manager.may_go_on.add_permits(3);
            expect_written(&mut reports).await
        };
        let ((), written) = tokio::join!(write, look_on);
        assert_eq!(outcomes(&written), [Outcome::Done, Outcome::Overtaken]);
        assert_eq!(written.outcomes, [(steps[2].clone(), Outcome::Overtaken)]);
        assert_eq!(bench.lows(), texts([8192, 9216, 10240]));
        assert_eq!(bench.asked(), ["x.scope"]);
        let noted = bench.journal.lock().unwrap().find(&steps[2].path, Knob::MemoryLow).unwrap();
        assert_eq!(noted, None, "it was never written");
    }

    const HIGH: Knob = Knob::MemoryHigh;
    const MAX: Bytes = Bytes(u64::MAX);

    fn limit(from: u64, to: u64) -> Action {
        Action::Set { knob: HIGH, from: Bytes::mib(from), prior: MAX, to: Bytes::mib(to) }
    }

    impl Bench {
        /// Limits of 64 MiB, of which that of z was to be lowered, which never came through; and x is frozen.
        fn hold_back(&self) {
            let host = FakeHost::new(self.root());
            let steps = self.steps(4096, 4096);
            let (knob, off) = (Knob::CgroupFreeze, Bytes::ZERO);
            let freeze = Action::Set { knob, from: off, prior: off, to: Knob::STILL };
            let held = [limit(64, 64), limit(64, 64), limit(64, 32), freeze];
            for (action, step) in held.into_iter().zip(steps.iter().chain(&steps)) {
                let saved = Step { action, ..step.clone() }.to_save().unwrap();
                self.journal.lock().unwrap().note(&saved).unwrap();
                host.write(&format!("sys/fs/cgroup/{}/memory.high", step.path), &text_of(64 << 20));
            }
            host.write(&format!("sys/fs/cgroup/{}/cgroup.freeze", scope("x")), "1");
        }

        fn limits(&self) -> [String; 3] {
            let host = FakeHost::new(self.root());
            ["x", "y", "z"].map(|n| host.read(&format!("sys/fs/cgroup/{}/memory.high", scope(n))))
        }
    }

    /// Whom ctlmgr holds back has no part in what keeps the manager. That is asked for a higher limit of x, and does not answer.
    #[tokio::test]
    async fn who_is_held_back_is_let_go_though_the_manager_does_not_answer() {
        let bench = Bench::new(0);
        bench.hold_back();
        let base = bench.steps(4096, 4096);
        let with = |at: usize, action| Step { action, ..base[at].clone() };
        let release = Action::Release { knob: HIGH, ours: Bytes::mib(32), prior: MAX };
        let steps = vec![with(0, limit(64, 96)), with(1, limit(64, 48)), with(2, release)];
        let (knob, prior) = (Knob::CgroupFreeze, Bytes::ZERO);
        let thaw = Action::Release { knob, ours: Knob::STILL, prior };
        let later = vec![with(0, thaw), with(0, limit(96, 112)), with(1, limit(64, 128))];
        let (writer, newer, mut reports) = bench.writer();
        let write = writer.write(steps.clone(), Millis(1), DAY);
        let look_on = async {
            assert_eq!(expect_ahead(&mut reports).await.steps, steps[..1]);
            assert_eq!(bench.limits(), [96 << 20, 64 << 20, u64::MAX].map(text_of));
            newer.send(Urgent { steps: later.clone(), decided_at: Millis(2) }).await.unwrap();
            assert_eq!(expect_ahead(&mut reports).await.steps, later[1..]);
            assert_eq!(bench.limits(), [112 << 20, 128 << 20, u64::MAX].map(text_of));
            let frozen = format!("sys/fs/cgroup/{}/cgroup.freeze", scope("x"));
            assert_eq!(FakeHost::new(bench.root()).read(&frozen), "0");
            bench.manager.may_go_on.add_permits(3);
            expect_written(&mut reports).await
        };
        let ((), written) = tokio::join!(write, look_on);
        assert_eq!(bench.limits(), [112 << 20, 128 << 20, u64::MAX].map(text_of));
        let of = |at: usize| written.outcomes[at].1.clone();
        assert_eq!([of(0), of(1), of(2)], [Outcome::Overtaken, Outcome::Done, Outcome::Done]);
        assert_eq!((written.outcomes.len(), outcomes(&written)), (3, vec![Outcome::Done]));
        let left = bench.journal.lock().unwrap().entries().unwrap();
        assert!(left.iter().all(|s| s.knob == HIGH && s.path != scope("z")), "{left:?}");
    }

    /// What has grown until the manager does so would be reclaimed within its write.
    #[tokio::test]
    async fn a_limit_that_the_manager_is_to_lower_is_not_raised_meanwhile() {
        let bench = Bench::new(0);
        bench.hold_back();
        let base = bench.steps(4096, 4096);
        let with = |action| Step { action, ..base[0].clone() };
        let (writer, newer, mut reports) = bench.writer();
        let write = writer.write(vec![with(limit(64, 32))], Millis(1), DAY);
        let look_on = async {
            assert_eq!(expect_ahead(&mut reports).await.steps, []);
            while bench.asked().is_empty() {
                tokio::task::yield_now().await;
            }
            let steps = vec![with(limit(64, 80))];
            newer.send(Urgent { steps, decided_at: Millis(2) }).await.unwrap();
            assert_eq!(expect_ahead(&mut reports).await.steps, []);
            let noted = bench.journal.lock().unwrap().find(&scope("x"), HIGH).unwrap().unwrap();
            let may_be = [32, 64].map(|mib| noted.is_ours(&Bytes::mib(mib).into()));
            assert_eq!(may_be, [true; 2], "it may do late what it was asked for");
            bench.manager.may_go_on.add_permits(1);
            expect_written(&mut reports).await
        };
        let ((), written) = tokio::join!(write, look_on);
        assert_eq!(written.outcomes.len(), 1);
        assert_eq!(bench.limits()[0], text_of(32 << 20));
    }

    fn text_of(bytes: u64) -> String {
        if bytes == u64::MAX { "max".to_owned() } else { bytes.to_string() }
    }

    /// To limit or to freeze is not in force before it is done.
    #[tokio::test]
    async fn what_is_not_in_force_is_never_put_off() {
        let bench = Bench::new(3);
        let mut steps = bench.steps(4096, 4096);
        steps[1].action =
            Action::Release { knob: Knob::MemoryHigh, ours: Bytes(1), prior: Bytes(2) };
        let (knob, from, to) = (Knob::MemoryHigh, Bytes(u64::MAX), Bytes::mib(64));
        steps[2].action = Action::Set { knob, from, prior: from, to };
        let (writer, _newer, mut reports) = bench.writer();
        writer.write(steps, Millis(1), NONE).await;
        expect_ahead(&mut reports).await;
        let written = expect_written(&mut reports).await;
        assert_eq!((written.told.len(), written.outcomes.len()), (1, 2));
        let is_put_off = |o: &Outcome| matches!(o, Outcome::Untold | Outcome::Overtaken);
        assert!(!written.outcomes.iter().any(|(_, o)| is_put_off(o)), "{written:?}");
    }
}
