//! Tokens: creation, replacement, revocation, and their effect on requests.

use tenure_core::Code;
use tenure_switchboard::storage::{
    Decision, LetterResolution, MessageOutcomes, NewToken, SubmissionOutcome, SubmissionRejection,
    TimeSource, Token, TokenAudit, TokenEnd, TokenUsage,
};

use super::kit::{
    DAY, by_me, commit_one, fence, held, inbox, letter, make_token, micros, named, new_token, sha,
    stored, with_token,
};
use super::outcome::{message, told_of};
use super::told::{MIDNIGHT, bot, connector, hear};
use crate::place::Place;

pub async fn a_token_as_it_was_made(place: Place) {
    let new = new_token("tok_a");
    assert!(place.storage.create_token(&new).await.unwrap());
    let reader = NewToken { scope: None, roles: vec!["read".to_owned()], ..new_token("tok_b") };
    assert!(place.storage.create_token(&reader).await.unwrap());
    let tokens = place.storage.tokens().await.unwrap();
    let created_at = tokens[0].created_at;
    let expected = Token {
        token_id: new.token_id,
        environment: new.environment,
        roles: new.roles,
        scope: new.scope,
        created_at,
        created_by: new.by,
        expires_at: created_at + new.lifetime,
        revoked_at: None,
        revoked_by: None,
        revoked_reason: None,
        description: new.description,
        replaces_token_id: None,
        last_used_at: None,
    };
    assert_eq!(tokens[0], expected);
    assert_eq!((&tokens[1].scope, &tokens[1].roles), (&None, &reader.roles));
    assert_eq!(tokens.len(), 2);
}

pub async fn a_token_takes_over_from_one_that_is_there(place: Place) {
    let mut new = new_token("tok_b");
    new.replaces = Some("tok_a".to_owned());
    assert!(!place.storage.create_token(&new).await.unwrap());
    assert!(place.storage.tokens().await.unwrap().is_empty());
    assert!(place.storage.audit(None, 10).await.unwrap().is_empty());
    make_token(&place.storage, "tok_a").await;
    assert!(place.storage.create_token(&new).await.unwrap());
    let tokens = place.storage.tokens().await.unwrap();
    assert_eq!(tokens[1].replaces_token_id.as_deref(), Some("tok_a"));
    // Both are valid meanwhile.
    for token_id in ["tok_a", "tok_b"] {
        stored(&commit_one(&place.storage, with_token(token_id, &["a"])).await);
    }
}

pub async fn a_hash_has_one_token(place: Place) {
    make_token(&place.storage, "tok_a").await;
    let same_hash = NewToken { token_id: "tok_b".to_owned(), ..new_token("tok_a") };
    let same_id = NewToken { hash: sha("other"), ..new_token("tok_a") };
    for clash in [same_hash, same_id] {
        let error = place.storage.create_token(&clash).await.unwrap_err();
        assert!(!error.is_unknown() && error.code() == Code::Unstorable, "{error}");
    }
    assert_eq!(place.storage.tokens().await.unwrap().len(), 1);
    assert_eq!(place.storage.audit(None, 10).await.unwrap().len(), 1);
}

pub async fn a_token_is_revoked_once(place: Place) {
    assert_eq!(place.storage.revoke_token("tok_a", "me", "why").await.unwrap(), None);
    make_token(&place.storage, "tok_a").await;
    assert_eq!(place.storage.revoke_token("tok_a", "me", "leaked").await.unwrap(), Some(true));
    assert_eq!(place.storage.revoke_token("tok_a", "you", "again").await.unwrap(), Some(false));
    let token = place.storage.tokens().await.unwrap().remove(0);
    assert!(token.revoked_at.is_some_and(|at| at >= token.created_at));
    assert_eq!(token.revoked_by.as_deref(), Some("me"));
    assert_eq!(token.revoked_reason.as_deref(), Some("leaked"));
}

pub async fn an_expired_token_is_revoked_for_good(place: Place) {
    make_token(&place.storage, "tok_a").await;
    place.age("connector_tokens", "expires_at", 91 * DAY, "token_id = 'tok_a'").await;
    assert_eq!(place.storage.revoke_token("tok_a", "me", "why").await.unwrap(), Some(true));
    assert_eq!(place.storage.revoke_token("tok_a", "me", "why").await.unwrap(), Some(false));
    let audit = place.storage.audit(None, 10).await.unwrap();
    let actions: Vec<&str> = audit.iter().map(|entry| entry.action_type.as_str()).collect();
    assert_eq!(actions, ["revoke", "create"], "newest first");
    // As if the store's clock was set back to before its expiry.
    let younger = "UPDATE connector_tokens SET expires_at = created_at + (created_at - expires_at)";
    assert_eq!(place.execute(younger).await, 1);
    let settled = commit_one(&place.storage, with_token("tok_a", &["a"])).await;
    let ended = SubmissionRejection::TokenEnded(TokenEnd::Revoked);
    assert_eq!(settled, SubmissionOutcome::Rejected(ended));
}

