//! Submissions: once, in order, all or nothing.

use tenure_core::Code;
use tenure_switchboard::storage::{
    ClockMeasurement, MessageLookup, Submission, SubmissionOutcome, TimeSource,
};

use super::kit::{
    commit_one, content, event, fence, held, inbox, item, make_token, named, positions, sent,
    stored,
};
use super::told::{HOUR, MIDNIGHT, count, hear};
use crate::place::Place;

/// Every kind of change once. No mutant makes this fail: each breaks a rule, not the storage.
pub async fn a_plain_life(place: Place) {
    let storage = &place.storage;
    make_token(storage, "token").await;
    let sent =
        Submission { token_id: Some("token".to_owned()), ..held(fence("d", 1, "me"), &["a"]) };
    assert!(!stored(&commit_one(storage, sent).await)[0].duplicate);
    assert_eq!(inbox(storage).await.len(), 1);
    hear(storage, 1, MIDNIGHT, 60, 1).await;
    assert_eq!(count(storage, 1, MIDNIGHT + HOUR).await.beats, 1);
    let tick = storage.tick(None, TimeSource::Now).await.unwrap();
    let since = ClockMeasurement { turn: tick.turn, wall: tick.wall, elapsed: 0 };
    assert_eq!(storage.tick(Some(since), TimeSource::Now).await.unwrap().turn, tick.turn + 1);
    assert_eq!(storage.revoke_token("token", "me", "done").await.unwrap(), Some(true));
    storage.adopt("me").await.unwrap();
}

pub async fn a_key_is_stored_once(place: Place) {
    let (one, two) = (named(&["a"]), named(&["a"]));
    let first = stored(&commit_one(&place.storage, one.clone()).await)[0];
    assert_eq!(first.request_id, one.items[0].request_id);
    assert!(!first.duplicate && !first.reused);
    let second = stored(&commit_one(&place.storage, two).await)[0];
    assert_eq!(second.request_id, first.request_id);
    assert!(second.duplicate && !second.reused);
    assert_eq!(inbox(&place.storage).await.len(), 1);
}

pub async fn a_key_comes_twice_in_a_group(place: Place) {
    let group = [named(&["b", "a"]), named(&["a", "c", "b"])];
    let settled = place.storage.commit(&group).await.unwrap();
    let (one, two) = (stored(&settled[0]), stored(&settled[1]));
    assert_eq!(one.iter().filter(|outcome| outcome.duplicate).count(), 0);
    assert_eq!((two[0].request_id, two[0].duplicate), (one[1].request_id, true));
    assert_eq!((two[1].request_id, two[1].duplicate), (group[1].items[1].request_id, false));
    assert_eq!((two[2].request_id, two[2].duplicate), (one[0].request_id, true));
    assert_eq!(inbox(&place.storage).await.len(), 3);
}

pub async fn a_key_comes_twice_in_a_submission(place: Place) {
    let mut other = event("a");
    other.payload_digest = super::kit::sha("something else");
    let submission = sent([event("a"), event("a"), other]);
    let settled = commit_one(&place.storage, submission.clone()).await;
    let outcomes = stored(&settled);
    assert!(outcomes.iter().all(|it| it.request_id == submission.items[0].request_id));
    let flags: Vec<_> = outcomes.iter().map(|it| (it.duplicate, it.reused)).collect();
    assert_eq!(flags, [(false, false), (true, false), (true, true)]);
    assert_eq!(inbox(&place.storage).await.len(), 1);
}

pub async fn another_handle_recognises_a_key(place: Place) {
    let other = place.open().await;
    let first = stored(&commit_one(&place.storage, named(&["a", "b"])).await).to_vec();
    let second = stored(&commit_one(&other, named(&["b", "a"])).await).to_vec();
    assert_eq!(
        [second[0].request_id, second[1].request_id],
        [first[1].request_id, first[0].request_id]
    );
    // Both handles write the same keys concurrently, in opposite orders.
    let names: Vec<String> = (0..200).map(|number| format!("n{number}")).collect();
    let one = sent(names.iter().map(|name| event(name)));
    let two = sent(names.iter().rev().map(|name| event(name)));
    let (one, two) = ([one], [two]);
    let both = tokio::join!(place.storage.commit(&one), other.commit(&two));
    let (one, two) = (both.0.unwrap(), both.1.unwrap());
    let ids = |settled: &SubmissionOutcome| -> Vec<_> {
        stored(settled).iter().map(|outcome| outcome.request_id).collect()
    };
    let mut two = ids(&two[0]);
    two.reverse();
    assert_eq!(ids(&one[0]), two);
    assert_eq!(inbox(&place.storage).await.len(), 202);
}

