//! Outcomes of messages.

use std::sync::Arc;

use tenure_switchboard::storage::{
    MessageLookup, MessageOutcomes, OutcomeReceipt, Storage, TimeSource,
};
use uuid::Uuid;

use super::kit::{by_me, commit_one, named as submitted, stored};
use super::told::{DAY, HOUR, MIDNIGHT, MINUTE, bot, count, epoch, hear, id};
use crate::place::Place;

const T: i64 = MIDNIGHT + 10 * HOUR;

/// Commits a message and returns its id.
pub async fn message(storage: &Arc<dyn Storage>, name: &str) -> Uuid {
    stored(&commit_one(storage, submitted(&[name])).await)[0].request_id
}

pub async fn report(
    storage: &Arc<dyn Storage>,
    request_id: Uuid,
    acked: &[&str],
    failed: &[&str],
    at: i64,
) -> OutcomeReceipt {
    let mut outcomes = told_of(request_id, acked);
    outcomes.failed = failed.iter().map(|it| (*it).to_owned()).collect();
    storage.report(&outcomes, TimeSource::At(at)).await.unwrap().unwrap()
}

pub fn told_of(request_id: Uuid, acked: &[&str]) -> MessageOutcomes {
    MessageOutcomes {
        request_id,
        connector_type: "telegram_bot".to_owned(),
        endpoint_identity: "bot".to_owned(),
        acked: acked.iter().map(|it| (*it).to_owned()).collect(),
        failed: Vec::new(),
        token_id: None,
    }
}

async fn state(storage: &Arc<dyn Storage>, request_id: Uuid) -> String {
    match storage.message(request_id).await.unwrap() {
        MessageLookup::Message(message) => message.lifecycle_state,
        other => panic!("{other:?}"),
    }
}

pub async fn outcomes(storage: &Arc<dyn Storage>, request_id: Uuid) -> (String, String) {
    let (acked, failed) = storage.outcomes(request_id).await.unwrap();
    (acked.join(" "), failed.join(" "))
}

pub fn of_two(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

pub async fn outcomes_are_noted_once(place: Place) {
    let storage = &place.storage;
    let told = |changed| OutcomeReceipt { changed, found: true };
    let (one, two) = (message(storage, "a").await, message(storage, "b").await);
    assert_eq!(state(storage, one).await, "accepted");
    assert_eq!(outcomes(storage, one).await, of_two("", ""));
    assert_eq!(report(storage, one, &["health", "general"], &[], T).await, told(2));
    assert_eq!(state(storage, one).await, "dispatched");
    assert_eq!(outcomes(storage, one).await, of_two("general health", ""));
    assert_eq!(report(storage, one, &["health"], &[], T + 1).await, told(0));
    // An acknowledgement is final.
    assert_eq!(report(storage, one, &[], &["health"], T + 1).await, told(0));
    assert_eq!(state(storage, one).await, "dispatched");
    // A failed target may acknowledge later.
    assert_eq!(report(storage, one, &["health"], &["Zoo", "finance"], T + 2).await, told(2));
    assert_eq!(report(storage, one, &[], &["finance"], T + 2).await, told(0));
    assert_eq!(state(storage, one).await, "failed");
    assert_eq!(outcomes(storage, one).await, of_two("general health", "Zoo finance"));
    assert_eq!(report(storage, one, &["finance"], &[], T + 3).await, told(1));
    assert_eq!(state(storage, one).await, "failed");
    assert_eq!(report(storage, one, &["Zoo"], &[], T + 3).await, told(1));
    assert_eq!(state(storage, one).await, "dispatched");
    assert_eq!(outcomes(storage, one).await, of_two("Zoo finance general health", ""));
    assert_eq!(
        (state(storage, two).await.as_str(), outcomes(storage, two).await),
        ("accepted", of_two("", ""))
    );
    // For a message that is not in the inbox nothing is recorded.
    let nobody = id(7);
    assert_eq!(report(storage, nobody, &["a"], &["b"], T).await, OutcomeReceipt::default());
    assert_eq!(outcomes(storage, nobody).await, of_two("", ""));
}

pub async fn fanout_counts_who_has_acknowledged(place: Place) {
    let storage = &place.storage;
    let evening = MIDNIGHT + DAY - MINUTE;
    let (one, two) = (message(storage, "a").await, message(storage, "b").await);
    report(storage, one, &["health", "general"], &["finance"], evening).await;
    report(storage, two, &["health"], &["general"], evening).await;
    assert!(storage.fanout("2026-01-01").await.unwrap().is_empty());
    let rolled = count(storage, 1, evening + 1).await;
    assert_eq!((rolled.beats, rolled.outcomes), (0, 3));
    // A repeated acknowledgement is not counted again; a failed target counts once it acknowledges.
    report(storage, one, &["health"], &[], evening + 2 * MINUTE).await;
    report(storage, two, &["general"], &[], evening + 2 * MINUTE).await;
    assert_eq!(count(storage, 1, evening + HOUR).await.outcomes, 1);
    let fanout = |since: &'static str| async move {
        let fanout = storage.fanout(since).await.unwrap();
        assert!(fanout.iter().all(|it| it.connector_type == "telegram_bot"));
        assert!(fanout.iter().all(|it| it.endpoint_identity == "bot"));
        fanout.into_iter().map(|it| format!("{} {}", it.target, it.messages)).collect::<Vec<_>>()
    };
    assert_eq!(fanout("2026-02-15").await, ["general 2", "health 2"]);
    assert_eq!(fanout("2026-02-16").await, ["general 1"]);
    assert!(fanout("2026-02-17").await.is_empty());
    assert!(!storage.delete(&bot(), &by_me("over")).await.unwrap().unwrap());
    hear(storage, 1, evening, 60, 1).await;
    assert!(storage.delete(&bot(), &by_me("over")).await.unwrap().unwrap());
    assert!(fanout("2026-02-15").await.is_empty());
}

