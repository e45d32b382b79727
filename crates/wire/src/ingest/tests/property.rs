//! Properties of any envelope, compared with an independent implementation of the rules.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::envelope::json::Scanner;

/// UTF-16, which can represent lone surrogates.
type Wide = Vec<u16>;

/// The content of an envelope, independent of its notation.
#[derive(Clone, Debug)]
struct Meant {
    pair: (&'static str, &'static str),
    endpoint: Wide,
    event_id: Wide,
    thread: Option<Wide>,
    sender: Wide,
    text: Wide,
    idempotency_key: Option<Wide>,
    /// Seconds since 1970, and the time zone offset in minutes.
    at: (i64, i64),
    fraction: String,
    raw: String,
}

fn pairs() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop::sample::select(vec![
        ("telegram", "telegram"),
        ("slack", "slack"),
        ("email", "gmail"),
        ("email", "imap"),
        ("api", "internal"),
        ("mcp", "internal"),
    ])
}

/// Characters that have caused bugs: colons, blanks, quotes and others.
fn word() -> impl Strategy<Value = Wide> {
    let odd = ":\t\u{1f} \u{a0}\u{2003}\u{3000}\"\\/aZ09\u{212a}é😀\u{7f}\u{fffd}";
    let char = prop_oneof![
        3 => prop::sample::select(odd.chars().collect::<Vec<_>>()),
        1 => any::<char>().prop_filter("no store keeps it", |char| *char != '\0'),
    ];
    let chars = (prop::collection::vec(char, 0..8), prop::char::range('!', '~'));
    chars.prop_map(|(mut chars, last)| {
        chars.insert(chars.len() / 2, last);
        chars.into_iter().collect::<String>().encode_utf16().collect()
    })
}

fn event_id() -> impl Strategy<Value = Wide> {
    let known = ["placeholder", " Unknown", "NONE\t", "un\u{212a}nown", "none.", "empty", "0"];
    let known = prop::sample::select(known.to_vec());
    prop_oneof![known.prop_map(|id| id.encode_utf16().collect()), word()]
}

/// Any text that is not blank, with surrogates of all kinds.
fn said() -> impl Strategy<Value = Wide> {
    let unit = prop_oneof![any::<u16>(), 0xD7FF..0xE001_u16, 0..0x80_u16];
    (prop::collection::vec(unit, 0..12), 0x21..0x7F_u16).prop_map(|(mut units, last)| {
        units.insert(units.len() / 2, last);
        units
    })
}

/// JSON objects with white space wherever it is allowed.
fn raw() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "-0.0", "1e999", "12345678901234567890", "[ ]"])
            .prop_map(str::to_owned),
        said().prop_map(|units| quoted(&units, 1)),
    ];
    let space = || prop::sample::select(vec!["", " ", "\n", "\t\r\n "]);
    let value = leaf.prop_recursive(4, 16, 4, move |inner| {
        prop::collection::vec((space(), inner, space()), 0..4).prop_map(|items| {
            let items: Vec<_> = items.iter().map(|(a, item, b)| format!("{a}{item}{b}")).collect();
            format!("[{}]", items.join(","))
        })
    });
    let member = (space(), said(), value).prop_map(|(space, name, value)| {
        format!("{space}{}{space}:{space}{value}{space}", quoted(&name, 2))
    });
    prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(",")))
}

fn meant() -> impl Strategy<Value = Meant> {
    let boundary = (0..600_000_i64, -1..2_i64).prop_map(|(hour, odd)| hour * 3_600 + odd);
    let seconds = prop_oneof![boundary, -62_135_000_000..253_402_000_000_i64];
    (
        (pairs(), word(), event_id(), prop::option::of(word()), word(), said()),
        (prop::option::weighted(0.3, word()), seconds, -1_439..1_440_i64, "[0-9]{0,9}", raw()),
    )
        .prop_map(|(first, second)| {
            let (pair, endpoint, event_id, thread, sender, text) = first;
            let (idempotency_key, seconds, ahead, fraction, raw) = second;
            let at = (seconds, ahead);
            Meant {
                pair,
                endpoint,
                event_id,
                thread,
                sender,
                text,
                idempotency_key,
                at,
                fraction,
                raw,
            }
        })
}

