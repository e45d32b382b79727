//! Reading the inbox.

use async_trait::async_trait;
use tenure_wire::ingest::InboxCursor;
use tokio_postgres::Row;
use uuid::Uuid;

use super::row::{column, count, first, from_micros, from_row, missing};
use super::{PostgresStorage, parameters, sql};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::inbox::CursorPlace;
use crate::storage::row::DatabaseRow as _;
use crate::storage::{
    Inbox, InboxMessage, InboxPage, InboxQuery, InboxRead, MessageLookup, Submission,
    SubmissionOutcome,
};

#[async_trait]
impl Inbox for PostgresStorage {
    async fn commit(&self, group: &[Submission]) -> StorageResult<Vec<SubmissionOutcome>> {
        self.commit_group(group).await
    }

    async fn inbox(&self, query: &InboxQuery) -> StorageResult<InboxRead> {
        let InboxQuery { after, channel, provider, sender_identity, thread_identity, .. } = query;
        let at = |micros: Option<i64>| micros.map(from_micros);
        let (limit, since, until) = (count(query.limit), at(query.since), at(query.until));
        let parameters = parameters! {
            after.position, limit, channel, provider, sender_identity, thread_identity, since, until
        };
        let rows = match &query.endpoint_identity {
            None => self.query(sql!("inbox/read"), &parameters).await?,
            Some(endpoint) => {
                let parameters = [&parameters[..], &parameters! { endpoint }].concat();
                self.query(sql!("inbox/read_endpoint"), &parameters).await?
            }
        };
        page(query, &rows)
    }

    async fn message(&self, request_id: Uuid) -> StorageResult<MessageLookup> {
        let rows = self.query(sql!("inbox/show"), &parameters! { request_id }).await?;
        let row = rows.first().ok_or_else(missing)?;
        if let Some(message) = message(row)? {
            return Ok(MessageLookup::Message(Box::new(message)));
        }
        let first_seen_at = row.number(0)?;
        Ok(first_seen_at.map_or(MessageLookup::Nothing, |first_seen_at| MessageLookup::Trimmed {
            first_seen_at,
        }))
    }

    async fn last_position(&self) -> StorageResult<i64> {
        self.one(sql!("inbox/last"), &[]).await
    }

    async fn adopt(&self, by: &str) -> StorageResult<i64> {
        let rows = self.query(sql!("inbox/adopt"), &parameters! { by }).await?;
        first(&rows).map_err(SwitchboardError::or_happened)
    }
}

/// Reads a page. Every row contains the bounds; an empty page is one row without a message.
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
    // A full page ends at its last message; any other page covers everything up to the bound.
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
