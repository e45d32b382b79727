//! Any bytes are an event or rejected; reading an event's envelope again gives the same event.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_wire::ingest::{IngestEvent, InvalidEnvelope, MAX_IDENTITY_BYTES, read};

fuzz_target!(|bytes: &[u8]| {
    match read(bytes) {
        Ok(event) => accepted(&event),
        Err(invalid) => refused(&invalid),
    }
});

fn accepted(event: &IngestEvent) {
    assert_eq!(read(event.envelope.as_bytes()).as_ref(), Ok(event));
    assert_eq!(event.envelope.trim(), event.envelope);
    let thread = event.thread_identity.as_ref();
    for text in [&event.endpoint_identity, &event.sender_identity].into_iter().chain(thread) {
        assert_eq!(text.trim(), text);
        assert!((1..=MAX_IDENTITY_BYTES).contains(&text.len()) && !text.contains('\0'));
    }
    assert!(!event.dedupe.key.contains('\0'));
    let by_content = event.dedupe.key.starts_with("hash:");
    assert_eq!(event.dedupe.previous_hour.is_some(), by_content);
    // White space around it changes nothing.
    let spaced = format!(" \n{}\t", event.envelope);
    assert_eq!(read(spaced.as_bytes()).as_ref(), Ok(event));
}

fn refused(invalid: &InvalidEnvelope) {
    assert!((1..=InvalidEnvelope::MAX_ISSUES).contains(&invalid.issues.len()));
    let message = invalid.to_string();
    assert!(message.starts_with("Invalid ingest.v1 envelope: "));
    assert!(message.len() < 20_000 && !message.contains(char::is_control));
}
