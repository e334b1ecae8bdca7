//! Counters as OpenMetrics 1.0 text.

use super::sample::Sample;
use crate::counters::known;
use std::fmt::Write as _;

/// What the answer to a scrape says that it is.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What names begin with.
const PREFIX: &str = "bareverbs_";

/// The exposition of a sample. A counter `x` is the family `bareverbs_x` with the sample `bareverbs_x_total`.
pub(super) fn exposition(selector: &str, sample: &Sample) -> String {
    let labels = format!("{{device=\"{}\",port=\"1\"}}", escaped(selector));
    let mut text = String::with_capacity(200 * sample.rows.len());
    for row in &sample.rows {
        let family = format!("{PREFIX}{}", name(&row.name));
        let _ = writeln!(text, "# TYPE {family} counter");
        if let Some(known) = known(&row.name) {
            let _ = writeln!(text, "# HELP {family} {}.", escaped(known.help));
        }
        let _ = writeln!(text, "{family}_total{labels} {}", row.value);
    }
    let _ = writeln!(text, "# TYPE {PREFIX}sampled_seconds gauge");
    let _ = writeln!(text, "# UNIT {PREFIX}sampled_seconds seconds");
    let _ = writeln!(
        text,
        "# HELP {PREFIX}sampled_seconds When the counters were read, since the monitor began."
    );
    let _ = writeln!(text, "{PREFIX}sampled_seconds{labels} {:.3}", sample.at.as_secs_f64());
    text.push_str("# EOF\n");
    text
}

/// Letters, digits and underscores: every counter has such a name.
fn name(counter: &str) -> String {
    counter.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

/// Backslash, quote and line end, as label values and help need them.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
