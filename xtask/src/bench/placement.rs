//! `cargo xtask bench placement`: services that talk, on a machine with four last-level caches: what is
//! counted beside what was sent, where they are put beside the best place, and what the kernel does then.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::keep;
use crate::lab::{self, Kit, Record};
use crate::{sh, vm};

#[derive(Debug, clap::Args)]
pub struct Placement {
    /// Only the town whose name begins so: chain or fan.
    #[arg(long, default_value = "")]
    only: String,
    /// Containers that are pinned at once.
    #[arg(long, default_value_t = 30)]
    repin: u32,
}

/// Caller, callee, bytes of an answer, calls per second.
type Edge = (&'static str, &'static str, u32, u32);

/// Like TeaStore: a front, services behind it, a database behind them.
const CHAIN: [Edge; 9] = [
    ("persistence", "db", 16_384, 20),
    ("auth", "persistence", 8_192, 6),
    ("recommender", "persistence", 16_384, 4),
    ("image", "persistence", 4_096, 4),
    ("webui", "image", 65_536, 12),
    ("webui", "persistence", 16_384, 12),
    ("webui", "auth", 4_096, 8),
    ("webui", "recommender", 8_192, 6),
    ("webui", "registry", 4_096, 2),
];

/// Like a social network: a front that fans out, services with a store each.
const FAN: [Edge; 16] = [
    ("user", "user-db", 16_384, 6),
    ("post", "post-db", 32_768, 10),
    ("home", "home-cache", 32_768, 12),
    ("graph", "graph-db", 16_384, 5),
    ("media", "media-db", 65_536, 5),
    ("text", "url", 4_096, 6),
    ("text", "mention", 4_096, 4),
    ("home", "post", 16_384, 10),
    ("home", "graph", 8_192, 4),
    ("compose", "text", 8_192, 4),
    ("compose", "media", 16_384, 4),
    ("compose", "user", 4_096, 4),
    ("compose", "post", 8_192, 4),
    ("front", "home", 32_768, 8),
    ("front", "compose", 8_192, 4),
    ("front", "user", 4_096, 3),
];

/// Runs the towns, prints the tables and keeps them.
pub fn run(kit: &Kit, placement: &Placement) -> Result<()> {
    let mut out = String::new();
    let towns: [(&str, &[Edge]); 2] = [("chain", &CHAIN), ("fan", &FAN)];
    for (name, edges) in towns.iter().filter(|(name, _)| name.starts_with(&placement.only)) {
        let words: Vec<String> =
            edges.iter().map(|(a, b, n, r)| format!("{a}:{b}:{n}:{r}")).collect();
        let script =
            format!("bench-placement.sh edges={} repin={}", words.join(","), placement.repin);
        let record =
            lab::run_in_shape(kit, &script, Duration::from_secs(1500), &vm::Shape::domains())?;
        record.expect_undone()?;
        report(&mut out, name, &record)?;
    }
    print!("{out}");
    keep("placement.md", &out)?;
    sh::say("the tables are in bench/placement.md of the build directory");
    Ok(())
}

fn report(out: &mut String, name: &str, record: &Record) -> Result<()> {
    writeln!(out, "Town `{name}`.\n")?;
    counted(out, record)?;
    placed(out, record)?;
    let pinned = record.data.iter().find(|v| v["pinned"].is_u64()).context("nothing was pinned")?;
    writeln!(
        out,
        "\n{} containers pinned within {} ms (emulated).\n",
        pinned["pinned"], pinned["ms"]
    )?;
    Ok(())
}

/// Bytes per pair beside those that the services sent.
fn counted(out: &mut String, record: &Record) -> Result<()> {
    let names: BTreeMap<&str, &str> = record
        .data
        .iter()
        .filter_map(|v| Some((v["address"].as_str()?, v["callee"].as_str()?)))
        .collect();
    let graph = record.data.iter().find_map(|v| v["graph"]["edges"].as_array());
    let graph = graph.context("the script said no graph")?;
    let (mut worst, mut sum, mut pairs) = (0.0_f64, 0.0, 0);
    for truth in record.data.iter().filter(|v| v["final"] == true) {
        let (caller, bytes) = (text(truth, "truth")?, number(truth, "bytes")?);
        let callee = *names.get(text(truth, "callee")?).context("an address without a name")?;
        let pair = [caller.min(callee), caller.max(callee)];
        let edge = graph.iter().find(|e| e["a"] == pair[0] && e["b"] == pair[1]);
        let seen = edge.and_then(|e| e["bytes"].as_f64()).unwrap_or(0.0);
        let error = (seen - bytes) / bytes * 100.0;
        worst = if error.abs() > worst.abs() { error } else { worst };
        sum += error.abs();
        pairs += 1;
    }
    writeln!(
        out,
        "Bytes of {pairs} pairs against payload: off by {:.1} % in the mean, {worst:+.1} % at worst.\n",
        sum / f64::from(pairs.max(1))
    )?;
    Ok(())
}

