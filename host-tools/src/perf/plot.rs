//! Drawings: latency by percentile, bandwidth by size, as SVG.

use super::plan::TestPlan;
use super::report::{TestContext, title, unit};
use super::run::{PerfOutcome, SizeRow};
use anyhow::{Context as _, Result, anyhow};
use hdrhistogram::Histogram;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (960, 600);
/// Width of the legend, and height of each of its rows.
const LEGEND: u32 = 130;
const LEGEND_ROW: i32 = 18;
/// Latencies that differ by this factor get a logarithmic axis, which extends beyond the shortest and the
/// longest by the factor below.
const FAR_APART: f64 = 20.0;
const AROUND: f64 = 1.25;
/// Shortest latency of such an axis, in µs.
const SHORTEST: f64 = 1e-3;
const FONT: &str = "sans-serif";
/// Number of steps for each halving of the remainder above a percentile.
const STEPS: u32 = 5;
/// The remainder above the highest percentile that is drawn: 99.9999 %.
const LEAST_REST: f64 = 1e-6;

/// A line of a drawing.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws the outcome to a file.
pub(crate) fn draw(outcome: &PerfOutcome, context: &TestContext, path: &Path) -> Result<()> {
    let clock = if context.simulated { " (sim)" } else { "" };
    let title = format!("{}, {}{clock}", title(&outcome.plan), context.device);
    let svg = svg(outcome, &title)?;
    std::fs::write(path, svg).with_context(|| format!("cannot write the drawing {}", path.display()))
}

fn svg(outcome: &PerfOutcome, title: &str) -> Result<String> {
    let mut svg = String::new();
    let lines = lines(outcome);
    let is_latency = outcome.rows.iter().any(|row| matches!(row, SizeRow::Latency(_)));
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let axes = match is_latency {
            true => ["percentile", "latency in µs"],
            false => ["bytes of a message", rate_label(&outcome.plan)],
        };
        let label: fn(&f64) -> String = if is_latency { percentile_label } else { size_label };
        let heights = || lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        let highest = heights().fold(f64::MIN_POSITIVE, f64::max);
        let lowest = heights().fold(highest, f64::min).max(SHORTEST);
        let drawn = if is_latency && highest > lowest * FAR_APART {
            let vertical = (lowest / AROUND..highest * AROUND).log_scale();
            chart(&area, title, axes, &lines, label, vertical)
        } else {
            chart(&area, title, axes, &lines, label, 0.0..highest * 1.05)
        };
        drawn.and_then(|()| area.present()).map_err(|error| anyhow!("drawing: {error}"))?;
    }
    Ok(svg)
}

const fn rate_label(plan: &TestPlan) -> &'static str {
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

/// Latency in µs over the logarithm of the remainder above a percentile, as HDR histograms are drawn: from
/// the shortest to the longest, even if all are equal.
fn by_percentile(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let least = (1.0 / histogram.len().max(1) as f64).max(LEAST_REST);
    let at = |rest: f64, picos: u64| (-rest.max(least).log10(), picos as f64 / 1e6);
    let between =
        histogram.iter_quantiles(STEPS).map(|value| at(1.0 - value.quantile(), value.value_iterated_to()));
    let shortest = at(1.0, histogram.min());
    [shortest].into_iter().chain(between).chain([at(least, histogram.max())]).collect()
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

/// A number with as many digits as it needs.
fn height_label(height: &f64) -> String {
    if *height < 10.0 && height.fract() != 0.0 { format!("{height:.2}") } else { format!("{height:.0}") }
}

/// Colours as far apart in hue as possible, all with the same lightness.
fn colour(index: usize, of: usize) -> HSLColor {
    HSLColor(index as f64 / of as f64 * 0.85, 0.75, 0.42)
}

/// A chart with a legend beside it.
fn chart<B: DrawingBackend, Y: AsRangedCoord<Value = f64>>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    title: &str,
    [below, beside]: [&str; 2],
    lines: &[Line],
    label: fn(&f64) -> String,
    vertical: Y,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
where
    Y::CoordDescType: ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    let (plot, names) = area.split_horizontally(SIZE.0 - LEGEND);
    let points = || lines.iter().flat_map(|line| &line.points);
    let widest = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&plot)
        .caption(title, (FONT, 20))
        .margin(16)
        .margin_right(28)
        .x_label_area_size(48)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..widest, vertical)?;
    chart
        .configure_mesh()
        .x_desc(below)
        .y_desc(beside)
        .x_label_formatter(&label)
        .y_label_formatter(&height_label)
        .label_style((FONT, 13))
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let colour = colour(index, lines.len());
        chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
        let row = 56 + index as i32 * LEGEND_ROW;
        names.draw(&PathElement::new([(0, row), (16, row)], colour.stroke_width(2)))?;
        names.draw(&Text::new(line.name.as_str(), (22, row - 6), (FONT, 12)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In virtual time all latencies of a size are equal.
    #[test]
    fn latencies_that_are_all_alike_are_a_line_from_the_first_percentile_to_the_last() {
        let mut histogram = Histogram::new(3).expect("three digits");
        histogram.record_n(1_500_000, 500).expect("in its range");
        let points = by_percentile(&histogram);
        let (first, last) = (points[0], points[points.len() - 1]);
        assert_eq!(first.0, 0.0);
        assert_eq!(percentile_label(&last.0), "99.8 %", "the longest is one in 500");
        assert!(points.iter().all(|(_, micros)| (1.498..1.502).contains(micros)), "{points:?}");
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0), "{points:?}");
    }

    #[test]
    fn heights_have_the_digits_that_they_need() {
        for (height, label) in
            [(0.5, "0.50"), (2.0, "2"), (1.25, "1.25"), (700.0, "700"), (11_629.4, "11629")]
        {
            assert_eq!(height_label(&height), label);
        }
    }
}
