//! The audit trail: one key per record.
//!
//! A key begins with the newest revision that its writer had seen, so that the oldest records can
//! be deleted as a range. Records are ordered by the revision at which their key was created.
//! Records of one transaction share a revision; a number at the end of the key tells them apart.

use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::store::{AuditEntry, AuditKind, AuditRange};
use tenure_core::{DutyId, DutyKey, Epoch, GroupName, InstanceId, Mutant, StoreResult};
use tenure_etcd::{Client, DeleteRange, KeyValue, Range, TxnOp};
use tokio::time::timeout;

use super::call::EtcdCall;
use super::cluster::ATTEMPT_TIMEOUT;
use super::error::RequestError;
use super::read::end_of;
use super::{MAX_TXN_ITEMS, PAGE_KEYS, error};
use crate::clock::unix_ms;

/// Bits of a sequence number that distinguish the records of one transaction.
const RECORD_INDEX_BITS: u32 = 8;

/// Maximum number of records that one transaction writes.
const MAX_REVISION_RECORDS: usize = 2 * MAX_TXN_ITEMS + 2;
const _: () = assert!(MAX_REVISION_RECORDS < 1 << RECORD_INDEX_BITS);

/// Maximum number of records that one trim deletes: more than are written between two trims.
const MAX_TRIM_KEYS: i64 = 20_000;

/// Maximum number of records that one handle writes before it trims the audit trail of a group.
const RECORDS_PER_TRIM: u64 = 4_096;

/// The records of one transaction.
pub(super) struct AuditBatch<'a> {
    folder: String,
    stem: String,
    written: usize,
    reason: &'a str,
    unix_ms: u64,
    /// Counts the records that the handle writes.
    records: &'a AtomicU64,
}

impl AuditBatch<'_> {
    /// Returns the key of the next record.
    pub(super) fn next_key(&self) -> String {
        format!("{}{}-{:02x}", self.folder, self.stem, self.written)
    }

    pub(super) fn put(
        &mut self,
        kind: AuditKind,
        instance: &InstanceId,
        hold: Option<(&DutyId, Epoch)>,
    ) -> TxnOp {
        let name = self.next_key();
        self.written += 1;
        self.records.fetch_add(1, Ordering::Relaxed);
        // Names and reasons contain no control characters, so a tab separates them.
        let (duty, epoch) = hold.map_or(("", Epoch::ZERO), |(duty, epoch)| (duty.as_str(), epoch));
        let value = format!(
            "{}\t{}\t{epoch}\t{duty}\t{}\t{}",
            kind.as_str(),
            self.unix_ms,
            instance.as_str(),
            self.reason
        );
        if Mutant::R24Audit.is_on() { TxnOp::delete(name) } else { TxnOp::put(name, value) }
    }
}

