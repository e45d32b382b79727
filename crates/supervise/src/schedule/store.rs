//! Record of a schedule in the store: read and written under the hold.

use tenure_core::{Code, Document, LogLevel, StoreError};
use tenure_wire::schedule::ScheduleRecord;

use super::{OrEnd, STORE_RETRY, ScheduleHolder};
use crate::run::RunOutcome;

impl ScheduleHolder<'_, '_, '_> {
    /// Reads the record; repeats it until the store responds.
    pub(super) async fn load(&mut self) -> OrEnd<Option<ScheduleRecord>> {
        let mut logged = false;
        loop {
            let error = match self.assignment.hold().reported().await {
                Ok(None) => return Ok(None),
                Ok(Some(report)) => {
                    let record = ScheduleRecord::read(report.document.as_bytes());
                    return record.map(Some).ok_or_else(|| self.not_a_record());
                }
                Err(error) => error,
            };
            self.pause(&error, &mut logged).await?;
        }
    }

    /// Writes the record, in one step with the check of the hold; repeats it until the store
    /// responds or the hold ends.
    pub(super) async fn store(&mut self, record: &ScheduleRecord) -> OrEnd<()> {
        let mut logged = false;
        loop {
            let document = Document::new(record.to_json());
            let stored = match document {
                Ok(document) => self.assignment.hold().report(document).await,
                Err(error) => Err(error),
            };
            match stored {
                Ok(()) => return Ok(()),
                // Sending it again would not help.
                Err(error) if error.code() == Code::BadInput => {
                    return Err(RunOutcome::Refused(error.into()));
                }
                Err(error) => self.pause(&error, &mut logged).await?,
            }
        }
    }

    /// Waits before a request is repeated; ends the work if the hold has ended.
    async fn pause(&mut self, error: &StoreError, logged: &mut bool) -> OrEnd<()> {
        if error.code() == Code::Fenced {
            // After a pause of this process, the hold may only have to be confirmed.
            let confirmed = self.assignment.hold().confirmed().await;
            return confirmed.map_err(|_| RunOutcome::TakenAway);
        }
        if !std::mem::replace(logged, true) {
            let reason = format!("{}; retrying", error.problem());
            self.log(LogLevel::Warn, "record_failed", reason);
        }
        self.idle(STORE_RETRY).await
    }

    fn not_a_record(&self) -> RunOutcome {
        let duty = self.assignment.hold().duty();
        let what = format!("the report on {duty} is not the record of a schedule");
        let error = StoreError::refused(Code::Conflict, what);
        RunOutcome::Refused(error.into())
    }
}
