mod accepted;
mod batch;
mod property;
mod query;
mod refused;

use super::*;

/// An envelope with only the required fields.
const MINIMAL: &str = r#"{"schema_version":"ingest.v1",
 "source":{"channel":"telegram","provider":"telegram","endpoint_identity":"test_bot"},
 "event":{"external_event_id":"999001","observed_at":"2026-02-15T10:30:00Z"},
 "sender":{"identity":"user_eve"},
 "payload":{"raw":{},"normalized_text":"Hello, world!"}}"#;

/// `MINIMAL` with some parts replaced.
fn with(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(MINIMAL.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old} is not in {text}");
        text.replacen(old, new, 1)
    })
}

fn good(text: &str) -> IngestEvent {
    read(text.as_bytes()).unwrap_or_else(|invalid| panic!("{invalid}\n{text}"))
}

/// Kinds and places of the issues.
fn wrong(text: &str) -> Vec<String> {
    let invalid = read(text.as_bytes()).expect_err(text);
    invalid.issues.iter().map(|issue| format!("{} {}", issue.kind, issue.at)).collect()
}
