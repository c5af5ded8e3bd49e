//! The graph as a picture: containers on a circle, those of one domain side by side.

use std::collections::BTreeMap;
use std::fmt::Write;

use ctlmgr_api::Graph;

/// Radius of the circle for few containers; it grows with their number.
const RADIUS: f64 = 150.0;
/// Length of the circle that each container needs.
const ARC: f64 = 34.0;
/// Room for names outside the circle.
const MARGIN: f64 = 190.0;
const DOT: f64 = 7.0;
/// Width of the busiest edge.
const THICKEST: f64 = 9.0;
const COLOURS: [&str; 8] =
    ["#1f6fb2", "#d97a1a", "#3c9a4a", "#b23a48", "#7a5ab0", "#7a6a56", "#c45f9f", "#5b7f8c"];
/// Of those that are pinned nowhere.
const FREE: &str = "#9aa5b1";

/// Draws `graph`; `places` are the processors of those that are pinned, by name.
pub(super) fn draw(graph: &Graph, places: &BTreeMap<String, String>) -> String {
    let mut order: Vec<&str> = graph.nodes.iter().map(|n| n.name.as_str()).collect();
    order.sort_by_key(|name| (places.get(*name), *name));
    let mut domains: Vec<&String> = places.values().collect();
    domains.sort();
    domains.dedup();
    let colour = |name: &str| match places.get(name).and_then(|at| domains.binary_search(&at).ok())
    {
        Some(index) => COLOURS[index % COLOURS.len()],
        None => FREE,
    };
    let n = order.len().max(1) as f64;
    let radius = RADIUS.max(n * ARC / std::f64::consts::TAU);
    let centre = radius + MARGIN;
    let angle = |i: usize| std::f64::consts::TAU * i as f64 / n - std::f64::consts::FRAC_PI_2;
    let spot = |i: usize| (centre + radius * angle(i).cos(), centre + radius * angle(i).sin());
    let at: BTreeMap<&str, usize> = order.iter().enumerate().map(|(i, name)| (*name, i)).collect();
    let busiest = graph.edges.iter().map(|e| e.bytes_per_sec).max().unwrap_or(1).max(1);
    let mut body = String::new();
    for e in graph.edges.iter().rev().filter(|e| e.bytes_per_sec > 0) {
        let (Some(a), Some(b)) = (at.get(e.a.as_str()), at.get(e.b.as_str())) else { continue };
        let ((x1, y1), (x2, y2)) = (spot(*a), spot(*b));
        let width = (THICKEST * (e.bytes_per_sec as f64 / busiest as f64).sqrt()).max(0.7);
        let is_near = places.contains_key(&e.a) && places.get(&e.a) == places.get(&e.b);
        let stroke = if is_near { colour(&e.a) } else { "#c9ced4" };
        let rate = ctlmgr_model::Bytes(e.bytes_per_sec);
        // Writing to a string does not fail.
        let _ = writeln!(
            body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\" \
             stroke-width=\"{width:.1}\"><title>{} - {}: {rate}/s</title></line>",
            plain(&e.a),
            plain(&e.b)
        );
    }
    for (i, name) in order.iter().enumerate() {
        let ((x, y), angle) = (spot(i), angle(i));
        let (tx, ty) = (x + 13.0 * angle.cos(), y + 16.0 * angle.sin() + 4.0);
        let anchor = match angle.cos() {
            left if left < -0.01 => "end",
            right if right > 0.01 => "start",
            _ => "middle",
        };
        let text = super::show::cut(&plain(name), 24);
        let _ = writeln!(
            body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{DOT}\" fill=\"{}\"/>\
             <text x=\"{tx:.1}\" y=\"{ty:.1}\" text-anchor=\"{anchor}\">{text}</text>",
            colour(name)
        );
    }
    legend(&mut body, &domains);
    let side = 2.0 * centre;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{side:.0}\" height=\"{side:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         {body}</svg>\n"
    )
}

fn legend(body: &mut String, domains: &[&String]) {
    for (i, domain) in domains.iter().enumerate() {
        let (y, fill) = (20 + 18 * i, COLOURS[i % COLOURS.len()]);
        let _ = writeln!(
            body,
            "<circle cx=\"16\" cy=\"{y}\" r=\"6\" fill=\"{fill}\"/><text x=\"28\" y=\"{}\">CPUs {domain}</text>",
            y + 4
        );
    }
}

/// Names of containers have nothing that XML would mind; those of others' making may.
fn plain(name: &str) -> String {
    name.chars().map(|c| if "<>&\"".contains(c) || c.is_control() { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_api::{GraphEdge, GraphNode};

    #[test]
    fn those_of_one_domain_have_one_colour_and_lie_side_by_side() {
        let names = ["web", "ads", "db", "<odd>", "cart", "cache"];
        let node =
            |name: &&str| GraphNode { name: (*name).to_owned(), cpu_milli: 10, outside_per_sec: 0 };
        let edge = |a: &str, b: &str, bytes_per_sec| GraphEdge {
            a: a.to_owned(),
            b: b.to_owned(),
            bytes_per_sec,
            bytes: 0,
        };
        let graph = Graph {
            traffic: "on".to_owned(),
            nodes: names.iter().map(node).collect(),
            edges: vec![
                edge("db", "web", 9_000_000),
                edge("cart", "web", 40_000),
                edge("ads", "<odd>", 0),
            ],
        };
        let places = [("web", "0-3"), ("db", "0-3"), ("cart", "4-7")];
        let places = places.map(|(n, c)| (n.to_owned(), c.to_owned())).into();
        let svg = draw(&graph, &places);
        let colour = |name: &str| {
            let line = svg.lines().find(|l| l.contains(&format!(">{name}</text>"))).unwrap();
            line.split("fill=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        };
        assert_eq!(colour("web"), colour("db"));
        assert_ne!(colour("web"), colour("cart"));
        assert_eq!((colour("ads"), colour("_odd_")), (FREE.to_owned(), FREE.to_owned()));
        assert_eq!(svg.matches("<line").count(), 2, "who has sent nothing has no line");
        let at = |name: &str| svg.find(&format!(">{name}</text>")).unwrap();
        assert!(at("db") < at("web") && at("web") < at("cart"));
    }
}
