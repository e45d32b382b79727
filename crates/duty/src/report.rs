//! Reports on the duties of a group, many in one call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::store::{DutyReport, Report, Reported};
use tenure_core::{Code, Document, DutyId, DutyKey, GroupName, Nonce, Session, Store, StoreError};

use crate::guard::Guard;
use crate::hold_state::DriverHandle;

/// Number of the newest report of this process: larger than those of all before.
static NEWEST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Returns the number of the next report.
pub(crate) fn next_number() -> u64 {
    NEWEST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1
}

pub(crate) fn report_of(guard: &Guard, number: u64, document: Document) -> Report {
    Report { hold: guard.hold().clone(), number, document }
}

/// Handle that stores and loads the reports of a group; see [`Guard::report`] for a single one.
#[derive(Clone, Debug)]
pub struct ReportHandle {
    handle: DriverHandle,
    group: GroupName,
}

impl ReportHandle {
    pub(crate) fn new(handle: DriverHandle, group: GroupName) -> Self {
        Self { handle, group }
    }

    /// Stores reports under the holds of these guards, with one call for each session, of which
    /// there is one unless it was just replaced. Returns the outcome of each, in order; a guard
    /// whose hold is not valid any more ([`Code::Fenced`]) is lost.
    pub async fn store(&self, reports: &[(Guard, Document)]) -> Vec<Result<(), StoreError>> {
        let mut outcomes = vec![Ok(()); reports.len()];
        let mut sessions: BTreeMap<Nonce, (Session, Vec<usize>)> = BTreeMap::new();
        for (at, (guard, _)) in reports.iter().enumerate() {
            if let Err(lost) = guard.check() {
                outcomes[at] = Err(lost.into());
                continue;
            }
            let session = &guard.state().session;
            let (_, places) =
                sessions.entry(session.nonce).or_insert_with(|| (session.clone(), Vec::new()));
            places.push(at);
        }
        for (session, places) in sessions.into_values() {
            let report = |at: &usize| {
                let (guard, document) = &reports[*at];
                report_of(guard, next_number(), document.clone())
            };
            let batch: Vec<Report> = places.iter().map(report).collect();
            let store = |store: Arc<dyn Store>| async move { store.report(&session, &batch).await };
            let answers = self.handle.store.call(store).await;
            for (n, at) in places.into_iter().enumerate() {
                outcomes[at] = match answers.as_ref().map(|answers| answers.get(n)) {
                    Ok(Some(Reported::Stored)) => Ok(()),
                    Ok(Some(Reported::Fenced { newest })) => Err(reports[at].0.refused(*newest)),
                    Ok(None) => Err(StoreError::unknown(Code::Failed, "no outcome of a report")),
                    Err(error) => Err(error.clone()),
                };
            }
        }
        outcomes
    }

    /// Loads the newest report on each of these duties of the group.
    pub async fn load(&self, ids: &[DutyId]) -> Result<Vec<Option<DutyReport>>, StoreError> {
        let duty = |id: &DutyId| DutyKey { group: self.group.clone(), id: id.clone() };
        let duties: Vec<DutyKey> = ids.iter().map(duty).collect();
        let load = |store: Arc<dyn Store>| async move { store.reports(&duties).await };
        self.handle.store.call(load).await
    }
}
