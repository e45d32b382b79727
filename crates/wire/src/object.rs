//! JSON objects that are edited as text: members that are not set keep their bytes.
//!
//! Why: docs/decisions/0043-config-and-state-are-edited-as-text.md

use std::fmt::{self, Write};
use std::ops::Range;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

/// Reason why a text is not a JSON object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidObject(String);

/// Members of a JSON object in their order, with each value as it is written.
pub(crate) struct Members<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Object).map(Self)
    }
}

/// JSON object as text. It may hold secrets, so `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    text: String,
}

impl Default for Object {
    fn default() -> Self {
        Self { text: "{}".to_owned() }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} bytes)", self.text.len())
    }
}

impl Object {
    /// Reads an object.
    pub fn read(text: impl Into<String>) -> Result<Self, InvalidObject> {
        let object = Self { text: text.into() };
        match serde_json::from_str::<Members<'_>>(&object.text) {
            Ok(_) => Ok(object),
            Err(error) if error.is_eof() && object.text.trim().is_empty() => {
                Err(InvalidObject("it is empty".to_owned()))
            }
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                Err(InvalidObject(match error.classify() {
                    Category::Data => "it is not a JSON object".to_owned(),
                    Category::Eof => {
                        format!("it is truncated (line {line}, column {column})")
                    }
                    _ => format!("it is not valid JSON (line {line}, column {column})"),
                }))
            }
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn members(&self) -> Vec<(String, &RawValue)> {
        // The text was read before, and only values are set.
        serde_json::from_str::<Members<'_>>(&self.text).map_or_else(|_| Vec::new(), |all| all.0)
    }

    /// Returns the value of a member; the last one of several, as most readers do.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.members().into_iter().rfind(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// Sets a member to a JSON value: in its place, or after all others and spaced like them.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        let members = self.members();
        let mut text = String::with_capacity(self.text.len() + name.len() + value.len() + 16);
        let mut copied = 0;
        for (_, old) in members.iter().filter(|(found, _)| found == name) {
            let at = self.place(old);
            text.push_str(&self.text[copied..at.start]);
            text.push_str(value);
            copied = at.end;
        }
        if copied == 0 {
            let (end, before_name, before_value) = self.spacing(&members);
            let (comma, name) = (if members.is_empty() { "" } else { "," }, Value::from(name));
            text.push_str(&self.text[..end]);
            // Writing to a String never fails.
            let _ = write!(text, "{comma}{before_name}{name}:{before_value}{value}");
            copied = end;
        }
        text.push_str(&self.text[copied..]);
        self.text = text;
    }

    /// Range of a value: it is a slice of the text, so its address gives its position.
    fn place(&self, value: &RawValue) -> Range<usize> {
        let start = value.get().as_ptr().addr() - self.text.as_ptr().addr();
        start..start + value.get().len()
    }

    /// Returns the position of a new member, and the spacing before name and value of the last one.
    fn spacing(&self, members: &[(String, &RawValue)]) -> (usize, &str, &str) {
        let start = self.text.find('{').map_or(0, |brace| brace + 1);
        let Some((_, last)) = members.last() else { return (start, "", "") };
        let before = members.len().checked_sub(2).and_then(|index| members.get(index));
        let before = before.map_or(start, |(_, value)| self.place(value).end);
        let Range { start, end } = self.place(last);
        let gap = &self.text[before..start];
        let named = match members {
            [_] => gap,
            _ => gap.split_once(',').map_or(gap, |(_, named)| named),
        };
        let before_value = gap.rsplit_once(':').map_or("", |(_, blank)| blank);
        let before_name = match named.len() - named.trim_start().len() {
            // With one member, the blank after its colon is also used after the comma.
            0 if members.len() == 1 => before_value,
            blank => &named[..blank],
        };
        (end, before_name, before_value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str, name: &str, value: &str) -> String {
        let mut object = Object::read(text).unwrap();
        object.set(name, value);
        assert_eq!(object.get(name).unwrap().get(), value);
        object.as_str().to_owned()
    }

    #[test]
    fn a_member_is_set_in_its_place_and_in_the_way_of_the_others() {
        for (before, after) in [
            ("{}", "{\"b\":2}"),
            (" { } \n", " {\"b\":2 } \n"),
            ("{\"a\":1}", "{\"a\":1,\"b\":2}"),
            ("{\"a\": 1}", "{\"a\": 1, \"b\": 2}"),
            ("{ \"a\" : 1 }", "{ \"a\" : 1, \"b\": 2 }"),
            ("{\n  \"a\": 1\n}\n", "{\n  \"a\": 1,\n  \"b\": 2\n}\n"),
            (
                "{\n\t\"z\":{} ,\n\t\"a:,\":[1, 2]\n}",
                "{\n\t\"z\":{} ,\n\t\"a:,\":[1, 2],\n\t\"b\":2\n}",
            ),
            ("{\"b\" : {\"b\": 7},\"a\":1e400}", "{\"b\" : 2,\"a\":1e400}"),
            ("{\"b\":1,\"a\":\"b\",\"\\u0062\":3}", "{\"b\":2,\"a\":\"b\",\"\\u0062\":2}"),
        ] {
            assert_eq!(set(before, "b", "2"), after, "{before}");
        }
    }

    #[test]
    fn the_last_of_several_counts() {
        let object = Object::read("{\"a\":1,\"a\":2}").unwrap();
        assert_eq!(object.get("a").unwrap().get(), "2");
        assert!(object.get("b").is_none());
    }

    #[test]
    fn what_is_no_object_is_told() {
        for (text, expected) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            ("[]", "it is not a JSON object"),
            ("{\n\"a\":", "it is truncated (line 2, column 4)"),
            ("{\"a\":tru}", "it is not valid JSON (line 1, column 9)"),
            ("{} {}", "it is not valid JSON (line 1, column 4)"),
            ("s3cret", "it is not valid JSON (line 1, column 1)"),
        ] {
            assert_eq!(Object::read(text).unwrap_err().to_string(), expected, "{text:?}");
        }
        assert_eq!(format!("{:?}", Object::read("{\"s\":1}").unwrap()), "Object(7 bytes)");
    }

    proptest! {
        #[test]
        fn everything_else_stays(
            members in proptest::collection::vec(("[ab:,\"\\\\{}]{0,3}", "\\PC{0,6}"), 0..6),
            pretty: bool,
            name in "[ab:,\"\\\\{}]{0,3}",
        ) {
            let line = |(name, value): &(String, String)| match pretty {
                true => format!("\n  {}: {}", Value::from(&**name), Value::from(&**value)),
                false => format!("{}:{}", Value::from(&**name), Value::from(&**value)),
            };
            let lines: Vec<String> = members.iter().map(line).collect();
            let text = set(&format!("{{{}}}", lines.join(",")), &name, "7");
            let now = Object::read(text.clone()).unwrap();
            let now: Vec<(String, String)> = now
                .members()
                .into_iter()
                .map(|(name, value)| (name, value.get().to_owned()))
                .collect();
            let mut expected: Vec<(String, String)> = members
                .iter()
                .map(|(name, value)| (name.clone(), Value::from(&**value).to_string()))
                .collect();
            let mut own = expected.iter_mut().filter(|(found, _)| *found == name).peekable();
            match own.peek().is_some() {
                true => own.for_each(|(_, value)| "7".clone_into(value)),
                false => expected.push((name.clone(), "7".to_owned())),
            }
            prop_assert_eq!(now, expected);
            // Setting the same value again changes nothing.
            prop_assert_eq!(set(&text, &name, "7"), text);
        }
    }
}
