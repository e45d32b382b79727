//! Reading the inbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_switchboard::storage::{Diverged, InboxQuery, InboxRetention, MessageLookup};
use tenure_wire::ingest::{InboxCursor, IngestEvent};
use uuid::Uuid;

use super::kit::{
    DAY, HOUR, commit_one, diverged, event, follow, inbox, make_token, micros, named, positions,
    read_page, sent, with_token,
};
use crate::place::Place;

fn query(limit: usize) -> InboxQuery {
    InboxQuery { limit, ..InboxQuery::default() }
}

fn from(after: impl Into<InboxCursor>) -> InboxQuery {
    InboxQuery { after: after.into(), ..query(1_000) }
}

fn text(wanted: &str) -> Option<String> {
    Some(wanted.to_owned())
}

async fn fill(place: &Place, count: usize) {
    let names: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
    for names in names.chunks(1000) {
        commit_one(&place.storage, sent(names.iter().map(|name| event(name)))).await;
    }
}

pub async fn a_message_has_everything(place: Place) {
    make_token(&place.storage, "tok_a").await;
    let mut event = event("a");
    event.thread_identity = text("thread");
    let mut submission = with_token("tok_a", &[]);
    submission.items.push(super::kit::item(event.clone()));
    commit_one(&place.storage, submission.clone()).await;
    let message = inbox(&place.storage).await.remove(0);
    assert_eq!(message.position, 1);
    assert_eq!(message.request_id, submission.items[0].request_id);
    assert_eq!((&*message.channel, &*message.provider), (&*event.channel, &*event.provider));
    assert_eq!(message.endpoint_identity, event.endpoint_identity);
    assert_eq!(message.sender_identity, event.sender_identity);
    assert_eq!(message.thread_identity, event.thread_identity);
    assert_eq!(message.dedupe_key, event.dedupe.key);
    assert_eq!(message.token_id, text("tok_a"));
    assert_eq!(message.lifecycle_state, "accepted");
    assert_eq!(message.envelope, event.envelope);
    let found = place.storage.message(message.request_id).await.unwrap();
    assert_eq!(found, MessageLookup::Message(Box::new(message)));
}

pub async fn pages_lead_to_the_end(place: Place) {
    fill(&place, 7).await;
    assert_eq!(positions(&follow(&place.storage, query(3)).await), [1, 2, 3, 4, 5, 6, 7]);
    let page = read_page(&place.storage, &query(3)).await;
    assert_eq!((page.next_after.position, page.at_end, page.trimmed), (3, false, 0));
    let page = read_page(&place.storage, &from(6)).await;
    let next = page.next_after.position;
    assert_eq!((positions(&page.messages), next, page.at_end), (vec![7], 7, true));
}

pub async fn an_exact_page_is_at_the_end(place: Place) {
    let page = read_page(&place.storage, &query(3)).await;
    assert_eq!((page.messages.len(), page.next_after.position, page.at_end), (0, 0, true));
    fill(&place, 3).await;
    let page = read_page(&place.storage, &query(3)).await;
    assert_eq!((page.messages.len(), page.next_after.position, page.at_end), (3, 3, true));
}

pub async fn each_filter_filters(place: Place) {
    let change: [fn(&mut IngestEvent); 5] = [
        |event| event.channel = "email".to_owned(),
        |event| event.provider = "gmail".to_owned(),
        |event| event.endpoint_identity = "other".to_owned(),
        |event| event.sender_identity = "other".to_owned(),
        |event| event.thread_identity = Some("other".to_owned()),
    ];
    commit_one(&place.storage, named(&["plain"])).await;
    for (number, change) in change.into_iter().enumerate() {
        let mut event = event(&number.to_string());
        change(&mut event);
        commit_one(&place.storage, sent([event])).await;
    }
    let filters = [
        InboxQuery { channel: text("email"), ..query(10) },
        InboxQuery { provider: text("gmail"), ..query(10) },
        InboxQuery { endpoint_identity: text("other"), ..query(10) },
        InboxQuery { sender_identity: text("other"), ..query(10) },
        InboxQuery { thread_identity: text("other"), ..query(10) },
    ];
    for (number, query) in filters.iter().enumerate() {
        let page = read_page(&place.storage, query).await;
        assert_eq!(positions(&page.messages), [number as i64 + 2], "{query:?}");
        assert_eq!((page.next_after.position, page.at_end), (6, true), "{query:?}");
    }
    place.age("message_inbox", "received_at", HOUR, "position <= 3").await;
    let received_at = inbox(&place.storage).await[3].received_at;
    let since = InboxQuery { since: Some(received_at), ..query(10) };
    assert_eq!(positions(&follow(&place.storage, since).await), [4, 5, 6]);
    let until = InboxQuery { until: Some(received_at), ..query(10) };
    assert_eq!(positions(&follow(&place.storage, until).await), [1, 2, 3]);
}

