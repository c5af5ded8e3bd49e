//! Pictures: small multiples of lines over time, as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// One line.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// One panel.
pub struct Panel {
    pub title: String,
    pub unit: String,
    /// What the horizontal axis shows.
    pub x: String,
    pub lines: Vec<Line>,
    /// Moments worth a vertical rule.
    pub marks: Vec<f64>,
    /// Upper end of the vertical axis, so that panels can be compared.
    pub top: f64,
}

const COLOURS: [RGBColor; 5] = [
    RGBColor(204, 51, 51),
    RGBColor(31, 119, 180),
    RGBColor(255, 140, 0),
    RGBColor(60, 160, 60),
    RGBColor(130, 130, 130),
];

/// Draws panels, `columns` in a row.
pub fn draw(path: &Path, heading: &str, panels: &[Panel], columns: usize) -> Result<()> {
    let rows = panels.len().div_ceil(columns.max(1));
    let size = (520 * u32::try_from(columns)?, 320 * u32::try_from(rows)? + 40);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE).map_err(wrong)?;
    let area = area.titled(heading, ("sans-serif", 22)).map_err(wrong)?;
    for (panel, area) in panels.iter().zip(area.split_evenly((rows, columns))) {
        draw_panel(panel, &area)?;
    }
    area.present().map_err(wrong)
}

fn draw_panel(
    panel: &Panel,
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<()> {
    let points = || panel.lines.iter().flat_map(|l| &l.points);
    let end = points().map(|p| p.0).fold(1.0, f64::max);
    let least = points().map(|p| p.0).fold(end, f64::min);
    // What lies all in the upper half would be squeezed into it.
    let start = if least > end / 2.0 { least } else { 0.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 16))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(52)
        .build_cartesian_2d(start..end, 0.0..panel.top)
        .map_err(wrong)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_desc(&panel.x)
        .y_desc(&panel.unit)
        .draw()
        .map_err(wrong)?;
    for &mark in &panel.marks {
        let rule = [(mark, 0.0), (mark, panel.top)];
        let style = RGBColor(200, 200, 200).stroke_width(1);
        chart.draw_series(LineSeries::new(rule, style)).map_err(wrong)?;
    }
    for (line, colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
        let series = LineSeries::new(line.points.iter().copied(), colour.stroke_width(2));
        chart
            .draw_series(series)
            .map_err(wrong)?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(220, 220, 220))
        .draw()
        .map_err(wrong)
}

/// Drawing errors of the library borrow; keep their text.
fn wrong(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("failed to draw: {error}")
}
