//! Reading the inbox.

use std::time::SystemTime;

use tenure_wire::ingest::InboxCursor;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::row::{column, count, from_micros, from_row, missing, to_micros};
use super::{Parameter, PostgresStorage};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::inbox::CursorPlace;
use crate::storage::row::DatabaseRow as _;
use crate::storage::{InboxMessage, InboxPage, InboxQuery, InboxRead, MessageLookup};

impl PostgresStorage {
    pub(super) async fn read_inbox(&self, query: &InboxQuery) -> StorageResult<InboxRead> {
        let limit = count(query.limit);
        let at = |micros: Option<i64>| micros.map(from_micros);
        let (since, until) = (at(query.since), at(query.until));
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&query.after.position, Type::INT8),
            (&limit, Type::INT8),
            (&query.channel, Type::TEXT),
            (&query.provider, Type::TEXT),
            (&query.sender_identity, Type::TEXT),
            (&query.thread_identity, Type::TEXT),
            (&since, Type::TIMESTAMPTZ),
            (&until, Type::TIMESTAMPTZ),
        ];
        let mut statement = &self.statements.inbox_read;
        if let Some(endpoint) = &query.endpoint_identity {
            statement = &self.statements.inbox_read_endpoint;
            parameters.push((endpoint, Type::TEXT));
        }
        page(query, &self.data.query(statement, &parameters).await?)
    }

    pub(super) async fn adopt_inbox(&self, by: &str) -> StorageResult<i64> {
        let parameters: [Parameter<'_>; 1] = [(&by, Type::TEXT)];
        let rows = self.data.query(&self.statements.inbox_adopt, &parameters).await?;
        column(rows.first().ok_or_else(missing)?, 0).map_err(SwitchboardError::or_happened)
    }

    pub(super) async fn show_message(&self, request_id: Uuid) -> StorageResult<MessageLookup> {
        let parameters: [Parameter<'_>; 1] = [(&request_id, Type::UUID)];
        let rows = self.data.query(&self.statements.inbox_show, &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        if let Some(message) = message(row)? {
            return Ok(MessageLookup::Message(Box::new(message)));
        }
        let first_seen_at: Option<SystemTime> = column(row, 0)?;
        Ok(first_seen_at.map_or(MessageLookup::Nothing, |at| MessageLookup::Trimmed {
            first_seen_at: to_micros(at),
        }))
    }
}

/// The bounds stand in every row; a page without messages is one row with nothing else.
fn page(query: &InboxQuery, rows: &[Row]) -> StorageResult<InboxRead> {
    let row = rows.last().ok_or_else(missing)?;
    let (last, trimmed, floor) = (column(row, 0)?, column(row, 1)?, column(row, 16)?);
    let place = CursorPlace { last, floor, trimmed, at: column(row, 17)? };
    if let Err(diverged) = place.check(query.after) {
        return Ok(InboxRead::Diverged(diverged));
    }
    let upto = InboxCursor::new(column(row, 2)?, column(row, 18)?);
    let more: Option<bool> = column(row, 3)?;
    let messages: Vec<InboxMessage> =
        rows.iter().filter_map(|row| message(row).transpose()).collect::<Result<_, _>>()?;
    // A page that is full was cut at its last message; another one looked at everything up to the
    // bound.
    let is_cut = more.unwrap_or(false) || messages.len() >= query.limit;
    let cut = messages.last().filter(|_| is_cut);
    let next_after = cut.map_or(upto, |it| InboxCursor::new(it.position, Some(it.request_id)));
    let at_end = next_after.position >= last;
    Ok(InboxRead::Page(InboxPage { messages, next_after, at_end, trimmed }))
}

/// Reads the message from the fifth column on, if there is one.
fn message(row: &Row) -> StorageResult<Option<InboxMessage>> {
    row.number(4)?.map(|_| from_row(row, 4)).transpose()
}
