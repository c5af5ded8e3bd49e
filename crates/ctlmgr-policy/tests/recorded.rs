//! Runs of a real host, decided again: what changes must be meant.
//!
//! A recording is made by `cargo xtask record NAME` in the guest, by what `ctlmgr record` writes there, and lies here gzipped.
//! After a change that is meant, `ACCEPT=1 cargo test -p ctlmgr-policy --test recorded` writes the new plans into it and
//! prints what became different. What a host would have become by them it cannot say: then it is recorded anew.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use ctlmgr_model::{Action, Bytes, CgroupPath, Knob, Millis, Plan, Rung, Settings, Step, Verdict};
use ctlmgr_policy::replay::{Event, replay};
use ctlmgr_policy::{State, check, decide};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A third container bursts into a host that is nearly full (guest, 6.12 with MGLRU, weights 400:100:100).
const BURST: &str = "burst";
/// The first minute of the demo: a unit without promise grows beside a redis with a floor and containers of the
/// classes normal and low, on two processors that are short.
const SQUEEZE: &str = "squeeze";

/// Two hogs of 400 and 800 MiB, promised that, on a machine that shrinks from 1800 to 1300 MiB (guest, 6.12 with classic
/// lists, weights alike).
const SHRINK: &str = "shrink";

/// A service of 500 MiB that was promised that, a fork server, and one that leaks 1500 MiB and goes on using 40 (guest, 6.12
/// with MGLRU, weights alike).
const NEEDS: &str = "needs";

/// Without swap: a service that lives by 400 MiB of page cache and was promised that, and one that may be stopped and grows
/// (guest, 6.12 with MGLRU).
const USED_UP: &str = "used-up";

/// A service of 400 MiB that was promised that, one that has filled 600 MiB and goes on using 40, one that grows to 900, and later a
/// unit that reads a disk from end to end again and again (guest, 6.12 with MGLRU, weights alike, probing).
const WASTE: &str = "waste";

/// Two that live by 500 MiB of page cache each and were promised 150, and a unit without promise that grows by steps to 1000
/// MiB (guest, 6.12 with MGLRU, weights alike; of a share most is hard).
const FILES: &str = "files";

/// A service of 900 MiB that was promised that, and one of class idle, which may be frozen, that grows to 1500 and never rests,
/// until the service is removed (guest, 6.12 with MGLRU, without the rungs below).
const IDLE: &str = "idle";

/// Two hogs of 280 MiB, promised that, weights 400 and 100, in a slice with `MemoryMax=400M` (guest, 6.12 with MGLRU).
const SLICE: &str = "slice";

/// Two hogs of 600 MiB, promised that, on a machine of 1100; one is given the weight 400, and later 100 again (guest, 6.12 with
/// MGLRU).
const WEIGHT: &str = "weight";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{name}.jsonl.gz"))
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

fn expect_as_recorded(name: &str) -> Result<()> {
    let events = read(&file(name))?;
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
    if is_accepted { accept(&file(name), &events) } else { Ok(()) }
}

#[test]
fn two_that_live_by_page_cache_are_decided_as_recorded() -> Result<()> {
    expect_as_recorded(FILES)
}

#[test]
fn a_burst_is_decided_as_recorded() -> Result<()> {
    expect_as_recorded(BURST)
}

#[test]
fn a_squeeze_is_decided_as_recorded() -> Result<()> {
    expect_as_recorded(SQUEEZE)
}

#[test]
fn a_shrink_is_decided_as_recorded() -> Result<()> {
    expect_as_recorded(SHRINK)
}

#[test]
fn needs_are_decided_as_recorded() -> Result<()> {
    expect_as_recorded(NEEDS)
}

#[test]
fn memory_that_is_used_up_is_decided_as_recorded() -> Result<()> {
    expect_as_recorded(USED_UP)
}

#[test]
fn waste_is_decided_as_recorded() -> Result<()> {
    expect_as_recorded(WASTE)
}

#[test]
fn a_weight_is_decided_as_recorded() -> Result<()> {
    expect_as_recorded(WEIGHT)
}

#[test]
fn who_stands_still_is_decided_as_recorded() -> Result<()> {
    expect_as_recorded(IDLE)
}

