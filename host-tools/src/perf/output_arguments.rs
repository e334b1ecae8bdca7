//! Output options of a test.

use super::plan::Measure;
use crate::counters::known;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Where perftest writes JSON.
const JSON_FILE: &str = "perftest_out.json";
/// Most latencies of a size that are listed.
pub(super) const MOST_LISTED: u64 = 1_000_000;

/// What is shown.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputArguments {
    /// Rates in units of 10^9 bit/s instead of MiB/s. The peer has to do the same.
    #[arg(long = "report_gbits", alias = "report-gbits")]
    pub(crate) gigabits: bool,
    /// Do not look for the peak.
    #[arg(short = 'N', long = "noPeak", alias = "no-peak")]
    pub(crate) no_peak: bool,
    /// Fail (exit status 1) if the average is below this, in the unit of rates.
    #[arg(short = 'w', long = "limit_bw", alias = "limit-bw", value_parser = parse_rate)]
    pub(crate) limit_bandwidth: Option<f64>,
    /// Fail (exit status 1) if there are fewer millions of messages in a second.
    #[arg(short = 'y', long = "limit_msgrate", alias = "limit-msgrate", value_parser = parse_rate)]
    pub(crate) limit_message_rate: Option<f64>,
    /// List every latency in the order of the messages before the figures of its size; with --json as `samples_us`.
    #[arg(short = 'U', long = "report-unsorted", alias = "report_unsorted", conflicts_with = "duration")]
    pub(crate) unsorted: bool,
    /// List every latency from the shortest to the longest before the figures of its size; with --json as `samples_us`.
    #[arg(short = 'H', long = "report-histogram", alias = "report_histogram", conflicts_with = "duration")]
    pub(crate) sorted: bool,
    /// Print nothing but this number for each size, in the unit of the columns; latency is the average.
    #[arg(long = "output", value_name = "NUMBER", conflicts_with = "json")]
    pub(crate) number: Option<OnlyNumber>,
    /// With -b, show each direction by itself behind both together.
    #[arg(long = "report-both", alias = "report_both", requires = "bidirectional")]
    pub(crate) both: bool,
    /// Show times in cycles of the fastest processor (`cpu MHz` of /proc/cpuinfo) instead of µs. JSON has µs.
    #[arg(short = 'C', long = "report-cycles", alias = "report_cycles")]
    pub(super) cycles: bool,
    /// Show these counters of the test's queue pairs, with or without `hw_counters/` before their names. JSON has all.
    #[arg(short = 'W', long = "report-counters", alias = "report_counters", value_name = "NAMES", value_delimiter = ',', value_parser = parse_counter)]
    pub(crate) counters: Vec<String>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the JSON object to the file perftest_out.json.
    #[arg(long = "out_json", alias = "out-json")]
    json_file: bool,
    /// Also write the JSON object to this file.
    #[arg(long = "out_json_file", alias = "out-json-file", value_name = "FILE")]
    json_path: Option<PathBuf>,
    /// Draw latency by percentile, or bandwidth by size, to this file (SVG).
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// The one number of a size that a script wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnlyNumber {
    Bandwidth,
    #[value(name = "message_rate", alias = "message-rate")]
    MessageRate,
    Latency,
}

impl OutputArguments {
    /// The file that JSON goes to.
    pub(crate) fn json_path(&self) -> Option<&Path> {
        self.json_path.as_deref().or_else(|| self.json_file.then_some(Path::new(JSON_FILE)))
    }

    /// Whether every latency is listed.
    pub(super) const fn lists(&self) -> bool {
        self.unsorted || self.sorted
    }

    /// Options that only one kind of test has.
    pub(super) fn check(&self, measure: Measure) -> Result<()> {
        ensure!(!self.cycles || measure == Measure::Latency, "-C is for latency tests");
        ensure!(!self.lists() || measure == Measure::Latency, "-H and -U list latencies: they are for `lat`");
        let can = match self.number {
            None => true,
            Some(OnlyNumber::Latency) => measure == Measure::Latency,
            Some(OnlyNumber::Bandwidth | OnlyNumber::MessageRate) => measure == Measure::Bandwidth,
        };
        ensure!(can, "--output: `bw` tests have bandwidth and message_rate, `lat` tests have latency");
        Ok(())
    }
}

fn parse_counter(text: &str) -> Result<String, String> {
    let name = text.trim_start_matches("hw_counters/").trim_start_matches("counters/");
    known(name).map(|_| name.to_owned()).ok_or_else(|| {
        format!("{name:?} is not a queue pair counter; --json lists them, and `bareverbs explain` says what each counts")
    })
}

/// A number above zero.
pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("{text:?} is not a rate; give a number above 0"))
}
