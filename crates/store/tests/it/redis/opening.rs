//! Servers that opening refuses, and servers that cannot accept writes.

use tenure_core::store::{ClaimRequest, KeptAlive};
use tenure_core::{Code, DutyKey, Note, Store};
use tenure_store::IfAbsent;
use tenure_store::redis::{Redis, RedisSettings};
use testkit::RedisOptions;

use super::kit::{
    commit, group, hold, is_kept, join, keep, keys, open, reason, refused, server, settings,
    try_claim, try_open, wish,
};

async fn refusal(url: &str) -> Option<Code> {
    refused(&try_open(url).await.unwrap_err())
}

#[tokio::test]
async fn a_cluster_is_refused() {
    let options = RedisOptions { cluster: true, ..RedisOptions::default() };
    let server = testkit::RedisServer::start(options).unwrap();
    assert_eq!(refusal(&server.url()).await, Some(Code::Cluster));
    assert!(keys(&server).is_empty());
}

#[tokio::test]
async fn a_replica_is_refused() {
    let primary = server();
    open(&primary).await;
    let options = RedisOptions { replica_of: Some(primary.port()), ..RedisOptions::default() };
    let replica = testkit::RedisServer::start(options).unwrap();
    assert_eq!(refusal(&replica.url()).await, Some(Code::ReadOnly));
    // A writable replica would keep the writes to itself; its primary would not see them.
    let writable = ["config", "set", "replica-read-only", "no"];
    replica.cli(&writable).unwrap();
    assert_eq!(refusal(&replica.url()).await, Some(Code::ReadOnly));
}

/// A primary that becomes a replica under an open handle grants nothing more.
#[tokio::test]
async fn a_demoted_primary_refuses_writes() {
    let (server, other) = (server(), server());
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let port = other.port().to_string();
    server.cli(&["replicaof", "127.0.0.1", &port]).unwrap();
    // Until it has copied its new primary it shows its own state, but accepts no writes.
    let error = try_claim(&store, &a, "x").await.unwrap_err();
    let code = refused(&error);
    assert!(matches!(code, Some(Code::ReadOnly | Code::Reset | Code::Busy)), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_never_shown() {
    let options =
        RedisOptions { password: Some("correct-horse".to_owned()), ..RedisOptions::default() };
    let server = testkit::RedisServer::start(options).unwrap();
    let at = format!("127.0.0.1:{}/0", server.port());
    for user in ["", ":battery-staple@", "nobody:battery-staple@"] {
        let error = try_open(&format!("redis://{user}{at}")).await.unwrap_err();
        assert_eq!(refused(&error), Some(Code::Denied), "{error}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("battery"), "{shown}");
    }
    let store = open(&server).await;
    let watch = store.watch(&group()).await.unwrap();
    let shown = format!("{store:?} {watch:?}");
    assert!(!shown.contains("horse"), "{shown}");
    server.kill().unwrap();
    let _ = store.groups().await;
    let error = store.groups().await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("horse"), "{shown}");
}

#[tokio::test]
async fn no_server_is_unreachable() {
    let server = server();
    server.kill().unwrap();
    assert_eq!(refusal(&server.url()).await, Some(Code::Unreachable));
}

/// A read-only command leaves nothing behind.
#[tokio::test]
async fn a_look_at_an_empty_server_makes_nothing() {
    let server = server();
    let look = RedisSettings { if_absent: IfAbsent::Refuse, ..settings(&server.url()) };
    let error = Redis::open(look.clone()).await.unwrap_err();
    assert_eq!(refused(&error), Some(Code::Absent));
    assert!(keys(&server).is_empty());
    drop(open(&server).await);
    Redis::open(look).await.unwrap();
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused_only_if_that_version_broke_it() {
    let server = server();
    open(&server).await;
    let marker = "tenure:store";
    server.cli(&["hset", marker, "schema", "99"]).unwrap();
    open(&server).await;
    server.cli(&["hset", marker, "breaking", "99"]).unwrap();
    let before = server.cli(&["hgetall", marker]).unwrap();
    assert_eq!(refusal(&server.url()).await, Some(Code::NewerSchema));
    assert_eq!(server.cli(&["hgetall", marker]).unwrap(), before);
}

#[tokio::test]
async fn a_marker_of_somebody_else_is_called_damaged() {
    let server = server();
    server.cli(&["set", "tenure:store", "theirs"]).unwrap();
    assert_eq!(refusal(&server.url()).await, Some(Code::Damaged));
    server.cli(&["del", "tenure:store"]).unwrap();
    server.cli(&["hset", "tenure:store", "theirs", "1"]).unwrap();
    assert_eq!(refusal(&server.url()).await, Some(Code::Damaged));
    assert_eq!(keys(&server), ["tenure:store"]);
}

/// If a key holds another type, the script stops before its first write.
#[tokio::test]
async fn a_key_of_another_type_is_called_damaged_and_nothing_is_written() {
    for wrong in ["grants", "audit", "checkpoint:b"] {
        let server = server();
        let store = open(&server).await;
        let a = join(&store, "a").await;
        let key = format!("poll:{wrong}");
        server.cli(&["del", &key]).unwrap();
        server.cli(&["set", &key, "theirs"]).unwrap();
        let before = keys(&server).len();
        let wants = ["a", "b"].map(|id| ClaimRequest::new(DutyKey::new("poll", id).unwrap()));
        let error = store.claim(&a, &wants, &reason()).await.unwrap_err();
        assert_eq!(refused(&error), Some(Code::Damaged), "{wrong}: {error}");
        assert_eq!(keys(&server).len(), before, "{wrong}");
    }
}

/// A full server refuses calls that need memory and changes nothing; members stay alive.
#[tokio::test]
async fn a_full_server_refuses_whole_and_keeps_its_members() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let held = hold(&store, &a, "x").await;
    commit(&store, &a, &held, 0).await.unwrap();
    let before = keys(&server);
    server.cli(&["config", "set", "maxmemory", "1"]).unwrap();
    let full = [
        refused(&try_claim(&store, &a, "y").await.unwrap_err()),
        refused(&commit(&store, &a, &held, 1).await.unwrap_err()),
        refused(&store.open_session(&wish("b")).await.unwrap_err()),
    ];
    assert_eq!(full, [Some(Code::Full); 3]);
    assert!(is_kept(&keep(&store, &a, &held).await));
    let note = Note::new("draining").unwrap();
    let kept = store.keep_alive(&a, Some(&note), &[]).await.unwrap();
    assert!(matches!(kept, KeptAlive::Kept { .. }));
    server.cli(&["config", "set", "maxmemory", "0"]).unwrap();
    let mut after = keys(&server);
    after.retain(|key| !before.contains(key));
    assert!(after.is_empty(), "{after:?}");
    let stored = store.load(std::slice::from_ref(&held.duty)).await.unwrap();
    assert_eq!(stored[0].as_ref().unwrap().version.get(), 1);
}
