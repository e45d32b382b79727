//! R11: submissions of a replaced holder store nothing.

use tenure_core::Epoch;
use tenure_switchboard::storage::{
    BadFence, MAX_FENCES_PER_SOURCE, SourceScope, Submission, SubmissionOutcome,
    SubmissionRejection,
};

use super::kit::{
    OBSERVED, by_me, commit_one, fence, held, inbox, is_fenced, make_token, named, new_token,
    stored,
};
use crate::place::Place;

pub async fn an_older_epoch_stores_nothing(place: Place) {
    commit_one(&place.storage, held(fence("bot", 7, "new"), &["a"])).await;
    let late = held(fence("bot", 6, "old"), &["a", "b"]);
    is_fenced(&commit_one(&place.storage, late).await, 7, "new");
    assert_eq!(inbox(&place.storage).await.len(), 1);
    assert_eq!(place.execute("SELECT count(*) FROM ingest_dedupe").await, 1);
    assert_eq!(place.execute("SELECT seen FROM ingest_dedupe").await, 1);
    // The rejected events are still new when the holder sends them.
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
    let standings = place.storage.fences(None, "", 10).await.unwrap();
    assert_eq!(standings.len(), 1);
    // The time when it was first seen, not last.
    assert!(standings[0].newest.updated_at <= inbox(&place.storage).await[0].received_at);
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
    // The known holder stays.
    let group = [held(fence("bot", 7, "a"), &["c"]), held(fence("bot", 7, "b"), &["d"])];
    let settled = place.storage.commit(&group).await.unwrap();
    is_fenced(&settled[0], 7, "b");
    assert_eq!(stored(&settled[1]).len(), 1);
}

pub async fn duties_are_apart(place: Place) {
    commit_one(&place.storage, held(fence("one", 7, "i"), &["a"])).await;
    let settled = commit_one(&place.storage, held(fence("two", 3, "j"), &["b"])).await;
    assert_eq!(stored(&settled).len(), 1);
    assert_eq!(place.storage.fences(None, "", 10).await.unwrap().len(), 2);
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
    assert_eq!(
        storage.reset_fence("telegram/other", None, &by_me("why")).await.unwrap().unwrap(),
        []
    );
    assert!(storage.audit(None, 10).await.unwrap().is_empty());
    let was =
        storage.reset_fence(&duty, None, &by_me("why")).await.unwrap().unwrap().remove(0).newest;
    assert_eq!((was.duty.as_str(), was.epoch.get(), was.instance.as_str()), (&*duty, 7, "i"));
    assert_eq!(storage.reset_fence(&duty, None, &by_me("why")).await.unwrap().unwrap(), []);
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
            let standings = storage.fences(None, after, limit).await.unwrap();
            standings.into_iter().map(|it| it.newest.duty).collect::<Vec<_>>()
        }
    };
    let all = ["telegram/B", "telegram/a", "telegram/b", "telegram/c"];
    assert_eq!(names("", 10).await, all);
    assert_eq!(names("", 2).await, all[..2]);
    assert_eq!(names("telegram/a", 2).await, all[2..]);
    assert!(names("telegram/c", 2).await.is_empty());
}

/// Creates a token of the bot and one of another endpoint.
async fn two_sources(place: &Place) {
    make_token(&place.storage, "tok_bot").await;
    let mut other = new_token("tok_other");
    other.scope.as_mut().unwrap().endpoint_identity = "other".to_owned();
    assert!(place.storage.create_token(&other).await.unwrap());
}

fn by(token_id: &str, epoch: u64, instance: &str, names: &[&str]) -> Submission {
    let token_id = Some(token_id.to_owned());
    Submission { token_id, ..held(fence("bot", epoch, instance), names) }
}

pub async fn a_token_reaches_the_fences_of_its_own_source(place: Place) {
    two_sources(&place).await;
    let storage = &place.storage;
    commit_one(storage, by("tok_bot", 5, "i", &["a"])).await;
    assert!(stored(&commit_one(storage, by("tok_other", 9, "thief", &[])).await).is_empty());
    // The same within one group.
    let group = [by("tok_other", 10, "thief", &[]), by("tok_bot", 5, "i", &["b"])];
    let settled = storage.commit(&group).await.unwrap();
    assert_eq!(stored(&settled[1]).len(), 1);
    is_fenced(&commit_one(storage, by("tok_other", 9, "thief", &["c"])).await, 10, "thief");
    let known = storage.fences(None, "", 10).await.unwrap();
    let of =
        |name: &str| known.iter().find(|it| it.source.as_ref().unwrap().endpoint_identity == name);
    assert_eq!(of("bot").unwrap().newest.epoch.get(), 5);
    assert_eq!(of("other").unwrap().newest.epoch.get(), 10);
    // Pages are complete.
    let next = storage.fences(None, &known[0].cursor(), 10).await.unwrap();
    assert_eq!(next, known[1..]);
    // A reset deletes the fence of one source, or all of the duty.
    let source = of("other").unwrap().source.clone();
    let theirs = storage.fences(source.as_ref(), "", 10).await.unwrap();
    assert_eq!(theirs, [of("other").unwrap().clone()]);
    let was =
        storage.reset_fence("telegram/bot", source.as_ref(), &by_me("why")).await.unwrap().unwrap();
    assert_eq!(was, [of("other").unwrap().clone()]);
    commit_one(storage, by("tok_other", 1, "j", &[])).await;
    let was = storage.reset_fence("telegram/bot", None, &by_me("why")).await.unwrap().unwrap();
    assert_eq!(was.len(), 2);
    assert_eq!(storage.fences(None, "", 10).await.unwrap(), []);
}

