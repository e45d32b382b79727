//! Reading the inbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_switchboard::storage::{Found, InboxQuery, Keep};
use tenure_wire::ingest::Event;
use uuid::Uuid;

use super::kit::{
    DAY, HOUR, commit_one, event, follow, inbox, make_token, micros, named, positions, sent,
    with_token,
};
use crate::place::Place;

fn query(limit: usize) -> InboxQuery {
    InboxQuery { limit, ..InboxQuery::default() }
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
    assert_eq!((&*message.channel, &*message.provider), (event.channel, event.provider));
    assert_eq!(message.endpoint_identity, event.endpoint_identity);
    assert_eq!(message.sender_identity, event.sender_identity);
    assert_eq!(message.thread_identity, event.thread_identity);
    assert_eq!(message.dedupe_key, event.dedupe.key);
    assert_eq!(message.token_id, text("tok_a"));
    assert_eq!(message.lifecycle_state, "accepted");
    assert_eq!(message.envelope, event.envelope);
    let found = place.storage.message(message.request_id).await.unwrap();
    assert_eq!(found, Found::Message(Box::new(message)));
}

pub async fn pages_lead_to_the_end(place: Place) {
    fill(&place, 7).await;
    assert_eq!(positions(&follow(&place.storage, query(3)).await), [1, 2, 3, 4, 5, 6, 7]);
    let page = place.storage.inbox(&query(3)).await.unwrap();
    assert_eq!((page.next_after, page.at_end, page.trimmed), (3, false, 0));
    let page = place.storage.inbox(&InboxQuery { after: 6, ..query(3) }).await.unwrap();
    assert_eq!((positions(&page.messages), page.next_after, page.at_end), (vec![7], 7, true));
}

pub async fn an_exact_page_is_at_the_end(place: Place) {
    let page = place.storage.inbox(&query(3)).await.unwrap();
    assert_eq!((page.messages.len(), page.next_after, page.at_end), (0, 0, true));
    fill(&place, 3).await;
    let page = place.storage.inbox(&query(3)).await.unwrap();
    assert_eq!((page.messages.len(), page.next_after, page.at_end), (3, 3, true));
}

pub async fn each_filter_filters(place: Place) {
    let change: [fn(&mut Event); 5] = [
        |event| event.channel = "email",
        |event| event.provider = "gmail",
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
        let page = place.storage.inbox(query).await.unwrap();
        assert_eq!(positions(&page.messages), [number as i64 + 2], "{query:?}");
        assert_eq!((page.next_after, page.at_end), (6, true), "{query:?}");
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
    let after = InboxQuery { after: 2, ..both };
    assert_eq!(positions(&follow(&place.storage, after).await), [8]);
}

pub async fn a_bounded_number_is_looked_at(place: Place) {
    fill(&place, 10_005).await;
    let mut rare = event("rare");
    rare.sender_identity = "rare".to_owned();
    commit_one(&place.storage, sent([rare])).await;
    let rare = InboxQuery { sender_identity: text("rare"), ..query(10) };
    let page = place.storage.inbox(&rare).await.unwrap();
    assert_eq!((page.messages.len(), page.next_after, page.at_end), (0, 10_000, false));
    assert_eq!(positions(&follow(&place.storage, rare).await), [10_006]);
}

pub async fn a_page_ends_with_its_bytes(place: Place) {
    for number in 0..6 {
        let name = format!("{number}{}", "x".repeat(1 << 20));
        commit_one(&place.storage, named(&[&name])).await;
    }
    let page = place.storage.inbox(&query(10)).await.unwrap();
    // Four have a few bytes more than 4 MiB.
    assert_eq!((positions(&page.messages), page.at_end), (vec![1, 2, 3, 4], false));
    assert_eq!(positions(&follow(&place.storage, query(10)).await), [1, 2, 3, 4, 5, 6]);
}

pub async fn behind_the_end(place: Place) {
    fill(&place, 2).await;
    for after in [5, i64::MAX] {
        for endpoint_identity in [None, text("bot")] {
            let query = InboxQuery { after, endpoint_identity, ..query(10) };
            let page = place.storage.inbox(&query).await.unwrap();
            assert_eq!((page.messages.len(), page.next_after, page.at_end), (0, after, true));
        }
    }
}

pub async fn found_trimmed_or_nothing(place: Place) {
    let submission = named(&["a"]);
    let id = submission.items[0].request_id;
    commit_one(&place.storage, submission).await;
    let Found::Message(message) = place.storage.message(id).await.unwrap() else { panic!() };
    assert_eq!(place.storage.message(Uuid::now_v7()).await.unwrap(), Found::Nothing);
    place.age("message_inbox", "received_at", 2 * DAY, "position = 1").await;
    let keep = Keep { bodies: micros(DAY), keys: micros(2 * DAY) };
    place.storage.prune(keep).await.unwrap();
    let trimmed = Found::Trimmed { first_seen_at: message.received_at };
    assert_eq!(place.storage.message(id).await.unwrap(), trimmed);
    place.age("ingest_dedupe", "last_seen_at", 3 * DAY, "seen = 1").await;
    place.storage.prune(keep).await.unwrap();
    assert_eq!(place.storage.message(id).await.unwrap(), Found::Nothing);
}

/// Whoever follows sees 1, 2, 3 and so on while two handles write: nothing appears behind them.
pub async fn readers_see_positions_in_order(place: Place) {
    let other = place.open().await;
    let done = Arc::new(AtomicBool::new(false));
    let follower = {
        let (storage, done) = (other.clone(), done.clone());
        tokio::spawn(async move {
            let (mut seen, mut after) = (Vec::new(), 0);
            loop {
                let is_last = done.load(Ordering::SeqCst);
                let page = storage.inbox(&InboxQuery { after, ..query(7) }).await.unwrap();
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
