//! Reports.

use tenure_core::store::{DutyReport, Report, Reported};
use tenure_core::{Document, DutyKey, Epoch, InstanceId, Session, StoreResult};

use super::reply::RedisReply;
use super::script::Script;
use super::session::epoch_for;
use super::{Redis, error};

impl Redis {
    pub(super) async fn report_load(
        &self,
        duties: &[DutyKey],
    ) -> StoreResult<Vec<Option<DutyReport>>> {
        self.load_each(Script::ReportLoad, &["report", "fence"], duties, |fields| {
            let report = report(fields)?;
            self.saw(report.epoch);
            Ok(report)
        })
        .await
    }

    pub(super) async fn report_store(
        &self,
        session: &Session,
        reports: &[Report],
    ) -> StoreResult<Vec<Reported>> {
        let answers = self.call_chunks(&self.data, reports, |incarnation, chunk| {
            self.script(Script::ReportStore, incarnation, &session.group)
                .session(session)
                .arg(chunk.len())
                .args(chunk.iter().map(|report| report.hold.duty.id.escaped()))
                .args(chunk.iter().map(|report| epoch_for(session, &report.hold)))
                .args(chunk.iter().map(|report| report.number))
                .args(chunk.iter().map(|report| report.document.as_bytes()))
        });
        let mut reported = Vec::with_capacity(reports.len());
        for value in answers.await? {
            let mut reply = RedisReply::of(value)?;
            while !reply.is_done() {
                reported.push(match (reply.number()?, Epoch::new(reply.number()?)?) {
                    (1, _) => Reported::Stored,
                    (2, newest) => {
                        self.saw(newest);
                        Reported::Fenced { newest }
                    }
                    _ => return Err(error::unexpected("unknown outcome code for report")),
                });
            }
        }
        match reported.len() == reports.len() {
            true => Ok(reported),
            false => Err(error::unexpected("wrong number of report outcomes")),
        }
    }
}

fn report(mut fields: RedisReply) -> StoreResult<DutyReport> {
    Ok(DutyReport {
        epoch: Epoch::new(fields.number()?)?,
        number: fields.number()?,
        instance: InstanceId::new(fields.text()?)?,
        document: Document::new(fields.bytes()?)?,
        unix_ms: fields.number()?,
    })
}
