//! `ctlmgr queue` and `ctlmgr profile`.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use ctlmgr_api::{Client, Forget, KeyedProfile, Queue, QueueChange};
use ctlmgr_model::{Bytes, Millis, Mode, Moved, Profile, Requests, Running, SIZES, Shape};
use ctlmgr_policy::gate;
use hyper::Method;

use crate::cli::{ProfileCommand, QueueCommand};
use crate::daemon::present;
use crate::{Failure, print_json, show};

/// Clears the screen and goes to its top left corner (ECMA-48 ED, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// `ctlmgr queue`.
pub(crate) async fn queue(
    client: &Client,
    command: Option<QueueCommand>,
    json: bool,
) -> Result<u8, Failure> {
    let change = match command {
        None => return present(json, &client.get::<Queue>("/v1/queue").await?, table),
        Some(QueueCommand::Watch) => return watch(client, json).await,
        Some(QueueCommand::Skip { name }) => QueueChange::Skip(name),
        Some(QueueCommand::Cancel { name }) => QueueChange::Cancel(name),
        Some(QueueCommand::Release) => QueueChange::Release,
        Some(QueueCommand::Hold) => QueueChange::Hold,
    };
    let queue: Queue = client.send(Method::PUT, "/v1/queue", &change).await?;
    if queue.mode != Mode::Act && change == QueueChange::Hold {
        eprintln!("ctlmgr: starts: {}; nobody waits until it is act", queue.mode);
    }
    present(json, &queue, table)
}

/// The daemon tells of every change; it has gone when it tells no more.
async fn watch(client: &Client, json: bool) -> Result<u8, Failure> {
    let mut last = None;
    let show = |queue: Queue| {
        let is_changed = last.as_ref().is_none_or(|last| names(&queue) != names(last));
        match (json, std::io::stdout().is_terminal()) {
            (false, true) => {
                print!("{CLEAR}");
                table(&queue);
                std::io::stdout().flush()?;
            }
            (true, _) if is_changed => show::line(&serde_json::to_string(&queue)?),
            (false, false) if is_changed => table(&queue),
            _ => {}
        }
        last = Some(queue);
        Ok::<(), Failure>(())
    };
    client.follow("/v1/queue", show).await?;
    Err(anyhow!("ctlmgrd has ended").into())
}

/// What makes one view differ from another, apart from time.
fn names(queue: &Queue) -> (bool, Vec<(&str, &str)>, Vec<&str>) {
    let waiting = queue.waiting.iter().map(|w| (w.name.as_str(), w.reason.as_str())).collect();
    (queue.is_held, waiting, queue.starting.iter().map(|s| s.name.as_str()).collect())
}

fn table(queue: &Queue) {
    let held = if queue.is_held { ", all held by the operator" } else { "" };
    let c = &queue.counters;
    show::line(&format!(
        "starts: {}{held}; {} let go, {} of them after waiting, {} overdue",
        queue.mode, c.admitted, c.waited, c.overdue
    ));
    match queue.trace.as_str() {
        "on" => {}
        "events" => show::line("requests to disks are traced by the kernel's events, not by eBPF"),
        "calls" => show::line(
            "requests to disks are not traced; the calls are looked at in which tasks wait",
        ),
        why => show::line(&format!("requests to disks are not traced: {why}")),
    }
    if queue.waiting.is_empty() && queue.starting.is_empty() {
        return show::line("Nobody waits and nobody starts.");
    }
    show::line("");
    show::line(&format!(
        "{:<24} {:<16} {:>8} {:>6}  STATE",
        "NAME", "CHARACTER", "SECONDS", "LIMIT"
    ));
    let character = |c: Option<ctlmgr_model::Character>| c.map_or("-", |c| c.as_str());
    for s in &queue.starting {
        let (name, secs) = (show::cut(&s.name, 24), s.lasted_ms / 1000);
        let what = character(s.character);
        show::line(&format!(
            "{name:<24} {what:<16} {secs:>8} {:>6}  starts, batch {}",
            "-", s.batch
        ));
    }
    for w in &queue.waiting {
        let (name, secs) = (show::cut(&w.name, 24), w.waited_ms / 1000);
        let what = character(w.character);
        show::line(&format!("{name:<24} {what:<16} {secs:>8} {:>6}  waits", w.longest_ms / 1000));
        show::line(&format!("    {}", w.reason));
        if !w.behind.is_empty() {
            show::line(&format!("    behind {}", show::cut(&w.behind.join(", "), 68)));
        }
    }
}

