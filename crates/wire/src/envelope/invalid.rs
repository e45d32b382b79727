//! Errors of an envelope.

use std::fmt::{self, Display};

use super::json::{JsonError, JsonErrorKind};

/// Errors of an envelope. `Display` is one line: each field, the given value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEnvelope {
    /// Protocol, as in `ingest.v1`.
    pub protocol: &'static str,
    /// The first issues, at most [`InvalidEnvelope::MAX_ISSUES`]; never empty.
    pub issues: Vec<Issue>,
    /// Number of further issues.
    pub more: usize,
}

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// For programs: `missing`, `extra_forbidden`, `timezone_required` and so on.
    pub kind: &'static str,
    /// The field, as in `source.channel` or `payload.attachments.0.width`; empty for the whole.
    pub at: String,
    /// For people.
    pub says: String,
}

impl InvalidEnvelope {
    /// Maximum number of reported issues; further ones are only counted.
    pub const MAX_ISSUES: usize = 20;

    /// Returns an error of the whole envelope.
    pub(crate) fn json(protocol: &'static str, kind: &'static str, says: String) -> Self {
        Self { protocol, issues: vec![Issue { kind, at: String::new(), says }], more: 0 }
    }

    /// Error for a missing field. Not reached: a missing field is reported as an issue first.
    pub(crate) fn missing(protocol: &'static str) -> Self {
        Self::json(protocol, "missing", "a field is missing".to_owned())
    }

    /// Returns whether a channel or provider is unknown, which a newer list may have.
    pub fn is_about_source(&self) -> bool {
        let kinds = ["literal_error", "invalid_source_provider"];
        let places = ["source", "source.channel", "source.provider"];
        let issues = &mut self.issues.iter();
        issues.any(|it| kinds.contains(&it.kind) && places.contains(&it.at.as_str()))
    }

    pub(super) fn broken(protocol: &'static str, JsonError { at, why }: JsonError) -> Self {
        match why {
            JsonErrorKind::Expected(what) => {
                let says = format!("not JSON at byte {at}: expected {what}");
                Self::json(protocol, "json_invalid", says)
            }
            JsonErrorKind::TooDeep => {
                let says = format!("nested deeper than {} at byte {at}", super::MAX_DEPTH);
                Self::json(protocol, "recursion_limit", says)
            }
        }
    }
}

impl Display for InvalidEnvelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invalid {} envelope: ", self.protocol)?;
        for (n, issue) in self.issues.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{issue}")?;
        }
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

impl Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        f.write_str(&self.says)
    }
}

impl std::error::Error for InvalidEnvelope {}
