//! Results of tools, as JSON text.
//!
//! rmcp carries results as values, which would lose digits of large numbers and take several times
//! their size. So rmcp gets a marker, which is replaced by the text afterwards.

use hyper::body::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::budget::{MemoryShare, paid};

/// Result of a tool: a JSON object on one line.
#[derive(Debug)]
pub(super) struct ToolResult {
    text: String,
    /// Reserved memory of a large result.
    share: Option<MemoryShare>,
}

impl ToolResult {
    pub(super) fn new(text: String, share: Option<MemoryShare>) -> Self {
        // JSON has raw line breaks only between tokens, where a space means the same.
        let text = if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text };
        Self { text, share }
    }

    /// Replaces the markers in a response: as text, and as structured content.
    pub(super) fn put_into(self, body: &[u8], mark: &str) -> Option<Bytes> {
        let body = std::str::from_utf8(body).ok()?;
        let mark = format!("\"{mark}\"");
        let mut out = String::with_capacity(body.len() + self.text.len() * 9 / 4);
        let mut rest = body;
        while let Some((before, after)) = rest.split_once(&mark) {
            out.push_str(before);
            match before.ends_with("\"structuredContent\":") {
                true => out.push_str(&self.text),
                false => out.push_str(&Value::from(self.text.as_str()).to_string()),
            }
            rest = after;
        }
        out.push_str(rest);
        Some(match self.share {
            None => out.into(),
            Some(share) => paid(out, share),
        })
    }
}

/// Makes a page of the inbox readable for strict JSON readers: an envelope with a number or a text
/// that they reject becomes a string.
pub(super) fn readable(text: String) -> String {
    if is_strict(&text) {
        return text;
    }
    match serde_json::from_str::<ResultPage<'_>>(&text) {
        Ok(page) => page.to_json(),
        Err(_) => text,
    }
}

/// `{"data":[{..,"envelope":..}],"meta":..}`, or with one message.
#[derive(serde::Deserialize)]
struct ResultPage<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(borrow, default)]
    meta: Option<&'a RawValue>,
}

type RawMessage<'a> = std::collections::BTreeMap<std::borrow::Cow<'a, str>, &'a RawValue>;

impl ResultPage<'_> {
    fn to_json(&self) -> String {
        let data = self.data.get();
        let many: Option<Vec<RawMessage<'_>>> = serde_json::from_str(data).ok();
        let data = match many {
            Some(many) => {
                let many: Vec<String> = many.iter().map(message_json).collect();
                format!("[{}]", many.join(","))
            }
            None => serde_json::from_str(data).map_or("null".to_owned(), |it| message_json(&it)),
        };
        match self.meta {
            Some(meta) => format!("{{\"data\":{data},\"meta\":{meta}}}"),
            None => format!("{{\"data\":{data}}}"),
        }
    }
}

fn message_json(message: &RawMessage<'_>) -> String {
    let fields = message.iter().map(|(name, value)| {
        let value = value.get();
        let name = Value::from(name.as_ref());
        match is_strict(value) {
            true => format!("{name}:{value}"),
            false => format!("{name}:{}", Value::from(value)),
        }
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn is_strict(text: &str) -> bool {
    serde_json::from_str::<StrictJson>(text).is_ok()
}

/// JSON that every reader accepts; the value is not kept.
struct StrictJson;

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StrictVisitor;
        impl<'de> Visitor<'de> for StrictVisitor {
            type Value = StrictJson;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }
            fn visit_bool<E>(self, _: bool) -> Result<StrictJson, E> {
                Ok(StrictJson)
            }
            fn visit_i64<E>(self, _: i64) -> Result<StrictJson, E> {
                Ok(StrictJson)
            }
            fn visit_u64<E>(self, _: u64) -> Result<StrictJson, E> {
                Ok(StrictJson)
            }
            fn visit_f64<E>(self, _: f64) -> Result<StrictJson, E> {
                Ok(StrictJson)
            }
            fn visit_str<E>(self, _: &str) -> Result<StrictJson, E> {
                Ok(StrictJson)
            }
            fn visit_unit<E>(self) -> Result<StrictJson, E> {
                Ok(StrictJson)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<StrictJson, A::Error> {
                while parts.next_element::<StrictJson>()?.is_some() {}
                Ok(StrictJson)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut parts: A) -> Result<StrictJson, A::Error> {
                while parts.next_entry::<StrictJson, StrictJson>()?.is_some() {}
                Ok(StrictJson)
            }
        }
        deserializer.deserialize_any(StrictVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_takes_the_place_of_its_mark() {
        let told = ToolResult::new("{\"n\":1.50,\r\n\"t\":\"a\\nb\"}".to_owned(), None);
        let body = br#"{"id":"MARK!","content":[{"text":"MARK"}],"structuredContent":"MARK"}"#;
        let text = told.put_into(body, "MARK").unwrap();
        let expected = r#"{"id":"MARK!","content":[{"text":"{\"n\":1.50,  \"t\":\"a\\nb\"}"}],"#
            .to_owned()
            + r#""structuredContent":{"n":1.50,  "t":"a\nb"}}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn what_a_strict_reader_refuses_is_quoted() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        let good = r#"{"data":[{"envelope":{"a":[1,-2.5,null,true,"\u00e4"]}}],"meta":{"n":1}}"#;
        assert_eq!(readable(good.to_owned()), good);
        for bad in [r#"{"a":1e400}"#, r#"{"a":"\ud800"}"#, r#"{"\udfff":1}"#, &deep] {
            let quoted = Value::from(bad);
            let page = format!(r#"{{"data":[{{"envelope":{bad},"x":[1]}}],"meta":{{"n":1}}}}"#);
            let expected =
                format!(r#"{{"data":[{{"envelope":{quoted},"x":[1]}}],"meta":{{"n":1}}}}"#);
            assert_eq!(readable(page), expected);
            let one = format!(r#"{{"data":{{"envelope":{bad}}}}}"#);
            assert_eq!(readable(one), format!(r#"{{"data":{{"envelope":{quoted}}}}}"#));
        }
    }
}