/// `ctlmgr profile`.
pub(crate) async fn profile(
    client: &Client,
    command: ProfileCommand,
    json: bool,
) -> Result<u8, Failure> {
    match command {
        ProfileCommand::List => present(json, &all(client).await?, |list| profiles(list)),
        ProfileCommand::Show { key } => {
            let found = all(client).await?.into_iter().find(|p| p.key == key);
            let found =
                found.ok_or_else(|| anyhow!("no profile `{key}`; see ctlmgr profile list"))?;
            present(json, &found, details)
        }
        ProfileCommand::Forget { key } => {
            let left: Vec<KeyedProfile> =
                client.send(Method::DELETE, "/v1/profiles", &Forget { key }).await?;
            present(json, &left, |list| profiles(list))
        }
        ProfileCommand::Export { file } => export(&all(client).await?, &file),
        ProfileCommand::Import { file } => {
            let list = import(&file)?;
            let all: Vec<KeyedProfile> = client.send(Method::PUT, "/v1/profiles", &list).await?;
            present(json, &all, |list| profiles(list))
        }
    }
}

async fn all(client: &Client) -> Result<Vec<KeyedProfile>, Failure> {
    Ok(client.get("/v1/profiles").await?)
}

fn export(list: &[KeyedProfile], file: &Path) -> Result<u8, Failure> {
    if file == Path::new("-") {
        print_json(&list)?;
        return Ok(0);
    }
    let text = serde_json::to_string_pretty(list)?;
    std::fs::write(file, text).with_context(|| format!("failed to write {}", file.display()))?;
    Ok(0)
}

fn import(file: &Path) -> Result<Vec<KeyedProfile>, Failure> {
    let mut text = String::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin().read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|mut f| f.read_to_string(&mut text)),
    };
    read.with_context(|| format!("failed to read {}", file.display()))
        .map_err(Failure::bad_input)?;
    let mut reader = serde_json::Deserializer::from_str(&text);
    let list = serde_path_to_error::deserialize(&mut reader);
    list.with_context(|| format!("{} holds no profiles", file.display()))
        .map_err(Failure::bad_input)
}

fn profiles(list: &[KeyedProfile]) {
    if list.is_empty() {
        return show::line("Nothing was learned yet: containers have to start while ctlmgr runs.");
    }
    show::line(&format!(
        "{:<36} {:<16} {:>6} {:>9} {:>9} {:<16}",
        "KEY", "CHARACTER", "STARTS", "READ", "WRITTEN", "RUNNING"
    ));
    for KeyedProfile { key, profile } in list {
        show::line(&format!(
            "{:<36} {:<16} {:>6} {:>9} {:>9} {:<16}",
            show::cut(key, 36),
            profile.character,
            profile.starts,
            profile.io.read.to_string(),
            profile.io.written.to_string(),
            profile.running.map_or("-", |r| r.character.as_str())
        ));
    }
}

pub(crate) fn details(keyed: &KeyedProfile) {
    let KeyedProfile { key, profile } = keyed;
    show::line(key);
    match profile.starts {
        0 => show::line("  no start was seen yet: it is taken for being like it runs"),
        _ => start(profile),
    }
    profile.running.iter().for_each(running);
}

