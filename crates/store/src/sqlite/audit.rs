//! Audit trail.

use rusqlite::Connection;
use tenure_core::store::{AuditEntry, AuditKind, AuditRange};
use tenure_core::{Code, DutyId, DutyKey, Epoch, GroupName, InstanceId, StoreError, StoreResult};

use super::error::statement_error;
use super::worker::SqliteConnection;
use super::{all, execute, sql};

/// Appends an entry about an instance of a group, and a hold of it if one is given.
pub(super) fn record(
    db: &Connection,
    kind: AuditKind,
    (group, instance): (&GroupName, &InstanceId),
    hold: Option<(&DutyId, Epoch)>,
    reason: &str,
) -> StoreResult<()> {
    let (duty, epoch) = hold.unzip();
    let (duty, epoch) = (duty.map(DutyId::as_str), epoch.map(Epoch::as_i64));
    let row = (group.as_str(), kind.as_str(), instance.as_str(), duty, epoch, reason);
    execute(db, sql!("audit/record"), row)?;
    Ok(())
}

/// Trims the trail to the store's retention.
pub(super) fn trim(line: &mut SqliteConnection) -> StoreResult<()> {
    line.write(|db, _| {
        db.execute(sql!("audit/trim"), []).map_err(statement_error)?;
        Ok(())
    })
}

pub(super) fn read(
    db: &Connection,
    group: &GroupName,
    range: AuditRange,
) -> StoreResult<Vec<AuditEntry>> {
    let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
    let after = i64::try_from(range.after).unwrap_or(i64::MAX);
    let read = |row: (i64, i64, String, String, Option<String>, Option<i64>, String)| {
        let (seq, unix_ms, kind, instance, duty, epoch, reason) = row;
        let unknown =
            || StoreError::refused(Code::Damaged, format!("unknown audit entry kind {kind:?}"));
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
    all(db, sql!("audit/read"), (group.as_str(), after, limit), read)
}
