use super::*;

/// A part of the minimal heartbeat, its replacement, and the resulting issues.
const REFUSED: &[(&str, &str, &[&str])] = &[
    ("heartbeat.v1", "heartbeat.v2", &["unsupported_schema_version schema_version"]),
    ("connector.heartbeat.v1", "ingest.v1", &["unsupported_schema_version schema_version"]),
    (r#""connector.heartbeat.v1""#, "1", &["string_type schema_version"]),
    ("connector.heartbeat.v1", "", &["string_too_short schema_version"]),
    (r#""schema_version":"connector.heartbeat.v1","#, "", &["missing schema_version"]),
    // Whole parts.
    (r#""status":{"state":"healthy","uptime_s":3600},"#, "", &["missing status"]),
    (r#"{"state":"healthy","uptime_s":3600}"#, "null", &["model_type status"]),
    (r#"{"state":"healthy","uptime_s":3600}"#, "[]", &["model_type status"]),
    (
        r#"{"state":"healthy","uptime_s":3600}"#,
        "{}",
        &["missing status.state", "missing status.uptime_s"],
    ),
    // All objects are closed.
    (r#""status""#, r#""extra":[{}],"status""#, &["extra_forbidden extra"]),
    (
        r#"{"connector_type""#,
        r#"{"host":"x","connector_type""#,
        &["extra_forbidden connector.host"],
    ),
    (r#"{"state""#, r#"{"State":"x","state""#, &["extra_forbidden status.State"]),
    (
        r#"{"messages_ingested""#,
        r#"{"messages":1,"messages_ingested""#,
        &["extra_forbidden counters.messages"],
    ),
    (r#""sent_at""#, r#""checkpoint":{"at":1},"sent_at""#, &["extra_forbidden checkpoint.at"]),
    (r#"{"state""#, r#"{"state":"error","state""#, &["duplicate_key status.state"]),
    // The connector.
    (r#""telegram_bot""#, "7", &["string_type connector.connector_type"]),
    (r#""telegram_bot""#, "null", &["string_type connector.connector_type"]),
    ("telegram_bot", " \\t", &["string_too_short connector.connector_type"]),
    ("telegram_bot", "a\\nb", &["invalid_text connector.connector_type"]),
    ("telegram_bot", "a\\u001bb", &["invalid_text connector.connector_type"]),
    ("telegram_bot", "a\\u009bb", &["invalid_text connector.connector_type"]),
    ("telegram_bot", "a\\u0000b", &["invalid_text connector.connector_type"]),
    (r#""connector_type":"telegram_bot","#, "", &["missing connector.connector_type"]),
    (r#""test_bot""#, "{}", &["string_type connector.endpoint_identity"]),
    ("test_bot", "", &["string_too_short connector.endpoint_identity"]),
    ("test_bot", "a\\u0000b", &["invalid_text connector.endpoint_identity"]),
    ("test_bot", "\\ud800", &["invalid_text connector.endpoint_identity"]),
    (r#""endpoint_identity":"test_bot","#, "", &["missing connector.endpoint_identity"]),
    ("0198c5a1-", "0198c5a1", &["uuid_parsing connector.instance_id"]),
    ("0198c5a1-", "0198c5ag-", &["uuid_parsing connector.instance_id"]),
    ("0198c5a1-", "\\ud8000198c5a1-", &["uuid_parsing connector.instance_id"]),
    (
        r#""0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10""#,
        r#""""#,
        &["string_too_short connector.instance_id"],
    ),
    (r#""0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10""#, "12", &["uuid_type connector.instance_id"]),
    (r#""0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10""#, "null", &["uuid_type connector.instance_id"]),
    (r#""instance_id""#, r#""version":1.2,"instance_id""#, &["string_type connector.version"]),
    // The status.
    (r#""healthy""#, r#""online""#, &["literal_error status.state"]),
    (r#""healthy""#, r#""Healthy""#, &["literal_error status.state"]),
    (r#""healthy""#, r#"" healthy""#, &["literal_error status.state"]),
    (r#""healthy""#, "null", &["literal_error status.state"]),
    (r#""healthy""#, "true", &["literal_error status.state"]),
    (r#""healthy""#, r#""error","error_message":[]"#, &["string_type status.error_message"]),
    // The checkpoint and the capabilities.
    (r#""sent_at""#, r#""checkpoint":[],"sent_at""#, &["model_type checkpoint"]),
    (r#""sent_at""#, r#""checkpoint":"1","sent_at""#, &["model_type checkpoint"]),
    (r#""sent_at""#, r#""checkpoint":{"cursor":1},"sent_at""#, &["string_type checkpoint.cursor"]),
    (
        r#""sent_at""#,
        r#""checkpoint":{"updated_at":1},"sent_at""#,
        &["rfc3339_string_required checkpoint.updated_at"],
    ),
    (
        r#""sent_at""#,
        r#""checkpoint":{"updated_at":"2026-02-15T10:30:00"},"sent_at""#,
        &["timezone_required checkpoint.updated_at"],
    ),
    (r#""sent_at""#, r#""capabilities":[],"sent_at""#, &["dict_type capabilities"]),
    (r#""sent_at""#, r#""capabilities":"backfill","sent_at""#, &["dict_type capabilities"]),
    // The time.
    ("10:30:00Z", "10:30:00", &["timezone_required sent_at"]),
    ("2026-02-15T10:30:00Z", "yesterday", &["rfc3339_string_required sent_at"]),
    (r#""2026-02-15T10:30:00Z""#, "1771151400", &["rfc3339_string_required sent_at"]),
    (r#""2026-02-15T10:30:00Z""#, "null", &["rfc3339_string_required sent_at"]),
    ("2026-02-15", "0000-02-15", &["rfc3339_string_required sent_at"]),
];

#[test]
fn what_is_wrong_is_named() {
    for (old, new, expected) in REFUSED {
        assert_eq!(wrong(&with(&[(old, new)])), *expected, "{new} for {old}");
    }
}

#[test]
fn counters_are_integers_that_are_not_negative() {
    let values = [
        ("-1", "greater_than_equal"),
        ("-9007199254740993", "greater_than_equal"),
        ("9007199254740992", "less_than_equal"),
        ("99999999999999999999999999999999999999999999", "less_than_equal"),
        ("1.0", "int_type"),
        ("0.5", "int_type"),
        ("1e3", "int_type"),
        (r#""1""#, "int_type"),
        ("true", "int_type"),
        ("null", "int_type"),
        ("[1]", "int_type"),
    ];
    let fields = [
        (":3600", "status.uptime_s"),
        (":42", "counters.messages_ingested"),
        (":150", "counters.source_api_calls"),
    ];
    for (value, kind) in values {
        for (old, at) in fields {
            let text = with(&[(old, &format!(":{value}"))]);
            assert_eq!(wrong(&text), [format!("{kind} {at}")], "{value}");
        }
        let text = with(&[(":1,", &format!(":{value},"))]);
        assert_eq!(wrong(&text), [format!("{kind} counters.messages_failed")], "{value}");
        let text = with(&[(":10}", &format!(r#":10,"dedupe_accepted":{value}}}"#))]);
        assert_eq!(wrong(&text), [format!("{kind} counters.dedupe_accepted")], "{value}");
        let text = with(&[(":10}", &format!(":{value}}}"))]);
        assert_eq!(wrong(&text), [format!("{kind} counters.checkpoint_saves")], "{value}");
    }
    let text = with(&[(r#""messages_ingested":42,"messages_failed":1,"#, "")]);
    let expected = ["missing counters.messages_ingested", "missing counters.messages_failed"];
    assert_eq!(wrong(&text), expected);
}

#[test]
fn names_that_are_too_long_are_refused_not_cut() {
    let long = |count: usize| "n".repeat(count);
    let cases = [
        (with(&[("telegram_bot", &long(129))]), "string_too_long connector.connector_type"),
        (with(&[("telegram_bot", &long(10_240))]), "string_too_long connector.connector_type"),
        (with(&[("test_bot", &long(1_025))]), "string_too_long connector.endpoint_identity"),
        (with(&[("test_bot", &long(10_240))]), "string_too_long connector.endpoint_identity"),
        (with(&[("0198c5a1", &long(10_240))]), "uuid_parsing connector.instance_id"),
    ];
    for (text, expected) in cases {
        assert_eq!(wrong(&text), [expected]);
        let message = read(text.as_bytes()).unwrap_err().to_string();
        assert!(message.len() < 400, "{message}");
    }
}

#[test]
fn all_is_told_at_once_but_not_without_end() {
    let missing = ["schema_version", "connector", "status", "counters", "sent_at"];
    assert_eq!(wrong("{}"), missing.map(|name| format!("missing {name}")));
    let text = with(&[
        ("heartbeat.v1", "heartbeat.v9"),
        (r#""healthy""#, "1"),
        (":42", ":-1"),
        (":150", ":true"),
        ("10:30:00Z", "10:30:00"),
        ("0198c5a1", "x"),
    ]);
    let expected = [
        "unsupported_schema_version schema_version",
        "uuid_parsing connector.instance_id",
        "literal_error status.state",
        "greater_than_equal counters.messages_ingested",
        "int_type counters.source_api_calls",
        "timezone_required sent_at",
    ];
    assert_eq!(wrong(&text), expected);
    let extras: String = (0..100).map(|n| format!("\"x{n}\":{n},")).collect();
    let invalid = read(with(&[("{", &format!("{{{extras}"))]).as_bytes()).unwrap_err();
    assert_eq!((invalid.issues.len(), invalid.more), (InvalidEnvelope::MAX_ISSUES, 80));
}

#[test]
fn messages_name_this_protocol() {
    let text = with(&[
        (r#"{"state":"healthy""#, r#"{"state":"up\n","mood":1"#),
        (r#""telegram_bot""#, "17"),
        (r#""0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10""#, r#""first""#),
    ]);
    assert_eq!(
        read(text.as_bytes()).unwrap_err().to_string(),
        "Invalid connector.heartbeat.v1 envelope: connector.connector_type: 17 is not a string; \
         connector.instance_id: \"first\" is not a UUID like 0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10; \
         status.state: \"up\\n\" is not one of healthy, degraded, error; status.mood: is not a \
         field of connector.heartbeat.v1; known fields: state, uptime_s, error_message"
    );
    let says = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let prefix = "Invalid connector.heartbeat.v1 envelope: ";
    assert_eq!(says(b""), format!("{prefix}is empty"));
    assert_eq!(says(b"{\"a\":\"\xff"), format!("{prefix}not UTF-8 at byte 6"));
    assert_eq!(says(b"[]"), format!("{prefix}an array is not an object"));
    let broken = "not JSON at byte 1: expected a name in quotes";
    assert_eq!(says(b"{"), format!("{prefix}{broken}"));
    assert!(says(format!("{MINIMAL}x").as_bytes()).ends_with("expected the end"));
    let deep = and(&format!(r#""capabilities":{{"a":{}"#, "[".repeat(200)));
    assert!(says(deep.as_bytes()).contains("nested deeper than 124"));
}
