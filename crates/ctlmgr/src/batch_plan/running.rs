//! Containers that run already: they are in the first batch, whoever else is.

use anyhow::ensure;

use super::{Capacity, Container, Input, expand};

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
/// their names returned, and everybody else's deadline is a batch nearer.
pub(super) fn split_off_if_too_many(input: &mut Input) -> Result<Vec<String>, anyhow::Error> {
    if fit(input)? {
        return Ok(Vec::new());
    }
    let head = take_out(input)?;
    for c in input.containers.iter_mut().filter(|c| c.deadline.is_some()) {
        ensure!(
            c.deadline != Some(1),
            "container `{}`: `deadline` is 1, and those that run already fill the first batch",
            c.name
        );
        c.deadline = c.deadline.map(|batch| batch - 1);
    }
    Ok(head)
}

/// Takes those that run out of the input; returns their names.
pub(super) fn take_out(input: &mut Input) -> Result<Vec<String>, anyhow::Error> {
    let names = expand(&input.containers)?;
    let is_running: Vec<bool> = input.containers.iter().map(|c| c.running).collect();
    let taken = names.into_iter().zip(&is_running).filter(|(_, is)| **is).flat_map(|(n, _)| n);
    let taken = taken.collect();
    if let Some(rows) = input.pairwise.as_mut().filter(|rows| rows.len() == is_running.len()) {
        input.taken.extend(rows.iter().flatten().copied());
        keep(rows, &is_running);
        rows.iter_mut().for_each(|row| keep(row, &is_running));
    }
    let count = |c: &Container| if c.running { c.count } else { 0 };
    input.taken_count = input.containers.iter().map(count).fold(0, u32::saturating_add);
    input.containers.retain(|c| !c.running);
    Ok(taken)
}

/// Whether those that run fit into one batch, in the integers that the plan is made with.
fn fit(input: &Input) -> Result<bool, anyhow::Error> {
    let running = || input.containers.iter().enumerate().filter(|(_, c)| c.running);
    let count: u64 = running().map(|(_, c)| u64::from(c.count)).sum();
    for (name, have) in &input.capacity {
        let capacity = Capacity::new(input, name, *have)?;
        let used = |(entry, c): (usize, &Container)| {
            u128::from(capacity.uses[entry]) * u128::from(c.count)
        };
        if running().map(used).sum::<u128>() > u128::from(capacity.have) {
            return Ok(false);
        }
    }
    Ok(input.max_batch.is_none_or(|most| count <= u64::from(most)))
}

/// Keeps what belongs to those that do not run.
fn keep<T>(list: &mut Vec<T>, is_running: &[bool]) {
    let mut at = is_running.iter();
    list.retain(|_| at.next() == Some(&false));
}
