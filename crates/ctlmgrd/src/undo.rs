//! Putting everything back, with or without a running daemon.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use ctlmgr_act::{Actuator, UnitProperties};
use ctlmgr_api::{Difference, Reverted};
use ctlmgr_model::{Knob, Saved, Undone};
use ctlmgr_store::Journal;
use tracing::{info, warn};

/// The journal, shared by the workers that write knobs.
pub(crate) type SharedJournal = Arc<Mutex<Journal>>;

/// Runs `work` on the journal, away from the loop: it waits for stable storage.
pub(crate) async fn with_journal<T: Send + 'static>(
    journal: &SharedJournal,
    work: impl FnOnce(&Journal) -> Result<T, ctlmgr_store::JournalError> + Send + 'static,
) -> Result<T> {
    let journal = journal.clone();
    tokio::task::spawn_blocking(move || {
        // A panic while holding the lock leaves SQLite's own state consistent.
        work(&journal.lock().unwrap_or_else(PoisonError::into_inner))
    })
    .await
    .context("failed to run the journal worker")?
    .map_err(anyhow::Error::from)
}

/// Puts back every knob whose present value is still ours: who is frozen first, then limits, deepest cgroups first.
///
/// # Errors
/// The journal cannot be read or written; single knobs that fail are in the result.
pub async fn revert<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &Arc<Mutex<Journal>>,
) -> Result<Vec<Reverted>> {
    revert_some(actuator, journal, |_| true).await
}

/// The same for some knobs only.
pub(crate) async fn revert_some<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &Arc<Mutex<Journal>>,
    which: impl Fn(Knob) -> bool,
) -> Result<Vec<Reverted>> {
    let mut result = Vec::new();
    let mut entries = with_journal(journal, Journal::entries).await?;
    entries.retain(|saved| which(saved.knob));
    // Who is held back is let go first: the manager writes memory.high along with other values.
    // Nobody who stands still waits for the manager.
    let turn = |knob| match knob {
        Knob::CgroupFreeze => 0,
        Knob::MemoryHigh => 1,
        _ => 2,
    };
    entries.sort_by_key(|saved| turn(saved.knob));
    for saved in entries {
        let undone = give_back(actuator, journal, &saved).await;
        report(&saved, &undone);
        let (path, knob) = (saved.path.to_string(), saved.knob.to_string());
        result.push(Reverted { path, knob, undone });
    }
    Ok(result)
}

/// Puts one knob back, and lets the journal forget it.
pub(crate) async fn give_back<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    saved: &Saved,
) -> Undone {
    let undone = actuator.put_back(saved).await;
    if !matches!(undone, Undone::Failed(_)) {
        // A journal that cannot forget must not keep the other knobs from being put back:
        // undoing this one again changes nothing.
        let done = saved.clone();
        if let Err(error) = with_journal(journal, move |j| j.forget(&done)).await {
            warn!(path = %saved.path, error = format!("{error:#}"), "still in the journal");
        }
    }
    undone
}

fn report(saved: &Saved, undone: &Undone) {
    let (path, knob) = (&saved.path, saved.knob);
    match undone {
        Undone::PutBack => {
            info!(%path, %knob, "{path} {knob}: put back to {}", knob.words(saved.prior.clone()));
        }
        Undone::Vanished => info!(%path, %knob, "{path} {knob}: gone, nothing to put back"),
        Undone::LeftToOthers(value) => {
            warn!(%path, %knob, "{path} {knob}: {} by another writer since, left alone", knob.words(value.clone()));
        }
        Undone::Failed(error) => warn!(%path, %knob, error, "{path} {knob}: failed to put back"),
    }
}

/// What differs from before ctlmgr; knobs of vanished cgroups do not count.
///
/// # Errors
/// The journal or a knob cannot be read.
pub async fn differences<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &Arc<Mutex<Journal>>,
) -> Result<Vec<Difference>> {
    let mut result = Vec::new();
    for saved in with_journal(journal, Journal::entries).await? {
        let present = actuator.present(&saved)?;
        if present.as_ref().is_none_or(|value| *value == saved.prior) {
            continue;
        }
        result.push(Difference {
            path: saved.path.to_string(),
            knob: saved.knob.to_string(),
            prior: saved.prior,
            ours: saved.ours,
            present,
        });
    }
    Ok(result)
}