impl EtcdCall<'_> {
    /// Starts the records of one transaction.
    pub(super) fn trail<'a>(&'a self, group: &GroupName, reason: &'a str) -> AuditBatch<'a> {
        let (revision, number) = (self.cluster.revision(), self.next_number());
        AuditBatch {
            folder: self.keys.audits(group),
            stem: format!("{revision:016x}-{:016x}-{number:08x}", self.number),
            written: 0,
            reason,
            unix_ms: unix_ms(),
            records: &self.records,
        }
    }

    pub(super) async fn audit_read(
        &self,
        group: &GroupName,
        range: AuditRange,
    ) -> StoreResult<Vec<AuditEntry>> {
        let folder = self.keys.audits(group);
        let (mut entries, mut after) = (Vec::new(), range.after);
        while entries.len() < range.limit {
            let wanted = (range.limit - entries.len()).min(PAGE_KEYS as usize);
            let (page, more) = self.audit_page(group, &folder, after, wanted).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            entries.extend(page);
            if !more {
                break;
            }
        }
        entries.truncate(range.limit);
        Ok(entries)
    }

    /// Returns at least `wanted` entries after a sequence number, if there are that many, and
    /// whether there are more.
    async fn audit_page(
        &self,
        group: &GroupName,
        folder: &str,
        after: u64,
        wanted: usize,
    ) -> StoreResult<(Vec<AuditEntry>, bool)> {
        // Records of the first and the last revision of the page may be unusable.
        let limit = wanted + 2 * MAX_REVISION_RECORDS;
        let range = &Range {
            min_create_revision: (after >> RECORD_INDEX_BITS) as i64,
            limit: limit as i64,
            ..Range::between(folder, end_of(folder)).by_creation()
        };
        let sent = |client: Client| async move { client.range(range).await };
        let repeated = self.cluster.repeat(ATTEMPT_TIMEOUT, sent).await;
        let found = repeated.map_err(RequestError::into_error)?.kvs;
        let more = found.len() == limit;
        // If the page is cut off, records of its last revision may be missing.
        let whole = match found.last() {
            Some(last) if more => last.create_revision,
            _ => i64::MAX,
        };
        let mut page = found
            .iter()
            .filter(|found| found.create_revision < whole)
            .map(|found| entry(group, found))
            .collect::<Result<Vec<_>, _>>()?;
        page.sort_by_key(|entry| entry.seq);
        page.retain(|entry| entry.seq > after);
        Ok((page, more))
    }

    /// Trims the trail of a group when it is due. The call's writes have already happened, and its
    /// answer does not wait long for housekeeping.
    pub(super) async fn audit_tend(&self, group: &GroupName) {
        let most = self.records_per_trim();
        // Of several tasks that see the counter due, the one that resets it trims.
        if self.records.load(Ordering::Relaxed) >= most
            && self.records.swap(0, Ordering::Relaxed) >= most
        {
            let _ = timeout(ATTEMPT_TIMEOUT, self.audit_trim(group)).await;
        }
    }

    /// Starts the counter at an arbitrary value below the limit: even if all handles are
    /// short-lived, one of them reaches the limit.
    pub(super) fn audit_begin(&self) {
        self.records.store(self.number % self.records_per_trim(), Ordering::Relaxed);
    }

    /// A short trail is trimmed more often: it may exceed its limit by a quarter.
    fn records_per_trim(&self) -> u64 {
        RECORDS_PER_TRIM.min(self.retention().audit_kept as u64 / 4).max(1)
    }

    /// Trims the trail of a group to about its limit. A failure does no harm: a later call trims.
    pub(super) async fn audit_trim(&self, group: &GroupName) {
        let folder = self.keys.audits(group);
        let kept = self.retention().audit_kept as i64;
        let all = || Range::between(folder.as_str(), end_of(&folder));
        let count = &Range { count_only: true, ..all() };
        let counting = |client: Client| async move { client.range(count).await };
        let Ok(counted) = self.cluster.repeat(ATTEMPT_TIMEOUT, counting).await else { return };
        let surplus = counted.count - kept;
        if surplus <= 0 {
            return;
        }
        let surplus = &Range { keys_only: true, limit: surplus.min(MAX_TRIM_KEYS), ..all() };
        let oldest = |client: Client| async move { client.range(surplus).await };
        let Ok(mut oldest) = self.cluster.repeat(ATTEMPT_TIMEOUT, oldest).await else { return };
        let Some(last) = oldest.kvs.pop() else { return };
        let oldest = &DeleteRange::between(folder.as_str(), [&last.key[..], &[0]].concat());
        let cut = |client: Client| async move { client.delete_range(oldest).await };
        let _ = self.cluster.attempt(ATTEMPT_TIMEOUT, cut).await;
    }
}

fn entry(group: &GroupName, found: &KeyValue) -> StoreResult<AuditEntry> {
    let damaged = || error::damaged("a record of the audit trail");
    let name = std::str::from_utf8(&found.key).map_err(|_| damaged())?;
    let index = name.rsplit('-').next().and_then(|index| u64::from_str_radix(index, 16).ok());
    let index = index.filter(|index| index >> RECORD_INDEX_BITS == 0).ok_or_else(damaged)?;
    let value = std::str::from_utf8(&found.value).map_err(|_| damaged())?;
    let parts: Vec<&str> = value.split('\t').collect();
    let [kind, unix_ms, epoch, duty, instance, reason] = parts[..] else { return Err(damaged()) };
    let epoch = Epoch::new(epoch.parse().map_err(|_| damaged())?)?;
    let duty = match duty {
        "" => None,
        id => Some(DutyKey { group: group.clone(), id: DutyId::new(id)? }),
    };
    Ok(AuditEntry {
        seq: (found.create_revision as u64) << RECORD_INDEX_BITS | index,
        unix_ms: unix_ms.parse().map_err(|_| damaged())?,
        kind: AuditKind::parse(kind).ok_or_else(damaged)?,
        instance: InstanceId::new(instance)?,
        epoch: duty.is_some().then_some(epoch),
        duty,
        reason: reason.to_owned(),
    })
}