/// Formats a JSON string, with all characters escaped or as few as possible.
fn quoted(units: &[u16], style: usize) -> String {
    let plain = |char: char| char >= ' ' && char != '"' && char != '\\';
    let mut out = String::from("\"");
    for char in char::decode_utf16(units.iter().copied()) {
        match char {
            Ok(char) if plain(char) && style.is_multiple_of(2) => out.push(char),
            Ok(char) => {
                let mut buffer = [0; 2];
                let escape = |unit: &u16| format!("\\u{unit:04X}");
                out.extend(char.encode_utf16(&mut buffer).iter().map(escape));
            }
            Err(lone) => out.push_str(&format!("\\u{:04x}", lone.unpaired_surrogate())),
        }
    }
    out + "\""
}

/// Returns the date of a day by counting years and months.
fn date(mut day: i64) -> (i64, i64, i64) {
    let leap = |year: i64| year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
    // 146,097 days are 400 years.
    let eras = day.div_euclid(146_097);
    day -= eras * 146_097;
    let mut year = 1970;
    while day >= 365 + i64::from(leap(year)) {
        day -= 365 + i64::from(leap(year));
        year += 1;
    }
    let february = 28 + i64::from(leap(year));
    for (month, days) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
        if day < days {
            return (year + eras * 400, month, day + 1);
        }
        day -= days;
    }
    unreachable!("a year ends")
}

impl Meant {
    fn time(&self) -> String {
        let (seconds, ahead) = self.at;
        let local = seconds + ahead * 60;
        let (year, month, day) = date(local.div_euclid(86_400));
        let second = local.rem_euclid(86_400);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let fraction = match self.fraction.as_str() {
            "" => String::new(),
            digits => format!(".{digits}"),
        };
        let offset = match ahead {
            0 => "Z".to_owned(),
            _ => {
                let sign = if ahead < 0 { '-' } else { '+' };
                format!("{sign}{:02}:{:02}", ahead.abs() / 60, ahead.abs() % 60)
            }
        };
        let time = format!("{hour:02}:{minute:02}:{second:02}{fraction}");
        format!("{year:04}-{month:02}-{day:02}T{time}{offset}")
    }

    fn written(&self, style: usize) -> String {
        let text = |units: &Wide| quoted(units, style);
        let thread = self.thread.as_ref().map_or("null".to_owned(), text);
        let mut fields = [
            "\"schema_version\": \"ingest.v1\"".to_owned(),
            format!(
                "\"source\":{{\"provider\":\"{}\",\"endpoint_identity\":{},\"channel\":\"{}\"}}",
                self.pair.1,
                text(&self.endpoint),
                self.pair.0
            ),
            format!(
                "\"event\":{{\"observed_at\":\"{}\",\"external_event_id\":{},\
                 \"external_thread_id\":{thread}}}",
                self.time(),
                text(&self.event_id)
            ),
            format!("\"sender\":{{\"identity\":{}}}", text(&self.sender)),
            format!(
                "\"payload\":{{\"normalized_text\":{},\"raw\":{}}}",
                text(&self.text),
                self.raw
            ),
            match &self.idempotency_key {
                Some(key) => format!("\"control\":{{\"idempotency_key\":{}}}", text(key)),
                None => "\"control\" : { }".to_owned(),
            },
        ];
        fields.rotate_left(style % 6);
        format!("{{{}}}", fields.join(if style.is_multiple_of(3) { "," } else { " ,\n" }))
    }

