//! Lists in JSON: `["a", {"id": "b", "zone": "eu", "paused": true, "every": "30s"}]`, or an object
//! that has such a list as its `targets`.
//!
//! Entries are read one by one, so that reading a list that is too long stops at the limit.

use std::fmt;
use std::io::Read;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use tenure_core::Listing;

use crate::collect::{Collector, Entry, EntryTime};
use crate::error::{TargetsError, bad};

pub(crate) fn read(source: impl Read, most: usize) -> Result<Listing, TargetsError> {
    let mut reading = ListReader { list: Collector::new(most), problem: None };
    let mut json = serde_json::Deserializer::from_reader(source);
    let read = json.deserialize_any(TopLevel(&mut reading)).and_then(|()| json.end());
    match (reading.problem, read) {
        (Some(problem), _) => Err(problem),
        (None, Err(error)) => Err(bad(format!("not a JSON list of targets: {error}"))),
        (None, Ok(())) => Ok(reading.list.finish()),
    }
}

struct ListReader {
    list: Collector,
    /// Error that ended the reading, unless it was a JSON error.
    problem: Option<TargetsError>,
}

impl ListReader {
    fn add<E: Error>(&mut self, entry: &Entry<'_>) -> Result<(), E> {
        self.list.add(entry).map_err(|problem| {
            let error = E::custom(&problem);
            self.problem = Some(problem);
            error
        })
    }
}

/// The outermost value.
struct TopLevel<'a>(&'a mut ListReader);

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list, or an object with a list `targets`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while entries.next_element_seed(ListEntry(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(name) = members.next_key::<String>()? {
            if name != "targets" {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            if found {
                return Err(A::Error::duplicate_field("targets"));
            }
            members.next_value_seed(EntryList(self.0))?;
            found = true;
        }
        if found { Ok(()) } else { Err(A::Error::missing_field("targets")) }
    }
}

/// The list inside of an object.
struct EntryList<'a>(&'a mut ListReader);

impl<'de> DeserializeSeed<'de> for EntryList<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(TopLevel(self.0))
    }
}

struct ListEntry<'a>(&'a mut ListReader);