#[test]
fn a_full_slice_is_decided_as_recorded() -> Result<()> {
    expect_as_recorded(SLICE)
}

/// The sound plans of a recording, and how often anything was reclaimed.
fn plans(name: &str) -> Result<(Vec<Plan>, usize)> {
    let (mut settings, mut plans) = (Settings::default(), Vec::new());
    for event in read(&file(name))? {
        match event {
            Event::Start { settings: own, .. } => settings = *own,
            Event::Decided { snapshot, plan } => {
                assert_eq!(check(&settings, &plan, &snapshot), []);
                plans.push(*plan);
            }
            Event::Learned { .. } => {}
        }
    }
    let steps = plans.iter().flat_map(|p| &p.steps);
    let reclaims = steps.filter(|s| s.rung == Rung::Reclaim).count();
    Ok((plans, reclaims))
}

fn verdict<'a>(plan: &'a Plan, name: &str) -> Result<&'a Verdict> {
    Ok(plan.verdicts.iter().find(|v| v.name.0 == name).ok_or_else(|| format!("no {name}"))?)
}

#[test]
fn a_burst_costs_the_heavy_one_nothing() -> Result<()> {
    let (plans, reclaims) = plans(BURST)?;
    for plan in &plans {
        let heavy = verdict(plan, "heavy")?;
        assert!(heavy.share >= Bytes::mib(590), "{}", heavy.share);
    }
    assert!(reclaims > 3, "the recording is of a host under pressure");
    Ok(())
}

/// However long a write takes, the next reading has its say about the same knob.
#[test]
fn a_limit_follows_at_each_reading() -> Result<()> {
    let (plans, _) = plans(BURST)?;
    let mut last: BTreeMap<(CgroupPath, Knob), Millis> = BTreeMap::new();
    let mut at_once = 0;
    for plan in &plans {
        for step in &plan.steps {
            let Action::Set { knob: knob @ Knob::MemoryHigh, .. } = step.action else { continue };
            let before = last.insert((step.path.clone(), knob), plan.at);
            at_once += usize::from(before.is_some_and(|at| plan.at.since(at) < Millis(1500)));
        }
    }
    assert!(at_once >= 5, "{at_once} times one reading after the other wrote the same knob");
    Ok(())
}

/// Who was promised something keeps nearly all of it beside one that grows without a promise; and who matters
/// most misses nothing.
#[test]
fn a_squeeze_costs_the_one_that_grows() -> Result<()> {
    let (plans, reclaims) = plans(SQUEEZE)?;
    for plan in &plans {
        for (name, least_pct) in [("lab-redis", 100), ("lab-normal", 97), ("lab-low", 95)] {
            let v = verdict(plan, name)?;
            assert!(v.share.0 * 100 >= v.demand.0 * least_pct, "{name}: {v:#?}");
        }
    }
    let grown = plans.iter().filter_map(|p| verdict(p, "lab-pressure.service").ok());
    let most = grown.max_by_key(|v| v.demand).ok_or("it never came")?;
    assert!(most.share.0 < most.demand.0 / 2, "{most:#?}");
    assert!(reclaims > 10, "the recording is of a host under pressure");
    Ok(())
}

/// The leak gives nearly all that is given, and earns hardly anything; what forked processes share counts once.
#[test]
fn a_leak_costs_who_was_promised_nothing_and_forks_count_once() -> Result<()> {
    let (plans, reclaims) = plans(NEEDS)?;
    for plan in &plans {
        let [web, fork] = ["web", "fork"].map(|name| verdict(plan, name));
        let (web, fork) = (web?, fork?);
        assert!(web.share.0 * 100 >= web.demand.0 * 99, "{web:#?}");
        assert!(fork.demand < Bytes::mib(75), "{fork:#?}");
    }
    let last = verdict(plans.last().ok_or("no plan")?, "leak")?;
    assert!(last.demand > Bytes::mib(1000) && last.share < last.demand, "{last:#?}");
    assert!(last.basis < Bytes::mib(150), "{last:#?}");
    assert!(reclaims > 3, "the recording is of a host under pressure");
    Ok(())
}

