//! Containers that run already: they are in the first batch, whoever else is.

use super::{Input, expand};

/// Whoever runs is in the first batch, waits for nobody, and nobody has to wait for it.
pub(super) fn settle(mut input: Input) -> Input {
    let running: Vec<String> =
        input.containers.iter().filter(|c| c.running).map(|c| c.name.clone()).collect();
    for c in &mut input.containers {
        c.after.retain(|name| !running.contains(name));
        if c.running {
            c.after.clear();
            c.deadline = Some(1);
        }
    }
    input
}

/// Where those that run are more than a batch may hold, nobody joins them: they are taken out of the input,
/// and their names returned.
pub(super) fn split_off_if_too_many(input: &mut Input) -> Result<Vec<String>, anyhow::Error> {
    if fit(input) {
        return Ok(Vec::new());
    }
    let names = expand(&input.containers)?;
    let is_running: Vec<bool> = input.containers.iter().map(|c| c.running).collect();
    let head = names.into_iter().zip(&is_running).filter(|(_, is)| **is).flat_map(|(n, _)| n);
    let head = head.collect();
    if let Some(rows) = input.pairwise.as_mut().filter(|rows| rows.len() == is_running.len()) {
        keep(rows, &is_running);
        rows.iter_mut().for_each(|row| keep(row, &is_running));
    }
    input.containers.retain(|c| !c.running);
    Ok(head)
}

fn fit(input: &Input) -> bool {
    let running = || input.containers.iter().filter(|c| c.running);
    let count: u64 = running().map(|c| u64::from(c.count)).sum();
    let used = |name: &String| -> f64 {
        running().map(|c| f64::from(c.count) * c.uses.get(name).copied().unwrap_or(0.0)).sum()
    };
    input.max_batch.is_none_or(|most| count <= u64::from(most))
        && input.capacity.iter().all(|(name, have)| used(name) <= *have)
}

/// Keeps what belongs to those that do not run.
fn keep<T>(list: &mut Vec<T>, is_running: &[bool]) {
    let mut at = is_running.iter();
    list.retain(|_| at.next() == Some(&false));
}
