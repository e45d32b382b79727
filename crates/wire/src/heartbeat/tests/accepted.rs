use super::*;

#[test]
fn a_minimal_heartbeat_is_read() {
    let heartbeat = Heartbeat {
        connector_type: "telegram_bot".into(),
        endpoint_identity: "test_bot".into(),
        instance_id: Uuid::from_u128(0x0198_c5a1_7b1e_7c3f_9d55_5f0a_2b6c_8e10),
        labels: Labels::default(),
        state: Health::Healthy,
        error_message: None,
        uptime_s: 3_600,
        counters: Counters {
            messages_ingested: 42,
            messages_failed: 1,
            source_api_calls: 150,
            checkpoint_saves: 10,
            dedupe_accepted: 0,
        },
        checkpoint: None,
        capabilities: None,
        sent_at_micros: 1_771_151_400_000_000,
        mended: Vec::new(),
    };
    assert_eq!(good(MINIMAL), heartbeat);
}

#[test]
fn all_that_may_be_there_is_read() {
    let text = with(&[
        (r#""instance_id""#, r#""version":" 1.2.3+abc ","instance_id""#),
        (r#""healthy""#, r#""degraded","error_message":"\t429 from <source>\n""#),
        (r#""messages_failed""#, r#""dedupe_accepted":7,"messages_failed""#),
        (
            r#""sent_at""#,
            r#""checkpoint":{"cursor":" 12345 ","updated_at":"2026-02-15T11:30:00.5+01:00"},
               "capabilities":{ "backfill": true, "a": [1e999] },"sent_at""#,
        ),
    ]);
    let heartbeat = good(&text);
    assert_eq!(heartbeat.labels.version.as_deref(), Some("1.2.3+abc"));
    assert_eq!(heartbeat.state, Health::Degraded);
    assert_eq!(heartbeat.error_message.as_deref(), Some("429 from <source>"));
    assert_eq!(heartbeat.counters.dedupe_accepted, 7);
    let checkpoint = ConnectorCheckpoint {
        cursor: Some("12345".into()),
        updated_at_micros: Some(1_771_151_400_500_000),
    };
    assert_eq!(heartbeat.checkpoint, Some(checkpoint));
    let capabilities = r#"{ "backfill": true, "a": [1e999] }"#;
    assert_eq!(heartbeat.capabilities.as_deref(), Some(capabilities));
}

#[test]
fn what_may_be_missing_may_be_null_too() {
    let texts = [
        with(&[(r#""instance_id""#, r#""version":null,"instance_id""#)]),
        with(&[(r#""healthy""#, r#""healthy","error_message":null"#)]),
        and(r#""checkpoint":null"#),
        and(r#""capabilities":null"#),
        // An empty text counts as missing.
        with(&[(r#""instance_id""#, r#""version":"  ","instance_id""#)]),
        with(&[(r#""healthy""#, r#""healthy","error_message":"""#)]),
    ];
    for text in texts {
        assert_eq!(good(&text), good(MINIMAL), "{text}");
    }
    for checkpoint in ["{}", r#"{"cursor":null,"updated_at":null}"#, r#"{"cursor":""}"#] {
        let heartbeat = good(&and(&format!(r#""checkpoint":{checkpoint}"#)));
        assert_eq!(heartbeat.checkpoint, Some(ConnectorCheckpoint::default()), "{checkpoint}");
    }
}

#[test]
fn texts_are_trimmed_and_may_say_anything_else() {
    let padded = with(&[
        ("connector.heartbeat.v1", " connector.heartbeat.v1\\n"),
        ("telegram_bot", "\u{2003}telegram_bot\\u001f"),
        ("test_bot", "\\t test_bot "),
        ("0198c5a1", " 0198c5a1"),
    ]);
    assert_eq!(good(&padded), good(MINIMAL));
    for identity in [
        "gmail:user:a@b",
        "a/b//../c?d=e&f#g%2F",
        "<script>alert('x')</script>",
        "{{ x }} ${y} `z` ; DROP TABLE",
        "Zoë 😀 \u{202e}\u{200b}",
        "line\nand\ttab",
    ] {
        let quoted = serde_json::to_string(identity).unwrap();
        let text = with(&[(r#""test_bot""#, &quoted)]);
        assert_eq!(good(&text).endpoint_identity, identity);
    }
    for name in ["a/b", "x:y@z", "<b>", "Телеграм", "a b"] {
        assert_eq!(good(&with(&[("telegram_bot", name)])).connector_type, name);
    }
}

#[test]
fn the_longest_texts_are_read() {
    let text = with(&[
        ("telegram_bot", &"é".repeat(64)),
        ("test_bot", &"é".repeat(512)),
        (r#""instance_id""#, &format!(r#""version":"{}","instance_id""#, "v".repeat(256))),
        (r#""healthy""#, &format!(r#""error","error_message":"{}""#, "m".repeat(4_096))),
        (
            r#""sent_at""#,
            &format!(
                r#""checkpoint":{{"cursor":"{}"}},"capabilities":{{"a":"{}"}},"sent_at""#,
                "c".repeat(4_096),
                "x".repeat(4_096 - 8)
            ),
        ),
    ]);
    let heartbeat = good(&text);
    assert_eq!(heartbeat.connector_type.len(), MAX_TYPE_BYTES);
    assert_eq!(heartbeat.endpoint_identity.len(), 1_024);
    assert_eq!(heartbeat.capabilities.unwrap().len(), MAX_CAPABILITIES_BYTES);
}

/// A failing connector with very long texts is still accepted.
#[test]
fn long_texts_are_cut_and_marked() {
    for (letter, count) in [("m", 4_097), ("é", 2_049), ("😀", 100_000)] {
        let long = letter.repeat(count);
        let text = with(&[
            (r#""instance_id""#, &format!(r#""version":"{long}","instance_id""#)),
            (r#""healthy""#, &format!(r#""error","error_message":"{long}""#)),
            (r#""sent_at""#, &format!(r#""checkpoint":{{"cursor":"{long}"}},"sent_at""#)),
        ]);
        let heartbeat = good(&text);
        let message = heartbeat.error_message.clone().unwrap();
        let mark = format!("... [cut: {} bytes]", long.len());
        let kept = message.strip_suffix(&mark).unwrap_or_else(|| panic!("{message}"));
        assert!(message.len() > 4_092 && message.len() <= 4_096, "{}", message.len());
        assert!(long.starts_with(kept), "{kept}");
        assert_eq!(heartbeat.checkpoint.as_ref().unwrap().cursor.as_ref(), Some(&message));
        let version = heartbeat.labels.version.as_ref().unwrap();
        assert!(version.len() > 252 && version.len() <= 256 && version.ends_with(&mark));
        let said = "was longer than 4096 bytes and was truncated";
        let expected = [
            "connector.version was longer than 256 bytes and was truncated".to_owned(),
            format!("status.error_message {said}"),
            format!("checkpoint.cursor {said}"),
        ];
        assert_eq!(warnings(&heartbeat), expected);
    }
}

#[test]
fn what_no_store_can_keep_is_replaced_or_left_out() {
    for odd in ["\\u0000", "\\ud800"] {
        let text = with(&[
            (r#""instance_id""#, &format!(r#""version":"1{odd}","instance_id""#)),
            (r#""healthy""#, &format!(r#""error","error_message":"a{odd}b""#)),
            (
                r#""sent_at""#,
                &format!(
                    r#""checkpoint":{{"cursor":"{odd}"}},"capabilities":{{"{odd}":1}},"sent_at""#
                ),
            ),
        ]);
        let heartbeat = good(&text);
        let message = heartbeat.error_message.as_deref().unwrap();
        assert!(message.starts_with("a\u{fffd}") && message.ends_with("\u{fffd}b"), "{message}");
        assert!(heartbeat.labels.version.as_deref().unwrap().starts_with("1\u{fffd}"));
        assert!(heartbeat.checkpoint.as_ref().unwrap().cursor.is_some());
        assert_eq!(heartbeat.capabilities, None);
        let said = "contained a NUL or a lone surrogate, which was replaced by U+FFFD";
        let expected = [
            format!("connector.version {said}"),
            format!("status.error_message {said}"),
            format!("checkpoint.cursor {said}"),
            "capabilities contained a NUL or a lone surrogate and was dropped".to_owned(),
        ];
        assert_eq!(warnings(&heartbeat), expected);
    }
    // Replacing characters may make a text too long; it is then cut.
    let many = "\\u0000".repeat(2_000);
    let text = with(&[(r#""healthy""#, &format!(r#""error","error_message":"{many}""#))]);
    let heartbeat = good(&text);
    let message = heartbeat.error_message.as_deref().unwrap();
    assert!(message.len() <= 4_096 && message.ends_with("... [cut: 2000 bytes]"), "{message}");
    assert_eq!(heartbeat.mended.len(), 2);
    let long = "x".repeat(4_096);
    let heartbeat = good(&and(&format!(r#""capabilities":{{"a":"{long}"}}"#)));
    assert_eq!(heartbeat.capabilities, None);
    let said = "capabilities had more than 4096 bytes of JSON and was dropped";
    assert_eq!(heartbeat.mended, [said]);
    // Two surrogate halves in separate texts do not form a character.
    let halves = good(&and(r#""capabilities":{"a":"\ud83d","b":"\ude00"}"#));
    assert_eq!((halves.capabilities, halves.mended.len()), (None, 1));
}

#[test]
fn any_form_of_a_uuid_is_read() {
    let id = "0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10";
    for form in [
        "0198C5A1-7B1E-7C3F-9D55-5F0A2B6C8E10",
        "0198c5a17b1e7c3f9d555f0a2b6c8e10",
        "{0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10}",
        "urn:uuid:0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10",
    ] {
        assert_eq!(good(&with(&[(id, form)])), good(MINIMAL), "{form}");
    }
    let nil = "00000000-0000-0000-0000-000000000000";
    assert!(good(&with(&[(id, nil)])).instance_id.is_nil());
}

#[test]
fn clocks_may_be_wrong() {
    let at = |time: &str| good(&with(&[("2026-02-15T10:30:00Z", time)])).sent_at_micros;
    assert_eq!(at("1970-01-01T00:00:00Z"), 0);
    assert_eq!(at("2200-01-01T00:00:00Z"), 7_258_118_400_000_000);
    assert_eq!(at("2026-02-15T11:30:00.123456789+01:00"), 1_771_151_400_123_456);
    assert_eq!(at("0001-01-01T00:00:00Z"), -62_135_596_800_000_000);
    assert_eq!(at("9999-12-31T23:59:59.999999Z"), 253_402_300_799_999_999);
}

#[test]
fn counters_may_be_as_large_as_json_can_tell() {
    for (old, of) in [
        (":3600", (|beat| beat.uptime_s) as fn(&Heartbeat) -> i64),
        (":42", |beat| beat.counters.messages_ingested),
        (":1,", |beat| beat.counters.messages_failed),
        (":150", |beat| beat.counters.source_api_calls),
        (":10}", |beat| beat.counters.checkpoint_saves),
    ] {
        for (new, value) in [("0", 0), ("-0", 0), ("9007199254740991", (1 << 53) - 1)] {
            let tail = &old[old.trim_end_matches([',', '}']).len()..];
            let heartbeat = good(&with(&[(old, &format!(":{new}{tail}"))]));
            assert_eq!(of(&heartbeat), value, "{old} {new}");
        }
    }
}

#[test]
fn trouble_without_a_message_is_warned_of() {
    let state = |state: &str| good(&with(&[(r#""healthy""#, state)]));
    assert_eq!(warnings(&state(r#""healthy""#)), Vec::<&str>::new());
    let says = warnings(&state(r#""degraded""#));
    assert_eq!(says, ["state is degraded without an error_message"]);
    assert_eq!(warnings(&state(r#""error""#)), ["state is error without an error_message"]);
    assert_eq!(warnings(&state(r#""error","error_message":" ""#)).len(), 1);
    assert_eq!(warnings(&state(r#""error","error_message":"why""#)), Vec::<&str>::new());
    assert_eq!(warnings(&state(r#""healthy","error_message":"why""#)), Vec::<&str>::new());
}
