//! Room for the history, and its retention.

use tokio_postgres::types::Type;

use super::super::{FOR_EVER, Parameter, Postgres, STEP};
use super::told;
use crate::error::SwitchboardError;
use crate::storage::{HistoryKeep, Tidied, When};

/// So many days of the history are dropped at a time; the statement says the same.
const DAYS: u64 = 10;

impl Postgres {
    /// Makes room for the beats of today and the days to come.
    pub(in super::super) async fn make_days(&self, when: When) -> Result<(), SwitchboardError> {
        let at = told(when);
        let parameters: [Parameter<'_>; 1] = [(&at, Type::TIMESTAMPTZ)];
        self.data.query(&self.statements.history_make_days, &parameters).await?;
        Ok(())
    }

    pub(super) async fn take_away_history(
        &self,
        keep: HistoryKeep,
        when: When,
    ) -> Result<Tidied, SwitchboardError> {
        self.make_days(when).await?;
        let statements = &self.statements;
        let days = self.take_away_old(&statements.history_drop_days, keep.beats, when).await?;
        let beats =
            self.take_away_old(&statements.statistics_prune_beats, keep.beats, when).await?;
        let hourly =
            self.take_away_old(&statements.statistics_prune_hours, keep.hours, when).await?;
        let daily = self.take_away_old(&statements.statistics_prune_days, keep.days, when).await?;
        let fanout =
            self.take_away_old(&statements.statistics_prune_fanout, keep.days, when).await?;
        let outcomes = self.take_away_old(&statements.outcome_prune, keep.outcomes, when).await?;
        let instances =
            self.take_away_old(&statements.registry_prune_instances, keep.outcomes, when).await?;
        let rows = [beats, hourly, daily, fanout, outcomes, instances];
        Ok(Tidied {
            heartbeat_partitions_dropped: days,
            heartbeat_rows_deleted: beats,
            hourly_rows_deleted: hourly,
            daily_rows_deleted: daily,
            fanout_rows_deleted: fanout,
            outcome_rows_deleted: outcomes,
            instances_deleted: instances,
            more: days >= DAYS || rows.into_iter().any(|gone| gone >= STEP),
        })
    }

    /// Takes away what is older than `keep`: how much. What came before it has happened.
    async fn take_away_old(
        &self,
        sql: &str,
        keep: i64,
        when: When,
    ) -> Result<u64, SwitchboardError> {
        let (keep, at) = (keep.min(FOR_EVER), told(when));
        let parameters: [Parameter<'_>; 2] = [(&keep, Type::INT8), (&at, Type::TIMESTAMPTZ)];
        self.take_away(sql, &parameters).await.map_err(SwitchboardError::or_happened)
    }
}
