//! The audit trail of a group.

use serde_json::{Value, json};
use tenure_core::store::{AuditEntry, AuditRange};
use tenure_core::{DutyId, Epoch, GroupName, Store, StoreError};

use crate::failure::nothing_happened;
use crate::ls::or_nothing;
use crate::output::shown;
use crate::table::{Align, Column, lay_out};
use crate::time;

/// How many entries are read in one call.
const PAGE: usize = 5_000;

/// What a store has recorded of a group, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Trail(pub(crate) Vec<AuditEntry>);

impl Trail {
    /// Reads all that is kept.
    pub(crate) async fn read(store: &dyn Store, group: &GroupName) -> Result<Self, StoreError> {
        Self::after(store, group, 0).await
    }

    /// Reads what comes after an entry.
    pub(super) async fn after(
        store: &dyn Store,
        group: &GroupName,
        mut after: u64,
    ) -> Result<Self, StoreError> {
        let mut all = Vec::new();
        loop {
            let part = store.audit(group, AuditRange { after, limit: PAGE }).await;
            let part = part.map_err(nothing_happened)?;
            let Some(last) = part.last() else { return Ok(Self(all)) };
            // A store whose numbers stand still would keep this busy for ever.
            if last.seq <= after {
                return Ok(Self(all));
            }
            after = last.seq;
            all.extend(part);
        }
    }

    /// When it begins.
    pub(super) fn begins(&self) -> Option<u64> {
        self.0.iter().map(|entry| entry.unix_ms).min()
    }

    pub(super) fn of_duty(&self, duty: &DutyId) -> Vec<&AuditEntry> {
        let is_of = |entry: &&AuditEntry| entry.duty.as_ref().is_some_and(|key| key.id == *duty);
        self.0.iter().filter(is_of).collect()
    }
}

const COLUMNS: [Column; 5] = [
    Column("WHEN", Align::Left),
    Column("EVENT", Align::Left),
    Column("INSTANCE", Align::Left),
    Column("EPOCH", Align::Right),
    Column("REASON", Align::Left),
];

pub(super) fn for_people(entries: &[&AuditEntry]) -> String {
    let row = |entry: &&AuditEntry| {
        [
            time::shown(entry.unix_ms),
            entry.kind.as_str().to_owned(),
            entry.instance.to_string(),
            or_nothing(entry.epoch),
            shown(&entry.reason),
        ]
    };
    lay_out(&COLUMNS, &entries.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn value(entry: &AuditEntry) -> Value {
    json!({
        "unix_ms": entry.unix_ms,
        "event": entry.kind.as_str(),
        "instance": entry.instance.to_string(),
        "duty": entry.duty.as_ref().map(ToString::to_string),
        "epoch": entry.epoch.map(Epoch::get),
        "reason": entry.reason,
    })
}
