//! Instances that share the keys of the poll lease layout and nothing else.
//!
//! Only the group `poll` can have them. They leave no index, so the keys are looked through, at
//! most every [`MAX_SCAN_AGE`] per handle: that costs the server a walk over all of its keys.

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

/// The last look.
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
        // Among very many keys a part has to do: whoever is missed is found by the next look.
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

    /// A claim was refused: the lease is there, also if it is younger than the last look.
    pub(super) fn met(&self, duty: &DutyKey) {
        // Whoever holds the lock looks just now.
        if is_shared(&duty.group)
            && let Ok(mut last) = self.0.try_lock()
            && let Some((_, found)) = &mut *last
        {
            found.leases.insert(duty.id.as_str().to_owned());
        }
    }
}

/// Walks over the keys that fit a pattern.
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
            // A key that is no text is none that the layout or we would write.
            if let Ok(key) = String::from_utf8(keys.bytes()?) {
                visit(&key);
            }
        }
        if cursor == "0" {
            return Ok(());
        }
    }
}

/// Takes the meaning from the characters of a glob.
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
