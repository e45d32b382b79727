//! Messages of MCP clients, read before rmcp does.
//!
//! The arguments of a tool are taken out verbatim: rmcp would convert numbers to floating point and
//! reject envelopes for which the envelope reader has a better error.

use std::borrow::Cow;

use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

#[derive(Debug)]
pub(super) struct ClientMessage {
    /// The message, with empty arguments if it calls a tool.
    pub(super) text: Bytes,
    /// The arguments, verbatim; `None` if there are none.
    pub(super) arguments: Option<Bytes>,
    /// Its id as JSON, a string or a number; `null` if there is none.
    pub(super) id: String,
    pub(super) known: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Not JSON.
    NotJson,
    /// JSON, but not a message.
    NotMessage,
    /// The method exists, but its parameters cannot be read; with the id as JSON.
    BadParams(String),
}

/// Supported requests. rmcp reports one with unreadable parameters as an unknown method.
const KNOWN_METHODS: [&str; 4] = ["initialize", "ping", "tools/list", "tools/call"];

#[derive(Deserialize)]
struct MessageFields<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CallParams<'a> {
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl ClientMessage {
    /// Reads a JSON object.
    pub(super) fn read(bytes: Bytes) -> Result<Self, Unreadable> {
        // serde would accept an array of the fields in order.
        let is_object = bytes.trim_ascii_start().first() == Some(&b'{');
        let outer = serde_json::from_slice(&bytes).ok().filter(|_| is_object);
        let is_json = || {
            let text = std::str::from_utf8(&bytes).unwrap_or_default();
            serde_json::from_str::<IgnoredAny>(text).is_ok()
        };
        let outer: MessageFields<'_> = outer.ok_or_else(|| match is_json() {
            true => Unreadable::NotMessage,
            false => Unreadable::NotJson,
        })?;
        let id = outer.id.map(RawValue::get).filter(|id| !id.starts_with(['{', '[', 't', 'f']));
        let id = id.unwrap_or("null").to_owned();
        let known = outer.method.as_deref().is_some_and(|method| KNOWN_METHODS.contains(&method));
        let params = outer.params.filter(|_| outer.method.as_deref() == Some("tools/call"));
        let params = params.filter(|params| params.get().starts_with('{'));
        let params = params.map(|params| serde_json::from_str::<CallParams<'_>>(params.get()));
        let params = params.transpose().map_err(|_| Unreadable::BadParams(id.clone()))?;
        if known && outer.params.is_some_and(|params| !params.get().starts_with(['{', 'n'])) {
            return Err(Unreadable::BadParams(id));
        }
        let Some(found) = params.and_then(|params| params.arguments) else {
            return Ok(Self { text: bytes, arguments: None, id, known });
        };
        let arguments = bytes.slice_ref(found.get().as_bytes());
        // Cannot underflow: `arguments` is a slice of `bytes`.
        let from = arguments.as_ptr() as usize - bytes.as_ptr() as usize;
        let (before, after) = (&bytes[..from], &bytes[from + arguments.len()..]);
        let text = [before, b"{}", after].concat().into();
        Ok(Self { text, arguments: Some(arguments), id, known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Result<ClientMessage, Unreadable> {
        ClientMessage::read(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn arguments_are_taken_out_as_they_stand() {
        let message = read(
            r#"{"id": 7, "method":"tools\/call","params":{"_meta":{"a":1},"name":"x",
                "arguments" : {"n":1e400,"n":"\ud800", "m":12345678901234567890123}
            } }"#,
        );
        let message = message.unwrap();
        let expected = r#"{"n":1e400,"n":"\ud800", "m":12345678901234567890123}"#;
        assert_eq!(message.arguments.as_deref(), Some(expected.as_bytes()));
        let left: serde_json::Value = serde_json::from_slice(&message.text).unwrap();
        assert_eq!(left["params"]["arguments"], serde_json::json!({}));
        assert_eq!((left["params"]["name"].as_str(), message.id.as_str()), (Some("x"), "7"));
    }

    #[test]
    fn other_messages_stay_as_they_are() {
        for text in [
            r#"{"method":"tools/list","params":{"arguments":[1]}}"#,
            r#"{"method":"tools/call","params":{"name":"x"}}"#,
            r#"{"method":"tools/call","params":{"name":"x","arguments":null}}"#,
            r#"{"method":"tools/call"}"#,
            "{}",
        ] {
            let message = read(text).unwrap();
            assert!(message.arguments.is_none(), "{text}");
            assert_eq!(message.text, text);
            assert_eq!(message.id, "null");
        }
    }

    /// Ids are repeated in answers, each of which is one line of a stream.
    #[test]
    fn an_id_is_a_text_or_a_number() {
        for (id, expected) in [
            ("7", "7"),
            ("-1.5", "-1.5"),
            (r#""a\n""#, r#""a\n""#),
            ("null", "null"),
            ("true", "null"),
            ("[1,\n2]", "null"),
            ("{\n}", "null"),
        ] {
            let text = format!("{{\"id\":{id}}}");
            assert_eq!(ClientMessage::read(text.into()).unwrap().id, expected);
        }
        assert_eq!(read("{\"id\":\"a\nb\"}").unwrap_err(), Unreadable::NotJson);
    }

    #[test]
    fn what_is_not_one_message_is_refused() {
        for text in ["", "{", "[1", "nonsense"] {
            assert_eq!(read(text).unwrap_err(), Unreadable::NotJson, "{text}");
        }
        let not_utf_8 = ClientMessage::read(Bytes::from_static(b"{\"id\":\"\xff\"}"));
        assert_eq!(not_utf_8.unwrap_err(), Unreadable::NotJson);
        for text in [
            "[]",
            "7",
            r#"{"method":7}"#,
            r#"{"method":"tools/call","method":"tools/list","params":{}}"#,
        ] {
            assert_eq!(read(text).unwrap_err(), Unreadable::NotMessage, "{text}");
        }
        for text in [
            r#"{"id":7,"method":"tools/call","params":{"arguments":{},"arguments":{}}}"#,
            r#"{"id":7,"method":"tools/call","params":[{"a":1}]}"#,
            r#"{"id":7,"method":"tools/list","params":7}"#,
        ] {
            assert_eq!(read(text).unwrap_err(), Unreadable::BadParams("7".to_owned()), "{text}");
        }
    }
}
