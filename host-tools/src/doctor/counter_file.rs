//! Counters that another program printed: JSON of `bareverbs monitor`, OpenMetrics, or `ethtool -S`.

use super::peer::read_text;
use crate::Failure;
use crate::counters::Readings;
use anyhow::{Context as _, anyhow};
use serde_json::Value;
use std::path::Path;

/// Prefix of metric names.
const PREFIX: &str = "bareverbs_";
/// Suffix of counter names in OpenMetrics.
const SUFFIX: &str = "_total";

/// Reads counters from a file.
///
/// # Errors
/// [`Failure::Input`] if it cannot be read or holds no counter.
pub(super) fn read(path: &Path) -> Result<Readings, Failure> {
    let text = read_text(path).map_err(Failure::Input)?;
    parse(&text).with_context(|| format!("{} holds no counters", path.display())).map_err(Failure::Input)
}

fn parse(text: &str) -> anyhow::Result<Readings> {
    if text.trim_start().starts_with('{') {
        return from_json(text);
    }
    let mut readings = Readings::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((name, value)) = from_line(line) else { continue };
        // The same counter of several sets of queue pairs is summed.
        let sum = readings.entry(name).or_insert(0_u64);
        *sum = sum.saturating_add(value);
    }
    if readings.is_empty() {
        return Err(anyhow!(
            "give what `bareverbs monitor --once --json`, its exporter or `ethtool -S` printed"
        ));
    }
    Ok(readings)
}

fn from_json(text: &str) -> anyhow::Result<Readings> {
    let object: Value = serde_json::from_str(text).context("it is not JSON")?;
    if object.get("schema").and_then(Value::as_str) != Some("bareverbs.monitor.v1") {
        return Err(anyhow!("its schema is not \"bareverbs.monitor.v1\""));
    }
    let rows = object.pointer("/monitor/counters").and_then(Value::as_object);
    let rows = rows.context("it has no \"counters\"")?;
    rows.iter()
        .map(|(name, row)| {
            let value = row.get("value").and_then(Value::as_u64);
            Ok((name.clone(), value.with_context(|| format!("counter {name} has no value"))?))
        })
        .collect()
}

/// Parses `rx_packets_phy: 5` of ethtool, or `bareverbs_rx_packets_phy_total{device="sim"} 5` of OpenMetrics.
fn from_line(line: &str) -> Option<(String, u64)> {
    if let Some((name, value)) = line.split_once(": ") {
        return Some((name.trim().to_owned(), value.trim().parse().ok()?));
    }
    let (metric, value) = line.rsplit_once(' ')?;
    let name = metric.split_once('{').map_or(metric, |(name, _)| name);
    let name = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    Some((name.to_owned(), value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_formats_are_read() {
        let json = r#"{"schema": "bareverbs.monitor.v1", "monitor": {"counters": {"out_of_sequence": {"value": 7}}}}"#;
        let metrics = "# TYPE bareverbs_out_of_sequence counter\nbareverbs_out_of_sequence_total{device=\"sim\"} 7\n# EOF\n";
        let ethtool = "NIC statistics:\n     out_of_sequence: 7\n";
        for text in [json, metrics, ethtool] {
            assert_eq!(parse(text).expect(text).get("out_of_sequence"), Some(&7), "{text}");
        }
    }

    #[test]
    fn files_without_counters_are_refused() {
        for (text, why) in [
            ("", "give what"),
            ("nothing here", "give what"),
            ("{", "not JSON"),
            ("{}", "schema"),
            (r#"{"schema": "bareverbs.monitor.v1", "monitor": {}}"#, "no \"counters\""),
            (
                r#"{"schema": "bareverbs.monitor.v1", "monitor": {"counters": {"x": {"value": -1}}}}"#,
                "counter x has no value",
            ),
        ] {
            let error = parse(text).expect_err(text);
            assert!(format!("{error:#}").contains(why), "{text}: {error:#}");
        }
    }
}