/// Where they are put, and what the kernel does before and after.
fn placed(out: &mut String, record: &Record) -> Result<()> {
    let plan = record.data.iter().find(|v| v["acting"].is_object()).context("no plan was shown")?;
    let plan = &plan["acting"]["plan"];
    let best = best(&record.data, plan)?;
    let count = |phase: &str, what: &str| -> Result<f64> {
        let at = |end: &str| {
            let name = format!("{phase}-{end}");
            let found = record.data.iter().find(|v| v["counts"] == name.as_str());
            found.and_then(|v| v[what].as_f64()).context("the script said no counts")
        };
        Ok((at("end")? - at("begin")?) / 30.0)
    };
    writeln!(out, "| | not pinned | pinned | best possible |\n|---|---|---|---|")?;
    let before = record.data.iter().find(|v| v["before"].is_object()).context("no plan before")?;
    writeln!(
        out,
        "| bytes x distance per second | {} | {} | {best:.0} |",
        before["before"]["plan"]["cut_now"], plan["cut_planned"]
    )?;
    for (what, name) in
        [("migrations", "migrations between CPUs"), ("switches", "context switches")]
    {
        let (before, after) = (count("before", what)?, count("after", what)?);
        writeln!(out, "| {name} per second | {before:.1} | {after:.1} | |")?;
    }
    let mut domains: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for v in record.data.iter().filter(|v| v["effective"].is_string()) {
        domains.entry(text(v, "effective")?).or_default().push(text(v, "service")?);
    }
    writeln!(out)?;
    for (cpus, services) in domains {
        writeln!(out, "- CPUs {cpus}: {}", services.join(", "))?;
    }
    Ok(())
}

/// The least weighted cut of all assignments with the least overload, by trying all of them, for the rates
/// and loads that the plan was shown with.
fn best(data: &[Value], plan: &Value) -> Result<f64> {
    let verdicts = plan["verdicts"].as_array().context("no verdicts")?;
    let index: BTreeMap<&str, usize> =
        verdicts.iter().enumerate().filter_map(|(i, v)| Some((v["name"].as_str()?, i))).collect();
    let load = |v: &Value| {
        let of = |field: &str| v[field].as_f64().unwrap_or(0.0);
        of("peak_milli").max(of("use_milli"))
    };
    let mut town = Town { loads: verdicts.iter().map(load).collect(), ..Town::default() };
    town.edges = vec![Vec::new(); town.loads.len()];
    let rates = data.iter().find_map(|v| v["rates"]["edges"].as_array()).context("no rates")?;
    for e in rates {
        let (Some(a), Some(b)) = (index.get(text(e, "a")?), index.get(text(e, "b")?)) else {
            continue;
        };
        let rate = number(e, "bytes_per_sec")?;
        let (low, high) = (*a.min(b), *a.max(b));
        town.edges[high].push((low, rate));
    }
    // As `policy::pins` has it: two processors a domain, filled to 10 % or a tenth above an even share.
    town.limit = (town.loads.iter().sum::<f64>() * 1.1 / 4.0).clamp(200.0, 2000.0);
    let mut at = Vec::new();
    town.best = (f64::INFINITY, f64::INFINITY);
    town.descend(&mut at, [0.0; 4], 0.0);
    Ok(town.best.1)
}

#[derive(Default)]
struct Town {
    loads: Vec<f64>,
    /// Edges of each to those before it.
    edges: Vec<Vec<(usize, f64)>>,
    limit: f64,
    /// Overload and cut.
    best: (f64, f64),
}

impl Town {
    fn descend(&mut self, at: &mut Vec<usize>, load: [f64; 4], cut: f64) {
        let overload: f64 = load.iter().map(|l| (l - self.limit).max(0.0)).sum();
        if (overload, cut) >= self.best {
            return;
        }
        let next = at.len();
        if next == self.loads.len() {
            self.best = (overload, cut);
            return;
        }
        for domain in 0..4 {
            let mut load = load;
            load[domain] += self.loads[next];
            let more: f64 = self.edges[next]
                .iter()
                .map(|(other, rate)| rate * distance(at[*other], domain))
                .sum();
            at.push(domain);
            self.descend(at, load, cut + more);
            at.pop();
        }
    }
}

/// One socket a domain, two domains a node: other node is other socket, too.
fn distance(a: usize, b: usize) -> f64 {
    match () {
        () if a == b => 0.0,
        () if a / 2 == b / 2 => 1.0,
        () => 4.0,
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("no {field} in {value}"))
}

fn number(value: &Value, field: &str) -> Result<f64> {
    value[field].as_f64().with_context(|| format!("no {field} in {value}"))
}
