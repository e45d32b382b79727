//! Concurrent operations: no deadlocks, and nothing is lost or counted twice.

use std::fmt::Debug;
use std::sync::Arc;

use tenure_core::Code;
use tenure_switchboard::SwitchboardError;
use tenure_switchboard::storage::{
    ConnectorKey, Decision, HeartbeatOutcome, HistoryRetention, MessageOutcomes, Period,
    ReceivedHeartbeat, SeriesStep, Storage, TimeSource,
};
use tokio::task::JoinSet;

use super::kit::{by_me, make_token, new_token};
use super::outcome::message;
use super::told::{HOUR, beat, count, epoch, history, named, of, series, shown};
use crate::place::Place;

const ROUNDS: i64 = 24;

fn names() -> [ConnectorKey; 3] {
    ["telegram_bot", "telegram", "api"].map(|kind| named(kind, "bot"))
}

/// Returns `None` if the store is busy. Deadlocks are busy errors, too, but fail the test.
fn unless_busy<T: Debug>(answer: Result<T, SwitchboardError>) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        Err(error) => {
            let is_busy = error.code() == Code::Busy && !error.is_unknown();
            assert!(is_busy && !error.to_string().contains("deadlock"), "{error}");
            None
        }
    }
}

async fn beats(storage: Arc<dyn Storage>, instance: i64) {
    let names = names();
    for round in 1..=ROUNDS {
        for name in &names {
            let told = of(name, beat(instance as u128, round, 1_000 * instance + round, round));
            let told =
                ReceivedHeartbeat { token_id: Some(format!("tok_{}", instance % 2)), ..told };
            loop {
                match unless_busy(storage.beat(&told, TimeSource::Now).await) {
                    Some(HeartbeatOutcome::Accepted(taken)) => {
                        assert_eq!(taken.unwritten, None);
                        break;
                    }
                    None => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

async fn operates(storage: Arc<dyn Storage>, operator: i64) {
    let decision = Decision { token_id: Some("tok_0".to_owned()), ..by_me("over") };
    for round in 0..ROUNDS {
        let name = &names()[round as usize % 3];
        unless_busy(storage.archive(name, true, &decision).await).map(Result::unwrap);
        unless_busy(storage.register(name, "me").await);
        if round % 2 == 0 {
            unless_busy(storage.delete(name, &decision).await).map(Result::unwrap);
        }
        unless_busy(storage.recount(name, &decision).await).map(Result::unwrap);
        unless_busy(storage.reset_fence("telegram/bot", None, &decision).await);
        let token = format!("tok_{operator}_{round}");
        unless_busy(storage.create_token(&new_token(&token)).await);
        unless_busy(storage.revoke_token(&token, "me", "over").await);
    }
}

async fn counts(storage: Arc<dyn Storage>) {
    for _ in 0..ROUNDS {
        unless_busy(storage.roll_up(epoch(1), TimeSource::Now).await);
        unless_busy(storage.prune_history(HistoryRetention::default(), TimeSource::Now).await);
    }
}

async fn reports(storage: Arc<dyn Storage>, messages: Vec<uuid::Uuid>) {
    for round in 0..ROUNDS {
        let targets = vec![format!("a{}", round % 5), format!("b{}", round % 7)];
        let is_acked = round % 2 == 0;
        let (acked, failed) = if is_acked { (targets, vec![]) } else { (vec![], targets) };
        for (request_id, name) in messages.iter().zip(names()) {
            let outcomes = MessageOutcomes {
                request_id: *request_id,
                connector_type: name.connector_type,
                endpoint_identity: name.endpoint_identity,
                acked: acked.clone(),
                failed: failed.clone(),
                token_id: Some("tok_1".to_owned()),
            };
            unless_busy(storage.report(&outcomes, TimeSource::Now).await);
        }
    }
}

pub async fn everything_at_once(place: Place) {
    let storage = &place.storage;
    make_token(storage, "tok_0").await;
    make_token(storage, "tok_1").await;
    let mut messages = Vec::new();
    for name in ["a", "b", "c"] {
        messages.push(message(storage, name).await);
    }
    let mut working = JoinSet::new();
    for instance in 1..=3 {
        working.spawn(beats(place.open().await, instance));
    }
    for operator in 0..2 {
        working.spawn(operates(place.open().await, operator));
        working.spawn(counts(place.open().await));
        working.spawn(reports(place.open().await, messages.clone()));
    }
    working.join_all().await;

    // One more round, so that every connector is known.
    beats(storage.clone(), 4).await;
    let now = shown(storage, &names()[0]).await.now;
    count(storage, 1, now + HOUR).await;
    let (_, sums) = storage.sums(Period::Day).await.unwrap();
    assert_eq!(sums.len(), 3);
    for name in names() {
        let known = shown(storage, &name).await.connector;
        let history = history(storage, &name).await;
        let told: i64 = history.iter().map(|it| it.deltas.messages_failed).sum();
        let hours = series(storage, &name, SeriesStep::Hour).await;
        let done: i64 = hours.values().map(|it| it.messages_failed).sum();
        let beats: i64 = hours.values().map(|it| it.heartbeat_count).sum();
        let sum = sums.iter().find(|it| it.connector_type == name.connector_type).unwrap();
        assert_eq!((told, done, sum.messages_failed), (told, told, told), "{name:?}");
        assert_eq!(known.counters.messages_failed, told, "{name:?}");
        assert_eq!(beats as usize, history.len(), "{name:?}");
    }
}