impl<'de> DeserializeSeed<'de> for ListEntry<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListEntry<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id, or an object with an `id`")
    }

    fn visit_str<E: Error>(self, id: &str) -> Result<(), E> {
        self.0.add(&Entry { id, ..Entry::default() })
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<(), E> {
        self.0.add(&Entry { id: &id.to_string(), ..Entry::default() })
    }

    fn visit_i64<E: Error>(self, id: i64) -> Result<(), E> {
        self.0.add(&Entry { id: &id.to_string(), ..Entry::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        let entry = EntryObject::deserialize(MapAccessDeserializer::new(members))?;
        let id = match entry.id {
            EntryId::Text(id) => id,
            EntryId::Unsigned(id) => id.to_string(),
            EntryId::Signed(id) => id.to_string(),
        };
        self.0.add(&Entry {
            id: &id,
            zone: entry.zone.as_deref(),
            paused: entry.paused.unwrap_or_default(),
            every: entry.every.as_ref().map(JsonTime::entry),
            timeout: entry.timeout.as_ref().map(JsonTime::entry),
        })
    }
}

/// Unknown members are ignored, because sources may store more about a target.
#[derive(Deserialize)]
struct EntryObject {
    id: EntryId,
    zone: Option<String>,
    paused: Option<bool>,
    every: Option<JsonTime>,
    timeout: Option<JsonTime>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a time must be a number of seconds or text as in \"30s\"")]
enum JsonTime {
    Seconds(f64),
    Text(String),
}

impl JsonTime {
    fn entry(&self) -> EntryTime<'_> {
        match self {
            Self::Seconds(seconds) => EntryTime::Seconds(*seconds),
            Self::Text(text) => EntryTime::Text(text),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an id must be text or a whole number")]
enum EntryId {
    Text(String),
    Unsigned(u64),
    Signed(i64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::Code;

    fn listed(text: &str) -> Vec<(String, Option<String>, bool)> {
        let listing = read(text.as_bytes(), 9).unwrap();
        let plain = |target: &tenure_core::Target| {
            let zone = target.zone.as_ref().map(|zone| zone.as_str().to_owned());
            (target.id.as_str().to_owned(), zone, target.paused)
        };
        listing.targets().iter().map(plain).collect()
    }

    #[test]
    fn each_shape_is_read() {
        let eu = || Some("eu".to_owned());
        for (text, expected) in [
            ("[]", vec![]),
            (
                r#" ["b", "a", 7] "#,
                vec![("7", None, false), ("a", None, false), ("b", None, false)],
            ),
            (r#"[{"id":"a","zone":"eu","paused":true}]"#, vec![("a", eu(), true)]),
            (r#"[{"zone":null,"x":[{}],"paused":null,"id":-1}]"#, vec![("-1", None, false)]),
            (r#"{"next":null,"targets":["a"]}"#, vec![("a", None, false)]),
            (r#"["a",{"id":"a","paused":true},"a"]"#, vec![("a", None, true)]),
        ] {
            let expected =
                expected.into_iter().map(|(id, zone, paused)| (id.to_owned(), zone, paused));
            assert_eq!(listed(text), expected.collect::<Vec<_>>(), "{text}");
        }
        assert_eq!(read(&b"[1,1,1]"[..], 9).unwrap().repeated(), 2);
        let times = br#"[{"id":"a","every":"2m","timeout":0.5}]"#;
        let listing = read(&times[..], 9).unwrap();
        let target = &listing.targets()[0];
        let times = (target.every.unwrap().as_millis(), target.timeout.unwrap().as_millis());
        assert_eq!(times, (120_000, 500));
    }

    #[test]
    fn what_is_no_whole_list_is_an_error() {
        for (text, says) in [
            ("", "EOF"),
            (r#"["a","b""#, "EOF"),
            (r#"["a"] ["b"]"#, "trailing"),
            ("\"a\"", "a list, or an object"),
            ("null", "a list, or an object"),
            ("{}", "missing field `targets`"),
            (r#"{"targets":["a"],"targets":[]}"#, "duplicate field"),
            (r#"{"targets":{"targets":[]}}"#, "an object with a list"),
            (r#"["a",null]"#, "an id, or an object"),
            (r#"["a",1.5]"#, "an id, or an object"),
            (r#"["a",["b"]]"#, "an id, or an object"),
            (r#"["a",{"name":"b"}]"#, "missing field `id` at line 1 column 17"),
            (r#"["a",{"id":"b","id":"c"}]"#, "duplicate field `id`"),
            (r#"["a",{"id":[]}]"#, "an id must be text or a whole number"),
            (r#"[{"id":"b","paused":"yes"}]"#, "a boolean"),
            (r#"["a",""]"#, "entry 2: a duty id is empty"),
            (r#"["a\u0000"]"#, "entry 1: a duty id contains a control"),
            (r#"[{"id":"a","every":[]}]"#, "a time must be a number of seconds"),
            (r#"["a",{"id":"b","every":"soon"}]"#, "entry 2: every is neither"),
        ] {
            let error = read(text.as_bytes(), 9).unwrap_err();
            assert_eq!(error.code(), Code::BadTargets, "{text}");
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }

    /// An endless source is abandoned at the limit.
    #[test]
    fn a_list_without_end_is_left_at_the_limit() {
        let endless = Read::chain(&b"["[..], Endless(0));
        assert_eq!(read(endless, 1000).unwrap_err().code(), Code::TooManyTargets);

        struct Endless(usize);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                for byte in buffer.iter_mut() {
                    *byte = b"1,"[self.0 % 2];
                    self.0 += 1;
                }
                Ok(buffer.len())
            }
        }
    }
}
