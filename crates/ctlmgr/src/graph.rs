//! `ctlmgr place graph` and `show`: who talks to whom, and who runs where.

mod picture;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use ctlmgr_api::{Client, Graph, PlaceStatus};
use ctlmgr_model::{Bytes, PlaceVerdict, Topology};
use serde_json::{Value, json};

use crate::daemon::present;
use crate::{Failure, offline, place_plan, show};

/// `ctlmgr place suggest`.
pub(crate) fn suggest(socket: &Path, json: bool) -> Result<u8, Failure> {
    let graph = counted(socket)?;
    let topology = offline::topology(Path::new("/"))?;
    place_plan::run_text(&input(&graph, &topology).to_string(), place_plan::Effort::default(), json)
}

/// The planner's input: domains go by their processors.
fn input(graph: &Graph, topology: &Topology) -> Value {
    let domains = topology.domains.iter().map(|d| {
        json!({"id": d.cpus.to_string(), "cpus": d.cpus.len(), "numa": d.numa, "socket": d.socket})
    });
    let workloads =
        graph.nodes.iter().map(|n| json!({"name": n.name, "cpu": thousandths(n.cpu_milli)}));
    let edges = graph.edges.iter().map(|e| json!([e.a, e.b, e.bytes_per_sec]));
    json!({
        "domains": domains.collect::<Vec<_>>(),
        "workloads": workloads.collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
        "time_limit_ms": 1000,
    })
}

#[expect(clippy::cast_precision_loss, reason = "processors are few")]
fn thousandths(value: u64) -> f64 {
    value as f64 / 1000.0
}

fn get<T: serde::de::DeserializeOwned>(socket: &Path, path: &str) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(Client::new(socket).get(path))?)
}

/// The graph, or an error that says why there is none.
pub(crate) fn counted(socket: &Path) -> Result<Graph, Failure> {
    let graph = read(socket)?;
    if graph.traffic != "on" {
        let message = format!("traffic between containers is not counted: {}", graph.traffic);
        return Err(Failure::bad_input(anyhow!(message)));
    }
    Ok(graph)
}

fn read(socket: &Path) -> Result<Graph, Failure> {
    get(socket, "/v1/place/graph")
}

/// `ctlmgr place show`.
pub(crate) fn places(socket: &Path, json: bool) -> Result<u8, Failure> {
    present(json, &get(socket, "/v1/place")?, show_places)
}

fn show_places(status: &PlaceStatus) {
    let Some(plan) = &status.plan else {
        return show::line(&format!("place: {}; nothing decided yet", status.mode));
    };
    show::line(&format!("place: {}; {}", status.mode, plan.note));
    show::line(&format!(
        "bytes times distance per second: {} now, {} planned",
        Bytes(plan.cut_now),
        Bytes(plan.cut_planned)
    ));
    if plan.cost > 0 {
        show::line(&format!("the moves cost {} of cold cache, once", Bytes(plan.cost)));
    }
    if plan.verdicts.is_empty() {
        return;
    }
    show::line("");
    show::line(&format!(
        "{:<32} {:<12} {:>7} {:>7} {:>9} {:>6}",
        "CONTAINER", "CPUS", "USES", "PEAK", "TALKS, /S", "NEAR"
    ));
    for v in &plan.verdicts {
        let cpus = v.cpus.as_ref().map_or("-".to_owned(), ToString::to_string);
        let near = (v.near_per_sec * 100).checked_div(v.talks_per_sec);
        show::line(&format!(
            "{:<32} {:<12} {:>7} {:>7} {:>9} {:>6}",
            show::cut(&v.name.0, 32),
            show::cut(&cpus, 12),
            cpus_of(v.use_milli),
            cpus_of(v.peak_milli),
            Bytes(v.talks_per_sec).to_string(),
            near.map_or("-".to_owned(), |near| format!("{near} %"))
        ));
        show::line(&format!("    {}", v.reason.0));
    }
}

fn cpus_of(milli: u64) -> String {
    format!("{}.{:02}", milli / 1000, milli % 1000 / 10)
}

/// `ctlmgr place graph`.
pub(crate) fn run(
    socket: &Path,
    dot: bool,
    svg: Option<&PathBuf>,
    json: bool,
) -> Result<u8, Failure> {
    let graph = read(socket)?;
    if let Some(file) = svg {
        let status: PlaceStatus = get(socket, "/v1/place")?;
        let verdicts = status.plan.map(|plan| plan.verdicts).unwrap_or_default();
        let place = |v: PlaceVerdict| Some((v.name.0, v.cpus?.to_string()));
        let places: BTreeMap<_, _> = verdicts.into_iter().filter_map(place).collect();
        std::fs::write(file, picture::draw(&graph, &places))
            .with_context(|| format!("failed to write {}", file.display()))?;
    }
    match dot {
        true => print!("{}", in_dot(&graph)),
        false => return present(json, &graph, table),
    }
    Ok(0)
}

