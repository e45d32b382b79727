//! Heartbeats.

use rusqlite::Connection;
use uuid::Uuid;

use super::super::row::{execute, first, one, store};
use super::super::{failed, sql, token};
use super::arrival_time;
use crate::storage::registry::heartbeat::{
    ConnectorRows, HeartbeatChanges, InstanceRow, apply_heartbeat,
};
use crate::storage::{
    Connector, HeartbeatOutcome, MAX_CONNECTORS_PER_TOKEN, ReceivedHeartbeat, TimeSource,
};

/// Stores a heartbeat. `now` is the wall clock, by which tokens expire.
pub(super) fn beat(
    db: &Connection,
    beat: &ReceivedHeartbeat,
    now: i64,
    when: TimeSource,
) -> rusqlite::Result<HeartbeatOutcome> {
    let at = arrival_time(db, when, now)?;
    let token_id = beat.token_id.as_deref();
    if let Some(ended) = token::ended(db, token_id, now)? {
        return Ok(HeartbeatOutcome::TokenEnded(ended));
    }
    let before = read(db, beat)?;
    if before.connector.is_none() {
        let registered: i64 = one(db, sql!("registry/count_of_token"), [token_id])?;
        if registered >= MAX_CONNECTORS_PER_TOKEN {
            return Ok(HeartbeatOutcome::TooMany);
        }
        let name = (&beat.heartbeat.connector_type, &beat.heartbeat.endpoint_identity);
        execute(db, sql!("registry/join"), (name.0, name.1, at, token_id))?;
    }
    let wall = if when == TimeSource::Now { now } else { at };
    let mut changes = apply_heartbeat(&before, beat, at, wall);
    changes.taken.unwritten = append_history(db, &changes)?;
    if changes.taken.unwritten.is_some() {
        changes.owe_deltas();
    }
    store(db, sql!("registry/put_instance"), &changes.instance_row())?;
    if let Some(connector) = changes.connector_row() {
        store(db, sql!("registry/put_connector"), &connector)?;
    }
    Ok(HeartbeatOutcome::Accepted(changes.taken))
}

fn read(db: &Connection, beat: &ReceivedHeartbeat) -> rusqlite::Result<ConnectorRows> {
    let heartbeat = &beat.heartbeat;
    let name = (&heartbeat.connector_type, &heartbeat.endpoint_identity);
    let find = |id: Uuid| -> rusqlite::Result<Option<InstanceRow>> {
        first(db, sql!("registry/find_instance"), (name.0, name.1, id.as_bytes()))
    };
    let connector: Option<Connector> = first(db, sql!("registry/find"), name)?;
    let other = connector.as_ref().and_then(|connector| connector.instance_id);
    let other = other.filter(|id| *id != heartbeat.instance_id);
    Ok(ConnectorRows {
        connector,
        instance: find(heartbeat.instance_id)?,
        representative: other.map(find).transpose()?.flatten(),
    })
}

/// Appends to the history. Returns the reason if that fails; everything else is stored anyway.
fn append_history(
    db: &Connection,
    changes: &HeartbeatChanges<'_>,
) -> rusqlite::Result<Option<String>> {
    execute(db, "SAVEPOINT history", [])?;
    let written = store(db, sql!("registry/append_history"), &changes.history_row());
    // Some errors end the transaction: then nothing at all is stored.
    if db.is_autocommit() {
        return written.map(|_| None);
    }
    if written.is_err() {
        execute(db, "ROLLBACK TO history", [])?;
    }
    execute(db, "RELEASE history", [])?;
    Ok(written.err().map(|error| failed(error).to_string()))
}
