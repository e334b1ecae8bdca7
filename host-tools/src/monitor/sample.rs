//! Computes rates from readings.

use crate::counters::{Abnormal, AbnormalKind, Readings, known};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// Counters of queue pairs have 32 bits and wrap (`QUERY_Q_COUNTER`).
const WRAP: u64 = 1 << 32;

/// The counters at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// Time since the monitor began.
    pub(super) at: Duration,
    pub(super) rows: Vec<CounterRow>,
}

/// A counter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CounterRow {
    pub(super) name: String,
    /// Its value since the device began to count, corrected for wraps since the monitor began.
    pub(super) value: u64,
    /// Increase per second; `None` in the first sample.
    pub(super) rate: Option<f64>,
    /// Set if it rose although it should not have.
    pub(super) abnormal: Option<Abnormal>,
}

/// Remembers the previous sample.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    last: Option<(Duration, Readings)>,
    /// What counters have lost by wrapping.
    wrapped: Readings,
}

impl Sampler {
    /// A sample of the readings at `at`. If no time has passed, there are no rates.
    pub(super) fn sample(&mut self, at: Duration, readings: Readings) -> Sample {
        let mut rows = Vec::with_capacity(readings.len());
        for (name, raw) in &readings {
            let before = self.last.as_ref().and_then(|(then, old)| Some((*then, *old.get(name)?)));
            let risen = before.map(|(_, old)| self.risen(name, old, *raw));
            let seconds = before.map(|(then, _)| at.saturating_sub(then).as_secs_f64());
            let rate = risen.zip(seconds).filter(|(_, seconds)| *seconds > 0.0);
            let rate = rate.map(|(risen, seconds)| risen as f64 / seconds);
            let value = raw.saturating_add(self.wrapped.get(name).copied().unwrap_or(0));
            // In the first sample, everything since the device began to count is new.
            let rose = risen.unwrap_or(*raw) > 0;
            let abnormal = known(name).and_then(|known| known.abnormal).filter(|_| rose);
            rows.push(CounterRow { name: name.clone(), value, rate, abnormal });
        }
        self.last = Some((at, readings));
        Sample { at, rows }
    }

    /// How much a counter rose. A 32-bit counter that fell has wrapped; any other was cleared.
    fn risen(&mut self, name: &str, old: u64, new: u64) -> u64 {
        if new >= old {
            return new - old;
        }
        if old < WRAP && old - new > WRAP / 2 {
            *self.wrapped.entry(name.to_owned()).or_insert(0) += WRAP;
            return new + WRAP - old;
        }
        new
    }
}

/// Whether a category gets its own colour.
pub(super) const fn is_serious(kind: AbnormalKind) -> bool {
    matches!(
        kind,
        AbnormalKind::Fault
            | AbnormalKind::Link
            | AbnormalKind::Discard
            | AbnormalKind::Retransmission
            | AbnormalKind::NotReady
    )
}

impl Sample {
    /// Counters that are not zero, and the meaning of the abnormal ones.
    pub(super) fn text(&self, selector: &str) -> String {
        let mut table = Table::new();
        table.load_preset(NOTHING);
        table.set_header(["counter", "value", "per second"]);
        for row in self.rows.iter().filter(|row| row.value > 0) {
            table.add_row([row.name.clone(), row.value.to_string(), row.rate_text()]);
        }
        let quiet = self.rows.iter().filter(|row| row.value == 0).count();
        let mut text = format!(
            "{selector} after {:.1} s\n{}\n{quiet} counters are zero",
            self.at.as_secs_f64(),
            table.trim_fmt()
        );
        for (row, abnormal) in self.abnormal() {
            let _ = write!(text, "\n{}: {}; {}", row.name, abnormal.says, abnormal.fix);
        }
        text
    }

    /// Counters that rose although they should not have.
    pub(super) fn abnormal(&self) -> impl Iterator<Item = (&CounterRow, &Abnormal)> {
        self.rows.iter().filter_map(|row| Some((row, row.abnormal.as_ref()?)))
    }

    pub(super) fn json(&self, selector: &str) -> Value {
        let counters: Map<String, Value> = self
            .rows
            .iter()
            .map(|row| {
                let says = row.abnormal.map(|abnormal| abnormal.says);
                (row.name.clone(), json!({"value": row.value, "per_second": row.rate, "says": says}))
            })
            .collect();
        json!({"selector": selector, "seconds": self.at.as_secs_f64(), "counters": counters})
    }
}

impl CounterRow {
    /// The rate with a sensible number of digits.
    pub(super) fn rate_text(&self) -> String {
        match self.rate {
            None => "-".to_owned(),
            Some(rate) if rate == 0.0 || rate >= 10.0 => format!("{rate:.0}"),
            Some(rate) => format!("{rate:.2}"),
        }
    }
}
