//! Many events in one request, each with an outcome of its own.

use std::fmt;

use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserializer;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tenure_wire::ingest;
use uuid::Uuid;

use super::answer::{Answer, Refusal, Refused, json_value};
use super::content::Form;
use super::ingest::{LARGEST, invalid_envelope, refused, submit};
use super::{Asked, body, content};
use crate::access::{Caller, Need};
use crate::storage::{Item, Outcome, Submission};
use crate::token::Role;

/// The largest batch, in bytes.
pub(super) const LARGEST_BATCH: usize = 8 << 20;
/// The most events of a batch.
const MOST: usize = 1_000;

impl Asked<'_> {
    /// `POST /api/switchboard/ingest/batch`.
    pub(super) async fn batch(self, body: Incoming) -> Result<Answer, Refused> {
        let caller = self.caller(Need::Role(Role::Ingest)).await?;
        self.no_query()?;
        let fence = content::fence(&self.head.headers)?;
        let form = content::batch(&self.head.headers)?;
        let whole = body::read(self.state, body, LARGEST_BATCH).await?;
        let text = std::str::from_utf8(&whole.bytes)
            .map_err(|_| Refusal::bad_request("the batch is not in UTF-8"))?;
        let parts = split(text, form)?;
        let mut results = Vec::with_capacity(parts.len());
        let mut items = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            match judge(part, &caller) {
                Ok(item) => {
                    items.push(item);
                    results.push(None);
                }
                Err(refusal) => {
                    refused(self.state, &caller, &refusal, 1);
                    results.push(Some(refusal.item(index)));
                }
            }
        }
        drop(whole.bytes);
        let outcomes = match items.is_empty() && fence.is_none() {
            true => Vec::new(),
            false => {
                let token_id = caller.token_id().map(str::to_owned);
                let submission = Submission { items, fence, token_id };
                submit(self.state, &caller, submission, whole.share).await?
            }
        };
        Ok(json_value(StatusCode::ACCEPTED, &told(results, outcomes)))
    }
}

fn judge(part: &str, caller: &Caller) -> Result<Item, Refused> {
    if part.len() > LARGEST {
        return Err(Refusal::too_large(LARGEST));
    }
    let event = ingest::read(part.as_bytes()).map_err(|invalid| invalid_envelope(&invalid))?;
    caller.permits(event.channel, event.provider, &event.endpoint_identity)?;
    Ok(Item { request_id: Uuid::now_v7(), event })
}

/// Puts the outcomes where no error stands yet.
fn told(results: Vec<Option<Value>>, outcomes: Vec<Option<Outcome>>) -> Value {
    let (mut accepted, mut duplicates, mut rejected) = (0, 0, 0);
    let mut outcomes = outcomes.into_iter();
    let mut told = Vec::with_capacity(results.len());
    for (index, result) in results.into_iter().enumerate() {
        let result = result.or_else(|| match outcomes.next().flatten() {
            None => Some(Refusal::unstorable().item(index)),
            Some(outcome) => {
                accepted += usize::from(!outcome.duplicate);
                duplicates += usize::from(outcome.duplicate);
                told.push(json!({
                    "index": index,
                    "status": "accepted",
                    "request_id": outcome.request_id.to_string(),
                    "duplicate": outcome.duplicate,
                }));
                None
            }
        });
        if let Some(error) = result {
            rejected += 1;
            told.push(error);
        }
    }
    json!({
        "results": told,
        "accepted": accepted,
        "duplicates": duplicates,
        "rejected": rejected,
    })
}

/// The envelopes of a batch, not read yet.
fn split(text: &str, form: Form) -> Result<Vec<&str>, Refused> {
    let parts = match form {
        Form::Lines => {
            let lines = text.split('\n').map(str::trim_ascii).filter(|line| !line.is_empty());
            lines.take(MOST + 1).collect()
        }
        Form::Json => {
            let mut reader = serde_json::Deserializer::from_str(text);
            let parts = reader.deserialize_seq(Parts);
            let parts = parts.map_err(|error| broken(&error))?;
            // Of what comes after too many nothing was read.
            if parts.len() <= MOST {
                reader.end().map_err(|error| broken(&error))?;
            }
            parts
        }
    };
    if parts.len() > MOST { Err(Refusal::too_many_items(MOST)) } else { Ok(parts) }
}

fn broken(error: &serde_json::Error) -> Refused {
    let (line, column) = (error.line(), error.column());
    let message = format!("the batch is not a JSON array: line {line}, column {column}");
    Refusal::bad_request(message)
}

/// Reads an array without looking into its elements, and not much further than is allowed.
struct Parts;

impl<'de> Visitor<'de> for Parts {
    type Value = Vec<&'de str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = array.next_element::<&RawValue>()? {
            parts.push(part.get());
            if parts.len() > MOST {
                break;
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_taken_apart_without_reading_them() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let array = format!(" [1, {{\"a\": [2]}} ,\"x,y\",{deep}] ");
        let parts = split(&array, Form::Json).unwrap();
        assert_eq!(parts[..3], ["1", r#"{"a": [2]}"#, r#""x,y""#]);
        assert_eq!(parts[3].len(), 20_000);
        assert_eq!(split("[]", Form::Json).unwrap().len(), 0);
        let lines = split("\n{\"a\":1}\r\n\n  \nbroken\n2", Form::Lines).unwrap();
        assert_eq!(lines, ["{\"a\":1}", "broken", "2"]);
        assert!(split("", Form::Lines).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_array_is_refused_as_a_whole() {
        for bad in ["", "{}", "[", "[1", "[1,]", "[1] x", "1", "null", "[1 2]", "[\"\\u12\"]"] {
            let refusal = split(bad, Form::Json).unwrap_err();
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{bad}");
        }
    }

    #[test]
    fn no_batch_is_longer_than_the_limit() {
        let array = |n: usize| format!("[{}1]", "1,".repeat(n - 1));
        assert_eq!(split(&array(MOST), Form::Json).unwrap().len(), MOST);
        for (text, form) in [(array(MOST + 1), Form::Json), ("1\n".repeat(MOST + 1), Form::Lines)] {
            let refusal = split(&text, form).unwrap_err();
            assert_eq!(refusal.status, StatusCode::PAYLOAD_TOO_LARGE);
        }
        // Nothing is kept of millions.
        assert!(split(&array(2_000_000), Form::Json).is_err());
    }
}
