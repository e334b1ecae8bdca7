//! `bareverbs report`: what happened in a capture, as one self-contained page and as a timeline for Perfetto.
//!
//! A capture of `demo`, `serve` or a test, or of any tool that writes pcapng, is read as a stream, twice if a
//! connection failed in it: memory does not grow with it. Recordings of the simulator also have the actions
//! of hosts, drivers, devices and kernels (docs/adr/0029).
//!
//! * `frames`: the stream. `tally`: counts of frames, `latency` of requests, `device` of records. `sequence`,
//!   `plots`, `page`: the page. `trace`: the timeline.

mod device;
mod frames;
mod latency;
mod page;
mod plots;
mod sequence;
mod tally;
mod trace;

use crate::Failure;
use crate::output::{json_object, print};
use anyhow::Context as _;
use clap::Args;
use frames::Item;
use indicatif::{ProgressBar, ProgressStyle};
use page::{Page, summary};
use sequence::Sequence;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use tally::{CaptureTally, address};
use trace::Timeline;

/// Arguments of `bareverbs report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArguments {
    /// A pcapng file from `bareverbs demo`, `run` or `serve` with `--capture` (and `--records` for more tracks), from a
    /// test, or from another tool.
    #[arg(value_name = "CAPTURE")]
    capture: PathBuf,
    /// Write a page with plots, the failed connection and its cause, and all queue pairs.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a timeline for the viewers of Perfetto and Chrome. It takes about 350 bytes per frame; for a recording,
    /// 260 per frame and per record.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Writes the requested files and prints a summary. Returns false if a connection failed in the capture.
pub fn run(arguments: &ReportArguments) -> Result<bool, Failure> {
    let (text, good) = execute(arguments)?;
    print(&text)?;
    Ok(good)
}

fn execute(arguments: &ReportArguments) -> Result<(String, bool), Failure> {
    let mut tally = CaptureTally::new().map_err(Failure::Run)?;
    let mut timeline = arguments.trace.as_deref().map(begin).transpose()?;
    let html = arguments.html.as_deref().map(create).transpose()?;
    let interfaces = read(&arguments.capture, |item| {
        match item {
            Item::Frame(frame) => tally.take(frame),
            Item::Record(record) => tally.record(record),
        }
        timeline.as_mut().map_or(Ok(()), |timeline| timeline.take(item)).context("writing the timeline")
    })?;
    if let Some(timeline) = timeline {
        let finished = timeline.finish(&interfaces).context("writing the timeline");
        tally.device.not_in_timeline = finished.map_err(Failure::Run)?;
    }
    if let Some((mut file, path)) = html.zip(arguments.html.as_deref()) {
        let source = arguments.capture.display().to_string();
        let sequence = sequence(&arguments.capture, &tally)?;
        let page = Page { source: &source, interfaces: &interfaces, tally: &tally, sequence };
        let html = page.html().map_err(Failure::Run)?;
        let written = file.write_all(html.as_bytes());
        written.with_context(|| format!("cannot write {}", path.display())).map_err(Failure::Input)?;
    }
    let good = tally.broken.is_none();
    let text = if arguments.json {
        json_object("report", object(&tally, &interfaces))?
    } else {
        text(&tally, &interfaces)
    };
    Ok((text, good))
}

/// Creates an output file before a long capture is read, so that a failure shows at once.
fn create(path: &Path) -> Result<File, Failure> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()));
    file.map_err(Failure::Input)
}

fn begin(path: &Path) -> Result<Timeline<BufWriter<File>>, Failure> {
    let timeline = Timeline::begin(BufWriter::new(create(path)?));
    timeline.context("writing the timeline").map_err(Failure::Run)
}

fn read(path: &Path, each: impl FnMut(&Item<'_>) -> anyhow::Result<()>) -> Result<Vec<String>, Failure> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()));
    let file = file.map_err(Failure::Input)?;
    let bar = progress_bar(&file, path);
    let frames = frames::read(bar.wrap_read(BufReader::new(file)), each);
    bar.finish_and_clear();
    frames.with_context(|| path.display().to_string()).map_err(Failure::Input)
}

/// A progress bar of reading, on a terminal only; it disappears at the end.
fn progress_bar(file: &File, path: &Path) -> ProgressBar {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let bar = ProgressBar::new(length).with_message(path.display().to_string());
    match ProgressStyle::with_template("reading {msg} {wide_bar} {bytes}/{total_bytes} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The diagram of the failed connection, for which the capture is read once more.
fn sequence(path: &Path, tally: &CaptureTally) -> Result<Option<String>, Failure> {
    let Some(broken) = &tally.broken else { return Ok(None) };
    let mut sequence = Sequence::new(broken);
    read(path, |item| {
        if let Item::Frame(frame) = item {
            sequence.take(frame);
        }
        Ok(())
    })?;
    Ok(Some(sequence.svg()))
}

fn text(tally: &CaptureTally, interfaces: &[String]) -> String {
    let mut text = summary(tally, interfaces);
    if !tally.latency.all.is_empty() {
        let micros = |percentile| tally.latency.all.value_at_percentile(percentile) as f64 / 1000.0;
        text.push_str(&format!(
            "\nlatency: p50 {:.3} µs, p99 {:.3} µs, longest {:.3} µs",
            micros(50.0),
            micros(99.0),
            micros(100.0)
        ));
    }
    text.push_str(&tally.device.text());
    if let Some(broken) = &tally.broken {
        text.push_str(&format!(
            "\na connection failed: from {} to queue pair {:#x} of {}: {}; bareverbs explain {}",
            address(broken.pair.from),
            broken.qpn,
            address(broken.pair.to),
            broken.cause,
            broken.explain
        ));
    }
    text
}

fn object(tally: &CaptureTally, interfaces: &[String]) -> Value {
    let flows: Vec<Value> = tally
        .flows
        .iter()
        .map(|((pair, qpn), flow)| {
            json!({
                "interface": interfaces.get(flow.interface),
                "from": address(pair.from),
                "to": address(pair.to),
                "qp": qpn,
                "frames": flow.frames,
                "bytes": flow.bytes,
                "sent_again": flow.repeated,
                "lost": flow.lost,
                "refusals": flow.refusals,
            })
        })
        .collect();
    let broken = tally.broken.as_ref().map(|broken| {
        json!({
            "from": address(broken.pair.from), "to": address(broken.pair.to), "qp": broken.qpn,
            "cause": broken.cause, "explain": broken.explain, "nanoseconds": broken.nanos,
        })
    });
    let percentile = |percentile| tally.latency.all.value_at_percentile(percentile);
    json!({
        "frames": tally.frames,
        "bytes": tally.bytes,
        "nanoseconds": tally.span.map(|(first, last)| last - first),
        "interfaces": interfaces,
        "flows": flows,
        "frames_of_further_flows": tally.further,
        "not_read": tally.unread,
        "latency_ns": {"count": tally.latency.all.len(), "p50": percentile(50.0), "p99": percentile(99.0), "max": tally.latency.all.max()},
        "failed": broken,
        "sent_again_by_cause": tally.device.causes(),
        "device": tally.device.object(),
    })
}

#[cfg(test)]
mod tests;
