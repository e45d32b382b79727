//! The store's wall clock, by which changes of a group's document are recorded.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tenure_core::{Clock as _, LocalInstant, Store, StoreError};
use tenure_duty::process;
use tenure_store::BootClock;
use tokio::time::timeout;

use crate::error::nothing_happened;
use crate::serialize::millis;

/// Limit for reading the time that is recorded with a change.
const TIME_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the store's clock in milliseconds since 1970, or this host's if the store has none.
pub(crate) async fn now(store: &dyn Store) -> Result<u64, StoreError> {
    let survey = store.survey().await.map_err(nothing_happened)?;
    Ok(survey.unix_ms.unwrap_or_else(process::unix_ms))
}

/// The store's time, read once: a survey is expensive.
pub(crate) struct StoreTime {
    unix_ms: u64,
    asked: LocalInstant,
}

impl StoreTime {
    /// Reads the time; `None` if the store does not answer: the change is then not recorded.
    pub(crate) async fn read(store: &dyn Store) -> Option<Self> {
        let unix_ms = timeout(TIME_TIMEOUT, now(store)).await.ok()?.ok()?;
        Some(Self { unix_ms, asked: BootClock.now() })
    }

    pub(crate) fn now(&self) -> u64 {
        self.unix_ms.saturating_add(millis(BootClock.now().since(self.asked)))
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
