//! Any bytes are a heartbeat or rejected; every store can keep the texts of a heartbeat.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_wire::heartbeat::{
    Heartbeat, InvalidEnvelope, MAX_CAPABILITIES_BYTES, MAX_TYPE_BYTES, connector_type_of, fits,
    read, warnings,
};
use tenure_wire::ingest::{MAX_IDENTITY_BYTES, fits_depth};

fuzz_target!(|bytes: &[u8]| {
    match read(bytes) {
        Ok(heartbeat) => accepted(bytes, &heartbeat),
        Err(invalid) => refused(&invalid),
    }
});

fn accepted(bytes: &[u8], beat: &Heartbeat) {
    assert!((1..=MAX_TYPE_BYTES).contains(&beat.connector_type.len()));
    assert!(!beat.connector_type.contains(char::is_control));
    assert!((1..=MAX_IDENTITY_BYTES).contains(&beat.endpoint_identity.len()));
    let cursor = beat.checkpoint.as_ref().and_then(|checkpoint| checkpoint.cursor.as_ref());
    let texts = [beat.labels.version.as_ref(), beat.error_message.as_ref(), cursor];
    let texts = texts.into_iter().flatten();
    for text in texts.chain([&beat.connector_type, &beat.endpoint_identity]) {
        assert_eq!(text.trim(), text);
        assert!(!text.is_empty() && !text.contains('\0'));
    }
    if let Some(json) = &beat.capabilities {
        assert!(json.len() <= MAX_CAPABILITIES_BYTES && json.starts_with('{') && fits_depth(json));
    }
    let counters = &beat.counters;
    let counts = [
        beat.uptime_s,
        counters.messages_ingested,
        counters.messages_failed,
        counters.source_api_calls,
        counters.checkpoint_saves,
        counters.dedupe_accepted,
    ];
    assert!(counts.iter().all(|count| (0..1 << 53).contains(count)));
    assert!(warnings(beat).len() < 8);
    let registered = [beat.connector_type.clone()];
    let of = connector_type_of("api", "internal", &registered);
    assert_eq!(of == beat.connector_type, fits(&beat.connector_type, "api", "internal"));
    // White space around it changes nothing.
    let spaced = [b" \n".as_slice(), bytes, b"\t"].concat();
    assert_eq!(read(&spaced).as_ref(), Ok(beat));
}

fn refused(invalid: &InvalidEnvelope) {
    assert!((1..=InvalidEnvelope::MAX_ISSUES).contains(&invalid.issues.len()));
    let message = invalid.to_string();
    assert!(message.starts_with("Invalid connector.heartbeat.v1 envelope: "));
    assert!(message.len() < 20_000 && !message.contains(char::is_control));
}
