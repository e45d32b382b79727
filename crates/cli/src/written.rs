//! The time of operators' changes to a group's document; the history itself is in core.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tenure_core::engine::{GroupConfig, PastConfig};
use tenure_core::{Clock as _, LocalInstant, Store, StoreError};
use tenure_duty::process;
use tenure_store::BootClock;
use tokio::time::timeout;

use crate::failure::nothing_happened;

/// How long a change waits for the time that is noted with it.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The store's wall clock in milliseconds since 1970, or this machine's where it has none.
pub(crate) async fn now(store: &dyn Store) -> Result<u64, StoreError> {
    let survey = store.survey().await.map_err(nothing_happened)?;
    Ok(survey.unix_ms.unwrap_or_else(process::unix_ms))
}

/// The time, asked for once: a store has much to read for that.
pub(crate) struct Time {
    unix_ms: u64,
    asked: LocalInstant,
}

impl Time {
    /// `None` when the store does not tell: then a change is made without a note.
    pub(crate) async fn ask(store: &dyn Store) -> Option<Self> {
        let unix_ms = timeout(ANSWER_WITHIN, now(store)).await.ok()?.ok()?;
        Some(Self { unix_ms, asked: BootClock.now() })
    }

    pub(crate) fn now(&self) -> u64 {
        let since = BootClock.now().since(self.asked).as_millis();
        self.unix_ms.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Records in a document what changed in it since `before`; see [`GroupConfig::record_changes`].
pub(crate) fn record(
    group: &mut GroupConfig,
    before: &GroupConfig,
    unix_ms: Option<u64>,
) -> Result<(), StoreError> {
    group.record_changes(before, unix_ms, sha256)
}

/// Returns the document as it was at a time; see [`GroupConfig::at`].
pub(crate) fn at(
    group: &GroupConfig,
    unix_ms: u64,
    now: u64,
) -> Result<Option<PastConfig>, StoreError> {
    group.at(unix_ms, now, sha256)
}
