//! Connections that break (R17, contract 16, 19, 20).

use std::time::Duration;

use tenure_core::store::{Committed, Opened};
use tenure_core::{Code, Store, StoreError};
use testkit::{Proxy, wait_until};

use super::kit::{
    commit, durable_server, hold, is_kept, join, keep, number, open, server, settled, try_claim,
    try_open, wish,
};

/// Far above the needs of any test; only keeps a failing test from hanging.
const HANG: Duration = Duration::from_secs(60);

async fn through(proxy: &Proxy) -> tenure_store::redis::Redis {
    let url = format!("redis://127.0.0.1:{}/0", proxy.port());
    try_open(&url).await.unwrap()
}

/// The opening took effect, but its answer was lost: the session must not lock out its instance.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_at_start_up_is_unknown_and_can_be_repeated() {
    let server = server();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = through(&proxy).await;
    let wish = wish("a");
    proxy.swallow_replies();
    let swallowed = || {
        wait_until("a reply to get lost", HANG, || proxy.swallowed() > 0).unwrap();
        proxy.cut();
    };
    let opening = store.open_session(&wish);
    let (error, ()) = tokio::join!(opening, async { tokio::task::block_in_place(swallowed) });
    let error = error.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(error.code(), Code::Lost);
    let key = format!("poll:session:{}", wish.instance.escaped());
    assert_eq!(number(&server, &["exists", &key]), 1);
    proxy.restore().unwrap();
    let opened = settled(|| store.open_session(&wish)).await;
    assert_eq!(opened, Opened::Open(wish.session()));
}

/// Nothing can be sent, so nothing happened.
#[tokio::test]
async fn without_a_connection_a_call_is_refused() {
    let server = server();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = through(&proxy).await;
    let a = join(&store, "a").await;
    proxy.cut();
    // The first call may still use the old connection; later calls find none.
    let _ = try_claim(&store, &a, "x").await;
    let error = try_claim(&store, &a, "x").await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    assert_eq!(error.code(), Code::Unreachable);
    proxy.restore().unwrap();
    hold(&store, &a, "x").await;
}

#[tokio::test]
async fn a_watch_that_was_cut_off_gives_one_hint_when_it_is_back() {
    let server = server();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = through(&proxy).await;
    let mut watch = store.watch(&super::kit::group()).await.unwrap();
    proxy.cut();
    let down = tokio::time::timeout(HANG, watch.changed()).await.unwrap();
    assert_eq!(down.unwrap_err().code(), Code::Unreachable);
    join(&open(&server).await, "unseen").await;
    proxy.restore().unwrap();
    let back = tokio::time::timeout(HANG, watch.changed()).await.unwrap();
    assert_eq!(back, Ok(()));
    join(&open(&server).await, "seen").await;
    let hint = tokio::time::timeout(HANG, watch.changed()).await.unwrap();
    assert_eq!(hint, Ok(()));
}

/// Calls in flight when the server dies end with an error, and the handle keeps working.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_in_the_middle_is_survived() {
    let server = durable_server();
    let store = std::sync::Arc::new(open(&server).await);
    let a = join(&*store, "a").await;
    let held = hold(&*store, &a, "x").await;
    let mut busy = Vec::new();
    for worker in 0..4 {
        let (store, a, held) = (store.clone(), a.clone(), held.clone());
        busy.push(tokio::spawn(async move {
            let (mut good, id) = (0, format!("w{worker}"));
            loop {
                let kept = store.keep_alive(&a, None, std::slice::from_ref(&held)).await;
                let claimed = try_claim(&*store, &a, &id).await;
                match kept.map(drop).and(claimed.map(drop)) {
                    Ok(()) => good += 1,
                    Err(error) => return (good, error),
                }
            }
        }));
    }
    server.kill().unwrap();
    for worker in busy {
        let (_, error) = worker.await.unwrap();
        assert!(matches!(error.code(), Code::Lost | Code::Unreachable), "{error}");
    }
    server.start_again().unwrap();
    assert!(is_kept(&keep(&*store, &a, &held).await));
    let committed = settled(|| commit(&*store, &a, &held, 0)).await;
    assert!(matches!(committed, Committed::Saved(_)), "{committed:?}");
}

/// A server that has lost its scripts gets them again, and the call still works.
#[tokio::test]
async fn a_server_without_its_scripts_is_taught_again() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    server.cli(&["script", "flush"]).unwrap();
    let held = hold(&store, &a, "x").await;
    server.cli(&["script", "flush"]).unwrap();
    assert!(is_kept(&keep(&store, &a, &held).await));
}

/// A caller that cannot wait drops the call; the next one must not wait for the same server.
#[tokio::test]
async fn a_dropped_call_leaves_no_dead_connection_behind() {
    let server = server();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = through(&proxy).await;
    let a = join(&store, "a").await;
    proxy.swallow_replies();
    let silence = async {
        while proxy.swallowed() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = store.keep_alive(&a, None, &[]) => panic!("{answer:?}"),
        () = silence => {}
    }
    proxy.restore().unwrap();
    let kept = store.keep_alive(&a, None, &[]).await;
    assert!(kept.is_ok(), "{kept:?}");
}
