//! The output of a ping: lines like those of `ibping`, or one JSON object.

use super::prober::Probed;
use super::tally::ProbeTally;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Percentiles of the round trip in the output.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// The peer, and the circumstances of the test.
pub(super) struct PingContext<'a> {
    /// The peer as the user named it.
    pub(super) peer: &'a str,
    pub(super) connection: &'static str,
    /// Whether the time is that of a simulated device.
    pub(super) simulated: bool,
}

/// The outcome.
pub(super) struct PingOutcome {
    pub(super) probed: Probed,
    /// The peer's address in the fabric: GID, or LID and name.
    pub(super) address: String,
}

impl PingOutcome {
    /// Whether every probe was answered in time.
    pub(super) fn is_good(&self) -> bool {
        self.probed.failure.is_none() && self.probed.tally.lost() == 0
    }

    /// Names of the findings, for `bareverbs explain`.
    fn findings(&self) -> Vec<&'static str> {
        let ProbeTally { late, duplicates, reordered, strays, .. } = self.probed.tally;
        let never = self.probed.tally.lost() - late;
        [
            (never, "PING_LOST"),
            (late, "PING_LATE"),
            (duplicates, "PING_DUPLICATE"),
            (reordered, "PING_OUT_OF_ORDER"),
            (strays, "PING_STRAY"),
        ]
        .into_iter()
        .filter_map(|(count, name)| (count > 0).then_some(name))
        .collect()
    }

    pub(super) fn trailer(&self, context: &PingContext<'_>) -> String {
        let Probed { tally, elapsed, failure } = &self.probed;
        let ProbeTally { received, duplicates, reordered, .. } = tally;
        let loss = 100.0 * tally.lost() as f64 / (tally.sent() as f64).max(1.0);
        let mut text = format!(
            "\n--- {} ({}) bareverbs ping statistics ---\n{} packets transmitted, {received} received, {loss:.0}% packet loss, \
             {duplicates} duplicates, {reordered} out of order, time {:.0} ms",
            context.peer,
            self.address,
            tally.sent(),
            elapsed.as_picos() as f64 / 1e9
        );
        if *received > 0 {
            let (trips, millis) = (&tally.round_trips, |picos: f64| picos / 1e9);
            let [p50, p99, p999] =
                PERCENTILES.map(|percentile| millis(trips.value_at_percentile(percentile) as f64));
            let clock = if context.simulated { " (sim)" } else { "" };
            let _ = write!(
                text,
                "\nrtt min/avg/max = {:.3}/{:.3}/{:.3} ms, p50/p99/p99.9 = {p50:.3}/{p99:.3}/{p999:.3} ms{clock}",
                millis(trips.min() as f64),
                millis(tally.mean()),
                millis(trips.max() as f64)
            );
        }
        if let Some(failure) = failure {
            let _ = write!(text, "\nbroken off: {failure:#}");
        }
        for name in self.findings() {
            let _ = write!(text, "\n`bareverbs explain {name}` lists possible causes");
        }
        text
    }

    pub(super) fn object(&self, context: &PingContext<'_>) -> Value {
        let Probed { tally, elapsed, failure } = &self.probed;
        let ProbeTally { received, late, duplicates, reordered, strays, round_trips, .. } = tally;
        let micros = |picos: f64| picos / 1e6;
        let at = |percentile: f64| micros(round_trips.value_at_percentile(percentile) as f64);
        let [p50, p99, p999] = PERCENTILES.map(at);
        let round_trip = (*received > 0).then(|| {
            json!({
                "min": micros(round_trips.min() as f64),
                "mean": micros(tally.mean()),
                "max": micros(round_trips.max() as f64),
                "p50": p50,
                "p99": p99,
                "p99_9": p999,
            })
        });
        json!({
            "peer": context.peer,
            "address": self.address,
            "connection": context.connection,
            "clock": if context.simulated { "sim" } else { "real" },
            "sent": tally.sent(),
            "received": received,
            "lost": tally.lost(),
            "late": late,
            "duplicates": duplicates,
            "out_of_order": reordered,
            "strays": strays,
            "elapsed_ms": elapsed.as_picos() as f64 / 1e9,
            "round_trip_us": round_trip,
            "findings": self.findings(),
            "failure": failure.as_ref().map(|failure| format!("{failure:#}")),
        })
    }
}
