//! `ctlmgr place plan FILE`: workloads to L3 domains, and nothing else.

mod input;
mod output;

use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use ctlmgr_model::Millis;
use ctlmgr_policy::placement::{Contradiction, Proven, Work, place, prove};

use self::input::{Case, Input};
use self::output::Output;
use crate::input::{parse, read};
use crate::{Failure, print_json, show};

/// How long to search.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Effort {
    /// So many rounds, whatever the clock says.
    pub rounds: Option<u64>,
    /// So many seconds more for a proof.
    pub prove_secs: Option<u64>,
}

/// Runs the command.
pub(crate) fn run(file: &Path, effort: Effort, json: bool) -> Result<u8, Failure> {
    run_text(&read(file).map_err(Failure::bad_input)?, effort, json)
}

/// The same for a text that was read already.
pub(crate) fn run_text(text: &str, effort: Effort, json: bool) -> Result<u8, Failure> {
    let output = solve(text, effort).map_err(Failure::bad_input)?;
    if output.overload > 0.0 {
        eprintln!(
            "ctlmgr: the load does not fit: {:.3} CPUs are beyond the limits of domains, and no less was found",
            output.overload
        );
    }
    if json {
        print_json(&output)?;
        return Ok(0);
    }
    for (name, domains) in &output.assignment {
        show::line(&format!("{:<40} {}", show::cut(name, 40), domains.join(" ")));
    }
    show::line(&format!(
        "weighted cut {}, cut {}, {} moves gain {}; largest load {:.3} CPUs, imbalance {:.1} % ({} ms)",
        output.weighted_cut,
        output.cut,
        output.moves,
        output.gain_vs_current,
        output.max_load,
        output.imbalance * 100.0,
        output.time_ms
    ));
    match output.proven {
        Some(true) => show::line("There is no better placement."),
        Some(false) => show::line("Whether there is a better placement is not known."),
        None => {}
    }
    Ok(0)
}

/// Domains of each workload.
#[cfg(test)]
pub(crate) fn assignment(
    text: &str,
) -> Result<std::collections::BTreeMap<String, Vec<String>>, anyhow::Error> {
    Ok(solve(text, Effort { rounds: Some(1000), prove_secs: None })?.assignment)
}

fn solve(text: &str, effort: Effort) -> Result<Output, anyhow::Error> {
    let started = Instant::now();
    let input: Input = parse(text)?;
    let case = Case::new(&input)?;
    let passed = || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    // The rest is for what comes after the search.
    let limit = input.time_limit_ms - input.time_limit_ms / 10;
    let left = || effort.rounds.is_none().then(|| Millis(limit.saturating_sub(passed())));
    let mut work = Work::new(effort.rounds.unwrap_or_else(|| default_rounds(&case)), &left);
    let (placement, proven) = match effort.prove_secs {
        None => place(&case.problem, &mut work).map(|placement| (placement, None)),
        Some(secs) => {
            let limit = input.time_limit_ms.saturating_add(secs.saturating_mul(1000));
            let left = || Some(Millis(limit.saturating_sub(passed())));
            prove(&case.problem, &mut work, &left)
                .map(|Proven { placement, is_optimal }| (placement, Some(is_optimal)))
        }
    }
    .map_err(|error| explain(&error, &input))?;
    Ok(Output { proven, ..Output::new(&input, &placement, started.elapsed()) })
}

/// Enough for instances of the size of the paper's; large ones end by their time limit.
fn default_rounds(case: &Case) -> u64 {
    let n = u64::try_from(case.problem.workloads.len()).unwrap_or(u64::MAX);
    n.saturating_mul(n).saturating_mul(4).clamp(2000, 1_000_000)
}

fn explain(error: &Contradiction, input: &Input) -> anyhow::Error {
    let field = match error {
        Contradiction::PinnedNowhere { .. } => "pinned",
        Contradiction::PinnedTooWide { .. } => "max_domains",
        Contradiction::SharedExclusive { .. } | Contradiction::TooExclusive { .. } => "exclusive",
    };
    let name = &input.workloads[error.workload()].name;
    let other = match error {
        Contradiction::SharedExclusive { other, .. } => {
            format!(" (`{}`)", input.workloads[*other].name)
        }
        _ => String::new(),
    };
    anyhow!("workload `{name}`: `{field}`: {error}{other}")
}
