//! Results of a demo run, for programs and for people.

pub use super::changes::WriterReport;
use super::way_name::WayName;
use anyhow::Context as _;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Simulated latencies in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SimLatency {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
}

/// Results of one way of looking up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WayReport {
    /// The way.
    pub name: WayName,
    /// Number of lookups of keys in the file.
    pub lookups: u64,
    /// Lookups whose value matched byte for byte.
    pub verified: u64,
    /// Lookups of missing keys that were reported as absent.
    pub absent_confirmed: u64,
    /// Mean number of network round trips per key found.
    pub round_trips_mean: f64,
    /// Simulated duration of a lookup.
    pub sim_latency_ns: SimLatency,
    /// Lookups per second in real time.
    pub lookups_per_second: f64,
}

/// Schema name of [`Report`], as in docs/schemas.
pub const SCHEMA: &str = "bareverbs.demo.v1";

/// The whole run, as printed by `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Schema name and version.
    pub schema: &'static str,
    /// Rows in the file.
    pub rows: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Fraction of frames lost.
    pub loss: f64,
    /// The latency preset.
    pub preset: &'static str,
    /// Digest of everything on the wire. The same seed gives the same digest.
    pub digest: String,
    /// Number of times the deployed program was replaced while it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program_swaps: Option<u64>,
    /// What the writer did to the table meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<WriterReport>,
    /// One report per way.
    pub ways: Vec<WayReport>,
}

/// Counts while one way runs.
#[derive(Debug)]
pub struct Tally {
    name: WayName,
    lookups: u64,
    verified: u64,
    absent_confirmed: u64,
    round_trips: u64,
    latency: Histogram<u64>,
}

impl Tally {
    /// Nothing counted yet.
    pub fn new(name: WayName) -> anyhow::Result<Self> {
        // Four digits; the histogram grows with the values recorded.
        let latency = Histogram::new(4).context("a histogram of latencies")?;
        Ok(Self { name, lookups: 0, verified: 0, absent_confirmed: 0, round_trips: 0, latency })
    }

    /// Counts a lookup of a key in the file.
    pub fn present(&mut self, verified: bool, round_trips: u64, nanos: u64) -> anyhow::Result<()> {
        self.lookups += 1;
        self.verified += u64::from(verified);
        self.round_trips += round_trips;
        self.latency.record(nanos).context("recording a latency")
    }

    /// Lookups whose value did not match the file.
    pub const fn failures(&self) -> u64 {
        self.lookups - self.verified
    }

    /// Counts a lookup of a missing key.
    pub fn absent(&mut self, confirmed: bool) {
        self.absent_confirmed += u64::from(confirmed);
    }

    /// The report, given the total real time.
    pub fn report(&self, lookups: u64, elapsed: Duration) -> WayReport {
        let at = |share: f64| self.latency.value_at_quantile(share);
        WayReport {
            name: self.name,
            lookups: self.lookups,
            verified: self.verified,
            absent_confirmed: self.absent_confirmed,
            round_trips_mean: self.round_trips as f64 / self.lookups.max(1) as f64,
            sim_latency_ns: SimLatency { p50: at(0.5), p99: at(0.99), p999: at(0.999) },
            lookups_per_second: (lookups as f64 / elapsed.as_secs_f64().max(1e-9)).round(),
        }
    }
}

/// Additional information for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Origin of the rows.
    pub data: String,
    /// Number of names shortened to fit a key.
    pub shortened: usize,
    /// Missing keys looked up in each way.
    pub absent: u64,
    /// The capture file and its number of frames.
    pub capture: Option<(String, u64)>,
}

impl Report {
    /// Whether every key was verified and every missing key confirmed, in every way.
    pub fn all_verified(&self, absent: u64) -> bool {
        self.ways.iter().all(|way| way.verified == self.rows && way.absent_confirmed == absent)
    }