/// Such as fences stored before they had sources, and those without tokens.
pub async fn a_fence_without_a_source_counts_for_every_one(place: Place) {
    two_sources(&place).await;
    let storage = &place.storage;
    commit_one(storage, held(fence("bot", 7, "old"), &[])).await;
    for token_id in ["tok_bot", "tok_other"] {
        // The newer holder is not revealed to them.
        let late = commit_one(storage, by(token_id, 6, "stale", &["a"])).await;
        assert_eq!(late, SubmissionOutcome::Rejected(SubmissionRejection::Fenced(None)));
        let pretender = commit_one(storage, by(token_id, 7, "stale", &["a"])).await;
        assert_eq!(pretender, SubmissionOutcome::Rejected(SubmissionRejection::Fenced(None)));
    }
    let settled = commit_one(storage, by("tok_bot", 7, "old", &["a"])).await;
    assert_eq!(stored(&settled).len(), 1);
    commit_one(storage, by("tok_bot", 8, "new", &["b"])).await;
    is_fenced(&commit_one(storage, by("tok_bot", 7, "old", &["c"])).await, 8, "new");
    assert_eq!(stored(&commit_one(storage, by("tok_other", 7, "old", &["c"])).await).len(), 1);
}

pub async fn an_epoch_that_no_store_grants_is_refused(place: Place) {
    let storage = &place.storage;
    // The maximum epoch, and the microseconds of a past time.
    let clock = OBSERVED as u64;
    let group = [
        held(fence("bot", Epoch::MAX_VALUE.get(), "thief"), &["a"]),
        held(fence("bot", clock, "i"), &["b"]),
    ];
    let settled = storage.commit(&group).await.unwrap();
    assert_eq!(
        settled[0],
        SubmissionOutcome::Rejected(SubmissionRejection::BadFence(BadFence::EpochAhead))
    );
    assert_eq!(stored(&settled[1]).len(), 1);
    let known = storage.fences(None, "", 10).await.unwrap();
    assert_eq!(known.iter().map(|it| it.newest.epoch.get()).collect::<Vec<_>>(), [clock]);
    assert_eq!(inbox(storage).await.len(), 1);
}

pub async fn the_fences_of_a_source_are_bounded(place: Place) {
    two_sources(&place).await;
    let storage = &place.storage;
    commit_one(storage, by("tok_bot", 5, "i", &[])).await;
    let more = format!(
        "INSERT INTO ingest_fence (duty, source, source_channel, source_provider,
            source_endpoint_identity, epoch, instance, updated_at)
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})
        SELECT 'x/' || i, source, source_channel, source_provider, source_endpoint_identity,
            epoch, instance, updated_at FROM ingest_fence, n",
        MAX_FENCES_PER_SOURCE - 2
    );
    assert_eq!(place.execute(&more).await, MAX_FENCES_PER_SOURCE - 2);
    let fenced = |token_id: &str, duty: &str| {
        let token_id = Some(token_id.to_owned());
        Submission { token_id, ..held(fence(duty, 1, "i"), &[duty]) }
    };
    // The last fence, one too many, and one of another source.
    let group =
        [fenced("tok_bot", "last"), fenced("tok_bot", "more"), fenced("tok_other", "theirs")];
    let settled = storage.commit(&group).await.unwrap();
    assert_eq!(stored(&settled[0]).len(), 1);
    assert_eq!(
        settled[1],
        SubmissionOutcome::Rejected(SubmissionRejection::BadFence(BadFence::TooMany))
    );
    assert_eq!(stored(&settled[2]).len(), 1);
    // Existing fences still work.
    assert_eq!(stored(&commit_one(storage, by("tok_bot", 6, "j", &["a"])).await).len(), 1);
    // Deleting one makes room for another.
    let source =
        SourceScope { endpoint_identity: "bot".to_owned(), ..new_token("").scope.unwrap() };
    storage.reset_fence("x/7", Some(&source), &by_me("gone")).await.unwrap().unwrap();
    let settled = commit_one(storage, fenced("tok_bot", "more")).await;
    assert_eq!(stored(&settled).len(), 1);
    place.execute("DELETE FROM ingest_fence").await;
}
