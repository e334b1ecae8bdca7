//! The result of a rule.

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Works, but could be better or is worth knowing.
    Note,
    /// Works, but slowly or not always.
    Warning,
    /// Cannot work.
    Bad,
}

impl Severity {
    /// Its printed form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct Found {
    pub(in crate::doctor) severity: Severity,
    /// The observed values.
    pub(in crate::doctor) evidence: String,
    /// The command or action that fixes it.
    pub(in crate::doctor) fix: String,
}

/// What a rule says about the facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) enum Outcome {
    /// The facts are missing.
    NotAsked(&'static str),
    Silent,
    Fires(Found),
}

impl Outcome {
    pub(in crate::doctor) const fn severity(&self) -> Option<Severity> {
        match self {
            Self::Fires(found) => Some(found.severity),
            _ => None,
        }
    }

    /// A finding, if there is one.
    pub(super) fn of(found: Option<Found>) -> Self {
        found.map_or(Self::Silent, Self::Fires)
    }
}

pub(in crate::doctor) fn bad(evidence: impl Into<String>, fix: impl Into<String>) -> Found {
    Found { severity: Severity::Bad, evidence: evidence.into(), fix: fix.into() }
}

pub(in crate::doctor) fn warning(evidence: impl Into<String>, fix: impl Into<String>) -> Found {
    Found { severity: Severity::Warning, ..bad(evidence, fix) }
}

pub(in crate::doctor) fn note(evidence: impl Into<String>, fix: impl Into<String>) -> Found {
    Found { severity: Severity::Note, ..bad(evidence, fix) }
}