pub async fn filters_go_together(place: Place) {
    for number in 0..12 {
        let mut event = event(&number.to_string());
        event.endpoint_identity = ["x", "y"][number % 2].to_owned();
        event.sender_identity = ["a", "b", "c"][number % 3].to_owned();
        commit_one(&place.storage, sent([event])).await;
    }
    let both = InboxQuery { endpoint_identity: text("y"), sender_identity: text("b"), ..query(1) };
    assert_eq!(positions(&follow(&place.storage, both.clone()).await), [2, 8]);
    let after = InboxQuery { after: 2.into(), ..both };
    assert_eq!(positions(&follow(&place.storage, after).await), [8]);
}

pub async fn a_bounded_number_is_looked_at(place: Place) {
    fill(&place, 10_005).await;
    let mut rare = event("rare");
    rare.sender_identity = "rare".to_owned();
    commit_one(&place.storage, sent([rare])).await;
    let rare = InboxQuery { sender_identity: text("rare"), ..query(10) };
    let page = read_page(&place.storage, &rare).await;
    assert_eq!((page.messages.len(), page.next_after.position, page.at_end), (0, 10_000, false));
    assert_eq!(positions(&follow(&place.storage, rare).await), [10_006]);
}

pub async fn a_page_ends_with_its_bytes(place: Place) {
    for number in 0..6 {
        let name = format!("{number}{}", "x".repeat(1 << 20));
        commit_one(&place.storage, named(&[&name])).await;
    }
    let page = read_page(&place.storage, &query(10)).await;
    // Four messages slightly exceed 4 MiB.
    assert_eq!((positions(&page.messages), page.at_end), (vec![1, 2, 3, 4], false));
    assert_eq!(positions(&follow(&place.storage, query(10)).await), [1, 2, 3, 4, 5, 6]);
}

pub async fn behind_the_end(place: Place) {
    fill(&place, 2).await;
    for after in [5, i64::MAX] {
        for endpoint_identity in [None, text("bot")] {
            let query = InboxQuery { endpoint_identity, ..from(after) };
            let found = diverged(&place.storage, &query).await;
            assert_eq!(found, Diverged { last: 2, trimmed: 0 });
        }
    }
}

pub async fn found_trimmed_or_nothing(place: Place) {
    let submission = named(&["a"]);
    let id = submission.items[0].request_id;
    commit_one(&place.storage, submission).await;
    let MessageLookup::Message(message) = place.storage.message(id).await.unwrap() else {
        panic!()
    };
    assert_eq!(place.storage.message(Uuid::now_v7()).await.unwrap(), MessageLookup::Nothing);
    place.age("message_inbox", "received_at", 2 * DAY, "position = 1").await;
    let keep = InboxRetention { bodies: micros(DAY), keys: micros(2 * DAY) };
    place.storage.prune(keep).await.unwrap();
    let trimmed = MessageLookup::Trimmed { first_seen_at: message.received_at };
    assert_eq!(place.storage.message(id).await.unwrap(), trimmed);
    place.age("ingest_dedupe", "last_seen_at", 3 * DAY, "seen = 1").await;
    place.storage.prune(keep).await.unwrap();
    assert_eq!(place.storage.message(id).await.unwrap(), MessageLookup::Nothing);
}

