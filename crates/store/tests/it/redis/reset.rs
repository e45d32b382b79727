//! A server that has lost everything, or everything that can expire (contract 21).

use tenure_core::store::{KeptAlive, Opened, Released};
use tenure_core::{Code, Store};

use super::kit::{
    claim, commit, durable_server, hold, is_fenced, join, join_as, keep, keys, number, open,
    refused, release, server, try_claim, wear, wish,
};

/// FLUSHALL does not change the run id; only the marker shows it. Every kind of call must notice.
#[tokio::test]
async fn a_flush_ends_every_hold_and_says_so() {
    let server = server();
    let (holder, writer, reader) = (open(&server).await, open(&server).await, open(&server).await);
    let a = join(&holder, "a").await;
    let held = hold(&holder, &a, "x").await;
    server.cli(&["flushall"]).unwrap();
    assert_eq!(keep(&holder, &a, &held).await, KeptAlive::Ended);
    let written = commit(&writer, &a, &held, 0).await.unwrap_err();
    assert_eq!(refused(&written), Some(Code::Reset), "{written}");
    let read = reader.members(&a.group).await.unwrap_err();
    assert_eq!(refused(&read), Some(Code::Reset), "{read}");
    // After the error, the handle works with the new store; the old hold stays lost.
    assert!(is_fenced(&commit(&writer, &a, &held, 0).await));
    assert!(reader.members(&a.group).await.unwrap().is_empty());
    assert_eq!(keep(&holder, &a, &held).await, KeptAlive::Ended);
}

/// The handle remembers the epochs that it has seen.
#[tokio::test]
async fn after_a_flush_the_same_handle_grants_larger_epochs() {
    let server = server();
    let store = open(&server).await;
    let a = join(&store, "a").await;
    let last = wear(&store, &a, "x", 3).await;
    server.cli(&["flushall"]).unwrap();
    let told = try_claim(&store, &a, "x").await.unwrap_err();
    assert_eq!(refused(&told), Some(Code::Reset), "{told}");
    let b = join(&store, "b").await;
    assert!(hold(&store, &b, "x").await.epoch > last);
}

/// No handle remembers, and grants outnumber milliseconds: the server's clock must suffice.
#[tokio::test]
async fn after_a_flush_a_fresh_handle_grants_larger_epochs() {
    let server = server();
    let old = open(&server).await;
    let a = join(&old, "a").await;
    let last = wear(&old, &a, "x", 300).await;
    drop(old);
    server.cli(&["flushall"]).unwrap();
    let fresh = open(&server).await;
    let b = join(&fresh, "b").await;
    assert!(hold(&fresh, &b, "x").await.epoch > last);
}

/// A handle that knows higher epochs than the new store raises its base.
#[tokio::test]
async fn a_handle_brings_its_epochs_into_the_store_that_another_made() {
    let server = server();
    let (old, other) = (open(&server).await, open(&server).await);
    let a = join(&old, "a").await;
    let far = tenure_core::Epoch::new(1 << 52).unwrap();
    let want = tenure_core::store::ClaimRequest { duty: super::kit::duty("x"), floor: far };
    old.claim(&a, &[want], &super::kit::reason()).await.unwrap();
    server.cli(&["flushall"]).unwrap();
    assert!(other.groups().await.is_err());
    let b = join(&other, "b").await;
    assert!(old.groups().await.is_err());
    assert!(old.groups().await.is_ok());
    assert!(hold(&other, &b, "x").await.epoch > far);
}

/// A cache out of memory evicts keys with a TTL; fences and checkpoints have none.
#[tokio::test]
async fn without_its_volatile_keys_a_store_grants_larger_epochs() {
    let server = durable_server();
    let store = open(&server).await;
    let first = wish("a");
    let a = join_as(&store, &first).await;
    wear(&store, &a, "x", 2).await;
    let held = hold(&store, &a, "x").await;
    commit(&store, &a, &held, 0).await.unwrap();
    for key in keys(&server) {
        if number(&server, &["pttl", &key]) > 0 {
            server.cli(&["del", &key]).unwrap();
        }
    }
    assert_eq!(keep(&store, &a, &held).await, KeptAlive::Ended);
    assert!(is_fenced(&commit(&store, &a, &held, 1).await));
    let b = join(&store, "b").await;
    let next = hold(&store, &b, "x").await;
    assert!(next.epoch > held.epoch);
    assert!(commit(&store, &b, &next, 1).await.is_ok());
}

/// A lease that outlived its session's record belongs to the old session, not to the next one of
/// the same instance; its own release still frees it.
#[tokio::test]
async fn a_lease_of_an_older_session_is_not_inherited() {
    let server = server();
    let store = open(&server).await;
    let first = wish("a");
    let old = join_as(&store, &first).await;
    let held = hold(&store, &old, "x").await;
    let instance = first.instance.escaped();
    for kind in ["session", "node"] {
        let key = format!("poll:{kind}:{instance}");
        server.cli(&["del", &key]).unwrap();
    }
    let mut again = wish("a");
    again.instance = first.instance.clone();
    let new = join_as(&store, &again).await;
    let claimed = claim(&store, &new, "x").await;
    assert!(super::poll_lease::is_held_by(&claimed, first.instance.as_str()), "{claimed:?}");
    let opened = store.open_session(&first).await.unwrap();
    assert_eq!(opened, Opened::Taken);
    // The old session is gone, so its remaining lease permits no write or renewal.
    assert!(is_fenced(&commit(&store, &old, &held, 0).await));
    assert_eq!(keep(&store, &old, &held).await, KeptAlive::Ended);
    let dressed_up = tenure_core::Hold { nonce: new.nonce, ..held.clone() };
    assert_eq!(release(&store, &new, &dressed_up).await, Released::NotYours);
    assert_eq!(release(&store, &old, &held).await, Released::Freed);
    assert!(hold(&store, &new, "x").await.epoch > held.epoch);
}