    /// The report as one JSON object.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// The report as text.
    pub fn text(&self, context: &Context) -> String {
        let mut text = String::new();
        let lines = [self.heading(context), self.table().to_string(), self.footing(context)];
        for line in lines {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn heading(&self, context: &Context) -> String {
        let mut heading = format!(
            "{} rows of {}, each fetched in {} ways, and {} absent keys",
            self.rows,
            context.data,
            self.ways.len(),
            context.absent
        );
        if context.shortened > 0 {
            let _ = write!(
                heading,
                "\n{} names are longer than a key of 64 bytes: shortened in the middle, with a hash of the whole",
                context.shortened
            );
        }
        heading
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(UTF8_BORDERS_ONLY);
        table.set_header([
            "way",
            "lookups",
            "verified",
            "absent ok",
            "round trips",
            "sim p50 µs",
            "sim p99 µs",
            "sim p99.9 µs",
            "lookups/s (wall)",
        ]);
        for way in &self.ways {
            table.add_row(way.cells());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn footing(&self, context: &Context) -> String {
        let mut footing = format!(
            "sim: simulated time under the latency preset {}, not a measurement of any device\nseed {}, loss {}, digest {}",
            self.preset, self.seed, self.loss, self.digest
        );
        if let Some(swaps) = self.program_swaps {
            let _ = write!(footing, "\nthe program was replaced {swaps} times while it answered");
        }
        if let Some(WriterReport { changes, buckets: [before, after] }) = self.writer {
            let _ = write!(
                footing,
                "\nthe table was changed {changes} times while it was read, and grew from {before} to {after} buckets"
            );
        }
        if let Some((path, frames)) = &context.capture {
            let _ = write!(footing, "\n{frames} frames captured in {path}");
        }
        let verdict = if self.all_verified(context.absent) { "all verified" } else { "NOT ALL VERIFIED" };
        let _ = write!(footing, "\n{verdict}");
        footing
    }
}

impl WayReport {
    fn cells(&self) -> [String; 9] {
        let micros = |nanos: u64| format!("{:.2}", nanos as f64 / 1000.0);
        [
            self.name.to_string(),
            self.lookups.to_string(),
            self.verified.to_string(),
            self.absent_confirmed.to_string(),
            format!("{:.2}", self.round_trips_mean),
            micros(self.sim_latency_ns.p50),
            micros(self.sim_latency_ns.p99),
            micros(self.sim_latency_ns.p999),
            format!("{:.0}", self.lookups_per_second),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut tally = Tally::new(WayName::Read).expect("four digits are allowed");
        for n in 1..=1000 {
            tally.present(n != 7, 2, n * 1000).expect("the histogram grows");
        }
        tally.absent(true);
        let ways = vec![tally.report(1001, Duration::from_secs(2))];
        Report {
            schema: SCHEMA,
            rows: 1000,
            seed: 7,
            loss: 0.01,
            preset: "strom-10g",
            digest: "00ff".into(),
            program_swaps: None,
            writer: None,
            ways,
        }
    }

    #[test]
    fn the_object_has_the_stated_fields_in_order() {
        let json = report().json().expect("serialises");
        let expected = concat!(
            r#"{"schema":"bareverbs.demo.v1","rows":1000,"seed":7,"loss":0.01,"preset":"strom-10g","digest":"00ff","#,
            r#""ways":[{"name":"read","#,
            r#""lookups":1000,"verified":999,"absent_confirmed":1,"round_trips_mean":2.0,"#,
            r#""sim_latency_ns":{"p50":500015,"p99":990015,"p999":999007},"lookups_per_second":501.0}]}"#
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn rare_lookups_that_waited_for_a_retransmission_are_in_the_tail() {
        let mut tally = Tally::new(WayName::KernelDpu).expect("four digits are allowed");
        for n in 0..1000_u64 {
            let nanos = if n % 100 == 0 { 1_050_000 } else { 7_000 };
            tally.present(true, 1, nanos).expect("the histogram grows");
        }
        let SimLatency { p50, p99, p999 } = tally.report(1000, Duration::from_secs(1)).sim_latency_ns;
        assert_eq!((p50, p99), (7_000, 7_000));
        assert!((1_050_000..1_050_200).contains(&p999), "{p999}");
    }

    #[test]
    fn one_wrong_value_is_enough() {
        let mut report = report();
        assert!(!report.all_verified(1));
        report.ways[0].verified = 1000;
        assert!(report.all_verified(1));
        assert!(!report.all_verified(2), "an absent key that was not confirmed");
    }

    #[test]
    fn the_report_says_that_time_is_simulated() {
        let context = Context { data: "x.csv".into(), shortened: 3, absent: 1, capture: None };
        let text = report().text(&context);
        assert!(text.contains("sim p99 µs") && text.contains("not a measurement"));
        assert!(text.contains("3 names") && text.contains("NOT ALL VERIFIED"));
    }
}
