//! The times in a file belong to one boot and one time namespace.

use rusqlite::Connection;
use tenure_core::{Code, StoreError};

use super::{open, try_open};
use crate::player::{LONG, Player};

fn pretend_another_boot(path: &std::path::Path) {
    let file = Connection::open(path).unwrap();
    let changed = file.execute("UPDATE meta SET value = 'other boot' WHERE key = 'boot'", []);
    assert_eq!(changed.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_use_by_another_boot_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let in_use = open(&path).await;
    let holder = Player::join(&in_use, "a", LONG).await;
    let hold = holder.hold("d").await;
    pretend_another_boot(&path);
    let error = try_open(&path).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)));
    assert_eq!(error.code(), Code::OtherBoot);
    assert!(holder.keeps(&hold).await, "refusing must not harm who is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_an_earlier_boot_is_taken_over_with_its_epochs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let before = open(&path).await;
    let old = Player::join(&before, "a", LONG).await;
    let hold = old.hold("d").await;
    old.commit(&hold, 0, "cursor").await;
    drop((old, before));
    wait_until_unlocked(&path).await;
    pretend_another_boot(&path);
    let after = open(&path).await;
    // Its times mean nothing in this boot: the session has ended, an hour before its TTL or not.
    assert!(after.members(&hold.duty.group).await.unwrap().is_empty());
    let new = Player::join(&after, "b", LONG).await;
    assert!(new.hold("d").await.epoch > hold.epoch);
    let stored = after.load(std::slice::from_ref(&hold.duty)).await.unwrap().remove(0).unwrap();
    assert_eq!(stored.document.as_bytes(), b"cursor");
}

/// The store's threads release the lock shortly after the store is dropped.
async fn wait_until_unlocked(path: &std::path::Path) {
    let lock = std::fs::File::open(format!("{}-boot", path.display())).unwrap();
    tokio::task::spawn_blocking(move || lock.lock().unwrap()).await.unwrap();
}
