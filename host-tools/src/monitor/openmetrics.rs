//! Counters as text for scrapers.

use super::sample::Sample;
use crate::counters::known;
use crate::output::openmetrics::{Exposition, MetricType, ScrapeTexts};

/// The texts of a sample. Counter `x` becomes the family `bareverbs_x` with the sample `bareverbs_x_total`.
pub(super) fn exposition(selector: &str, sample: &Sample) -> ScrapeTexts {
    let labels = [("device", selector), ("port", "1")];
    let mut text = Exposition::new();
    for row in &sample.rows {
        let help = known(&row.name).map(|known| format!("{}.", known.help));
        text.family(&format!("bareverbs_{}", row.name), MetricType::Counter, help.as_deref());
        text.sample(&labels, row.value);
    }
    let help = "When the counters were read, since the monitor began.";
    text.family("bareverbs_sampled_seconds", MetricType::Gauge, Some(help));
    text.sample(&labels, format_args!("{:.3}", sample.at.as_secs_f64()));
    text.finish()
}
