//! Hints of the store that the group has changed.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{GroupName, Store};
use tokio::sync::mpsc;

use super::open::RetryDelay;

/// Listens for hints. Hints that arrive together are merged.
pub(super) fn listen(store: Arc<dyn Store>, group: GroupName) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = sender.closed() => {}
            () = forward(&*store, &group, &sender) => {}
        }
    });
    receiver
}

/// Forwards hints. Polling is the fallback, so a failed watch is retried at long intervals.
async fn forward(store: &dyn Store, group: &GroupName, hints: &mpsc::Sender<()>) {
    let mut pause = RetryDelay::new(Duration::from_secs(5));
    loop {
        if let Ok(mut watch) = store.watch(group).await {
            // The group may have changed before the watch began.
            let _ = hints.try_send(());
            loop {
                match watch.changed().await {
                    Ok(()) => pause.reset(),
                    Err(_) => pause.wait().await,
                }
                // A full channel already contains a hint.
                let _ = hints.try_send(());
            }
        }
        pause.wait().await;
    }
}
