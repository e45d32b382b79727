//! Waiting for something that another process does.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls until `holds` returns true; fails naming `what` when `limit` has passed.
///
/// For events without a signal, such as a port that closes. Prefer a signal if there is one.
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !holds() {
        ensure!(start.elapsed() < limit, "waited {limit:?} in vain for {what}");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
