//! Partitions that the deployment assigns, without a store: the same events, no guarantees.
//!
//! Set `CONNECTOR_PARTITIONS=0,1`, or `CONNECTOR_PARTITION_ID` with `CONNECTOR_TOTAL_PARTITIONS`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use tenure::{Guard, StoreError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let membership = tenure::join_fixed("fixed-example", Duration::from_secs(5))?;
    // Returns when the work on all partitions has ended.
    membership.run(work).await?;
    Ok(())
}

async fn work(guard: Guard) -> Result<(), StoreError> {
    guard.check()?;
    println!("working   on {}", guard.duty());
    Ok(())
}