pub async fn tokens_that_ended_open_nothing(place: Place) {
    assert!(!place.storage.has_tokens().await.unwrap());
    make_token(&place.storage, "tok_a").await;
    assert!(place.storage.has_tokens().await.unwrap());
    place.storage.revoke_token("tok_a", "me", "why").await.unwrap();
    assert!(place.storage.has_tokens().await.unwrap());
    place.age("connector_tokens", "expires_at", 91 * DAY, "token_id = 'tok_a'").await;
    assert!(place.storage.has_tokens().await.unwrap());
}

pub async fn an_ended_token_stores_nothing(place: Place) {
    make_token(&place.storage, "tok_a").await;
    make_token(&place.storage, "tok_b").await;
    stored(&commit_one(&place.storage, with_token("tok_a", &["a"])).await);
    place.storage.revoke_token("tok_a", "me", "why").await.unwrap();
    place.age("connector_tokens", "expires_at", 91 * DAY, "token_id = 'tok_b'").await;
    let ended =
        [("tok_a", TokenEnd::Revoked), ("tok_b", TokenEnd::Expired), ("tok_c", TokenEnd::Gone)];
    for (token_id, ended) in ended {
        let settled = commit_one(&place.storage, with_token(token_id, &["a", "b"])).await;
        assert_eq!(settled, SubmissionOutcome::Rejected(SubmissionRejection::TokenEnded(ended)));
        let nothing = commit_one(&place.storage, with_token(token_id, &[])).await;
        assert_eq!(nothing, SubmissionOutcome::Rejected(SubmissionRejection::TokenEnded(ended)));
    }
    assert_eq!(inbox(&place.storage).await.len(), 1);
    assert_eq!(place.execute("SELECT seen FROM ingest_dedupe").await, 1);
}

pub async fn an_ended_token_moves_no_fence(place: Place) {
    make_token(&place.storage, "tok_a").await;
    place.storage.revoke_token("tok_a", "me", "why").await.unwrap();
    let mut ended = with_token("tok_a", &["a"]);
    ended.fence = Some(fence("bot", 9, "thief"));
    let mut holder = named(&["b"]);
    holder.fence = Some(fence("bot", 7, "holder"));
    let settled = place.storage.commit(&[ended, holder]).await.unwrap();
    assert_eq!(
        settled[0],
        SubmissionOutcome::Rejected(SubmissionRejection::TokenEnded(TokenEnd::Revoked))
    );
    assert_eq!(stored(&settled[1]).len(), 1);
    let standing = place.storage.fences(None, "", 10).await.unwrap().remove(0).newest;
    assert_eq!((standing.epoch.get(), standing.instance.as_str()), (7, "holder"));
}

/// A decision with a token that ended after authentication changes nothing.
pub async fn an_ended_token_decides_nothing(place: Place) {
    let storage = &place.storage;
    hear(storage, 1, MIDNIGHT, 60, 1).await;
    commit_one(storage, held(fence("bot", 7, "holder"), &[])).await;
    let request_id = message(storage, "a").await;
    let letter = letter("b");
    storage.post_letter(&letter, None, None).await.unwrap();
    make_token(storage, "tok_a").await;
    storage.revoke_token("tok_a", "me", "why").await.unwrap();
    let trail = storage.audit(None, 99).await.unwrap();
    for (token_id, ended) in [("tok_a", TokenEnd::Revoked), ("tok_x", TokenEnd::Gone)] {
        let token_id = Some(token_id.to_owned());
        let decision = Decision { token_id: token_id.clone(), ..by_me("x") };
        let outcomes = MessageOutcomes { token_id, ..told_of(request_id, &["health"]) };
        assert_eq!(storage.report(&outcomes, TimeSource::Now).await.unwrap(), Err(ended));
        let state = "discarded";
        let resolve =
            LetterResolution { id: letter.id, state, decision: decision.clone(), request_id: None };
        assert_eq!(storage.resolve_letter(&resolve).await.unwrap(), Err(ended));
        let reset = storage.reset_fence("telegram/bot", None, &decision).await;
        assert_eq!(reset.unwrap(), Err(ended));
        assert_eq!(storage.archive(&bot(), true, &decision).await.unwrap(), Err(ended));
        assert_eq!(storage.recount(&bot(), &decision).await.unwrap(), Err(ended));
        assert_eq!(storage.delete(&bot(), &decision).await.unwrap(), Err(ended));
    }
    assert_eq!(storage.outcomes(request_id).await.unwrap(), (vec![], vec![]));
    assert_eq!(storage.pending_letters().await.unwrap(), 1);
    assert_eq!(storage.fences(None, "", 9).await.unwrap().len(), 1);
    assert_eq!(connector(storage).await.archived_at, None);
    assert_eq!(storage.audit(None, 99).await.unwrap(), trail);
}

