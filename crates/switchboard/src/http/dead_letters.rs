//! Endpoints: dead letters, the events that connectors gave up.

use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenure_wire::ingest;
use uuid::Uuid;

use super::connectors::ReasonRequest;
use super::content::{MAX_REASON_BYTES, check, parse, reject};
use super::inbox::reserve;
use super::ingest::{MAX_EVENT_BYTES, count_rejected, invalid_envelope, submit};
use super::response::{ApiError, ApiResult, Rejection, json_value, ok};
use super::{ApiRequest, content};
use crate::storage::{
    DeadLetter, Decision, LetterQuery, LetterResolution, PostOutcome, ResolveOutcome, SourceScope,
    StoredLetter, Submission, SubmittedEvent,
};
use crate::view;

/// Maximum size of a letter, and of a corrected envelope.
pub(super) const MAX_LETTER_BYTES: usize = MAX_EVENT_BYTES;
const MAX_NAME_BYTES: usize = ingest::MAX_IDENTITY_BYTES;
const CLASSES: [&str; 5] =
    ["validation_error", "timeout", "overload_rejected", "internal_error", "other"];
const STATES: [&str; 3] = ["pending", "replayed", "discarded"];
/// Letters read at a time: each may be large.
const READ_ROWS: usize = 4;
const LIST_BYTES: usize = 4 << 20;
/// Memory reserved for a list: the response, and the letters that were read last.
const MAX_LIST_MEMORY: usize = 12 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewDeadLetter<'a> {
    source: SourceScope,
    external_event_id: Option<String>,
    error_class: String,
    reason: String,
    attempts: Option<i64>,
    #[serde(borrow)]
    envelope: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayRequest<'a> {
    #[serde(borrow)]
    envelope: Option<&'a RawValue>,
}

