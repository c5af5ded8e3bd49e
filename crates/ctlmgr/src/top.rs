//! `ctlmgr memory top`: who needs, keeps and misses what, again and again.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use ctlmgr_api::{Client, Status};
use ctlmgr_model::{Verdict, VerdictKind};

use crate::daemon::present;
use crate::{Failure, show};

/// Clears the screen and goes to its top left corner (ECMA-48 ED, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Looks until it is interrupted; once where nobody watches.
pub(crate) async fn run(
    client: &Client,
    every: Duration,
    once: bool,
    json: bool,
) -> Result<u8, Failure> {
    let is_watched = std::io::stdout().is_terminal() && !once && !json;
    loop {
        let status = client.get::<Status>("/v1/status").await?;
        if !is_watched {
            return present(json, &status, table);
        }
        print!("{CLEAR}");
        table(&status);
        std::io::stdout().flush()?;
        tokio::time::sleep(every).await;
    }
}

fn table(status: &Status) {
    let Some(plan) = &status.plan else { return show::line("No reading yet.") };
    show::room(plan);
    show::line("");
    show::line(&format!(
        "{:<18} {:>9} {:>9} {:>9} {:>9} {:>6} {:>5} {:<8}",
        "NAME", "PROMISE", "NEED", "SHARE", "HELD", "REFL/S", "STALL", "RUNG"
    ));
    let mut sorted: Vec<&Verdict> = plan.verdicts.iter().collect();
    // Who misses most comes first.
    sorted.sort_by_key(|v| {
        (std::cmp::Reverse(v.demand - v.held), std::cmp::Reverse(v.held), v.name.clone())
    });
    for v in sorted {
        let name = match v.kind {
            VerdictKind::Workload => show::cut(&v.name.0, 18),
            VerdictKind::Bystander => format!("({})", show::cut(&v.name.0, 16)),
        };
        let promise = v.promise.map_or("-".to_owned(), |p| p.to_string());
        let stall = v.stall_pct.map_or("-".to_owned(), |p| format!("{} %", p.0));
        let rung = v.rung.map_or("-".to_owned(), |r| r.to_string());
        show::line(&format!(
            "{name:<18} {promise:>9} {:>9} {:>9} {:>9} {:>6} {stall:>5} {rung:<8}",
            v.demand, v.share, v.held, v.refaults_per_sec
        ));
    }
}
