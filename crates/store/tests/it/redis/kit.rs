//! Shared helpers of these tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::store::{
    ClaimRequest, Claimed, Commit, Committed, HoldFate, KeptAlive, OpenSession, Opened,
};
use tenure_core::{
    Code, Document, DutyKey, Epoch, GroupName, Hold, InstanceId, Nonce, Note, Reason, Session,
    Store, StoreError, Ttl, Version,
};
use tenure_store::IfAbsent;
use tenure_store::redis::{Redis, RedisSettings};
use testkit::RedisOptions;

/// The group of all tests; each test has a server of its own.
pub const GROUP: &str = "poll";

static LAST: AtomicU64 = AtomicU64::new(0);

/// Returns a number unique within this process, which suffices for private servers.
pub fn unique() -> u128 {
    u128::from(LAST.fetch_add(1, Ordering::Relaxed)) << 80 | u128::from(std::process::id())
}

pub fn server() -> testkit::RedisServer {
    testkit::RedisServer::start(RedisOptions::default()).unwrap()
}

/// Starts a server that has every write on disk before it answers.
pub fn durable_server() -> testkit::RedisServer {
    let options = RedisOptions { append_only: true, ..RedisOptions::default() };
    testkit::RedisServer::start(options).unwrap()
}

pub fn settings(url: &str) -> RedisSettings {
    let (url, prefix) = (url.to_owned(), String::new());
    RedisSettings { url, prefix, entropy: unique(), if_absent: IfAbsent::Create }
}

pub async fn try_open(url: &str) -> Result<Redis, StoreError> {
    Redis::open(settings(url)).await
}

pub async fn open(server: &testkit::RedisServer) -> Redis {
    try_open(&server.url()).await.unwrap()
}

pub fn group() -> GroupName {
    GroupName::new(GROUP).unwrap()
}

pub fn duty(id: &str) -> DutyKey {
    DutyKey::new(GROUP, id).unwrap()
}

pub fn reason() -> Reason {
    Reason::new("test").unwrap()
}

/// A request to join for an hour.
pub fn wish(name: &str) -> OpenSession {
    OpenSession {
        group: group(),
        instance: InstanceId::new(format!("{name}-{:x}", unique())).unwrap(),
        nonce: Nonce::from_entropy(unique() << 20),
        ttl: Ttl::new(Duration::from_secs(3600)).unwrap(),
        note: Note::default(),
    }
}

pub async fn join_as(store: &dyn Store, wish: &OpenSession) -> Session {
    let opened = store.open_session(wish).await.unwrap();
    assert_eq!(opened, Opened::Open(wish.session()));
    wish.session()
}

pub async fn join(store: &dyn Store, name: &str) -> Session {
    join_as(store, &wish(name)).await
}

pub async fn try_claim(
    store: &dyn Store,
    session: &Session,
    id: &str,
) -> Result<Claimed, StoreError> {
    let wants = [ClaimRequest::new(duty(id))];
    let claimed = store.claim(session, &wants, &reason()).await?;
    Ok(claimed.into_iter().next().unwrap())
}

pub async fn claim(store: &dyn Store, session: &Session, id: &str) -> Claimed {
    try_claim(store, session, id).await.unwrap()
}

pub async fn hold(store: &dyn Store, session: &Session, id: &str) -> Hold {
    match claim(store, session, id).await {
        Claimed::Granted(hold) => hold,
        other => panic!("not granted but {other:?}"),
    }
}

pub async fn release(
    store: &dyn Store,
    session: &Session,
    hold: &Hold,
) -> tenure_core::store::Released {
    let holds = std::slice::from_ref(hold);
    store.release(session, holds, &reason()).await.unwrap()[0]
}

/// Grants and releases a duty `times` times; returns the last epoch.
pub async fn wear(store: &dyn Store, session: &Session, id: &str, times: usize) -> Epoch {
    let mut last = Epoch::ZERO;
    for _ in 0..times {
        let hold = hold(store, session, id).await;
        release(store, session, &hold).await;
        assert!(hold.epoch > last);
        last = hold.epoch;
    }
    last
}

pub async fn commit(
    store: &dyn Store,
    session: &Session,
    hold: &Hold,
    expected: u64,
) -> Result<Committed, StoreError> {
    let commit = Commit {
        hold: hold.clone(),
        expected: Version::new(expected).unwrap(),
        document: Document::new(*b"cursor").unwrap(),
    };
    Ok(store.commit(session, &[commit]).await?[0])
}

pub async fn keep(store: &dyn Store, session: &Session, hold: &Hold) -> KeptAlive {
    let holds = std::slice::from_ref(hold);
    settled(|| store.keep_alive(session, None, holds)).await
}

pub fn is_kept(kept: &KeptAlive) -> bool {
    matches!(kept, KeptAlive::Kept { holds, .. } if holds[..] == [HoldFate::Kept])
}

pub fn is_fenced(committed: &Result<Committed, StoreError>) -> bool {
    matches!(committed, Ok(Committed::Fenced { .. }))
}

/// Returns the code of a `Refused` error.
pub fn refused(error: &StoreError) -> Option<Code> {
    match error {
        StoreError::Refused(problem) => Some(problem.code),
        StoreError::Unknown(_) => None,
    }
}

/// Repeats a call that is safe to repeat while the connection is being restored.
pub async fn settled<T, F: Future<Output = Result<T, StoreError>>>(
    mut call: impl FnMut() -> F,
) -> T {
    for _ in 0..1_000 {
        match call().await {
            Ok(answer) => return answer,
            Err(error) if matches!(error.code(), Code::Lost | Code::Unreachable | Code::Busy) => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the store did not come back");
}

/// Reads a number that the server stores as text.
pub fn number(server: &testkit::RedisServer, words: &[&str]) -> i64 {
    server.cli(words).unwrap().trim().parse().unwrap()
}

pub fn keys(server: &testkit::RedisServer) -> Vec<String> {
    let listed = server.cli(&["keys", "*"]).unwrap();
    let mut keys: Vec<_> = listed.lines().map(str::to_owned).collect();
    keys.retain(|key| !key.is_empty());
    keys
}
