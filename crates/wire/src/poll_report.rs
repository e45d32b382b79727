//! Newest result of a target's polls, as the report on its duty has it: JSON.

use serde::{Deserialize, Serialize};

/// Version of the format.
const SCHEMA: &str = "poll.v1";

/// The longest reason of a failure. Every byte may need six in JSON: a report stays below 4 KiB.
pub const MAX_REASON_BYTES: usize = 500;

/// State of a target after its last poll.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PollReport {
    /// Nominal time of the last poll: when it was due.
    pub due_unix_ms: u64,
    /// End of the last poll.
    pub polled_unix_ms: u64,
    /// Time that it took.
    pub duration_ms: u64,
    /// Failed polls in a row; zero after a success.
    pub failures: u64,
    /// End of the last poll that succeeded.
    pub last_success_unix_ms: Option<u64>,
    /// End of the last poll that failed.
    pub last_failure_unix_ms: Option<u64>,
    /// The beginning of its reason.
    pub last_failure: Option<String>,
    /// Time of the next poll.
    pub next_unix_ms: Option<u64>,
}

/// A report with its version.
#[derive(Serialize, Deserialize)]
struct Versioned {
    schema_version: String,
    #[serde(flatten)]
    report: PollReport,
}

impl PollReport {
    /// Whether the last poll failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Counts a poll that succeeded.
    pub fn succeeded(&mut self, unix_ms: u64) {
        (self.failures, self.last_success_unix_ms) = (0, Some(unix_ms));
    }

    /// Counts a poll that failed, and keeps the beginning of the reason.
    pub fn failed(&mut self, unix_ms: u64, reason: &str) {
        self.failures = self.failures.saturating_add(1);
        self.last_failure_unix_ms = Some(unix_ms);
        let is_boundary = |at: &usize| reason.is_char_boundary(*at);
        let end = (0..=MAX_REASON_BYTES.min(reason.len())).rev().find(is_boundary).unwrap_or(0);
        self.last_failure = Some(reason[..end].to_owned());
    }

    /// Returns the report as JSON.
    pub fn write(&self) -> Vec<u8> {
        let versioned = Versioned { schema_version: SCHEMA.to_owned(), report: self.clone() };
        // Numbers and texts always have a JSON form.
        serde_json::to_vec(&versioned).unwrap_or_default()
    }

    /// Reads a report; `None` if it is something else. Unknown fields are left out.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let found: Versioned = serde_json::from_slice(bytes).ok()?;
        (found.schema_version == SCHEMA).then_some(found.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_back_and_never_too_large() {
        let mut report = PollReport { next_unix_ms: Some(u64::MAX), ..PollReport::default() };
        report.succeeded(u64::MAX);
        assert_eq!(PollReport::read(&report.write()), Some(report.clone()));
        report.failed(u64::MAX, &"\u{1}".repeat(600));
        report.failures = u64::MAX;
        assert_eq!(PollReport::read(&report.write()), Some(report.clone()));
        assert!(report.write().len() <= 4096, "{}", report.write().len());
    }

    #[test]
    fn a_reason_is_cut_between_two_characters() {
        let mut report = PollReport::default();
        report.failed(1, &format!("x{}", "é".repeat(300)));
        assert_eq!(report.last_failure.unwrap().len(), 499);
    }

    #[test]
    fn another_format_is_no_report_and_unknown_fields_are_left_out() {
        for other in ["", "x", "{}", r#"{"schema_version":"poll.v2"}"#, r#"{"failures":1}"#] {
            assert_eq!(PollReport::read(other.as_bytes()), None, "{other}");
        }
        let newer = br#"{"schema_version":"poll.v1","failures":2,"mood":"sad"}"#;
        let report = PollReport::read(newer).unwrap();
        assert!(report.is_failing() && report.next_unix_ms.is_none());
    }
}
