//! Eight shards over all processes that run this: start it in several terminals.
//!
//! The store is `TENURE_STORE`, or `sqlite:tenure.db` in the current folder. A process that holds
//! all shards leaves.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use tenure::{Duties, MembershipEvent};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_STORE").unwrap_or_else(|_| "sqlite:tenure.db".to_owned());
    let ttl = Duration::from_secs(10);
    let join = tenure::join(&url, "shards-example", ttl, Duties::Shards(8))?;
    let mut membership = join.weight(1).start().await?;
    let mut guards = BTreeMap::new();
    while let Some(event) = membership.next().await {
        match event {
            // Keep the guard while you work on the shard; dropping it gives the shard back.
            MembershipEvent::Assigned(guard) => {
                println!("assigned  {} under epoch {}", guard.duty(), guard.epoch());
                guards.insert(guard.duty().clone(), guard);
                if guards.len() == 8 {
                    membership.leaver().leave();
                }
            }
            // Another process has joined: finish the current step, then give the shard back.
            MembershipEvent::Stopping { hold, why } => {
                println!("given up  {} ({why})", hold.duty);
                guards.remove(&hold.duty);
            }
            // The hold is lost: writes that are still in flight are refused by their epoch.
            MembershipEvent::Revoked { hold, why } => {
                println!("lost      {} ({why})", hold.duty);
                guards.remove(&hold.duty);
            }
            MembershipEvent::Ended(end) => println!("left      {end:?}"),
            other => println!("then      {other:?}"),
        }
    }
    Ok(())
}
