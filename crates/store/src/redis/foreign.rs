//! Instances that share the keys of the poll lease layout and nothing else.
//!
//! Only the group `poll` can have them. They write no index, so finding them takes a scan over all
//! keys of the server. Each handle scans at most once per [`MAX_SCAN_AGE`].

use std::collections::BTreeSet;
use std::time::Duration;

use redis::Value;
use tenure_core::{Clock, DutyKey, GroupName, LocalInstant, StoreResult};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::client::{COMMAND_TIMEOUT, RedisClient, settle};
use super::is_shared;
use super::reply::RedisReply;
use super::script::command;
use crate::BootClock;

/// Maximum age of a scan.
const MAX_SCAN_AGE: Duration = Duration::from_secs(10);

/// Keys that the server visits in one step.
const SCAN_COUNT: &str = "1000";

/// Parts of foreign keys, unescaped.
#[derive(Clone, Debug, Default)]
pub(super) struct ForeignKeys {
    pub(super) nodes: BTreeSet<String>,
    pub(super) leases: BTreeSet<String>,
}

/// The result of the last scan.
#[derive(Debug, Default)]
pub(super) struct Foreign(Mutex<Option<(LocalInstant, ForeignKeys)>>);

impl Foreign {
    /// Instances other than our own, as of the last scan.
    pub(super) async fn look(
        &self,
        client: &RedisClient,
        group: &GroupName,
        root: &str,
    ) -> StoreResult<ForeignKeys> {
        if !is_shared(group) {
            return Ok(ForeignKeys::default());
        }
        let mut last = self.0.lock().await;
        let now = BootClock.now();
        if let Some((at, found)) = &*last
            && now.since(*at) < MAX_SCAN_AGE
        {
            return Ok(found.clone());
        }
        let mut found = ForeignKeys::default();
        // With very many keys a partial scan must suffice; the next scan finds the rest.
        let pattern = format!("{}[ln]*", literally(root));
        let looking = scan(client, &pattern, |key| {
            let rest = key.strip_prefix(root).unwrap_or_default();
            if let Some(node) = rest.strip_prefix("node:") {
                found.nodes.insert(node.to_owned());
            } else if let Some(lease) = rest.strip_prefix("lease:") {
                found.leases.insert(lease.to_owned());
            }
        });
        if let Ok(looked) = timeout(COMMAND_TIMEOUT, looking).await {
            looked?;
        }
        *last = Some((now, found.clone()));
        Ok(found)
    }

    /// Records a lease that refused a claim, because it may be younger than the last scan.
    pub(super) fn met(&self, duty: &DutyKey) {
        // If the lock is taken, a scan is running.
        if is_shared(&duty.group)
            && let Ok(mut last) = self.0.try_lock()
            && let Some((_, found)) = &mut *last
        {
            found.leases.insert(duty.id.as_str().to_owned());
        }
    }
}

/// Visits all keys that match a pattern.
pub(super) async fn scan(
    client: &RedisClient,
    pattern: &str,
    mut visit: impl FnMut(&str),
) -> StoreResult<()> {
    let mut cursor = "0".to_owned();
    loop {
        let step = command(&["SCAN", &cursor, "MATCH", pattern, "COUNT", SCAN_COUNT]);
        let reply = settle(client.send(&[step]).await?)?;
        let mut reply = RedisReply::of(Value::Array(reply))?.list()?;
        cursor = reply.text()?;
        let mut keys = reply.list()?;
        while !keys.is_done() {
            // Neither the poll lease layout nor Tenure writes keys that are not UTF-8.
            if let Ok(key) = String::from_utf8(keys.bytes()?) {
                visit(&key);
            }
        }
        if cursor == "0" {
            return Ok(());
        }
    }
}

/// Escapes the glob characters of a text.
pub(super) fn literally(text: &str) -> String {
    let mut glob = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            glob.push('\\');
        }
        glob.push(c);
    }
    glob
}