impl ApiRequest<'_> {
    pub(super) async fn post_letter(self, body: Incoming) -> ApiResult {
        let caller = self.caller;
        let fence = content::fence(&self.head.headers)?;
        let whole = self.json(body).await?;
        let letter = read(&whole.bytes)?;
        let permitted =
            caller.permits(&letter.channel, &letter.provider, &letter.endpoint_identity);
        if let Err(error) = permitted {
            count_rejected(self.state, caller, &error, &self.state.metrics.rejected);
            return Err(error);
        }
        let storage = &self.state.storage;
        match storage.post_letter(&letter, fence.as_ref(), caller.token_id()).await? {
            PostOutcome::Kept { id, duplicate } => {
                let kept =
                    json!({ "id": id.to_string(), "status": "kept", "duplicate": duplicate });
                Ok(json_value(StatusCode::ACCEPTED, &kept))
            }
            PostOutcome::Rejected(why) => Err(self.state.rejected(caller, fence.as_ref(), &why)),
        }
    }

    pub(super) async fn letters(self, _: Incoming) -> ApiResult {
        let mut words = self.query()?;
        let after = words.text("after").map(|text| Uuid::try_parse(&text)).transpose();
        let bad_id = "query parameter after: is not the id of a dead letter";
        let mut query = LetterQuery {
            after: after.map_err(|_| ApiError::bad_request(bad_id))?,
            limit: 0,
            state: words.text("state"),
            endpoint_identity: words.text("endpoint"),
            ..LetterQuery::default()
        };
        let limit = words.number("limit", (1, 100))?.unwrap_or(20);
        words.end()?;
        if query.state.as_deref().is_some_and(|state| !STATES.contains(&state)) {
            let message = "query parameter state: is not pending, replayed or discarded";
            return Err(ApiError::bad_request(message));
        }
        let endpoint = query.endpoint_identity.as_ref();
        if endpoint.is_some_and(|it| it.is_empty() || it.len() > MAX_NAME_BYTES) {
            let message =
                format!("query parameter endpoint: is empty or longer than {MAX_NAME_BYTES} bytes");
            return Err(ApiError::bad_request(message));
        }
        let LetterQuery { channel, provider, endpoint_identity, .. } = &mut query;
        self.caller.narrow([channel, provider, endpoint_identity])?;
        let mut page = reserve(self.state, MAX_LIST_MEMORY).await?;
        let (mut listed, mut more) = (0, true);
        while more && listed < limit && page.text.len() < LIST_BYTES {
            query.limit = READ_ROWS.min(limit - listed);
            let found = self.state.storage.letters(&query).await?;
            more = found.len() == query.limit;
            query.after = found.last().map_or(query.after, |kept| Some(kept.letter.id));
            // Consumes the letters one by one, so that none is in memory twice.
            for kept in found {
                write_letter(page.item(), &kept);
                listed += 1;
            }
        }
        let next = query.after.filter(|_| more).map(|id| id.to_string());
        page.end(json!({ "next_after": next })).response()
    }

    pub(super) async fn letter(self, _: Incoming) -> ApiResult {
        self.no_query()?;
        let mut page = reserve(self.state, MAX_LIST_MEMORY / 2).await?;
        let kept = self.kept().await?;
        let of = &kept.letter;
        if !self.caller.may_read(&of.channel, &of.provider, &of.endpoint_identity) {
            return Err(not_found());
        }
        page.text.push_str("{\"data\":");
        write_letter(&mut page.text, &kept);
        page.text.push('}');
        page.response()
    }

    pub(super) async fn replay(self, body: Incoming) -> ApiResult {
        let caller = self.caller;
        self.no_query()?;
        let whole = self.body(body).await?;
        if !whole.bytes.is_empty() {
            content::json(&self.head.headers)?;
        }
        let kept = self.kept().await?;
        if kept.state != "pending" {
            return Err(already(&kept.state));
        }
        let corrected = corrected(&whole.bytes)?;
        let envelope = corrected.unwrap_or(&kept.letter.envelope);
        let event = self.state.channels.reader().await?.read(envelope.as_bytes()).await?;
        let event = event.map_err(|invalid| invalid_envelope(&invalid))?;
        let items = vec![SubmittedEvent { request_id: Uuid::now_v7(), event }];
        let token_id = caller.token_id().map(str::to_owned);
        let submission = Submission { items, fence: None, token_id };
        let outcome = submit(self.state, caller, submission, whole.share).await?.pop();
        let outcome = outcome.and_then(Result::ok).ok_or_else(ApiError::unstorable)?;
        let why = if corrected.is_some() {
            "replayed with a corrected envelope"
        } else {
            "replayed unchanged"
        };
        self.resolve("replayed", caller.decision(why), Some(outcome.request_id)).await?;
        let answer = json!({
            "id": kept.letter.id.to_string(),
            "state": "replayed",
            "request_id": outcome.request_id.to_string(),
            "duplicate": outcome.duplicate,
        });
        Ok(json_value(StatusCode::ACCEPTED, &answer))
    }

    pub(super) async fn discard(self, body: Incoming) -> ApiResult {
        let (_, decision) = self.command(body, "discard request", ReasonRequest::reason).await?;
        self.resolve("discarded", decision, None).await?;
        ok(&json!({ "id": self.letter_id()?.to_string(), "state": "discarded" }))
    }

    async fn resolve(
        self,
        state: &'static str,
        decision: Decision,
        request_id: Option<Uuid>,
    ) -> ApiResult<()> {
        let resolution = LetterResolution { id: self.letter_id()?, state, decision, request_id };
        let resolved = self.permitted(self.state.storage.resolve_letter(&resolution).await?);
        let resolved = resolved.map_err(|ended| match request_id {
            None => ended,
            Some(_) => ApiError::conflict(
                "the token ended during this request; the envelope was submitted, but the dead \
                 letter is still pending: replaying it again is harmless",
            ),
        });
        match resolved? {
            ResolveOutcome::Done => Ok(()),
            // Another request resolved it after this one had submitted its envelope.
            ResolveOutcome::Before if request_id.is_some() => Err(ApiError::conflict(
                "another request resolved this dead letter first; the envelope was submitted",
            )),
            ResolveOutcome::Before => Err(already("resolved")),
            ResolveOutcome::Nothing => Err(not_found()),
        }
    }

    fn letter_id(self) -> ApiResult<Uuid> {
        Uuid::try_parse(self.parameters[0]).map_err(|_| not_found())
    }

    async fn kept(self) -> ApiResult<StoredLetter> {
        self.state.storage.letter(self.letter_id()?).await?.ok_or_else(not_found)
    }
}

fn not_found() -> Rejection {
    ApiError::not_found("there is no dead letter with this id")
}

fn already(state: &str) -> Rejection {
    ApiError::conflict(format!("this dead letter is already {state}; nothing was changed"))
}

/// Reads the corrected envelope, if one was sent.
fn corrected(bytes: &Bytes) -> ApiResult<Option<&str>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let asked: ReplayRequest<'_> = parse(bytes, "replay request")?;
    Ok(asked.envelope.map(RawValue::get))
}

