//! Text of OpenMetrics 1.0, family by family.

use std::fmt::Write as _;

/// What the answer to a scrape says that it is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a family is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricType {
    /// Only rises; its samples end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// An exposition that is being written. Families stand one after the other: what is not finished has no end yet.
#[derive(Debug)]
pub(crate) struct Exposition {
    text: String,
    family: String,
    kind: MetricType,
}

impl Exposition {
    /// One without families.
    pub(crate) const fn new() -> Self {
        Self { text: String::new(), family: String::new(), kind: MetricType::Gauge }
    }

    /// Begins a family. A name that ends in `_seconds` has this unit.
    pub(crate) fn family(&mut self, name: &str, kind: MetricType, help: Option<&str>) {
        (self.family, self.kind) = (letters(name), kind);
        let family = &self.family;
        let type_name = match kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# TYPE {family} {type_name}");
        if family.ends_with("_seconds") {
            let _ = writeln!(self.text, "# UNIT {family} seconds");
        }
        if let Some(help) = help {
            let _ = writeln!(self.text, "# HELP {family} {}", escaped(help));
        }
    }

    /// A sample of the family that was begun last, with labels and their values.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let suffix = if self.kind == MetricType::Counter { "_total" } else { "" };
        let _ = write!(self.text, "{}{suffix}", self.family);
        for (at, (name, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

/// Letters, digits and underscores, as names have them.
fn letters(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

/// Backslash, quote and line end, as label values and help need them.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_the_standard_has_them() {
        let mut text = Exposition::new();
        text.family("a.b", MetricType::Counter, Some("What \"a\" is."));
        text.sample(&[("x", "1\n"), ("y", "\\")], 7);
        text.family("age_seconds", MetricType::Gauge, None);
        text.sample(&[], "0.5");
        let expected = "# TYPE a_b counter\n# HELP a_b What \\\"a\\\" is.\na_b_total{x=\"1\\n\",y=\"\\\\\"} 7\n\
                        # TYPE age_seconds gauge\n# UNIT age_seconds seconds\nage_seconds 0.5\n# EOF\n";
        assert_eq!(text.finish(), expected);
    }
}