/// What its starts are like.
fn start(profile: &Profile) {
    let io = &profile.io;
    let mean = |bytes: u64, requests: u64| Bytes(bytes / requests.max(1));
    for (what, value) in [
        ("character", profile.character.to_string()),
        ("starts", format!("{}; last learned from {}", profile.starts, age(profile.learned_unix))),
        ("sure", format!("{} % of the last starts were like that", profile.confidence.0)),
        ("lasts", format!("{} ms", profile.lasts.0)),
        ("reads", format!("{} in {} requests of {}", io.read, io.reads, mean(io.read.0, io.reads))),
        (
            "writes",
            format!(
                "{} in {} requests of {}",
                io.written,
                io.writes,
                mean(io.written.0, io.writes)
            ),
        ),
        ("cpu", format!("{} thousandths", gate::busy_milli(io, profile.lasts))),
        ("after", format!("{}/s", profile.steady_per_sec)),
    ] {
        show::line(&format!("  {what:<10} {value}"));
    }
    if io.shape.is_none() {
        show::line("  requests were not traced");
    }
    directions(io.shape, profile.lasts);
    let is_one = io.disks.iter().count() == 1;
    for (disk, Moved { read, written, reads, writes, shape }) in io.disks.iter() {
        let (on, name) = ("of it on", disk.to_string());
        show::line(&format!(
            "  {on:<10} {name:<6} {read} in {reads} requests read, {written} in {writes} written"
        ));
        directions(shape.filter(|_| !is_one), profile.lasts);
    }
}

/// What was seen of both directions, if anything.
fn directions(shape: Option<Shape>, lasted: Millis) {
    let Some(shape) = shape else { return };
    requests("reading", &shape.read, lasted);
    requests("writing", &shape.write, lasted);
}

/// What one does that runs.
fn running(running: &Running) {
    let Running { per_minute, .. } = running;
    let minute = Millis(60_000);
    let pct = |part: Bytes| part.0.saturating_mul(100) / running.held.0.max(1);
    show::line(&format!(
        "  {:<10} {}, as {} % of {} looks; {} read and {} written in a minute, {} thousandths of cpu",
        "running",
        running.character,
        running.confidence.0,
        running.looks,
        per_minute.read,
        per_minute.written,
        gate::busy_milli(per_minute, minute)
    ));
    show::line(&format!(
        "  {:<10} working set {}; {} % of its memory is page cache",
        "",
        running.working_set,
        pct(running.page_cache)
    ));
    directions(per_minute.shape, minute);
}

/// How long ago that was.
fn age(unix: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match now.saturating_sub(unix) {
        secs @ 0..120 => format!("{secs} s ago"),
        secs @ 120..7200 => format!("{} min ago", secs / 60),
        secs @ 7200..172_800 => format!("{} h ago", secs / 3600),
        secs => format!("{} days ago", secs / 86_400),
    }
}

/// What was seen of one direction.
fn requests(what: &str, requests: &Requests, lasted: Millis) {
    let pct = |part: u64, whole: u64| part.saturating_mul(100) / whole.max(1);
    // Microseconds under way in each millisecond are thousandths of a queue.
    let depth = requests.busy_usec / lasted.0.max(1);
    // Only eBPF sees how long they take.
    let under_way = match requests.busy_usec {
        0 => String::new(),
        _ => format!(", {}.{:02} under way in the mean", depth / 1000, depth % 1000 / 10),
    };
    show::line(&format!(
        "  {what:<10} {} requests, {} % of the bytes in sequence{under_way}",
        requests.count,
        pct(requests.sequential.0, requests.bytes.0),
    ));
    let size = |slot: usize| match slot {
        last if last + 1 == SIZES => "more".to_owned(),
        slot => Bytes(4096 << slot).to_string(),
    };
    let used = requests.sizes.iter().enumerate().filter(|(_, n)| **n > 0);
    let sizes: Vec<String> =
        used.map(|(slot, n)| format!("{} {} %", size(slot), pct(*n, requests.count))).collect();
    if !sizes.is_empty() {
        show::line(&format!("  {:<10} {}", "", sizes.join(", ")));
    }
}
