//! Counting heartbeats and outcomes.

use tenure_core::Epoch;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::row::{column, from_micros, from_row, missing, to_micros};
use super::super::{Parameter, PostgresStorage};
use super::arrival_time;
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::row::DatabaseRow as _;
use crate::storage::{
    ConnectorKey, ConnectorSum, FanoutCount, Period, RollUpReport, SeriesBucket, SeriesStep,
    TimeSource,
};

impl PostgresStorage {
    pub(super) async fn count(
        &self,
        epoch: Epoch,
        when: TimeSource,
    ) -> StorageResult<RollUpReport> {
        let (epoch, at) = (epoch.as_i64(), arrival_time(when));
        // By itself: the step is to see what was committed before the bound.
        let parameters: [Parameter<'_>; 1] = [(&epoch, Type::INT8)];
        self.data.query(&self.statements.statistics_bound, &parameters).await?;
        let parameters: [Parameter<'_>; 2] = [(&epoch, Type::INT8), (&at, Type::TIMESTAMPTZ)];
        let rows = self.data.query(&self.statements.statistics_roll_up, &parameters).await?;
        rows.first().ok_or_else(missing).and_then(rolled).map_err(SwitchboardError::or_happened)
    }

    pub(super) async fn read_series(
        &self,
        name: &ConnectorKey,
        since: i64,
        step: SeriesStep,
    ) -> StorageResult<Vec<SeriesBucket>> {
        let since = from_micros(since);
        let parameters: [Parameter<'_>; 3] = [
            (&name.connector_type, Type::TEXT),
            (&name.endpoint_identity, Type::TEXT),
            (&since, Type::TIMESTAMPTZ),
        ];
        let statement = match step {
            SeriesStep::Hour => &self.statements.registry_hours,
            SeriesStep::Day => &self.statements.registry_days,
        };
        self.rows(statement, &parameters).await
    }

    pub(super) async fn read_sums(
        &self,
        period: Period,
    ) -> StorageResult<(i64, Vec<ConnectorSum>)> {
        let period = period.as_str();
        let parameters: [Parameter<'_>; 1] = [(&period, Type::TEXT)];
        let rows = self.data.query(&self.statements.registry_sums, &parameters).await?;
        let now = to_micros(column(rows.first().ok_or_else(missing)?, 0)?);
        let found = rows.iter().filter_map(|row| sum(row).transpose());
        let mut sums = found.collect::<Result<Vec<ConnectorSum>, _>>()?;
        sums.sort_unstable_by(|one, other| {
            let name = (&one.connector_type, &one.endpoint_identity);
            name.cmp(&(&other.connector_type, &other.endpoint_identity))
        });
        Ok((now, sums))
    }

    pub(super) async fn read_fanout(&self, since_day: &str) -> StorageResult<Vec<FanoutCount>> {
        let parameters: [Parameter<'_>; 1] = [(&since_day, Type::TEXT)];
        self.rows(&self.statements.registry_fanout, &parameters).await
    }
}

fn rolled(row: &Row) -> StorageResult<RollUpReport> {
    Ok(RollUpReport {
        fenced: column(row, 0)?,
        beats: column(row, 1)?,
        outcomes: column(row, 2)?,
        behind: column(row, 3)?,
        more: column(row, 4)?,
    })
}

/// Reads the sum of a connector, after the clock.
fn sum(row: &Row) -> StorageResult<Option<ConnectorSum>> {
    row.text(1)?.map(|_| from_row(row, 1)).transpose()
}
