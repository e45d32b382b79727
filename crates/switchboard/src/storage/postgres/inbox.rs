//! Reading the inbox.

use std::time::SystemTime;

use tenure_core::StoreError;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::value::{column, count, from_micros, missing, to_micros};
use super::{Parameter, Postgres};
use crate::storage::{Found, InboxPage, InboxQuery, Message};

impl Postgres {
    pub(super) async fn read_inbox(&self, query: &InboxQuery) -> Result<InboxPage, StoreError> {
        let limit = count(query.limit);
        let at = |micros: Option<i64>| micros.map(from_micros);
        let (since, until) = (at(query.since), at(query.until));
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&query.after, Type::INT8),
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
            statement = &self.statements.inbox_endpoint;
            parameters.push((endpoint, Type::TEXT));
        }
        page(query, &self.data.query(statement, &parameters).await?)
    }

    pub(super) async fn show_message(&self, request_id: Uuid) -> Result<Found, StoreError> {
        let parameters: [Parameter<'_>; 1] = [(&request_id, Type::UUID)];
        let rows = self.data.query(&self.statements.inbox_show, &parameters).await?;
        let row = rows.first().ok_or_else(missing)?;
        if let Some(message) = message(row)? {
            return Ok(Found::Message(Box::new(message)));
        }
        let first_seen_at: Option<SystemTime> = column(row, 0)?;
        Ok(first_seen_at
            .map_or(Found::Nothing, |at| Found::Trimmed { first_seen_at: to_micros(at) }))
    }
}

/// The bounds stand in every row; a page without messages is one row with nothing else.
fn page(query: &InboxQuery, rows: &[Row]) -> Result<InboxPage, StoreError> {
    let last_row = rows.last().ok_or_else(missing)?;
    let (last, upto): (i64, i64) = (column(last_row, 0)?, column(last_row, 2)?);
    let more: Option<bool> = column(last_row, 3)?;
    let messages: Vec<Message> =
        rows.iter().filter_map(|row| message(row).transpose()).collect::<Result<_, _>>()?;
    // A page that is full was cut at its last message; another one looked at everything up to the
    // bound.
    let is_cut = more.unwrap_or(false) || messages.len() >= query.limit;
    let looked_at =
        if is_cut { messages.last().map(|message| message.position) } else { Some(upto) };
    let next_after = looked_at.unwrap_or(query.after).max(query.after);
    Ok(InboxPage {
        messages,
        next_after,
        at_end: next_after >= last,
        trimmed: column(last_row, 1)?,
    })
}

/// From the fifth column on.
fn message(row: &Row) -> Result<Option<Message>, StoreError> {
    let Some(position) = column(row, 4)? else { return Ok(None) };
    Ok(Some(Message {
        position,
        request_id: column(row, 5)?,
        received_at: to_micros(column(row, 6)?),
        channel: column(row, 7)?,
        provider: column(row, 8)?,
        endpoint_identity: column(row, 9)?,
        sender_identity: column(row, 10)?,
        thread_identity: column(row, 11)?,
        dedupe_key: column(row, 12)?,
        token_id: column(row, 13)?,
        lifecycle_state: column(row, 14)?,
        envelope: column(row, 15)?,
    }))
}
