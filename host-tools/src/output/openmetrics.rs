//! The text for a scraper, family by family, in both forms: OpenMetrics 1.0, and the classic text format
//! 0.0.4 of Prometheus.
//!
//! They differ in what metadata refers to. In OpenMetrics it refers to the family `x`, whose counter has the
//! sample `x_total`. The classic format has no families, and its metadata refers to the sample itself,
//! `x_total`. A reader of the wrong form would see counters without type and help, so a scraper gets the form
//! that it asks for (RFC 9110 §12.5.1).

use std::fmt::Write as _;

/// The media type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text";
/// The media type of the classic format.
const CLASSIC: &str = "text/plain";

/// A form of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpositionForm {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus, which `promtool check metrics` reads too.
    Classic,
}

impl ExpositionForm {
    /// The content type of the answer to a scrape.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The form for an `Accept` header: OpenMetrics if it is named with at least the quality of the classic
    /// format.
    pub(crate) fn wanted(accept: &str) -> Self {
        let (open, classic) =
            (AcceptedQuality::of(accept, OPEN_METRICS), AcceptedQuality::of(accept, CLASSIC));
        let named = open.nearness == NAMED && open.quality > 0.0;
        if named && open.quality >= classic.quality { Self::OpenMetrics } else { Self::Classic }
    }
}

/// Specificity of a range that names the media type itself.
const NAMED: u8 = 3;

/// How much a client wants a media type.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct AcceptedQuality {
    /// How specific the matching range is; 0 if none matches.
    nearness: u8,
    quality: f32,
}

impl AcceptedQuality {
    /// What an `Accept` header says about a media type: the most specific range counts, and among equally
    /// specific ones the best.
    fn of(accept: &str, media_type: &str) -> Self {
        let mut found = Self::default();
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let of_family = name.strip_suffix('*').is_some_and(|family| media_type.starts_with(family));
            let nearness = match name.as_str() {
                "*/*" => 1,
                name if name == media_type => NAMED,
                _ if of_family && name.ends_with("/*") => 2,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.trim().parse().ok()).unwrap_or(1.0);
            if nearness > found.nearness || nearness == found.nearness && quality > found.quality {
                found = Self { nearness, quality };
            }
        }
        found
    }
}

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricType {
    /// Only rises; its samples end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// The same samples in both forms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ScrapeTexts {
    /// OpenMetrics 1.0.
    pub(crate) openmetrics: String,
    /// The text format 0.0.4.
    pub(crate) classic: String,
}

impl ScrapeTexts {
    /// The text in a form.
    pub(crate) fn of(&self, form: ExpositionForm) -> &str {
        match form {
            ExpositionForm::OpenMetrics => &self.openmetrics,
            ExpositionForm::Classic => &self.classic,
        }
    }
}

/// Text under construction. Families follow each other, and an unfinished text has no end mark.
#[derive(Debug)]
pub(crate) struct Exposition {
    texts: ScrapeTexts,
    /// Name of the current family's samples.
    name: String,
}

impl Exposition {
    /// A text without families.
    pub(crate) fn new() -> Self {
        Self { texts: ScrapeTexts::default(), name: String::new() }
    }

    /// Begins a family. A name that ends in `_seconds` has that unit.
    pub(crate) fn family(&mut self, name: &str, kind: MetricType, help: Option<&str>) {
        let family = letters(name);
        let (type_name, suffix) = match kind {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Gauge => ("gauge", ""),
        };
        self.name = format!("{family}{suffix}");
        let (name, ScrapeTexts { openmetrics, classic }) = (&self.name, &mut self.texts);
        // Writing to a string does not fail.
        let _ = writeln!(openmetrics, "# TYPE {family} {type_name}");
        if family.ends_with("_seconds") {
            let _ = writeln!(openmetrics, "# UNIT {family} seconds");
        }
        if let Some(help) = help {
            let _ = writeln!(openmetrics, "# HELP {family} {}", escaped(help));
            let _ = writeln!(classic, "# HELP {name} {}", escaped_but_quotes(help));
        }
        let _ = writeln!(classic, "# TYPE {name} {type_name}");
    }

    /// Adds a sample to the current family, with labels and their values.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let mut line = self.name.clone();
        for (at, (name, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(line, "{before}{name}=\"{}\"", escaped(value));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(line, "{after} {value}");
        self.texts.openmetrics.push_str(&line);
        self.texts.classic.push_str(&line);
    }

    /// The whole text in both forms.
    pub(crate) fn finish(mut self) -> ScrapeTexts {
        self.texts.openmetrics.push_str("# EOF\n");
        self.texts
    }
}

/// The name with only letters, digits and underscores.
fn letters(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

/// Escapes backslash, quote and line end for label values, and for help in OpenMetrics.
fn escaped(text: &str) -> String {
    escaped_but_quotes(text).replace('"', "\\\"")
}

/// Escapes backslash and line end for help in the classic format.
fn escaped_but_quotes(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> ScrapeTexts {
        let mut text = Exposition::new();
        text.family("a.b", MetricType::Counter, Some("What \"a\" is."));
        text.sample(&[("x", "1\n"), ("y", "\\")], 7);
        text.family("age_seconds", MetricType::Gauge, None);
        text.sample(&[], "0.5");
        text.finish()
    }

    #[test]
    fn families_are_written_as_the_standard_has_them() {
        let expected = "# TYPE a_b counter\n# HELP a_b What \\\"a\\\" is.\na_b_total{x=\"1\\n\",y=\"\\\\\"} 7\n\
                        # TYPE age_seconds gauge\n# UNIT age_seconds seconds\nage_seconds 0.5\n# EOF\n";
        assert_eq!(written().of(ExpositionForm::OpenMetrics), expected);
    }

    #[test]
    fn the_classic_format_names_the_sample_in_its_metadata() {
        let expected = "# HELP a_b_total What \"a\" is.\n# TYPE a_b_total counter\na_b_total{x=\"1\\n\",y=\"\\\\\"} 7\n\
                        # TYPE age_seconds gauge\nage_seconds 0.5\n";
        assert_eq!(written().of(ExpositionForm::Classic), expected);
    }

    #[test]
    fn a_scraper_gets_the_form_that_it_wants_most() {
        use ExpositionForm::{Classic, OpenMetrics};
        for (accept, form) in [
            ("", Classic),
            ("*/*", Classic),
            ("text/plain", Classic),
            ("application/*", Classic),
            ("application/json", Classic),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", OpenMetrics),
            ("application/openmetrics-text;q=0", Classic),
            ("application/openmetrics-text;q=0.1, text/plain;q=0.9", Classic),
            ("application/openmetrics-text;q=0.1, text/*;q=0.9", Classic),
            ("application/openmetrics-text;q=nan, text/plain;q=0.1", Classic),
            // The headers of Prometheus 2.42 and 3.4.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,\
                 */*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
        ] {
            assert_eq!(ExpositionForm::wanted(accept), form, "{accept:?}");
        }
    }
}
