//! `ctlmgr topology`: processors and the caches that they share.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ctlmgr_model::{CacheDomain, Cpus, Topology};

use crate::{Failure, offline, print_json, show};

/// Runs the command.
pub(crate) fn run(root: &Path, svg: Option<&PathBuf>, json: bool) -> Result<u8, Failure> {
    let topology = offline::topology(root)?;
    if let Some(file) = svg {
        std::fs::write(file, picture(&topology))
            .with_context(|| format!("failed to write {}", file.display()))?;
    }
    if json {
        print_json(&topology)?;
        return Ok(0);
    }
    for ((socket, node), domains) in nodes(&topology) {
        show::line(&format!("socket {socket}, node {node}"));
        for d in domains {
            let (cpus, cores) = (d.cpus.len(), d.cores.len());
            show::line(&format!(
                "  {:<12} {:>3} CPUs, {cores:>3} cores: {}",
                d.shared, cpus, d.cpus
            ));
        }
    }
    for (what, cpus) in
        [("offline", &topology.offline), ("isolated", &topology.isolated), ("slow", &topology.slow)]
    {
        if !cpus.is_empty() {
            show::line(&format!("{what}: {cpus}"));
        }
    }
    if topology.domains.len() == 1 {
        show::line("One domain: there is nothing to gain from placement on this machine.");
    }
    Ok(0)
}

/// Domains of each node of each socket.
fn nodes(topology: &Topology) -> BTreeMap<(u32, u32), Vec<&CacheDomain>> {
    let mut nodes: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for d in &topology.domains {
        nodes.entry((d.socket, d.numa)).or_default().push(d);
    }
    nodes
}

/// Of a processor, in pixels, and what lies between things.
const SIDE: usize = 34;
const GAP: usize = 8;
const TITLE: usize = 18;
/// Cores in a row of a domain.
const ROW: usize = 8;

/// A box for each processor, in one for each domain, in one for each node.
fn picture(topology: &Topology) -> String {
    let (mut body, mut y, mut width) = (String::new(), GAP, 0);
    for ((socket, node), domains) in nodes(topology) {
        let (mut x, top) = (2 * GAP, y + TITLE + GAP);
        let mut height = 0;
        for domain in domains {
            let (w, h) = draw_domain(&mut body, domain, topology, (x, top));
            x += w + GAP;
            height = height.max(h);
        }
        label(&mut body, (GAP + 4, y + TITLE - 4), &format!("socket {socket}, node {node}"));
        frame(&mut body, (GAP, y), (x - GAP, height + TITLE + 2 * GAP), "none");
        width = width.max(x + GAP);
        y = top + height + 2 * GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{y}\" font-family=\"sans-serif\" \
         font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Draws a domain and returns its size.
fn draw_domain(
    out: &mut String,
    domain: &CacheDomain,
    topology: &Topology,
    (x, y): (usize, usize),
) -> (usize, usize) {
    let threads = domain.cores.iter().map(Cpus::len).max().unwrap_or(1);
    let columns = domain.cores.len().clamp(1, ROW);
    let rows = domain.cores.len().div_ceil(ROW) * threads;
    let title = domain.shared.to_string();
    let size =
        ((columns * SIDE + 2 * GAP).max(title.len() * 8 + 2 * GAP), rows * SIDE + TITLE + 2 * GAP);
    frame(out, (x, y), size, "#eef3fa");
    label(out, (x + GAP, y + TITLE - 2), &title);
    for (index, core) in domain.cores.iter().enumerate() {
        for (thread, cpu) in core.iter().enumerate() {
            let left = x + GAP + index % ROW * SIDE;
            let top = y + TITLE + GAP + (index / ROW * threads + thread) * SIDE;
            let fill = match cpu {
                cpu if topology.isolated.contains(cpu) => "#dddddd",
                cpu if topology.slow.contains(cpu) => "#d8ecd0",
                _ => "white",
            };
            frame(out, (left, top), (SIDE - 4, SIDE - 4), fill);
            label(out, (left + 4, top + 19), &cpu.to_string());
        }
    }
    size
}

fn frame(out: &mut String, (x, y): (usize, usize), (width, height): (usize, usize), fill: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"3\" fill=\"{fill}\" \
         stroke=\"#556677\"/>"
    );
}

fn label(out: &mut String, (x, y): (usize, usize), text: &str) {
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\">{text}</text>");
}