    /// Returns the key according to the published rules.
    fn key(&self) -> String {
        let text = |units: &Wide| String::from_utf16(&strip(units)).unwrap();
        let (channel, provider) = self.pair;
        let (endpoint, sender) = (text(&self.endpoint), text(&self.sender));
        if let Some(key) = &self.idempotency_key {
            return format!("idem:{channel}:{endpoint}:{}", text(key));
        }
        let id = text(&self.event_id);
        if !["placeholder", "unknown", "none", ""].contains(&id.to_lowercase().as_str()) {
            return format!("event:{channel}:{provider}:{endpoint}:{id}");
        }
        let hour = self.at.0.div_euclid(3_600);
        let (year, month, day) = date(hour.div_euclid(24));
        let bucket = format!("{year:04}{month:02}{day:02}{:02}", hour.rem_euclid(24));
        let mut hashed = surrogatepass(&strip(&self.text));
        hashed.push(b':');
        hashed.extend(sender.bytes());
        let hash = <sha2::Sha256 as sha2::Digest>::digest(&hashed);
        let digits: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("hash:{channel}:{endpoint}:{sender}:{bucket}:{digits}")
    }
}

/// Result of Python's `str.strip()`: every character that it removes is one UTF-16 unit.
fn strip(units: &[u16]) -> Wide {
    let blank = |unit: &u16| {
        let low = matches!(unit, 0x09..=0x0D | 0x1C..=0x20 | 0x85 | 0xA0 | 0x1680);
        low || matches!(unit, 0x2000..=0x200A | 0x2028 | 0x2029 | 0x202F | 0x205F | 0x3000)
    };
    let Some(first) = units.iter().position(|unit| !blank(unit)) else {
        return Wide::new();
    };
    let last = units.iter().rposition(|unit| !blank(unit)).unwrap();
    units[first..=last].to_vec()
}

/// Result of Python's `encode("utf-8", "surrogatepass")`.
fn surrogatepass(units: &[u16]) -> Vec<u8> {
    let mut out = Vec::new();
    for char in char::decode_utf16(units.iter().copied()) {
        match char {
            Ok(char) => out.extend(char.to_string().bytes()),
            Err(lone) => {
                let unit = lone.unpaired_surrogate();
                let low = |n: u16| 0x80 + u8::try_from(n % 64).unwrap();
                out.extend([0xED, low(unit / 64), low(unit)]);
            }
        }
    }
    out
}

