//! `bareverbs monitor`: a device's counters under mlx5's names, their rates, and a sentence on each that should not
//! increase.
//!
//! One thread owns the device, reads its counters by commands at an interval, and keeps the latest sample. The exporter
//! only serves that sample, so a scrape costs neither the data path nor the device anything.
//!
//! * `source`: where readings come from. `sample`: readings to rates. `openmetrics`, `exporter`: for Prometheus. `screen`: for people. `ending`: what ends it.

mod ending;
pub(crate) mod exporter;
mod openmetrics;
mod sample;
mod screen;
mod source;

use crate::Failure;
use crate::output::{json_object, print};
use crate::place::{DeviceSelector, SELECTOR_HELP};
use crate::seat::HostArguments;
use clap::Args;
use ending::{Ending, LOOK};
use exporter::Exporter;
use sample::{Sample, Sampler};
use source::{Reader, Watch};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Arguments of `bareverbs monitor`.
#[derive(Debug, Clone, Args)]
pub struct MonitorArguments {
    /// Which device; it is opened, and so reset.
    #[arg(long, value_name = "DEVICE", default_value = "sim", long_help = format!(
        "Which device; it is opened, and so reset. `sim` and `sim:ethernet` are two simulated hosts that keep each other busy. {SELECTOR_HELP}"
    ))]
    device: DeviceSelector,
    #[command(flatten)]
    place: HostArguments,
    /// Show one sample and exit.
    #[arg(long)]
    once: bool,
    /// Milliseconds between two samples.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    interval: u64,
    /// Export the counters to Prometheus at this address, under /metrics, instead of showing them. Port 0 takes any
    /// free port.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once", value_parser = socket_address)]
    openmetrics: Option<SocketAddr>,
    /// Exit after this many samples.
    #[arg(long, value_name = "N", conflicts_with = "once", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Fraction of frames lost on the wire between simulated hosts.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    loss: f64,
    /// Print one JSON object per sample instead of text.
    #[arg(long)]
    json: bool,
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not an address with a port; write one such as 127.0.0.1:9440 or [::1]:9440")
    })
}

fn share(text: &str) -> Result<f64, String> {
    let loss: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..1.0).contains(&loss) {
        Ok(loss)
    } else {
        Err("expected a number from 0 to less than 1, such as 0.01".into())
    }
}

/// Shows counters, once or until interrupted.
pub fn run(arguments: &MonitorArguments) -> Result<bool, Failure> {
    let exporter = arguments.openmetrics.map(Exporter::bind).transpose().map_err(Failure::Input)?;
    let address = exporter.as_ref().map(Exporter::address);
    let view = view(arguments, exporter);
    let ending = Ending::watch(view.prints()).map_err(Failure::Run)?;
    // Whoever reads this line may send a signal, so the handlers come first.
    if let Some(address) = address {
        eprintln!("serving http://{address}/metrics");
    }
    let interval = Duration::from_millis(arguments.interval);
    let watch = Watching {
        view,
        interval,
        limit: limit(arguments),
        began: Instant::now(),
        sampler: Sampler::default(),
        ending,
    };
    source::open(&arguments.device, &arguments.place, arguments.loss, watch)?;
    Ok(true)
}

fn limit(arguments: &MonitorArguments) -> Option<u64> {
    if arguments.once { Some(1) } else { arguments.samples }
}

fn view(arguments: &MonitorArguments, exporter: Option<Exporter>) -> View {
    let selector = arguments.place.name_of(&arguments.device);
    match exporter {
        Some(exporter) => View::Exporter { exporter, selector },
        None if arguments.json => View::Json { selector },
        None if arguments.once || !std::io::stdout().is_terminal() => View::Text { selector },
        None => View::Screen { selector },
    }
}

/// The destination of samples.
enum View {
    Exporter { exporter: Exporter, selector: String },
    Json { selector: String },
    Text { selector: String },
    Screen { selector: String },
}

impl View {
    /// Whether samples are printed on standard output one after the other.
    const fn prints(&self) -> bool {
        matches!(self, Self::Json { .. } | Self::Text { .. })
    }
}

/// The task on an open device.
struct Watching {
    view: View,
    interval: Duration,
    limit: Option<u64>,
    began: Instant,
    sampler: Sampler,
    ending: Ending,
}

impl Watch for Watching {
    fn watch(mut self, reader: &mut dyn Reader) -> anyhow::Result<()> {
        if let View::Screen { selector } = &self.view {
            let feed =
                &mut LiveFeed { reader, sampler: self.sampler, began: self.began, ending: &self.ending };
            return screen::run(selector, self.interval, self.limit, feed);
        }
        let mut count = 0;
        loop {
            let next = Instant::now() + self.interval;
            let readings = reader.read()?;
            let sample = self.sampler.sample(self.began.elapsed(), readings);
            self.show(&sample)?;
            count += 1;
            if self.limit.is_some_and(|limit| count >= limit) {
                return Ok(());
            }
            if self.is_ended_before(next, reader)? {
                return Ok(());
            }
        }
    }
}

impl Watching {
    /// Waits for the next sample; returns true if the monitor has to end before.
    fn is_ended_before(&self, next: Instant, reader: &mut dyn Reader) -> anyhow::Result<bool> {
        loop {
            if self.ending.has_come().map_err(source::anyhow_of)? {
                return Ok(true);
            }
            let now = Instant::now();
            if now >= next {
                return Ok(false);
            }
            reader.pass(next.min(now + LOOK))?;
        }
    }
}

/// The samples of the view on a terminal.
struct LiveFeed<'a> {
    reader: &'a mut dyn Reader,
    sampler: Sampler,
    began: Instant,
    ending: &'a Ending,
}

impl screen::Feed for LiveFeed<'_> {
    fn sample(&mut self) -> anyhow::Result<Sample> {
        let readings = self.reader.read()?;
        Ok(self.sampler.sample(self.began.elapsed(), readings))
    }

    fn pass(&mut self, until: Instant) -> anyhow::Result<()> {
        self.reader.pass(until)
    }

    fn is_ended(&self) -> anyhow::Result<bool> {
        self.ending.has_come().map_err(source::anyhow_of)
    }
}

impl Watching {
    fn show(&self, sample: &Sample) -> anyhow::Result<()> {
        let text = match &self.view {
            View::Exporter { exporter, selector } => {
                exporter.publish(openmetrics::exposition(selector, sample));
                return Ok(());
            }
            View::Json { selector } => {
                json_object("monitor", sample.json(selector)).map_err(source::anyhow_of)?
            }
            View::Text { selector } | View::Screen { selector } => sample.text(selector),
        };
        print(&text).map_err(source::anyhow_of)
    }
}

#[cfg(test)]
mod tests;