fn table(graph: &Graph) {
    if graph.traffic != "on" {
        return show::line(&format!(
            "Traffic between containers is not counted: {} (place.traffic in ctlmgr.toml)",
            graph.traffic
        ));
    }
    show::line(&format!("{:<40} {:>8} {:>14}", "CONTAINER", "CPUS", "OUTSIDE, /S"));
    for n in &graph.nodes {
        let (cpus, milli) = (n.cpu_milli / 1000, n.cpu_milli % 1000);
        let outside = ctlmgr_model::Bytes(n.outside_per_sec).to_string();
        show::line(&format!("{:<40} {cpus:>4}.{milli:03} {outside:>14}", show::cut(&n.name, 40)));
    }
    if graph.edges.is_empty() {
        return show::line("No container has sent anything to another one yet.");
    }
    show::line("");
    show::line(&format!("{:<52} {:>12} {:>12}", "BETWEEN", "BYTES, /S", "BYTES"));
    for e in &graph.edges {
        let pair = show::cut(&format!("{} - {}", e.a, e.b), 52).to_owned();
        let bytes = |n: u64| ctlmgr_model::Bytes(n).to_string();
        show::line(&format!("{pair:<52} {:>12} {:>12}", bytes(e.bytes_per_sec), bytes(e.bytes)));
    }
}

/// For Graphviz.
fn in_dot(graph: &Graph) -> String {
    let quote = |name: &str| format!("\"{}\"", name.replace(['"', '\\'], "_"));
    let mut out = "graph containers {\n".to_owned();
    // Writing to a string does not fail.
    for n in &graph.nodes {
        let _ = writeln!(out, "  {} [cpu_milli={}];", quote(&n.name), n.cpu_milli);
    }
    for e in &graph.edges {
        let (a, b, rate) = (quote(&e.a), quote(&e.b), e.bytes_per_sec);
        let _ = writeln!(out, "  {a} -- {b} [weight={rate}, label=\"{rate} B/s\"];");
    }
    out.push_str("}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_api::{GraphEdge, GraphNode};

    #[test]
    fn those_that_talk_are_suggested_on_one_domain() {
        let node = |name: &str| GraphNode { name: name.into(), cpu_milli: 900, outside_per_sec: 0 };
        let edge = |a: &str, b: &str, bytes_per_sec| GraphEdge {
            a: a.into(),
            b: b.into(),
            bytes_per_sec,
            bytes: 0,
        };
        let graph = Graph {
            traffic: "on".into(),
            nodes: ["a", "b", "c", "d"].map(node).to_vec(),
            edges: vec![edge("a", "c", 500), edge("b", "d", 400), edge("a", "b", 1)],
        };
        let domain = |first: u32| ctlmgr_model::CacheDomain {
            cpus: [first, first + 1].into_iter().collect(),
            cores: Vec::new(),
            shared: ctlmgr_model::Shared::Node,
            numa: first,
            socket: 0,
        };
        let topology = Topology { domains: vec![domain(0), domain(2)], ..Topology::default() };
        let found = place_plan::assignment(&input(&graph, &topology).to_string()).unwrap();
        assert_eq!((&found["a"], &found["b"]), (&found["c"], &found["d"]));
        assert!(found["a"] == ["0-1"] || found["a"] == ["2-3"]);
        assert_ne!(found["a"], found["b"]);
    }

    #[test]
    fn names_are_quoted_for_graphviz() {
        let node = |name: &str| GraphNode { name: name.into(), cpu_milli: 5, outside_per_sec: 0 };
        let edge = GraphEdge { a: "a\"b".into(), b: "web-1".into(), bytes_per_sec: 10, bytes: 20 };
        let graph = Graph {
            traffic: "on".into(),
            nodes: vec![node("a\"b"), node("web-1")],
            edges: vec![edge],
        };
        let expected = "graph containers {\n  \"a_b\" [cpu_milli=5];\n  \"web-1\" [cpu_milli=5];\n  \
            \"a_b\" -- \"web-1\" [weight=10, label=\"10 B/s\"];\n}\n";
        assert_eq!(in_dot(&graph), expected);
    }
}
