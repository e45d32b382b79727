//! Audit trail.

use rusqlite::Connection;
use tenure_core::store::{AuditEntry, AuditKind, AuditRange};
use tenure_core::{Code, DutyId, DutyKey, Epoch, GroupName, InstanceId, StoreError};

use super::error::statement_error;
use super::worker::SqliteConnection;
use super::{all, execute, statements};

/// A new entry of the audit trail.
pub(super) struct AuditRecord<'a> {
    pub(super) kind: AuditKind,
    pub(super) group: &'a GroupName,
    pub(super) instance: &'a InstanceId,
    pub(super) hold: Option<(&'a DutyId, Epoch)>,
    pub(super) reason: &'a str,
}

/// Appends an entry.
pub(super) fn record(db: &Connection, entry: &AuditRecord<'_>) -> Result<(), StoreError> {
    let (duty, epoch) = entry.hold.unzip();
    let row = (
        entry.group.as_str(),
        entry.kind.as_str(),
        entry.instance.as_str(),
        duty.map(DutyId::as_str),
        epoch.map(Epoch::as_i64),
        entry.reason,
    );
    execute(db, statements::AUDIT_RECORD, row)?;
    Ok(())
}

/// Keeps as many entries as the store says.
pub(super) fn trim(line: &mut SqliteConnection) -> Result<(), StoreError> {
    line.write(|db, _| {
        db.execute(statements::AUDIT_TRIM, []).map_err(statement_error)?;
        Ok(())
    })
}

pub(super) fn read(
    db: &Connection,
    group: &GroupName,
    range: AuditRange,
) -> Result<Vec<AuditEntry>, StoreError> {
    let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
    let after = i64::try_from(range.after).unwrap_or(i64::MAX);
    all(db, statements::AUDIT_READ, (group.as_str(), after, limit), |row| {
        let (seq, unix_ms): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (kind, instance): (String, String) = (row.get(2)?, row.get(3)?);
        let (duty, epoch): (Option<String>, Option<i64>) = (row.get(4)?, row.get(5)?);
        let reason = row.get(6)?;
        let entry = || {
            let unknown = || StoreError::refused(Code::Damaged, format!("audit kind {kind:?}"));
            let duty = duty.map(|id| Ok(DutyKey { group: group.clone(), id: DutyId::new(id)? }));
            Ok(AuditEntry {
                seq: seq as u64,
                unix_ms: unix_ms.max(0) as u64,
                kind: AuditKind::parse(&kind).ok_or_else(unknown)?,
                instance: InstanceId::new(instance)?,
                duty: duty.transpose()?,
                epoch: epoch.map(Epoch::from_i64).transpose()?,
                reason,
            })
        };
        Ok(entry())
    })
}
