//! Audit trail.

use tenure_core::store::{AuditEntry, AuditKind, AuditRange};
use tenure_core::{Code, DutyId, DutyKey, Epoch, GroupName, InstanceId, StoreError, StoreResult};

use super::Redis;
use super::reply::RedisReply;
use super::script::Script;

/// Maximum number of audit entries that one request reads.
const PAGE_ENTRIES: usize = 1_000;

impl Redis {
    pub(super) async fn audit_read(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> StoreResult<Vec<AuditEntry>> {
        let mut entries: Vec<AuditEntry> = Vec::new();
        let mut after = range.after;
        while entries.len() < range.limit && after < u64::MAX {
            let page = PAGE_ENTRIES.min(range.limit - entries.len());
            let reply = self.ask(&self.data, |incarnation| {
                self.script(Script::AuditRead, incarnation, group).arg(after + 1).arg(page)
            });
            let mut reply = reply.await?;
            let before = entries.len();
            while !reply.is_done() {
                entries.push(entry(group, reply.list()?)?);
            }
            after = entries.last().map_or(after, |entry| entry.seq);
            if entries.len() - before < page {
                break;
            }
        }
        Ok(entries)
    }
}

/// Parses a stream entry: its id, then alternating field names and values.
fn entry(group: &GroupName, mut stored: RedisReply) -> StoreResult<AuditEntry> {
    let damaged =
        || StoreError::refused(Code::Damaged, format!("an audit entry of {group} cannot be read"));
    let id = stored.text()?;
    let seq = id.split('-').next().and_then(|seq| seq.parse().ok());
    let mut fields = stored.list()?;
    let mut field = |name: &str| -> StoreResult<String> {
        if fields.text()? == name { fields.text() } else { Err(damaged()) }
    };
    let kind = AuditKind::parse(&field("kind")?).ok_or_else(damaged)?;
    let instance = InstanceId::new(field("instance")?)?;
    let (duty, epoch) = (field("duty")?, field("epoch")?);
    let (reason, unix_ms) = (field("reason")?, field("unix_ms")?);
    let duty = match duty.as_str() {
        "" => None,
        id => Some(DutyKey { group: group.clone(), id: DutyId::unescape(id)? }),
    };
    let epoch = match epoch.as_str() {
        "" => None,
        epoch => Some(Epoch::new(epoch.parse().map_err(|_| damaged())?)?),
    };
    Ok(AuditEntry {
        seq: seq.ok_or_else(damaged)?,
        unix_ms: unix_ms.parse().map_err(|_| damaged())?,
        kind,
        instance,
        duty,
        epoch,
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    #[test]
    fn a_foreign_entry_is_called_damaged() {
        let group = GroupName::new("g").unwrap();
        let text = |text: &str| Value::BulkString(text.into());
        let fields = Value::Array(vec![text("kind"), text("other")]);
        let stored = RedisReply::of(Value::Array(vec![text("1-0"), fields])).unwrap();
        assert_eq!(entry(&group, stored).unwrap_err().code(), Code::Damaged);
    }
}
