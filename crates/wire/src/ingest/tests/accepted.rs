use super::*;

/// `control` with these fields.
fn control(fields: &str) -> String {
    with(&[(r#""Hello, world!"}}"#, &format!(r#""Hello, world!"}},"control":{{{fields}}}}}"#))])
}

#[test]
fn keys_are_as_published() {
    let api = with(&[
        (r#""telegram","provider":"telegram""#, r#""api","provider":"internal""#),
        ("test_bot", "webhook_receiver"),
        ("999001", "placeholder"),
        ("user_eve", "api_caller"),
        ("Hello, world!", "Test content"),
    ]);
    assert_eq!(
        good(&api).dedupe.key,
        "hash:api:webhook_receiver:api_caller:2026021510:6f6493cd3ef95421"
    );
    let unknown = with(&[("test_bot", "bot_alpha"), ("999001", "unknown")]);
    assert_eq!(
        good(&unknown).dedupe.key,
        "hash:telegram:bot_alpha:user_eve:2026021510:8b0f1b66a2a76bd0"
    );
    let named = control(r#""idempotency_key":"telegram:test_bot:12345""#);
    assert_eq!(good(&named).dedupe.key, "idem:telegram:test_bot:telegram:test_bot:12345");
    assert_eq!(good(MINIMAL).dedupe.key, "event:telegram:telegram:test_bot:999001");
}

#[test]
fn an_event_has_what_its_envelope_says() {
    let text = with(&[
        (r#""999001","#, r#""999001","external_thread_id":"chat","#),
        (r#"world!"}}"#, r#"world!"},"control":{"policy_tier":"high_priority"}}"#),
    ]);
    let event = good(&text);
    assert_eq!((&*event.channel, &*event.provider), ("telegram", "telegram"));
    assert_eq!(event.endpoint_identity, "test_bot");
    assert_eq!(event.sender_identity, "user_eve");
    assert_eq!(event.thread_identity.as_deref(), Some("chat"));
    assert_eq!(event.policy_tier, "high_priority");
    assert_eq!(event.observed_at_micros, 1_771_151_400_000_000);
    assert_eq!(event.envelope, text);
    assert_eq!(good(MINIMAL).policy_tier, "default");
    assert_eq!(good(MINIMAL).thread_identity, None);
}

#[test]
fn every_pair_is_taken() {
    for (channel, provider) in [
        ("telegram", "telegram"),
        ("slack", "slack"),
        ("email", "gmail"),
        ("email", "imap"),
        ("api", "internal"),
        ("mcp", "internal"),
    ] {
        let pair = format!(r#""{channel}","provider":"{provider}""#);
        let event = good(&with(&[(r#""telegram","provider":"telegram""#, &pair)]));
        assert_eq!((&*event.channel, &*event.provider), (channel, provider));
    }
}

#[test]
fn what_may_be_null_may_be_null() {
    let null = with(&[
        (r#""999001","#, r#""999001","external_thread_id":null,"#),
        (r#"world!"}}"#, r#"world!","attachments":null},"control":{"idempotency_key":null}}"#),
    ]);
    let (null, plain) = (good(&null), good(MINIMAL));
    assert_eq!(null.dedupe, plain.dedupe);
    assert_eq!(null.payload_digest, plain.payload_digest);
}

#[test]
fn texts_are_trimmed_like_python_does() {
    let blanks = "\\t\\n\\u000b\\f\\r\\u001c\\u001d\\u001e\\u001f \u{85}\u{a0}\u{1680}\u{2000}\
        \u{2001}\u{2002}\u{2003}\u{2004}\u{2005}\u{2006}\u{2007}\u{2008}\u{2009}\u{200a}\u{2028}\
        \u{2029}\u{202f}\u{205f}\u{3000}";
    let around = |text: &str| format!("{blanks}{text}{blanks}");
    let words = ["ingest.v1", "test_bot", "999001", "user_eve", "Hello, world!"];
    let wide: Vec<_> = words.iter().map(|word| (*word, around(word))).collect();
    let edits: Vec<_> = wide.iter().map(|(word, wide)| (*word, wide.as_str())).collect();
    assert_eq!(good(&with(&edits)), good(MINIMAL));
    // Characters that only look blank stay: a zero width space, a byte order mark.
    let event = good(&with(&[("user_eve", "\u{200b}user_eve\u{feff}")]));
    assert_eq!(event.sender_identity, "\u{200b}user_eve\u{feff}");
}

#[test]
fn times_keep_microseconds_and_their_offset() {
    for (given, kept, micros) in [
        ("2026-02-15T10:30:00.123456789+02:00", "2026-02-15T10:30:00.123456+02:00", -7_199_876_544),
        ("2026-02-15T10:30:00.9999999Z", "2026-02-15T10:30:00.999999Z", 999_999),
        ("2026-02-15T10:30:00.5-00:30", "2026-02-15T10:30:00.5-00:30", 1_800_500_000),
        ("2026-02-15T10:30:00-00:00", "2026-02-15T10:30:00-00:00", 0),
    ] {
        let event = good(&with(&[("2026-02-15T10:30:00Z", given)]));
        assert_eq!(event.envelope, with(&[("2026-02-15T10:30:00Z", kept)]));
        assert_eq!(event.observed_at_micros - good(MINIMAL).observed_at_micros, micros, "{given}");
    }
    for (given, seconds) in [
        ("1970-01-01T00:00:00Z", 0),
        ("0001-01-01T00:00:00Z", -62_135_596_800),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
        ("2000-02-29T23:59:59+23:59", 951_782_459),
        ("1969-12-31T23:59:59Z", -1),
    ] {
        let event = good(&with(&[("2026-02-15T10:30:00Z", given)]));
        assert_eq!(event.observed_at_micros, seconds * 1_000_000, "{given}");
    }
}

#[test]
fn hours_are_of_utc_and_the_one_before_is_known() {
    let at = |time| good(&with(&[("999001", "None"), ("2026-02-15T10:30:00Z", time)])).dedupe;
    let utc = at("2026-02-15T23:30:00Z");
    assert!(utc.key.contains(":2026021523:"), "{}", utc.key);
    assert_eq!(at("2026-02-16T01:30:00+02:00"), utc);
    assert_eq!(at("2026-02-15T23:59:59.999999Z").digest, utc.digest);
    let next = at("2026-02-16T00:00:00Z");
    assert!(next.key.contains(":2026021600:"), "{}", next.key);
    assert_ne!(next.digest, utc.digest);
    assert_eq!(next.previous_hour, Some(utc.digest));
    assert_eq!(good(MINIMAL).dedupe.previous_hour, None);
    assert_eq!(good(&control(r#""idempotency_key":"a""#)).dedupe.previous_hour, None);
    // The first possible hour also has a previous one.
    assert!(at("0001-01-01T00:00:00Z").previous_hour.is_some());
}

#[test]
fn placeholders_are_told_in_any_case() {
    for id in ["placeholder", "UNKNOWN", "None", " unKNOWN ", "un\u{212a}nown"] {
        assert!(good(&with(&[("999001", id)])).dedupe.key.starts_with("hash:"), "{id}");
    }
    for id in ["null", "placeholders", "0", "empty", "\u{ff4e}one"] {
        assert!(good(&with(&[("999001", id)])).dedupe.key.starts_with("event:"), "{id}");
    }
}

#[test]
fn keys_that_read_alike_are_not_the_same() {
    let key =
        |endpoint: &str, id: &str| good(&with(&[("test_bot", endpoint), ("999001", id)])).dedupe;
    let (one, other) = (key("a:b", "c"), key("a", "b:c"));
    assert_eq!(one.key, other.key);
    assert_ne!(one.digest, other.digest);
    // Each part is hashed with its length, so its boundaries matter.
    assert_ne!(key("ab", "c").digest, key("a", "bc").digest);
    // An idempotency key is not an event id, and is independent of the provider.
    let idem = |text: &str| good(&text.replace("999001", "1")).dedupe.digest;
    assert_ne!(idem(&control(r#""idempotency_key":"999001""#)), good(MINIMAL).dedupe.digest);
    let mail = |provider: &str| {
        let pair = format!(r#""email","provider":"{provider}""#);
        control(r#""idempotency_key":"k""#).replace(r#""telegram","provider":"telegram""#, &pair)
    };
    assert_eq!(good(&mail("gmail")).dedupe, good(&mail("imap")).dedupe);
}

#[test]
fn the_payload_digest_sees_content_and_not_layout() {
    let raw = |raw: &str| good(&with(&[(r#""raw":{}"#, &format!(r#""raw":{raw}"#))]));
    let digest = |text: &str| raw(text).payload_digest;
    let plain = digest(r#"{"a":[1,"x y\" z"],"b":{}}"#);
    assert_eq!(digest("{ \"a\" :\t[1 ,\r\n\"x y\\\" z\" ] , \"b\":{ } }"), plain);
    assert_ne!(digest(r#"{"a":[1,"xy\" z"],"b":{}}"#), plain);
    assert_ne!(digest(r#"{"b":{},"a":[1,"x y\" z"]}"#), plain);
    let of = |edits: &[(&str, &str)]| good(&with(edits)).payload_digest;
    let minimal = good(MINIMAL).payload_digest;
    for edit in [
        ("user_eve", "user_ev"),
        ("Hello, world!", "Hello"),
        (r#""999001","#, r#""999001","external_thread_id":"x","#),
        (
            r#"world!"}"#,
            r#"world!","attachments":[{"media_type":"a","storage_ref":"b","size_bytes":1}]}"#,
        ),
    ] {
        assert_ne!(of(&[edit]), minimal, "{edit:?}");
    }
    for edit in [
        ("999001", "999002"),
        ("test_bot", "other"),
        ("10:30:00Z", "10:31:00Z"),
        ("Hello, world!", " Hello, world! "),
        (r#"world!"}"#, r#"world!","attachments":[]}"#),
    ] {
        assert_eq!(of(&[edit]), minimal, "{edit:?}");
    }
}

#[test]
fn each_field_of_an_attachment_counts() {
    let all = r#"{"media_type":" image/png ","storage_ref":"s3://a","size_bytes":0,"filename":"f",
        "width":1,"height":9007199254740991}"#;
    let digest = |items: &str| {
        let text = with(&[(r#"world!"}"#, &format!(r#"world!","attachments":[{items}]}}"#))]);
        good(&text).payload_digest
    };
    let plain = digest(all);
    for (old, new) in [
        ("png", "gif"),
        ("s3://a", "s3://b"),
        (":0", ":2"),
        (r#""f""#, "null"),
        (":1,", ":2,"),
        (":1,", ":null,"),
        ("740991", "740990"),
    ] {
        assert_ne!(digest(&all.replacen(old, new, 1)), plain, "{old}");
    }
    assert_ne!(digest(&format!("{all},{all}")), plain);
    assert_eq!(digest(&all.replace(" image/png ", "image/png").replace(":0", ":-0")), plain);
}

#[test]
fn the_payload_keeps_what_json_can_say() {
    let raw = r#"{"n":"\u0000","s":"\ud800","\udfff":1e999,"a": [ 1 ],"a":2}"#;
    let text = with(&[
        (r#""raw":{}"#, &format!(r#""raw":{raw}"#)),
        ("Hello, world!", r#" \ud83d\u0000\u005c\" \u0041 "#),
        (
            r#"}}"#,
            &format!(
                r#","attachments":[
            {{"media_type":"\udc00","storage_ref":"\u0000 ","size_bytes":1}}]}},
            "control":{{"trace_context":{raw}}}}}"#
            ),
        ),
    ]);
    let event = good(&text);
    assert_eq!(event.envelope.matches(raw).count(), 2);
    assert!(event.envelope.contains(r#""\ud83d\u0000\\\" A""#), "{}", event.envelope);
    assert!(event.envelope.contains(r#""storage_ref":"\u0000""#), "{}", event.envelope);
    assert_eq!(good(&event.envelope), event);
}

#[test]
fn a_name_may_be_escaped_and_space_be_anywhere() {
    let text = format!(" \r\n\t{} \n", with(&[(r#""sender""#, r#""\u0073ende\u0072" "#)]));
    let event = good(&text);
    assert_eq!(event.envelope, text.trim());
    assert_eq!(event.dedupe, good(MINIMAL).dedupe);
}

fn listed(name: &str, providers: &[&str], alias: Option<&str>) -> Channel {
    Channel {
        name: name.to_owned(),
        providers: providers.iter().map(|&name| name.to_owned()).collect(),
        alias: alias.map(str::to_owned),
    }
}

#[test]
fn a_list_says_which_channels_there_are_and_whose_keys_they_have() {
    let channels = vec![
        listed("telegram", &["telegram"], None),
        listed("telegram_bot", &["telegram", "bots"], Some("telegram")),
    ];
    let rules = Rules::new(channels, Fields::Refused);
    let of = |pair: &str| {
        let text = with(&[(r#""telegram","provider":"telegram""#, pair)]);
        read_by(text.as_bytes(), &rules)
    };
    let bot = of(r#""telegram_bot","provider":"telegram""#).unwrap();
    assert_eq!((&*bot.channel, &*bot.provider), ("telegram_bot", "telegram"));
    assert_eq!(bot.dedupe, good(MINIMAL).dedupe);
    assert_eq!(bot.envelope.matches("telegram_bot").count(), 1, "kept as it was sent");
    let other = of(r#""telegram_bot","provider":"bots""#).unwrap();
    assert_eq!(other.dedupe.key, "event:telegram:bots:test_bot:999001");
    for pair in [r#""telegram","provider":"bots""#, r#""slack","provider":"telegram""#] {
        let invalid = of(pair).unwrap_err();
        assert!(invalid.is_about_source(), "{invalid}");
    }
    assert!(!read(with(&[("999001", " ")]).as_bytes()).unwrap_err().is_about_source());
    // Every kind of key.
    for edit in
        [("999001", "unknown"), (r#"world!"}}"#, r#"world!"},"control":{"idempotency_key":"k"}}"#)]
    {
        let (plain, pair) = (with(&[edit]), r#""telegram_bot","provider":"telegram""#);
        let bot = plain.replacen(r#""telegram","provider":"telegram""#, pair, 1);
        let bot = read_by(bot.as_bytes(), &rules).unwrap();
        assert_eq!(bot.dedupe, good(&plain).dedupe);
    }
}

#[test]
fn fields_that_are_not_known_are_kept_where_that_is_wanted() {
    let rules = Rules::published(Fields::Kept);
    let text = with(&[
        (r#"{"identity""#, r#"{"chat_type":"group","x":[{"y":1e400}],"identity""#),
        (r#""sender""#, r#""extra":"\u0000\ud800","sender""#),
    ]);
    let event = read_by(text.as_bytes(), &rules).unwrap();
    assert_eq!(event.envelope, text);
    assert_eq!(event.dedupe, good(MINIMAL).dedupe);
    let kinds = |text: &str| {
        let invalid = read_by(text.as_bytes(), &rules).expect_err(text);
        invalid.issues.iter().map(|it| format!("{} {}", it.kind, it.at)).collect::<Vec<_>>()
    };
    // A repeated field is still rejected, and so is an unknown word.
    let twice = with(&[(r#"{"identity""#, r#"{"x":1,"\u0078":2,"identity""#)]);
    assert_eq!(kinds(&twice), ["duplicate_key sender.x"]);
    let tier = with(&[(r#"world!"}}"#, r#"world!"},"control":{"policy_tier":"passive"}}"#)]);
    assert_eq!(kinds(&tier), ["literal_error control.policy_tier"]);
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let deep = with(&[(r#""sender""#, &format!(r#""extra":{deep},"sender""#))]);
    assert_eq!(kinds(&deep), ["recursion_limit "]);
}

#[test]
fn a_sender_may_have_a_name() {
    for name in [r#""Eve""#, "null"] {
        let text = with(&[(r#"{"identity""#, &format!(r#"{{"display_name":{name},"identity""#))]);
        assert_eq!(good(&text).envelope, text);
    }
    for name in ["a", "a_1", &"x".repeat(64)] {
        assert!(is_name(name));
    }
    for name in ["", "A", "a-b", "a b", "\u{e4}", &"x".repeat(65)] {
        assert!(!is_name(name), "{name}");
    }
}