fn read(bytes: &[u8]) -> ApiResult<DeadLetter> {
    let letter: NewDeadLetter<'_> = parse(bytes, "dead letter")?;
    let mut wrong = Vec::new();
    check(&mut wrong, "source.channel", &letter.source.channel, MAX_NAME_BYTES);
    check(&mut wrong, "source.provider", &letter.source.provider, MAX_NAME_BYTES);
    check(&mut wrong, "source.endpoint_identity", &letter.source.endpoint_identity, MAX_NAME_BYTES);
    if let Some(id) = &letter.external_event_id {
        check(&mut wrong, "external_event_id", id, MAX_NAME_BYTES);
    }
    check(&mut wrong, "reason", &letter.reason, MAX_REASON_BYTES);
    if !CLASSES.contains(&letter.error_class.as_str()) {
        wrong.push(("error_class", format!("is not one of {}", CLASSES.join(", "))));
    }
    let attempts = letter.attempts.unwrap_or(1);
    if attempts < 1 {
        wrong.push(("attempts", "is less than 1".to_owned()));
    }
    reject("dead letter", wrong)?;
    Ok(DeadLetter {
        id: Uuid::now_v7(),
        digest: digest(&letter),
        channel: letter.source.channel,
        provider: letter.source.provider,
        endpoint_identity: letter.source.endpoint_identity,
        external_event_id: letter.external_event_id,
        error_class: letter.error_class,
        reason: letter.reason,
        attempts,
        envelope: readable(letter.envelope.get()),
    })
}

/// Returns the envelope, as a JSON string if it is nested too deeply for common readers.
fn readable(envelope: &str) -> String {
    match ingest::fits_depth(envelope) {
        true => envelope.to_owned(),
        false => Value::from(envelope).to_string(),
    }
}

/// Returns the digest that identifies a letter: of the event, without the reason. Each part is
/// preceded by its length, so that different events have different digests.
fn digest(letter: &NewDeadLetter<'_>) -> [u8; 32] {
    let mut hash = Sha256::new();
    let id = letter.external_event_id.as_deref();
    let parts = [
        letter.source.channel.as_str(),
        &letter.source.provider,
        &letter.source.endpoint_identity,
        if id.is_some() { "id" } else { "none" },
        id.unwrap_or_default(),
        letter.envelope.get(),
    ];
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Writes a letter. The envelope is JSON already and is written unchanged.
fn write_letter(out: &mut String, kept: &StoredLetter) {
    let text = view::letter(kept).to_string();
    out.push_str(text.strip_suffix('}').unwrap_or(&text));
    out.push_str(",\"envelope\":");
    out.push_str(&kept.letter.envelope);
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"source":{"channel":"api","provider":"internal",
        "endpoint_identity":"x"},"error_class":"other","reason":"no","envelope":{"a":"\ud800"}}"#;

    #[test]
    fn a_letter_is_kept_as_it_came() {
        let letter = read(GOOD.as_bytes()).unwrap();
        assert_eq!(letter.envelope, r#"{"a":"\ud800"}"#);
        assert_eq!(letter.attempts, 1);
        assert_eq!(read(GOOD.as_bytes()).unwrap().digest, letter.digest);
        // The same event given up for another reason is the same letter.
        let again = GOOD.replace("\"no\"", "\"yes\"");
        assert_eq!(read(again.as_bytes()).unwrap().digest, letter.digest);
        let other = GOOD.replace(r#"{"a":"#, r#"{"b":"#);
        assert_ne!(read(other.as_bytes()).unwrap().digest, letter.digest);
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let deep = GOOD.replace(r#"{"a":"\ud800"}"#, &deep);
        let kept = read(deep.as_bytes()).unwrap().envelope;
        let Value::String(text) = serde_json::from_str(&kept).unwrap() else { panic!("{kept}") };
        assert_eq!(text.len(), 200_000);
    }

    #[test]
    fn what_is_not_a_letter_is_refused() {
        let bad = [
            String::new(),
            "[]".to_owned(),
            "{}".to_owned(),
            GOOD.replace("\"other\"", "\"rain\""),
            GOOD.replace("\"no\"", "\" \""),
            GOOD.replace("\"no\"", "\"\\u0000\""),
            GOOD.replace("\"no\"", &format!("\"{}\"", "x".repeat(MAX_REASON_BYTES + 1))),
            GOOD.replace("\"no\"", "\"no\",\"attempts\":0"),
            GOOD.replace("\"no\"", "\"no\",\"more\":0"),
            GOOD.replace("\"x\"", "7"),
            GOOD.replace(",\"envelope\":{\"a\":\"\\ud800\"}", ""),
        ];
        for text in bad {
            let error = read(text.as_bytes()).unwrap_err();
            assert_eq!(error.status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
        }
        let long = GOOD.replace("\"reason\"", &format!("\"{}\"", "\\u0001".repeat(100_000)));
        let told = read(long.as_bytes()).unwrap_err().item(0).to_string();
        assert!(told.len() < 10_000, "what was sent is not sent back: {}", told.len());
    }
}