pub async fn a_key_with_another_payload_is_counted(place: Place) {
    commit_one(&place.storage, named(&["a"])).await;
    let mut other = event("a");
    other.payload_digest = super::kit::sha("something else");
    other.envelope = "{}".to_owned();
    for _ in 0..2 {
        let again = stored(&commit_one(&place.storage, sent([other.clone()])).await)[0];
        assert!(again.duplicate && again.reused);
    }
    let same = stored(&commit_one(&place.storage, named(&["a"])).await)[0];
    assert!(same.duplicate && !same.reused, "it is compared with the first one");
    assert_eq!(place.execute("SELECT seen FROM ingest_dedupe").await, 4);
    assert_eq!(place.execute("SELECT reused FROM ingest_dedupe").await, 2);
    assert_eq!(inbox(&place.storage).await[0].envelope, event("a").envelope);
}

pub async fn content_of_the_hour_before_is_the_same_event(place: Place) {
    let first = stored(&commit_one(&place.storage, sent([content("hi", 10, 30)])).await)[0];
    for (hour, minute, is_same) in [(10, 59, true), (11, 29, true), (11, 30, false)] {
        let submission = sent([content("hi", hour, minute)]);
        let outcome = stored(&commit_one(&place.storage, submission).await)[0];
        assert_eq!(outcome.duplicate, is_same, "{hour}:{minute}");
        assert_eq!(outcome.request_id == first.request_id, is_same, "{hour}:{minute}");
    }
    // The same submission again gets the same answer, although its own hour is known now.
    let again = stored(&commit_one(&place.storage, sent([content("hi", 11, 29)])).await)[0];
    assert_eq!(again.request_id, first.request_id);
    // Only the previous hour is checked, and only for keys derived from content.
    let later = stored(&commit_one(&place.storage, sent([content("hi", 13, 0)])).await)[0];
    assert!(!later.duplicate);
    let mut keyed = content("hi", 11, 0);
    keyed.dedupe.digest = super::kit::sha("keyed");
    keyed.dedupe.previous_hour = None;
    assert!(!stored(&commit_one(&place.storage, sent([keyed])).await)[0].duplicate);
    assert_eq!(inbox(&place.storage).await.len(), 4);
}

pub async fn content_of_the_hour_before_in_the_same_group(place: Place) {
    // Many texts, so that the digests of the two hours occur in both orders.
    for number in 0..16 {
        let text = format!("hi {number}");
        let group = [sent([content(&text, 10, 50)]), sent([content(&text, 11, 10)])];
        let settled = place.storage.commit(&group).await.unwrap();
        let (one, two) = (stored(&settled[0])[0], stored(&settled[1])[0]);
        assert!(!one.duplicate && two.duplicate, "{text}");
        assert_eq!(one.request_id, two.request_id);
    }
    assert_eq!(inbox(&place.storage).await.len(), 16);
    // The later event came first: both are new, and each gets its own id when repeated.
    let group = [sent([content("late", 11, 5)]), sent([content("late", 10, 55)])];
    let before = place.storage.commit(&group).await.unwrap();
    let after = place.storage.commit(&group).await.unwrap();
    for (before, after) in before.iter().zip(&after) {
        let (before, after) = (stored(before)[0], stored(after)[0]);
        assert_eq!((before.request_id, true), (after.request_id, after.duplicate));
    }
}

pub async fn what_was_stored_is_there_after_opening_again(mut place: Place) {
    let submission = named(&["a", "b"]);
    commit_one(&place.storage, submission.clone()).await;
    place.storage = place.open().await;
    let ids: Vec<_> = inbox(&place.storage).await.iter().map(|it| it.request_id).collect();
    assert_eq!(ids, submission.items.iter().map(|it| it.request_id).collect::<Vec<_>>());
    let again = stored(&commit_one(&place.storage, named(&["a"])).await)[0];
    assert_eq!(again.request_id, submission.items[0].request_id);
}

pub async fn positions_follow_submissions_and_items(place: Place) {
    let group = [named(&["d", "a"]), named(&[]), named(&["c", "a", "b"])];
    place.storage.commit(&group).await.unwrap();
    assert_eq!(place.storage.last_position().await.unwrap(), 4);
    let ids: Vec<_> = inbox(&place.storage).await.iter().map(|it| it.request_id).collect();
    let (one, three) = (&group[0].items, &group[2].items);
    let expected = [one[0].request_id, one[1].request_id, three[0].request_id, three[2].request_id];
    assert_eq!(ids, expected);
    commit_one(&place.storage, named(&["a", "e"])).await;
    assert_eq!(positions(&inbox(&place.storage).await), [1, 2, 3, 4, 5]);
}

