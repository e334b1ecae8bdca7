//! Counts that may only fall: a line for each crate and what is counted there.

use std::collections::BTreeMap;
use std::fs;

const ALLOWED: &str = ".ci/architecture/ratchet";
const HEADING: &str = "# Counts that may only fall; the goal is zero. `.ci/arrows --words` names what is counted, `.ci/arrows --update` writes this file.\n";

/// A number for each crate and each counted thing.
pub type Counts = BTreeMap<(String, String), usize>;

/// Counts above the allowed ones. Counts below them are reported, so that somebody lowers the limit.
pub fn check(counts: &Counts, allowed: &Counts) -> Vec<String> {
    let mut faults = Vec::new();
    for ((place, what), count) in counts {
        let limit = allowed.get(&(place.clone(), what.clone())).copied().unwrap_or(0);
        if *count > limit {
            faults.push(format!("{place}: {count} {what}, {ALLOWED} allows {limit}; see .ci/arrows --words"));
        } else if *count < limit {
            println!(
                "{ALLOWED} may be lowered (.ci/arrows --update): {place} has {count} {what}, not {limit}"
            );
        }
    }
    faults
}

/// The checked-in counts.
pub fn allowed() -> Result<Counts, String> {
    let text = fs::read_to_string(ALLOWED).map_err(|error| format!("{ALLOWED}: {error}"))?;
    text.lines().filter(|line| !line.starts_with('#')).map(parse).collect()
}

fn parse(line: &str) -> Result<((String, String), usize), String> {
    let wrong = || format!("{ALLOWED}: not a line of this list: {line}");
    let mut words = line.splitn(3, ' ');
    let (count, place, what) = (words.next(), words.next(), words.next());
    let count = count.and_then(|count| count.parse().ok()).ok_or_else(wrong)?;
    Ok(((place.ok_or_else(wrong)?.to_owned(), what.ok_or_else(wrong)?.to_owned()), count))
}

/// Rewrites the counts.
pub fn update(counts: &Counts) -> Result<(), String> {
    let above_zero = counts.iter().filter(|(_, count)| **count > 0);
    let lines: String =
        above_zero.map(|((place, what), count)| format!("{count} {place} {what}\n")).collect();
    fs::write(ALLOWED, format!("{HEADING}{lines}")).map_err(|error| format!("{ALLOWED}: {error}"))
}
