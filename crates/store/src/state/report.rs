//! Reports: judged as commits are, without a version.

use std::collections::VecDeque;

use tenure_core::store::{DutyReport, Report, Reported};
use tenure_core::{DutyKey, Epoch, LocalInstant, Session};

use super::{GroupRows, StoreState, rules};

impl StoreState {
    pub(crate) fn report(
        &mut self,
        session: &Session,
        reports: &[Report],
        now: LocalInstant,
    ) -> Vec<Reported> {
        let group = self.group(&session.group);
        reports.iter().map(|report| group.report(session, report, now)).collect()
    }

    pub(crate) fn reports(&mut self, duties: &[DutyKey]) -> Vec<Option<DutyReport>> {
        let stored = |duty: &DutyKey| self.group(&duty.group).reports.get(&duty.id).cloned();
        duties.iter().map(stored).collect()
    }
}

impl GroupRows {
    fn report(&mut self, session: &Session, report: &Report, now: LocalInstant) -> Reported {
        let Report { hold, number, document } = report;
        let id = &hold.duty.id;
        let stored = self.checkpoints.get(id).and_then(VecDeque::front);
        let committed = stored.map_or(Epoch::ZERO, |stored| stored.epoch);
        let last = self.last_grant(id, now);
        let reported = rules::report(last.as_ref(), committed, session, hold);
        let is_late = |old: &DutyReport| old.epoch == hold.epoch && old.number >= *number;
        if reported == Reported::Stored && !self.reports.get(id).is_some_and(is_late) {
            let (epoch, instance) = (hold.epoch, hold.instance.clone());
            let (document, unix_ms) = (document.clone(), self.wall(now));
            let stored = DutyReport { epoch, number: *number, instance, document, unix_ms };
            self.reports.insert(id.clone(), stored);
            self.reported += 1;
        }
        reported
    }
}
