//! Changes by other sessions during a submission.

use std::sync::Arc;

use tenure_switchboard::storage::{
    Decision, HeartbeatOutcome, LetterResolution, MessageOutcomes, Storage, SubmissionOutcome,
    SubmissionRejection, TimeSource, TokenEnd,
};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{LIMIT, session};
use crate::place::Place;
use crate::storage::kit::{by_me, commit_one, letter, make_token, named, stored, with_token};
use crate::storage::outcome::{message, told_of};
use crate::storage::told::{MIDNIGHT, MINUTE, beat, bot, hear};

/// Waits until a routine of this place waits for a lock or has finished.
async fn stands_still<T>(place: &Place, routine: &str, running: &JoinHandle<T>) {
    let client = session(place).await;
    let waiting = format!(
        "SELECT FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%{}.{routine}%'",
        place.schema().1
    );
    let look = async {
        while !running.is_finished() && client.query(&waiting, &[]).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, look).await.unwrap();
}

/// Revokes a token while an operation that found `tok_a` valid is blocked. Returns whether the
/// revocation returned before that operation, and the operation's result.
async fn revoke_meanwhile<T: Send + 'static>(
    place: &Place,
    token: &'static str,
    lock: &str,
    routine: &str,
    storing: impl Future<Output = T> + Send + 'static,
) -> (bool, T) {
    let other = session(place).await;
    other.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
    let storing = tokio::spawn(storing);
    stands_still(place, routine, &storing).await;
    assert!(!storing.is_finished());
    let storage = place.storage.clone();
    let revoking = tokio::spawn(async move { storage.revoke_token(token, "me", "x").await });
    stands_still(place, "token_revoke", &revoking).await;
    let is_answered = revoking.is_finished();
    other.batch_execute("COMMIT").await.unwrap();
    let stored = storing.await.unwrap();
    assert_eq!(revoking.await.unwrap().unwrap(), Some(true));
    (is_answered, stored)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_after_a_revocation_was_answered() {
    let Some(place) = Place::postgres().await else { return };
    make_token(&place.storage, "tok_a").await;
    commit_one(&place.storage, named(&["a"])).await;
    let storage = place.storage.clone();
    let storing = async move { commit_one(&storage, with_token("tok_a", &["a", "b"])).await };
    let lock = "SELECT FROM ingest_dedupe FOR UPDATE";
    let (is_answered, settled) =
        revoke_meanwhile(&place, "tok_a", lock, "ingest_commit", storing).await;
    assert!(!is_answered, "{settled:?}");
    assert_eq!(stored(&settled).len(), 2);
    let late = commit_one(&place.storage, with_token("tok_a", &["c"])).await;
    assert!(
        matches!(late, SubmissionOutcome::Rejected(SubmissionRejection::TokenEnded(_))),
        "{late:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_heartbeat_is_taken_after_a_revocation_was_answered() {
    let Some(place) = Place::postgres().await else { return };
    make_token(&place.storage, "tok_a").await;
    hear(&place.storage, 1, MIDNIGHT, 60, 1).await;
    let storage = place.storage.clone();
    let mut beat = beat(1, MIDNIGHT + MINUTE, 120, 2);
    beat.token_id = Some("tok_a".to_owned());
    let storing = async move { storage.beat(&beat, TimeSource::Now).await.unwrap() };
    let lock = "SELECT FROM connector_instances FOR UPDATE";
    let (is_answered, beaten) =
        revoke_meanwhile(&place, "tok_a", lock, "connector_beat", storing).await;
    assert!(
        !is_answered && matches!(beaten, HeartbeatOutcome::Accepted(_)),
        "{is_answered} {beaten:?}"
    );
}

/// Runs the operation of this number with `tok_a`.
async fn decide(storage: Arc<dyn Storage>, number: usize, ids: [Uuid; 2]) -> Result<(), TokenEnd> {
    let [request_id, id] = ids;
    let token_id = Some("tok_a".to_owned());
    let decision = Decision { token_id: token_id.clone(), ..by_me("x") };
    match number {
        0 => {
            let outcomes = MessageOutcomes { token_id, ..told_of(request_id, &["health"]) };
            storage.report(&outcomes, TimeSource::Now).await.unwrap().map(drop)
        }
        1 => {
            let resolve = LetterResolution { id, state: "discarded", decision, request_id: None };
            storage.resolve_letter(&resolve).await.unwrap().map(drop)
        }
        2 => storage.archive(&bot(), true, &decision).await.unwrap().map(drop),
        3 => storage.recount(&bot(), &decision).await.unwrap().map(drop),
        _ => storage.delete(&bot(), &decision).await.unwrap().map(drop),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_decided_after_a_revocation_was_answered() {
    let Some(place) = Place::postgres().await else { return };
    make_token(&place.storage, "tok_a").await;
    let letter = letter("a");
    let ids = [message(&place.storage, "a").await, letter.id];
    place.storage.post_letter(&letter, None, None).await.unwrap();
    hear(&place.storage, 1, MIDNIGHT, 60, 1).await;
    for (number, table, routine) in [
        (0, "message_inbox", "outcome_report"),
        (1, "dead_letter", "token_ended"),
        (2, "connector_registry", "token_ended"),
        (3, "connector_registry", "connector_recount"),
        (4, "connector_registry", "connector_delete"),
    ] {
        let deciding = decide(place.storage.clone(), number, ids);
        let lock = format!("SELECT FROM {table} FOR UPDATE");
        let revoked = revoke_meanwhile(&place, "tok_a", &lock, routine, deciding).await;
        assert_eq!(revoked, (false, Ok(())), "{routine}");
        place.execute("UPDATE connector_tokens SET revoked_at = NULL").await;
    }
}

/// A recount may take long, so it must not block revocations of other tokens.
#[tokio::test(flavor = "multi_thread")]
async fn another_token_is_revoked_while_a_connector_is_recounted_or_deleted() {
    let Some(place) = Place::postgres().await else { return };
    make_token(&place.storage, "tok_a").await;
    make_token(&place.storage, "tok_b").await;
    hear(&place.storage, 1, MIDNIGHT, 60, 1).await;
    for (number, routine) in [(3, "connector_recount"), (4, "connector_delete")] {
        let deciding = decide(place.storage.clone(), number, [Uuid::nil(); 2]);
        let lock = "SELECT FROM connector_registry FOR UPDATE";
        let revoked = revoke_meanwhile(&place, "tok_b", lock, routine, deciding).await;
        assert_eq!(revoked, (true, Ok(())), "{routine}");
        place.execute("UPDATE connector_tokens SET revoked_at = NULL").await;
    }
}

/// If retention deletes a key while a copy of its event arrives, the copy's answer stays valid.
#[tokio::test(flavor = "multi_thread")]
async fn retention_forgets_nothing_that_is_seen_again() {
    let Some(place) = Place::postgres().await else { return };
    commit_one(&place.storage, named(&["a"])).await;
    let other = session(&place).await;
    other.batch_execute("BEGIN; DELETE FROM ingest_dedupe").await.unwrap();
    let storage = place.storage.clone();
    let copy = tokio::spawn(async move { commit_one(&storage, named(&["a"])).await });
    stands_still(&place, "ingest_commit", &copy).await;
    other.batch_execute("COMMIT").await.unwrap();
    let told = stored(&copy.await.unwrap())[0];
    let again = stored(&commit_one(&place.storage, named(&["a"])).await)[0];
    assert!(again.duplicate && again.request_id == told.request_id, "{told:?} {again:?}");
}
