//! An async function per duty: it begins when the duty is assigned, and is dropped in time when the
//! duty is lost. The counter of each shard continues from the last holder's value.
//!
//! The store is `TENURE_STORE`, or `sqlite:tenure.db` in the current folder.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::{Document, Duties, Guard, StoreError};

const SHARDS: u32 = 4;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_STORE").unwrap_or_else(|_| "sqlite:tenure.db".to_owned());
    let ttl = Duration::from_secs(10);
    let join = tenure::join(&url, "work-example", ttl, Duties::Shards(SHARDS))?;
    let membership = join.start().await?;
    let (leaver, counted) = (membership.leaver(), Arc::new(AtomicU32::new(0)));
    let work = move |guard: Guard| {
        let (leaver, counted) = (leaver.clone(), Arc::clone(&counted));
        async move {
            count(&guard).await?;
            if counted.fetch_add(1, Ordering::Relaxed) + 1 == SHARDS {
                leaver.leave();
            }
            // Real work would continue until it is asked to stop.
            guard.stopping().await;
            Ok::<_, StoreError>(())
        }
    };
    membership.run(work).await?;
    Ok(())
}

async fn count(guard: &Guard) -> Result<(), StoreError> {
    let last = guard.load().await?;
    let last = last.and_then(|last| String::from_utf8(last.document.as_bytes().to_vec()).ok());
    let count = last.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) + 1;
    // The store refuses this if another instance has been granted the duty.
    let version = guard.commit(Document::new(count.to_string())?).await?;
    println!("{} counted {count}, version {version}", guard.duty());
    Ok(())
}
