//! Dead letters.

use tenure_switchboard::storage::{
    LetterQuery, LetterResolution, PostOutcome, ResolveOutcome, StoredLetter, SubmissionRejection,
    TokenEnd,
};
use uuid::Uuid;

use super::kit::{by_me, commit_one, fence, held, is_fenced, letter, make_token};
use crate::place::Place;

async fn post(place: &Place, name: &str) -> Uuid {
    let letter = letter(name);
    let posted = place.storage.post_letter(&letter, None, None).await.unwrap();
    assert_eq!(posted, PostOutcome::Kept { id: letter.id, duplicate: false });
    letter.id
}

pub async fn a_letter_is_kept_once(place: Place) {
    let id = post(&place, "a").await;
    let again = place.open().await.post_letter(&letter("a"), None, None).await.unwrap();
    assert_eq!(again, PostOutcome::Kept { id, duplicate: true });
    assert_eq!(place.execute("SELECT count(*) FROM dead_letter").await, 1);
    post(&place, "b").await;
}

pub async fn a_letter_as_it_was_posted(place: Place) {
    make_token(&place.storage, "tok_a").await;
    let (mut posted, fence) = (letter("a"), fence("bot", 3, "i"));
    posted.external_event_id = None;
    posted.envelope = r#""\u0000\ud800""#.to_owned();
    place.storage.post_letter(&posted, Some(&fence), Some("tok_a")).await.unwrap();
    let kept = place.storage.letter(posted.id).await.unwrap().unwrap();
    assert!(kept.posted_at > 0);
    let expected = StoredLetter {
        letter: posted,
        posted_at: kept.posted_at,
        duty: Some(fence.duty.to_string()),
        token_id: Some("tok_a".to_owned()),
        state: "pending".to_owned(),
        resolved_at: None,
        resolved_by: None,
        resolution: None,
        request_id: None,
    };
    assert_eq!(kept, expected);
    assert_eq!(place.storage.letter(Uuid::now_v7()).await.unwrap(), None);
}

pub async fn a_letter_needs_its_token(place: Place) {
    make_token(&place.storage, "tok_a").await;
    place.storage.revoke_token("tok_a", "me", "why").await.unwrap();
    let ended = [("tok_a", TokenEnd::Revoked), ("tok_b", TokenEnd::Gone)];
    for (token_id, ended) in ended {
        let fence = fence("bot", 9, "i");
        let posted = place.storage.post_letter(&letter("a"), Some(&fence), Some(token_id)).await;
        assert_eq!(posted.unwrap(), PostOutcome::Rejected(SubmissionRejection::TokenEnded(ended)));
    }
    assert_eq!(place.storage.pending_letters().await.unwrap(), 0);
    assert!(place.storage.fences(None, "", 10).await.unwrap().is_empty());
}

pub async fn a_letter_needs_its_fence(place: Place) {
    commit_one(&place.storage, held(fence("bot", 7, "new"), &[])).await;
    for old in [fence("bot", 6, "old"), fence("bot", 7, "old")] {
        let posted = place.storage.post_letter(&letter("a"), Some(&old), None).await.unwrap();
        let PostOutcome::Rejected(SubmissionRejection::Fenced(Some(standing))) = posted else {
            panic!("{posted:?}")
        };
        assert_eq!((standing.epoch.get(), standing.instance.as_str()), (7, "new"));
    }
    assert_eq!(place.storage.pending_letters().await.unwrap(), 0);
}

pub async fn a_letter_remembers_its_fence(place: Place) {
    let new = fence("bot", 8, "new");
    place.storage.post_letter(&letter("a"), Some(&new), None).await.unwrap();
    let late = held(fence("bot", 7, "old"), &["a"]);
    is_fenced(&commit_one(&place.storage, late).await, 8, "new");
}

pub async fn a_letter_ends_once(place: Place) {
    let id = post(&place, "a").await;
    let replayed = LetterResolution {
        id,
        state: "replayed",
        decision: by_me("it works now"),
        request_id: Some(Uuid::now_v7()),
    };
    assert_eq!(
        place.storage.resolve_letter(&replayed).await.unwrap().unwrap(),
        ResolveOutcome::Done
    );
    let discarded = LetterResolution {
        state: "discarded",
        decision: by_me("no"),
        request_id: None,
        ..replayed.clone()
    };
    assert_eq!(
        place.storage.resolve_letter(&discarded).await.unwrap().unwrap(),
        ResolveOutcome::Before
    );
    let nobody = LetterResolution { id: Uuid::now_v7(), ..discarded };
    assert_eq!(
        place.storage.resolve_letter(&nobody).await.unwrap().unwrap(),
        ResolveOutcome::Nothing
    );
    let kept = place.storage.letter(id).await.unwrap().unwrap();
    assert_eq!((kept.state.as_str(), kept.request_id), ("replayed", replayed.request_id));
    assert_eq!(kept.resolved_by.as_deref(), Some("me"));
    assert_eq!(kept.resolution.as_deref(), Some("it works now"));
    assert!(kept.resolved_at.is_some_and(|at| at >= kept.posted_at));
    // Posting it again does not reopen it.
    let again = place.storage.post_letter(&letter("a"), None, None).await.unwrap();
    assert_eq!(again, PostOutcome::Kept { id, duplicate: true });
    assert_eq!(place.storage.pending_letters().await.unwrap(), 0);
}