/// What was filled and is never used goes, little by little; a scan needs nothing, and costs who was promised nothing.
#[test]
fn what_is_never_used_goes_and_a_scan_needs_nothing() -> Result<()> {
    let (plans, reclaims) = plans(WASTE)?;
    let (mut scanned, mut hoards) = (0, Vec::new());
    for plan in &plans {
        let web = verdict(plan, "web")?;
        assert!(web.share.0 * 100 >= web.demand.0 * 99, "{web:#?}");
        if let Ok(scan) = verdict(plan, "lab-scan.service") {
            assert!(scan.demand < Bytes::mib(4), "{scan:#?}");
            scanned += usize::from(scan.held > Bytes::mib(60));
        }
        let hoard = verdict(plan, "hoard")?;
        hoards.push((hoard.demand, hoard.held));
    }
    let (first, last) = (hoards.first().ok_or("no plan")?, hoards.last().ok_or("no plan")?);
    assert!(first.0 > Bytes::mib(590) && last.0 < Bytes::mib(575), "{first:?} {last:?}");
    assert!(last.1 < Bytes::mib(470), "{last:?}");
    assert!(scanned > 20, "{scanned} looks at a scan that has filled some");
    assert!(reclaims > 10, "the recording is of a host under pressure");
    Ok(())
}

/// Page cache that is taken and would be back within seconds is need, whatever was promised: the unit gives it.
#[test]
fn page_cache_that_is_missed_costs_the_one_that_grows() -> Result<()> {
    let (plans, reclaims) = plans(FILES)?;
    let is_missed = |p: &&Plan| p.account.demand > p.account.capacity;
    let mut missed = 0;
    // In the first looks that find some missing what comes back has only begun to.
    for plan in plans.iter().skip_while(|p| !is_missed(p)).skip(4) {
        let [first, second] = [verdict(plan, "first")?, verdict(plan, "second")?];
        for v in [first, second] {
            assert!(v.demand > Bytes::mib(500) && v.demand < Bytes::mib(530), "{v:#?}");
            assert_eq!(v.share, v.demand, "{v:#?}");
        }
        let unit = verdict(plan, "lab-pressure.service")?;
        assert!(unit.share < unit.demand, "{unit:#?}");
        missed += 1;
    }
    assert!(missed > 20, "{missed} looks at what is missed");
    let last = plans.last().ok_or("no plan")?;
    for v in [verdict(last, "first")?, verdict(last, "second")?] {
        assert!(v.held > Bytes::mib(515), "500 MiB, and what goes with them: {v:#?}");
    }
    assert!(reclaims > 10, "the recording is of a host under pressure");
    Ok(())
}

/// What was promised and is missed stays need, and who may be stopped is so while most of it is there.
#[test]
fn memory_is_used_up_before_page_cache_that_was_promised_is_lost() -> Result<()> {
    let (plans, _) = plans(USED_UP)?;
    let stops = |s: &Step| matches!(s.action, Action::Stop { .. });
    let stop = plans.iter().position(|p| p.steps.iter().any(stops)).ok_or("nobody is stopped")?;
    for plan in plans.iter().take(stop + 1) {
        let (web, batch) = (verdict(plan, "web")?, verdict(plan, "batch"));
        let is_missing = batch.is_ok_and(|batch| batch.share < batch.demand);
        assert!(!is_missing || web.demand >= Bytes::mib(390), "{web:#?}");
        assert!(web.held > Bytes::mib(240), "{web:#?}");
    }
    Ok(())
}

/// Both keep parts of what they need that are not far apart, and it was read how long they wait for processors.
#[test]
fn a_shrink_costs_both_alike() -> Result<()> {
    let (plans, _) = plans(SHRINK)?;
    let part = |plan: &Plan, name| {
        verdict(plan, name).map(|v| v.share.0 as f64 / v.demand.0.max(1) as f64)
    };
    for plan in &plans {
        let apart = (part(plan, "small")? - part(plan, "large")?).abs();
        assert!(apart < 0.12, "{apart} at {:?}", plan.at);
    }
    let last = plans.last().ok_or("no plan")?;
    assert!(part(last, "large")? < 0.97, "the recording is of a host under pressure");
    let mut waited = BTreeMap::new();
    for event in read(&file(SHRINK))? {
        let Event::Decided { snapshot, .. } = event else { continue };
        for workload in &snapshot.workloads {
            let now = workload.group.activity.cpu_wait_usec.ok_or("it was not read")?;
            waited.insert(workload.name.0.clone(), now);
        }
    }
    assert!(waited.values().all(|usec| *usec > 10_000_000), "{waited:?}");
    Ok(())
}