/// While two handles write, a reader sees 1, 2, 3 and so on: no message appears below its position.
pub async fn readers_see_positions_in_order(place: Place) {
    let other = place.open().await;
    let done = Arc::new(AtomicBool::new(false));
    let follower = {
        let (storage, done) = (other.clone(), done.clone());
        tokio::spawn(async move {
            let (mut seen, mut after) = (Vec::new(), InboxCursor::default());
            loop {
                let is_last = done.load(Ordering::SeqCst);
                let page = read_page(&storage, &InboxQuery { after, ..query(7) }).await;
                seen.extend(positions(&page.messages));
                after = page.next_after;
                if page.at_end && is_last {
                    return seen;
                }
            }
        })
    };
    let mut writing = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let storage = if writer % 2 == 0 { place.storage.clone() } else { other.clone() };
        writing.spawn(async move {
            for number in 0..10 {
                let names = [format!("{writer} {number} a"), format!("{writer} {number} b")];
                commit_one(&storage, sent(names.iter().map(|name| event(name)))).await;
            }
        });
    }
    while let Some(written) = writing.join_next().await {
        written.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    assert_eq!(follower.await.unwrap(), (1..=80).collect::<Vec<_>>());
}

pub async fn a_cursor_names_its_message(place: Place) {
    fill(&place, 4).await;
    let ids: Vec<Uuid> = inbox(&place.storage).await.iter().map(|it| it.request_id).collect();
    let cursor = |position: usize| InboxCursor::new(position as i64, Some(ids[position - 1]));
    let all = [None, text("bot")];
    for endpoint_identity in &all {
        let asked = |after: InboxCursor| InboxQuery {
            endpoint_identity: endpoint_identity.clone(),
            ..from(after)
        };
        let first = read_page(&place.storage, &InboxQuery { limit: 2, ..asked(0.into()) }).await;
        assert_eq!(first.next_after, cursor(2));
        let rest = read_page(&place.storage, &asked(first.next_after)).await;
        assert_eq!((positions(&rest.messages), rest.next_after), (vec![3, 4], cursor(4)));
        let end = read_page(&place.storage, &asked(rest.next_after)).await;
        assert_eq!((end.messages.len(), end.next_after, end.at_end), (0, cursor(4), true));
        // Without a match, the cursor still advances.
        let none = InboxQuery { sender_identity: text("nobody"), ..asked(cursor(1)) };
        assert_eq!(read_page(&place.storage, &none).await.next_after, cursor(4));
        for (position, other) in [(2, 1), (4, 3), (1, 4)] {
            let wrong = InboxCursor { position, ..cursor(other) };
            let found = diverged(&place.storage, &asked(wrong)).await;
            assert_eq!(found, Diverged { last: 4, trimmed: 0 });
        }
    }
}

/// A cursor at a message that retention has deleted is still recognised.
pub async fn a_cursor_outlives_its_message(place: Place) {
    fill(&place, 3).await;
    let read = read_page(&place.storage, &query(10)).await;
    let (first, last) = (InboxCursor::new(1, Some(read.messages[0].request_id)), read.next_after);
    let wrong = InboxCursor { position: 3, ..first };
    place.age("message_inbox", "received_at", 2 * DAY, "position > 0").await;
    let keep = InboxRetention { bodies: micros(DAY), keys: micros(2 * DAY) };
    place.storage.prune(keep).await.unwrap();
    for new in [vec![], vec![4]] {
        if !new.is_empty() {
            commit_one(&place.storage, named(&["new"])).await;
        }
        for endpoint_identity in [None, text("bot")] {
            let asked = |after: InboxCursor| InboxQuery {
                endpoint_identity: endpoint_identity.clone(),
                ..from(after)
            };
            let found = read_page(&place.storage, &asked(last)).await;
            assert_eq!((positions(&found.messages), found.trimmed), (new.clone(), 3));
            assert!(!new.is_empty() || found.next_after == last);
            diverged(&place.storage, &asked(wrong)).await;
            // Deleted messages cannot be compared; `trimmed` shows the gap.
            let behind = read_page(&place.storage, &asked(first)).await;
            assert_eq!((positions(&behind.messages), behind.trimmed), (new.clone(), 3));
        }
    }
}

