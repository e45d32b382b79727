//! Reading connectors and their history.

use rusqlite::Connection;

use super::super::row::{all, first, limit};
use super::super::statements as sql;
use crate::storage::registry::with_today;
use crate::storage::{
    ConnectorDetail, ConnectorKey, ConnectorPage, ConnectorQuery, HistoryEntry, HistoryQuery,
};

/// At most this many instances of a connector are shown.
const MAX_INSTANCES: i64 = 100;

pub(super) fn list(
    db: &Connection,
    query: &ConnectorQuery,
    now: i64,
) -> rusqlite::Result<ConnectorPage> {
    // No name is empty.
    let (of, endpoint) = query.after.as_ref().map_or(("", ""), |(of, it)| (of, it));
    let only = &query.endpoint_identity;
    let values = (now, of, endpoint, limit(query.limit), only, query.archived);
    let connectors = all(db, sql::REGISTRY_LIST, values)?;
    Ok(ConnectorPage { now, connectors: connectors.into_iter().map(with_today).collect() })
}

pub(super) fn show(
    db: &Connection,
    name: &ConnectorKey,
    now: i64,
) -> rusqlite::Result<Option<ConnectorDetail>> {
    let (of, endpoint) = (&name.connector_type, &name.endpoint_identity);
    let Some(connector) = first(db, sql::REGISTRY_SHOW, (now, of, endpoint))? else {
        return Ok(None);
    };
    let instances = all(db, sql::REGISTRY_LIST_INSTANCES, (of, endpoint, MAX_INSTANCES))?;
    Ok(Some(ConnectorDetail { now, connector: with_today(connector), instances }))
}

pub(super) fn history(
    db: &Connection,
    name: &ConnectorKey,
    query: &HistoryQuery,
) -> rusqlite::Result<Vec<HistoryEntry>> {
    let (received_at, id) = query.before.unwrap_or((i64::MAX, i64::MAX));
    let (of, endpoint) = (&name.connector_type, &name.endpoint_identity);
    let values = (of, endpoint, received_at, id, limit(query.limit), query.unhealthy);
    all(db, sql::REGISTRY_HEARTBEATS, values)
}
