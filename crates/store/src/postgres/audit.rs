//! Audit trail.

use tenure_core::store::{AuditEntry, AuditKind, AuditRange};
use tenure_core::{DutyId, DutyKey, Epoch, GroupName, InstanceId, StoreError, StoreResult};
use tokio_postgres::Row;

use super::rows::{column, damaged};
use super::{Postgres, parameters};

impl Postgres {
    /// Trims the trail to the store's retention.
    pub(super) async fn audit_trim(&self) -> StoreResult<()> {
        self.query(&self.statements.audit_trim, &[]).await?;
        Ok(())
    }

    pub(super) async fn audit_read(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> StoreResult<Vec<AuditEntry>> {
        let after = i64::try_from(range.after).unwrap_or(i64::MAX);
        let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
        let parameters = parameters![group.as_str() => TEXT, after => INT8, limit => INT8];
        let rows = self.query(&self.statements.audit_read, &parameters).await?;
        rows.iter().map(|row| audit_entry(row, group)).collect()
    }
}

fn audit_entry(row: &Row, group: &GroupName) -> StoreResult<AuditEntry> {
    let kind: &str = column(row, 2)?;
    let duty: Option<String> = column(row, 4)?;
    let duty =
        duty.map(|id| Ok::<_, StoreError>(DutyKey { group: group.clone(), id: DutyId::new(id)? }));
    Ok(AuditEntry {
        seq: column::<i64>(row, 0)? as u64,
        unix_ms: column::<i64>(row, 1)?.max(0) as u64,
        kind: AuditKind::parse(kind)
            .ok_or_else(|| damaged(format!("unknown audit entry kind {kind:?}")))?,
        instance: InstanceId::new(column::<String>(row, 3)?)?,
        duty: duty.transpose()?,
        epoch: column::<Option<i64>>(row, 5)?.map(Epoch::from_i64).transpose()?,
        reason: column(row, 6)?,
    })
}