/// Deletes everything after a position, as restoring a backup does.
async fn restore(place: &Place, last: i64) {
    place.execute(&format!("DELETE FROM message_inbox WHERE position > {last}")).await;
    let keys = "DELETE FROM ingest_dedupe
        WHERE request_id NOT IN (SELECT request_id FROM message_inbox)";
    place.execute(keys).await;
    let row = format!(
        "UPDATE inbox_position SET last = {last},
            last_id = (SELECT request_id FROM message_inbox WHERE position = {last})"
    );
    place.execute(&row).await;
}

/// Commits five messages and restores a backup of three. Returns cursors at the third and fifth.
async fn restored(place: &Place) -> (InboxCursor, InboxCursor) {
    commit_one(&place.storage, named(&["a", "b", "c"])).await;
    let third = read_page(&place.storage, &query(10)).await.next_after;
    commit_one(&place.storage, named(&["d", "e"])).await;
    let fifth = read_page(&place.storage, &from(third)).await.next_after;
    restore(place, 3).await;
    (third, fifth)
}

pub async fn a_restore_is_noticed_by_the_cursor(place: Place) {
    let (third, fifth) = restored(&place).await;
    let lost = Diverged { last: 3, trimmed: 0 };
    assert_eq!(diverged(&place.storage, &from(fifth)).await, lost);
    assert_eq!(diverged(&place.storage, &from(5)).await, lost);
    assert!(read_page(&place.storage, &from(third)).await.at_end);
    commit_one(&place.storage, named(&["x", "y", "z"])).await;
    let other = Diverged { last: 6, trimmed: 0 };
    assert_eq!(diverged(&place.storage, &from(fifth)).await, other);
    assert_eq!(positions(&read_page(&place.storage, &from(third)).await.messages), [4, 5, 6]);
}

pub async fn an_adopted_inbox_goes_on_far_above(place: Place) {
    let (third, fifth) = restored(&place).await;
    let floor = place.storage.adopt("me").await.unwrap();
    // A full second of this century.
    assert!(floor > 1_577_836_800_000_000 && floor % 1_000_000 == 0, "{floor}");
    diverged(&place.storage, &from(fifth)).await;
    diverged(&place.storage, &from(floor + 1)).await;
    for after in [third, 5.into(), floor.into()] {
        let end = read_page(&place.storage, &from(after)).await;
        assert_eq!((end.messages.len(), end.next_after, end.at_end), (0, third, true));
    }
    commit_one(&place.storage, named(&["x", "y", "z"])).await;
    let new = [floor + 1, floor + 2, floor + 3];
    diverged(&place.storage, &from(fifth)).await;
    for endpoint_identity in [None, text("bot")] {
        // A bare position is below everything new.
        for after in [third, 5.into()] {
            let asked = InboxQuery { endpoint_identity: endpoint_identity.clone(), ..from(after) };
            assert_eq!(positions(&read_page(&place.storage, &asked).await.messages), new);
        }
        // Paging skips the gap between the incarnations.
        let steps = InboxQuery { endpoint_identity, ..query(1) };
        let all = [&[1, 2, 3][..], &new].concat();
        assert_eq!(positions(&follow(&place.storage, steps).await), all);
    }
    let nobody = InboxQuery { sender_identity: text("nobody"), ..query(10) };
    assert_eq!(follow(&place.storage, nobody).await, []);
    place.age("message_inbox", "received_at", 2 * DAY, "position <= 3").await;
    place
        .storage
        .prune(InboxRetention { bodies: micros(DAY), keys: micros(2 * DAY) })
        .await
        .unwrap();
    let rest = read_page(&place.storage, &from(third)).await;
    assert_eq!((positions(&rest.messages), rest.trimmed), (new.to_vec(), 3));
    assert!(place.storage.adopt("me").await.unwrap() >= floor + 1_000_000);
    let trail = place.storage.audit(Some("inbox"), 9).await.unwrap();
    assert_eq!((trail.len(), trail[1].action_type.as_str()), (2, "inbox_adopt"));
    let metadata: serde_json::Value = serde_json::from_str(&trail[1].metadata).unwrap();
    assert_eq!(metadata, serde_json::json!({ "last": 3, "floor": floor }));
}
