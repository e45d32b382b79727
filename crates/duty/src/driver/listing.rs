//! List of duties: fixed, or read at an interval.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::{EngineEvent, Layout};
use tenure_core::{Code, Listing, StoreError, Target, Targets};
use tokio::sync::mpsc;

use super::on_a_thread;
use crate::DutyError;
use crate::join::Duties;

const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a channel of lists: a single list if it never changes.
pub(super) fn read(duties: Duties, most: usize) -> Result<mpsc::Receiver<EngineEvent>, DutyError> {
    let (sender, receiver) = mpsc::channel(1);
    let fixed = match duties {
        Duties::Standby(duty) => Listing::new([Target::new(duty)]),
        Duties::Shards(count) => {
            let targets: Result<Vec<_>, _> =
                (0..count).map(|n| Layout::shard(n).map(Target::new)).collect();
            Listing::new(targets?)
        }
        Duties::Targets { source, every } => {
            // Not on the thread that renews: a long list takes a while to read and to sort.
            on_a_thread("tenure-list", move || repeat(source, every, most, sender))?;
            return Ok(receiver);
        }
    };
    // Cannot fail: the channel is new and has room for one.
    let _ = sender.try_send(EngineEvent::Listed(fixed));
    Ok(receiver)
}

async fn repeat(
    source: Arc<dyn Targets>,
    every: Duration,
    most: usize,
    sender: mpsc::Sender<EngineEvent>,
) {
    let mut last = None;
    loop {
        let input = match list(Arc::clone(&source), most).await {
            Err(error) => {
                last = None;
                Some(EngineEvent::Unlisted(error))
            }
            // An unchanged list is not sent again.
            Ok(listing) if last.as_ref() == Some(&listing) => None,
            Ok(listing) => Some(EngineEvent::Listed(last.insert(listing).clone())),
        };
        if let Some(input) = input
            && sender.send(input).await.is_err()
        {
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}

async fn list(source: Arc<dyn Targets>, most: usize) -> Result<Listing, StoreError> {
    let listing = tokio::time::timeout(LIST_TIMEOUT, async move { source.list(most).await });
    // A task of its own, so that a panic of the source becomes an error.
    let listing = match tokio::spawn(listing).await {
        Ok(Ok(listing)) => listing?,
        Ok(Err(_)) => {
            let detail = format!("no list within {} s", LIST_TIMEOUT.as_secs());
            return Err(StoreError::refused(Code::BadTargets, detail));
        }
        Err(_) => return Err(StoreError::refused(Code::BadTargets, "the source panicked")),
    };
    let named = listing.targets().len();
    if named > most {
        let detail = format!("{named} targets, the limit is {most}");
        return Err(StoreError::refused(Code::TooManyTargets, detail));
    }
    Ok(listing)
}
