//! Properties of any heartbeat, compared with another parser.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A text that is stored unchanged: trimmed, not empty, without NUL.
fn word() -> impl Strategy<Value = String> {
    let odd = ":/@<>&\"\\ \t\n\u{a0}\u{3000}aZ09é😀\u{202e}\u{fffd}".chars().collect::<Vec<_>>();
    let char = prop_oneof![
        3 => prop::sample::select(odd),
        1 => any::<char>().prop_filter("no store keeps it", |char| *char != '\0'),
    ];
    let text = (prop::char::range('!', '~'), prop::collection::vec(char, 0..8));
    text.prop_map(|(first, rest)| format!("{first}{}!", rest.into_iter().collect::<String>()))
}

/// A name without control characters.
fn name() -> impl Strategy<Value = String> {
    word().prop_map(|word| word.replace(char::is_control, "_"))
}

fn count() -> impl Strategy<Value = i64> {
    prop_oneof![0..1_000_i64, Just((1 << 53) - 1), 0..1_i64 << 53]
}

fn counters() -> impl Strategy<Value = Counters> {
    let four = (count(), count(), count(), count());
    (four, count()).prop_map(|((ingested, failed, calls, saves), again)| Counters {
        messages_ingested: ingested,
        messages_failed: failed,
        source_api_calls: calls,
        checkpoint_saves: saves,
        dedupe_accepted: again,
    })
}

/// Whole seconds of the years 1970 to 2200, as [`written`] can write them.
fn micros() -> impl Strategy<Value = i64> {
    (0..84_006_i64, 0..86_400_i64).prop_map(|(day, second)| (day * 86_400 + second) * 1_000_000)
}

fn checkpoint() -> impl Strategy<Value = ConnectorCheckpoint> {
    let parts = (prop::option::of(word()), prop::option::of(micros()));
    parts.prop_map(|(cursor, updated_at_micros)| ConnectorCheckpoint { cursor, updated_at_micros })
}

fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    let capabilities = prop::collection::btree_map(word(), prop::option::of(word()), 0..3)
        .prop_map(|map| serde_json::to_string(&map).unwrap());
    let first = (name(), word(), any::<u128>(), prop::option::of(word()));
    let second = (prop::sample::select(Health::ALL.to_vec()), prop::option::of(word()), count());
    let third = (counters(), prop::option::of(checkpoint()), prop::option::of(capabilities));
    (first, second, third, micros()).prop_map(|(first, second, third, sent_at_micros)| Heartbeat {
        connector_type: first.0,
        endpoint_identity: first.1,
        instance_id: Uuid::from_u128(first.2),
        labels: Labels { version: first.3 },
        state: second.0,
        error_message: second.1,
        uptime_s: second.2,
        counters: third.0,
        checkpoint: third.1,
        capabilities: third.2,
        sent_at_micros,
        mended: Vec::new(),
    })
}

/// Formats a time by counting years and months.
fn time(micros: i64) -> String {
    let leap = |year: i64| year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
    let seconds = micros / 1_000_000;
    let (mut day, second) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    while day >= 365 + i64::from(leap(year)) {
        day -= 365 + i64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

/// The heartbeat as another JSON writer formats it.
fn written(beat: &Heartbeat, pretty: bool) -> String {
    let raw = |text: &String| serde_json::from_str::<Value>(text).unwrap();
    let checkpoint = beat.checkpoint.as_ref().map(|checkpoint| {
        let updated_at = checkpoint.updated_at_micros.map(time);
        json!({"cursor": checkpoint.cursor, "updated_at": updated_at})
    });
    let value = json!({
        "schema_version": "connector.heartbeat.v1",
        "connector": {
            "connector_type": beat.connector_type,
            "endpoint_identity": beat.endpoint_identity,
            "instance_id": beat.instance_id.to_string(),
            "version": beat.labels.version,
        },
        "status": {
            "state": beat.state.as_str(),
            "error_message": beat.error_message,
            "uptime_s": beat.uptime_s,
        },
        "counters": {
            "messages_ingested": beat.counters.messages_ingested,
            "messages_failed": beat.counters.messages_failed,
            "source_api_calls": beat.counters.source_api_calls,
            "checkpoint_saves": beat.counters.checkpoint_saves,
            "dedupe_accepted": beat.counters.dedupe_accepted,
        },
        "checkpoint": checkpoint,
        "capabilities": beat.capabilities.as_ref().map(raw),
        "sent_at": time(beat.sent_at_micros),
    });
    if pretty { format!(" {value:#}\n") } else { value.to_string() }
}

/// Replacements used to damage a text.
const PUT: &[&str] = &[
    "", "\"", "{", "}", "[", "]", ",", ":", "\\", "\\u0000", "\\ud800", "\0", "-", "1", "1.5", "e",
    "null", "true", "\u{85}", "😀",
];

/// Number of cases; more in a soak test.
fn cases(few: u32) -> u32 {
    if std::env::var_os("TENURE_SOAK").is_some() { few * 50 } else { few }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]

    #[test]
    fn what_others_write_is_read_as_they_mean_it(meant in heartbeat()) {
        prop_assert_eq!(&good(&written(&meant, false)), &meant);
        let mut read = good(&written(&meant, true));
        let parsed = |text: &String| serde_json::from_str::<Value>(text).unwrap();
        prop_assert_eq!(
            read.capabilities.as_ref().map(parsed),
            meant.capabilities.as_ref().map(parsed)
        );
        read.capabilities.clone_from(&meant.capabilities);
        prop_assert_eq!(read, meant);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }

    /// Damage is detected or leaves a valid heartbeat; another parser agrees on whether it is JSON.
    #[test]
    fn damage_never_makes_it_panic(
        meant in heartbeat(),
        places in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..6_usize, prop::sample::select(PUT)),
            1..4,
        ),
    ) {
        let mut text = written(&meant, false);
        for (at, cut, put) in places {
            let mut at = at.index(text.len());
            let mut end = (at + cut).min(text.len());
            while !text.is_char_boundary(at) { at -= 1; }
            while !text.is_char_boundary(end) { end += 1; }
            text.replace_range(at..end, put);
        }
        let json = serde_json::from_str::<&serde_json::value::RawValue>(&text);
        match read(text.as_bytes()) {
            Ok(beat) => {
                prop_assert!(json.is_ok());
                let texts = [&beat.labels.version, &beat.error_message, &beat.capabilities];
                let texts = texts.into_iter().flatten();
                for text in texts.chain([&beat.connector_type, &beat.endpoint_identity]) {
                    prop_assert!(!text.is_empty() && !text.contains('\0'));
                }
            }
            Err(invalid) => {
                let message = invalid.to_string();
                prop_assert!(!invalid.issues.is_empty() && message.len() < 20_000);
                prop_assert!(!message.contains(char::is_control), "{}", message);
                let broken = invalid.issues[0].kind == "json_invalid";
                prop_assert_eq!(broken, json.is_err(), "{}", message);
            }
        }
    }
}
