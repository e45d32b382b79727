//! Reading connectors and their history.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::row::{column, count, from_micros, from_row, missing, to_micros};
use super::super::{Parameter, PostgresStorage};
use crate::error::StorageResult;
use crate::storage::registry::with_today;
use crate::storage::row::DatabaseRow as _;
use crate::storage::{
    Connector, ConnectorDetail, ConnectorInstance, ConnectorKey, ConnectorPage, ConnectorQuery,
    HistoryEntry, HistoryQuery,
};

impl PostgresStorage {
    pub(super) async fn list_connectors(
        &self,
        query: &ConnectorQuery,
    ) -> StorageResult<ConnectorPage> {
        // No name is empty.
        let (after_type, after) =
            query.after.as_ref().map_or(("", ""), |(kind, identity)| (kind, identity));
        let limit = count(query.limit);
        let parameters: [Parameter<'_>; 5] = [
            (&after_type, Type::TEXT),
            (&after, Type::TEXT),
            (&query.archived, Type::BOOL),
            (&limit, Type::INT8),
            (&query.endpoint_identity, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.registry_list, &parameters).await?;
        let now = to_micros(column(rows.first().ok_or_else(missing)?, 0)?);
        let connectors =
            rows.iter().filter_map(|row| connector(row).transpose()).collect::<Result<_, _>>()?;
        Ok(ConnectorPage { now, connectors })
    }

    pub(super) async fn show_connector(
        &self,
        name: &ConnectorKey,
    ) -> StorageResult<Option<ConnectorDetail>> {
        let parameters: [Parameter<'_>; 2] =
            [(&name.connector_type, Type::TEXT), (&name.endpoint_identity, Type::TEXT)];
        let rows = self.data.query(&self.statements.registry_show, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let Some(connector) = connector(row)? else { return Ok(None) };
        let instances =
            rows.iter().filter_map(|row| instance(row).transpose()).collect::<Result<_, _>>()?;
        Ok(Some(ConnectorDetail { now: to_micros(column(row, 0)?), connector, instances }))
    }

    pub(super) async fn list_types(&self, endpoint_identity: &str) -> StorageResult<Vec<String>> {
        let parameters: [Parameter<'_>; 1] = [(&endpoint_identity, Type::TEXT)];
        self.rows(&self.statements.registry_types, &parameters).await
    }

    pub(super) async fn read_history(
        &self,
        name: &ConnectorKey,
        query: &HistoryQuery,
    ) -> StorageResult<Vec<HistoryEntry>> {
        let (before, before_id) = query.before.unwrap_or((i64::MAX, i64::MAX));
        let (before, limit) = (from_micros(before), count(query.limit));
        let parameters: [Parameter<'_>; 6] = [
            (&name.connector_type, Type::TEXT),
            (&name.endpoint_identity, Type::TEXT),
            (&before, Type::TIMESTAMPTZ),
            (&before_id, Type::INT8),
            (&query.unhealthy, Type::BOOL),
            (&limit, Type::INT8),
        ];
        self.rows(&self.statements.registry_heartbeats, &parameters).await
    }
}

/// Reads the connector and its counts of today, after the clock.
fn connector(row: &Row) -> StorageResult<Option<Connector>> {
    row.text(1)?.map(|_| from_row(row, 1).map(with_today)).transpose()
}

/// Reads the instance, after the connector.
fn instance(row: &Row) -> StorageResult<Option<ConnectorInstance>> {
    row.uuid(29)?.map(|_| from_row(row, 29)).transpose()
}
