mod accepted;
mod names;
mod property;
mod refused;

use super::*;

/// A heartbeat with only the required fields.
const MINIMAL: &str = r#"{"schema_version":"connector.heartbeat.v1",
 "connector":{"connector_type":"telegram_bot","endpoint_identity":"test_bot",
  "instance_id":"0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10"},
 "status":{"state":"healthy","uptime_s":3600},
 "counters":{"messages_ingested":42,"messages_failed":1,"source_api_calls":150,
  "checkpoint_saves":10},
 "sent_at":"2026-02-15T10:30:00Z"}"#;

/// `MINIMAL` with some parts replaced.
fn with(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(MINIMAL.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old} is not in {text}");
        text.replacen(old, new, 1)
    })
}

/// `MINIMAL` with one more field.
fn and(field: &str) -> String {
    with(&[(r#""sent_at""#, &format!(r#"{field},"sent_at""#))])
}

fn good(text: &str) -> Heartbeat {
    read(text.as_bytes()).unwrap_or_else(|invalid| panic!("{invalid}\n{text}"))
}

/// Kinds and places of the issues.
fn wrong(text: &str) -> Vec<String> {
    let invalid = read(text.as_bytes()).expect_err(text);
    invalid.issues.iter().map(|issue| format!("{} {}", issue.kind, issue.at)).collect()
}
