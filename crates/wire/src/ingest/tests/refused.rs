use super::*;

/// A part of the minimal envelope, its replacement, and the resulting issues.
const REFUSED: &[(&str, &str, &[&str])] = &[
    ("ingest.v1", "ingest.v2", &["unsupported_schema_version schema_version"]),
    (r#""ingest.v1""#, "1", &["string_type schema_version"]),
    ("ingest.v1", " ", &["string_too_short schema_version"]),
    (r#""schema_version":"ingest.v1","#, "", &["missing schema_version"]),
    (r#""sender":{"identity":"user_eve"},"#, "", &["missing sender"]),
    (r#"{"identity":"user_eve"}"#, "{}", &["missing sender.identity"]),
    (r#"{"identity":"user_eve"}"#, "null", &["model_type sender"]),
    (r#"{"identity":"user_eve"}"#, "[]", &["model_type sender"]),
    (r#""user_eve""#, "42", &["string_type sender.identity"]),
    (r#""user_eve""#, "null", &["string_type sender.identity"]),
    ("user_eve", "", &["string_too_short sender.identity"]),
    ("user_eve", "\u{2003}\\u001f", &["string_too_short sender.identity"]),
    ("user_eve", "a\\u0000b", &["invalid_text sender.identity"]),
    ("test_bot", "\\ud800", &["invalid_text source.endpoint_identity"]),
    ("test_bot", "\\ude00\\ud83d", &["invalid_text source.endpoint_identity"]),
    ("999001", "\\udfff", &["invalid_text event.external_event_id"]),
    (r#""999001""#, "null", &["string_type event.external_event_id"]),
    (r#""channel":"telegram""#, r#""channel":"fax""#, &["literal_error source.channel"]),
    (r#""channel":"telegram""#, r#""channel":" slack""#, &["literal_error source.channel"]),
    (r#""channel":"telegram""#, r#""channel":"telegram_bot""#, &["literal_error source.channel"]),
    (r#""channel":"telegram""#, r#""channel":7"#, &["literal_error source.channel"]),
    (r#""provider":"telegram""#, r#""provider":"Telegram""#, &["literal_error source.provider"]),
    (r#""provider":"telegram""#, r#""provider":"gmail""#, &["invalid_source_provider source"]),
    (r#""channel":"telegram""#, r#""channel":"mcp""#, &["invalid_source_provider source"]),
    (r#""channel":"telegram""#, r#""channel":"email""#, &["invalid_source_provider source"]),
    (r#"{"channel""#, r#"{"kind":[{}],"channel""#, &["extra_forbidden source.kind"]),
    (r#"{"identity""#, r#"{"chat_type":"group","identity""#, &["extra_forbidden sender.chat_type"]),
    (r#"{"identity""#, r#"{"display_name":7,"identity""#, &["string_type sender.display_name"]),
    (r#""sender""#, r#""extra":{},"sender""#, &["extra_forbidden extra"]),
    (r#""sender""#, r#""Sender""#, &["extra_forbidden Sender", "missing sender"]),
    (r#"{"identity""#, r#"{"\n\u202e":1,"identity""#, &["extra_forbidden sender.\\n\\u{202e}"]),
    (r#"{"identity""#, r#"{"identity":"x","identity""#, &["duplicate_key sender.identity"]),
    (r#""sender""#, r#""\u0073ender":{"identity":"x"},"sender""#, &["duplicate_key sender"]),
    (r#"{"raw":{}"#, r#"{"raw":[]"#, &["dict_type payload.raw"]),
    (r#"{"raw":{}"#, r#"{"raw":null"#, &["dict_type payload.raw"]),
    (r#"{"raw":{},"#, "{", &["missing payload.raw"]),
    ("Hello, world!", "\\t\\n", &["string_too_short payload.normalized_text"]),
    (r#""Hello, world!"}"#, r#"1}"#, &["string_type payload.normalized_text"]),
];

#[test]
fn what_is_wrong_is_named() {
    for (old, new, expected) in REFUSED {
        assert_eq!(wrong(&with(&[(old, new)])), *expected, "{new} for {old}");
    }
}

#[test]
fn times_that_are_none_are_refused() {
    let kind = |time: &str| wrong(&with(&[(r#""2026-02-15T10:30:00Z""#, time)]));
    for time in ["2026-02-15T10:30:00", "2026-02-15T10:30:00.123456"] {
        assert_eq!(kind(&format!("{time:?}")), ["timezone_required event.observed_at"], "{time}");
    }
    for time in [
        "",
        "2026-02-15",
        "2026-02-15T10:30Z",
        "2026-02-15t10:30:00Z",
        "2026-02-15T10:30:00z",
        "2026-02-15 10:30:00Z",
        " 2026-02-15T10:30:00Z",
        "2026-02-15T10:30:00Z ",
        "2026-02-15T10:30:00ZZ",
        "2026-02-15T10:30:00.Z",
        "2026-02-15T10:30:00,5Z",
        "2026-02-15T10:30:00.1234567890Z",
        "2026-02-15T10:30:00+0100",
        "2026-02-15T10:30:00+01",
        "2026-02-15T10:30:00+1:00",
        "2026-02-15T10:30:00+24:00",
        "2026-02-15T10:30:00+01:60",
        "2026-02-15T10:30:00+01:00:00",
        "2026-02-15T10:30:00+:01:00",
        "2026-02-15T10:30:00+01:0x",
        "2026-02-15T10:30:00+00000000000000000000001:00",
        "2026-02-15T10:30:00+99999999999999999999999:00",
        "2026-02-15T24:00:00Z",
        "2026-02-15T10:60:00Z",
        "2026-02-15T10:30:60Z",
        "2026-02-30T10:30:00Z",
        "2026-02-29T10:30:00Z",
        "1900-02-29T10:30:00Z",
        "2026-04-31T10:30:00Z",
        "2026-13-01T10:30:00Z",
        "2026-00-01T10:30:00Z",
        "2026-01-00T10:30:00Z",
        "0000-01-01T10:30:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "-026-02-15T10:30:00Z",
        "+026-02-15T10:30:00Z",
        "12026-02-15T10:30:00Z",
        "２026-02-15T10:30:00Z",
    ] {
        let found = kind(&format!("{time:?}"));
        assert_eq!(found, ["rfc3339_string_required event.observed_at"], "{time}");
    }
    for value in ["1771151400", "null", "{}", "1771151400.5", "true"] {
        assert_eq!(kind(value), ["rfc3339_string_required event.observed_at"], "{value}");
    }
}

#[test]
fn control_and_attachments_are_closed_too() {
    let cases = [
        (r#""control":null"#, "model_type control"),
        (r#""control":{"policy_tier":"passive"}"#, "literal_error control.policy_tier"),
        (r#""control":{"policy_tier":null}"#, "literal_error control.policy_tier"),
        (r#""control":{"trace_context":null}"#, "dict_type control.trace_context"),
        (r#""control":{"idempotency_key":""}"#, "string_too_short control.idempotency_key"),
        (r#""control":{"ingestion_tier":"full"}"#, "extra_forbidden control.ingestion_tier"),
    ];
    for (control, expected) in cases {
        let text = with(&[(r#"world!"}}"#, &format!(r#"world!"}},{control}}}"#))]);
        assert_eq!(wrong(&text), [expected], "{control}");
    }
    let item = r#"{"media_type":"a","storage_ref":"b","size_bytes":1,"width":2}"#;
    let cases = [
        ("[1]", "1", "model_type payload.attachments.1"),
        (
            r#"[1]"#,
            r#"{"media_type":"a","storage_ref":"b"}"#,
            "missing payload.attachments.1.size_bytes",
        ),
        (":1", ":-1", "greater_than_equal payload.attachments.0.size_bytes"),
        (":1", ":1.0", "int_type payload.attachments.0.size_bytes"),
        (":1", ":1e3", "int_type payload.attachments.0.size_bytes"),
        (":1", ":\"1\"", "int_type payload.attachments.0.size_bytes"),
        (":1", ":true", "int_type payload.attachments.0.size_bytes"),
        (":1", ":null", "int_type payload.attachments.0.size_bytes"),
        (":1", ":9007199254740992", "less_than_equal payload.attachments.0.size_bytes"),
        (":2", ":0", "greater_than_equal payload.attachments.0.width"),
        (":2", ":2,\"height\":0", "greater_than_equal payload.attachments.0.height"),
        (
            ":2",
            ":2,\"source_message_id\":0",
            "extra_forbidden payload.attachments.0.source_message_id",
        ),
        ("\"a\"", "\" \"", "string_too_short payload.attachments.0.media_type"),
        (":2", ":2,\"filename\":\"\"", "string_too_short payload.attachments.0.filename"),
    ];
    for (old, new, expected) in cases {
        let items = match old {
            "[1]" => format!("[{item},{new}]"),
            _ => format!("[{}]", item.replacen(old, new, 1)),
        };
        let text = with(&[(r#"world!"}"#, &format!(r#"world!","attachments":{items}}}"#))]);
        assert_eq!(wrong(&text), [expected], "{items}");
    }
    let text = with(&[(r#"world!"}"#, r#"world!","attachments":{}}"#)]);
    assert_eq!(wrong(&text), ["list_type payload.attachments"]);
    let far = with(&[(
        r#"world!"}"#,
        &format!(
            r#"world!","attachments":[{}]}}"#,
            item.replace(":1", &format!(":-{}", "9".repeat(100)))
        ),
    )]);
    assert_eq!(wrong(&far), ["greater_than_equal payload.attachments.0.size_bytes"]);
}

#[test]
fn identities_have_a_longest_length() {
    let long = |bytes: usize| with(&[("user_eve", &"é".repeat(bytes / 2))]);
    assert_eq!(good(&long(1_024)).sender_identity.len(), 1_024);
    assert_eq!(wrong(&long(1_026)), ["string_too_long sender.identity"]);
    // Only the trimmed text counts; a payload has no such limit.
    let padded = with(&[("user_eve", &format!("{}x", " ".repeat(2_000)))]);
    assert_eq!(good(&padded).sender_identity, "x");
    good(&with(&[("Hello, world!", &"x".repeat(100_000))]));
}

#[test]
fn what_is_not_json_is_told_with_its_place() {
    let cut = MINIMAL.len() - 1;
    let cases: &[(&[u8], &str)] = &[
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark, which JSON does not allow"),
        (b"{\"a\":\"\xff\"}", "not UTF-8 at byte 6"),
        (b"{\"a\":\"\xed\xa0\x80\"}", "not UTF-8 at byte 6"),
        (b"{\"a\" 1}", "not JSON at byte 5: expected a colon"),
        (b"{\"a\":1,}", "not JSON at byte 7: expected a name in quotes"),
        (b"{\"a\":1 \"b\":2}", "not JSON at byte 7: expected a comma or }"),
        (b"{\"a\":[1,]}", "not JSON at byte 8: expected a value"),
        (b"{\"a\":[1 2]}", "not JSON at byte 8: expected a comma or ]"),
        (b"{\"a\":[1}}", "not JSON at byte 7: expected a comma or ]"),
        (b"{\"a\":{\"b\":1]}", "not JSON at byte 11: expected a comma or }"),
        (b"{\"a\":01}", "not JSON at byte 6: expected a comma or }"),
        (b"{\"a\":-}", "not JSON at byte 6: expected a digit"),
        (b"{\"a\":1.}", "not JSON at byte 7: expected a digit"),
        (b"{\"a\":1e+}", "not JSON at byte 8: expected a digit"),
        (b"{\"a\":.5}", "not JSON at byte 5: expected a value"),
        (b"{\"a\":nul}", "not JSON at byte 5: expected a value"),
        (b"{\"a\":NaN}", "not JSON at byte 5: expected a value"),
        (b"{\"a\":\"\x01\"}", "not JSON at byte 6: expected an escaped control character"),
        (b"{\"a\":\"\\x\"}", "not JSON at byte 6: expected an escape"),
        (b"{\"a\":\"\\u12g4\"}", "not JSON at byte 6: expected an escape"),
        (b"{\"a\":\"\\u+123\"}", "not JSON at byte 6: expected an escape"),
        (b"{\"a\":\"b", "not JSON at byte 7: expected the end of a string"),
        (b"{\"a\":\"b\\", "not JSON at byte 7: expected an escape"),
        (b"{'a':1}", "not JSON at byte 1: expected a name in quotes"),
        (b"{\"a\":1/**/}", "not JSON at byte 6: expected a comma or }"),
        (b"{\"a\":\x00}", "not JSON at byte 5: expected a value"),
        (b"{", "not JSON at byte 1: expected a name in quotes"),
        (&MINIMAL.as_bytes()[..cut], "expected a comma or }"),
    ];
    for (bytes, says) in cases {
        let shown = String::from_utf8_lossy(bytes);
        let invalid = read(bytes).expect_err(&shown);
        assert_eq!(invalid.issues[0].kind, "json_invalid", "{shown}");
        assert!(invalid.issues[0].says.ends_with(says), "{shown}: {invalid}");
        assert_eq!(invalid.issues.len(), 1);
    }
    for more in ["x", "{}", "\0", ","] {
        assert_eq!(wrong(&format!("{MINIMAL}{more}")), ["json_invalid "], "{more}");
    }
    for whole in ["[]", "1", "null", "\"ingest.v1\"", "true"] {
        assert_eq!(wrong(whole), ["model_type "], "{whole}");
    }
}

#[test]
fn nesting_has_a_limit_and_needs_no_stack() {
    // The envelope and its payload count as two levels.
    let nested = |depth: usize, open: &str, inside: &str, close: &str| {
        let (open, close) = (open.repeat(depth - 1), close.repeat(depth - 1));
        with(&[(r#""raw":{}"#, &format!(r#""raw":{{"a":{open}{inside}{close}}}"#))])
    };
    for (open, inside, close) in [("[", "", "]"), ("{\"a\":", "1", "}"), ("[{\"a\":", "1", "}]")] {
        let levels = open.matches(['[', '{']).count();
        good(&nested(120 / levels + 1, open, inside, close));
        assert_eq!(wrong(&nested(126 / levels, open, inside, close)), ["recursion_limit "]);
    }
    assert_eq!(wrong(&nested(123, "[", "", "]")), ["recursion_limit "]);
    // The deepest accepted envelope is readable on a page of the inbox.
    let deepest = good(&nested(122, "[", "", "]")).envelope;
    let page = format!(r#"{{"data":[{{"envelope":{deepest}}}]}}"#);
    serde_json::from_str::<serde_json::Value>(&page).unwrap();
    for deep in [10_000, 10_000_000] {
        for open in ["[", "{\"a\":"] {
            let open = open.repeat(deep);
            assert_eq!(wrong(&open), ["recursion_limit "]);
        }
        assert_eq!(wrong(&nested(deep, "[", "", "]")), ["recursion_limit "]);
    }
    let extra = with(&[(r#""sender""#, &format!(r#""x":{},"sender""#, "[".repeat(200)))]);
    assert_eq!(wrong(&extra), ["recursion_limit "]);
}

#[test]
fn all_is_told_at_once_but_not_without_end() {
    assert_eq!(
        wrong("{}"),
        [
            "missing schema_version",
            "missing source",
            "missing event",
            "missing sender",
            "missing payload"
        ]
    );
    let extras: String = (0..100).map(|n| format!("\"x{n}\":{n},")).collect();
    let invalid = read(with(&[("{", &format!("{{{extras}"))]).as_bytes()).unwrap_err();
    assert_eq!((invalid.issues.len(), invalid.more), (20, 80));
    assert!(invalid.to_string().ends_with("; and 80 more"));
}

#[test]
fn a_message_names_field_value_and_choice() {
    let text = with(&[
        (r#""channel":"telegram""#, r#""channel":"fax\n""#),
        (r#""user_eve""#, "17"),
        (r#""ingest.v1""#, &format!("\"{}\"", "y".repeat(10_000))),
    ]);
    let message = read(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        message,
        format!(
            "Invalid ingest.v1 envelope: schema_version: {:?}... is not ingest.v1; source.channel: \
             \"fax\\n\" is not one of telegram, slack, email, api, mcp; sender.identity: 17 is not \
             a string",
            "y".repeat(40)
        )
    );
    let zone = with(&[("10:30:00Z", "10:30:00")]);
    let message = read(zone.as_bytes()).unwrap_err().to_string();
    assert!(message.contains("event.observed_at: \"2026-02-15T10:30:00\" has no time zone"));
}
