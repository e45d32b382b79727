use std::pin::Pin;

use tenure_wire::ingest::{Channel, Fields};

use super::*;
use crate::storage::{NewToken, SourceScope};
use crate::tests as testing;
use crate::token::{Environment, Minted, mint};

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const INGEST: Requirement = Requirement::Role(Role::Ingest);

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn bearer(text: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Bearer {text}"))])
}

struct Stage {
    access: AccessControl,
    storage: Arc<dyn Storage>,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn new(limiter: Limiter) -> Self {
        let (storage, folder) = testing::storage().await;
        let access = AccessControl::new(Arc::clone(&storage), Arc::default(), limiter, true);
        Self { access, storage, _folder: folder }
    }

    async fn token(&self, roles: &[&str]) -> Minted {
        let minted = mint(Environment::Dev, || uuid::Uuid::new_v4().as_u128());
        let token = NewToken {
            token_id: minted.token_id.clone(),
            hash: minted.secret.digest(),
            environment: "dev".to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            scope: Some(SourceScope {
                channel: "api".to_owned(),
                provider: "internal".to_owned(),
                endpoint_identity: "here".to_owned(),
            }),
            lifetime: 3_600_000_000,
            by: "a test".to_owned(),
            description: String::new(),
            replaces: None,
        };
        assert!(self.storage.create_token(&token).await.unwrap());
        minted
    }

    async fn status(&self, headers: &HeaderMap, need: Requirement) -> u16 {
        match self.access.check(headers, PEER, need).await {
            Ok(_) => 200,
            Err(error) => error.status.as_u16(),
        }
    }
}

#[tokio::test]
async fn roles_and_scope_are_kept_apart() {
    let stage = Stage::new(Limiter::default()).await;
    let ingest = stage.token(&["ingest"]).await;
    let admin = stage.token(&["admin"]).await;
    let shown = bearer(ingest.secret.reveal());
    assert_eq!(stage.status(&shown, INGEST).await, 200);
    assert_eq!(stage.status(&shown, Requirement::Token).await, 200);
    assert_eq!(stage.status(&shown, Requirement::Role(Role::Read)).await, 403);
    assert_eq!(stage.status(&bearer(admin.secret.reveal()), INGEST).await, 403);
    assert_eq!(
        stage.status(&bearer(admin.secret.reveal()), Requirement::Role(Role::Read)).await,
        200
    );
    let caller = stage.access.check(&shown, PEER, INGEST).await.unwrap();
    assert!(caller.permits("api", "internal", "here").is_ok());
    for (channel, provider, endpoint) in
        [("mcp", "internal", "here"), ("api", "slack", "here"), ("api", "internal", "there")]
    {
        let error = caller.permits(channel, provider, endpoint).unwrap_err();
        assert_eq!(error.status.as_u16(), 403);
    }
    let usage = stage.access.take_usage("2026-02-15");
    let of_ingest = usage.iter().find(|it| it.token_id == ingest.token_id).unwrap();
    assert_eq!((of_ingest.requests, of_ingest.refused), (4, 1));
    assert!(stage.access.take_usage("2026-02-15").is_empty());
}

/// Includes a scope whose channel is an alias.
#[tokio::test]
async fn who_may_beat_for_a_connector_may_see_it() {
    let stage = Stage::new(Limiter::default()).await;
    let shown = bearer(stage.token(&["ingest", "read"]).await.secret.reveal());
    let caller = stage.access.check(&shown, PEER, INGEST).await.unwrap();
    let mut token = caller.token().unwrap().clone();
    let [channel, provider, endpoint] = ["telegram_bot", "telegram", "bot"].map(str::to_owned);
    token.scope = Some(SourceScope {
        channel: channel.clone(),
        provider: provider.clone(),
        endpoint_identity: endpoint,
    });
    let caller = Principal::Token(Arc::new(token));
    let alias = |alias: Option<&str>| {
        let (name, providers) = (channel.clone(), vec![provider.clone()]);
        let channel = Channel { name, providers, alias: alias.map(str::to_owned) };
        Rules::new(vec![channel], Fields::Refused)
    };
    for (kind, alias, may) in [
        ("telegram_bot", alias(None), true),
        ("telegram_user_client", alias(None), false),
        ("telegram_user_client", alias(Some("telegram")), true),
        ("slack", alias(Some("telegram")), false),
    ] {
        assert_eq!(caller.permits_heartbeat(kind, "bot", &alias).is_ok(), may, "{kind}");
        assert_eq!(caller.may_see(kind, "bot", &alias), may, "{kind}");
        assert!(!caller.may_see(kind, "other", &alias));
    }
}

#[tokio::test]
async fn what_is_revoked_is_known_for_submissions_only_until_a_commit_says_so() {
    let stage = Stage::new(Limiter::default()).await;
    let token = stage.token(&["ingest", "read"]).await;
    let shown = bearer(token.secret.reveal());
    assert_eq!(stage.status(&shown, INGEST).await, 200);
    stage.storage.revoke_token(&token.token_id, "me", "lost").await.unwrap();
    // The commit will reject it; for reads, the token is looked up at once.
    assert_eq!(stage.status(&shown, INGEST).await, 200);
    stage.access.ended(Some(&token.token_id));
    assert_eq!(stage.status(&shown, INGEST).await, 401);
    assert_eq!(stage.status(&shown, Requirement::Role(Role::Read)).await, 401);
}

