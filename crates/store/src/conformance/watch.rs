//! Contract 16: hints. Nothing here polls: a case ends because a hint came.

use std::time::Duration;

use tenure_core::Note;
use tenure_core::store::Watch;

use super::kit::{Kit, doc, reason, version};

super::cases! { "watch":
    a_release_makes_a_hint,
    a_grant_makes_a_hint,
    a_join_makes_a_hint,
    a_close_makes_a_hint,
    a_new_note_makes_a_hint,
    an_eviction_makes_a_hint,
    a_group_document_makes_a_hint,
    every_watcher_gets_the_hint,
    a_change_before_the_wait_is_not_missed,
}

async fn watch(kit: &Kit) -> Box<dyn Watch> {
    kit.other_client().await.store.watch(&kit.group).await.unwrap()
}

/// Far above any store's needs; only keeps a failing case from hanging.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

async fn hinted(watch: &mut Box<dyn Watch>) {
    tokio::time::timeout(HANG_TIMEOUT, watch.changed()).await.expect("no hint came").unwrap();
}

async fn a_release_makes_a_hint(kit: Kit) {
    let a = kit.join("a").await;
    let hold = kit.hold(&a, "d").await;
    let mut watch = watch(&kit).await;
    kit.release(&a, &hold).await;
    hinted(&mut watch).await;
    let b = kit.join("b").await;
    assert!(kit.hold(&b, "d").await.epoch > hold.epoch);
}

async fn a_grant_makes_a_hint(kit: Kit) {
    let a = kit.join("a").await;
    let mut watch = watch(&kit).await;
    kit.hold(&a, "d").await;
    hinted(&mut watch).await;
    assert!(kit.store.holders(&kit.group).await.unwrap()[0].holder.is_some());
}

async fn a_join_makes_a_hint(kit: Kit) {
    let mut watch = watch(&kit).await;
    let a = kit.join("a").await;
    hinted(&mut watch).await;
    assert_eq!(kit.member_ids().await, [a.instance]);
}

async fn a_close_makes_a_hint(kit: Kit) {
    let a = kit.join("a").await;
    let mut watch = watch(&kit).await;
    kit.store.close_session(&a, &reason("done")).await.unwrap();
    hinted(&mut watch).await;
    assert!(kit.member_ids().await.is_empty());
}

async fn a_new_note_makes_a_hint(kit: Kit) {
    let a = kit.join("a").await;
    let mut watch = watch(&kit).await;
    let note = Note::new("draining").unwrap();
    kit.store.keep_alive(&a, Some(&note), &[]).await.unwrap();
    hinted(&mut watch).await;
    assert_eq!(kit.store.members(&kit.group).await.unwrap()[0].note, note);
}

async fn an_eviction_makes_a_hint(kit: Kit) {
    let a = kit.join("a").await;
    let mut watch = watch(&kit).await;
    let now = tenure_core::store::Evict::Now;
    kit.store.evict(&kit.group, &a.instance, now, &reason("case")).await.unwrap();
    hinted(&mut watch).await;
    assert!(kit.member_ids().await.is_empty());
}

async fn a_group_document_makes_a_hint(kit: Kit) {
    let mut watch = watch(&kit).await;
    kit.store.replace_group_document(&kit.group, version(0), &doc("x")).await.unwrap();
    hinted(&mut watch).await;
    assert_eq!(kit.store.group_document(&kit.group).await.unwrap().version, version(1));
}

async fn every_watcher_gets_the_hint(kit: Kit) {
    let same_client = kit.store.watch(&kit.group).await.unwrap();
    let mut watches = [watch(&kit).await, same_client, watch(&kit).await];
    kit.join("a").await;
    for watch in &mut watches {
        hinted(watch).await;
    }
    assert_eq!(kit.member_ids().await.len(), 1);
}

async fn a_change_before_the_wait_is_not_missed(kit: Kit) {
    let mut watch = watch(&kit).await;
    kit.join("a").await;
    kit.join("b").await;
    // Both changes are complete before the wait begins; the hint must still arrive.
    hinted(&mut watch).await;
    assert_eq!(kit.member_ids().await.len(), 2);
}