pub async fn positions_have_no_gaps_among_writers(place: Place) {
    let other = place.open().await;
    let mut writing = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let storage = if writer % 2 == 0 { place.storage.clone() } else { other.clone() };
        writing.spawn(async move {
            for number in 0..5 {
                // Half of the keys are shared by all writers.
                let names = [format!("w{writer} {number}"), format!("all {number}")];
                let submission = sent(names.iter().map(|name| event(name)));
                commit_one(&storage, submission).await;
            }
        });
    }
    while let Some(written) = writing.join_next().await {
        written.unwrap();
    }
    assert_eq!(positions(&inbox(&place.storage).await), (1..=45).collect::<Vec<_>>());
    assert_eq!(other.last_position().await.unwrap(), 45);
}

pub async fn a_group_in_any_order_of_keys(place: Place) {
    let names: Vec<String> = (0..300).map(|number| format!("n{number}")).collect();
    let events = || names.iter().map(|name| event(name));
    let one = sent(events());
    commit_one(&place.storage, one.clone()).await;
    let mut two = sent(events());
    two.items.reverse();
    let settled = commit_one(&place.storage, two).await;
    let mut ids: Vec<_> = stored(&settled).iter().map(|it| it.request_id).collect();
    ids.reverse();
    assert_eq!(ids, one.items.iter().map(|it| it.request_id).collect::<Vec<_>>());
}

pub async fn a_refused_group_stores_nothing(place: Place) {
    let taken = named(&["a"]);
    commit_one(&place.storage, taken.clone()).await;
    // An existing id cannot be stored with another key.
    let mut clash = named(&["b", "c"]);
    clash.items[1].request_id = taken.items[0].request_id;
    let group = [held(fence("bot", 7, "i"), &["d"]), clash];
    let error = place.storage.commit(&group).await.unwrap_err();
    assert!(!error.is_unknown(), "{error}");
    assert_eq!(error.code(), Code::Unstorable, "{error}");
    assert_eq!(inbox(&place.storage).await.len(), 1);
    assert_eq!(place.storage.last_position().await.unwrap(), 1);
    assert_eq!(place.execute("SELECT count(*) FROM ingest_dedupe").await, 1);
    assert_eq!(place.storage.fences(None, "", 10).await.unwrap(), []);
    let settled = commit_one(&place.storage, named(&["b", "c", "d"])).await;
    assert!(stored(&settled).iter().all(|outcome| !outcome.duplicate));
    assert_eq!(positions(&inbox(&place.storage).await), [1, 2, 3, 4]);
}

pub async fn times_are_of_the_store(place: Place) {
    let before = tenure_duty::process::unix_micros() as i64;
    commit_one(&place.storage, named(&["a"])).await;
    let after = tenure_duty::process::unix_micros() as i64;
    let received_at = inbox(&place.storage).await[0].received_at;
    assert!((before..=after).contains(&received_at), "not what the event says");
}

pub async fn everything_that_text_can_hold(place: Place) {
    let mut odd = event("odd");
    odd.endpoint_identity = "gmail:user:a@b's \"\\ % \u{1}\u{fffd}😀".to_owned();
    odd.sender_identity = "\u{202e}right to left".to_owned();
    odd.thread_identity = Some(String::new());
    odd.dedupe.key = "event:'; DROP TABLE message_inbox; --".to_owned();
    odd.envelope = r#"{"payload":{"raw":{"nul":"\u0000","lone":"\ud800","big":1e999}}}"#.to_owned();
    let long = { Submission { items: vec![item(event(&"x".repeat(1_000_000)))], ..named(&[]) } };
    commit_one(&place.storage, sent([odd.clone()])).await;
    commit_one(&place.storage, long.clone()).await;
    let messages = inbox(&place.storage).await;
    assert_eq!(messages[0].endpoint_identity, odd.endpoint_identity);
    assert_eq!(messages[0].sender_identity, odd.sender_identity);
    assert_eq!(messages[0].thread_identity, odd.thread_identity);
    assert_eq!(messages[0].dedupe_key, odd.dedupe.key);
    assert_eq!(messages[0].envelope, odd.envelope, "byte for byte");
    assert_eq!(messages[1].envelope, long.items[0].event.envelope);
}

pub async fn nothing_to_store(place: Place) {
    assert_eq!(place.storage.commit(&[]).await.unwrap(), []);
    assert_eq!(commit_one(&place.storage, named(&[])).await, SubmissionOutcome::Stored(Vec::new()));
    assert_eq!(place.storage.last_position().await.unwrap(), 0);
    let nobody = uuid::Uuid::now_v7();
    assert_eq!(place.storage.message(nobody).await.unwrap(), MessageLookup::Nothing);
    place.storage.ping().await.unwrap();
}
