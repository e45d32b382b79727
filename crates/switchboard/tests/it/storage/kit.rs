//! Helpers of the test cases.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tenure_core::{DutyKey, Epoch, InstanceId};
use tenure_switchboard::storage::{
    Attempt, DeadLetter, Decision, Diverged, EventOutcome, InboxMessage, InboxPage, InboxQuery,
    InboxRead, IngestFence, NewToken, SourceScope, Storage, Submission, SubmissionOutcome,
    SubmissionRejection, SubmittedEvent,
};
use tenure_wire::ingest::{Dedupe, IngestEvent};
use uuid::Uuid;

pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(24 * 3600);
/// 2026-02-15T10:30:00Z.
pub const OBSERVED: i64 = 1_771_151_400_000_000;

pub fn sha(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Returns an event whose dedupe key and text are its name.
pub fn event(name: &str) -> IngestEvent {
    let key = format!("event:telegram:telegram:bot:{name}");
    let dedupe = Dedupe { digest: sha(&key), key, previous_hour: None };
    IngestEvent {
        channel: "telegram".to_owned(),
        provider: "telegram".to_owned(),
        endpoint_identity: "bot".to_owned(),
        sender_identity: "user".to_owned(),
        thread_identity: None,
        policy_tier: "default",
        observed_at_micros: OBSERVED,
        dedupe,
        payload_digest: sha(name),
        envelope: serde_json::json!({ "payload": { "normalized_text": name } }).to_string(),
    }
}

/// Returns an event whose dedupe key is its content and the hour of observation.
pub fn content(text: &str, hour: i64, minute: i64) -> IngestEvent {
    let digest = |hour: i64| sha(&format!("hash {text} {hour}"));
    let key = format!("hash:telegram:bot:user:{hour}:{text}");
    let dedupe = Dedupe { key, digest: digest(hour), previous_hour: Some(digest(hour - 1)) };
    let observed_at_micros = (hour * 60 + minute) * 60_000_000;
    IngestEvent { dedupe, observed_at_micros, ..event(text) }
}

pub fn item(event: IngestEvent) -> SubmittedEvent {
    SubmittedEvent { request_id: Uuid::now_v7(), event }
}

/// Returns a submission of these events, without fence and token.
pub fn sent(events: impl IntoIterator<Item = IngestEvent>) -> Submission {
    Submission { items: events.into_iter().map(item).collect(), fence: None, token_id: None }
}

pub fn named(names: &[&str]) -> Submission {
    sent(names.iter().map(|name| event(name)))
}

pub fn fence(duty: &str, epoch: u64, instance: &str) -> IngestFence {
    IngestFence {
        duty: DutyKey::new("telegram", duty).unwrap(),
        epoch: Epoch::new(epoch).unwrap(),
        instance: InstanceId::new(instance).unwrap(),
    }
}

/// Returns a submission under a hold.
pub fn held(fence: IngestFence, names: &[&str]) -> Submission {
    Submission { fence: Some(fence), ..named(names) }
}

pub fn with_token(token_id: &str, names: &[&str]) -> Submission {
    Submission { token_id: Some(token_id.to_owned()), ..named(names) }
}

pub async fn commit_one(storage: &Arc<dyn Storage>, sent: Submission) -> SubmissionOutcome {
    let mut settled = storage.commit(&[sent]).await.unwrap();
    assert_eq!(settled.len(), 1);
    settled.remove(0)
}

#[track_caller]
pub fn stored(settled: &SubmissionOutcome) -> &[EventOutcome] {
    match settled {
        SubmissionOutcome::Stored(outcomes) => outcomes,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub fn is_fenced(settled: &SubmissionOutcome, epoch: u64, instance: &str) {
    match settled {
        SubmissionOutcome::Rejected(SubmissionRejection::Fenced(Some(standing))) => {
            assert_eq!((standing.epoch.get(), standing.instance.as_str()), (epoch, instance));
        }
        other => panic!("{other:?}"),
    }
}

/// Returns a decision of "me", without a token.
pub fn by_me(reason: &str) -> Decision {
    Decision { by: "me".to_owned(), reason: reason.to_owned(), token_id: None }
}

/// Reads a page with a cursor that belongs to the inbox.
pub async fn read_page(storage: &Arc<dyn Storage>, query: &InboxQuery) -> InboxPage {
    match storage.inbox(query).await.unwrap() {
        InboxRead::Page(page) => page,
        other => panic!("{query:?}: {other:?}"),
    }
}

/// Checks that the cursor is from another inbox.
pub async fn diverged(storage: &Arc<dyn Storage>, query: &InboxQuery) -> Diverged {
    match storage.inbox(query).await.unwrap() {
        InboxRead::Diverged(inbox) => inbox,
        other => panic!("{query:?}: {other:?}"),
    }
}

/// Returns all messages of the inbox.
pub async fn inbox(storage: &Arc<dyn Storage>) -> Vec<InboxMessage> {
    follow(storage, InboxQuery { limit: 1000, ..InboxQuery::default() }).await
}

/// Reads page after page until the end.
pub async fn follow(storage: &Arc<dyn Storage>, mut query: InboxQuery) -> Vec<InboxMessage> {
    let mut messages = Vec::new();
    loop {
        let page = read_page(storage, &query).await;
        assert!(page.messages.len() <= query.limit);
        messages.extend(page.messages);
        if page.at_end {
            return messages;
        }
        let moved = page.next_after.position > query.after.position;
        assert!(moved, "no page stays where it is");
        query.after = page.next_after;
    }
}

pub fn positions(messages: &[InboxMessage]) -> Vec<i64> {
    messages.iter().map(|message| message.position).collect()
}

pub fn new_token(token_id: &str) -> NewToken {
    NewToken {
        token_id: token_id.to_owned(),
        hash: sha(token_id),
        environment: "live".to_owned(),
        roles: vec!["ingest".to_owned(), "read".to_owned()],
        scope: Some(SourceScope {
            channel: "telegram".to_owned(),
            provider: "telegram".to_owned(),
            endpoint_identity: "bot".to_owned(),
        }),
        lifetime: micros(90 * DAY),
        by: "operator".to_owned(),
        description: "the bot's".to_owned(),
        replaces: None,
    }
}

pub async fn make_token(storage: &Arc<dyn Storage>, token_id: &str) {
    assert!(storage.create_token(&new_token(token_id)).await.unwrap());
}

pub fn micros(duration: Duration) -> i64 {
    duration.as_micros() as i64
}

/// Returns an attempt with this token; the limit is five failures in a quarter of an hour.
pub fn attempt(token_id: &str, address: &str) -> Attempt {
    let (address, window) = (address.to_owned(), micros(HOUR / 4));
    Attempt { hash: Some(sha(token_id)), address, limit: 5, window }
}

pub fn letter(name: &str) -> DeadLetter {
    DeadLetter {
        id: Uuid::now_v7(),
        digest: sha(name),
        channel: "telegram".to_owned(),
        provider: "telegram".to_owned(),
        endpoint_identity: "bot".to_owned(),
        external_event_id: Some(name.to_owned()),
        error_class: "timeout".to_owned(),
        reason: "five times".to_owned(),
        attempts: 5,
        envelope: format!("{{\"name\":\"{name}\"}}"),
    }
}
