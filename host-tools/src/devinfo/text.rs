//! The shape of `ibv_devinfo`: a heading, then indented names and values.

use super::fact::Section;
use std::fmt::Write as _;

/// Sections that are always shown.
const SHORT: [&str; 2] = ["device", "port"];

pub(super) fn show(device: &str, sections: &[Section], verbose: bool) -> String {
    let mut text = format!("hca_id: {device}");
    for section in sections.iter().filter(|section| verbose || SHORT.contains(&section.name)) {
        let width = section.facts.iter().map(|fact| label(&fact.name).len()).max().unwrap_or(0) + 1;
        let _ = write!(text, "\n\n  {}", section.name);
        for fact in &section.facts {
            let _ = write!(text, "\n    {:width$} {}", format!("{}:", label(&fact.name)), fact.text);
        }
    }
    text
}

/// Names say the unit of their number; in text the value says it.
fn label(name: &str) -> &str {
    let units = ["_mbps", "_kbps", "_khz", "_us"];
    units.iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name)
}
