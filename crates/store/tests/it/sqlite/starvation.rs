//! A busy writer must not starve a keep-alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenure_core::store::Committed;

use super::open;
use crate::player::{LONG, Player};

/// One handle commits as fast as it can; another one, with threads and connections of its own as
/// another process would have, keeps its session alive meanwhile. How many commits go past a
/// waiting keep-alive is what counts, not how long that takes on this machine.
///
/// Without the gap in the writer, or with SQLite's own busy handler, hundreds go past.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn few_commits_go_past_a_waiting_keep_alive() {
    const MOST: u64 = 60;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let (busy, other) = (open(&path).await, open(&path).await);
    let writer = Player::join(&busy, "writer", LONG).await;
    let hold = writer.hold("d").await;
    let pulse = Player::join(&other, "pulse", LONG).await;
    let kept = pulse.hold("kept").await;
    let (commits, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writing = {
        let (commits, stop) = (commits.clone(), stop.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let version = commits.load(Ordering::Relaxed);
                let saved = writer.commit(&hold, version, "cursor").await;
                assert!(matches!(saved, Committed::Saved(_)), "{saved:?}");
                commits.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    while commits.load(Ordering::Relaxed) < 20 {
        tokio::task::yield_now().await;
    }
    let mut passed = Vec::new();
    for _ in 0..40 {
        let before = commits.load(Ordering::Relaxed);
        assert!(pulse.keeps(&kept).await);
        passed.push(commits.load(Ordering::Relaxed) - before);
    }
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    let worst = passed.iter().max().unwrap();
    assert!(*worst <= MOST, "{worst} commits went past one keep-alive: {passed:?}");
}
