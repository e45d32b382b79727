//! Targets from a file that may change, shared among all processes that run this.
//!
//! The file is `TENURE_TARGETS` or `targets.txt`: one id per line. Change it while this runs; an
//! empty list ends the example. The store is `TENURE_STORE`, or `sqlite:tenure.db`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tenure::targets::FileTargets;
use tenure::{Duties, MembershipEvent};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_STORE").unwrap_or_else(|_| "sqlite:tenure.db".to_owned());
    let file = std::env::var("TENURE_TARGETS").unwrap_or_else(|_| "targets.txt".to_owned());
    let source = Arc::new(FileTargets::new(file));
    let duties = Duties::Targets { source, every: Duration::from_millis(200) };
    let join = tenure::join(&url, "targets-example", Duration::from_secs(10), duties)?;
    let mut membership = join.start().await?;
    let mut guards = Vec::new();
    while let Some(event) = membership.next().await {
        match event {
            MembershipEvent::Assigned(guard) => {
                println!("polling   {}", guard.duty());
                guards.push(guard);
            }
            MembershipEvent::Stopping { hold, why } | MembershipEvent::Revoked { hold, why } => {
                println!("stopped   {} ({why})", hold.duty);
                guards.retain(|guard| guard.hold() != &hold);
                if guards.is_empty() {
                    membership.leaver().leave();
                }
            }
            MembershipEvent::Ended(end) => println!("left      {end:?}"),
            other => println!("then      {other:?}"),
        }
    }
    Ok(())
}
