//! `ctlmgr place graph`: who talks to whom.

use std::fmt::Write;
use std::path::Path;

use ctlmgr_api::{Client, Graph};

use crate::daemon::present;
use crate::{Failure, show};

/// Runs the command.
pub(crate) fn run(socket: &Path, dot: bool, json: bool) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let graph: Graph = runtime.block_on(Client::new(socket).get("/v1/place/graph"))?;
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
