//! State of a store inside one process; each call is one step on it.
//!
//! The memory store is this and a lock; the file store also writes the durable part to disk.
//!
//! Why: docs/decisions/0028-cursor-file-shares-memory-rules.md

mod checkpoint;
#[cfg(feature = "file")]
pub(crate) mod durable;
mod group;
mod hold;
mod live;
mod report;
pub(crate) mod rules;
mod session;
mod upkeep;

use std::collections::{BTreeMap, VecDeque};

use tenure_core::store::{
    AuditEntry, AuditKind, Checkpoint, CurrentHolder, DutyReport, GroupDocument, Retention,
};
use tenure_core::{
    DutyId, DutyKey, Epoch, GroupName, Hold, InstanceId, LocalInstant, Mutant, Nonce, Note,
};

pub(crate) use live::LiveState;
use rules::LastGrant;

#[derive(Clone, Default)]
pub(crate) struct StoreState {
    pub(crate) groups: BTreeMap<GroupName, GroupRows>,
    /// No epoch up to this one is granted in any group.
    pub(crate) floor: Epoch,
    pub(crate) retention: Retention,
    /// Wall clock of the step, for people; `None` means the clock that judges expiry.
    pub(crate) unix_ms: Option<u64>,
}

#[derive(Clone, Default)]
pub(crate) struct GroupRows {
    pub(crate) sessions: BTreeMap<InstanceId, SessionRow>,
    /// Nonces of all sessions ever opened, with the time.
    spent: BTreeMap<Nonce, u64>,
    pub(crate) holds: BTreeMap<DutyId, HoldRow>,
    /// Newest first, at most [`Retention::history_slots`].
    pub(crate) checkpoints: BTreeMap<DutyId, VecDeque<Checkpoint>>,
    pub(crate) reports: BTreeMap<DutyId, DutyReport>,
    /// Number of reports stored by this process.
    reported: u64,
    pub(crate) document: GroupDocument,
    pub(crate) audit: VecDeque<AuditEntry>,
    pub(crate) last_seq: u64,
    /// The newest epoch of the duties that were forgotten.
    pub(crate) floor: Epoch,
    retention: Retention,
    unix_ms: Option<u64>,
}

#[derive(Clone)]
pub(crate) struct SessionRow {
    nonce: Nonce,
    note: Note,
    pub(crate) expires: LocalInstant,
    /// Number of holds that have left this session.
    left: u64,
    evicted: bool,
}

/// The last grant of a duty. The row stays when the hold ends, so that the epoch survives (R2).
#[derive(Clone)]
pub(crate) struct HoldRow {
    pub(crate) epoch: Epoch,
    pub(crate) instance: InstanceId,
    nonce: Nonce,
    pub(crate) held: bool,
}

impl GroupRows {
    fn live(&self, instance: &InstanceId, nonce: Nonce, now: LocalInstant) -> Option<&SessionRow> {
        let same = |row: &SessionRow| row.nonce == nonce || Mutant::R3Name.is_on();
        self.sessions.get(instance).filter(|row| same(row) && now < row.expires)
    }

    pub(crate) fn holder(&self, row: &HoldRow, now: LocalInstant) -> Option<CurrentHolder> {
        let session = self.live(&row.instance, row.nonce, now).filter(|_| row.held)?;
        let remaining = session.expires.since(now);
        Some(CurrentHolder { instance: row.instance.clone(), remaining })
    }

    pub(crate) fn stands(&self, hold: &Hold, now: LocalInstant) -> bool {
        self.last_grant(&hold.duty.id, now).is_some_and(|last| last.stands(hold))
    }

    fn last_grant(&self, duty: &DutyId, now: LocalInstant) -> Option<LastGrant> {
        let row = self.holds.get(duty)?;
        Some(LastGrant {
            epoch: row.epoch,
            instance: row.instance.clone(),
            nonce: row.nonce,
            held: row.held,
            remaining: self.holder(row, now).map(|holder| holder.remaining),
        })
    }

    pub(crate) fn newest_epoch(&self, duty: &DutyId) -> Epoch {
        let granted = self.holds.get(duty).map_or(Epoch::ZERO, |row| row.epoch);
        let committed = self.checkpoints.get(duty).and_then(VecDeque::front);
        granted.max(committed.map_or(Epoch::ZERO, |checkpoint| checkpoint.epoch))
    }

    fn wall(&self, now: LocalInstant) -> u64 {
        self.unix_ms.unwrap_or(now.as_nanos() / 1_000_000)
    }

    pub(crate) fn record(
        &mut self,
        kind: AuditKind,
        instance: &InstanceId,
        hold: Option<(DutyKey, Epoch)>,
        reason: &str,
        now: LocalInstant,
    ) {
        self.last_seq += 1;
        if Mutant::R24Audit.is_on() {
            return;
        }
        let (duty, epoch) = hold.unzip();
        self.audit.push_back(AuditEntry {
            seq: self.last_seq,
            unix_ms: self.wall(now),
            kind,
            instance: instance.clone(),
            duty,
            epoch,
            reason: reason.to_owned(),
        });
        let surplus = self.audit.len().saturating_sub(self.retention.audit_kept);
        self.audit.drain(..surplus);
    }
}

impl StoreState {
    pub(crate) fn group(&mut self, name: &GroupName) -> &mut GroupRows {
        let group = self.groups.entry(name.clone()).or_default();
        group.floor = group.floor.max(self.floor);
        group.retention = self.retention;
        group.unix_ms = self.unix_ms;
        group
    }
}
