//! Verdicts of a judge, and the table that shows them.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, Table};
use core::fmt;
use std::time::Duration;

/// The result of one case. A case runs only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it should; the text says what was seen.
    Pass(String),
    /// It did not; the text says what was seen instead.
    Fail(String),
    /// It could not run here; the text says why.
    Skip(String),
}

/// A case and its verdict.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What was tried, one word in each column.
    pub columns: Vec<String>,
    /// The result.
    pub verdict: Verdict,
    /// How long it took.
    pub elapsed: Duration,
}

/// All verdicts of a judge.
#[derive(Debug, Clone)]
pub struct Report {
    headings: Vec<&'static str>,
    entries: Vec<Entry>,
}

impl Report {
    /// An empty report. `headings` name the columns of every entry.
    pub fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), entries: Vec::new() }
    }

    /// Adds a verdict and prints it on standard error, so that a long run shows its progress.
    pub fn add(&mut self, entry: Entry) {
        eprintln!("guest: {:<60} {}", entry.columns.join(" "), entry.verdict);
        self.entries.push(entry);
    }

    /// Every row: its columns, joined by spaces, and its verdict.
    pub fn rows(&self) -> impl Iterator<Item = (String, &Verdict)> {
        self.entries.iter().map(|entry| (entry.columns.join(" "), &entry.verdict))
    }

    /// How many passed, failed and were skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count =
            |wanted: fn(&Verdict) -> bool| self.entries.iter().filter(|entry| wanted(&entry.verdict)).count();
        (
            count(|verdict| matches!(verdict, Verdict::Pass(_))),
            count(|verdict| matches!(verdict, Verdict::Fail(_))),
            count(|verdict| matches!(verdict, Verdict::Skip(_))),
        )
    }

    /// Whether nothing failed and something passed.
    pub fn is_success(&self) -> bool {
        let (passed, failed, _) = self.counts();
        passed > 0 && failed == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass(seen) if seen.is_empty() => f.write_str("pass"),
            Self::Pass(seen) => write!(f, "pass: {seen}"),
            Self::Fail(seen) => write!(f, "FAIL: {seen}"),
            Self::Skip(reason) => write!(f, "SKIPPED: {reason}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(UTF8_BORDERS_ONLY);
        table.set_header(self.headings.iter().chain(&["time", "verdict"]).map(Cell::new));
        for entry in &self.entries {
            let elapsed = format!("{:.1} s", entry.elapsed.as_secs_f64());
            let verdict = entry.verdict.to_string();
            table.add_row(entry.columns.iter().chain([&elapsed, &verdict]).map(Cell::new));
        }
        let (passed, failed, skipped) = self.counts();
        writeln!(f, "{table}")?;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdicts: &[Verdict]) -> Report {
        let mut report = Report::new(&["case"]);
        for verdict in verdicts {
            let entry =
                Entry { columns: vec!["one".into()], verdict: verdict.clone(), elapsed: Duration::ZERO };
            report.entries.push(entry);
        }
        report
    }

    #[test]
    fn a_report_succeeds_only_with_a_pass_and_without_a_failure() {
        let (pass, fail) = (Verdict::Pass(String::new()), Verdict::Fail("late".into()));
        let skip = Verdict::Skip("no root".into());
        assert!(report(&[pass.clone(), skip.clone()]).is_success());
        assert!(!report(&[pass, fail.clone()]).is_success());
        assert!(!report(&[skip]).is_success());
        assert!(report(&[fail]).to_string().contains("0 passed, 1 failed, 0 skipped"));
    }
}
