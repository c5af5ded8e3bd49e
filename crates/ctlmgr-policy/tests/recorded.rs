//! Runs of a real host, decided again: what changes must be meant.
//!
//! A recording is made by `ctlmgr record FILE` on the host, and lies here gzipped. After a change
//! that is meant, `ACCEPT=1 cargo test -p ctlmgr-policy --test recorded` writes the new plans into
//! it and prints what became different.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use ctlmgr_model::{Bytes, Plan, Rung};
use ctlmgr_policy::replay::{Event, replay};
use ctlmgr_policy::{State, check, decide};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A third container bursts into a host that is full (guest, 6.12 with MGLRU, weights 400:100:100).
fn burst() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/burst.jsonl.gz")
}

fn read(path: &Path) -> Result<Vec<Event>> {
    let lines = BufReader::new(GzDecoder::new(File::open(path)?)).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}

/// Writes the recording with the plans that are made now.
fn accept(path: &Path, events: &[Event]) -> Result<()> {
    let mut out = GzEncoder::new(File::create(path)?, Compression::best());
    let mut position = None;
    for mut event in events.iter().cloned() {
        match (&mut event, &mut position) {
            (Event::Start { settings, state }, _) => {
                position = Some((settings.clone(), State::clone(state)));
            }
            (Event::Decided { snapshot, plan }, Some((settings, state))) => {
                (**plan, *state) = decide(settings, std::mem::take(state), snapshot);
            }
            (Event::Learned { step, outcome, at }, Some((_, state))) => {
                state.learn(step, outcome, *at);
            }
            (_, None) => {}
        }
        writeln!(out, "{}", serde_json::to_string(&event)?)?;
    }
    Ok(out.finish().map(drop)?)
}

/// What matters in a plan, in words.
fn summary(plan: &Plan) -> Vec<String> {
    let shares = plan.verdicts.iter().map(|v| format!("{} {} by {}", v.name, v.share, v.bound));
    shares.chain(plan.steps.iter().map(ToString::to_string)).collect()
}

#[test]
fn a_burst_is_decided_as_recorded() -> Result<()> {
    let events = read(&burst())?;
    let result = replay(&events);
    assert!(result.decisions > 20, "{} decisions", result.decisions);
    let is_accepted = std::env::var_os("ACCEPT").is_some();
    for deviation in &result.deviations {
        let (was, is) = (summary(&deviation.recorded), summary(&deviation.replayed));
        match is_accepted {
            true => println!("{:?}\n  was {was:#?}\n  is {is:#?}", deviation.at),
            false => assert_eq!(was, is, "{:?}", deviation.at),
        }
    }
    if is_accepted { accept(&burst(), &events) } else { Ok(()) }
}

/// Whatever is decided there: it is sound, and the heavy one keeps what it needs.
#[test]
fn a_burst_costs_the_heavy_one_nothing() -> Result<()> {
    let mut reclaims = 0;
    for event in read(&burst())? {
        let Event::Decided { snapshot, plan } = event else { continue };
        assert_eq!(check(&ctlmgr_model::Settings::default(), &plan, &snapshot), []);
        let heavy = plan.verdicts.iter().find(|v| v.name.0 == "heavy").ok_or("no heavy")?;
        assert!(heavy.share >= Bytes::mib(590), "{}", heavy.share);
        reclaims += plan.steps.iter().filter(|s| s.rung == Rung::Reclaim).count();
    }
    assert!(reclaims > 3, "the recording is of a host under pressure");
    Ok(())
}