pub async fn letters_are_listed_oldest_first(place: Place) {
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        ids.push(post(&place, name).await);
    }
    let mut other = letter("e");
    other.endpoint_identity = "other".to_owned();
    place.storage.post_letter(&other, None, None).await.unwrap();
    let resolve = LetterResolution {
        id: ids[1],
        state: "discarded",
        decision: by_me("spam"),
        request_id: None,
    };
    place.storage.resolve_letter(&resolve).await.unwrap().unwrap();
    let list = |query: LetterQuery| {
        let storage = place.storage.clone();
        async move {
            let letters = storage.letters(&query).await.unwrap();
            letters.into_iter().map(|it| it.letter.id).collect::<Vec<_>>()
        }
    };
    let ten = LetterQuery { limit: 10, ..LetterQuery::default() };
    assert_eq!(list(ten.clone()).await, [ids[0], ids[1], ids[2], ids[3], other.id]);
    assert_eq!(list(LetterQuery { limit: 2, ..ten.clone() }).await, ids[..2]);
    let after = LetterQuery { after: Some(ids[1]), limit: 2, ..ten.clone() };
    assert_eq!(list(after).await, ids[2..]);
    let pending = LetterQuery { state: Some("pending".to_owned()), ..ten.clone() };
    assert_eq!(list(pending.clone()).await, [ids[0], ids[2], ids[3], other.id]);
    let discarded = LetterQuery { state: Some("discarded".to_owned()), ..ten.clone() };
    assert_eq!(list(discarded).await, [ids[1]]);
    let endpoint = Some("other".to_owned());
    let of_other = LetterQuery { endpoint_identity: endpoint, ..pending.clone() };
    assert_eq!(list(of_other).await, [other.id]);
}

/// Letters are filtered by channel, provider and endpoint.
pub async fn letters_of_one_source(place: Place) {
    let mut ids = Vec::new();
    for (name, channel, provider, endpoint) in [
        ("a", "telegram", "telegram", "bot"),
        ("b", "slack", "telegram", "bot"),
        ("c", "telegram", "bots", "bot"),
        ("d", "telegram", "telegram", "other"),
        ("e", "telegram", "telegram", "bot"),
    ] {
        let mut letter = letter(name);
        letter.channel = channel.to_owned();
        letter.provider = provider.to_owned();
        letter.endpoint_identity = endpoint.to_owned();
        place.storage.post_letter(&letter, None, None).await.unwrap();
        ids.push(letter.id);
    }
    let text = |text: &str| Some(text.to_owned());
    for state in [None, text("pending")] {
        let query = LetterQuery {
            limit: 2,
            state,
            channel: text("telegram"),
            provider: text("telegram"),
            endpoint_identity: text("bot"),
            ..LetterQuery::default()
        };
        let found = place.storage.letters(&query).await.unwrap();
        assert_eq!(found.iter().map(|it| it.letter.id).collect::<Vec<_>>(), [ids[0], ids[4]]);
    }
}

/// Letters are filtered by class and reason, and by the time of posting.
pub async fn letters_by_error_and_time(place: Place) {
    let mut ids = Vec::new();
    for (name, class, reason) in
        [("a", "timeout", "no answer"), ("b", "other", "timeout?"), ("c", "other", "100%_x")]
    {
        let mut letter = letter(name);
        (letter.error_class, letter.reason) = (class.to_owned(), reason.to_owned());
        place.storage.post_letter(&letter, None, None).await.unwrap();
        ids.push(letter.id);
    }
    let posted = place.storage.letter(ids[1]).await.unwrap().unwrap().posted_at;
    for state in [None, Some("pending".to_owned())] {
        let all = LetterQuery { limit: 9, state, ..LetterQuery::default() };
        let list = async |query: LetterQuery| {
            let letters = place.storage.letters(&query).await.unwrap();
            letters.into_iter().map(|it| it.letter.id).collect::<Vec<_>>()
        };
        let by = async |text: &str| {
            list(LetterQuery { error: Some(text.to_owned()), ..all.clone() }).await
        };
        assert_eq!(by("timeout").await, ids[..2]);
        assert_eq!(by("other: timeout").await, ids[1..2]);
        assert_eq!(by("%_").await, ids[2..], "the text has no wildcards");
        assert!(by("TIMEOUT").await.is_empty());
        assert_eq!(list(LetterQuery { since: Some(posted), ..all.clone() }).await, ids[1..]);
        let later = LetterQuery { since: Some(i64::MAX / 2), ..all.clone() };
        assert!(list(later).await.is_empty());
        assert_eq!(list(LetterQuery { since: Some(-1), ..all.clone() }).await, ids);
    }
}

pub async fn a_letter_that_is_refused_again_stays_pending(place: Place) {
    let id = post(&place, "a").await;
    let before = place.storage.letter(id).await.unwrap().unwrap();
    assert!(place.storage.refuse_letter(id, "validation_error", "new").await.unwrap());
    let after = place.storage.letter(id).await.unwrap().unwrap();
    let mut expected = before.clone();
    expected.letter.error_class = "validation_error".to_owned();
    expected.letter.reason = "new".to_owned();
    expected.letter.attempts += 1;
    assert_eq!(after, expected);
    let (decision, request_id) = (by_me("spam"), None);
    let resolve = LetterResolution { id, state: "discarded", decision, request_id };
    place.storage.resolve_letter(&resolve).await.unwrap().unwrap();
    assert!(!place.storage.refuse_letter(id, "other", "late").await.unwrap());
    assert_eq!(place.storage.letter(id).await.unwrap().unwrap().letter, expected.letter);
    assert!(!place.storage.refuse_letter(Uuid::now_v7(), "other", "x").await.unwrap());
}

pub async fn pending_letters_are_counted(place: Place) {
    assert_eq!(place.storage.pending_letters().await.unwrap(), 0);
    post(&place, "a").await;
    post(&place, "b").await;
    assert_eq!(place.storage.pending_letters().await.unwrap(), 2);
}