pub async fn an_ended_token_keeps_nobody_else_out(place: Place) {
    make_token(&place.storage, "tok_a").await;
    let group = [with_token("tok_x", &["a"]), with_token("tok_a", &["a"]), named(&["b"])];
    let settled = place.storage.commit(&group).await.unwrap();
    assert_eq!(
        settled[0],
        SubmissionOutcome::Rejected(SubmissionRejection::TokenEnded(TokenEnd::Gone))
    );
    assert!(!stored(&settled[1])[0].duplicate && !stored(&settled[2])[0].duplicate);
    let tokens: Vec<_> = inbox(&place.storage).await.into_iter().map(|it| it.token_id).collect();
    assert_eq!(tokens, [Some("tok_a".to_owned()), None]);
}

pub async fn usage_adds_up(place: Place) {
    make_token(&place.storage, "tok_a").await;
    let used = |token_id: &str, day: &str, requests| TokenUsage {
        token_id: token_id.to_owned(),
        day: day.to_owned(),
        requests,
        accepted: 2 * requests,
        duplicates: 3 * requests,
        refused: 4 * requests,
    };
    let days = ["2026-02-14", "2026-02-15"];
    let one = [used("tok_a", days[0], 1), used("tok_a", days[1], 2), used("tok_b", days[1], 3)];
    place.storage.add_usage(&one).await.unwrap();
    place.open().await.add_usage(&[used("tok_a", days[1], 5)]).await.unwrap();
    place.storage.add_usage(&[]).await.unwrap();
    let all = place.storage.usage(None, days[0]).await.unwrap();
    let expected =
        [used("tok_a", days[0], 1), used("tok_a", days[1], 7), used("tok_b", days[1], 3)];
    assert_eq!(all, expected);
    assert_eq!(place.storage.usage(Some("tok_a"), days[1]).await.unwrap(), expected[1..2]);
    let token = place.storage.tokens().await.unwrap().remove(0);
    let last_used_at = token.last_used_at.unwrap();
    assert_eq!(last_used_at % 60_000_000, 0, "to the minute");
    assert!((token.created_at - last_used_at).abs() < micros(DAY));
}

pub async fn the_trail_is_newest_first(place: Place) {
    make_token(&place.storage, "tok_a").await;
    let mut new = new_token("tok_b");
    new.replaces = Some("tok_a".to_owned());
    place.storage.create_token(&new).await.unwrap();
    place.storage.revoke_token("tok_a", "somebody", "rotated").await.unwrap();
    let trail = |token_id: Option<&'static str>, limit| {
        let storage = place.storage.clone();
        async move {
            let entries = storage.audit(token_id, limit).await.unwrap();
            let words = |it: TokenAudit| [it.token_id, it.action_type, it.operator_identity];
            entries.into_iter().map(words).collect::<Vec<_>>()
        }
    };
    let all = [
        ["tok_a", "revoke", "somebody"],
        ["tok_b", "rotate", "operator"],
        ["tok_a", "create", "operator"],
    ];
    assert_eq!(trail(None, 10).await, all);
    assert_eq!(trail(None, 2).await, all[..2]);
    assert_eq!(trail(Some("tok_a"), 10).await, [all[0], all[2]]);
    let entry = place.storage.audit(None, 1).await.unwrap().remove(0);
    assert_eq!(entry.reason, "rotated");
    let made = place.storage.audit(Some("tok_b"), 1).await.unwrap().remove(0);
    let made: serde_json::Value = serde_json::from_str(&made.metadata).unwrap();
    let (environment, roles) = (&new.environment, &new.roles);
    let expected = serde_json::json!({
        "environment": environment, "roles": roles, "replaces_token_id": "tok_a"
    });
    assert_eq!(made, expected);
    assert!(entry.performed_at > 0);
}

pub async fn another_handle_sees_tokens_at_once(place: Place) {
    let other = place.open().await;
    make_token(&place.storage, "tok_a").await;
    assert!(other.has_tokens().await.unwrap());
    stored(&commit_one(&other, with_token("tok_a", &["a"])).await);
    place.storage.revoke_token("tok_a", "me", "why").await.unwrap();
    let settled = commit_one(&other, with_token("tok_a", &["b"])).await;
    assert_eq!(
        settled,
        SubmissionOutcome::Rejected(SubmissionRejection::TokenEnded(TokenEnd::Revoked))
    );
}
