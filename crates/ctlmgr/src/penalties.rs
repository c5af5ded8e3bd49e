//! `ctlmgr batch penalties`: what characters cost each other when they start together.

use std::path::Path;

use ctlmgr_api::Client;
use ctlmgr_model::{Character, PairPenalty};
use ctlmgr_policy::gate::{Penalties, penalty};

use crate::daemon::present;
use crate::{Failure, show};

/// Those that use the disk.
const CHARACTERS: [Character; 5] = [
    Character::RandomRead,
    Character::SequentialRead,
    Character::RandomWrite,
    Character::SequentialWrite,
    Character::Mixed,
];

/// Runs the command.
pub(crate) fn run(socket: &Path, json: bool) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let learned: Vec<PairPenalty> = runtime.block_on(Client::new(socket).get("/v1/penalties"))?;
    present(json, &learned, |learned| table(learned))
}

fn table(learned: &[PairPenalty]) {
    let penalties = Penalties::new(learned.iter().copied());
    let head: Vec<String> = CHARACTERS.iter().map(|c| format!("{:>10}", short(*c))).collect();
    show::line(&format!("{:<18}{}", "", head.join("")));
    for a in CHARACTERS {
        let cell = |b: &Character| {
            let is_learned = learned.iter().any(|p| (p.a, p.b) == (a.min(*b), a.max(*b)));
            let mark = if is_learned { '*' } else { ' ' };
            format!("{:>9}{mark}", hundredths(penalties.between(a, *b)))
        };
        show::line(&format!("{a:<18}{}", CHARACTERS.iter().map(cell).collect::<String>()));
    }
    if learned.is_empty() {
        return show::line("All by the guidelines: no start was seen beside another yet.");
    }
    show::line("");
    for p in learned {
        let prior = hundredths(penalty(p.a, p.b));
        let (value, seen) = (hundredths(p.hundredths), p.seen);
        show::line(&format!("* {} + {}: {value} of {seen} starts, {prior} by guideline", p.a, p.b));
    }
}

/// Fits a column.
fn short(character: Character) -> &'static str {
    match character {
        Character::RandomRead => "rand-rd",
        Character::SequentialRead => "seq-rd",
        Character::RandomWrite => "rand-wr",
        Character::SequentialWrite => "seq-wr",
        Character::Mixed => "mixed",
        Character::Cpu => "cpu",
        Character::Quiet => "quiet",
    }
}

fn hundredths(value: u32) -> String {
    format!("{}.{:02}", value / 100, value % 100)
}
