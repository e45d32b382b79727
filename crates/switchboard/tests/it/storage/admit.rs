//! Admission of tokens, and limits on failed attempts.

use tenure_switchboard::storage::{Admission, Attempt, TokenEnd};

use super::kit::{DAY, HOUR, attempt, make_token, micros};
use crate::place::Place;

async fn fail(place: &Place, address: &str, times: usize) {
    for _ in 0..times {
        let admission = place.storage.admit(&attempt("nobody", address)).await.unwrap();
        assert_eq!(admission, Admission::Unknown);
    }
}

#[track_caller]
fn is_limited(admission: &Admission) {
    match admission {
        Admission::Limited { retry_after } => {
            assert!((1..=micros(HOUR / 4)).contains(retry_after), "{retry_after}");
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_token(admission: &Admission, token_id: &str) {
    match admission {
        Admission::Token(token) => assert_eq!(token.token_id, token_id),
        other => panic!("{other:?}"),
    }
}

pub async fn a_good_token_is_admitted(place: Place) {
    make_token(&place.storage, "tok_a").await;
    make_token(&place.storage, "tok_b").await;
    for _ in 0..7 {
        is_token(&place.storage.admit(&attempt("tok_b", "::1")).await.unwrap(), "tok_b");
    }
    let admitted = place.storage.admit(&attempt("tok_a", "::1")).await.unwrap();
    let token = place.storage.tokens().await.unwrap().remove(0);
    assert_eq!(admitted, Admission::Token(Box::new(token)));
    assert_eq!(place.execute("SELECT count(*) FROM auth_failure").await, 0);
}

pub async fn an_ended_token_is_told_and_not_counted(place: Place) {
    make_token(&place.storage, "tok_a").await;
    make_token(&place.storage, "tok_b").await;
    place.storage.revoke_token("tok_a", "me", "why").await.unwrap();
    place.age("connector_tokens", "expires_at", 91 * DAY, "token_id = 'tok_b'").await;
    for _ in 0..7 {
        let revoked = place.storage.admit(&attempt("tok_a", "::1")).await.unwrap();
        assert_eq!(revoked, Admission::Ended(TokenEnd::Revoked));
        let expired = place.storage.admit(&attempt("tok_b", "::1")).await.unwrap();
        assert_eq!(expired, Admission::Ended(TokenEnd::Expired));
    }
    assert_eq!(place.execute("SELECT count(*) FROM auth_failure").await, 0);
}

pub async fn the_limit_is_exact_for_one_after_another(place: Place) {
    // A missing token is a failure, too.
    let nothing = Attempt { hash: None, ..attempt("", "::1") };
    assert_eq!(place.storage.admit(&nothing).await.unwrap(), Admission::Unknown);
    fail(&place, "::1", 4).await;
    for _ in 0..3 {
        is_limited(&place.storage.admit(&attempt("nobody", "::1")).await.unwrap());
    }
    is_limited(&place.storage.admit(&nothing).await.unwrap());
    assert_eq!(place.execute("SELECT failures FROM auth_failure").await, 5);
}

pub async fn the_limit_is_exact_for_many_at_once(place: Place) {
    let other = place.open().await;
    let mut trying = tokio::task::JoinSet::new();
    for number in 0..20 {
        let storage = if number % 2 == 0 { place.storage.clone() } else { other.clone() };
        trying.spawn(async move { storage.admit(&attempt("nobody", "::1")).await.unwrap() });
    }
    let mut unknown = 0;
    while let Some(admission) = trying.join_next().await {
        match admission.unwrap() {
            Admission::Unknown => unknown += 1,
            other => is_limited(&other),
        }
    }
    assert_eq!(unknown, 5);
}

pub async fn the_window_ends(place: Place) {
    fail(&place, "::1", 3).await;
    place.age("auth_failure", "window_ends_at", HOUR / 4, "failures = 3").await;
    // A new window ends a fixed time after its first failure; later failures do not extend it.
    fail(&place, "::1", 1).await;
    place.age("auth_failure", "window_ends_at", HOUR / 8, "failures = 1").await;
    fail(&place, "::1", 4).await;
    let limited = place.storage.admit(&attempt("nobody", "::1")).await.unwrap();
    let Admission::Limited { retry_after } = limited else { panic!("{limited:?}") };
    assert!((1..=micros(HOUR / 8)).contains(&retry_after), "{retry_after}");
    place.age("auth_failure", "window_ends_at", HOUR / 8, "failures = 5").await;
    fail(&place, "::1", 5).await;
}

pub async fn failures_never_keep_out_good_tokens_of_the_address(place: Place) {
    make_token(&place.storage, "tok_a").await;
    make_token(&place.storage, "tok_b").await;
    place.storage.revoke_token("tok_b", "me", "why").await.unwrap();
    fail(&place, "::1", 5).await;
    is_limited(&place.storage.admit(&attempt("nobody", "::1")).await.unwrap());
    is_token(&place.storage.admit(&attempt("tok_a", "::1")).await.unwrap(), "tok_a");
    // A successful attempt does not reset the limit, and an ended token is reported as such.
    is_limited(&place.storage.admit(&attempt("nobody", "::1")).await.unwrap());
    let revoked = place.storage.admit(&attempt("tok_b", "::1")).await.unwrap();
    assert_eq!(revoked, Admission::Ended(TokenEnd::Revoked));
}

pub async fn addresses_are_apart(place: Place) {
    make_token(&place.storage, "tok_a").await;
    fail(&place, "::1", 5).await;
    fail(&place, "127.0.0.1", 1).await;
    is_token(&place.storage.admit(&attempt("tok_a", "127.0.0.1")).await.unwrap(), "tok_a");
}
