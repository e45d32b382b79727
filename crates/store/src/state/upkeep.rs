//! Retention, forgetting duties and adopting a store.

use std::collections::BTreeSet;

use tenure_core::store::{Adopt, Adopted, AuditKind, Forgotten, Retention};
use tenure_core::{DutyKey, Epoch, LocalInstant, Reason};

use super::StoreState;

impl StoreState {
    pub(crate) fn retention(&self) -> Retention {
        self.retention
    }

    pub(crate) fn retain(&mut self, retention: Retention) {
        self.retention = retention;
        for group in self.groups.values_mut() {
            for ring in group.checkpoints.values_mut() {
                ring.truncate(retention.history_slots);
            }
        }
    }

    pub(crate) fn forget(
        &mut self,
        duty: &DutyKey,
        reason: &Reason,
        now: LocalInstant,
    ) -> Forgotten {
        let group = self.group(&duty.group);
        let row = group.holds.get(&duty.id);
        if let Some(holder) = row.and_then(|row| group.holder(row, now)) {
            return Forgotten::HeldBy(Some(holder));
        }
        let epoch = group.newest_epoch(&duty.id);
        let last = group.holds.remove(&duty.id).map(|row| row.instance);
        let ring = group.checkpoints.remove(&duty.id);
        let last = last.or_else(|| Some(ring?.front()?.instance.clone()));
        let report = group.reports.remove(&duty.id);
        let epoch = epoch.max(report.as_ref().map_or(Epoch::ZERO, |report| report.epoch));
        let Some(last) = last.or(report.map(|report| report.instance)) else {
            return Forgotten::Absent;
        };
        group.floor = group.floor.max(epoch);
        let gone = Some((duty.clone(), epoch));
        group.record(AuditKind::Forgotten, &last, gone, reason.as_str(), now);
        Forgotten::Forgotten { floor: group.floor }
    }

    pub(crate) fn adopt(&mut self, adopt: &Adopt, now: LocalInstant) -> Adopted {
        let (mut sessions, mut duties, mut floor) = (0, 0, self.floor.max(adopt.floor));
        for group in self.groups.values_mut() {
            sessions += group.sessions.values().filter(|row| now < row.expires).count() as u64;
            // A hold ends with its session; the next claim of the duty records that.
            group.sessions.values_mut().for_each(|row| row.expires = row.expires.min(now));
            let known: BTreeSet<_> = group.holds.keys().chain(group.checkpoints.keys()).collect();
            duties += known.len() as u64;
            floor = known.iter().map(|id| group.newest_epoch(id)).fold(floor, Epoch::max);
            floor = floor.max(group.floor);
        }
        self.floor = floor;
        Adopted { incarnation: format!("{:032x}", adopt.entropy), sessions, duties, floor }
    }
}
