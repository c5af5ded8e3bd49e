//! `ctlmgr coalesce`: two containers that talk much as one (Rao et al., §9).

mod build;
mod inspect;
mod instead;
mod merge;
mod rules;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use ctlmgr_api::{Graph, GraphEdge};
use ctlmgr_model::Bytes;
use serde::Serialize;

use self::build::Exports;
use self::inspect::{Service, inspect};
use self::rules::refusals;
use crate::cli::CoalesceCommand;
use crate::docker_cli::docker;
use crate::{Failure, graph, print_json, show};

/// Pairs that are looked at, and those whose file systems are compared, which takes a while.
const PAIRS: usize = 10;
const COMPARED: usize = 3;

/// One pair, and whether it can become one container.
#[derive(Debug, Serialize)]
struct Advice {
    a: String,
    b: String,
    bytes_per_sec: u64,
    can_be_coalesced: bool,
    /// Why not; or why that is not known.
    why: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(socket: &Path, command: CoalesceCommand, json: bool) -> Result<u8, Failure> {
    match command {
        CoalesceCommand::Advise => advise(socket, json),
        CoalesceCommand::Build { first, second, tag, output, replace } => {
            let order = Order { tag, output, replace };
            build(&first, &second, &order, json)
        }
    }
}

fn advise(socket: &Path, json: bool) -> Result<u8, Failure> {
    let graph = graph::counted(socket)?;
    let advice = look(&graph)?;
    if json {
        print_json(&advice)?;
        return Ok(0);
    }
    if advice.is_empty() {
        show::line("No container has sent anything to another one yet.");
    }
    for Advice { a, b, bytes_per_sec, can_be_coalesced, why } in &advice {
        let verdict = if *can_be_coalesced { "can be coalesced" } else { "cannot be coalesced" };
        show::line(&format!("{a} - {b}, {}/s: {verdict}", Bytes(*bytes_per_sec)));
        why.iter().for_each(|why| show::line(&format!("    {why}")));
    }
    Ok(0)
}

/// Pairs by their traffic, the busiest first: the paper's greedy order.
fn look(graph: &Graph) -> Result<Vec<Advice>, Failure> {
    let mut known: BTreeMap<&str, Service> = BTreeMap::new();
    let mut compared = 0;
    let mut all = Vec::new();
    for edge in graph.edges.iter().take(PAIRS) {
        let mut unknown = Vec::new();
        for name in [&edge.a, &edge.b] {
            if !known.contains_key(name.as_str()) {
                match inspect(name) {
                    Ok(service) => drop(known.insert(name, service)),
                    Err(error) => unknown.push(format!("{name}: {error:#}")),
                }
            }
        }
        let (Some(a), Some(b)) = (known.get(edge.a.as_str()), known.get(edge.b.as_str())) else {
            all.push(advice(edge, false, unknown));
            continue;
        };
        let mut why = refusals(a, b);
        let mut can_be_coalesced = why.is_empty();
        if can_be_coalesced && compared < COMPARED {
            compared += 1;
            why = Exports::of(a, b)?.compare(a, b)?.refusals();
            can_be_coalesced = why.is_empty();
        } else if can_be_coalesced {
            why.push("their file systems were not compared: others talk more".to_owned());
        }
        if can_be_coalesced {
            why.push(base(a, b));
        }
        all.push(advice(edge, can_be_coalesced, why));
    }
    Ok(all)
}

fn advice(edge: &GraphEdge, can_be_coalesced: bool, why: Vec<String>) -> Advice {
    let (a, b) = (edge.a.clone(), edge.b.clone());
    Advice { a, b, bytes_per_sec: edge.bytes_per_sec, can_be_coalesced, why }
}

fn base(a: &Service, b: &Service) -> String {
    let shared = a.layers.iter().zip(&b.layers).take_while(|(x, y)| x == y).count();
    format!("{shared} of {} and {} layers are the same", a.layers.len(), b.layers.len())
}

/// What is to be made.
struct Order {
    tag: String,
    output: PathBuf,
    replace: bool,
}

fn build(first: &str, second: &str, order: &Order, json: bool) -> Result<u8, Failure> {
    let refused = |why: Vec<String>| {
        let why = why.join("\n  ");
        Failure::bad_input(anyhow!("{first} and {second} cannot be coalesced:\n  {why}"))
    };
    let (a, b) = (inspect(first)?, inspect(second)?);
    if a.container_id == b.container_id {
        return Err(Failure::bad_input(anyhow!("`{first}` and `{second}` are one container")));
    }
    let why = refusals(&a, &b);
    if !why.is_empty() {
        return Err(refused(why));
    }
    let text = instead::compose(&a, &b, &order.tag);
    let unusual = rules::unusual(&a);
    if text.is_none() && !unusual.is_empty() {
        let names = unusual.join(", ");
        return Err(refused(vec![format!(
            "they are of no compose project, and {names} would be lost in words for docker run"
        )]));
    }
    expect_free(order, text.is_some())?;
    let exports = Exports::of(&a, &b)?;
    let comparison = exports.compare(&a, &b)?;
    let why = comparison.refusals();
    if !why.is_empty() {
        return Err(refused(why));
    }
    build::build((&a, &b), &exports, &comparison, &order.tag)?;
    if let Some(text) = &text {
        write_secretly(&order.output, text)
            .with_context(|| format!("failed to write {}", order.output.display()))?;
    }
    tell((&a, &b), order, text.is_some(), json)
}

/// For its owner only: the environment of services may be secret.
fn write_secretly(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Nothing is replaced without being asked for.
fn expect_free(order: &Order, is_compose: bool) -> Result<(), Failure> {
    if !Path::new(build::PROGRAM).exists() {
        let message = format!("{} is missing; it comes with the package", build::PROGRAM);
        return Err(Failure::from(anyhow!(message)));
    }
    if order.replace {
        return Ok(());
    }
    if docker(&["image", "inspect", "--", &order.tag]).is_ok() {
        let message = format!("image `{}` is there already; --replace replaces it", order.tag);
        return Err(Failure::bad_input(anyhow!(message)));
    }
    if is_compose && order.output.exists() {
        let file = order.output.display();
        return Err(Failure::bad_input(anyhow!("{file} is there already; --replace replaces it")));
    }
    Ok(())
}

fn tell(
    (a, b): (&Service, &Service),
    order: &Order,
    is_compose: bool,
    json: bool,
) -> Result<u8, Failure> {
    let run = instead::docker_run(a, b, &order.tag);
    let file = is_compose.then(|| order.output.display().to_string());
    if json {
        print_json(&serde_json::json!({"image": order.tag, "override": file, "docker_run": run}))?;
        return Ok(0);
    }
    show::line(&format!("Image {}: {} and {} under one init.", order.tag, a.name, b.name));
    show::line(
        "What is lost between the two: they share processes, memory limits, network and file system, so that \
         whoever breaks into one has both; and they start, stop and die together.",
    );
    match file {
        Some(file) => {
            show::line(&format!("To run it: docker compose -f YOUR_FILE -f {file} up -d"));
            show::line("To go back: docker compose -f YOUR_FILE up -d");
        }
        None => {
            show::line(&format!("To run it, stop both, then: {run}"));
            show::line("Labels, host names and stop timeouts are not carried over.");
            show::line("To go back, remove that container and start both.");
        }
    }
    Ok(0)
}