/// Outcomes of a deleted connector's messages are still shown, but counted for no connector.
pub async fn a_deleted_connector_fans_out_no_more(place: Place) {
    let storage = &place.storage;
    let (one, two) = (message(storage, "a").await, message(storage, "b").await);
    hear(storage, 1, T, 60, 1).await;
    report(storage, one, &["health"], &["general"], T).await;
    count(storage, 1, T + 1).await;
    // One outcome is counted, and one is not yet.
    report(storage, two, &["health"], &[], T + MINUTE).await;
    let mut other = told_of(one, &["other"]);
    other.endpoint_identity = "bot2".to_owned();
    storage.report(&other, TimeSource::At(T + MINUTE)).await.unwrap().unwrap();
    assert!(storage.delete(&bot(), &by_me("over")).await.unwrap().unwrap());
    assert_eq!(outcomes(storage, two).await, of_two("health", ""));
    // New outcomes count again.
    report(storage, one, &["general"], &[], T + 2 * MINUTE).await;
    assert_eq!(count(storage, 1, T + HOUR).await.outcomes, 2);
    let fanout = storage.fanout("2026-01-01").await.unwrap();
    let found: Vec<_> = fanout.iter().map(|it| (&*it.endpoint_identity, &*it.target)).collect();
    assert_eq!(found, [("bot", "general"), ("bot2", "other")]);
}

/// The same steps count heartbeats and outcomes.
pub async fn outcomes_alone_are_counted(place: Place) {
    let storage = &place.storage;
    let one = message(storage, "a").await;
    report(storage, one, &["health"], &[], T).await;
    hear(storage, 1, T + 10 * MINUTE, 60, 1).await;
    let step = storage.roll_up(epoch(1), TimeSource::At(T + HOUR)).await.unwrap();
    assert_eq!((step.beats, step.outcomes, step.more), (1, 1, false));
    let two = message(storage, "b").await;
    report(storage, one, &["general"], &[], T + 20 * MINUTE).await;
    report(storage, two, &["health"], &[], T + 20 * MINUTE).await;
    // A repeated report counts nothing.
    report(storage, two, &["health"], &[], T + 21 * MINUTE).await;
    let step = storage.roll_up(epoch(1), TimeSource::At(T + HOUR)).await.unwrap();
    assert_eq!((step.beats, step.outcomes, step.more), (0, 2, false));
    // A day is the sum of all its steps.
    let fanout = storage.fanout("2026-01-01").await.unwrap();
    let found: Vec<_> = fanout.iter().map(|it| (&*it.target, it.messages)).collect();
    assert_eq!(found, [("general", 1), ("health", 2)]);
}
