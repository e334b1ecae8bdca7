//! Drawings: latency by percentile, bandwidth by size, as SVG.

use super::plan::Plan;
use super::report::{Occasion, title, unit};
use super::run::{PerfOutcome, SizeRow};
use anyhow::{Context as _, Result, anyhow};
use hdrhistogram::Histogram;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (960, 600);
const FONT: &str = "sans-serif";
/// Parts into which each halving of the rest above a percentile is divided.
const STEPS: u32 = 5;
/// The rest above the highest percentile that is drawn: 99.9999 %.
const LEAST_REST: f64 = 1e-6;

/// A line of a drawing.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws the outcome to a file.
pub(crate) fn draw(outcome: &PerfOutcome, occasion: &Occasion, path: &Path) -> Result<()> {
    let clock = if occasion.simulated { " (sim)" } else { "" };
    let title = format!("{}, {}{clock}", title(&outcome.plan), occasion.device);
    let svg = svg(outcome, &title)?;
    std::fs::write(path, svg).with_context(|| format!("cannot write the drawing {}", path.display()))
}

fn svg(outcome: &PerfOutcome, title: &str) -> Result<String> {
    let mut svg = String::new();
    let lines = lines(outcome);
    let is_latency = outcome.rows.iter().any(|row| matches!(row, SizeRow::Latency(_)));
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = match is_latency {
            true => chart(&area, title, ["percentile", "latency in µs"], &lines, percentile_label),
            false => {
                chart(&area, title, ["bytes of a message", rate_label(&outcome.plan)], &lines, size_label)
            }
        };
        drawn.and_then(|()| area.present()).map_err(|error| anyhow!("drawing: {error}"))?;
    }
    Ok(svg)
}

const fn rate_label(plan: &Plan) -> &'static str {
    if plan.gigabits { "10⁹ bit/s" } else { "MiB/s" }
}

fn lines(outcome: &PerfOutcome) -> Vec<Line> {
    let mut bandwidth = Vec::new();
    let mut lines = Vec::new();
    for row in &outcome.rows {
        match row {
            SizeRow::Bandwidth(row) => {
                let total = row.total();
                bandwidth.push(((total.size.max(1) as f64).log2(), total.average / unit(&outcome.plan)));
            }
            SizeRow::Latency(latency) => lines.push(Line {
                name: format!("{} bytes", latency.size),
                points: by_percentile(&latency.histogram),
            }),
        }
    }
    if !bandwidth.is_empty() {
        lines.push(Line { name: "average".into(), points: bandwidth });
    }
    lines
}

/// Latency in µs over the logarithm of what is above a percentile, as HDR histograms are drawn.
fn by_percentile(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let values = histogram.iter_quantiles(STEPS);
    let point = |value: hdrhistogram::iterators::IterationValue<u64>| {
        let rest = (1.0 - value.quantile()).max(LEAST_REST);
        (-rest.log10(), value.value_iterated_to() as f64 / 1e6)
    };
    values.map(point).collect()
}

fn percentile_label(nines: &f64) -> String {
    let rest = 10_f64.powf(-nines) * 100.0;
    let digits = (nines.ceil() as usize).saturating_sub(2);
    format!("{:.digits$} %", 100.0 - rest)
}

fn size_label(log: &f64) -> String {
    let bytes = 2_f64.powf(*log).round() as u64;
    match bytes {
        0..1024 => format!("{bytes}"),
        1024..1_048_576 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    }
}

/// A chart from zero to a little above the highest point.
fn chart<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    title: &str,
    [below, beside]: [&str; 2],
    lines: &[Line],
    label: fn(&f64) -> String,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    let points = || lines.iter().flat_map(|line| &line.points);
    let widest = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let highest = points().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..widest, 0.0..highest)?;
    chart
        .configure_mesh()
        .x_desc(below)
        .y_desc(beside)
        .x_label_formatter(&label)
        .label_style((FONT, 13))
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let colour = Palette99::pick(index).mix(0.9);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .label_font((FONT, 12))
        .draw()
}
