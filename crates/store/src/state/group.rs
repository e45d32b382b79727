//! Groups: members, holders, documents and audit trails.

use std::collections::BTreeSet;

use tenure_core::store::{AuditEntry, AuditRange, GroupDocument, Holder, Member, Replaced};
use tenure_core::{Document, DutyKey, GroupName, LocalInstant, StoreResult, Version};

use super::{GroupRows, StoreState};

impl StoreState {
    pub(crate) fn groups(&self) -> Vec<GroupName> {
        let used = |group: &GroupRows| {
            !group.sessions.is_empty()
                || !group.holds.is_empty()
                || !group.checkpoints.is_empty()
                || group.document.version > Version::ZERO
        };
        self.groups.iter().filter(|(_, group)| used(group)).map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn members(&mut self, name: &GroupName, now: LocalInstant) -> Vec<Member> {
        let group = self.group(name);
        let live = group.sessions.iter().filter(|(_, row)| now < row.expires);
        live.map(|(instance, row)| Member {
            instance: instance.clone(),
            nonce: Some(row.nonce),
            note: row.note.clone(),
            remaining: row.expires.since(now),
            evicted: row.evicted,
        })
        .collect()
    }

    pub(crate) fn holders(&mut self, name: &GroupName, now: LocalInstant) -> Vec<Holder> {
        let group = self.group(name);
        // A checkpoint without a known grant came from elsewhere; it is listed, too.
        let known: BTreeSet<_> = group.holds.keys().chain(group.checkpoints.keys()).collect();
        let holders = known.into_iter().map(|id| Holder {
            duty: DutyKey { group: name.clone(), id: id.clone() },
            epoch: Some(group.newest_epoch(id)),
            holder: group.holds.get(id).and_then(|row| group.holder(row, now)),
        });
        holders.collect()
    }

    pub(crate) fn document(&mut self, name: &GroupName) -> GroupDocument {
        self.group(name).document.clone()
    }

    pub(crate) fn replace_document(
        &mut self,
        name: &GroupName,
        expected: Version,
        document: &Document,
    ) -> StoreResult<Replaced> {
        let group = self.group(name);
        let stored = group.document.version;
        if stored != expected {
            return Ok(Replaced::Conflict { stored });
        }
        let version = expected.next()?;
        group.document = GroupDocument { version, document: document.clone() };
        Ok(Replaced::Saved(version))
    }

    pub(crate) fn audit(&mut self, name: &GroupName, range: AuditRange) -> Vec<AuditEntry> {
        let entries = self.group(name).audit.iter();
        entries.filter(|entry| entry.seq > range.after).take(range.limit).cloned().collect()
    }
}
