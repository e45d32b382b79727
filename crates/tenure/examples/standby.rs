//! One of several processes works, the others wait: start it in several terminals.
//!
//! The store is `TENURE_STORE`, or `sqlite:tenure.db` in the current folder. The one that works
//! stops after a few steps, and the next one takes over.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use tenure::{Duties, DutyId, Guard, MembershipEvent};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_STORE").unwrap_or_else(|_| "sqlite:tenure.db".to_owned());
    let duties = Duties::Standby(DutyId::new("leader")?);
    let join = tenure::join(&url, "standby-example", Duration::from_secs(10), duties)?;
    let mut membership = join.start().await?;
    while let Some(event) = membership.next().await {
        match event {
            MembershipEvent::Assigned(guard) => {
                lead(&guard).await?;
                // Done: give the duty back, so that the next process gets it.
                membership.leaver().leave();
            }
            MembershipEvent::Standby { holder } => println!("waiting   for {holder:?}"),
            MembershipEvent::Ended(end) => println!("left      {end:?}"),
            other => println!("then      {other:?}"),
        }
    }
    Ok(())
}

async fn lead(guard: &Guard) -> Result<(), Box<dyn Error>> {
    println!("leading   under epoch {}", guard.epoch());
    for step in 1..=3 {
        // Before each effect: the check is correct even if this process was just paused.
        let left = guard.check()?;
        println!("step {step}    with {} s left", left.as_secs());
        tokio::task::yield_now().await;
    }
    Ok(())
}
