//! The output for people and for programs.

use super::facts::{Facts, Opening};
use super::rules::{Judged, Outcome, Severity};
use crate::Failure;
use crate::output::json_object;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// One JSON object: this end, for the other end to compare with, the findings, and the outcome of every rule.
pub(super) fn json(facts: &Facts, judged: &[Judged]) -> Result<String, Failure> {
    let findings: Vec<Value> = judged
        .iter()
        .filter_map(|(rule, outcome)| match outcome {
            Outcome::Fires(found) => Some(json!({
                "id": rule.id,
                "severity": found.severity.name(),
                "evidence": found.evidence,
                "fix": found.fix,
            })),
            _ => None,
        })
        .collect();
    let rules: Vec<Value> = judged
        .iter()
        .map(|(rule, outcome)| match outcome {
            Outcome::Fires(_) => json!({"id": rule.id, "outcome": "found"}),
            Outcome::Silent => json!({"id": rule.id, "outcome": "silent"}),
            Outcome::NotAsked(why) => json!({"id": rule.id, "outcome": "not-asked", "why": why}),
        })
        .collect();
    let end = facts.port().map(serde_json::to_value).transpose();
    let end = end.map_err(|error| Failure::Run(error.into()))?;
    let good = judged.iter().all(|(_, outcome)| outcome.severity() != Some(Severity::Bad));
    let value =
        json!({"selector": facts.selector, "good": good, "findings": findings, "rules": rules, "end": end});
    json_object("doctor", value)
}

/// Findings in order, then what was examined.
pub(super) fn text(facts: &Facts, judged: &[Judged], verbose: bool) -> String {
    let mut text = String::new();
    let [mut silent, mut not_asked] = [0, 0];
    for (rule, outcome) in judged {
        match outcome {
            Outcome::Fires(found) => {
                let _ = writeln!(text, "{:8} {}: {}", found.severity.name(), rule.id, found.evidence);
                let _ = writeln!(text, "         fix: {}", found.fix);
            }
            Outcome::Silent => {
                silent += 1;
                if verbose {
                    let _ = writeln!(text, "good     {}", rule.id);
                }
            }
            Outcome::NotAsked(why) => {
                not_asked += 1;
                if verbose {
                    let _ = writeln!(text, "-        {}: not checked: {why}", rule.id);
                }
            }
        }
    }
    let found = judged.len() - silent - not_asked;
    let device = facts.selector.as_deref().unwrap_or("this machine");
    let _ = write!(text, "{device}: {found} found, {silent} in order, {not_asked} not checked");
    if found > 0 {
        text.push_str("; more: bareverbs explain ID");
    }
    if matches!(facts.opening, Opening::NotTried) {
        text.push_str("\nno device was opened: name one with --device");
    }
    text
}
