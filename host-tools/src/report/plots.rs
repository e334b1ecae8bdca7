//! Plots as SVG text.

use super::tally::{CaptureTally, Interval};
use anyhow::anyhow;
use hdrhistogram::Histogram;
use plotters::prelude::*;

/// Size in pixels; the page scales it.
const SIZE: (u32, u32) = (900, 260);
const COLOUR: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
/// Colours that can be told apart without telling red from green.
const COLOURS: [RGBColor; 6] = [
    COLOUR,
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x33, 0x33, 0x33),
];

/// A value of each step over time in microseconds.
pub(super) fn over_time(
    tally: &CaptureTally,
    unit: &str,
    value: impl Fn(&Interval) -> f64,
) -> anyhow::Result<String> {
    let used = used_steps(tally);
    let width = tally.step_nanos as f64 / 1000.0;
    let points: Vec<(f64, f64)> =
        tally.steps[..used].iter().enumerate().map(|(at, step)| (at as f64 * width, value(step))).collect();
    let highest = points.iter().map(|(_, y)| *y).fold(1.0, f64::max);
    drawn(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..(used as f64 * width), 0.0..highest * 1.05)?;
        chart.configure_mesh().x_desc("µs").y_desc(unit).light_line_style(WHITE).draw()?;
        chart.draw_series(
            AreaSeries::new(points.iter().copied(), 0.0, COLOUR.mix(0.25)).border_style(COLOUR),
        )?;
        Ok(())
    })
}

/// A value drawn as a line.
pub(super) struct PlotLine {
    name: &'static str,
    value: Box<dyn Fn(&Interval) -> u64>,
}

impl PlotLine {
    pub(super) fn new(name: &'static str, value: impl Fn(&Interval) -> u64 + 'static) -> Self {
        Self { name, value: Box::new(value) }
    }
}

/// Several values of each step over time in microseconds, with a legend.
pub(super) fn lines_over_time(
    tally: &CaptureTally,
    unit: &str,
    lines: &[PlotLine],
) -> anyhow::Result<String> {
    let used = used_steps(tally);
    let width = tally.step_nanos as f64 / 1000.0;
    let steps = &tally.steps[..used];
    let highest =
        lines.iter().flat_map(|line| steps.iter().map(&line.value)).max().unwrap_or(0).max(1) as f64;
    drawn(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..(used as f64 * width), 0.0..highest * 1.05)?;
        chart.configure_mesh().x_desc("µs").y_desc(unit).light_line_style(WHITE).draw()?;
        for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let points =
                steps.iter().enumerate().map(|(at, step)| (at as f64 * width, (line.value)(step) as f64));
            let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
            chart.draw_series(LineSeries::new(points, colour))?.label(line.name).legend(key);
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    })
}

/// Steps from the first frame to the last.
fn used_steps(tally: &CaptureTally) -> usize {
    let length = tally.span.map_or(0, |(first, last)| last - first);
    usize::try_from(length / tally.step_nanos).unwrap_or(usize::MAX).min(tally.steps.len() - 1) + 1
}

/// Numbers of requests by latency, in buckets that double.
pub(super) fn latencies(histogram: &Histogram<u64>) -> anyhow::Result<String> {
    let buckets: Vec<(f64, f64)> = histogram
        .iter_log(500, 2.0)
        .map(|bucket| {
            (bucket.value_iterated_to() as f64 / 1000.0, bucket.count_since_last_iteration() as f64)
        })
        .collect();
    let highest = buckets.iter().map(|(_, count)| *count).fold(1.0, f64::max);
    let last = buckets.last().map_or(1.0, |(end, _)| *end);
    drawn(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(72)
            .build_cartesian_2d((0.25..last.max(1.0)).log_scale(), 0.0..highest * 1.05)?;
        chart
            .configure_mesh()
            .x_desc("µs until the acknowledgement")
            .y_desc("requests")
            .light_line_style(WHITE)
            .draw()?;
        let bar =
            |(end, count): &(f64, f64)| Rectangle::new([(end / 2.0, 0.0), (*end, *count)], COLOUR.filled());
        chart.draw_series(buckets.iter().filter(|(_, count)| *count > 0.0).map(bar))?;
        Ok(())
    })
}

/// The result of drawing into text.
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn drawn(draw: impl FnOnce(&Area<'_>) -> Drawn) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&area).and_then(|()| area.present()).map_err(|error| anyhow!("drawing a plot: {error}"))?;
    }
    // The page determines its width.
    Ok(text.replacen("<svg width=\"900\" height=\"260\"", "<svg class=\"plot\"", 1))
}
