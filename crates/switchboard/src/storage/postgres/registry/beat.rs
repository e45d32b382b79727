//! Heartbeats: rows are read, the rule is applied here, and one statement stores the result if the
//! rows are still the same. No lock is held in between.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tenure_core::Code;
use tenure_wire::heartbeat::Heartbeat;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::super::row::{column, from_row, missing, to_json, to_micros};
use super::super::token::ended;
use super::super::{PostgresStorage, parameters};
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
const INSTANCE_COLUMN: usize = 24;
const REPRESENTATIVE_COLUMN: usize = 54;

/// Creates the locks of this process, which save heartbeats of one connector from retries.
pub(in super::super) fn connector_locks() -> Vec<Mutex<()>> {
    (0..LOCKS).map(|_| Mutex::new(())).collect()
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
        let mut hasher = DefaultHasher::new();
        (&beat.heartbeat.connector_type, &beat.heartbeat.endpoint_identity).hash(&mut hasher);
        // Less than LOCKS, so it fits.
        let lock = &self.connector_locks[(hasher.finish() % LOCKS as u64) as usize];
        let busy = |_| {
            SwitchboardError::refused(
                Code::Busy,
                "other heartbeats hold the lock that this connector shares",
            )
        };
        let _lock = timeout(LOCK_TIMEOUT, lock.lock()).await.map_err(busy)?;
        for _ in 0..MAX_ATTEMPTS {
            let state = self.read_state(&beat.heartbeat, when).await?;
            if let Some(beaten) = self.apply_beat(beat, &state, when).await? {
                return Ok(beaten);
            }
        }
        Err(SwitchboardError::refused(
            Code::Busy,
            "concurrent heartbeats of this connector kept changing its rows",
        ))
    }

    async fn read_state(
        &self,
        heartbeat: &Heartbeat,
        when: TimeSource,
    ) -> StorageResult<HeartbeatState> {
        let at = arrival_time(when);
        let parameters = parameters! {
            heartbeat.connector_type, heartbeat.endpoint_identity, heartbeat.instance_id, at
        };
        let rows = self.beats.query(&self.statements.state, &parameters).await?;
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

    /// Stores the changes. Returns `None` if the rows have changed since they were read.
    async fn apply_beat(
        &self,
        beat: &ReceivedHeartbeat,
        state: &HeartbeatState,
        when: TimeSource,
    ) -> StorageResult<Option<HeartbeatOutcome>> {
        let mut changes = apply_heartbeat(&state.before, beat, state.at, state.wall);
        let instance = to_json(&changes.instance_row())?;
        let connector = changes.connector_row().map(|row| to_json(&row)).transpose()?;
        let history = to_json(&changes.history_row())?;
        changes.owe_deltas();
        let owing = to_json(&changes.owed_columns())?;
        let (is_given, version) = (when != TimeSource::Now, state.version);
        let parameters = parameters! {
            beat.token_id, MAX_CONNECTORS_PER_TOKEN, version, is_given, instance, owing, connector,
            history
        };
        let rows = self.beats.query(&self.statements.apply_beat, &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        // The statement has committed by now, even if its answer is invalid.
        let verdict: &str = column(row, 0).map_err(SwitchboardError::or_happened)?;
        Ok(Some(match verdict {
            "changed" => return Ok(None),
            "too_many" => HeartbeatOutcome::TooMany,
            "taken" => {
                changes.taken.unwritten = column(row, 1).map_err(SwitchboardError::or_happened)?;
                HeartbeatOutcome::Accepted(changes.taken)
            }
            other => ended(other).map(HeartbeatOutcome::TokenEnded).ok_or_else(|| {
                let detail = format!("connector_beat_apply answered {other:?}");
                SwitchboardError::unknown(Code::Damaged, detail)
            })?,
        }))
    }
}
