//! Channel list.

use async_trait::async_trait;
use rusqlite::Connection;
use serde_json::json;
use tenure_wire::ingest::Channel;

use super::row::{all, execute};
use super::{SqliteStorage, statements as sql, token};
use crate::error::StorageResult;
use crate::storage::channel::{ChannelList, action, joined};

#[async_trait]
impl ChannelList for SqliteStorage {
    async fn channels(&self) -> StorageResult<Vec<Channel>> {
        self.read(|db, _| all(db, sql::CHANNEL_LIST, [])).await
    }

    async fn replace_channel(
        &self,
        was: Option<&Channel>,
        becomes: Option<&Channel>,
        by: &str,
    ) -> StorageResult<bool> {
        let (was, becomes, by) = (was.cloned(), becomes.cloned(), by.to_owned());
        self.write(move |db, now| replace(db, was.as_ref(), becomes.as_ref(), &by, now)).await
    }
}

fn replace(
    db: &Connection,
    was: Option<&Channel>,
    becomes: Option<&Channel>,
    by: &str,
    now: i64,
) -> rusqlite::Result<bool> {
    let Some(named) = was.or(becomes) else { return Ok(false) };
    let known: Vec<Channel> = all(db, sql::CHANNEL_LIST, [])?;
    if known.iter().find(|channel| channel.name == named.name) != was {
        return Ok(false);
    }
    execute(db, sql::CHANNEL_REMOVE, [&named.name])?;
    if let Some(becomes) = becomes {
        execute(db, sql::CHANNEL_ADD, (&becomes.name, joined(becomes), &becomes.alias))?;
    }
    let metadata = json!({
        "providers": becomes.map(joined),
        "alias": becomes.and_then(|channel| channel.alias.as_deref()),
    });
    let action = action(was, becomes);
    let entry = token::TokenAuditRecord { token_id: &named.name, action, by, reason: "", metadata };
    token::record(db, &entry, now)?;
    Ok(true)
}
