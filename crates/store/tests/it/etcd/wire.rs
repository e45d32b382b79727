//! Connections that break between request and response.

use tenure_core::store::Committed;
use tenure_core::{Code, StoreError, Version};
use testkit::Proxy;

use super::kit::*;

/// The request took effect, but its answer was lost; the stored state shows it.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_is_unknown_and_can_be_read() {
    let server = server();
    let proxy = Proxy::start(server.port(0)).unwrap();
    let store = try_open(&format!("etcd://127.0.0.1:{}", proxy.port())).await.unwrap();
    let direct = open(&server).await;
    let a = join(&*store, "a").await;
    let held = hold(&*store, &a, "d").await;
    proxy.swallow_replies();
    let answer = commit(&*store, &a, &held, 0).await;
    let Err(StoreError::Unknown(problem)) = &answer else { panic!("{answer:?}") };
    assert_eq!(problem.code, Code::Lost);
    let stored = load(&*direct, "d").await.unwrap();
    assert_eq!((stored.version, stored.epoch), (Version::new(1).unwrap(), held.epoch));
    assert_eq!(stored.instance, a.instance);
    proxy.restore().unwrap();
    let again = commit(&*store, &a, &held, 0).await.unwrap();
    assert_eq!(again, Committed::Conflict { stored: stored.version });
    assert_eq!(direct.history(&duty("d")).await.unwrap().len(), 1);
}

/// The second attempt of a call finds the result of the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_found_again_by_the_same_call() {
    let server = server();
    let proxy = Proxy::start(server.port(0)).unwrap();
    let store = try_open(&format!("etcd://127.0.0.1:{}", proxy.port())).await.unwrap();
    let direct = open(&server).await;
    let a = join(&*store, "a").await;
    // Answers are lost for a while in the middle of many grants.
    let all = duties(4_000);
    let losing = async {
        until("a grant", || async { !direct.holders(&group()).await.unwrap().is_empty() }).await;
        proxy.swallow_replies();
        until("a lost answer", || async { proxy.swallowed() > 0 }).await;
        proxy.restore().unwrap();
    };
    let (claimed, ()) = tokio::join!(claim_all(&*store, &a, &all), losing);
    let holds: Vec<_> = claimed.unwrap().into_iter().map(granted).collect();
    assert!(holds.iter().all(|hold| hold.epoch.get() == 1));

    let held = &holds[7];
    let id = held.duty.id.as_str();
    let losing = async {
        until("the commit", || async { load(&*direct, id).await.is_some() }).await;
        proxy.restore().unwrap();
    };
    proxy.swallow_replies();
    let (committed, ()) = tokio::join!(commit(&*store, &a, held, 0), losing);
    assert_eq!(committed.unwrap(), saved(1));
    assert_eq!(direct.history(&held.duty).await.unwrap().len(), 1);
}

/// Nothing listens, so nothing was sent and nothing happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_refuses_every_call() {
    let server = server();
    let store = open(&server).await;
    let a = join(&*store, "a").await;
    let held = hold(&*store, &a, "d").await;
    server.kill(0).unwrap();
    // The first request may still have used the old connection; a read detects its end.
    assert_eq!(refused(store.members(&group()).await), Some(Code::Unreachable));
    assert_eq!(refused(commit(&*store, &a, &held, 0).await), Some(Code::Unreachable));
    assert_eq!(refused(try_open(&server.url()).await), Some(Code::Unreachable));
    server.start_again(0).unwrap();
    assert_eq!(commit(&*store, &a, &held, 0).await.unwrap(), saved(1));
    assert!(is_kept(&keep(&*store, &a, &held).await));
}

/// Reconnecting yields a hint, because the watch may have missed changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_was_cut_gives_a_hint_when_it_is_back() {
    let server = server();
    let proxy = Proxy::start(server.port(0)).unwrap();
    let store = try_open(&format!("etcd://127.0.0.1:{}", proxy.port())).await.unwrap();
    let direct = open(&server).await;
    let mut watch = store.watch(&group()).await.unwrap();
    proxy.cut();
    assert!(watch.changed().await.is_err());
    join(&*direct, "a").await;
    proxy.restore().unwrap();
    watch.changed().await.unwrap();
    join(&*direct, "b").await;
    watch.changed().await.unwrap();
}
