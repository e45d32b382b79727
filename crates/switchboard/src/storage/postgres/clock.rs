//! The clock of retention.
//!
//! Why: docs/decisions/0037-deletion-follows-a-slow-clock.md

use tokio_postgres::types::Type;

use super::registry::arrival_time;
use super::row::{column, from_micros, missing, to_micros};
use super::{ClockMeasurement, ClockReading, Parameter, PostgresStorage, TimeSource};
use crate::error::StorageResult;

impl PostgresStorage {
    pub(super) async fn move_clock(
        &self,
        since: Option<ClockMeasurement>,
        when: TimeSource,
    ) -> StorageResult<ClockReading> {
        let at = arrival_time(when);
        let (turn, elapsed) = (since.map(|it| it.turn), since.map(|it| it.elapsed));
        let wall = since.map(|it| from_micros(it.wall));
        let parameters: [Parameter<'_>; 4] = [
            (&at, Type::TIMESTAMPTZ),
            (&turn, Type::INT8),
            (&elapsed, Type::INT8),
            (&wall, Type::TIMESTAMPTZ),
        ];
        let rows = self.data.query(&self.statements.clock_tick, &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        Ok(ClockReading {
            turn: column(row, 0)?,
            wall: to_micros(column(row, 1)?),
            reached: to_micros(column(row, 2)?),
        })
    }
}