#[tokio::test]
async fn failures_are_limited_and_good_tokens_are_not() {
    let limiter = Limiter { failures: 2, ..Limiter::default() };
    let stage = Stage::new(limiter).await;
    let token = stage.token(&["ingest"]).await;
    let shown = bearer(token.secret.reveal());
    assert_eq!(stage.status(&shown, INGEST).await, 200);
    let unknown = mint(Environment::Dev, || 7);
    for bad in [HeaderMap::new(), bearer(unknown.secret.reveal())] {
        assert_eq!(stage.status(&bad, INGEST).await, 401);
    }
    for bad in [HeaderMap::new(), bearer("x"), bearer(unknown.secret.reveal())] {
        let error = stage.access.check(&bad, PEER, INGEST).await.unwrap_err();
        // Even without a store query, `retry-after` covers the whole window.
        let answer = error.response(false);
        assert_eq!(answer.status().as_u16(), 429);
        let left: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((600..=900).contains(&left), "{left}");
    }
    assert_eq!(stage.status(&shown, INGEST).await, 200);
    assert_eq!(stage.status(&shown, Requirement::Token).await, 200);
    // A valid token that is new to this replica is admitted during guesses.
    let fresh = bearer(stage.token(&["ingest"]).await.secret.reveal());
    let guess = bearer(unknown.secret.reveal());
    let guessing = || stage.status(&guess, INGEST);
    let told = tokio::join!(guessing(), guessing(), guessing(), stage.status(&fresh, INGEST));
    assert_eq!(told, (429, 429, 429, 200));
    let other: IpAddr = "192.0.2.1".parse().unwrap();
    let error = stage.access.check(&HeaderMap::new(), other, INGEST).await.unwrap_err();
    assert_eq!(error.status.as_u16(), 401);
}

async fn is_pending(future: Pin<&mut impl Future>) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = std::future::ready(()) => true,
    }
}

/// Guesses from an address that failed too often wait for a permit; a known valid token does not.
#[tokio::test]
async fn guesses_take_a_few_lookups_at_a_time() {
    let stage = Stage::new(Limiter { failures: 1, ..Limiter::default() }).await;
    let shown = bearer(stage.token(&["ingest"]).await.secret.reveal());
    assert_eq!(stage.status(&shown, INGEST).await, 200);
    let guess = bearer(mint(Environment::Dev, || 7).secret.reveal());
    assert_eq!(stage.status(&guess, INGEST).await, 401);
    assert_eq!(stage.status(&guess, INGEST).await, 429);
    let others = stage.access.lookups.acquire_many(MAX_CONCURRENT_LOOKUPS as u32).await.unwrap();
    let mut waiting = std::pin::pin!(stage.status(&guess, INGEST));
    assert!(is_pending(waiting.as_mut()).await);
    // `Requirement::Token` forces a lookup; the cache would answer a submission.
    assert_eq!(stage.status(&shown, Requirement::Token).await, 200);
    assert!(is_pending(waiting.as_mut()).await);
    drop(others);
    assert_eq!(waiting.await, 429);
}

#[test]
fn only_bearer_tokens_of_the_right_form_are_looked_up() {
    let token = mint(Environment::Live, || 7);
    let text = token.secret.reveal();
    assert_eq!(presented_digest(&bearer(text)), Some(token.secret.digest()));
    let lower = headers(&[("authorization", &format!("bearer  {text}"))]);
    assert_eq!(presented_digest(&lower), Some(token.secret.digest()));
    let basic = |login: &str| format!("Basic {}", STANDARD.encode(login));
    for user in ["", "x", "sw_live_x"] {
        let shown =
            presented_digest(&headers(&[("authorization", &basic(&format!("{user}:{text}")))]));
        assert_eq!(shown, Some(token.secret.digest()), "{user}");
    }
    let bad =
        [text.to_owned(), format!("Basic {text}"), "Bearer".to_owned(), "Bearer x".to_owned()];
    let bad_logins =
        [text.to_owned(), format!("{text}:"), format!("{text}:x"), format!("x:y:{text}")];
    for bad in bad.into_iter().chain(bad_logins.iter().map(|login| basic(login))) {
        assert_eq!(presented_digest(&headers(&[("authorization", &bad)])), None, "{bad}");
    }
    let line = format!("Bearer {text}");
    assert_eq!(
        presented_digest(&headers(&[("authorization", &line), ("authorization", &line)])),
        None
    );
}

#[test]
fn an_open_switchboard_is_for_this_machine() {
    assert!(check_local(&headers(&[("host", "127.0.0.1:8420")])).is_ok());
    assert!(check_local(&headers(&[("host", "localhost")])).is_ok());
    assert!(check_local(&headers(&[])).is_ok());
    let origin = ("origin", "http://localhost:3000");
    assert!(check_local(&headers(&[("host", "[::1]:8420"), origin])).is_ok());
    for sign in [
        ("host", "switchboard.example.com"),
        ("host", "10.0.0.1:8420"),
        ("origin", "https://example.com"),
        ("origin", "null"),
        ("forwarded", "for=1.1.1.1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
    ] {
        let error = check_local(&headers(&[sign])).unwrap_err();
        assert_eq!(error.status.as_u16(), 401, "{sign:?}");
    }
}
