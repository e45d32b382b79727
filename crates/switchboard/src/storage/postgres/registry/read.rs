//! What is known of connectors.

use std::time::SystemTime;

use tenure_wire::heartbeat::Counters;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::value::{column, count, from_micros, missing, to_micros};
use super::super::{Parameter, Postgres};
use crate::error::SwitchboardError;
use crate::storage::{
    Connector, ConnectorQuery, Connectors, HistoryQuery, Instance, Logged, Measures, Name, Shown,
};

impl Postgres {
    pub(super) async fn list_connectors(
        &self,
        query: &ConnectorQuery,
    ) -> Result<Connectors, SwitchboardError> {
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
        let rows = self.data.query(&self.statements.connector_list, &parameters).await?;
        let now = to_micros(column(rows.first().ok_or_else(missing)?, 0)?);
        let connectors =
            rows.iter().filter_map(|row| connector(row).transpose()).collect::<Result<_, _>>()?;
        Ok(Connectors { now, connectors })
    }

    pub(super) async fn show_connector(
        &self,
        name: &Name,
    ) -> Result<Option<Shown>, SwitchboardError> {
        let parameters: [Parameter<'_>; 2] =
            [(&name.connector_type, Type::TEXT), (&name.endpoint_identity, Type::TEXT)];
        let rows = self.data.query(&self.statements.connector_show, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let Some(connector) = connector(row)? else { return Ok(None) };
        let instances =
            rows.iter().filter_map(|row| instance(row).transpose()).collect::<Result<_, _>>()?;
        Ok(Some(Shown { now: to_micros(column(row, 0)?), connector, instances }))
    }

    pub(super) async fn list_types(
        &self,
        endpoint_identity: &str,
    ) -> Result<Vec<String>, SwitchboardError> {
        let parameters: [Parameter<'_>; 1] = [(&endpoint_identity, Type::TEXT)];
        let rows = self.data.query(&self.statements.connector_types, &parameters).await?;
        rows.iter().map(|row| column(row, 0)).collect()
    }

    pub(super) async fn read_history(
        &self,
        name: &Name,
        query: &HistoryQuery,
    ) -> Result<Vec<Logged>, SwitchboardError> {
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
        let rows = self.data.query(&self.statements.connector_heartbeats, &parameters).await?;
        rows.iter().map(logged).collect()
    }
}

fn at(row: &Row, place: usize) -> Result<Option<i64>, SwitchboardError> {
    Ok(column::<Option<SystemTime>>(row, place)?.map(to_micros))
}

/// Five columns.
fn counters(row: &Row, first: usize) -> Result<Counters, SwitchboardError> {
    Ok(Counters {
        messages_ingested: column(row, first)?,
        messages_failed: column(row, first + 1)?,
        source_api_calls: column(row, first + 2)?,
        checkpoint_saves: column(row, first + 3)?,
        dedupe_accepted: column(row, first + 4)?,
    })
}

/// Eight columns, all of them empty where nothing was counted.
pub(super) fn measures(row: &Row, first: usize) -> Result<Measures, SwitchboardError> {
    let number = |place: usize| -> Result<i64, SwitchboardError> {
        Ok(column::<Option<i64>>(row, first + place)?.unwrap_or(0))
    };
    Ok(Measures {
        messages_ingested: number(0)?,
        messages_failed: number(1)?,
        source_api_calls: number(2)?,
        dedupe_accepted: number(3)?,
        heartbeat_count: number(4)?,
        healthy_count: number(5)?,
        degraded_count: number(6)?,
        error_count: number(7)?,
    })
}

/// After the clock.
fn connector(row: &Row) -> Result<Option<Connector>, SwitchboardError> {
    let Some(connector_type) = column(row, 1)? else { return Ok(None) };
    Ok(Some(Connector {
        connector_type,
        endpoint_identity: column(row, 2)?,
        instance_id: column(row, 3)?,
        version: column(row, 4)?,
        state: column(row, 5)?,
        error_message: column(row, 6)?,
        uptime_s: column(row, 7)?,
        last_heartbeat_at: at(row, 8)?,
        first_seen_at: to_micros(column(row, 9)?),
        registered_via: column(row, 10)?,
        checkpoint_cursor: column(row, 11)?,
        checkpoint_updated_at: at(row, 12)?,
        archived_at: at(row, 13)?,
        interval: column(row, 14)?,
        drift: column(row, 15)?,
        counters: counters(row, 16)?,
        today: measures(row, 21)?,
    }))
}

/// After the connector.
fn instance(row: &Row) -> Result<Option<Instance>, SwitchboardError> {
    let Some(instance_id) = column(row, 29)? else { return Ok(None) };
    Ok(Some(Instance {
        instance_id,
        version: column(row, 30)?,
        state: column(row, 31)?,
        error_message: column(row, 32)?,
        uptime_s: column(row, 33)?,
        started_at: to_micros(column(row, 34)?),
        first_seen_at: to_micros(column(row, 35)?),
        last_heartbeat_at: to_micros(column(row, 36)?),
        stopped_at: at(row, 37)?,
        checkpoint_cursor: column(row, 38)?,
        checkpoint_updated_at: at(row, 39)?,
        capabilities: column(row, 40)?,
        interval: column(row, 41)?,
        drift: column(row, 42)?,
        beats: column(row, 43)?,
        late: column(row, 44)?,
        resets: column(row, 45)?,
        jumps: column(row, 46)?,
        counters: counters(row, 47)?,
    }))
}

fn logged(row: &Row) -> Result<Logged, SwitchboardError> {
    Ok(Logged {
        id: column(row, 0)?,
        instance_id: column(row, 1)?,
        state: column(row, 2)?,
        error_message: column(row, 3)?,
        uptime_s: column(row, 4)?,
        counters: counters(row, 5)?,
        deltas: counters(row, 10)?,
        late: column(row, 15)?,
        received_at: to_micros(column(row, 16)?),
        sent_at: to_micros(column(row, 17)?),
    })
}
