//! R11: what a replaced holder still sends stores nothing.

use super::kit::{commit_one, fence, held, inbox, is_fenced, named, stored};
use crate::place::Place;

pub async fn an_older_epoch_stores_nothing(place: Place) {
    commit_one(&place.storage, held(fence("bot", 7, "new"), &["a"])).await;
    let late = held(fence("bot", 6, "old"), &["a", "b"]);
    is_fenced(&commit_one(&place.storage, late).await, 7, "new");
    assert_eq!(inbox(&place.storage).await.len(), 1);
    assert_eq!(place.execute("SELECT count(*) FROM ingest_dedupe").await, 1);
    assert_eq!(place.execute("SELECT seen FROM ingest_dedupe").await, 1);
    // Its events are still new when the holder sends them.
    let settled = commit_one(&place.storage, held(fence("bot", 7, "new"), &["b"])).await;
    assert!(!stored(&settled)[0].duplicate);
}

pub async fn another_instance_at_the_same_epoch_stores_nothing(place: Place) {
    commit_one(&place.storage, held(fence("bot", 7, "one"), &["a"])).await;
    let other = held(fence("bot", 7, "two"), &["b"]);
    is_fenced(&commit_one(&place.storage, other).await, 7, "one");
    assert_eq!(inbox(&place.storage).await.len(), 1);
}

pub async fn the_same_hold_passes_again(place: Place) {
    for name in ["a", "b"] {
        let settled = commit_one(&place.storage, held(fence("bot", 7, "one"), &[name])).await;
        assert!(!stored(&settled)[0].duplicate);
    }
    let standings = place.storage.fences("", 10).await.unwrap();
    assert_eq!(standings.len(), 1);
    // Seen first, not last.
    assert!(standings[0].updated_at <= inbox(&place.storage).await[0].received_at);
}

pub async fn a_newer_epoch_passes_and_is_remembered(place: Place) {
    commit_one(&place.storage, held(fence("bot", 7, "one"), &["a"])).await;
    let settled = commit_one(&place.storage, held(fence("bot", 9, "two"), &["b"])).await;
    assert_eq!(stored(&settled).len(), 1);
    for (epoch, instance) in [(7, "one"), (8, "two"), (9, "one")] {
        let late = held(fence("bot", epoch, instance), &["c"]);
        is_fenced(&commit_one(&place.storage, late).await, 9, "two");
    }
    let other = place.open().await;
    let late = held(fence("bot", 8, "one"), &["c"]);
    is_fenced(&commit_one(&other, late).await, 9, "two");
}

pub async fn an_epoch_is_announced_without_items(place: Place) {
    let announced = commit_one(&place.storage, held(fence("bot", 7, "one"), &[])).await;
    assert!(stored(&announced).is_empty());
    let late = held(fence("bot", 6, "old"), &["a"]);
    is_fenced(&commit_one(&place.storage, late).await, 7, "one");
    let too_late = held(fence("bot", 6, "old"), &[]);
    is_fenced(&commit_one(&place.storage, too_late).await, 7, "one");
}

pub async fn the_newest_of_a_group_counts_first(place: Place) {
    let group = [
        held(fence("bot", 6, "old"), &["a"]),
        held(fence("bot", 8, "new"), &["b"]),
        held(fence("bot", 7, "between"), &["c"]),
        held(fence("bot", 8, "new"), &["d"]),
        held(fence("bot", 8, "pretender"), &["e"]),
    ];
    let settled = place.storage.commit(&group).await.unwrap();
    for fenced in [0, 2, 4] {
        is_fenced(&settled[fenced], 8, "new");
    }
    assert_eq!((stored(&settled[1]).len(), stored(&settled[3]).len()), (1, 1));
    assert_eq!(inbox(&place.storage).await.len(), 2);
}

pub async fn of_two_at_one_epoch_the_first_counts(place: Place) {
    let group = [held(fence("bot", 7, "b"), &["a"]), held(fence("bot", 7, "a"), &["b"])];
    let settled = place.storage.commit(&group).await.unwrap();
    assert_eq!(stored(&settled[0]).len(), 1);
    is_fenced(&settled[1], 7, "b");
    // Whoever is known stays.
    let group = [held(fence("bot", 7, "a"), &["c"]), held(fence("bot", 7, "b"), &["d"])];
    let settled = place.storage.commit(&group).await.unwrap();
    is_fenced(&settled[0], 7, "b");
    assert_eq!(stored(&settled[1]).len(), 1);
}

pub async fn duties_are_apart(place: Place) {
    commit_one(&place.storage, held(fence("one", 7, "i"), &["a"])).await;
    let settled = commit_one(&place.storage, held(fence("two", 3, "j"), &["b"])).await;
    assert_eq!(stored(&settled).len(), 1);
    assert_eq!(place.storage.fences("", 10).await.unwrap().len(), 2);
}

pub async fn a_neighbour_of_what_is_fenced_is_stored(place: Place) {
    commit_one(&place.storage, held(fence("bot", 7, "i"), &[])).await;
    let group = [held(fence("bot", 6, "i"), &["a"]), named(&["a", "b"])];
    let settled = place.storage.commit(&group).await.unwrap();
    is_fenced(&settled[0], 7, "i");
    assert!(stored(&settled[1]).iter().all(|outcome| !outcome.duplicate));
}

pub async fn a_reset_forgets_and_is_noted(place: Place) {
    commit_one(&place.storage, held(fence("bot/1", 7, "i"), &["a"])).await;
    let duty = fence("bot/1", 7, "i").duty.to_string();
    let storage = &place.storage;
    assert_eq!(storage.reset_fence("telegram/other", "me", "why").await.unwrap(), None);
    assert!(storage.audit(None, 10).await.unwrap().is_empty());
    let was = storage.reset_fence(&duty, "me", "why").await.unwrap().unwrap();
    assert_eq!((was.duty.as_str(), was.epoch.get(), was.instance.as_str()), (&*duty, 7, "i"));
    assert_eq!(storage.reset_fence(&duty, "me", "why").await.unwrap(), None);
    let entry = storage.audit(Some(&duty), 10).await.unwrap().remove(0);
    assert_eq!(entry.action_type, "fence_reset");
    assert_eq!((entry.operator_identity.as_str(), entry.reason.as_str()), ("me", "why"));
    let metadata: serde_json::Value = serde_json::from_str(&entry.metadata).unwrap();
    assert!(metadata.is_object());
    let settled = commit_one(storage, held(fence("bot/1", 3, "j"), &["b"])).await;
    assert_eq!(stored(&settled).len(), 1);
}

pub async fn fences_are_listed_by_name(place: Place) {
    for duty in ["c", "a", "b", "B"] {
        commit_one(&place.storage, held(fence(duty, 1, "i"), &[])).await;
    }
    let names = |after: &'static str, limit| {
        let storage = place.storage.clone();
        async move {
            let standings = storage.fences(after, limit).await.unwrap();
            standings.into_iter().map(|it| it.duty).collect::<Vec<_>>()
        }
    };
    let all = ["telegram/B", "telegram/a", "telegram/b", "telegram/c"];
    assert_eq!(names("", 10).await, all);
    assert_eq!(names("", 2).await, all[..2]);
    assert_eq!(names("telegram/a", 2).await, all[2..]);
    assert!(names("telegram/c", 2).await.is_empty());
}
