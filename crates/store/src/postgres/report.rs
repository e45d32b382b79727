//! Reports.

use tenure_core::store::{DutyReport, Report, Reported};
use tenure_core::{Document, DutyKey, Epoch, InstanceId, Session, StoreError, StoreResult};
use tokio_postgres::Row;

use super::rows::{column, index};
use super::{Postgres, complete, epoch_for, parameters};

impl Postgres {
    pub(super) async fn report_store(
        &self,
        session: &Session,
        reports: &[Report],
    ) -> StoreResult<Vec<Reported>> {
        let duties: Vec<&str> = reports.iter().map(|it| it.hold.duty.id.as_str()).collect();
        let epochs: Vec<i64> = reports.iter().map(|it| epoch_for(session, &it.hold)).collect();
        let numbers: Vec<i64> = reports.iter().map(|it| it.number.cast_signed()).collect();
        let documents: Vec<&[u8]> = reports.iter().map(|it| it.document.as_bytes()).collect();
        let parameters = parameters![
            of session, duties => TEXT_ARRAY, epochs => INT8_ARRAY, numbers => INT8_ARRAY,
            documents => BYTEA_ARRAY
        ];
        let rows = self.query(&self.statements.report_save, &parameters).await?;
        let rows = complete(rows, reports.len())?;
        let stored = rows.iter().map(|row| column(row, 0)).collect::<StoreResult<Vec<bool>>>();
        let stored = stored.map_err(StoreError::or_happened)?;
        if stored.iter().all(|stored| *stored) {
            return Ok(vec![Reported::Stored; reports.len()]);
        }
        let parameters = parameters![session.group.as_str() => TEXT, duties => TEXT_ARRAY];
        let newest = self.query(&self.statements.report_newest, &parameters).await;
        let newest = newest.and_then(|rows| complete(rows, reports.len()));
        let answer = |(stored, row): (bool, &Row)| match stored {
            true => Ok(Reported::Stored),
            false => Ok(Reported::Fenced { newest: Epoch::from_i64(column(row, 0)?)? }),
        };
        let answers = newest.and_then(|rows| stored.into_iter().zip(&rows).map(answer).collect());
        answers.map_err(StoreError::or_happened)
    }

    pub(super) async fn report_load(
        &self,
        duties: &[DutyKey],
    ) -> StoreResult<Vec<Option<DutyReport>>> {
        let groups: Vec<&str> = duties.iter().map(|duty| duty.group.as_str()).collect();
        let ids: Vec<&str> = duties.iter().map(|duty| duty.id.as_str()).collect();
        let parameters = parameters![groups => TEXT_ARRAY, ids => TEXT_ARRAY];
        let mut answers = vec![None; duties.len()];
        for row in self.query(&self.statements.report_load, &parameters).await? {
            if let Some(answer) = answers.get_mut(index(&row)?) {
                *answer = Some(report(&row)?);
            }
        }
        Ok(answers)
    }

    pub(super) async fn store_wall_clock(&self) -> StoreResult<Option<u64>> {
        let unix_ms: i64 = self.value(&self.statements.store_wall_clock, &[]).await?;
        Ok(u64::try_from(unix_ms).ok())
    }
}

fn report(row: &Row) -> StoreResult<DutyReport> {
    Ok(DutyReport {
        epoch: Epoch::from_i64(column(row, 1)?)?,
        number: column::<i64>(row, 2)?.max(0).cast_unsigned(),
        instance: InstanceId::new(column::<String>(row, 3)?)?,
        document: Document::new(column::<Vec<u8>>(row, 4)?)?,
        unix_ms: column::<i64>(row, 5)?.max(0) as u64,
    })
}
