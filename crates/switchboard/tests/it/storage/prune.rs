//! Retention.

use tenure_switchboard::storage::{InboxQuery, InboxRetention, LetterResolution, PruneReport};

use super::kit::{
    DAY, HOUR, attempt, by_me, commit_one, event, inbox, letter, micros, named, positions,
    read_page, sent, stored,
};
use crate::place::Place;

fn keep() -> InboxRetention {
    InboxRetention { bodies: micros(30 * DAY), keys: micros(45 * DAY) }
}

pub async fn bodies_and_keys_apart(place: Place) {
    commit_one(&place.storage, named(&["a", "b", "c", "d"])).await;
    place.age("message_inbox", "received_at", 31 * DAY, "position <= 3").await;
    place.age("ingest_dedupe", "last_seen_at", 31 * DAY, "seen = 1").await;
    let pruned = place.storage.prune(keep()).await.unwrap();
    assert_eq!(pruned, PruneReport { messages: 3, ..PruneReport::default() });
    let page = read_page(&place.storage, &InboxQuery { limit: 9, ..InboxQuery::default() }).await;
    assert_eq!((positions(&page.messages), page.trimmed), (vec![4], 3));
    // An accepted event is still recognised.
    let again = commit_one(&place.storage, named(&["b"])).await;
    assert!(stored(&again)[0].duplicate);
    place.age("ingest_dedupe", "last_seen_at", 15 * DAY, "seen = 1").await;
    let pruned = place.storage.prune(keep()).await.unwrap();
    assert_eq!(pruned, PruneReport { keys: 3, ..PruneReport::default() });
    assert_eq!(inbox(&place.storage).await.len(), 1);
}

pub async fn positions_go_on_after_everything_is_gone(place: Place) {
    commit_one(&place.storage, named(&["a", "b", "c"])).await;
    place.age("message_inbox", "received_at", 31 * DAY, "position > 0").await;
    assert_eq!(place.storage.prune(keep()).await.unwrap().messages, 3);
    assert_eq!(place.storage.last_position().await.unwrap(), 3);
    commit_one(&place.storage, named(&["d"])).await;
    assert_eq!(positions(&inbox(&place.storage).await), [4]);
    place.age("message_inbox", "received_at", 31 * DAY, "position > 0").await;
    place.storage.prune(keep()).await.unwrap();
    let again = place.open().await;
    commit_one(&again, named(&["e"])).await;
    assert_eq!(positions(&inbox(&again).await), [5]);
    let page = read_page(&again, &InboxQuery { limit: 9, ..InboxQuery::default() }).await;
    assert_eq!((page.trimmed, page.next_after.position), (4, 5));
}

pub async fn a_key_lives_on_while_it_is_seen(place: Place) {
    commit_one(&place.storage, named(&["a", "b"])).await;
    for column in ["first_seen_at", "last_seen_at"] {
        place.age("ingest_dedupe", column, 46 * DAY, "seen = 1").await;
    }
    commit_one(&place.storage, named(&["a"])).await;
    assert_eq!(place.storage.prune(keep()).await.unwrap().keys, 1);
    assert!(stored(&commit_one(&place.storage, named(&["a"])).await)[0].duplicate);
}

pub async fn a_key_past_its_retention_is_new(place: Place) {
    let first = stored(&commit_one(&place.storage, named(&["a"])).await)[0];
    place.age("message_inbox", "received_at", 46 * DAY, "position = 1").await;
    place.age("ingest_dedupe", "last_seen_at", 46 * DAY, "seen = 1").await;
    let pruned = place.storage.prune(keep()).await.unwrap();
    assert_eq!((pruned.messages, pruned.keys), (1, 1));
    let second = stored(&commit_one(&place.storage, named(&["a"])).await)[0];
    assert!(!second.duplicate && second.request_id != first.request_id);
    assert_eq!(positions(&inbox(&place.storage).await), [2]);
}

pub async fn a_key_outlives_its_message(place: Place) {
    commit_one(&place.storage, named(&["a"])).await;
    place.age("ingest_dedupe", "last_seen_at", 20 * DAY, "seen = 1").await;
    let short = InboxRetention { keys: micros(DAY), ..keep() };
    assert_eq!(place.storage.prune(short).await.unwrap(), PruneReport::default());
    assert!(stored(&commit_one(&place.storage, named(&["a"])).await)[0].duplicate);
}

pub async fn only_letters_that_ended(place: Place) {
    let letters = [letter("a"), letter("b"), letter("c")];
    for letter in &letters {
        place.storage.post_letter(letter, None, None).await.unwrap();
    }
    for letter in &letters[..2] {
        let resolve = LetterResolution {
            id: letter.id,
            state: "discarded",
            decision: by_me("spam"),
            request_id: None,
        };
        place.storage.resolve_letter(&resolve).await.unwrap().unwrap();
    }
    place.age("dead_letter", "posted_at", 99 * DAY, "attempts = 5").await;
    let old = "external_event_id = 'a'";
    place.age("dead_letter", "resolved_at", 31 * DAY, old).await;
    assert_eq!(place.storage.prune(keep()).await.unwrap().letters, 1);
    assert_eq!(place.storage.letter(letters[0].id).await.unwrap(), None);
    assert!(place.storage.letter(letters[1].id).await.unwrap().is_some());
    assert!(place.storage.letter(letters[2].id).await.unwrap().is_some());
}

pub async fn addresses_whose_window_is_over(place: Place) {
    for address in ["::1", "127.0.0.1"] {
        place.storage.admit(&attempt("nobody", address)).await.unwrap();
    }
    place.age("auth_failure", "window_ends_at", HOUR, "address = '::1'").await;
    assert_eq!(place.storage.prune(keep()).await.unwrap().addresses, 1);
    assert_eq!(place.execute("SELECT count(*) FROM auth_failure").await, 1);
}

pub async fn a_step_is_bounded(place: Place) {
    let names: Vec<String> = (0..1_100).map(|number| number.to_string()).collect();
    commit_one(&place.storage, sent(names.iter().map(|name| event(name)))).await;
    place.age("message_inbox", "received_at", 46 * DAY, "position > 0").await;
    place.age("ingest_dedupe", "last_seen_at", 46 * DAY, "seen = 1").await;
    let first = place.storage.prune(keep()).await.unwrap();
    assert_eq!((first.messages, first.keys, first.more), (1_000, 1_000, true));
    let second = place.storage.prune(keep()).await.unwrap();
    assert_eq!((second.messages, second.keys, second.more), (100, 100, false));
}

pub async fn nothing_to_take(place: Place) {
    commit_one(&place.storage, named(&["a"])).await;
    assert_eq!(place.storage.prune(keep()).await.unwrap(), PruneReport::default());
    assert_eq!(inbox(&place.storage).await.len(), 1);
}