/// Who is heavier goes short, the idle class stands still for that, and goes on once nobody needs it any more.
#[test]
fn the_idle_class_stands_still_for_who_is_heavier() -> Result<()> {
    let (plans, _) = plans(IDLE)?;
    let of_freezer = |plan: &Plan, is_wanted: fn(&Action) -> bool| {
        plan.steps.iter().any(|s| is_wanted(&s.action))
    };
    let stops = |a: &Action| matches!(a, Action::Set { knob: Knob::CgroupFreeze, .. });
    let goes_on = |a: &Action| matches!(a, Action::Release { knob: Knob::CgroupFreeze, .. });
    let at = plans.iter().position(|p| of_freezer(p, stops)).ok_or("nobody stands still")?;
    let (web, batch) = (verdict(&plans[at], "web")?, verdict(&plans[at], "batch")?);
    assert!(web.held < web.share && web.weight > batch.weight, "{web:#?} {batch:#?}");
    let end = plans.iter().skip(at).position(|p| of_freezer(p, goes_on)).ok_or("for ever")?;
    let stood = plans[at..at + end].iter().filter_map(|p| verdict(p, "batch").ok());
    assert!(stood.filter(|batch| batch.doing.is_frozen).count() > 10, "it stood still");
    let last = plans[at..=at + end].last().ok_or("no plan")?;
    assert!(verdict(last, "web").is_err(), "until it is not needed");
    Ok(())
}

/// The host has plenty, and the slice is divided by weight; nobody outside gives anything for it.
#[test]
fn a_full_slice_is_divided_by_weight() -> Result<()> {
    let (plans, _) = plans(SLICE)?;
    for plan in &plans {
        assert!(plan.account.demand < plan.account.capacity, "the host has plenty");
        let outside = |s: &Step| !s.path.to_string().contains("/ctlmgr-shop.slice");
        let tightens = |s: &Step| {
            matches!(s.action, Action::Reclaim { .. })
                || matches!(s.action, Action::Set { knob: Knob::MemoryHigh, .. })
        };
        assert!(!plan.steps.iter().any(|s| outside(s) && tightens(s)), "{:#?}", plan.steps);
    }
    let last = plans.last().ok_or("no plan")?;
    let (heavy, light) = (verdict(last, "heavy")?, verdict(last, "light")?);
    assert!(
        heavy.share > Bytes::mib(250) && light.share < Bytes::mib(150),
        "{heavy:#?} {light:#?}"
    );
    assert!(heavy.held > Bytes::mib(250), "{heavy:#?}");
    Ok(())
}

/// Shares are what they are to be at the first look, and stay so, however long the heavier one takes to have its pages back.
#[test]
fn a_weight_is_followed_at_once_and_without_turning() -> Result<()> {
    let (plans, _) = plans(WEIGHT)?;
    let is_heavy = |p: &&Plan| verdict(p, "web-a").is_ok_and(|v| v.weight.get() == 400);
    let (heavy, alike): (Vec<&Plan>, Vec<&Plan>) = plans.iter().partition(is_heavy);
    assert!(heavy.len() > 20 && alike.len() > 20, "{} {}", heavy.len(), alike.len());
    for plan in &heavy {
        let (web_a, web_b) = (verdict(plan, "web-a")?, verdict(plan, "web-b")?);
        assert_eq!(web_a.share, web_a.demand, "{web_a:#?}");
        let share = web_b.share.0 >> 20;
        assert!((225..=250).contains(&share), "{web_b:#?}");
    }
    for plan in &alike {
        let [a, b] = [verdict(plan, "web-a")?.share, verdict(plan, "web-b")?.share];
        assert!(a.abs_diff(b) < Bytes::mib(4), "{a} {b}");
    }
    Ok(())
}
