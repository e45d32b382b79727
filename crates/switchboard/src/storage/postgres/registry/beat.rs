//! Heartbeats: rows are read, the rule is applied here, and one statement stores the result if the
//! rows are still the same. No lock is held in between.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tenure_core::Code;
use tenure_wire::heartbeat::Heartbeat;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::super::row::{column, from_row, missing, to_json, to_micros};
use super::super::token::ended;
use super::super::{Parameter, PostgresStorage};
use super::arrival_time;
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::registry::heartbeat::{ConnectorRows, apply_heartbeat};
use crate::storage::row::DatabaseRow as _;
use crate::storage::{HeartbeatOutcome, MAX_CONNECTORS_PER_TOKEN, ReceivedHeartbeat, TimeSource};

/// Maximum number of attempts if other replicas change the rows meanwhile.
const MAX_ATTEMPTS: usize = 16;
const LOCKS: usize = 64;
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// First column of each row in `state.sql`.
const CONNECTOR_COLUMN: usize = 3;
const INSTANCE_COLUMN: usize = 23;
const REPRESENTATIVE_COLUMN: usize = 52;

/// Locks of this process: heartbeats of one connector would make each other read again.
#[derive(Debug)]
pub(in super::super) struct ConnectorLocks([Mutex<()>; LOCKS]);

impl Default for ConnectorLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(())))
    }
}

impl ConnectorLocks {
    async fn lock(&self, heartbeat: &Heartbeat) -> StorageResult<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        (&heartbeat.connector_type, &heartbeat.endpoint_identity).hash(&mut hasher);
        // Less than LOCKS, which fits.
        let lock = &self.0[(hasher.finish() % LOCKS as u64) as usize];
        let busy = |_| SwitchboardError::refused(Code::Busy, "other heartbeats are in the way");
        timeout(LOCK_TIMEOUT, lock.lock()).await.map_err(busy)
    }
}

/// The rows of a connector as they were read.
struct HeartbeatState {
    before: ConnectorRows,
    version: i64,
    at: i64,
    wall: i64,
}

impl PostgresStorage {
    pub(super) async fn take_beat(
        &self,
        beat: &ReceivedHeartbeat,
        when: TimeSource,
    ) -> StorageResult<HeartbeatOutcome> {
        let _lock = self.connector_locks.lock(&beat.heartbeat).await?;
        for _ in 0..MAX_ATTEMPTS {
            let state = self.read_state(&beat.heartbeat, when).await?;
            if let Some(beaten) = self.apply_beat(beat, &state, when).await? {
                return Ok(beaten);
            }
        }
        Err(SwitchboardError::refused(Code::Busy, "other heartbeats of this connector came first"))
    }

    async fn read_state(
        &self,
        heartbeat: &Heartbeat,
        when: TimeSource,
    ) -> StorageResult<HeartbeatState> {
        let at = arrival_time(when);
        let parameters: [Parameter<'_>; 4] = [
            (&heartbeat.connector_type, Type::TEXT),
            (&heartbeat.endpoint_identity, Type::TEXT),
            (&heartbeat.instance_id, Type::UUID),
            (&at, Type::TIMESTAMPTZ),
        ];
        let rows = self.beats.query(&self.statements.registry_state, &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        let is_there = |column| Ok::<_, SwitchboardError>(row.uuid(column)?.is_some());
        let connector = row.text(CONNECTOR_COLUMN)?.map(|_| from_row(row, CONNECTOR_COLUMN));
        let instance = is_there(INSTANCE_COLUMN)?.then(|| from_row(row, INSTANCE_COLUMN));
        let representative =
            is_there(REPRESENTATIVE_COLUMN)?.then(|| from_row(row, REPRESENTATIVE_COLUMN));
        let before = ConnectorRows {
            connector: connector.transpose()?,
            instance: instance.transpose()?,
            representative: representative.transpose()?,
        };
        let (at, wall) = (to_micros(column(row, 0)?), to_micros(column(row, 1)?));
        Ok(HeartbeatState { before, version: column(row, 2)?, at, wall })
    }

    /// Returns `None` if the rows have changed since they were read.
    async fn apply_beat(
        &self,
        beat: &ReceivedHeartbeat,
        state: &HeartbeatState,
        when: TimeSource,
    ) -> StorageResult<Option<HeartbeatOutcome>> {
        let mut changes = apply_heartbeat(&state.before, beat, state.at, state.wall);
        let connector = changes.connector_fields().map(to_json);
        let parameters: [Parameter<'_>; 7] = [
            (&beat.token_id, Type::TEXT),
            (&MAX_CONNECTORS_PER_TOKEN, Type::INT8),
            (&state.version, Type::INT8),
            (&(when != TimeSource::Now), Type::BOOL),
            (&to_json(changes.instance_fields()), Type::TEXT),
            (&connector, Type::TEXT),
            (&to_json(changes.history_fields()), Type::TEXT),
        ];
        let rows = self.beats.query(&self.statements.registry_apply_beat, &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        // From here on it has happened, whatever is wrong with the answer.
        let verdict: &str = column(row, 0).map_err(SwitchboardError::or_happened)?;
        Ok(Some(match verdict {
            "changed" => return Ok(None),
            "too_many" => HeartbeatOutcome::TooMany,
            "taken" => {
                let unwritten = column(row, 1).map_err(SwitchboardError::or_happened)?;
                changes.taken.unwritten = unwritten;
                HeartbeatOutcome::Accepted(changes.taken)
            }
            other => ended(other).map(HeartbeatOutcome::TokenEnded).ok_or_else(|| {
                let detail = format!("connector_beat_apply answered {other:?}");
                SwitchboardError::unknown(Code::Damaged, detail)
            })?,
        }))
    }
}
