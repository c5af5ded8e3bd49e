//! Carrying out one step: the journal first, then the knob.

use std::time::Instant;

use ctlmgr_act::{Actuator, Ask, UnitProperties};
use ctlmgr_model::{
    Action, Bytes, CgroupId, CgroupPath, Knob, Outcome, Saved, Step, Undone, Value,
};

use crate::undo::{SharedJournal, give_back, with_journal};

/// Tells the journal of a knob that is about to be written; returns what it knows.
pub(crate) async fn note<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    saved: &Saved,
) -> anyhow::Result<Saved> {
    let had_setting = actuator.has_setting(saved);
    let saved = Saved { had_setting, ..saved.clone() };
    let noted = saved.clone();
    with_journal(journal, move |j| j.note(&noted)).await?;
    Ok(saved)
}

/// Whether somebody wrote protection since it was read: there is neither what was there then nor anything of ours. The next look
/// finds whose it is. Of limits this is not asked: what a slow keeper may still write of them is not all known, and one that
/// stays for that reason holds somebody back.
pub(crate) async fn is_anothers<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    saved: &Saved,
) -> anyhow::Result<bool> {
    if !Knob::PROTECTION.contains(&saved.knob) {
        return Ok(false);
    }
    let (path, knob) = (saved.path.clone(), saved.knob);
    let known = with_journal(journal, move |j| j.find(&path, knob)).await?;
    // A user's own manager writes what it knows over ours whenever it starts something, and is no contest.
    let is_bare_again = |value: &Value| saved.path.is_of_user() && *value == saved.prior;
    let may_be = |value: &Value| {
        let is_ours = saved.is_ours(value) || known.as_ref().is_some_and(|k| k.is_ours(value));
        is_ours || is_bare_again(value)
    };
    Ok(actuator.present(saved).ok().flatten().is_some_and(|value| !may_be(&value)))
}

/// One step; a knob is written only after the journal knows it, and no reclaim is begun after `deadline`.
pub(crate) async fn carry_out_one<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    step: &Step,
    deadline: Instant,
) -> anyhow::Result<Outcome> {
    match (&step.action, step.to_save()) {
        (Action::Reclaim { .. }, _) if Instant::now() >= deadline => Ok(Outcome::Overtaken),
        (Action::Reclaim { only_cache: true, .. }, _) if !actuator.has_reclaim() => {
            Ok(Outcome::Reclaimed(Bytes::ZERO))
        }
        (Action::Reclaim { amount, chunk, .. }, _) if !actuator.has_reclaim() => {
            let mut done = Bytes::ZERO;
            while done < *amount && Instant::now() < deadline {
                let ask = (*chunk).min(*amount - done);
                let taken = dip(actuator, journal, (&step.path, step.id), ask).await?;
                done = done + taken;
                if taken < ask {
                    break;
                }
            }
            Ok(Outcome::Reclaimed(done))
        }
        (&Action::Reclaim { amount, chunk, only_cache }, _) => {
            let ask = Ask { amount, chunk, only_cache, deadline };
            Ok(actuator.reclaim((&step.path, step.id), ask).await)
        }
        (Action::Release { knob, prior, .. }, _) => {
            release(actuator, journal, (&step.path, *knob), (*prior).into()).await
        }
        (Action::Unpin { knob, prior, .. }, _) => {
            release(actuator, journal, (&step.path, *knob), prior.clone().into()).await
        }
        (Action::Set { .. } | Action::Pin { .. } | Action::Stop { .. }, None) => {
            Ok(Outcome::Vanished)
        }
        (_, Some(saved)) if actuator.is_overtaken(&saved) => Ok(Outcome::Overtaken),
        (_, Some(saved)) if is_anothers(actuator, journal, &saved).await? => Ok(Outcome::Overtaken),
        (_, Some(saved)) => {
            note(actuator, journal, &saved).await?;
            if step.is_for_keeper() {
                // Who does not answer may do it later, whatever was written since.
                let asked = saved.clone();
                with_journal(journal, move |j| j.note_asked(&asked)).await?;
            }
            let outcome = actuator.set(&saved).await;
            if outcome == Outcome::Done {
                with_journal(journal, move |j| j.note_told(&saved)).await?;
            }
            Ok(outcome)
        }
    }
}

/// What to report of it.
pub(crate) fn outcome_of(result: anyhow::Result<Outcome>) -> Outcome {
    result.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
}

/// Gives back what the journal knows of a knob.
async fn release<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    (path, knob): (&CgroupPath, Knob),
    prior: Value,
) -> anyhow::Result<Outcome> {
    let path = path.clone();
    let saved = with_journal(journal, move |j| j.find(&path, knob)).await?;
    let Some(saved) = saved else { return Ok(Outcome::Vanished) };
    let saved = Saved { prior, ..saved };
    Ok(undone(give_back(actuator, journal, &saved).await))
}

/// Reclaim where the kernel has no file for it, by a limit that the journal knows of; returns what
/// was taken.
async fn dip<U: UnitProperties>(
    actuator: &Actuator<U>,
    journal: &SharedJournal,
    target: (&CgroupPath, CgroupId),
    amount: Bytes,
) -> anyhow::Result<Bytes> {
    let path = target.0.clone();
    let known = with_journal(journal, move |j| j.find(&path, Knob::MemoryHigh)).await?;
    let Some(dip) = actuator.dip(target, amount, known.as_ref())? else { return Ok(Bytes::ZERO) };
    let saved = note(actuator, journal, dip.saved()).await?;
    let taken = match tokio::task::spawn_blocking(move || dip.take()).await? {
        Ok(taken) => taken,
        Err(error) => {
            // A limit must not stay because of that.
            give_back(actuator, journal, &saved).await;
            return Err(error.into());
        }
    };
    with_journal(journal, move |j| match known {
        Some(known) => j.note(&known),
        None => j.forget(&saved),
    })
    .await?;
    Ok(taken)
}

fn undone(undone: Undone) -> Outcome {
    match undone {
        Undone::PutBack => Outcome::Done,
        Undone::LeftToOthers(value) => Outcome::Overridden(value),
        Undone::Vanished => Outcome::Vanished,
        Undone::Failed(error) => Outcome::Failed(error),
    }
}