/// The same JSON without white space outside its strings.
fn compact(json: &str) -> String {
    let pieces = json.split('"').collect::<Vec<_>>();
    // In these texts, a quote inside a string is always a `\u` escape.
    let piece = |(n, piece): (usize, &&str)| match n % 2 {
        0 => piece.replace([' ', '\n', '\t', '\r'], ""),
        _ => (*piece).to_owned(),
    };
    pieces.iter().enumerate().map(piece).collect::<Vec<_>>().join("\"")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(400)))]

    #[test]
    fn keys_are_what_the_rules_say(meant in meant(), style in 0..12_usize) {
        let event = good(&meant.written(style));
        prop_assert_eq!(&event.dedupe.key, &meant.key());
        // The event is the same in any notation and time zone.
        let mut other = meant.clone();
        other.at.1 = 0;
        let other = good(&other.written(style + 1));
        prop_assert_eq!(&other.dedupe, &event.dedupe);
        prop_assert_eq!(other.observed_at_micros, event.observed_at_micros);
        prop_assert_eq!(other.payload_digest, event.payload_digest);
        // An hour later, this hour is the previous one.
        let mut later = meant.clone();
        later.at.0 += 3_600;
        let later = good(&later.written(style)).dedupe;
        if event.dedupe.key.starts_with("hash:") {
            prop_assert_eq!(later.previous_hour, Some(event.dedupe.digest));
            prop_assert_ne!(later.digest, event.dedupe.digest);
        } else {
            prop_assert_eq!(later, event.dedupe);
        }
    }

    #[test]
    fn what_was_kept_reads_as_what_came(meant in meant(), style in 0..12_usize) {
        let event = good(&meant.written(style));
        prop_assert_eq!(&good(&event.envelope), &event);
        prop_assert!(event.envelope.contains(&meant.raw));
        let mut small = meant.clone();
        small.raw = compact(&meant.raw);
        prop_assert_eq!(good(&small.written(style)).payload_digest, event.payload_digest);
        let fraction = format!("{:0<6}", meant.fraction);
        let micros = meant.at.0 * 1_000_000 + fraction[..6].parse::<i64>().unwrap();
        prop_assert_eq!(event.observed_at_micros, micros);
        let kept = event.envelope.split("\"observed_at\":\"").nth(1).unwrap();
        let kept = kept.split('"').next().unwrap();
        let digits = kept.split_once('.').map_or(0, |(_, rest)| {
            rest.bytes().take_while(u8::is_ascii_digit).count()
        });
        prop_assert_eq!(digits, meant.fraction.len().min(6));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (read(&bytes), split_array(&bytes, 10), split_lines(&bytes, 10));
        let _ = inbox_query(&String::from_utf8_lossy(&bytes));
    }

    /// Both parsers agree on whether any text is JSON, and where it ends.
    #[test]
    fn json_is_what_others_take(
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..16),
    ) {
        let text = parts.concat();
        let mut scan = Scanner::new(&text);
        let ours = scan.skip(usize::MAX).and_then(|range| scan.end().map(|()| range));
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text);
        let ours = ours.ok().map(|range| &text[range]);
        prop_assert_eq!(ours, theirs.ok().map(serde_json::value::RawValue::get), "{}", text);
    }

    /// Damage is detected or leaves a valid envelope; another parser agrees on whether it is JSON.
    #[test]
    fn damage_never_makes_it_panic(
        meant in meant(),
        at in any::<prop::sample::Index>(),
        cut in 0..4_usize,
        put in prop::sample::select(PUT),
    ) {
        let mut text = meant.written(1);
        let mut at = at.index(text.len());
        let mut end = (at + cut).min(text.len());
        while !text.is_char_boundary(at) { at -= 1; }
        while !text.is_char_boundary(end) { end += 1; }
        text.replace_range(at..end, put);
        match read(text.as_bytes()) {
            Ok(event) => prop_assert_eq!(&good(&event.envelope), &event),
            Err(invalid) => {
                prop_assert!(!invalid.issues.is_empty() && invalid.to_string().len() < 20_000);
                let json = serde_json::from_str::<&serde_json::value::RawValue>(&text);
                let broken = invalid.issues[0].kind == "json_invalid";
                prop_assert_eq!(broken, json.is_err(), "{}", invalid);
            }
        }
        let array = format!("[{text},1]");
        if let Ok(items) = split_array(array.as_bytes(), 100) {
            let values = serde_json::from_str::<Vec<&serde_json::value::RawValue>>(&array).unwrap();
            let values: Vec<_> = values.iter().map(|value| value.get().as_bytes()).collect();
            prop_assert_eq!(items, values);
        }
    }
}

/// Tokens of JSON, and near misses.
const PARTS: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    "\"a\"",
    "\"a\":",
    "\\",
    "\\u",
    "\"\\ud800\"",
    "\"\\u00zz\"",
    "null",
    "nul",
    "true",
    "false",
    "0",
    "1",
    "-",
    ".",
    "e",
    "+",
    "1.5e-3",
    " ",
    "\n",
    "\0",
    "\u{85}",
    "/",
];

/// Replacements used to damage a text.
const PUT: &[&str] = &["", "\"", "{", "}", "[", "]", ",", ":", "\\", "\0", "1", "e", "\u{85}"];

/// Number of cases; more in a soak test.
fn cases(few: u32) -> u32 {
    if std::env::var_os("TENURE_SOAK").is_some() { few * 50 } else { few }
}

#[test]
fn what_is_generated_is_json() {
    // Checks the generators themselves.
    let text = with(&[("user_eve", "a")]);
    serde_json::from_str::<Value>(&text).unwrap();
    assert_eq!(compact("{ \"a b\" : [ 1 , \" \" ] }"), "{\"a b\":[1,\" \"]}");
    assert_eq!(date(0), (1970, 1, 1));
    assert_eq!(date(-1), (1969, 12, 31));
    assert_eq!(date(11_016), (2000, 2, 29));
    assert_eq!(quoted(&[0x41, 0xD83D], 0), r#""A\ud83d""#);
}
