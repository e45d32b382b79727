//! Group commit on a real file.

use std::sync::Arc;

use tempfile::TempDir;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::commit::{CommitLimits, Committer, SubmitError};
use tenure_switchboard::storage;

use crate::storage::kit;

/// `close` returns after every queued submission is stored; later submissions are rejected, and so
/// are those that find the queue full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_at_the_end_is_stored() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tenure.db");
    let url = StoreUrl::parse(&format!("sqlite:{}", path.display())).unwrap();
    let storage = storage::open(&url, IfAbsent::Create).await.unwrap();
    let limits = CommitLimits { queue: 16, items: 4, ..CommitLimits::default() };
    let committer = Arc::new(Committer::start(Arc::clone(&storage), limits, Arc::new(|_| {})));
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..64 {
        let committer = Arc::clone(&committer);
        clients.spawn(async move { committer.submit(kit::named(&[&format!("{n}")])).await });
    }
    while committer.waiting() == 0 && storage.last_position().await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    committer.close().await;
    let stored_at_close = storage.last_position().await.unwrap();
    let mut stored = 0;
    while let Some(answer) = clients.join_next().await {
        match answer.unwrap() {
            Ok(_) => stored += 1,
            Err(SubmitError::Full | SubmitError::Closed) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(stored > 0);
    assert_eq!(stored, stored_at_close);
    assert_eq!(committer.submit(kit::named(&["late"])).await, Err(SubmitError::Closed));
}
