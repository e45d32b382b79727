//! Audit trail of a group.

use tenure_core::store::{AuditEntry, AuditRange};
use tenure_core::{DutyId, GroupName, Store, StoreError};

use crate::error::nothing_happened;

/// Entries per store call.
const PAGE_ENTRIES: usize = 5_000;

/// Audit entries of a group, oldest first.
#[derive(Clone, Debug, Default)]
pub struct AuditTrail(pub Vec<AuditEntry>);

impl AuditTrail {
    /// Reads every entry that the store keeps.
    pub async fn read(store: &dyn Store, group: &GroupName) -> Result<Self, StoreError> {
        Self::read_after(store, group, 0).await
    }

    /// Reads the entries after a sequence number.
    pub async fn read_after(
        store: &dyn Store,
        group: &GroupName,
        after: u64,
    ) -> Result<Self, StoreError> {
        let mut all = Vec::new();
        read_pages(store, group, after, |page| all.extend(page)).await?;
        Ok(Self(all))
    }

    /// Time of the oldest entry, in milliseconds since 1970.
    pub fn begins(&self) -> Option<u64> {
        self.0.iter().map(|entry| entry.unix_ms).min()
    }

    /// Entries of one duty.
    pub fn of_duty(&self, duty: &DutyId) -> Vec<&AuditEntry> {
        let is_of = |entry: &&AuditEntry| entry.duty.as_ref().is_some_and(|key| key.id == *duty);
        self.0.iter().filter(is_of).collect()
    }
}

/// Reads the entries after a sequence number, one page in memory at a time.
pub(crate) async fn read_pages(
    store: &dyn Store,
    group: &GroupName,
    mut after: u64,
    mut add: impl FnMut(Vec<AuditEntry>),
) -> Result<(), StoreError> {
    loop {
        let page = store.audit(group, AuditRange { after, limit: PAGE_ENTRIES }).await;
        let page = page.map_err(nothing_happened)?;
        // A store whose numbers do not grow would keep this loop busy forever.
        let Some(last) = page.last().filter(|last| last.seq > after) else { return Ok(()) };
        after = last.seq;
        add(page);
    }
}
