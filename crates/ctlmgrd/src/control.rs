//! Requests from the API to the loop.

use ctlmgr_api::{Difference, ModeChange, PlaceStatus, Queue, Reverted, Status, WeightChange, Why};
use ctlmgr_model::{Plan, Settings};
use tokio::sync::{mpsc, oneshot, watch};

use crate::gate::Question;
use crate::recorder::Numbered;
use crate::traffic::Seen;

/// Where an answer goes, and what it may be.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refused>>;

/// Why a request is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no such thing.
    NotFound(String),
    /// The request makes no sense.
    Invalid(String),
    /// It makes sense but did not work.
    Failed(String),
    /// The daemon is stopping.
    Stopping,
}

/// A request with the place for its answer.
#[derive(Debug)]
pub(crate) enum Command {
    Status(Reply<Status>),
    Why(String, Reply<Why>),
    Plan(Reply<Plan>),
    Settings(Reply<Settings>),
    Record(Option<u64>, Reply<Vec<Numbered>>),
    Diff(Reply<Vec<Difference>>),
    Revert(Reply<Vec<Reverted>>),
    Mode(ModeChange, Reply<Status>),
    Weight(WeightChange, Reply<Status>),
}

impl Command {
    /// Whether the answer speaks of the host as it is now.
    pub fn is_about_now(&self) -> bool {
        matches!(self, Command::Status(_) | Command::Why(..) | Command::Plan(_))
    }
}

/// The way from the API to the loop.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    sender: mpsc::Sender<Command>,
    gate: mpsc::Sender<Question>,
    /// The queue of starts as it is now.
    pub queue: watch::Receiver<Queue>,
    /// Who talks to whom.
    pub seen: watch::Receiver<Seen>,
    /// Who runs where, and why.
    pub place: watch::Receiver<PlaceStatus>,
}

/// What tasks beside the loop show.
#[derive(Debug)]
pub(crate) struct Shown {
    pub queue: watch::Receiver<Queue>,
    pub seen: watch::Receiver<Seen>,
    pub place: watch::Receiver<PlaceStatus>,
}

impl Line {
    pub fn new(sender: mpsc::Sender<Command>, gate: mpsc::Sender<Question>, shown: Shown) -> Line {
        let Shown { queue, seen, place } = shown;
        Line { sender, gate, queue, seen, place }
    }

    /// Asks the gate and waits for its answer.
    pub async fn ask_gate<T>(
        &self,
        question: impl FnOnce(Reply<T>) -> Question,
    ) -> Result<T, Refused> {
        send(&self.gate, question).await
    }

    /// Asks the loop and waits for its answer.
    pub async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refused> {
        send(&self.sender, command).await
    }
}

async fn send<T, Q>(to: &mpsc::Sender<Q>, ask: impl FnOnce(Reply<T>) -> Q) -> Result<T, Refused> {
    let (reply, answer) = oneshot::channel();
    to.send(ask(reply)).await.map_err(|_| Refused::Stopping)?;
    answer.await.map_err(|_| Refused::Stopping)?
}
